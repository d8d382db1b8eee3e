/* A bias over N rows of M columns: its gradient, db = sum over rows of dy; and y = max(x + bias, 0), with its backward. */
#include <perfkit/rows.cuh>

/* ---- version 1: one thread a column; one element a thread ----------------------------------------------------------- */

template <class T> __global__ void bias_gradient_v1(const T *dy, T *db, int64 N, int64 M) {
    int64 column = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= M) return;
    float sum = 0.0f;
    for (int64 row = 0; row < N; row++) sum += get(dy + row * M + column);
    put(db + column, sum);
}

template <class T> __global__ void bias_relu_forward_v1(const T *x, const T *bias, T *y, int64 n, int64 M) {
    int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) put(y + i, get(x + i) + get(bias + i % M) <= 0.0f ? 0.0f : get(x + i) + get(bias + i % M));
}

template <class T> __global__ void bias_relu_backward_v1(const T *dy, const T *y, T *dx, int64 n) {
    int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) put(dx + i, get(y + i) > 0.0f ? get(dy + i) : 0.0f);
}

/* ---- version 2: parts of the rows, then the sum of the parts in a fixed order ---------------------------------------- */

/* A block of 256 threads takes 32 columns, a warp every eighth row of its part. */
template <class T> __global__ void bias_gradient_v2(const T *dy, float *parts, int64 N, int64 M) {
    __shared__ float of_warp[8][32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64 column = (int64)blockIdx.x * 32 + lane;
    float sum = 0.0f;
    if (column < M)
        for (int64 row = blockIdx.y * 8 + warp; row < N; row += gridDim.y * 8) sum += get(dy + row * M + column);
    of_warp[warp][lane] = sum;
    __syncthreads();
    if (warp || column >= M) return;
    for (int w = 1; w < 8; w++) sum += of_warp[w][lane];
    parts[blockIdx.y * M + column] = sum;
}

/* ---- version 3 (version 2 of bias + ReLU): 16-byte accesses -------------------------------------------------------- */

template <class T, int WIDTH> struct Gradients {
    const T *dy;
    int64 M;
    typedef Pack<T, WIDTH> Held;
    DEVICE void load(Held &held, int64 row, int64 column) const { held.load(dy + row * M + column); }
    DEVICE void give(const Held &held, int64, int64, float (&v)[WIDTH]) const { held.unpack(v); }
};

template <class T, int WIDTH, int ROWS> __global__ void bias_gradient_v3(const T *dy, float *parts, int64 N, int64 M) {
    sum_columns<WIDTH, ROWS>(parts, N, M, Gradients<T, WIDTH>{dy, M});
}

/* Its columns' bias is loaded once for each access. */
template <class T, int WIDTH> struct BiasRelu {
    const T *bias;
    int64 M;
    float shift[WIDTH];
    DEVICE void begin(int64 i) { load(bias + column_of(i, M), shift); }
    DEVICE void operator()(int j, const float (&in)[1], float (&out)[1]) const {
        float u = in[0] + shift[j];
        out[0] = u <= 0.0f ? 0.0f : u; /* NaN stays */
    }
};

struct ReluSlope : Elementwise {
    DEVICE void operator()(int j, const float (&in)[2], float (&out)[1]) const { out[0] = in[1] > 0.0f ? in[0] : 0.0f; }
};

template <class T, int WIDTH, int PACKS>
__global__ void bias_relu_forward_v2(const T *x, const T *bias, T *y, int64 n, int64 M) {
    each_element<WIDTH, PACKS, 1, 1, T>({x}, {y}, n, BiasRelu<T, WIDTH>{bias, M});
}

template <class T, int WIDTH, int PACKS>
__global__ void bias_relu_backward_v2(const T *dy, const T *y, T *dx, int64 n) {
    each_element<WIDTH, PACKS, 2, 1, T>({dy, y}, {dx}, n, ReluSlope());
}
