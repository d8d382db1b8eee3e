/* Softmax over rows of M numbers, N rows: y = exp(x) / sum; dx = y (dy - sum of dy y). */
#include <perfkit/rows.cuh>

/* ---- version 1: one thread a row ---------------------------------------------------------------------------------- */

template <class T> __global__ void softmax_forward_v1(const T *x, T *y, int64 N, int64 M) {
    int64 row = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= N) return;
    x += row * M;
    y += row * M;
    float largest = -infinity(), sum = 0.0f;
    for (int64 c = 0; c < M; c++) largest = fmaxf(largest, get(x + c));
    for (int64 c = 0; c < M; c++) sum += expf(get(x + c) - largest);
    for (int64 c = 0; c < M; c++) put(y + c, expf(get(x + c) - largest) / sum);
}

template <class T> __global__ void softmax_backward_v1(const T *dy, const T *y, T *dx, int64 N, int64 M) {
    int64 row = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= N) return;
    dy += row * M;
    y += row * M;
    dx += row * M;
    float sum = 0.0f;
    for (int64 c = 0; c < M; c++) sum += get(dy + c) * get(y + c);
    for (int64 c = 0; c < M; c++) put(dx + c, get(y + c) * (get(dy + c) - sum));
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
    seen.join<THREADS>();
    float scaled = 1.0f / seen.sum;
    each_pack<THREADS, 4>(from, 0.0f, [&](int p, const Pack<T, WIDTH> &pack, bool whole) {
        float v[WIDTH];
        pack.unpack(v);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) v[j] = exponential(v[j] - seen.largest) * scaled;
        to.store(p, v, whole);
    });
}

template <class T, int THREADS>
__global__ void __launch_bounds__(THREADS, 1) softmax_backward_v2(const T *dy, const T *y, T *dx, int64 N, int64 M) {
    constexpr int WIDTH = AnyRow<T>::WIDTH;
    AnyRow<T> from(y + blockIdx.x * M, (int)M), by(dy + blockIdx.x * M, (int)M), to(dx + blockIdx.x * M, (int)M);
    float sum = 0.0f;
    each_pack<THREADS, 2>(from, 0.0f, [&](int p, const Pack<T, WIDTH> &pack, bool whole) {
        Pack<T, WIDTH> other;
        float v[WIDTH], d[WIDTH];
        by.load(p, other, 0.0f, whole);
        pack.unpack(v);
        other.unpack(d);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) sum += d[j] * v[j];
    });
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
    held.load(x + row * M, (int)M, -infinity());
    float largest = held.largest([](float v, int, int) { return v; });
    held.each([&](float v, int, int) { return exponential(v - largest); });
    float scaled = 1.0f / held.sum([](float v, int, int) { return v; });
    held.each([&](float v, int, int) { return v * scaled; });
    held.store(y + row * M, (int)M);
}

template <class T, int WIDTH, int PACKS, int THREADS, int BLOCK>
__global__ void __launch_bounds__(BLOCK) softmax_backward_short(const T *dy, const T *y, T *dx, int64 N, int64 M) {
    int64 row = (int64)blockIdx.x * (BLOCK / THREADS) + threadIdx.x / THREADS;
    if (row >= N) return;
    Row<T, WIDTH, PACKS, THREADS> a, d;
    a.load(y + row * M, (int)M);
    d.load(dy + row * M, (int)M);
    float sum = a.sum([&](float v, int k, int j) { return v * d.v[k][j]; });
    a.each([&](float v, int k, int j) { return v * (d.v[k][j] - sum); });
    a.store(dx + row * M, (int)M);
}

template <class T, int THREADS>
__global__ void __launch_bounds__(THREADS, 1) softmax_forward_long(const T *x, T *y, int64 N, int64 M) {
    extern __shared__ uint4 held[];
    constexpr int WIDTH = AnyRow<T>::WIDTH;
    AnyRow<T> from(x + blockIdx.x * M, (int)M), to(y + blockIdx.x * M, (int)M);
    Exponentials seen;
    each_pack<THREADS, 4>(from, -infinity(), [&](int p, const Pack<T, WIDTH> &pack, bool whole) {
        float v[WIDTH];
        held[p] = pack.whole;
        pack.unpack(v);
        seen.take(v);
    });
    seen.join<THREADS>();
    float scaled = 1.0f / seen.sum;
    each_place<THREADS>(from, [&](int p, bool whole) { /* each thread its own accesses: no barrier */
        Pack<T, WIDTH> pack;
        float v[WIDTH];
        pack.whole = held[p];
        pack.unpack(v);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) v[j] = exponential(v[j] - seen.largest) * scaled;
        to.store(p, v, whole);
    });
}
