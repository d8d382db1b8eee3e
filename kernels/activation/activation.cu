/* Multiply, add, activate over N rows of M columns: u = x + alpha z + bias, y = act(u); dx = dy act'(u), dz = alpha dx.
 *
 * An activation A gives `of(u)`, and its slope from y or from u.
 */
#include <perfkit/device.cuh>

struct Relu {
    static DEVICE float of(float u) { return u <= 0.0f ? 0.0f : u; } /* NaN stays */
    static DEVICE float slope_from_y(float y) { return y > 0.0f ? 1.0f : 0.0f; }
};

struct Sigmoid {
    static DEVICE float of(float u) { return sigmoid(u); }
    static DEVICE float slope_from_y(float y) { return y * (1.0f - y); }
};

struct Gelu {
    static DEVICE float twice_u(float u) { return 1.5957691216057308f * u * (1.0f + 0.044715f * u * u); }
    static DEVICE float of(float u) { return u * sigmoid(twice_u(u)); }
    static DEVICE float slope(float u) {
        float s = sigmoid(twice_u(u));
        return s + u * s * (1.0f - s) * 1.5957691216057308f * (1.0f + 3.0f * 0.044715f * u * u);
    }
};

struct Silu {
    static DEVICE float of(float u) { return u * sigmoid(u); }
    static DEVICE float slope(float u) {
        float s = sigmoid(u);
        return s + u * s * (1.0f - s);
    }
};

/* ---- version 1: one element a thread ------------------------------------------------------------------------------- */

template <class A, class T>
__global__ void forward_v1(const T *x, const T *z, const T *bias, T *y, int64 n, int64 M, double alpha) {
    int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) put(y + i, A::of(get(x + i) + (float)alpha * get(z + i) + get(bias + i % M)));
}

template <class A, class T>
__global__ void backward_from_y_v1(const T *dy, const T *y, T *dx, T *dz, int64 n, double alpha) {
    int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float d = get(dy + i) * A::slope_from_y(get(y + i));
    put(dx + i, d);
    put(dz + i, (float)alpha * d);
}

template <class A, class T>
__global__ void backward_v1(const T *dy, const T *x, const T *z, const T *bias, T *dx, T *dz, int64 n, int64 M,
                            double alpha) {
    int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float d = get(dy + i) * A::slope(get(x + i) + (float)alpha * get(z + i) + get(bias + i % M));
    put(dx + i, d);
    put(dz + i, (float)alpha * d);
}

/* ---- version 2: 16-byte accesses; the bias is loaded once for each ------------ */

template <class A, class T, int WIDTH> struct Forward {
    const T *bias;
    int64 M;
    float alpha, shift[WIDTH];
    DEVICE void begin(int64 i) { load(bias + column_of(i, M), shift); }
    DEVICE void operator()(int j, const float (&in)[2], float (&out)[1]) const {
        out[0] = A::of(in[0] + alpha * in[1] + shift[j]);
    }
};

template <class A> struct BackwardFromY : Elementwise {
    float alpha;
    DEVICE BackwardFromY(double alpha) : alpha((float)alpha) {}
    DEVICE void operator()(int j, const float (&in)[2], float (&out)[2]) const {
        out[0] = in[0] * A::slope_from_y(in[1]);
        out[1] = alpha * out[0];
    }
};

template <class A, class T, int WIDTH> struct Backward {
    const T *bias;
    int64 M;
    float alpha, shift[WIDTH];
    DEVICE void begin(int64 i) { load(bias + column_of(i, M), shift); }
    DEVICE void operator()(int j, const float (&in)[3], float (&out)[2]) const {
        out[0] = in[0] * A::slope(in[1] + alpha * in[2] + shift[j]);
        out[1] = alpha * out[0];
    }
};

template <class A, class T, int WIDTH, int PACKS>
__global__ void forward_v2(const T *x, const T *z, const T *bias, T *y, int64 n, int64 M, double alpha) {
    each_element<WIDTH, PACKS, 2, 1, T>({x, z}, {y}, n, Forward<A, T, WIDTH>{bias, M, (float)alpha});
}

template <class A, class T, int WIDTH, int PACKS>
__global__ void backward_from_y_v2(const T *dy, const T *y, T *dx, T *dz, int64 n, double alpha) {
    each_element<WIDTH, PACKS, 2, 2, T>({dy, y}, {dx, dz}, n, BackwardFromY<A>(alpha));
}

template <class A, class T, int WIDTH, int PACKS>
__global__ void backward_v2(const T *dy, const T *x, const T *z, const T *bias, T *dx, T *dz, int64 n, int64 M,
                            double alpha) {
    each_element<WIDTH, PACKS, 3, 2, T>({dy, x, z}, {dx, dz}, n, Backward<A, T, WIDTH>{bias, M, (float)alpha});
}
