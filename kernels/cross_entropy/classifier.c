/* The fused classifier: N rows of V logits (of Vp columns in memory) become their own gradients, and give the losses.
 *
 * lse = log sum over v < V of exp(x[v]);  loss = lse - x[target];  dx[v] = dloss (exp(x[v] - lse) - [v = target]).
 * Columns from V on are never read and become 0. A row whose target is ignore_index has loss and gradient 0.
 * `losses` is fp32 in every precision.
 */
#include <perfkit/rows.h>
#include <stdlib.h>

enum { BAD_TARGET = 2 };

/* Nothing may have changed when a target is found to be none. */
static int targets_fit(const int64_t *targets, int64_t N, int64_t V, int64_t ignore_index) {
    for (int64_t n = 0; n < N; n++)
        if (targets[n] != ignore_index && (targets[n] < 0 || targets[n] >= V)) return 0;
    return 1;
}

/* ---- version 1: as the formula says --------------------------------------------------------------------------- */

int classifier_v1(scalar *logits, const int64_t *targets, float *losses, int64_t N, int64_t V, int64_t Vp,
                  int64_t ignore_index, double dloss) {
    if (!targets_fit(targets, N, V, ignore_index)) return BAD_TARGET;
    for (int64_t n = 0; n < N; n++) {
        scalar *x = logits + n * Vp;
        losses[n] = 0.0f;
        if (targets[n] == ignore_index) {
            memset(x, 0, (size_t)Vp * sizeof(scalar));
            continue;
        }
        float top = -INFINITY, own = get(x + targets[n]);
        double sum = 0.0; /* 50 000 terms one after the other lose digits in fp32 */
        for (int64_t v = 0; v < V; v++) top = fmaxf(top, get(x + v));
        for (int64_t v = 0; v < V; v++) sum += expf(get(x + v) - top);
        losses[n] = (float)(top - own + log(sum));
        for (int64_t v = 0; v < V; v++) {
            float p = (float)(expf(get(x + v) - top) / sum);
            put(x + v, (p - (v == targets[n])) * (float)dloss);
        }
        memset(x + V, 0, (size_t)(Vp - V) * sizeof(scalar));
    }
    return KERNEL_DONE;
}

/* ---- version 2: threads over rows; logits read from memory once, one exponential each ---------------------------- */

/* A row is taken in blocks that stay in the first-level cache between their maximum and their exponentials. Each block's
 * exponentials, relative to its own maximum, are kept in fp32: in the row's place, or in scratch where the row is bf16.
 * When the row's maximum and sum are known, one factor a block turns them into gradients. */
#define BLOCK 1024
#define MOST_BLOCKS 128

static float keep_exponentials(const scalar *x, float *kept, int64_t n, float top) {
    float shift = top == -INFINITY ? 0.0f : top; /* -inf - -inf would make NaN of what is exp(-inf) = 0 */
    vec sums[2] = {v_all(0.0f), v_all(0.0f)};
    int64_t v = 0;
    for (; v + 2 * WIDTH <= n; v += 2 * WIDTH)
        for (int k = 0; k < 2; k++) {
            vec e = v_exp_of(v_load(x + v + k * WIDTH), shift);
            v_store_float(kept + v + k * WIDTH, e);
            sums[k] += e;
        }
    float sum = v_sum(sums[0] + sums[1]);
    for (; v < n; v++) {
        kept[v] = expf(get(x + v) - shift);
        sum += kept[v];
    }
    return sum;
}

static void scale_exponentials(const float *kept, scalar *dx, int64_t n, float factor) {
    int64_t v = 0;
    for (; v + WIDTH <= n; v += WIDTH) v_store(dx + v, v_load_float(kept + v) * factor);
    for (; v < n; v++) put(dx + v, kept[v] * factor);
}

/* One row: its loss, and its gradient in its place. */
static float classify_row(scalar *x, float *kept, int64_t target, int64_t V, float dloss) {
    int64_t block = (V + MOST_BLOCKS - 1) / MOST_BLOCKS;
    block = block < BLOCK ? BLOCK : (block + WIDTH - 1) / WIDTH * WIDTH;
    float tops[MOST_BLOCKS], sums[MOST_BLOCKS], own = get(x + target), top = -INFINITY;
    int64_t blocks = 0;
    for (int64_t v = 0; v < V; v += block, blocks++) {
        int64_t n = V - v < block ? V - v : block;
        tops[blocks] = row_largest(x + v, n);
        sums[blocks] = keep_exponentials(x + v, kept + v, n, tops[blocks]);
        top = fmaxf(top, tops[blocks]);
    }
    double sum = 0.0;
    for (int64_t b = 0; b < blocks; b++) sum += sums[b] * (tops[b] == -INFINITY ? 1.0 : exp((double)tops[b] - top));
    for (int64_t b = 0; b < blocks; b++) {
        int64_t v = b * block, n = V - v < block ? V - v : block;
        double factor = tops[b] == -INFINITY ? 1.0 : exp((double)tops[b] - top);
        scale_exponentials(kept + v, x + v, n, (float)(factor / sum * dloss));
    }
    double loss = top - own + log(sum);
    put(x + target, (float)(exp(-loss) - 1.0) * dloss);
    return (float)loss;
}

int classifier_v2(scalar *logits, const int64_t *targets, float *losses, int64_t N, int64_t V, int64_t Vp,
                  int64_t ignore_index, double dloss) {
    if (!targets_fit(targets, N, V, ignore_index)) return BAD_TARGET;
    int failed = 0;
#pragma omp parallel if (N * V >= PARALLEL_FROM)
    {
#ifdef PERFKIT_BF16
        float *scratch = malloc((size_t)V * sizeof(float));
        if (!scratch) {
#pragma omp atomic write
            failed = 1;
        }
#endif
#pragma omp barrier
#pragma omp for schedule(static)
        for (int64_t n = 0; n < N; n++) {
            if (failed) continue;
            scalar *x = logits + n * Vp;
            if (targets[n] == ignore_index) {
                memset(x, 0, (size_t)Vp * sizeof(scalar));
                losses[n] = 0.0f;
                continue;
            }
#ifdef PERFKIT_BF16
            losses[n] = classify_row(x, scratch, targets[n], V, (float)dloss);
#else
            losses[n] = classify_row(x, x, targets[n], V, (float)dloss);
#endif
            memset(x + V, 0, (size_t)(Vp - V) * sizeof(scalar));
        }
#ifdef PERFKIT_BF16
        free(scratch);
#endif
    }
    return failed ? KERNEL_OUT_OF_MEMORY : KERNEL_DONE;
}
