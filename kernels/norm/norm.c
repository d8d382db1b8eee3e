/* The sum of squares of n elements, in fp32 whatever they are; added to what is there when `add` is set. */
#include <perfkit/vector.h>
#include <stdlib.h>

/* ---- version 1: as the formula says --------------------------------------------------------------------------- */

int global_norm_v1(const scalar *x, float *squares, int64_t n, int64_t add) {
    double sum = add ? *squares : 0.0;
    for (int64_t i = 0; i < n; i++) sum += (double)get(x + i) * (double)get(x + i);
    *squares = (float)sum;
    return KERNEL_DONE;
}

/* ---- version 2: threads over parts, vectors within --------------------------------------------------------------- */

/* Parts of a fixed size, added in their order: the same bits on any number of threads. fp32 within a part, where 16 or so
 * sums of a few hundred terms each lose nothing that shows, fp64 between parts. */
#define PART 32768

static float part_squares(const scalar *x, int64_t n) {
    vec sums[4] = {v_all(0.0f), v_all(0.0f), v_all(0.0f), v_all(0.0f)};
    int64_t i = 0;
    for (; i + 4 * WIDTH <= n; i += 4 * WIDTH)
        for (int k = 0; k < 4; k++) {
            vec v = v_load(x + i + k * WIDTH);
            sums[k] += v * v;
        }
    for (; i < n; i += WIDTH) {
        vec v = v_load_some(x + i, n - i, 0.0f);
        sums[0] += v * v;
    }
    return v_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

int global_norm_v2(const scalar *x, float *squares, int64_t n, int64_t add) {
    int64_t parts = (n + PART - 1) / PART;
    float *sums = malloc((size_t)parts * sizeof(float) + 1);
    if (!sums) return KERNEL_OUT_OF_MEMORY;
#pragma omp parallel for schedule(static) if (parts > 1)
    for (int64_t p = 0; p < parts; p++)
        sums[p] = part_squares(x + p * PART, p + 1 < parts ? PART : n - p * PART);
    double total = add ? *squares : 0.0;
    for (int64_t p = 0; p < parts; p++) total += sums[p];
    *squares = (float)total;
    free(sums);
    return KERNEL_DONE;
}
