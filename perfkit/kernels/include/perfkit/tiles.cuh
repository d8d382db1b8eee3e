/* Products of up to 32 rows of x with bf16 weights by tensor cores: what makes the pairs of outputs of pairs.cuh. */
#pragma once

#include <perfkit/device.cuh>
#include <perfkit/early.cuh>

typedef Pack<bf16, 8> Eight;

/* sums (16, 8) += a (16, 16) · b (16, 8). Of lane 4 g + t, sums are of outputs g, g, g + 8, g + 8 for rows 2 t, 2 t + 1,
 * 2 t, 2 t + 1; a two columns of outputs g, g + 8, then two more of each; b the same four columns of row g. Which columns
 * of the sixteen those are does not matter, as long as a and b agree. */
DEVICE void multiply_add(float (&sums)[4], uint32 a0, uint32 a1, uint32 a2, uint32 a3, uint32 b0, uint32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* A block of WARPS makes eight pairs for each of 8 TILES rows of x. Its warps share the columns, 32 PACKS of each at once:
 * a lane's access is eight of them, of one output of the first, of the second, and of one row of x. While those are
 * multiplied, the next are on their way to shared memory. */
template <bool NORM, int TILES, int PACKS, int WARPS, class Pair>
DEVICE void staged_tile(const bf16 *x, const bf16 *norm, int64 B, int64 C, int64 pairs, double eps, const Pair &pair) {
    extern __shared__ uint4 staged[]; /* twice 2 PACKS accesses of each thread; then the sums of the warps */
    constexpr int THREADS = 32 * WARPS, STEP = THREADS * PACKS;
    next_may_begin();
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, own = lane / 4;
    int64 m = (int64)blockIdx.x * 8, n = (int64)blockIdx.y * 8 * TILES;
    int64 column = (int64)warp * 32 * PACKS + lane % 4 * 8, safe = m + own < pairs ? m + own : pairs - 1;
    const bf16 *first = pair.first(safe) + column, *second = pair.second(safe) + column;
    float sums[TILES][4] = {}, squares[TILES] = {};
    auto ask = [&](int64 from, int half) {
#pragma unroll
        for (int p = 0; p < PACKS; p++)
            if (column + from + p * 32 < C) {
                stage(staged + (half * 2 * PACKS + 2 * p) * THREADS + threadIdx.x, first + from + p * 32);
                stage(staged + (half * 2 * PACKS + 2 * p + 1) * THREADS + threadIdx.x, second + from + p * 32);
            }
        staged_together();
    };
    ask(0, 0);
    ask(STEP, 1);
    after_previous();
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
                rows[p][tile].zero();
                if (c < C && n + tile * 8 + own < B) rows[p][tile].load(x + (n + tile * 8 + own) * C + c);
            }
        }
        all_but_the_last_staged();
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            if (column + from - lane % 4 * 8 + p * 32 >= C) break; /* of the whole warp */
            Eight u, v;
            u.zero(), v.zero();
            if (column + from + p * 32 < C) {
                u.whole = staged[(half * 2 * PACKS + 2 * p) * THREADS + threadIdx.x];
                v.whole = staged[(half * 2 * PACKS + 2 * p + 1) * THREADS + threadIdx.x];
            }
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
                Eight &row = rows[p][tile];
                if (NORM) {
                    float y[8];
#pragma unroll
                    for (int j = 0; j < 8; j++) {
                        float value = row.at(j);
                        squares[tile] += value * value, y[j] = value * factors[p].at(j);
                    }
                    row.pack(y);
                }
                multiply_add(sums[tile], u.parts[0], v.parts[0], u.parts[1], v.parts[1], row.parts[0], row.parts[1]);
                multiply_add(sums[tile], u.parts[2], v.parts[2], u.parts[3], v.parts[3], row.parts[2], row.parts[3]);
            }
        }
        ask(from + 2 * STEP, half);
    }
    __syncthreads(); /* nothing is on its way to shared memory, or read from it */
    float *of_warps = (float *)staged, *squares_of_warps = of_warps + WARPS * TILES * 128;
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        float *ours = of_warps + (warp * TILES + tile) * 128 + lane % 4 * 2;
        ours[own * 8] = sums[tile][0], ours[own * 8 + 1] = sums[tile][1];
        ours[(own + 8) * 8] = sums[tile][2], ours[(own + 8) * 8 + 1] = sums[tile][3];
        float of_row = NORM ? over_warp<Sum, 4>(squares[tile]) : 0.0f;
        if (lane % 4 == 0) squares_of_warps[(warp * TILES + tile) * 8 + own] = of_row;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 64 * TILES; i += THREADS) {
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
