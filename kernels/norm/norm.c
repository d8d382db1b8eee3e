/* The sum of squares of n elements, in fp32 whatever they are; added to what is there when `add` is set. */
#include <perfkit/vector.h>

/* ---- version 1: as the formula says --------------------------------------------------------------------------- */

int global_norm_v1(const scalar *x, float *squares, int64_t n, int64_t add) {
    double sum = add ? *squares : 0.0;
    for (int64_t i = 0; i < n; i++) sum += (double)get(x + i) * (double)get(x + i);
    *squares = (float)sum;
    return KERNEL_DONE;
}
