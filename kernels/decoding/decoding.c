/* A token's pass through a layer: products of B rows with weights, with norm, rotation, cache, SwiGLU or sum around them.
 *
 * Argument order everywhere: input tensors, output, sizes, eps or scale. `position` is an int64 in memory.
 */
#include <perfkit/few_rows.h>
#include <perfkit/rows.h>
#include <stdlib.h>

enum { NO_SUCH_POSITION = 2 };

/* ---- version 1: as the formula says ------------------------------------------------------------------------------ */

/* x . w, or where there is a norm (x r norm) . w. */
static float dot(const scalar *x, const scalar *norm, float r, const scalar *w, int64_t C) {
    float sum = 0.0f;
    for (int64_t c = 0; c < C; c++) sum += get(x + c) * (norm ? r * get(norm + c) : 1.0f) * get(w + c);
    return sum;
}

static float rstd_of(const scalar *x, int64_t C, double eps) {
    float squares = 0.0f;
    for (int64_t c = 0; c < C; c++) squares += get(x + c) * get(x + c);
    return 1.0f / sqrtf(squares / (float)C + (float)eps);
}

static float silu(float x) { return x / (1.0f + expf(-x)); }

int decode_sum_v1(const scalar *x, const scalar *weight, const scalar *residual, scalar *y, int64_t B, int64_t C, int64_t M) {
    for (int64_t n = 0; n < B; n++)
        for (int64_t m = 0; m < M; m++)
            put(y + n * M + m, get(residual + n * M + m) + dot(x + n * C, NULL, 1.0f, weight + m * C, C));
    return KERNEL_DONE;
}

int decode_head_v1(const scalar *x, const scalar *norm, const scalar *weight, scalar *y, int64_t B, int64_t C, int64_t M,
                   double eps) {
    for (int64_t n = 0; n < B; n++) {
        float r = rstd_of(x + n * C, C, eps);
        for (int64_t m = 0; m < M; m++) put(y + n * M + m, dot(x + n * C, norm, r, weight + m * C, C));
    }
    return KERNEL_DONE;
}

int decode_swiglu_v1(const scalar *x, const scalar *norm, const scalar *gate, const scalar *up, scalar *g, int64_t B, int64_t C,
                     int64_t F, double eps) {
    for (int64_t n = 0; n < B; n++) {
        float r = rstd_of(x + n * C, C, eps);
        for (int64_t f = 0; f < F; f++)
            put(g + n * F + f, silu(dot(x + n * C, norm, r, gate + f * C, C)) * dot(x + n * C, norm, r, up + f * C, C));
    }
    return KERNEL_DONE;
}

/* The pairs (p, p + P) of `heads` heads of `y`, by the angles of one position. */
static void turn(float *y, const scalar *cosine, const scalar *sine, int64_t heads, int64_t P) {
    for (int64_t h = 0; h < heads; h++)
        for (int64_t p = 0; p < P; p++) {
            float *low = y + h * 2 * P + p, *high = low + P, u = *low, c = get(cosine + p), s = get(sine + p);
            *low = u * c - *high * s, *high = *high * c + u * s;
        }
}

/* What q, k and v (`sums`, one after the other for each sequence) become: turned, and in the cache. */
static void keep(float *sums, const scalar *cosine, const scalar *sine, int64_t at, scalar *keys, scalar *values, scalar *q,
                 int64_t NH, int64_t NKV, int64_t P, int64_t S) {
    float *k = sums + NH * 2 * P, *v = k + NKV * 2 * P;
    turn(sums, cosine + at * P, sine + at * P, NH + NKV, P);
    for (int64_t i = 0; i < NH * 2 * P; i++) put(q + i, sums[i]);
    for (int64_t h = 0; h < NKV; h++)
        for (int64_t i = 0; i < 2 * P; i++) {
            put(keys + (h * S + at) * 2 * P + i, k[h * 2 * P + i]);
            put(values + (h * S + at) * 2 * P + i, v[h * 2 * P + i]);
        }
}

