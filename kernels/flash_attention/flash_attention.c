/* Causal attention without a T x T matrix, for M = B NH matrices q of T rows of HS, of which G in a row share k and v.
 *
 * s[i][j] = scale q[i].k[j] for j <= i;  lse[i] = log sum over j of exp(s[i][j]);  y[i] = sum over j of p[i][j] v[j],
 * p[i][j] = exp(s[i][j] - lse[i]).
 * Backward: ds[i][j] = p[i][j] (dy[i].v[j] - dy[i].y[i]);  dq[i] = scale sum over j of ds[i][j] k[j];
 * dk[j] = scale sum over i of ds[i][j] q[i];  dv[j] = sum over i of p[i][j] dy[i].
 * lse is fp32 in every precision. Argument order everywhere: input tensors, output tensors, sizes, scale.
 */
#include <perfkit/vector.h>
#include <stdlib.h>

static inline float dot(const scalar *a, const scalar *b, int64_t n) {
    float sum = 0.0f;
    for (int64_t i = 0; i < n; i++) sum += get(a + i) * get(b + i);
    return sum;
}

/* ---- version 1: as the formula says, a matrix a thread ---------------------------------------------------------- */

/* One row of y; `scores` has room for T, `sums` for HS numbers. */
static void forward_row(const scalar *q, const scalar *k, const scalar *v, scalar *y, float *lse, int64_t i, int64_t HS,
                        float scale, float *scores, float *sums) {
    float top = -INFINITY, total = 0.0f;
    for (int64_t j = 0; j <= i; j++) {
        scores[j] = scale * dot(q + i * HS, k + j * HS, HS);
        top = fmaxf(top, scores[j]);
    }
    for (int64_t h = 0; h < HS; h++) sums[h] = 0.0f;
    for (int64_t j = 0; j <= i; j++) {
        float e = expf(scores[j] - top);
        total += e;
        for (int64_t h = 0; h < HS; h++) sums[h] += e * get(v + j * HS + h);
    }
    for (int64_t h = 0; h < HS; h++) put(y + i * HS + h, sums[h] / total);
    lse[i] = top + logf(total);
}

int flash_attention_forward_v1(const scalar *q, const scalar *k, const scalar *v, scalar *y, float *lse, int64_t M,
                               int64_t G, int64_t T, int64_t HS, double scale) {
    float *scratch = malloc((size_t)(M * (T + HS)) * sizeof(float) + 1);
    if (!scratch) return KERNEL_OUT_OF_MEMORY;
#pragma omp parallel for schedule(static)
    for (int64_t m = 0; m < M; m++) {
        float *scores = scratch + m * (T + HS);
        int64_t at = m * T * HS, of_keys = m / G * T * HS;
        for (int64_t i = 0; i < T; i++)
            forward_row(q + at, k + of_keys, v + of_keys, y + at, lse + m * T, i, HS, (float)scale, scores, scores + T);
    }
    free(scratch);
    return KERNEL_DONE;
}

/* All of one matrix of queries: dq is added to `dq`, which holds zeros, and dk and dv to `dk` and `dv`, in fp32. */
static void backward_matrix(const scalar *dy, const scalar *q, const scalar *k, const scalar *v, const scalar *y,
                            const float *lse, float *dq, float *dk, float *dv, int64_t T, int64_t HS, float scale) {
    for (int64_t i = 0; i < T; i++) {
        float own = dot(dy + i * HS, y + i * HS, HS);
        for (int64_t j = 0; j <= i; j++) {
            float p = expf(scale * dot(q + i * HS, k + j * HS, HS) - lse[i]);
            float ds = scale * p * (dot(dy + i * HS, v + j * HS, HS) - own);
            for (int64_t h = 0; h < HS; h++) {
                dq[i * HS + h] += ds * get(k + j * HS + h);
                dk[j * HS + h] += ds * get(q + i * HS + h);
                dv[j * HS + h] += p * get(dy + i * HS + h);
            }
        }
    }
}

int flash_attention_backward_v1(const scalar *dy, const scalar *q, const scalar *k, const scalar *v, const scalar *y,
                                const float *lse, scalar *dq, scalar *dk, scalar *dv, int64_t M, int64_t G, int64_t T,
                                int64_t HS, double scale) {
    int64_t size = T * HS, of_group = (G + 2) * size;
    float *sums = calloc((size_t)(M / G * of_group) + 1, sizeof(float));
    if (!sums) return KERNEL_OUT_OF_MEMORY;
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < M / G; n++) {
        float *own_k = sums + n * of_group, *own_v = own_k + size, *own_q = own_v + size;
        const scalar *keys = k + n * size, *values = v + n * size;
        for (int64_t m = n * G; m < (n + 1) * G; m++) {
            float *of_m = own_q + (m - n * G) * size;
            backward_matrix(dy + m * size, q + m * size, keys, values, y + m * size, lse + m * T, of_m, own_k, own_v, T,
                            HS, (float)scale);
        }
        for (int64_t i = 0; i < G * size; i++) put(dq + n * G * size + i, own_q[i]);
        for (int64_t i = 0; i < size; i++) {
            put(dk + n * size + i, own_k[i]);
            put(dv + n * size + i, own_v[i]);
        }
    }
    free(sums);
    return KERNEL_DONE;
}
