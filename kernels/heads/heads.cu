/* Heads: split a QKV projection into q, k, v a head, and merge heads back into channels. Copies; backward the projection's
 * bias gradient on the way.
 *
 * B batch, T time, NH heads, HS head size, C = NH HS. Tokens are (B, T, parts C), heads (B, NH, T, HS).
 */
#include <perfkit/rows.cuh>

/* ---- version 1: one element a thread ------------------------------------------------------------------------------ */

/* Where element i of (B, T, PARTS C) lies in its part's (B, NH, T, HS). */
struct Place {
    int64 part, index;
    DEVICE Place(int64 i, int64 parts, int64 T, int64 NH, int64 HS) {
        int64 s = i % HS, h = i / HS % NH, token = i / (HS * NH * parts), b = token / T, t = token % T;
        part = i / (HS * NH) % parts;
        index = ((b * NH + h) * T + t) * HS + s;
    }
};

template <class E>
__global__ void split_heads_forward_v1(const E *qkv, E *q, E *k, E *v, int64 n, int64 T, int64 NH, int64 HS) {
    int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Place place(i, 3, T, NH, HS);
    (place.part == 0 ? q : place.part == 1 ? k : v)[place.index] = qkv[i];
}

template <class E>
__global__ void split_heads_backward_v1(const E *dq, const E *dk, const E *dv, E *dqkv, int64 n, int64 T, int64 NH,
                                        int64 HS) {
    int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Place place(i, 3, T, NH, HS);
    dqkv[i] = (place.part == 0 ? dq : place.part == 1 ? dk : dv)[place.index];
}

template <class E> __global__ void merge_heads_forward_v1(const E *x, E *y, int64 n, int64 T, int64 NH, int64 HS) {
    int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[Place(i, 1, T, NH, HS).index];
}

template <class E> __global__ void merge_heads_backward_v1(const E *dy, E *dx, int64 n, int64 T, int64 NH, int64 HS) {
    int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) dx[Place(i, 1, T, NH, HS).index] = dy[i];
}

/* ---- version 2: 16 bytes a thread of TOKENS tokens, all under way at once ------------------------------------------- */

/* A thread's place in a token is the same for all its tokens: one division by HS finds part, head and offset.
 * A block takes TOKENS tokens of a row of T and some of the accesses of a token; blockIdx.z is the row of the batch. */
template <class E, int WIDTH, int TOKENS, bool TO_HEADS>
DEVICE void move_heads(E *tokens, E *q, E *k, E *v, int parts, int64 T, int NH, int HS) {
    int channel = (blockIdx.y * blockDim.x + threadIdx.x) * WIDTH, C = NH * HS;
    if (channel >= parts * C) return;
    int part = channel / C, h = channel % C / HS, s = channel % HS;
    int64 t = (int64)blockIdx.x * TOKENS, b = blockIdx.z;
    E *head = (part == 0 ? q : part == 1 ? k : v) + ((b * NH + h) * T + t) * HS + s;
    E *token = tokens + (b * T + t) * parts * C + channel;
    Pack<E, WIDTH> packs[TOKENS];
#pragma unroll
    for (int i = 0; i < TOKENS; i++)
        if (t + i < T) packs[i].load(TO_HEADS ? token + (int64)i * parts * C : head + i * HS);
#pragma unroll
    for (int i = 0; i < TOKENS; i++)
        if (t + i < T) packs[i].store(TO_HEADS ? head + i * HS : token + (int64)i * parts * C);
}

template <class E, int WIDTH, int TOKENS>
__global__ void split_heads_forward_v2(const E *qkv, E *q, E *k, E *v, int64 T, int64 NH, int64 HS) {
    move_heads<E, WIDTH, TOKENS, true>(const_cast<E *>(qkv), q, k, v, 3, T, NH, HS);
}

template <class E, int WIDTH, int TOKENS>
__global__ void split_heads_backward_v2(const E *dq, const E *dk, const E *dv, E *dqkv, int64 T, int64 NH, int64 HS) {
    move_heads<E, WIDTH, TOKENS, false>(dqkv, const_cast<E *>(dq), const_cast<E *>(dk), const_cast<E *>(dv), 3, T, NH,
                                        HS);
}

template <class E, int WIDTH, int TOKENS>
__global__ void merge_heads_forward_v2(const E *x, E *y, int64 T, int64 NH, int64 HS) {
    E *heads = const_cast<E *>(x);
    move_heads<E, WIDTH, TOKENS, false>(y, heads, heads, heads, 1, T, NH, HS);
}

template <class E, int WIDTH, int TOKENS>
__global__ void merge_heads_backward_v2(const E *dy, E *dx, int64 T, int64 NH, int64 HS) {
    move_heads<E, WIDTH, TOKENS, true>(const_cast<E *>(dy), dx, dx, dx, 1, T, NH, HS);
}

/* ---- with the bias's gradient, version 1: what is copied is added up on the way --------------------------------------- */

template <class E, int WIDTH> struct HeadGradients {
    const E *dq, *dk, *dv;
    E *dqkv;
    int T, NH, HS;
    typedef Pack<E, WIDTH> Held;
    DEVICE void load(Held &held, int64 row, int64 column) const {
        int C = NH * HS, c = (int)column, part = c / C, h = c % C / HS, s = c % HS;
        int64 b = (uint32)row / (uint32)T, t = (uint32)row % (uint32)T;
        held.load((part == 0 ? dq : part == 1 ? dk : dv) + ((b * NH + h) * T + t) * HS + s);
    }
    DEVICE void give(const Held &held, int64 row, int64 column, float (&v)[WIDTH]) const {
        held.store(dqkv + row * 3 * NH * HS + column);
        held.unpack(v);
    }
};

template <class E, int WIDTH, int ROWS>
__global__ void split_heads_bias_backward_v1(const E *dq, const E *dk, const E *dv, E *dqkv, float *parts, int64 N, int64 M,
                                             int64 T, int64 NH, int64 HS) {
    sum_columns<WIDTH, ROWS>(parts, N, M, HeadGradients<E, WIDTH>{dq, dk, dv, dqkv, (int)T, (int)NH, (int)HS});
}