int decode_qkv_v1(const scalar *x, const scalar *norm, const scalar *wq, const scalar *wk, const scalar *wv,
                  const scalar *cosine, const scalar *sine, const int64_t *position, scalar *keys, scalar *values, scalar *q,
                  int64_t B, int64_t C, int64_t NH, int64_t NKV, int64_t P, int64_t S, int64_t R, double eps) {
    int64_t of_q = NH * 2 * P, of_k = NKV * 2 * P, at = *position;
    if (at < 0 || at >= S || at >= R) return NO_SUCH_POSITION;
    float *sums = malloc((size_t)(of_q + 2 * of_k) * sizeof(float));
    if (!sums) return KERNEL_OUT_OF_MEMORY;
    for (int64_t n = 0; n < B; n++) {
        float r = rstd_of(x + n * C, C, eps);
        for (int64_t i = 0; i < of_q; i++) sums[i] = dot(x + n * C, norm, r, wq + i * C, C);
        for (int64_t i = 0; i < of_k; i++) sums[of_q + i] = dot(x + n * C, norm, r, wk + i * C, C);
        for (int64_t i = 0; i < of_k; i++) sums[of_q + of_k + i] = dot(x + n * C, norm, r, wv + i * C, C);
        keep(sums, cosine, sine, at, keys + n * S * of_k, values + n * S * of_k, q + n * of_q, NH, NKV, P, S);
    }
    free(sums);
    return KERNEL_DONE;
}

int decode_attention_v1(const scalar *q, const scalar *keys, const scalar *values, const int64_t *position, scalar *y,
                        int64_t B, int64_t NH, int64_t NKV, int64_t HS, int64_t S, double scale) {
    int64_t last = *position;
    if (last < 0 || last >= S) return NO_SUCH_POSITION;
    float *weights = malloc((size_t)(last + 1) * sizeof(float));
    if (!weights) return KERNEL_OUT_OF_MEMORY;
    for (int64_t row = 0; row < B * NH; row++) {
        const scalar *query = q + row * HS;
        int64_t shared = (row / NH * NKV + row % NH / (NH / NKV)) * S * HS;
        float largest = -INFINITY, total = 0.0f;
        for (int64_t s = 0; s <= last; s++) {
            weights[s] = (float)scale * dot(query, NULL, 1.0f, keys + shared + s * HS, HS);
            largest = fmaxf(largest, weights[s]);
        }
        for (int64_t s = 0; s <= last; s++) total += weights[s] = expf(weights[s] - largest);
        for (int64_t h = 0; h < HS; h++) {
            float sum = 0.0f;
            for (int64_t s = 0; s <= last; s++) sum += weights[s] * get(values + shared + s * HS + h);
            put(y + row * HS + h, sum / total);
        }
    }
    free(weights);
    return KERNEL_DONE;
}

/* The first of the largest logits; NaN is larger than all, as in PyTorch. */
int decode_token_v1(const scalar *logits, int64_t *token, int64_t B, int64_t M) {
    for (int64_t n = 0; n < B; n++) {
        const scalar *row = logits + n * M;
        int64_t best = 0;
        for (int64_t m = 1; m < M && get(row + best) == get(row + best); m++)
            if (get(row + m) > get(row + best) || get(row + m) != get(row + m)) best = m;
        token[n] = best;
    }
    return KERNEL_DONE;
}

/* ---- version 2: the norm once, then the weight read once by threads ------------------------------------------------ */

/* Memory for the rows in fp32 and `more` floats; the rows are normed where there is a norm. NULL without memory. */
static float *rows_of(const scalar *x, const scalar *norm, int64_t B, int64_t C, double eps, int64_t more) {
    float *rows = malloc((size_t)(B * C + more + 1) * sizeof(float));
    if (!rows) return NULL;
    for (int64_t n = 0; n < B; n++) {
        float r = norm ? 1.0f / sqrtf(row_sum(x + n * C, C, 0.0f, 1) / (float)C + (float)eps) : 1.0f;
        for (int64_t c = 0; c < C; c++) rows[n * C + c] = get(x + n * C + c) * (norm ? r * get(norm + c) : 1.0f);
    }
    return rows;
}

int decode_sum_v2(const scalar *x, const scalar *weight, const scalar *residual, scalar *y, int64_t B, int64_t C, int64_t M) {
    float *rows = rows_of(x, NULL, B, C, 0.0, B * M), *sums = rows + B * C;
    if (!rows) return KERNEL_OUT_OF_MEMORY;
    by_weight(rows, weight, sums, B, C, M);
    for (int64_t i = 0; i < B * M; i++) put(y + i, sums[i] + get(residual + i));
    free(rows);
    return KERNEL_DONE;
}

int decode_head_v2(const scalar *x, const scalar *norm, const scalar *weight, scalar *y, int64_t B, int64_t C, int64_t M,
                   double eps) {
    float *rows = rows_of(x, norm, B, C, eps, B * M), *sums = rows + B * C;
    if (!rows) return KERNEL_OUT_OF_MEMORY;
    by_weight(rows, weight, sums, B, C, M);
    for (int64_t i = 0; i < B * M; i++) put(y + i, sums[i]);
    free(rows);
    return KERNEL_DONE;
}

