/* RMSNorm over the last dimension, alone or of the residual sum x = a + b. N rows of C channels.
 *
 * y = x rstd weight,  rstd = 1 / sqrt(mean of x^2 + eps).
 * Backward, with h = x rstd and g = dy weight, a row: dx = rstd (g - h mean(g h));  dweight = sum over rows of dy h.
 *
 * Argument order everywhere: input tensors, output tensors, sizes, eps or which outputs to add to. rstd is fp32 in every
 * precision.
 */
#include <perfkit/rows.h>
#include <stdlib.h>

enum { ADD_DX = 1, ADD_DWEIGHT = 2 };

/* ---- version 1: as the formula says --------------------------------------------------------------------------- */

int rmsnorm_forward_v1(const scalar *x, const scalar *weight, scalar *y, float *rstd, int64_t N, int64_t C,
                       double eps) {
    for (int64_t n = 0; n < N; n++) {
        const scalar *row = x + n * C;
        float squares = 0.0f;
        for (int64_t c = 0; c < C; c++) squares += get(row + c) * get(row + c);
        float r = 1.0f / sqrtf(squares / (float)C + (float)eps);
        for (int64_t c = 0; c < C; c++) put(y + n * C + c, get(row + c) * r * get(weight + c));
        rstd[n] = r;
    }
    return KERNEL_DONE;
}

int residual_rmsnorm_forward_v1(const scalar *a, const scalar *b, const scalar *weight, scalar *x, scalar *y,
                                float *rstd, int64_t N, int64_t C, double eps) {
    for (int64_t i = 0; i < N * C; i++) put(x + i, get(a + i) + get(b + i));
    return rmsnorm_forward_v1(x, weight, y, rstd, N, C, eps);
}

int rmsnorm_backward_v1(const scalar *dy, const scalar *x, const scalar *weight, const float *rstd, scalar *dx,
                        scalar *dweight, int64_t N, int64_t C, int64_t add) {
    for (int64_t n = 0; n < N; n++) {
        const scalar *d = dy + n * C, *row = x + n * C;
        float sum_gh = 0.0f;
        for (int64_t c = 0; c < C; c++) sum_gh += get(d + c) * get(weight + c) * get(row + c) * rstd[n];
        for (int64_t c = 0; c < C; c++) {
            float h = get(row + c) * rstd[n], g = get(d + c) * get(weight + c);
            float before = add & ADD_DX ? get(dx + n * C + c) : 0.0f;
            put(dx + n * C + c, before + rstd[n] * (g - h * (sum_gh / (float)C)));
        }
    }
    for (int64_t c = 0; c < C; c++) {
        float dw = add & ADD_DWEIGHT ? get(dweight + c) : 0.0f;
        for (int64_t n = 0; n < N; n++) dw += get(dy + n * C + c) * get(x + n * C + c) * rstd[n];
        put(dweight + c, dw);
    }
    return KERNEL_DONE;
}

/* ---- version 2: threads over rows, vectors within a row -------------------------------------------------------- */

static inline float row_rmsnorm(const scalar *x, const scalar *weight, scalar *y, int64_t C, double eps) {
    float r = 1.0f / sqrtf(row_sum(x, C, 0.0f, 1) / (float)C + (float)eps);
    for (int64_t c = 0; c < C; c += WIDTH) {
        int64_t lanes = C - c;
        v_store_some(y + c, lanes, v_load_some(x + c, lanes, 0.0f) * r * v_load_some(weight + c, lanes, 0.0f));
    }
    return r;
}

int rmsnorm_forward_v2(const scalar *x, const scalar *weight, scalar *y, float *rstd, int64_t N, int64_t C,
                       double eps) {
#pragma omp parallel for schedule(static) if (N * C >= PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) rstd[n] = row_rmsnorm(x + n * C, weight, y + n * C, C, eps);
    return KERNEL_DONE;
}

int residual_rmsnorm_forward_v2(const scalar *a, const scalar *b, const scalar *weight, scalar *x, scalar *y,
                                float *rstd, int64_t N, int64_t C, double eps) {
#pragma omp parallel for schedule(static) if (N * C >= PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        int64_t row = n * C;
        for (int64_t c = 0; c < C; c += WIDTH)
            v_store_some(x + row + c, C - c,
                         v_load_some(a + row + c, C - c, 0.0f) + v_load_some(b + row + c, C - c, 0.0f));
        rstd[n] = row_rmsnorm(x + row, weight, y + row, C, eps);
    }
    return KERNEL_DONE;
}

/* The sums over rows are made in two stages, by parts of the rows whose number does not depend on the number of threads:
 * the same bits on one thread and on many. A part's sums take `padded` floats of scratch. */
#define PARTS 64
#define ROWS_A_PART 16

/* One row: dx, and its contribution to the part's sums. */
static inline void row_gradient(const scalar *d, const scalar *x, const scalar *weight, float r, scalar *dx,
                                float *sum_dh, int64_t C, int64_t add) {
    vec sums = v_all(0.0f);
    for (int64_t c = 0; c < C; c += WIDTH) {
        vec dh = v_load_some(d + c, C - c, 0.0f) * (v_load_some(x + c, C - c, 0.0f) * r);
        sums += dh * v_load_some(weight + c, C - c, 0.0f);
        v_store_float(sum_dh + c, v_load_float(sum_dh + c) + dh);
    }
    float mean_gh = v_sum(sums) / (float)C;
    for (int64_t c = 0; c < C; c += WIDTH) {
        vec g = v_load_some(d + c, C - c, 0.0f) * v_load_some(weight + c, C - c, 0.0f);
        vec value = (g - v_load_some(x + c, C - c, 0.0f) * r * mean_gh) * r;
        if (add & ADD_DX) value += v_load_some(dx + c, C - c, 0.0f);
        v_store_some(dx + c, C - c, value);
    }
}

int rmsnorm_backward_v2(const scalar *dy, const scalar *x, const scalar *weight, const float *rstd, scalar *dx,
                        scalar *dweight, int64_t N, int64_t C, int64_t add) {
    int64_t padded = (C + WIDTH - 1) / WIDTH * WIDTH;
    int64_t rows = (N + PARTS - 1) / PARTS;
    if (rows < ROWS_A_PART) rows = ROWS_A_PART;
    int64_t parts = (N + rows - 1) / rows;
    float *sums = calloc((size_t)(parts * padded) + 1, sizeof(float));
    if (!sums) return KERNEL_OUT_OF_MEMORY;
#pragma omp parallel for schedule(static) if (N * C >= PARALLEL_FROM)
    for (int64_t p = 0; p < parts; p++) {
        int64_t end = (p + 1) * rows < N ? (p + 1) * rows : N;
        for (int64_t n = p * rows; n < end; n++)
            row_gradient(dy + n * C, x + n * C, weight, rstd[n], dx + n * C, sums + p * padded, C, add);
    }
#pragma omp parallel for schedule(static) if (parts * C >= PARALLEL_FROM)
    for (int64_t c = 0; c < C; c += WIDTH) {
        vec dw = add & ADD_DWEIGHT ? v_load_some(dweight + c, C - c, 0.0f) : v_all(0.0f);
        for (int64_t p = 0; p < parts; p++) dw += v_load_float(sums + p * padded + c);
        v_store_some(dweight + c, C - c, dw);
    }
    free(sums);
    return KERNEL_DONE;
}
