/* GELU, tanh form. Forward y = 0.5 x (1 + tanh u), u = sqrt(2/pi) (x + 0.044715 x^3).
 *
 * Argument order everywhere: input tensors, output tensors, sizes. n is the number of elements, N rows of M columns.
 */
#include <perfkit/activations.h>
#include <perfkit/fp8.h>
#include <perfkit/parts.h>

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

int gelu_bias_backward_v1(const scalar *dy, const scalar *x, scalar *dx, scalar *db, int64_t N, int64_t M) {
    gelu_backward_v1(dy, x, dx, N * M);
    for (int64_t m = 0; m < M; m++) {
        double sum = 0.0;
        for (int64_t n = 0; n < N; n++) sum += get(dx + n * M + m);
        put(db + m, (float)sum);
    }
    return KERNEL_DONE;
}

/* ---- version 2: threads and vectors --------------------------------------------------------------------------- */

int gelu_forward_v2(const scalar *x, scalar *y, int64_t n) {
#define GELU(i, lanes) v_store_some(y + i, lanes, v_gelu(v_load_some(x + i, lanes, 0.0f)))
    FOR_EACH_VECTOR(n, GELU)
    return KERNEL_DONE;
}

int gelu_backward_v2(const scalar *dy, const scalar *x, scalar *dx, int64_t n) {
#define GELU_GRADIENT(i, lanes)                                                                                       \
    v_store_some(dx + i, lanes, v_load_some(dy + i, lanes, 0.0f) * v_gelu_slope(v_load_some(x + i, lanes, 0.0f)))
    FOR_EACH_VECTOR(n, GELU_GRADIENT)
    return KERNEL_DONE;
}

/* dx is added up while it is in registers. */
int gelu_bias_backward_v2(const scalar *dy, const scalar *x, scalar *dx, scalar *db, int64_t N, int64_t M) {
    Parts parts;
    if (!parts_begin(&parts, N, M)) return KERNEL_OUT_OF_MEMORY;
#pragma omp parallel for schedule(static) if (N * M >= PARALLEL_FROM)
    for (int64_t p = 0; p < parts.count; p++) {
        float *sums = part_sums(&parts, p);
        for (int64_t n = p * parts.rows; n < part_end(&parts, p); n++)
            for (int64_t m = 0; m < M; m += WIDTH) {
                int64_t i = n * M + m, lanes = M - m;
                vec d = v_load_some(dy + i, lanes, 0.0f) * v_gelu_slope(v_load_some(x + i, lanes, 0.0f));
                v_store_some(dx + i, lanes, d);
                part_add(sums + m, d);
            }
    }
    parts_end(&parts, db, 0);
    return KERNEL_DONE;
}

/* ---- with the largest absolute value of y or dx, for its cast to fp8; version 1 ---------------------------------- */

int gelu_amax_forward_v1(const scalar *x, float *amax, scalar *y, int64_t n) {
    gelu_forward_v2(x, y, n);
    raise_amax(amax, y, n);
    return KERNEL_DONE;
}

int gelu_bias_amax_backward_v1(const scalar *dy, const scalar *x, float *amax, scalar *dx, scalar *db, int64_t N,
                               int64_t M) {
    int code = gelu_bias_backward_v2(dy, x, dx, db, N, M);
    if (code == KERNEL_DONE) raise_amax(amax, dx, N * M);
    return code;
}
