/* y = act(u), u = x + alpha z + bias, over N rows of M columns; act is ReLU, sigmoid, GELU (tanh form) or SiLU.
 *
 * Backward: dx = dy act'(u), dz = alpha dx. The slope of ReLU and sigmoid follows from y; GELU and SiLU compute u again.
 * Argument order everywhere: input tensors, output tensors, sizes, alpha.
 */
#include <perfkit/activations.h>

/* ---- version 1: as the formula says --------------------------------------------------------------------------- */

static inline float relu(float u) {
    return u < 0.0f ? 0.0f : u; /* a NaN stays NaN */
}

static inline float sigmoid(float u) {
    return 1.0f / (1.0f + expf(-u));
}

static inline float gelu(float u) {
    return 0.5f * u * (1.0f + tanhf(SQRT_2_OVER_PI * (u + CUBE * u * u * u)));
}

static inline float silu(float u) {
    return u * sigmoid(u);
}

static inline float relu_slope(float y) {
    return y > 0.0f ? 1.0f : 0.0f;
}

static inline float sigmoid_slope(float y) {
    return y * (1.0f - y);
}

static inline float gelu_slope(float u) {
    float t = tanhf(SQRT_2_OVER_PI * (u + CUBE * u * u * u));
    return 0.5f * (1.0f + t) + 0.5f * u * (1.0f - t * t) * SQRT_2_OVER_PI * (1.0f + 3.0f * CUBE * u * u);
}

static inline float silu_slope(float u) {
    float s = sigmoid(u);
    return s + u * s * (1.0f - s);
}

#define FORWARD_V1(NAME)                                                                                              \
    int multiply_add_##NAME##_forward_v1(const scalar *x, const scalar *z, const scalar *bias, scalar *y, int64_t N,  \
                                         int64_t M, double alpha) {                                                   \
        for (int64_t i = 0; i < N * M; i++)                                                                           \
            put(y + i, NAME(get(x + i) + (float)alpha * get(z + i) + get(bias + i % M)));                             \
        return KERNEL_DONE;                                                                                           \
    }

#define BACKWARD_FROM_Y_V1(NAME)                                                                                      \
    int multiply_add_##NAME##_backward_v1(const scalar *dy, const scalar *y, scalar *dx, scalar *dz, int64_t N,       \
                                          int64_t M, double alpha) {                                                  \
        for (int64_t i = 0; i < N * M; i++) {                                                                         \
            float d = get(dy + i) * NAME##_slope(get(y + i));                                                         \
            put(dx + i, d);                                                                                           \
            put(dz + i, (float)alpha * d);                                                                            \
        }                                                                                                             \
        return KERNEL_DONE;                                                                                           \
    }

#define BACKWARD_AGAIN_V1(NAME)                                                                                       \
    int multiply_add_##NAME##_backward_v1(const scalar *dy, const scalar *x, const scalar *z, const scalar *bias,     \
                                          scalar *dx, scalar *dz, int64_t N, int64_t M, double alpha) {               \
        for (int64_t i = 0; i < N * M; i++) {                                                                         \
            float d = get(dy + i) * NAME##_slope(get(x + i) + (float)alpha * get(z + i) + get(bias + i % M));         \
            put(dx + i, d);                                                                                           \
            put(dz + i, (float)alpha * d);                                                                            \
        }                                                                                                             \
        return KERNEL_DONE;                                                                                           \
    }

FORWARD_V1(relu)
FORWARD_V1(sigmoid)
FORWARD_V1(gelu)
FORWARD_V1(silu)
BACKWARD_FROM_Y_V1(relu)
BACKWARD_FROM_Y_V1(sigmoid)
BACKWARD_AGAIN_V1(gelu)
BACKWARD_AGAIN_V1(silu)

/* ---- version 2: threads over rows, vectors within --------------------------------------------------------------- */

static inline vec v_relu(vec u) {
    return v_at_least(u, 0.0f);
}

