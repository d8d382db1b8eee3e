/* Products of a few rows of x with weights, whose outputs come in pairs, and those in bf16 by tensor cores.
 *
 * A struct tells what a pair is: `first` and `second`, its rows of the weights; `write`, what becomes of its two sums for
 * row n of x. So a pair may be neighbours, or those that a rotation turns, or a gate and what it lets through.
 */
#pragma once

#include <perfkit/device.cuh>
#include <perfkit/early.cuh>

/* Two neighbouring outputs; the second may be beyond the last. */
template <class T> struct Neighbours {
    const T *weight;
    T *y;
    int64 C, M;

    DEVICE const T *first(int64 pair) const { return weight + 2 * pair * C; }
    DEVICE const T *second(int64 pair) const { return weight + (2 * pair + 1 < M ? 2 * pair + 1 : 2 * pair) * C; }
    DEVICE void write(int64 n, int64 pair, float low, float high) const {
        put(y + n * M + 2 * pair, low);
        if (2 * pair + 1 < M) put(y + n * M + 2 * pair + 1, high);
    }
};

/* ---- tensor cores ------------------------------------------------------------------------------------------------------ */

typedef Pack<bf16, 8> Eight;

/* sums (16, 8) += a (16, 16) · b (16, 8). Of lane 4 g + t, sums are of outputs g, g, g + 8, g + 8 for rows 2 t, 2 t + 1,
 * 2 t, 2 t + 1; a two columns of outputs g, g + 8, then two more of each; b the same four columns of row g. Which columns
 * of the sixteen those are does not matter, as long as a and b agree. */
DEVICE void multiply_add(float (&sums)[4], uint32 a0, uint32 a1, uint32 a2, uint32 a3, uint32 b0, uint32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* Add the sums of a block's warps, in order, and write the block's pairs. `of_warps` is shared memory for 136 TILES WARPS
 * numbers. */
template <bool NORM, int TILES, int WARPS, class Pair>
DEVICE void write_tile(float *of_warps, const float (&sums)[TILES][4], const float (&squares)[TILES], int64 n, int64 m,
                       int64 B, int64 C, int64 pairs, double eps, const Pair &pair) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, own = lane / 4;
    float *squares_of_warps = of_warps + WARPS * TILES * 128;
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        float *ours = of_warps + (warp * TILES + tile) * 128 + lane % 4 * 2;
        ours[own * 8] = sums[tile][0], ours[own * 8 + 1] = sums[tile][1];
        ours[(own + 8) * 8] = sums[tile][2], ours[(own + 8) * 8 + 1] = sums[tile][3];
        float of_row = NORM ? over_warp<Sum, 4>(squares[tile]) : 0.0f;
        if (lane % 4 == 0) squares_of_warps[(warp * TILES + tile) * 8 + own] = of_row;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 64 * TILES; i += 32 * WARPS) {
        int tile = i / 64, output = i % 64 / 8, row = i % 8;
        float low = 0.0f, high = 0.0f, total = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            const float *theirs = of_warps + (w * TILES + tile) * 128 + output * 8 + row;
            low += theirs[0], high += theirs[64], total += squares_of_warps[(w * TILES + tile) * 8 + row];
        }
        float rstd = NORM ? rsqrtf(total / C + (float)eps) : 1.0f;
        if (m + output < pairs && n + tile * 8 + row < B)
            pair.write(n + tile * 8 + row, m + output, low * rstd, high * rstd);
    }
}

/* x norm of eight columns in the place of x; their squares are added to `squares`. */
DEVICE void scale(Eight &x, const Eight &norm, float &squares) {
    float y[8];
#pragma unroll
    for (int j = 0; j < 8; j++) {
        float value = x.at(j);
        squares += value * value, y[j] = value * norm.at(j);
    }
    x.pack(y);
}

/* A block of WARPS makes eight pairs for each of 8 TILES rows of x. Its warps share the columns, 32 PACKS of each at once:
 * a lane's access is eight of them, of one output of the first, of the second, and of one row of x. While those are
 * multiplied, the next are on their way to shared memory. */
template <bool NORM, int TILES, int PACKS, int WARPS, class Pair>
DEVICE void staged_tile(const bf16 *x, const bf16 *norm, int64 B, int64 C, int64 pairs, double eps, const Pair &pair) {
    extern __shared__ uint4 staged[]; /* twice 2 PACKS accesses of each thread; then the sums of the warps */
    constexpr int THREADS = 32 * WARPS, STEP = THREADS * PACKS;
    next_may_begin();
    int own = threadIdx.x % 32 / 4;
    int64 m = (int64)blockIdx.x * 8, n = (int64)blockIdx.y * 8 * TILES, safe = m + own < pairs ? m + own : pairs - 1;
    int64 of_warp = (int64)(threadIdx.x / 32) * 32 * PACKS, column = of_warp + threadIdx.x % 4 * 8;
    const bf16 *first = pair.first(safe), *second = pair.second(safe);
    auto place = [&](int half, int access) { return staged + (half * 2 * PACKS + access) * THREADS + threadIdx.x; };
    auto ask = [&](int64 from, int half) {
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            int64 c = column + from + p * 32;
            if (c < C) stage(place(half, 2 * p), first + c), stage(place(half, 2 * p + 1), second + c);
        }
        staged_together();
    };
    ask(0, 0);
    ask(STEP, 1);
    after_previous();
    float sums[TILES][4] = {}, squares[TILES] = {};
    int half = 0;
    for (int64 from = 0; from < C; from += STEP, half = 1 - half) {
        Eight rows[PACKS][TILES], factors[PACKS];
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            int64 c = column + from + p * 32;
            factors[p].zero();
            if (NORM && c < C) factors[p].load(norm + c);
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
                int64 row = n + tile * 8 + own;
                rows[p][tile].zero();
                if (c < C && row < B) rows[p][tile].load(x + row * C + c);
            }
        }
        all_but_the_last_staged();
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            if (of_warp + from + p * 32 >= C) break;
            Eight u, v;
            u.zero(), v.zero();
            if (column + from + p * 32 < C) u.whole = *place(half, 2 * p), v.whole = *place(half, 2 * p + 1);
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
                Eight &row = rows[p][tile];
                if (NORM) scale(row, factors[p], squares[tile]);
                multiply_add(sums[tile], u.parts[0], v.parts[0], u.parts[1], v.parts[1], row.parts[0], row.parts[1]);
                multiply_add(sums[tile], u.parts[2], v.parts[2], u.parts[3], v.parts[3], row.parts[2], row.parts[3]);
            }
        }
        ask(from + 2 * STEP, half);
    }
    __syncthreads(); /* nothing is on its way to shared memory, or read from it */
    write_tile<NORM, TILES, WARPS>((float *)staged, sums, squares, n, m, B, C, pairs, eps, pair);
}
