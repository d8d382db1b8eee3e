/* The gate of Llama's MLP over n elements: y = gate s up, s the sigmoid of the gate; dgate = dy up s (1 + gate (1 - s)),
 * dup = dy gate s.
 */
#include <perfkit/fp8.cuh>

struct Gate : Elementwise {
    DEVICE void operator()(int j, const float (&in)[2], float (&out)[1]) const {
        out[0] = in[0] * sigmoid(in[0]) * in[1];
    }
};

struct GateGradients : Elementwise {
    DEVICE void operator()(int j, const float (&in)[3], float (&out)[2]) const {
        float s = sigmoid(in[1]);
        out[0] = in[0] * in[2] * s * (1.0f + in[1] * (1.0f - s));
        out[1] = in[0] * in[1] * s;
    }
};

/* ---- version 1: one element a thread ------------------------------------------------------------------------------- */

template <class T> __global__ void swiglu_forward_v1(const T *gate, const T *up, T *y, int64 n) {
    int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float g = get(gate + i);
    put(y + i, g / (1.0f + expf(-g)) * get(up + i));
}

template <class T>
__global__ void swiglu_backward_v1(const T *dy, const T *gate, const T *up, T *dgate, T *dup, int64 n) {
    int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float g = get(gate + i), s = 1.0f / (1.0f + expf(-g)), d = get(dy + i);
    put(dgate + i, d * get(up + i) * s * (1.0f + g * (1.0f - s)));
    put(dup + i, d * g * s);
}

/* ---- version 2: 16-byte accesses ------------------------------------------------------------------------------------- */

template <class T, int WIDTH, int PACKS>
__global__ void swiglu_forward_v2(const T *gate, const T *up, T *y, int64 n) {
    each_element<WIDTH, PACKS, 2, 1, T>({gate, up}, {y}, n, Gate());
}

template <class T, int WIDTH, int PACKS>
__global__ void swiglu_backward_v2(const T *dy, const T *gate, const T *up, T *dgate, T *dup, int64 n) {
    each_element<WIDTH, PACKS, 3, 2, T>({dy, gate, up}, {dgate, dup}, n, GateGradients());
}

/* ---- with the largest absolute value of each result, for its cast to fp8; version 1 ----------------------------------- */

template <class F, int OUTS> struct WithLargest : Elementwise {
    uint32 *largest; /* of each result; a thread's own */
    DEVICE WithLargest(uint32 *largest) : largest(largest) {}
    template <int INS> DEVICE void operator()(int j, const float (&in)[INS], float (&out)[OUTS]) const {
        F()(j, in, out);
#pragma unroll
        for (int t = 0; t < OUTS; t++) largest[t] = max(largest[t], magnitude(out[t]));
    }
};

template <class T, int WIDTH, int PACKS>
__global__ void swiglu_amax_forward_v1(const T *gate, const T *up, float *amax, T *y, int64 n) {
    uint32 largest[1] = {};
    each_element<WIDTH, PACKS, 2, 1, T>({gate, up}, {y}, n, WithLargest<Gate, 1>(largest));
    raise_amax(amax, stored(largest[0], y));
}

template <class T, int WIDTH, int PACKS>
__global__ void swiglu_amax_backward_v1(const T *dy, const T *gate, const T *up, float *amax_gate, float *amax_up,
                                        T *dgate, T *dup, int64 n) {
    uint32 largest[2] = {};
    each_element<WIDTH, PACKS, 3, 2, T>({dy, gate, up}, {dgate, dup}, n, WithLargest<GateGradients, 2>(largest));
    raise_amax(amax_gate, stored(largest[0], dgate));
    raise_amax(amax_up, stored(largest[1], dup));
}
