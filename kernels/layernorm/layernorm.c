/* LayerNorm over the last dimension. N rows of C channels.
 *
 * y = (x - mean) rstd weight + bias,  rstd = 1 / sqrt(variance + eps), variance = mean of (x - mean)^2.
 * Backward, with h = (x - mean) rstd and g = dy weight, a row:
 *   dx = rstd (g - mean(g) - h mean(g h));  dweight = sum over rows of dy h;  dbias = sum over rows of dy.
 *
 * Argument order everywhere: input tensors, output tensors, sizes, eps or which outputs to add to. mean and rstd are fp32
 * in every precision.
 */
#include <perfkit/rows.h>
#include <stdlib.h>

enum { ADD_DX = 1, ADD_DWEIGHT = 2, ADD_DBIAS = 4 };

/* ---- version 1: as the formula says --------------------------------------------------------------------------- */

int layernorm_forward_v1(const scalar *x, const scalar *weight, const scalar *bias, scalar *y, float *mean, float *rstd,
                         int64_t N, int64_t C, double eps) {
    for (int64_t n = 0; n < N; n++) {
        const scalar *row = x + n * C;
        float sum = 0.0f, squares = 0.0f;
        for (int64_t c = 0; c < C; c++) sum += get(row + c);
        float m = sum / (float)C;
        for (int64_t c = 0; c < C; c++) squares += (get(row + c) - m) * (get(row + c) - m);
        float r = 1.0f / sqrtf(squares / (float)C + (float)eps);
        for (int64_t c = 0; c < C; c++)
            put(y + n * C + c, (get(row + c) - m) * r * get(weight + c) + get(bias + c));
        mean[n] = m;
        rstd[n] = r;
    }
    return KERNEL_DONE;
}

int layernorm_backward_v1(const scalar *dy, const scalar *x, const scalar *weight, const float *mean, const float *rstd,
                          scalar *dx, scalar *dweight, scalar *dbias, int64_t N, int64_t C, int64_t add) {
    for (int64_t n = 0; n < N; n++) {
        const scalar *d = dy + n * C, *row = x + n * C;
        float sum_g = 0.0f, sum_gh = 0.0f;
        for (int64_t c = 0; c < C; c++) {
            float g = get(d + c) * get(weight + c);
            sum_g += g;
            sum_gh += g * (get(row + c) - mean[n]) * rstd[n];
        }
        for (int64_t c = 0; c < C; c++) {
            float h = (get(row + c) - mean[n]) * rstd[n], g = get(d + c) * get(weight + c);
            float before = add & ADD_DX ? get(dx + n * C + c) : 0.0f;
            put(dx + n * C + c, before + rstd[n] * (g - sum_g / (float)C - h * (sum_gh / (float)C)));
        }
    }
    for (int64_t c = 0; c < C; c++) {
        float dw = add & ADD_DWEIGHT ? get(dweight + c) : 0.0f, db = add & ADD_DBIAS ? get(dbias + c) : 0.0f;
        for (int64_t n = 0; n < N; n++) {
            dw += get(dy + n * C + c) * (get(x + n * C + c) - mean[n]) * rstd[n];
            db += get(dy + n * C + c);
        }
        put(dweight + c, dw);
        put(dbias + c, db);
    }
    return KERNEL_DONE;
}

/* ---- version 2: threads over rows, vectors within a row -------------------------------------------------------- */

int layernorm_forward_v2(const scalar *x, const scalar *weight, const scalar *bias, scalar *y, float *mean, float *rstd,
                         int64_t N, int64_t C, double eps) {
#pragma omp parallel for schedule(static) if (N * C >= PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) row_layernorm(x + n * C, weight, bias, y + n * C, mean + n, rstd + n, C, eps);
    return KERNEL_DONE;
}

/* The sums over rows are made in two stages, by parts of the rows whose number does not depend on the number of threads:
 * the same bits on one thread and on many. A part's sums take 2 x padded floats of scratch. */
#define PARTS 64
#define ROWS_A_PART 16

typedef struct {
    vec d, h, g; /* dy, normalised x, dy weight */
} Terms;

