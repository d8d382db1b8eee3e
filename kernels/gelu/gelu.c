/* GELU, tanh form. Forward y = 0.5 x (1 + tanh u), u = sqrt(2/pi) (x + 0.044715 x^3).
 *
 * Argument order everywhere: input tensors, output tensors, sizes. n is the number of elements.
 */
#include <perfkit/vector.h>

#define SQRT_2_OVER_PI 0.7978845608028654f
#define CUBE 0.044715f
#define PARALLEL_FROM 16384 /* elements; below it starting threads costs more than it saves */

/* ---- version 1: as the formula says --------------------------------------------------------------------------- */

int gelu_forward_v1(const scalar *x, scalar *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        float v = get(x + i);
        float u = SQRT_2_OVER_PI * (v + CUBE * v * v * v);
        put(y + i, 0.5f * v * (1.0f + tanhf(u)));
    }
    return KERNEL_DONE;
}

int gelu_backward_v1(const scalar *dy, const scalar *x, scalar *dx, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        float v = get(x + i);
        float t = tanhf(SQRT_2_OVER_PI * (v + CUBE * v * v * v));
        float du = SQRT_2_OVER_PI * (1.0f + 3.0f * CUBE * v * v);
        put(dx + i, get(dy + i) * (0.5f * (1.0f + t) + 0.5f * v * (1.0f - t * t) * du));
    }
    return KERNEL_DONE;
}

/* ---- version 2: threads and vectors --------------------------------------------------------------------------- */

/* 0.5 (1 + tanh u) is the sigmoid s of 2u, and with e = exp(-2u) = 2^t: s = 1 / (1 + e), 1 - s = e s.
 * Beyond |x| = 9.5, s is 0 or 1 to 33 digits: x is clamped there, so that neither x^3 nor e overflows. */
#define LIMIT 9.5f
#define LOG2_E 1.4426950408889634f
#define T1 (-2.0f * LOG2_E * SQRT_2_OVER_PI)
#define T3 (T1 * CUBE)

typedef struct {
    vec low; /* x, or -LIMIT below it: there x s is 0, and stays 0 for every x */
    vec x;   /* x within the limits */
    vec square, e, s;
} Gate;

static inline Gate gate(vec value) {
    vec low = v_at_least(value, -LIMIT), x = v_at_most(low, LIMIT);
    vec square = x * x;
    vec e = v_exp2_within(x * (square * T3 + T1));
    return (Gate){low, x, square, e, v_reciprocal(1.0f + e)};
}

static inline vec gelu(vec x) {
    Gate g = gate(x);
    return g.low * g.s;
}

/* s + x ds/dx, with ds/dx = s (1 - s) d(2u)/dx. */
static inline vec gelu_slope(vec x) {
    Gate g = gate(x);
    vec du = g.square * (6.0f * SQRT_2_OVER_PI * CUBE) + 2.0f * SQRT_2_OVER_PI;
    return g.s + g.s * (g.e * g.s) * (g.x * du);
}

int gelu_forward_v2(const scalar *x, scalar *y, int64_t n) {
    int64_t whole = n - n % WIDTH;
#pragma omp parallel for schedule(static) if (n >= PARALLEL_FROM)
    for (int64_t i = 0; i < whole; i += WIDTH) v_store(y + i, gelu(v_load(x + i)));
    v_store_part(y + whole, n - whole, gelu(v_load_part(x + whole, n - whole, 0.0f)));
    return KERNEL_DONE;
}

int gelu_backward_v2(const scalar *dy, const scalar *x, scalar *dx, int64_t n) {
    int64_t whole = n - n % WIDTH;
#pragma omp parallel for schedule(static) if (n >= PARALLEL_FROM)
    for (int64_t i = 0; i < whole; i += WIDTH) v_store(dx + i, v_load(dy + i) * gelu_slope(v_load(x + i)));
    int64_t rest = n - whole;
    v_store_part(dx + whole, rest, v_load_part(dy + whole, rest, 0.0f) * gelu_slope(v_load_part(x + whole, rest, 0.0f)));
    return KERNEL_DONE;
}
