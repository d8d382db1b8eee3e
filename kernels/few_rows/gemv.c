/* The product of a few rows with a weight: y = x W^T (+ bias). N rows of K columns, a weight of M rows of K columns.
 *
 * Argument order everywhere: input tensors, output, sizes.
 */
#include <perfkit/few_rows.h>
#include <stdlib.h>

/* ---- version 1: as the formula says --------------------------------------------------------------------------- */

int gemv_bias_v1(const scalar *x, const scalar *weight, const scalar *bias, scalar *y, int64_t N, int64_t K, int64_t M) {
    for (int64_t n = 0; n < N; n++)
        for (int64_t m = 0; m < M; m++) {
            float sum = bias ? get(bias + m) : 0.0f;
            for (int64_t k = 0; k < K; k++) sum += get(x + n * K + k) * get(weight + m * K + k);
            put(y + n * M + m, sum);
        }
    return KERNEL_DONE;
}

int gemv_v1(const scalar *x, const scalar *weight, scalar *y, int64_t N, int64_t K, int64_t M) {
    return gemv_bias_v1(x, weight, NULL, y, N, K, M);
}

/* ---- version 2: eight rows of the weight at once, the next eight asked of memory meanwhile -------------------------------- */

int gemv_bias_v2(const scalar *x, const scalar *weight, const scalar *bias, scalar *y, int64_t N, int64_t K, int64_t M) {
    float *rows = malloc((size_t)(N * (K + M) + 1) * sizeof(float)); /* x in fp32: converted once, not for each row of W */
    if (!rows) return KERNEL_OUT_OF_MEMORY;
    float *sums = rows + N * K;
    for (int64_t i = 0; i < N * K; i++) rows[i] = get(x + i);
    by_weight(rows, weight, sums, N, K, M);
    for (int64_t n = 0; n < N; n++)
        for (int64_t m = 0; m < M; m++) put(y + n * M + m, sums[n * M + m] + (bias ? get(bias + m) : 0.0f));
    free(rows);
    return KERNEL_DONE;
}

int gemv_v2(const scalar *x, const scalar *weight, scalar *y, int64_t N, int64_t K, int64_t M) {
    return gemv_bias_v2(x, weight, NULL, y, N, K, M);
}
