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

/* 0.5 (1 + tanh u) is the sigmoid s of z = 2u. With e = exp(-|z|) in [0, 1] nothing overflows: s = 1 / (1 + e) for z >= 0
 * and e / (1 + e) below; s (1 - s) = e / (1 + e)^2. Beyond |x| = 20, s is exactly 0 or 1 in fp32, so x is clamped there
 * before it is cubed. */
typedef struct {
    vec s;     /* sigmoid(z) */
    vec slope; /* x ds/dx */
} Gate;

static inline Gate gate(vec x) {
    vec c = v_at_most(v_at_least(x, -20.0f), 20.0f);
    vec square = c * c;
    vec z = c * (square * (2.0f * SQRT_2_OVER_PI * CUBE) + 2.0f * SQRT_2_OVER_PI);
    vec magnitude = (vec)((ivec)z & 0x7fffffff);
    vec e = v_exp(-magnitude);
    vec r = v_reciprocal(1.0f + e);
    vec er = e * r;
    vec dz = square * (6.0f * SQRT_2_OVER_PI * CUBE) + 2.0f * SQRT_2_OVER_PI;
    return (Gate){.s = v_where(z < 0.0f, er, r), .slope = er * r * c * dz};
}

int gelu_forward_v2(const scalar *x, scalar *y, int64_t n) {
    int64_t whole = n - n % WIDTH;
#pragma omp parallel for schedule(static) if (n >= PARALLEL_FROM)
    for (int64_t i = 0; i < whole; i += WIDTH) {
        vec v = v_load(x + i);
        v_store(y + i, v * gate(v).s);
    }
    vec v = v_load_part(x + whole, n - whole, 0.0f);
    v_store_part(y + whole, n - whole, v * gate(v).s);
    return KERNEL_DONE;
}

int gelu_backward_v2(const scalar *dy, const scalar *x, scalar *dx, int64_t n) {
    int64_t whole = n - n % WIDTH;
#pragma omp parallel for schedule(static) if (n >= PARALLEL_FROM)
    for (int64_t i = 0; i < whole; i += WIDTH) {
        Gate g = gate(v_load(x + i));
        v_store(dx + i, v_load(dy + i) * (g.s + g.slope));
    }
    Gate g = gate(v_load_part(x + whole, n - whole, 0.0f));
    v_store_part(dx + whole, n - whole, v_load_part(dy + whole, n - whole, 0.0f) * (g.s + g.slope));
    return KERNEL_DONE;
}
