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

/* Parts of a fixed size, added in their order: the same bits on any number of threads. fp32 within a part, where 32 or so
 * sums of a thousand terms each lose nothing that shows, fp64 between parts. */
#define PART 32768

#ifdef PERFKIT_BF16
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
#else
/* Four quarters side by side: memory delivers several streams faster than one. */
static float part_squares(const float *x, int64_t n) {
    int64_t quarter = n / 4 / NARROW * NARROW;
    vec8 sums[4] = {{0}, {0}, {0}, {0}};
    for (int64_t i = 0; i < quarter; i += NARROW)
        for (int k = 0; k < 4; k++) {
            vec8 v = v8_load(x + k * quarter + i);
            sums[k] += v * v;
        }
    vec8 s = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    float rest = 0.0f;
    for (int64_t i = 4 * quarter; i < n; i++) rest += x[i] * x[i];
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7])) + rest;
}
#endif

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
