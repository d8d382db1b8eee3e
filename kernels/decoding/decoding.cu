/* A token's pass through a layer: products of a row with weights, with norm, rotation, cache, SwiGLU or sum around them.
 *
 * Every product makes pairs of outputs, told by a struct (tiles.cuh, pairs.cuh). With a norm, y = x rstd norm: rstd is a
 * factor of the whole sum.
 */
#include <perfkit/early.cuh>
#include <perfkit/tiles.cuh>

#include "pairs.cuh"

typedef unsigned long long uint64;

/* ---- version 1: one thread a pair of outputs --------------------------------------------------------------------------- */

template <class T, class Pair>
DEVICE void one_pair(const T *x, const T *norm, int64 B, int64 C, int64 pairs, double eps, const Pair &pair) {
    int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= B * pairs) return;
    int64 n = i / pairs, m = i % pairs;
    const T *first = pair.first(m), *second = pair.second(m);
    float low = 0.0f, high = 0.0f, squares = 0.0f;
    for (int64 c = 0; c < C; c++) {
        float v = get(x + n * C + c), g = norm ? v * get(norm + c) : v;
        squares += v * v, low += g * get(first + c), high += g * get(second + c);
    }
    float r = norm ? rsqrtf(squares / C + (float)eps) : 1.0f;
    pair.write(n, m, low * r, high * r);
}

template <class T>
__global__ void decode_sum_v1(const T *x, const T *weight, const T *residual, T *y, int64 B, int64 C, int64 M) {
    one_pair(x, (const T *)0, B, C, (M + 1) / 2, 0.0, Added<T>{{weight, y, C, M}, residual});
}

template <class T>
__global__ void decode_head_v1(const T *x, const T *norm, const T *weight, T *y, int64 B, int64 C, int64 M, double eps) {
    one_pair(x, norm, B, C, (M + 1) / 2, eps, Neighbours<T>{weight, y, C, M});
}

template <class T>
__global__ void decode_swiglu_v1(const T *x, const T *norm, const T *gate, const T *up, T *g, int64 B, int64 C, int64 F,
                                 double eps) {
    one_pair(x, norm, B, C, F, eps, Gated<T>{gate, up, g, C, F});
}

template <class T>
__global__ void decode_qkv_v1(const T *x, const T *norm, const T *wq, const T *wk, const T *wv, const T *cosine, const T *sine,
                              const int64 *position, T *keys, T *values, T *q, int64 B, int64 C, int64 NH, int64 NKV,
                              int64 P, int64 S, double eps) {
    Heads<T> heads = {wq, wk, wv, cosine, sine, position, keys, values, q, C, NH, NKV, P, S};
    one_pair(x, norm, B, C, (NH + 2 * NKV) * P, eps, heads);
}

/* ---- version 2: a block a pair; its weights are under way before the kernel ahead has ended ----------------------------- */

/* A block of THREADS makes a pair of outputs for each of ROWS rows of x. Its weights pass through shared memory, PACKS
 * accesses of a thread to each of the two rows at once: registers would hold fewer under way. */
template <bool NORM, int WIDTH, int ROWS, int PACKS, int THREADS, class T, class Pair>
DEVICE void staged_pair(const T *x, const T *norm, int64 B, int64 C, double eps, const Pair &pair) {
    extern __shared__ uint4 staged[];
    typedef Pack<T, WIDTH> Access;
    constexpr int STEP = THREADS * WIDTH;
    constexpr bool AHEAD = ROWS == 1; /* of one row, x is asked for before the weights are waited for */
    next_may_begin();
    int64 m = blockIdx.x, n = (int64)blockIdx.y * ROWS;
    uint4 *own = staged + threadIdx.x;
    const T *first = pair.first(m), *second = pair.second(m);
    float low[ROWS] = {}, high[ROWS] = {}, squares[ROWS] = {};
    for (int64 from = 0; from < C; from += STEP * PACKS) {
        int64 c = from + threadIdx.x * WIDTH;
#pragma unroll
        for (int p = 0; p < PACKS; p++)
            if (c + p * STEP < C) {
                stage(own + 2 * p * THREADS, first + c + p * STEP);
                stage(own + (2 * p + 1) * THREADS, second + c + p * STEP);
            }
        if (from == 0) after_previous();
        Access a[PACKS], g[PACKS];
#pragma unroll
        for (int p = 0; p < PACKS; p++)
            if (c + p * STEP < C) {
                if (NORM) g[p].load(norm + c + p * STEP);
                if (AHEAD) a[p].load(x + n * C + c + p * STEP);
            }
        all_staged();
#pragma unroll
        for (int p = 0; p < PACKS; p++)
            if (c + p * STEP < C) {
                Access u, v;
                u.whole = own[2 * p * THREADS], v.whole = own[(2 * p + 1) * THREADS];
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    if (!AHEAD && n + r < B) a[p].load(x + (n + r) * C + c + p * STEP);
#pragma unroll
                    for (int j = 0; j < WIDTH; j++) {
                        float value = a[p].at(j), y = NORM ? value * g[p].at(j) : value;
                        if (NORM) squares[r] += value * value;
                        low[r] += y * u.at(j), high[r] += y * v.at(j);
                    }
                }
            }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float a = over_group<Sum, THREADS>(low[r]), b = over_group<Sum, THREADS>(high[r]);
        float rstd = NORM ? rsqrtf(over_group<Sum, THREADS>(squares[r]) / C + (float)eps) : 1.0f;
        if (threadIdx.x == 0 && n + r < B) pair.write(n + r, m, a * rstd, b * rstd);
    }
}

