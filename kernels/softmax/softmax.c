/* Softmax over N whole rows of M columns.
 *
 * y[m] = exp(x[m] - top) / sum of exp(x - top), top = the row's largest element.  dx[m] = y[m] (dy[m] - sum of dy y).
 * Argument order everywhere: input tensors, output tensors, sizes.
 */
#include <perfkit/rows.h>

/* ---- version 1: as the formula says --------------------------------------------------------------------------- */

int softmax_forward_v1(const scalar *x, scalar *y, int64_t N, int64_t M) {
    for (int64_t n = 0; n < N; n++) {
        const scalar *row = x + n * M;
        float top = -INFINITY;
        double sum = 0.0; /* 50 000 terms one after the other lose digits in fp32 */
        for (int64_t m = 0; m < M; m++) top = fmaxf(top, get(row + m));
        for (int64_t m = 0; m < M; m++) sum += expf(get(row + m) - top);
        for (int64_t m = 0; m < M; m++) put(y + n * M + m, (float)(expf(get(row + m) - top) / sum));
    }
    return KERNEL_DONE;
}

int softmax_backward_v1(const scalar *dy, const scalar *y, scalar *dx, int64_t N, int64_t M) {
    for (int64_t n = 0; n < N; n++) {
        const scalar *d = dy + n * M, *p = y + n * M;
        double dot = 0.0;
        for (int64_t m = 0; m < M; m++) dot += get(d + m) * get(p + m);
        for (int64_t m = 0; m < M; m++) put(dx + n * M + m, get(p + m) * (get(d + m) - (float)dot));
    }
    return KERNEL_DONE;
}

/* ---- version 2: threads over rows, vectors within --------------------------------------------------------------- */

int softmax_forward_v2(const scalar *x, scalar *y, int64_t N, int64_t M) {
#pragma omp parallel for schedule(static) if (N * M >= PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) row_softmax(x + n * M, y + n * M, M, LOG2_E);
    return KERNEL_DONE;
}

int softmax_backward_v2(const scalar *dy, const scalar *y, scalar *dx, int64_t N, int64_t M) {
#pragma omp parallel for schedule(static) if (N * M >= PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) row_softmax_gradient(dy + n * M, y + n * M, dx + n * M, M, 1.0f);
    return KERNEL_DONE;
}
