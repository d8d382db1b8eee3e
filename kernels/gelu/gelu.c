/* GELU, tanh form. Forward y = 0.5 x (1 + tanh u), u = sqrt(2/pi) (x + 0.044715 x^3).
 *
 * Argument order everywhere: input tensors, output tensors, sizes. n is the number of elements.
 */
#include <perfkit/activations.h>

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

int gelu_forward_v2(const scalar *x, scalar *y, int64_t n) {
    int64_t whole = n - n % WIDTH;
#pragma omp parallel for schedule(static) if (n >= PARALLEL_FROM)
    for (int64_t i = 0; i < whole; i += WIDTH) v_store(y + i, v_gelu(v_load(x + i)));
    v_store_part(y + whole, n - whole, v_gelu(v_load_part(x + whole, n - whole, 0.0f)));
    return KERNEL_DONE;
}

int gelu_backward_v2(const scalar *dy, const scalar *x, scalar *dx, int64_t n) {
    int64_t whole = n - n % WIDTH;
#pragma omp parallel for schedule(static) if (n >= PARALLEL_FROM)
    for (int64_t i = 0; i < whole; i += WIDTH) v_store(dx + i, v_load(dy + i) * v_gelu_slope(v_load(x + i)));
    int64_t rest = n - whole;
    v_store_part(dx + whole, rest, v_load_part(dy + whole, rest, 0.0f) * v_gelu_slope(v_load_part(x + whole, rest, 0.0f)));
    return KERNEL_DONE;
}