template <class T, int WIDTH, int ROWS, int PACKS, int THREADS>
__global__ void __launch_bounds__(THREADS)
    decode_sum_v2(const T *x, const T *weight, const T *residual, T *y, int64 B, int64 C, int64 M) {
    staged_pair<false, WIDTH, ROWS, PACKS, THREADS>(x, (const T *)0, B, C, 0.0, Added<T>{{weight, y, C, M}, residual});
}

template <class T, int WIDTH, int ROWS, int PACKS, int THREADS>
__global__ void __launch_bounds__(THREADS)
    decode_head_v2(const T *x, const T *norm, const T *weight, T *y, int64 B, int64 C, int64 M, double eps) {
    staged_pair<true, WIDTH, ROWS, PACKS, THREADS>(x, norm, B, C, eps, Neighbours<T>{weight, y, C, M});
}

template <class T, int WIDTH, int ROWS, int PACKS, int THREADS>
__global__ void __launch_bounds__(THREADS) decode_swiglu_v2(const T *x, const T *norm, const T *gate, const T *up, T *g,
                                                            int64 B, int64 C, int64 F, double eps) {
    staged_pair<true, WIDTH, ROWS, PACKS, THREADS>(x, norm, B, C, eps, Gated<T>{gate, up, g, C, F});
}

template <class T, int WIDTH, int ROWS, int PACKS, int THREADS>
__global__ void __launch_bounds__(THREADS)
    decode_qkv_v2(const T *x, const T *norm, const T *wq, const T *wk, const T *wv, const T *cosine, const T *sine,
                  const int64 *position, T *keys, T *values, T *q, int64 B, int64 C, int64 NH, int64 NKV, int64 P, int64 S,
                  double eps) {
    Heads<T> heads = {wq, wk, wv, cosine, sine, position, keys, values, q, C, NH, NKV, P, S};
    staged_pair<true, WIDTH, ROWS, PACKS, THREADS>(x, norm, B, C, eps, heads);
}

/* ---- version 3: tensor cores make eight pairs for up to 32 rows of x ------------------------------------------------------ */

template <int TILES, int PACKS, int WARPS>
__global__ void __launch_bounds__(32 * WARPS) decode_sum_v3(const bf16 *x, const bf16 *weight, const bf16 *residual, bf16 *y,
                                                            int64 B, int64 C, int64 M) {
    Added<bf16> added = {{weight, y, C, M}, residual};
    staged_tile<false, TILES, PACKS, WARPS>(x, (const bf16 *)0, B, C, (M + 1) / 2, 0.0, added);
}

template <int TILES, int PACKS, int WARPS>
__global__ void __launch_bounds__(32 * WARPS) decode_head_v3(const bf16 *x, const bf16 *norm, const bf16 *weight, bf16 *y,
                                                             int64 B, int64 C, int64 M, double eps) {
    staged_tile<true, TILES, PACKS, WARPS>(x, norm, B, C, (M + 1) / 2, eps, Neighbours<bf16>{weight, y, C, M});
}

template <int TILES, int PACKS, int WARPS>
__global__ void __launch_bounds__(32 * WARPS) decode_swiglu_v3(const bf16 *x, const bf16 *norm, const bf16 *gate,
                                                               const bf16 *up, bf16 *g, int64 B, int64 C, int64 F,
                                                               double eps) {
    staged_tile<true, TILES, PACKS, WARPS>(x, norm, B, C, F, eps, Gated<bf16>{gate, up, g, C, F});
}

template <int TILES, int PACKS, int WARPS>
__global__ void __launch_bounds__(32 * WARPS)
    decode_qkv_v3(const bf16 *x, const bf16 *norm, const bf16 *wq, const bf16 *wk, const bf16 *wv, const bf16 *cosine,
                  const bf16 *sine, const int64 *position, bf16 *keys, bf16 *values, bf16 *q, int64 B, int64 C, int64 NH,
                  int64 NKV, int64 P, int64 S, double eps) {
    Heads<bf16> heads = {wq, wk, wv, cosine, sine, position, keys, values, q, C, NH, NKV, P, S};
    staged_tile<true, TILES, PACKS, WARPS>(x, norm, B, C, (NH + 2 * NKV) * P, eps, heads);
}

