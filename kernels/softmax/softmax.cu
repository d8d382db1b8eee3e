/* Softmax over rows of M numbers, N rows: y = exp(x) / sum; dx = y (dy - sum of dy y). */
#include <perfkit/rows.cuh>

/* ---- version 1: one thread a row ---------------------------------------------------------------------------------- */

template <class T> __global__ void softmax_forward_v1(const T *x, T *y, int64 N, int64 M) {
    int64 row = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= N) return;
    x += row * M;
    y += row * M;
    float largest = -infinity();
    double sum = 0.0; /* one after the other, thousands of them */
    for (int64 c = 0; c < M; c++) largest = fmaxf(largest, get(x + c));
    for (int64 c = 0; c < M; c++) sum += expf(get(x + c) - largest);
    for (int64 c = 0; c < M; c++) put(y + c, expf(get(x + c) - largest) / (float)sum);
}

template <class T> __global__ void softmax_backward_v1(const T *dy, const T *y, T *dx, int64 N, int64 M) {
    int64 row = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= N) return;
    dy += row * M;
    y += row * M;
    dx += row * M;
    double sum = 0.0;
    for (int64 c = 0; c < M; c++) sum += get(dy + c) * get(y + c);
    for (int64 c = 0; c < M; c++) put(dx + c, get(y + c) * (get(dy + c) - (float)sum));
}

/* ---- version 2: one block a row, 16-byte accesses wherever the row starts; the row is read twice -------------------- */

template <class T, int THREADS>
__global__ void __launch_bounds__(THREADS, 1) softmax_forward_v2(const T *x, T *y, int64 N, int64 M) {
    constexpr int WIDTH = AnyRow<T>::WIDTH;
    AnyRow<T> from(x + blockIdx.x * M, (int)M), to(y + blockIdx.x * M, (int)M);
    Exponentials seen;
    each_pack<THREADS, 4>(from, -infinity(), [&](int, const Pack<T, WIDTH> &pack, bool) {
        float v[WIDTH];
        pack.unpack(v);
        seen.take(v);
    });
    seen.join_group<THREADS>();
    float scaled = 1.0f / seen.sum;
    each_pack<THREADS, 4>(from, 0.0f, [&](int p, const Pack<T, WIDTH> &pack, bool whole) {
        float v[WIDTH];
        pack.unpack(v);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) v[j] = exponential_over(v[j], seen.from) * scaled;
        to.store(p, v, whole);
    });
}

template <class T, int THREADS>
__global__ void __launch_bounds__(THREADS, 1) softmax_backward_v2(const T *dy, const T *y, T *dx, int64 N, int64 M) {
    constexpr int WIDTH = AnyRow<T>::WIDTH;
    AnyRow<T> from(y + blockIdx.x * M, (int)M), by(dy + blockIdx.x * M, (int)M), to(dx + blockIdx.x * M, (int)M);
    float sums[WIDTH] = {}; /* apart: short sums lose fewer digits */
    each_pack<THREADS, 2>(from, 0.0f, [&](int p, const Pack<T, WIDTH> &pack, bool whole) {
        Pack<T, WIDTH> other;
        float v[WIDTH], d[WIDTH];
        by.load(p, other, 0.0f, whole);
        pack.unpack(v);
        other.unpack(d);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) sums[j] += d[j] * v[j];
    });
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < WIDTH; j++) sum += sums[j];
    sum = over_group<Sum, THREADS>(sum);
    each_pack<THREADS, 2>(from, 0.0f, [&](int p, const Pack<T, WIDTH> &pack, bool whole) {
        Pack<T, WIDTH> other;
        float v[WIDTH], d[WIDTH];
        by.load(p, other, 0.0f, whole);
        pack.unpack(v);
        other.unpack(d);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) v[j] *= d[j] - sum;
        to.store(p, v, whole);
    });
}

/* ---- version 3: the row is read once: short ones stay in registers, long ones in shared memory ---------------------- */

template <class T, int WIDTH, int PACKS, int THREADS, int BLOCK>
__global__ void __launch_bounds__(BLOCK) softmax_forward_short(const T *x, T *y, int64 N, int64 M) {
    int64 row = (int64)blockIdx.x * (BLOCK / THREADS) + threadIdx.x / THREADS;
    if (row >= N) return;
    Row<T, WIDTH, PACKS, THREADS> held;
    Numbers<WIDTH, PACKS> powers;
    held.load(x + row * M, (int)M, -infinity());
    float largest = held.largest([](float v, int, int) { return v; });
    powers.each([&](float, int k, int j) { return exponential(held.at(k, j) - largest); });
    float scaled = 1.0f / held.sum([&](float, int k, int j) { return powers.v[k][j]; });
    held.store(y + row * M, (int)M, [&](float, int k, int j) { return powers.v[k][j] * scaled; });
}

