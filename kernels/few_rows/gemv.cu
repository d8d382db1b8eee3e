/* The product of a few rows with a weight: y = x W^T (+ bias). N rows of K columns, a weight of M rows of K columns.
 *
 * The weight is read once a pass over ROWS rows of x; what is read of x comes from the caches. BIAS tells whether there is
 * one; where not, `bias` is not read.
 */
#include <perfkit/device.cuh>
#include <perfkit/tiles.cuh>

/* ---- version 1: one thread an output -------------------------------------------------------------------------------- */

template <class T, bool BIAS>
__global__ void gemv_v1(const T *x, const T *weight, const T *bias, T *y, int64 N, int64 K, int64 M) {
    int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N * M) return;
    int64 n = i / M, m = i % M;
    float sum = BIAS ? get(bias + m) : 0.0f;
    for (int64 k = 0; k < K; k++) sum += get(x + n * K + k) * get(weight + m * K + k);
    put(y + i, sum);
}

/* ---- version 2: one warp an output, 16-byte accesses ------------------------------------------------------------------ */

template <class T, int WIDTH, bool BIAS>
__global__ void gemv_v2(const T *x, const T *weight, const T *bias, T *y, int64 N, int64 K, int64 M) {
    int64 i = ((int64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (i >= N * M) return;
    int64 n = i / M, m = i % M;
    int lane = threadIdx.x % 32;
    float sum = 0.0f;
    for (int64 k = lane * WIDTH; k < K; k += 32 * WIDTH) {
        float a[WIDTH], w[WIDTH];
        load<WIDTH>(x + n * K + k, a);
        load<WIDTH>(weight + m * K + k, w);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) sum += a[j] * w[j];
    }
    sum = over_warp<Sum>(sum);
    if (lane == 0) put(y + i, sum + (BIAS ? get(bias + m) : 0.0f));
}

/* ---- version 3: as many threads an output as fill the GPU, loads of each under way together ----------------------------- */

/* A group of THREADS threads makes OUTS outputs of each of ROWS rows: what it reads of x serves OUTS rows of the weight, a
 * weight ROWS rows of x. PACKS loads of each row of the weight are under way before the first is used. */
template <class T, int WIDTH, int ROWS, int OUTS, int PACKS, int THREADS, int BLOCK, bool BIAS>
__global__ void __launch_bounds__(BLOCK)
    gemv_v3(const T *x, const T *weight, const T *bias, T *y, int64 N, int64 K, int64 M) {
    int64 m = ((int64)blockIdx.x * (BLOCK / THREADS) + threadIdx.x / THREADS) * OUTS;
    int64 n = (int64)blockIdx.y * ROWS;
    int rank = threadIdx.x % THREADS;
    constexpr int STEP = THREADS * WIDTH;
    float sums[ROWS][OUTS] = {};
    for (int64 first = rank * WIDTH; first < K; first += STEP * PACKS) {
        Pack<T, WIDTH> w[PACKS][OUTS];
#pragma unroll
        for (int p = 0; p < PACKS; p++)
#pragma unroll
            for (int o = 0; o < OUTS; o++) {
                w[p][o].zero();
                if (first + p * STEP < K && m + o < M) w[p][o].load(weight + (m + o) * K + first + p * STEP);
            }
#pragma unroll
        for (int p = 0; p < PACKS; p++)
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                Pack<T, WIDTH> a;
                a.zero();
                if (first + p * STEP < K && n + r < N) a.load(x + (n + r) * K + first + p * STEP);
#pragma unroll
                for (int o = 0; o < OUTS; o++)
#pragma unroll
                    for (int j = 0; j < WIDTH; j++) sums[r][o] += a.at(j) * w[p][o].at(j);
            }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int o = 0; o < OUTS; o++) {
            float sum = over_group<Sum, THREADS>(sums[r][o]);
            if (rank == 0 && n + r < N && m + o < M)
                put(y + (n + r) * M + m + o, sum + (BIAS ? get(bias + m + o) : 0.0f));
        }
}

/* ---- version 4: tensor cores, sixteen outputs of up to 32 rows ---------------------------------------------------------- */

template <bool BIAS> struct Biased : Neighbours<bf16> {
    const bf16 *bias;

    DEVICE void write(int64 n, int64 pair, float low, float high) const {
        const bf16 *more = bias + 2 * pair;
        if (BIAS) low += get(more), high += 2 * pair + 1 < M ? get(more + 1) : 0.0f;
        Neighbours<bf16>::write(n, pair, low, high);
    }
};

template <int TILES, int PACKS, int WARPS, bool BIAS>
__global__ void __launch_bounds__(32 * WARPS)
    gemv_v4(const bf16 *x, const bf16 *weight, const bf16 *bias, bf16 *y, int64 N, int64 K, int64 M) {
    Biased<BIAS> outputs = {{weight, y, K, M}, bias};
    staged_tile<false, TILES, PACKS, WARPS>(x, (const bf16 *)0, N, K, (M + 1) / 2, 0.0, outputs);
}
