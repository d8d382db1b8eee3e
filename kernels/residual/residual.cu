/* The residual connection: y = a + b over n numbers; or x = a + b and its LayerNorm y over N rows of C numbers, with
 * mean and rstd (one a row, fp32): y = (x - mean) rstd weight + bias. */
#include <perfkit/rows.cuh>

/* ---- version 1: one element a thread; one thread a row ------------------------------------------------------------- */

template <class T> __global__ void residual_forward_v1(const T *a, const T *b, T *y, int64 n) {
    int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) put(y + i, get(a + i) + get(b + i));
}

template <class T>
__global__ void residual_layernorm_forward_v1(const T *a, const T *b, const T *weight, const T *bias, T *x, T *y,
                                              float *mean, float *rstd, int64 N, int64 C, double eps) {
    int64 row = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= N) return;
    a += row * C, b += row * C, x += row * C, y += row * C;
    float m = 0.0f, squares = 0.0f;
    for (int64 c = 0; c < C; c++) {
        float sum = get(a + c) + get(b + c);
        put(x + c, sum);
        m += sum;
    }
    m /= C;
    for (int64 c = 0; c < C; c++) {
        float d = get(a + c) + get(b + c) - m;
        squares += d * d;
    }
    float r = rsqrtf(squares / C + (float)eps);
    for (int64 c = 0; c < C; c++)
        put(y + c, (get(a + c) + get(b + c) - m) * r * get(weight + c) + get(bias + c));
    mean[row] = m;
    rstd[row] = r;
}

/* ---- version 2: 16-byte accesses; one warp a row ----------------------------- */

struct Plus : Elementwise {
    DEVICE void operator()(int j, const float (&in)[2], float (&out)[1]) const { out[0] = in[0] + in[1]; }
};

template <class T, int WIDTH, int PACKS>
__global__ void residual_forward_v2(const T *a, const T *b, T *y, int64 n) {
    each_element<WIDTH, PACKS, 2, 1, T>({a, b}, {y}, n, Plus());
}

template <class T, int WIDTH>
__global__ void residual_layernorm_forward_v2(const T *a, const T *b, const T *weight, const T *bias, T *x, T *y,
                                              float *mean, float *rstd, int64 N, int64 C, double eps) {
    int64 row = ((int64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int first = threadIdx.x % 32 * WIDTH;
    if (row >= N) return;
    a += row * C, b += row * C, x += row * C, y += row * C;
    float v[WIDTH], w[WIDTH], u[WIDTH], m = 0.0f, squares = 0.0f;
    for (int c = first; c < C; c += 32 * WIDTH) {
        load(a + c, v), load(b + c, w);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) v[j] += w[j], m += v[j];
        store(x + c, v);
    }
    m = over_warp<Sum>(m) / C;
    for (int c = first; c < C; c += 32 * WIDTH) {
        load(a + c, v), load(b + c, w);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) squares += (v[j] + w[j] - m) * (v[j] + w[j] - m);
    }
    float r = rsqrtf(over_warp<Sum>(squares) / C + (float)eps);
    for (int c = first; c < C; c += 32 * WIDTH) {
        load(a + c, v), load(b + c, w);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) v[j] = (v[j] + w[j] - m) * r;
        load(weight + c, w), load(bias + c, u);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) v[j] = v[j] * w[j] + u[j];
        store(y + c, v);
    }
    if (first) return;
    mean[row] = m;
    rstd[row] = r;
}

/* ---- version 3: the row stays in registers, as it is written: a and b are read once ------------------------------------ */

template <class T, int WIDTH, int PACKS, int THREADS, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    residual_layernorm_forward_v3(const T *a, const T *b, const T *weight, const T *bias, T *x, T *y, float *mean,
                                  float *rstd, int64 N, int64 C, double eps) {
    int64 row = (int64)blockIdx.x * (BLOCK / THREADS) + threadIdx.x / THREADS;
    if (row >= N) return;
    int columns = (int)C;
    Row<T, WIDTH, PACKS, THREADS> held, other;
    held.load(a + row * C, columns);
    other.load(b + row * C, columns);
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        float v[WIDTH];
#pragma unroll
        for (int j = 0; j < WIDTH; j++) v[j] = held.at(k, j) + other.at(k, j);
        held.packs[k].pack(v);
        if (held.column(k) < columns) held.packs[k].store(x + row * C + held.column(k));
    }
    float m = held.sum([](float v, int, int) { return v; }) / columns;
    float squares = held.sum([&](float v, int k, int) {
        float d = held.column(k) < columns ? v - m : 0.0f;
        return d * d;
    });
    float r = rsqrtf(squares / columns + (float)eps);
    Row<T, WIDTH, PACKS, THREADS> shifts;
    other.load(weight, columns);
    shifts.load(bias, columns);
    held.store(y + row * C, columns,
               [&](float v, int k, int j) { return (v - m) * r * other.at(k, j) + shifts.at(k, j); });
    if (threadIdx.x % THREADS) return;
    mean[row] = m;
    rstd[row] = r;
}