/* ---- attention, version 1: one thread an output --------------------------------------------------------------------------- */

template <class T>
__global__ void decode_attention_v1(const T *q, const T *keys, const T *values, const int64 *position, T *y, int64 B, int64 NH,
                                    int64 NKV, int64 HS, int64 S, double scale) {
    int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= B * NH * HS) return;
    int64 row = i / HS, shared = (row / NH * NKV + row % NH / (NH / NKV)) * S;
    float most = -infinity(), total = 0.0f, sum = 0.0f;
    for (int64 s = 0; s <= *position; s++) {
        float score = 0.0f;
        for (int64 h = 0; h < HS; h++) score += get(q + row * HS + h) * get(keys + (shared + s) * HS + h);
        score *= (float)scale;
        float higher = fmaxf(most, score), before = exponential(most - higher), e = exponential(score - higher);
        total = total * before + e, sum = sum * before + e * get(values + (shared + s) * HS + i % HS), most = higher;
    }
    put(y + i, sum / total);
}

/* ---- attention, version 2: a block takes some positions of a head of keys, for all heads of queries that share it ---------- */

/* LANES lanes share a position: an access of each is its key, or its value. A thread has EACH positions. */
template <class T, int WIDTH, int LANES, int GROUP, int EACH, int THREADS> struct Positions {
    static const int AT_ONCE = THREADS / LANES, COUNT = AT_ONCE * EACH, HS = LANES * WIDTH, WARPS = THREADS / 32;
};

/* With PARTS a block writes the sum over its positions (HS), its weights' sum and their largest exponent, for each head. */
template <class T, int WIDTH, int LANES, int GROUP, int EACH, int THREADS, bool PARTS>
__global__ void __launch_bounds__(THREADS)
    decode_attention_v2(const T *q, const T *keys, const T *values, const int64 *position, T *y, float *parts, int64 NKV,
                        int64 S, double scale) {
    typedef Positions<T, WIDTH, LANES, GROUP, EACH, THREADS> Of;
    typedef Pack<T, WIDTH> Access;
    __shared__ float weights[GROUP][Of::COUNT], tops[GROUP], totals[GROUP], sums[Of::WARPS][GROUP][Of::HS];
    next_may_begin();
    int lane = threadIdx.x % LANES, slot = threadIdx.x / LANES;
    int64 head = (int64)blockIdx.z * NKV + blockIdx.y;
    int first = (int)blockIdx.x * Of::COUNT, last = (int)*position;
    if (first > last) return after_previous(); /* nothing here counts yet */
    const T *of_keys = keys + head * S * Of::HS + lane * WIDTH, *of_values = values + head * S * Of::HS + lane * WIDTH;
    Access k[EACH], v[EACH], query[GROUP];
    /* What earlier passes kept is there. The last position's is made by the kernel ahead. */
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        int at = first + slot + e * Of::AT_ONCE;
        k[e].zero(), v[e].zero();
        if (at < last) k[e].load(of_keys + at * Of::HS), v[e].load(of_values + at * Of::HS);
    }
    after_previous();
#pragma unroll
    for (int g = 0; g < GROUP; g++) query[g].load(q + (head * GROUP + g) * Of::HS + lane * WIDTH);
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (first + slot + e * Of::AT_ONCE == last)
            k[e].load(of_keys + last * Of::HS), v[e].load(of_values + last * Of::HS);
#pragma unroll
    for (int g = 0; g < GROUP; g++)
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            float score = 0.0f;
#pragma unroll
            for (int j = 0; j < WIDTH; j++) score += query[g].at(j) * k[e].at(j);
            score = over_warp<Sum, LANES>(score) * (float)scale;
            int at = slot + e * Of::AT_ONCE;
            if (lane == 0) weights[g][at] = first + at <= last ? score : -infinity();
        }
    __syncthreads();
    for (int g = threadIdx.x / 32; g < GROUP; g += Of::WARPS) {
        float top = -infinity(), total = 0.0f;
        for (int at = threadIdx.x % 32; at < Of::COUNT; at += 32) top = fmaxf(top, weights[g][at]);
        top = over_warp<Largest>(top);
        for (int at = threadIdx.x % 32; at < Of::COUNT; at += 32)
            total += weights[g][at] = exponential(weights[g][at] - top);
        total = over_warp<Sum>(total);
        if (threadIdx.x % 32 == 0) tops[g] = top, totals[g] = total;
    }
    __syncthreads();
    int warp = threadIdx.x / 32;
