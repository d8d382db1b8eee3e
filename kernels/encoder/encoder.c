/* The encoder: x[b][t] = wte[idx[b][t]] + wpe[t], and its gradients.
 *
 * Legend: B batch, T time, C channels, V rows of wte, P rows of wpe.
 * Argument order everywhere: input tensors, output tensors, sizes, which outputs to add to.
 */
#include <perfkit/vector.h>
#include <stdlib.h>

enum { BAD_TOKEN = 2 };
enum { ADD_DWTE = 1, ADD_DWPE = 2 };

static int tokens_fit(const int64_t *idx, int64_t n, int64_t V) {
    for (int64_t i = 0; i < n; i++)
        if (idx[i] < 0 || idx[i] >= V) return 0;
    return 1;
}

/* ---- version 1: as the formula says --------------------------------------------------------------------------- */

int encoder_forward_v1(const int64_t *idx, const scalar *wte, const scalar *wpe, scalar *x, int64_t B, int64_t T,
                       int64_t C, int64_t V) {
    if (!tokens_fit(idx, B * T, V)) return BAD_TOKEN;
    for (int64_t n = 0; n < B * T; n++)
        for (int64_t c = 0; c < C; c++) put(x + n * C + c, get(wte + idx[n] * C + c) + get(wpe + n % T * C + c));
    return KERNEL_DONE;
}

/* The sums are made in fp32 and rounded once: a frequent token has thousands of terms. */
int encoder_backward_v1(const scalar *dx, const int64_t *idx, scalar *dwte, scalar *dwpe, int64_t B, int64_t T,
                        int64_t C, int64_t V, int64_t P, int64_t add) {
    if (!tokens_fit(idx, B * T, V)) return BAD_TOKEN;
    float *sums = malloc((size_t)(V > P ? V : P) * sizeof(float) + 1);
    if (!sums) return KERNEL_OUT_OF_MEMORY;
    for (int64_t c = 0; c < C; c++) {
        for (int64_t v = 0; v < V; v++) sums[v] = add & ADD_DWTE ? get(dwte + v * C + c) : 0.0f;
        for (int64_t n = 0; n < B * T; n++) sums[idx[n]] += get(dx + n * C + c);
        for (int64_t v = 0; v < V; v++) put(dwte + v * C + c, sums[v]);

        for (int64_t p = 0; p < P; p++) sums[p] = add & ADD_DWPE ? get(dwpe + p * C + c) : 0.0f;
        for (int64_t n = 0; n < B * T; n++) sums[n % T] += get(dx + n * C + c);
        for (int64_t p = 0; p < P; p++) put(dwpe + p * C + c, sums[p]);
    }
    free(sums);
    return KERNEL_DONE;
}