template <class T, int WIDTH, int PACKS, int THREADS, int BLOCK>
__global__ void __launch_bounds__(BLOCK) softmax_backward_short(const T *dy, const T *y, T *dx, int64 N, int64 M) {
    int64 row = (int64)blockIdx.x * (BLOCK / THREADS) + threadIdx.x / THREADS;
    if (row >= N) return;
    Row<T, WIDTH, PACKS, THREADS> a, d;
    a.load(y + row * M, (int)M);
    d.load(dy + row * M, (int)M);
    float sum = a.sum([&](float v, int k, int j) { return v * d.at(k, j); });
    a.store(dx + row * M, (int)M, [&](float v, int k, int j) { return v * (d.at(k, j) - sum); });
}

/* BLOCKS blocks of a cluster share a row; on GPUs without clusters BLOCKS is 1. Each thread writes and reads its own
 * accesses in shared memory: no barrier between. */
template <class T, int THREADS, int BLOCKS> DEVICE void softmax_forward_of(const T *x, T *y, int64 M, int rank) {
    extern __shared__ uint4 held[];
    constexpr int WIDTH = AnyRow<T>::WIDTH;
    int64 row = blockIdx.x / BLOCKS;
    AnyRow<T> from = part_of_row(x + row * M, (int)M, rank, BLOCKS), to = part_of_row(y + row * M, (int)M, rank, BLOCKS);
    Exponentials seen;
    each_pack<THREADS, 4>(from, -infinity(), [&](int p, const Pack<T, WIDTH> &pack, bool whole) {
        float v[WIDTH];
        held[p] = pack.whole;
        pack.unpack(v);
        seen.take(v);
    });
    seen.join_group<THREADS>();
#if __CUDA_ARCH__ >= 900
    if (BLOCKS > 1) join_cluster<BLOCKS>(seen);
#endif
    float scaled = 1.0f / seen.sum;
    each_place<THREADS>(from, [&](int p, bool whole) {
        Pack<T, WIDTH> pack;
        float v[WIDTH];
        pack.whole = held[p];
        pack.unpack(v);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) v[j] = exponential_over(v[j], seen.from) * scaled;
        to.store(p, v, whole);
    });
}

template <class T, int THREADS>
__global__ void __launch_bounds__(THREADS, 1) softmax_forward_long(const T *x, T *y, int64 N, int64 M) {
    softmax_forward_of<T, THREADS, 1>(x, y, M, 0);
}

#if __CUDA_ARCH__ >= 900
template <class T, int THREADS, int BLOCKS>
__global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(THREADS)
    softmax_forward_cluster(const T *x, T *y, int64 N, int64 M) {
    softmax_forward_of<T, THREADS, BLOCKS>(x, y, M, cluster_rank());
    cluster_wait();
}

/* Both rows in shared memory: dy behind y. */
template <class T, int THREADS, int BLOCKS>
__global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(THREADS)
    softmax_backward_cluster(const T *dy, const T *y, T *dx, int64 N, int64 M) {
    extern __shared__ uint4 held[];
    constexpr int WIDTH = AnyRow<T>::WIDTH;
    int rank = cluster_rank();
    int64 row = blockIdx.x / BLOCKS;
    AnyRow<T> from = part_of_row(y + row * M, (int)M, rank, BLOCKS);
    AnyRow<T> by = part_of_row(dy + row * M, (int)M, rank, BLOCKS), to = part_of_row(dx + row * M, (int)M, rank, BLOCKS);
    uint4 *second = held + from.packs();
    float sum = 0.0f;
    each_pack<THREADS, 2>(from, 0.0f, [&](int p, const Pack<T, WIDTH> &pack, bool whole) {
        Pack<T, WIDTH> other;
        by.load(p, other, 0.0f, whole);
        held[p] = pack.whole;
        second[p] = other.whole;
#pragma unroll
        for (int j = 0; j < WIDTH; j++) sum += pack.at(j) * other.at(j);
    });
    sum = sum_over_cluster<BLOCKS>(over_group<Sum, THREADS>(sum));
    each_place<THREADS>(from, [&](int p, bool whole) {
        Pack<T, WIDTH> pack, other;
        float v[WIDTH];
        pack.whole = held[p];
        other.whole = second[p];
#pragma unroll
        for (int j = 0; j < WIDTH; j++) v[j] = pack.at(j) * (other.at(j) - sum);
        to.store(p, v, whole);
    });
    cluster_wait();
}
#endif