#pragma unroll
    for (int g = 0; g < GROUP; g++) {
        float sum[WIDTH] = {};
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            float weight = weights[g][slot + e * Of::AT_ONCE];
#pragma unroll
            for (int j = 0; j < WIDTH; j++) sum[j] += weight * v[e].at(j);
        }
#pragma unroll
        for (int j = 0; j < WIDTH; j++) {
            for (int step = LANES; step < 32; step *= 2) sum[j] += __shfl_xor_sync(FULL_WARP, sum[j], step);
            if (threadIdx.x % 32 < LANES) sums[warp][g][lane * WIDTH + j] = sum[j];
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < GROUP * Of::HS; i += THREADS) {
        int g = i / Of::HS, h = i % Of::HS;
        float sum = 0.0f;
        for (int w = 0; w < Of::WARPS; w++) sum += sums[w][g][h];
        if (PARTS) {
            float *part = parts + ((head * GROUP + g) * gridDim.x + blockIdx.x) * (Of::HS + 2);
            part[h] = sum;
            if (h == 0) part[Of::HS] = totals[g], part[Of::HS + 1] = tops[g];
        } else {
            put(y + (head * GROUP + g) * Of::HS + h, sum / totals[g]);
        }
    }
}

/* A block joins the parts of one head of queries: thread h its element h. */
template <class T, int COUNT>
__global__ void decode_attention_joined(const float *parts, const int64 *position, T *y, int64 HS, int64 all) {
    next_may_begin();
    after_previous();
    int64 row = blockIdx.x, used = *position / COUNT + 1;
    const float *part = parts + row * all * (HS + 2);
    float top = -infinity();
    for (int64 i = 0; i < used; i++) top = fmaxf(top, part[i * (HS + 2) + HS + 1]);
    for (int64 h = threadIdx.x; h < HS; h += blockDim.x) {
        float sum = 0.0f, total = 0.0f;
        for (int64 i = 0; i < used; i++) {
            float factor = exponential(part[i * (HS + 2) + HS + 1] - top);
            sum += factor * part[i * (HS + 2) + h], total += factor * part[i * (HS + 2) + HS];
        }
        put(y + row * HS + h, sum / total);
    }
}

/* ---- the token, version 1: one thread a row ------------------------------------------------------------------------------- */

/* Larger for a larger logit, then for an earlier token; NaN is the largest, as in PyTorch. */
DEVICE uint64 rank_of(float logit, int64 token) {
    uint32 bits = __float_as_uint(logit);
    uint32 order = logit != logit ? 0xffffffffu : bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (uint64)order << 32 | (uint32)~(uint32)token;
}

DEVICE int64 token_of(uint64 rank) { return (int64)(uint32)~(uint32)rank; }

template <class T> __global__ void decode_token_v1(const T *logits, int64 *token, int64 B, int64 M) {
    int64 row = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= B) return;
    uint64 best = 0;
    for (int64 m = 0; m < M; m++) {
        uint64 rank = rank_of(get(logits + row * M + m), m);
        best = rank > best ? rank : best;
    }
    token[row] = token_of(best);
}

/* ---- the token, version 2: blocks take parts of a row, a block then the best of these ------------------------------------- */

template <int THREADS> DEVICE uint64 best_of_block(uint64 best) {
    __shared__ uint64 of_warp[THREADS / 32];
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        uint64 other = __shfl_xor_sync(FULL_WARP, best, step);
        best = other > best ? other : best;
    }
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = best;
    __syncthreads();
    for (int w = 0; w < THREADS / 32; w++) best = of_warp[w] > best ? of_warp[w] : best;
    return best;
}

template <class T, int WIDTH, int THREADS>
__global__ void __launch_bounds__(THREADS) decode_token_v2(const T *logits, uint64 *parts, int64 M) {
    next_may_begin();
    after_previous();
    int64 row = blockIdx.y;
    uint64 best = 0;
    for (int64 m = ((int64)blockIdx.x * THREADS + threadIdx.x) * WIDTH; m < M; m += (int64)gridDim.x * THREADS * WIDTH) {
        float v[WIDTH];
        load(logits + row * M + m, v);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) {
            uint64 rank = rank_of(v[j], m + j);
            best = rank > best ? rank : best;
        }
    }
    best = best_of_block<THREADS>(best);
    if (threadIdx.x == 0) parts[row * gridDim.x + blockIdx.x] = best;
}

template <int THREADS>
__global__ void __launch_bounds__(THREADS) decode_token_joined(const uint64 *parts, int64 *token, int64 count) {
    next_may_begin();
    after_previous();
    uint64 best = 0;
    for (int64 i = threadIdx.x; i < count; i += THREADS) {
        uint64 part = parts[blockIdx.x * count + i];
        best = part > best ? part : best;
    }
    best = best_of_block<THREADS>(best);
    if (threadIdx.x == 0) token[blockIdx.x] = token_of(best);
}
