/* The residual connection: y = a + b; and x = a + b with y = LayerNorm(x) in one pass.
 *
 * The LayerNorm is that of kernels/layernorm: N rows of C channels, mean and rstd in fp32. Its input is x as rounded to
 * memory, so that the backward pass, which reads x, sees the same numbers.
 * Argument order everywhere: input tensors, output tensors, sizes, eps.
 */
#include <perfkit/rows.h>

/* ---- version 1: as the formula says --------------------------------------------------------------------------- */

int residual_forward_v1(const scalar *a, const scalar *b, scalar *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) put(y + i, get(a + i) + get(b + i));
    return KERNEL_DONE;
}

int residual_layernorm_forward_v1(const scalar *a, const scalar *b, const scalar *weight, const scalar *bias, scalar *x,
                                  scalar *y, float *mean, float *rstd, int64_t N, int64_t C, double eps) {
    for (int64_t n = 0; n < N; n++) {
        scalar *row = x + n * C;
        float sum = 0.0f, squares = 0.0f;
        for (int64_t c = 0; c < C; c++) put(row + c, get(a + n * C + c) + get(b + n * C + c));
        for (int64_t c = 0; c < C; c++) sum += get(row + c);
        float m = sum / (float)C;
        for (int64_t c = 0; c < C; c++) squares += (get(row + c) - m) * (get(row + c) - m);
        float r = 1.0f / sqrtf(squares / (float)C + (float)eps);
        for (int64_t c = 0; c < C; c++) put(y + n * C + c, (get(row + c) - m) * r * get(weight + c) + get(bias + c));
        mean[n] = m;
        rstd[n] = r;
    }
    return KERNEL_DONE;
}

/* ---- version 2: threads and vectors ----------------------------------------------------------------------------- */

int residual_forward_v2(const scalar *a, const scalar *b, scalar *y, int64_t n) {
#ifdef PERFKIT_BF16
#define ADD(i, lanes) v_store_some(y + i, lanes, v_load_some(a + i, lanes, 0.0f) + v_load_some(b + i, lanes, 0.0f))
    FOR_EACH_VECTOR(n, ADD)
#else
#define ADD_STREAMED(i, lanes)                                                                                        \
    v_stream_some(y + i, lanes, v_load_some(a + i, lanes, 0.0f) + v_load_some(b + i, lanes, 0.0f))
    if (v_streams(y, 12 * n)) {
        FOR_EACH_VECTOR_STREAMED(n, ADD_STREAMED)
    } else {
#define ADD_NARROW(i) v8_store(y + i, v8_load(a + i) + v8_load(b + i))
#define ADD_ONE(i) y[i] = a[i] + b[i]
        FOR_EACH_NARROW(n, ADD_NARROW, ADD_ONE)
    }
#endif
    return KERNEL_DONE;
}

int residual_layernorm_forward_v2(const scalar *a, const scalar *b, const scalar *weight, const scalar *bias, scalar *x,
                                  scalar *y, float *mean, float *rstd, int64_t N, int64_t C, double eps) {
#pragma omp parallel for schedule(static) if (N * C >= PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        const scalar *p = a + n * C, *q = b + n * C;
        scalar *row = x + n * C;
        for (int64_t c = 0; c < C; c += WIDTH)
            v_store_some(row + c, C - c, v_load_some(p + c, C - c, 0.0f) + v_load_some(q + c, C - c, 0.0f));
        row_layernorm(row, weight, bias, y + n * C, mean + n, rstd + n, C, eps);
    }
    return KERNEL_DONE;
}
