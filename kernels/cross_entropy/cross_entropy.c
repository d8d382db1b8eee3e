/* Cross entropy of N rows of V logits (of Vp columns in memory) against integer targets, the mean over the rows that are
 * not ignored.
 *
 * lse[n] = log sum over v of exp(x[n][v]);  loss = sum over counted n of (lse[n] - x[n][target n]) / counted rows.
 * dx[n][v] = dloss / counted rows * (exp(x[n][v] - lse[n]) - [v = target n]) in counted rows, 0 in ignored ones.
 * Without a counted row the loss is 0 / 0 = NaN and the gradient 0, as in PyTorch.
 *
 * Columns from V on are never read, and their gradient is 0.
 *
 * Argument order everywhere: input tensors, output tensors, sizes, ignore_index. Losses and lse are fp32 in every precision.
 */
#include <perfkit/rows.h>
#include <stdlib.h>

enum { BAD_TARGET = 2 };

/* How many rows count, or -1 when a target is no index into a row. */
static int64_t counted_rows(const int64_t *targets, int64_t N, int64_t V, int64_t ignore_index) {
    int64_t counted = 0;
    for (int64_t n = 0; n < N; n++) {
        if (targets[n] == ignore_index) continue;
        if (targets[n] < 0 || targets[n] >= V) return -1;
        counted++;
    }
    return counted;
}

/* ---- version 1: as the formula says --------------------------------------------------------------------------- */

int cross_entropy_forward_v1(const scalar *logits, const int64_t *targets, float *loss, float *lse, int64_t N,
                             int64_t V, int64_t Vp, int64_t ignore_index) {
    int64_t counted = counted_rows(targets, N, V, ignore_index);
    if (counted < 0) return BAD_TARGET;
    double total = 0.0;
    for (int64_t n = 0; n < N; n++) {
        const scalar *x = logits + n * Vp;
        float largest = -INFINITY;
        double sum = 0.0; /* 50 000 terms one after the other lose digits in fp32 */
        for (int64_t v = 0; v < V; v++) largest = fmaxf(largest, get(x + v));
        for (int64_t v = 0; v < V; v++) sum += expf(get(x + v) - largest);
        lse[n] = (float)(largest + log(sum));
        if (targets[n] != ignore_index) total += largest - get(x + targets[n]) + log(sum);
    }
    *loss = (float)(total / (double)counted);
    return KERNEL_DONE;
}

int cross_entropy_backward_v1(const float *dloss, const scalar *logits, const int64_t *targets, const float *lse,
                              scalar *dlogits, int64_t N, int64_t V, int64_t Vp, int64_t ignore_index) {
    int64_t counted = counted_rows(targets, N, V, ignore_index);
    if (counted < 0) return BAD_TARGET;
    for (int64_t n = 0; n < N; n++)
        for (int64_t v = 0; v < Vp; v++) {
            int real = targets[n] != ignore_index && v < V;
            float p = real ? expf(get(logits + n * Vp + v) - lse[n]) : 0.0f;
            put(dlogits + n * Vp + v, real ? (p - (v == targets[n])) * (*dloss / (float)counted) : 0.0f);
        }
    return KERNEL_DONE;
}

/* ---- version 2: threads over rows, one pass over the logits ----------------------------------------------------- */

#define BLOCK 2048 /* elements of a row that stay in the first-level cache between their maximum and their sum */

static inline float block_sum(const scalar *x, int64_t n, float largest) {
    vec sums[2] = {v_all(0.0f), v_all(0.0f)};
    int64_t v = 0;
    for (; v + 2 * WIDTH <= n; v += 2 * WIDTH) {
        sums[0] += v_exp_of(v_load(x + v), largest);
        sums[1] += v_exp_of(v_load(x + v + WIDTH), largest);
    }
    for (; v + WIDTH <= n; v += WIDTH) sums[0] += v_exp_of(v_load(x + v), largest);
    vec last = v_exp_of(v_load_part(x + v, n - v, 0.0f), largest);
    sums[1] += v_where(v_lanes_below(n - v), last, v_all(0.0f));
    return v_sum(sums[0] + sums[1]);
}

/* Sets the row's largest element and the sum of exp(x - largest). Whenever a block has a larger element than all before,
 * the sum so far is scaled to the new maximum. */
static void row_exp_sum(const scalar *x, int64_t V, float *top_of_row, double *total) {
    float largest = -INFINITY;
    double sum = 0.0;
    for (int64_t v = 0; v < V; v += BLOCK) {
        int64_t n = V - v < BLOCK ? V - v : BLOCK;
        float top = row_largest(x + v, n);
        if (top > largest) {
            sum *= exp((double)largest - (double)top);
            largest = top;
        }
        /* While every element so far is -inf: -inf - -inf would make NaN of what is exp(-inf) = 0. */
        sum += block_sum(x + v, n, largest == -INFINITY ? 0.0f : largest);
    }
    *top_of_row = largest;
    *total = sum;
}

int cross_entropy_forward_v2(const scalar *logits, const int64_t *targets, float *loss, float *lse, int64_t N,
                             int64_t V, int64_t Vp, int64_t ignore_index) {
    int64_t counted = counted_rows(targets, N, V, ignore_index);
    if (counted < 0) return BAD_TARGET;
    double *losses = malloc((size_t)N * sizeof(double) + 1);
    if (!losses) return KERNEL_OUT_OF_MEMORY;
#pragma omp parallel for schedule(static) if (N * V >= PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        const scalar *x = logits + n * Vp;
        float largest;
        double sum;
        row_exp_sum(x, V, &largest, &sum);
        lse[n] = (float)(largest + log(sum));
        losses[n] = targets[n] == ignore_index ? 0.0 : largest - get(x + targets[n]) + log(sum);
    }
    double total = 0.0; /* over rows in order: the same bits on any number of threads */
    for (int64_t n = 0; n < N; n++) total += losses[n];
    free(losses);
    *loss = (float)(total / (double)counted);
    return KERNEL_DONE;
}

static inline void gradient_row(const scalar *x, scalar *dx, int64_t V, float lse, float factor) {
    int64_t whole = V - V % WIDTH;
    for (int64_t v = 0; v < whole; v += WIDTH) v_store(dx + v, v_exp_of(v_load(x + v), lse) * factor);
    v_store_part(dx + whole, V - whole, v_exp_of(v_load_part(x + whole, V - whole, 0.0f), lse) * factor);
}

int cross_entropy_backward_v2(const float *dloss, const scalar *logits, const int64_t *targets, const float *lse,
                              scalar *dlogits, int64_t N, int64_t V, int64_t Vp, int64_t ignore_index) {
    int64_t counted = counted_rows(targets, N, V, ignore_index);
    if (counted < 0) return BAD_TARGET;
    float factor = *dloss / (float)counted;
#pragma omp parallel for schedule(static) if (N * V >= PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        const scalar *x = logits + n * Vp;
        scalar *dx = dlogits + n * Vp;
        if (targets[n] == ignore_index) {
            memset(dx, 0, (size_t)Vp * sizeof(scalar));
            continue;
        }
        gradient_row(x, dx, V, lse[n], factor);
        put(dx + targets[n], (expf(get(x + targets[n]) - lse[n]) - 1.0f) * factor);
        memset(dx + V, 0, (size_t)(Vp - V) * sizeof(scalar));
    }
    return KERNEL_DONE;
}
