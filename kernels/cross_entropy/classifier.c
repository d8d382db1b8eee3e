/* The fused classifier: N rows of V logits (of Vp columns in memory) become their own gradients, and give the losses.
 *
 * lse = log sum over v < V of exp(x[v]);  loss = lse - x[target];  dx[v] = dloss (exp(x[v] - lse) - [v = target]).
 * Columns from V on are never read and become 0. A row whose target is ignore_index has loss and gradient 0.
 * `losses` is fp32 in every precision.
 */
#include <perfkit/vector.h>

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