static inline Terms terms(vec d, vec x, vec weight, float m, float r) {
    return (Terms){.d = d, .h = (x - m) * r, .g = d * weight};
}

/* The vector at c of dy, x and weight; lanes past the end of the row hold what makes every term 0. */
static inline Terms terms_at(const scalar *d, const scalar *x, const scalar *weight, int64_t c, int64_t C, float m,
                             float r) {
    if (c + WIDTH <= C) return terms(v_load(d + c), v_load(x + c), v_load(weight + c), m, r);
    int64_t rest = C - c;
    return terms(v_load_part(d + c, rest, 0.0f), v_load_part(x + c, rest, m), v_load_part(weight + c, rest, 0.0f), m, r);
}

/* One row: dx, and its contribution to the part's sums. */
static inline void row_gradient(const scalar *d, const scalar *x, const scalar *weight, float m, float r, scalar *dx,
                                float *sum_dh, float *sum_d, int64_t C, int64_t add) {
    vec sums_g = v_all(0.0f), sums_gh = v_all(0.0f);
    for (int64_t c = 0; c < C; c += WIDTH) {
        Terms t = terms_at(d, x, weight, c, C, m, r);
        sums_g += t.g;
        sums_gh += t.g * t.h;
        v_store_float(sum_dh + c, v_load_float(sum_dh + c) + t.d * t.h);
        v_store_float(sum_d + c, v_load_float(sum_d + c) + t.d);
    }
    float mean_g = v_sum(sums_g) / (float)C, mean_gh = v_sum(sums_gh) / (float)C;
    for (int64_t c = 0; c < C; c += WIDTH) {
        Terms t = terms_at(d, x, weight, c, C, m, r);
        vec value = (t.g - mean_g - t.h * mean_gh) * r;
        if (add & ADD_DX) value += v_load_some(dx + c, C - c, 0.0f);
        v_store_some(dx + c, C - c, value);
    }
}

/* Add up the parts, in their order, into dweight and dbias. */
static void add_parts(const float *sums, int64_t parts, int64_t padded, scalar *dweight, scalar *dbias, int64_t C,
                      int64_t add) {
#pragma omp parallel for schedule(static) if (parts * C >= PARALLEL_FROM)
    for (int64_t c = 0; c < C; c += WIDTH) {
        vec dw = add & ADD_DWEIGHT ? v_load_some(dweight + c, C - c, 0.0f) : v_all(0.0f);
        vec db = add & ADD_DBIAS ? v_load_some(dbias + c, C - c, 0.0f) : v_all(0.0f);
        for (int64_t p = 0; p < parts; p++) {
            dw += v_load_float(sums + p * 2 * padded + c);
            db += v_load_float(sums + p * 2 * padded + padded + c);
        }
        v_store_some(dweight + c, C - c, dw);
        v_store_some(dbias + c, C - c, db);
    }
}

int layernorm_backward_v2(const scalar *dy, const scalar *x, const scalar *weight, const float *mean, const float *rstd,
                          scalar *dx, scalar *dweight, scalar *dbias, int64_t N, int64_t C, int64_t add) {
    int64_t padded = (C + WIDTH - 1) / WIDTH * WIDTH;
    int64_t rows = (N + PARTS - 1) / PARTS;
    if (rows < ROWS_A_PART) rows = ROWS_A_PART;
    int64_t parts = (N + rows - 1) / rows;
    float *sums = calloc((size_t)(parts * 2 * padded) + 1, sizeof(float));
    if (!sums) return KERNEL_OUT_OF_MEMORY;
#pragma omp parallel for schedule(static) if (N * C >= PARALLEL_FROM)
    for (int64_t p = 0; p < parts; p++) {
        float *sum_dh = sums + p * 2 * padded, *sum_d = sum_dh + padded;
        int64_t end = (p + 1) * rows < N ? (p + 1) * rows : N;
        for (int64_t n = p * rows; n < end; n++)
            row_gradient(dy + n * C, x + n * C, weight, mean[n], rstd[n], dx + n * C, sum_dh, sum_d, C, add);
    }
    add_parts(sums, parts, padded, dweight, dbias, C, add);
    free(sums);
    return KERNEL_DONE;
}