int decode_swiglu_v2(const scalar *x, const scalar *norm, const scalar *gate, const scalar *up, scalar *g, int64_t B, int64_t C,
                     int64_t F, double eps) {
    float *rows = rows_of(x, norm, B, C, eps, 2 * B * F), *gates = rows + B * C, *ups = gates + B * F;
    if (!rows) return KERNEL_OUT_OF_MEMORY;
    by_weight(rows, gate, gates, B, C, F);
    by_weight(rows, up, ups, B, C, F);
    for (int64_t i = 0; i < B * F; i++) put(g + i, silu(gates[i]) * ups[i]);
    free(rows);
    return KERNEL_DONE;
}

int decode_qkv_v2(const scalar *x, const scalar *norm, const scalar *wq, const scalar *wk, const scalar *wv,
                  const scalar *cosine, const scalar *sine, const int64_t *position, scalar *keys, scalar *values, scalar *q,
                  int64_t B, int64_t C, int64_t NH, int64_t NKV, int64_t P, int64_t S, int64_t R, double eps) {
    int64_t of_q = NH * 2 * P, of_k = NKV * 2 * P, at = *position;
    if (at < 0 || at >= S || at >= R) return NO_SUCH_POSITION;
    float *rows = rows_of(x, norm, B, C, eps, (B + 1) * (of_q + 2 * of_k));
    if (!rows) return KERNEL_OUT_OF_MEMORY;
    float *of_queries = rows + B * C, *of_keys = of_queries + B * of_q, *of_values = of_keys + B * of_k;
    float *together = of_values + B * of_k;
    by_weight(rows, wq, of_queries, B, C, of_q);
    by_weight(rows, wk, of_keys, B, C, of_k);
    by_weight(rows, wv, of_values, B, C, of_k);
    for (int64_t n = 0; n < B; n++) {
        memcpy(together, of_queries + n * of_q, (size_t)of_q * sizeof(float));
        memcpy(together + of_q, of_keys + n * of_k, (size_t)of_k * sizeof(float));
        memcpy(together + of_q + of_k, of_values + n * of_k, (size_t)of_k * sizeof(float));
        keep(together, cosine, sine, at, keys + n * S * of_k, values + n * S * of_k, q + n * of_q, NH, NKV, P, S);
    }
    free(rows);
    return KERNEL_DONE;
}

/* ---- attention, version 2: threads over heads of queries, vectors within a head ------------------------------------ */

/* y += weight v. */
static inline void add_row(float *y, const scalar *v, float weight, int64_t HS) {
    int64_t h = 0;
    for (; h + WIDTH <= HS; h += WIDTH) v_store_float(y + h, v_load_float(y + h) + v_load(v + h) * weight);
    for (; h < HS; h++) y[h] += weight * get(v + h);
}

static inline float row_dot(const scalar *a, const scalar *b, int64_t HS) {
    vec sum = v_all(0.0f);
    int64_t h = 0;
    for (; h + WIDTH <= HS; h += WIDTH) sum += v_load(a + h) * v_load(b + h);
    float total = v_sum(sum);
    for (; h < HS; h++) total += get(a + h) * get(b + h);
    return total;
}

int decode_attention_v2(const scalar *q, const scalar *keys, const scalar *values, const int64_t *position, scalar *y,
                        int64_t B, int64_t NH, int64_t NKV, int64_t HS, int64_t S, double scale) {
    int64_t last = *position, count = last + 1;
    if (last < 0 || last >= S) return NO_SUCH_POSITION;
    float *memory = malloc((size_t)(B * NH * (count + HS)) * sizeof(float)); /* of each head of queries */
    if (!memory) return KERNEL_OUT_OF_MEMORY;
#pragma omp parallel for schedule(static) if (B * NH * count * HS >= PARALLEL_FROM)
    for (int64_t row = 0; row < B * NH; row++) {
        const int64_t shared = (row / NH * NKV + row % NH / (NH / NKV)) * S * HS;
        float *weights = memory + row * (count + HS), *sum = weights + count, largest = -INFINITY, total = 0.0f;
        for (int64_t s = 0; s < count; s++) {
            weights[s] = (float)scale * row_dot(q + row * HS, keys + shared + s * HS, HS);
            largest = fmaxf(largest, weights[s]);
        }
        for (int64_t h = 0; h < HS; h++) sum[h] = 0.0f;
        for (int64_t s = 0; s < count; s++) {
            float weight = expf(weights[s] - largest);
            total += weight;
            add_row(sum, values + shared + s * HS, weight, HS);
        }
        for (int64_t h = 0; h < HS; h++) put(y + row * HS + h, sum[h] / total);
    }
    free(memory);
    return KERNEL_DONE;
}