static inline vec v_relu_slope(vec y) {
    return v_where(y > 0.0f, v_all(1.0f), v_all(0.0f));
}

static inline vec v_sigmoid_slope(vec y) {
    return y * (1.0f - y);
}

static inline vec before(const scalar *x, const scalar *z, const scalar *bias, int64_t lanes, float alpha) {
    return v_load_some(x, lanes, 0.0f) + v_load_some(z, lanes, 0.0f) * alpha + v_load_some(bias, lanes, 0.0f);
}

#define FORWARD_V2(NAME)                                                                                              \
    int multiply_add_##NAME##_forward_v2(const scalar *x, const scalar *z, const scalar *bias, scalar *y, int64_t N,  \
                                         int64_t M, double alpha) {                                                   \
        _Pragma("omp parallel for schedule(static) if (N * M >= PARALLEL_FROM)")                                      \
        for (int64_t n = 0; n < N; n++)                                                                               \
            for (int64_t m = 0; m < M; m += WIDTH) {                                                                  \
                int64_t i = n * M + m;                                                                                \
                v_store_some(y + i, M - m, v_##NAME(before(x + i, z + i, bias + m, M - m, (float)alpha)));            \
            }                                                                                                         \
        return KERNEL_DONE;                                                                                           \
    }

static inline void store_both(scalar *dx, scalar *dz, int64_t lanes, vec d, float alpha) {
    v_store_some(dx, lanes, d);
    v_store_some(dz, lanes, d * alpha);
}

#define BACKWARD_FROM_Y_V2(NAME)                                                                                      \
    static inline vec NAME##_gradient(const scalar *dy, const scalar *y, int64_t lanes) {                             \
        return v_load_some(dy, lanes, 0.0f) * v_##NAME##_slope(v_load_some(y, lanes, 0.0f));                          \
    }                                                                                                                 \
    int multiply_add_##NAME##_backward_v2(const scalar *dy, const scalar *y, scalar *dx, scalar *dz, int64_t N,       \
                                          int64_t M, double alpha) {                                                  \
        FOR_EACH_VECTOR(N * M, NAME##_STORE)                                                                          \
        return KERNEL_DONE;                                                                                           \
    }
#define relu_STORE(i, lanes) store_both(dx + i, dz + i, lanes, relu_gradient(dy + i, y + i, lanes), (float)alpha)
#define sigmoid_STORE(i, lanes) store_both(dx + i, dz + i, lanes, sigmoid_gradient(dy + i, y + i, lanes), (float)alpha)

#define BACKWARD_AGAIN_V2(NAME)                                                                                       \
    int multiply_add_##NAME##_backward_v2(const scalar *dy, const scalar *x, const scalar *z, const scalar *bias,     \
                                          scalar *dx, scalar *dz, int64_t N, int64_t M, double alpha) {               \
        _Pragma("omp parallel for schedule(static) if (N * M >= PARALLEL_FROM)")                                      \
        for (int64_t n = 0; n < N; n++)                                                                               \
            for (int64_t m = 0; m < M; m += WIDTH) {                                                                  \
                int64_t i = n * M + m, lanes = M - m;                                                                 \
                vec slope = v_##NAME##_slope(before(x + i, z + i, bias + m, lanes, (float)alpha));                    \
                vec d = v_load_some(dy + i, lanes, 0.0f) * slope;                                                     \
                store_both(dx + i, dz + i, lanes, d, (float)alpha);                                                   \
            }                                                                                                         \
        return KERNEL_DONE;                                                                                           \
    }

FORWARD_V2(relu)
FORWARD_V2(sigmoid)
FORWARD_V2(gelu)
FORWARD_V2(silu)
BACKWARD_FROM_Y_V2(relu)
BACKWARD_FROM_Y_V2(sigmoid)
BACKWARD_AGAIN_V2(gelu)
BACKWARD_AGAIN_V2(silu)
