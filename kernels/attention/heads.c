/* Heads: split a QKV projection into q, k, v a head, and merge heads back into channels. Pure copies.
 *
 * Legend: B batch, T time, C channels, NH heads, HS = C / NH head size.
 * Argument order everywhere: input tensors, output tensors, sizes.
 */
#include <perfkit/vector.h>

#define PARALLEL_FROM 16384 /* elements; below it starting threads costs more than it saves */

/* ---- version 1: one element after the other ------------------------------------------------------------------- */

int split_heads_forward_v1(const scalar *qkv, scalar *q, scalar *k, scalar *v, int64_t B, int64_t T, int64_t NH,
                           int64_t HS) {
    int64_t C = NH * HS;
    for (int64_t b = 0; b < B; b++)
        for (int64_t h = 0; h < NH; h++)
            for (int64_t t = 0; t < T; t++)
                for (int64_t i = 0; i < HS; i++) {
                    const scalar *from = qkv + (b * T + t) * 3 * C + h * HS + i;
                    int64_t to = ((b * NH + h) * T + t) * HS + i;
                    q[to] = from[0];
                    k[to] = from[C];
                    v[to] = from[2 * C];
                }
    return KERNEL_DONE;
}

int split_heads_backward_v1(const scalar *dq, const scalar *dk, const scalar *dv, scalar *dqkv, int64_t B, int64_t T,
                            int64_t NH, int64_t HS) {
    int64_t C = NH * HS;
    for (int64_t b = 0; b < B; b++)
        for (int64_t h = 0; h < NH; h++)
            for (int64_t t = 0; t < T; t++)
                for (int64_t i = 0; i < HS; i++) {
                    scalar *to = dqkv + (b * T + t) * 3 * C + h * HS + i;
                    int64_t from = ((b * NH + h) * T + t) * HS + i;
                    to[0] = dq[from];
                    to[C] = dk[from];
                    to[2 * C] = dv[from];
                }
    return KERNEL_DONE;
}

int merge_heads_forward_v1(const scalar *x, scalar *y, int64_t B, int64_t T, int64_t NH, int64_t HS) {
    for (int64_t b = 0; b < B; b++)
        for (int64_t t = 0; t < T; t++)
            for (int64_t h = 0; h < NH; h++)
                for (int64_t i = 0; i < HS; i++)
                    y[((b * T + t) * NH + h) * HS + i] = x[((b * NH + h) * T + t) * HS + i];
    return KERNEL_DONE;
}

int merge_heads_backward_v1(const scalar *dy, scalar *dx, int64_t B, int64_t T, int64_t NH, int64_t HS) {
    for (int64_t b = 0; b < B; b++)
        for (int64_t t = 0; t < T; t++)
            for (int64_t h = 0; h < NH; h++)
                for (int64_t i = 0; i < HS; i++)
                    dx[((b * NH + h) * T + t) * HS + i] = dy[((b * T + t) * NH + h) * HS + i];
    return KERNEL_DONE;
}

/* ---- version 2: whole head rows, threads over (batch, time) ---------------------------------------------------- */

static inline void copy_row(scalar *to, const scalar *from, int64_t n) {
    memcpy(to, from, (size_t)n * sizeof(scalar));
}

/* One token: its NH head rows of HS lie `stride` apart on the other side. */
static inline void scatter_heads(scalar *heads, const scalar *token, int64_t NH, int64_t HS, int64_t stride) {
    for (int64_t h = 0; h < NH; h++) copy_row(heads + h * stride, token + h * HS, HS);
}

static inline void gather_heads(scalar *token, const scalar *heads, int64_t NH, int64_t HS, int64_t stride) {
    for (int64_t h = 0; h < NH; h++) copy_row(token + h * HS, heads + h * stride, HS);
}

int split_heads_forward_v2(const scalar *qkv, scalar *q, scalar *k, scalar *v, int64_t B, int64_t T, int64_t NH,
                           int64_t HS) {
    int64_t C = NH * HS;
#pragma omp parallel for schedule(static) if (B * T * C >= PARALLEL_FROM)
    for (int64_t n = 0; n < B * T; n++) {
        const scalar *token = qkv + n * 3 * C;
        int64_t head = (n / T * NH * T + n % T) * HS;
        scatter_heads(q + head, token, NH, HS, T * HS);
        scatter_heads(k + head, token + C, NH, HS, T * HS);
        scatter_heads(v + head, token + 2 * C, NH, HS, T * HS);
    }
    return KERNEL_DONE;
}

int split_heads_backward_v2(const scalar *dq, const scalar *dk, const scalar *dv, scalar *dqkv, int64_t B, int64_t T,
                            int64_t NH, int64_t HS) {
    int64_t C = NH * HS;
#pragma omp parallel for schedule(static) if (B * T * C >= PARALLEL_FROM)
    for (int64_t n = 0; n < B * T; n++) {
        scalar *token = dqkv + n * 3 * C;
        int64_t head = (n / T * NH * T + n % T) * HS;
        gather_heads(token, dq + head, NH, HS, T * HS);
        gather_heads(token + C, dk + head, NH, HS, T * HS);
        gather_heads(token + 2 * C, dv + head, NH, HS, T * HS);
    }
    return KERNEL_DONE;
}

int merge_heads_forward_v2(const scalar *x, scalar *y, int64_t B, int64_t T, int64_t NH, int64_t HS) {
#pragma omp parallel for schedule(static) if (B * T * NH * HS >= PARALLEL_FROM)
    for (int64_t n = 0; n < B * T; n++)
        gather_heads(y + n * NH * HS, x + (n / T * NH * T + n % T) * HS, NH, HS, T * HS);
    return KERNEL_DONE;
}

int merge_heads_backward_v2(const scalar *dy, scalar *dx, int64_t B, int64_t T, int64_t NH, int64_t HS) {
#pragma omp parallel for schedule(static) if (B * T * NH * HS >= PARALLEL_FROM)
    for (int64_t n = 0; n < B * T; n++)
        scatter_heads(dx + (n / T * NH * T + n % T) * HS, dy + n * NH * HS, NH, HS, T * HS);
    return KERNEL_DONE;
}
