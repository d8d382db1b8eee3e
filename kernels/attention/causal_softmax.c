/* Causal softmax: each row (query) over the columns (keys) up to its own; later columns are 0.
 *
 * a[i][j] = exp(scale s[i][j] - m[i]) / sum over j' <= i of exp(scale s[i][j'] - m[i]),  m[i] = the largest scale s[i][j'].
 * ds[i][j] = scale a[i][j] (da[i][j] - sum over j' <= i of a[i][j'] da[i][j']).
 *
 * N matrices of T x T. Argument order everywhere: input tensors, output tensors, sizes, scale.
 * Columns after the row's own are never read: what lies there, NaN included, does not matter.
 */
#include <perfkit/vector.h>

#define PARALLEL_FROM 16384 /* elements; below it starting threads costs more than it saves */

/* ---- version 1: as the formula says --------------------------------------------------------------------------- */

int causal_softmax_forward_v1(const scalar *scores, scalar *att, int64_t N, int64_t T, double scale) {
    float c = (float)scale;
    for (int64_t row = 0; row < N * T; row++) {
        const scalar *s = scores + row * T;
        scalar *a = att + row * T;
        int64_t own = row % T;
        float largest = -INFINITY, sum = 0.0f;
        for (int64_t j = 0; j <= own; j++) largest = fmaxf(largest, c * get(s + j));
        for (int64_t j = 0; j <= own; j++) sum += expf(c * get(s + j) - largest);
        for (int64_t j = 0; j <= own; j++) put(a + j, expf(c * get(s + j) - largest) / sum);
        for (int64_t j = own + 1; j < T; j++) put(a + j, 0.0f);
    }
    return KERNEL_DONE;
}

int causal_softmax_backward_v1(const scalar *datt, const scalar *att, scalar *dscores, int64_t N, int64_t T,
                               double scale) {
    for (int64_t row = 0; row < N * T; row++) {
        const scalar *da = datt + row * T, *a = att + row * T;
        scalar *ds = dscores + row * T;
        int64_t own = row % T;
        float dot = 0.0f;
        for (int64_t j = 0; j <= own; j++) dot += get(a + j) * get(da + j);
        for (int64_t j = 0; j <= own; j++) put(ds + j, (float)scale * get(a + j) * (get(da + j) - dot));
        for (int64_t j = own + 1; j < T; j++) put(ds + j, 0.0f);
    }
    return KERNEL_DONE;
}

/* ---- version 2: threads over rows, vectors within a row -------------------------------------------------------- */

static inline void fill_zero(scalar *p, int64_t n) {
    memset(p, 0, (size_t)n * sizeof(scalar));
}

#define LOG2_E 1.4426950408889634 /* exp(x) = 2^(x LOG2_E), which the scale takes in */

/* 2^(c s - largest), from memory where the row already keeps it in full precision. */
static inline vec again(vec kept, vec s, float c, float largest) {
#ifdef PERFKIT_BF16
    (void)kept;
    return v_exp2(s * c - largest);
#else
    (void)s, (void)c, (void)largest;
    return kept;
#endif
}

static inline void softmax_row(const scalar *s, scalar *a, int64_t n, float c) {
    int64_t whole = n - n % WIDTH, rest = n - whole;
    vec top = v_all(-INFINITY);
    for (int64_t j = 0; j < whole; j += WIDTH) top = v_max(top, v_load(s + j) * c);
    float largest = v_largest(top);
    for (int64_t j = whole; j < n; j++) largest = fmaxf(largest, get(s + j) * c);

    vec sums = v_all(0.0f);
    for (int64_t j = 0; j < whole; j += WIDTH) {
        vec e = v_exp2(v_load(s + j) * c - largest);
        v_store(a + j, e);
        sums += e;
    }
    ivec inside = v_lanes_below(rest);
    vec last = v_load_part(s + whole, rest, 0.0f);
    vec e = v_exp2(last * c - largest);
    float inverse = 1.0f / v_sum(sums + v_where(inside, e, v_all(0.0f)));

    for (int64_t j = 0; j < whole; j += WIDTH)
        v_store(a + j, again(v_load(a + j), v_load(s + j), c, largest) * inverse);
    v_store_part(a + whole, rest, e * inverse);
}

int causal_softmax_forward_v2(const scalar *scores, scalar *att, int64_t N, int64_t T, double scale) {
    float c = (float)(scale * LOG2_E);
    /* Rows grow with their number: small chunks dealt in turn give every thread the same work. */
#pragma omp parallel for schedule(static, 16) if (N * T * T >= PARALLEL_FROM)
    for (int64_t row = 0; row < N * T; row++) {
        int64_t n = row % T + 1;
        softmax_row(scores + row * T, att + row * T, n, c);
        fill_zero(att + row * T + n, T - n);
    }
    return KERNEL_DONE;
}

static inline void softmax_gradient_row(const scalar *da, const scalar *a, scalar *ds, int64_t n, float c) {
    int64_t whole = n - n % WIDTH, rest = n - whole;
    vec last_a = v_load_part(a + whole, rest, 0.0f), last_da = v_load_part(da + whole, rest, 0.0f);
    vec sums = last_a * last_da;
    for (int64_t j = 0; j < whole; j += WIDTH) sums += v_load(a + j) * v_load(da + j);
    float dot = v_sum(sums);
    for (int64_t j = 0; j < whole; j += WIDTH) v_store(ds + j, v_load(a + j) * c * (v_load(da + j) - dot));
    v_store_part(ds + whole, rest, last_a * c * (last_da - dot));
}

int causal_softmax_backward_v2(const scalar *datt, const scalar *att, scalar *dscores, int64_t N, int64_t T,
                               double scale) {
#pragma omp parallel for schedule(static, 16) if (N * T * T >= PARALLEL_FROM)
    for (int64_t row = 0; row < N * T; row++) {
        int64_t n = row % T + 1;
        softmax_gradient_row(datt + row * T, att + row * T, dscores + row * T, n, (float)scale);
        fill_zero(dscores + row * T + n, T - n);
    }
    return KERNEL_DONE;
}
