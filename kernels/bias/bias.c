/* A bias of M columns on N rows: its gradient (the sum over rows), and y = max(x + bias, 0) with its gradient.
 *
 * Argument order everywhere: input tensors, output tensors, sizes, whether to add to the output.
 */
#include <perfkit/parts.h>

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

/* ---- version 2: threads over parts of the rows, vectors along them ---------------------------------------------- */

/* sums[m] = the rows' sum; four rows at a time, so that the sums are loaded and stored a quarter as often. */
static void part_sum(const scalar *dy, float *sums, int64_t rows, int64_t M) {
    int64_t n = 0;
    for (; n + 4 <= rows; n += 4)
        for (int64_t m = 0; m < M; m += WIDTH) {
            const scalar *d = dy + n * M + m;
            int64_t lanes = M - m;
            vec two = v_load_some(d, lanes, 0.0f) + v_load_some(d + M, lanes, 0.0f);
            vec others = v_load_some(d + 2 * M, lanes, 0.0f) + v_load_some(d + 3 * M, lanes, 0.0f);
            part_add(sums + m, two + others);
        }
    for (; n < rows; n++)
        for (int64_t m = 0; m < M; m += WIDTH) part_add(sums + m, v_load_some(dy + n * M + m, M - m, 0.0f));
}

int bias_gradient_v2(const scalar *dy, scalar *db, int64_t N, int64_t M, int64_t add) {
    Parts parts;
    if (!parts_begin(&parts, N, M)) return KERNEL_OUT_OF_MEMORY;
#pragma omp parallel for schedule(static) if (N * M >= PARALLEL_FROM)
    for (int64_t p = 0; p < parts.count; p++) {
        int64_t first = p * parts.rows;
        part_sum(dy + first * M, part_sums(&parts, p), part_end(&parts, p) - first, M);
    }
    parts_end(&parts, db, add);
    return KERNEL_DONE;
}

int bias_relu_forward_v2(const scalar *x, const scalar *bias, scalar *y, int64_t N, int64_t M) {
#pragma omp parallel for schedule(static) if (N * M >= PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++)
        for (int64_t m = 0; m < M; m += WIDTH) {
            vec u = v_load_some(x + n * M + m, M - m, 0.0f) + v_load_some(bias + m, M - m, 0.0f);
            v_store_some(y + n * M + m, M - m, v_at_least(u, 0.0f));
        }
    return KERNEL_DONE;
}

static inline vec relu_gradient(const scalar *dy, const scalar *y, int64_t lanes) {
    ivec through = v_load_some(y, lanes, 0.0f) > 0.0f;
    return v_where(through, v_load_some(dy, lanes, 0.0f), v_all(0.0f));
}

int bias_relu_backward_v2(const scalar *dy, const scalar *y, scalar *dx, int64_t n) {
#ifdef PERFKIT_BF16
#define RELU_GRADIENT(i, lanes) v_store_some(dx + i, lanes, relu_gradient(dy + i, y + i, lanes))
    FOR_EACH_VECTOR(n, RELU_GRADIENT)
#else
#define RELU_GRADIENT_STREAMED(i, lanes) v_stream_some(dx + i, lanes, relu_gradient(dy + i, y + i, lanes))
    if (v_streams(dx, 12 * n)) {
        FOR_EACH_VECTOR_STREAMED(n, RELU_GRADIENT_STREAMED)
    } else {
#define RELU_GRADIENT_NARROW(i) v8_store(dx + i, (vec8)((ivec8)v8_load(dy + i) & (v8_load(y + i) > 0.0f)))
#define RELU_GRADIENT_ONE(i) dx[i] = y[i] > 0.0f ? dy[i] : 0.0f
        FOR_EACH_NARROW(n, RELU_GRADIENT_NARROW, RELU_GRADIENT_ONE)
    }
#endif
    return KERNEL_DONE;
}
