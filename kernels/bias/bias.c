/* A bias of M columns on N rows: its gradient (the sum over rows), and y = max(x + bias, 0) with its gradient.
 *
 * Argument order everywhere: input tensors, output tensors, sizes, whether to add to the output.
 */
#include <perfkit/vector.h>

/* ---- version 1: as the formula says --------------------------------------------------------------------------- */

int bias_gradient_v1(const scalar *dy, scalar *db, int64_t N, int64_t M, int64_t add) {
    for (int64_t m = 0; m < M; m++) {
        double sum = add ? get(db + m) : 0.0f;
        for (int64_t n = 0; n < N; n++) sum += get(dy + n * M + m);
        put(db + m, (float)sum);
    }
    return KERNEL_DONE;
}

/* A NaN stays NaN, as in PyTorch. */
static inline float relu(float u) {
    return u < 0.0f ? 0.0f : u;
}

int bias_relu_forward_v1(const scalar *x, const scalar *bias, scalar *y, int64_t N, int64_t M) {
    for (int64_t n = 0; n < N; n++)
        for (int64_t m = 0; m < M; m++) put(y + n * M + m, relu(get(x + n * M + m) + get(bias + m)));
    return KERNEL_DONE;
}

int bias_relu_backward_v1(const scalar *dy, const scalar *y, scalar *dx, int64_t n) {
    for (int64_t i = 0; i < n; i++) put(dx + i, get(y + i) > 0.0f ? get(dy + i) : 0.0f);
    return KERNEL_DONE;
}
