/* GELU (tanh form), elementwise over n numbers. x input, y output, dy gradient of y, dx gradient of x; with the gradient of
 * a bias, the sum of dx over N rows of M columns.
 *
 * 0.5 (1 + tanh u) is the sigmoid of 2u, so that one exponential and one division do.
 */
#include <perfkit/fp8.cuh>
#include <perfkit/rows.cuh>

#define SQRT_2_OVER_PI 0.7978845608028654f
#define CUBIC 0.044715f

/* 2u, and its derivative in x. */
DEVICE float twice_u(float x) { return 2.0f * SQRT_2_OVER_PI * x * (1.0f + CUBIC * x * x); }
DEVICE float twice_u_slope(float x) { return 2.0f * SQRT_2_OVER_PI * (1.0f + 3.0f * CUBIC * x * x); }

DEVICE float gelu(float x) { return x * sigmoid(twice_u(x)); }

DEVICE float gelu_slope(float x) {
    float s = sigmoid(twice_u(x));
    return s + x * s * (1.0f - s) * twice_u_slope(x);
}

/* ---- version 1: one element a thread, in the words of the formula ----------------------------------------------- */

template <class T> __global__ void gelu_forward_v1(const T *x, T *y, int64 n) {
    int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = get(x + i);
    put(y + i, 0.5f * v * (1.0f + tanhf(SQRT_2_OVER_PI * (v + CUBIC * v * v * v))));
}

template <class T> __global__ void gelu_backward_v1(const T *dy, const T *x, T *dx, int64 n) {
    int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = get(x + i), t = tanhf(SQRT_2_OVER_PI * (v + CUBIC * v * v * v));
    float slope = SQRT_2_OVER_PI * (1.0f + 3.0f * CUBIC * v * v);
    put(dx + i, get(dy + i) * (0.5f * (1.0f + t) + 0.5f * v * (1.0f - t * t) * slope));
}

/* ---- version 2: 16-byte accesses, and the cheap form of tanh ----------------------------------------------------- */

struct GeluForward : Elementwise {
    DEVICE void operator()(int j, const float (&in)[1], float (&out)[1]) const { out[0] = gelu(in[0]); }
};

struct GeluBackward : Elementwise {
    DEVICE void operator()(int j, const float (&in)[2], float (&out)[1]) const { out[0] = in[0] * gelu_slope(in[1]); }
};

template <class T, int WIDTH, int PACKS> __global__ void gelu_forward_v2(const T *x, T *y, int64 n) {
    each_element<WIDTH, PACKS, 1, 1, T>({x}, {y}, n, GeluForward());
}

template <class T, int WIDTH, int PACKS> __global__ void gelu_backward_v2(const T *dy, const T *x, T *dx, int64 n) {
    each_element<WIDTH, PACKS, 2, 1, T>({dy, x}, {dx}, n, GeluBackward());
}

/* ---- with the bias's gradient, version 1: dx is added up while it is in registers ------------------------------------ */

template <class T, int WIDTH> struct GeluGradients {
    const T *dy, *x;
    T *dx;
    int64 M;
    struct Held {
        Pack<T, WIDTH> dy, x;
    };
    DEVICE void load(Held &held, int64 row, int64 column) const {
        held.dy.load(dy + row * M + column);
        held.x.load(x + row * M + column);
    }
    DEVICE void give(const Held &held, int64 row, int64 column, float (&v)[WIDTH]) const {
#pragma unroll
        for (int j = 0; j < WIDTH; j++) v[j] = held.dy.at(j) * gelu_slope(held.x.at(j));
        store(dx + row * M + column, v);
    }
};

template <class T, int WIDTH, int ROWS>
__global__ void gelu_bias_backward_v1(const T *dy, const T *x, T *dx, float *parts, int64 N, int64 M) {
    sum_columns<WIDTH, ROWS>(parts, N, M, GeluGradients<T, WIDTH>{dy, x, dx, M});
}

/* ---- with the largest absolute value of y or dx, for its cast to fp8; version 1 --------------------------------------- */

struct GeluLargest : Elementwise {
    uint32 *largest; /* a thread's own */
    DEVICE GeluLargest(uint32 *largest) : largest(largest) {}
    DEVICE void operator()(int j, const float (&in)[1], float (&out)[1]) const {
        out[0] = gelu(in[0]);
        *largest = max(*largest, magnitude(out[0]));
    }
};

template <class T, int WIDTH, int PACKS> __global__ void gelu_amax_forward_v1(const T *x, float *amax, T *y, int64 n) {
    uint32 largest = 0;
    each_element<WIDTH, PACKS, 1, 1, T>({x}, {y}, n, GeluLargest(&largest));
    raise_amax(amax, stored(largest, y));
}

template <class T, int WIDTH> struct GeluGradientsLargest : GeluGradients<T, WIDTH> {
    typedef GeluGradients<T, WIDTH> Plain;
    uint32 *largest;
    DEVICE GeluGradientsLargest(Plain plain, uint32 *largest) : Plain(plain), largest(largest) {}
    DEVICE void give(const typename Plain::Held &held, int64 row, int64 column, float (&v)[WIDTH]) const {
        Plain::give(held, row, column, v);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) *largest = max(*largest, magnitude(v[j]));
    }
};

template <class T, int WIDTH, int ROWS>
__global__ void gelu_bias_amax_backward_v1(const T *dy, const T *x, float *amax, T *dx, float *parts, int64 N, int64 M) {
    uint32 largest = 0;
    GeluGradientsLargest<T, WIDTH> terms({dy, x, dx, M}, &largest);
    sum_columns<WIDTH, ROWS>(parts, N, M, terms);
    __syncthreads(); /* some threads left the sums' loop early */
    raise_amax(amax, stored(largest, dx));
}
