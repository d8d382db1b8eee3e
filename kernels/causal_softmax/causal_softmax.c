/* Causal softmax: each row (query) over the columns (keys) up to its own; later columns are 0.
 *
 * a[i][j] = exp(scale s[i][j] - m[i]) / sum over j' <= i of exp(scale s[i][j'] - m[i]),  m[i] = the largest scale s[i][j'].
 * ds[i][j] = scale a[i][j] (da[i][j] - sum over j' <= i of a[i][j'] da[i][j']).
 *
 * N matrices of T rows and S columns; the rows are the last T of S tokens, so that row i looks at its first S - T + i + 1
 * columns. Argument order everywhere: input tensors, output tensors, sizes, scale.
 * Columns after the row's own are never read: what lies there, NaN included, does not matter.
 */
#include <perfkit/rows.h>

/* ---- version 1: as the formula says --------------------------------------------------------------------------- */

int causal_softmax_forward_v1(const scalar *scores, scalar *att, int64_t N, int64_t T, int64_t S, double scale) {
    float c = (float)scale;
    for (int64_t row = 0; row < N * T; row++) {
        const scalar *s = scores + row * S;
        scalar *a = att + row * S;
        int64_t own = S - T + row % T;
        float largest = -INFINITY, sum = 0.0f;
        for (int64_t j = 0; j <= own; j++) largest = fmaxf(largest, c * get(s + j));
        for (int64_t j = 0; j <= own; j++) sum += expf(c * get(s + j) - largest);
        for (int64_t j = 0; j <= own; j++) put(a + j, expf(c * get(s + j) - largest) / sum);
        for (int64_t j = own + 1; j < S; j++) put(a + j, 0.0f);
    }
    return KERNEL_DONE;
}

int causal_softmax_backward_v1(const scalar *datt, const scalar *att, scalar *dscores, int64_t N, int64_t T,
                               int64_t S, double scale) {
    for (int64_t row = 0; row < N * T; row++) {
        const scalar *da = datt + row * S, *a = att + row * S;
        scalar *ds = dscores + row * S;
        int64_t own = S - T + row % T;
        float dot = 0.0f;
        for (int64_t j = 0; j <= own; j++) dot += get(a + j) * get(da + j);
        for (int64_t j = 0; j <= own; j++) put(ds + j, (float)scale * get(a + j) * (get(da + j) - dot));
        for (int64_t j = own + 1; j < S; j++) put(ds + j, 0.0f);
    }
    return KERNEL_DONE;
}

/* ---- version 2: threads over rows, vectors within a row -------------------------------------------------------- */

static inline void fill_zero(scalar *p, int64_t n) {
    memset(p, 0, (size_t)n * sizeof(scalar));
}

int causal_softmax_forward_v2(const scalar *scores, scalar *att, int64_t N, int64_t T, int64_t S, double scale) {
    float c = (float)(scale * LOG2_E);
    /* Rows grow with their number: small chunks dealt in turn give every thread the same work. */
#pragma omp parallel for schedule(static, 16) if (N * T * S >= PARALLEL_FROM)
    for (int64_t row = 0; row < N * T; row++) {
        int64_t n = S - T + row % T + 1;
        row_softmax(scores + row * S, att + row * S, n, c);
        fill_zero(att + row * S + n, S - n);
    }
    return KERNEL_DONE;
}

int causal_softmax_backward_v2(const scalar *datt, const scalar *att, scalar *dscores, int64_t N, int64_t T,
                               int64_t S, double scale) {
#pragma omp parallel for schedule(static, 16) if (N * T * S >= PARALLEL_FROM)
    for (int64_t row = 0; row < N * T; row++) {
        int64_t n = S - T + row % T + 1;
        row_softmax_gradient(datt + row * S, att + row * S, dscores + row * S, n, (float)scale);
        fill_zero(dscores + row * S + n, S - n);
    }
    return KERNEL_DONE;
}
