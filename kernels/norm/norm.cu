/* The sum of squares of n numbers. */
#include <perfkit/rows.cuh>

/* ---- version 1: one block ------------------------------------------------------------------------------------------ */

template <class T> __global__ void global_norm_v1(const T *x, float *squares, int64 n) {
    float sum = 0.0f;
    for (int64 i = threadIdx.x; i < n; i += 1024) sum += get(x + i) * get(x + i);
    sum = over_group<Sum, 1024>(sum);
    if (threadIdx.x == 0) *squares = sum;
}

/* ---- version 2: many blocks, each one part; then the parts in a fixed order ------------------------------------------ */

template <class T, int BLOCK> __global__ void global_norm_v2(const T *x, float *parts, int64 n) {
    float sum = 0.0f;
    for (int64 i = (int64)blockIdx.x * BLOCK + threadIdx.x; i < n; i += (int64)gridDim.x * BLOCK)
        sum += get(x + i) * get(x + i);
    sum = over_group<Sum, BLOCK>(sum);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

template <int BLOCK> __global__ void global_norm_sum(const float *parts, float *squares, int64 count) {
    float sum = 0.0f;
    for (int64 i = threadIdx.x; i < count; i += BLOCK) sum += parts[i];
    sum = over_group<Sum, BLOCK>(sum);
    if (threadIdx.x == 0) *squares = sum;
}

/* ---- version 3: 16-byte accesses, PACKS of a thread under way at once ------------------------------------------------- */

template <class T, int WIDTH, int PACKS, int BLOCK> __global__ void global_norm_v3(const T *x, float *parts, int64 n) {
    int64 step = (int64)gridDim.x * BLOCK * WIDTH, i = ((int64)blockIdx.x * BLOCK + threadIdx.x) * WIDTH;
    float sums[WIDTH] = {};
    for (; i < n; i += step * PACKS) {
        Pack<T, WIDTH> packs[PACKS];
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            packs[k].zero();
            if (i + k * step + WIDTH <= n) packs[k].load(x + i + k * step);
        }
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            float v[WIDTH];
            packs[k].unpack(v);
#pragma unroll
            for (int j = 0; j < WIDTH; j++) sums[j] += v[j] * v[j];
        }
    }
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < WIDTH; j++) sum += sums[j];
    int64 rest = n / WIDTH * WIDTH + threadIdx.x; /* beyond the last whole access: fewer than WIDTH elements */
    if (blockIdx.x == 0 && rest < n) sum += get(x + rest) * get(x + rest);
    sum = over_group<Sum, BLOCK>(sum);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}
