/* Heads: split a QKV projection into q, k, v a head, and merge heads back into channels. Copies; backward the projection's
 * bias gradient on the way.
 *
 * Legend: B batch, T time, C channels, NH heads, HS = C / NH head size.
 * Argument order everywhere: input tensors, output tensors, sizes.
 */
#include <perfkit/parts.h>

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

int split_heads_bias_backward_v1(const scalar *dq, const scalar *dk, const scalar *dv, scalar *dqkv, scalar *db, int64_t B,
                                 int64_t T, int64_t NH, int64_t HS) {
    int64_t M = 3 * NH * HS;
    split_heads_backward_v1(dq, dk, dv, dqkv, B, T, NH, HS);
    for (int64_t m = 0; m < M; m++) {
        double sum = 0.0;
        for (int64_t n = 0; n < B * T; n++) sum += get(dqkv + n * M + m);
        put(db + m, (float)sum);
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

/* ---- version 2: whole head rows, threads over tokens ------------------------------------------------------------- */

/* A head row is short (256 bytes in GPT-2): calling memcpy for it would cost more than the copy. */
static inline void copy_row(scalar *to, const scalar *from, int64_t n) {
    const int64_t chunk = 64 / sizeof(scalar);
    int64_t i = 0;
    for (; i + chunk <= n; i += chunk) memcpy(to + i, from + i, 64);
    for (; i < n; i++) to[i] = from[i];
}

/* One token's head rows, which go T * HS elements apart: what is read lies in one piece, as processors like it. */
static inline void heads_from_token(scalar *heads, const scalar *token, int64_t T, int64_t NH, int64_t HS) {
    for (int64_t h = 0; h < NH; h++) copy_row(heads + h * T * HS, token + h * HS, HS);
}

/* The way back: one token's head rows lie T * HS elements apart. */
static inline void token_from_heads(scalar *token, const scalar *heads, int64_t T, int64_t NH, int64_t HS) {
    for (int64_t h = 0; h < NH; h++) copy_row(token + h * HS, heads + h * T * HS, HS);
}

int split_heads_forward_v2(const scalar *qkv, scalar *q, scalar *k, scalar *v, int64_t B, int64_t T, int64_t NH,
                           int64_t HS) {
    int64_t C = NH * HS;
#pragma omp parallel for schedule(static) collapse(2) if (B * T * C >= PARALLEL_FROM)
    for (int64_t b = 0; b < B; b++)
        for (int64_t t = 0; t < T; t++) {
            const scalar *token = qkv + (b * T + t) * 3 * C;
            int64_t head = (b * NH * T + t) * HS;
            heads_from_token(q + head, token, T, NH, HS);
            heads_from_token(k + head, token + C, T, NH, HS);
            heads_from_token(v + head, token + 2 * C, T, NH, HS);
        }
    return KERNEL_DONE;
}

int split_heads_backward_v2(const scalar *dq, const scalar *dk, const scalar *dv, scalar *dqkv, int64_t B, int64_t T,
                            int64_t NH, int64_t HS) {
    int64_t C = NH * HS;
#pragma omp parallel for schedule(static) collapse(2) if (B * T * C >= PARALLEL_FROM)
    for (int64_t b = 0; b < B; b++)
        for (int64_t t = 0; t < T; t++) {
            scalar *token = dqkv + (b * T + t) * 3 * C;
            int64_t head = (b * NH * T + t) * HS;
            token_from_heads(token, dq + head, T, NH, HS);
            token_from_heads(token + C, dk + head, T, NH, HS);
            token_from_heads(token + 2 * C, dv + head, T, NH, HS);
        }
    return KERNEL_DONE;
}

/* A token's row is added up as soon as it is written, from the nearest cache. */
int split_heads_bias_backward_v2(const scalar *dq, const scalar *dk, const scalar *dv, scalar *dqkv, scalar *db, int64_t B,
                                 int64_t T, int64_t NH, int64_t HS) {
    int64_t C = NH * HS, M = 3 * C;
    Parts parts;
    if (!parts_begin(&parts, B * T, M)) return KERNEL_OUT_OF_MEMORY;
#pragma omp parallel for schedule(static) if (B * T * C >= PARALLEL_FROM)
    for (int64_t p = 0; p < parts.count; p++) {
        float *sums = part_sums(&parts, p);
        for (int64_t n = p * parts.rows; n < part_end(&parts, p); n++) {
            scalar *token = dqkv + n * M;
            int64_t head = (n / T * NH * T + n % T) * HS;
            token_from_heads(token, dq + head, T, NH, HS);
            token_from_heads(token + C, dk + head, T, NH, HS);
            token_from_heads(token + 2 * C, dv + head, T, NH, HS);
            for (int64_t m = 0; m < M; m += WIDTH) part_add(sums + m, v_load_some(token + m, M - m, 0.0f));
        }
    }
    parts_end(&parts, db, 0);
    return KERNEL_DONE;
}

int merge_heads_forward_v2(const scalar *x, scalar *y, int64_t B, int64_t T, int64_t NH, int64_t HS) {
#pragma omp parallel for schedule(static) collapse(2) if (B * T * NH * HS >= PARALLEL_FROM)
    for (int64_t b = 0; b < B; b++)
        for (int64_t t = 0; t < T; t++)
            token_from_heads(y + (b * T + t) * NH * HS, x + (b * NH * T + t) * HS, T, NH, HS);
    return KERNEL_DONE;
}

int merge_heads_backward_v2(const scalar *dy, scalar *dx, int64_t B, int64_t T, int64_t NH, int64_t HS) {
#pragma omp parallel for schedule(static) collapse(2) if (B * T * NH * HS >= PARALLEL_FROM)
    for (int64_t b = 0; b < B; b++)
        for (int64_t t = 0; t < T; t++)
            heads_from_token(dx + (b * NH * T + t) * HS, dy + (b * T + t) * NH * HS, T, NH, HS);
    return KERNEL_DONE;
}
