/* The encoder: x[b][t] = wte[idx[b][t]] + wpe[t], or the token's row alone, and its gradients.
 *
 * Legend: B batch, T time, N = B T tokens, C channels, V rows of wte, P rows of wpe.
 * Argument order everywhere: input tensors, output tensors, sizes, which outputs to add to.
 */
#include <perfkit/vector.h>
#include <stdlib.h>

enum { BAD_TOKEN = 2 };
enum { ADD_DWTE = 1, ADD_DWPE = 2 }; /* the gradient of the tokens' rows is the first output, with positions and without */

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

int embedding_forward_v1(const int64_t *idx, const scalar *weight, scalar *x, int64_t N, int64_t C, int64_t V) {
    if (!tokens_fit(idx, N, V)) return BAD_TOKEN;
    for (int64_t n = 0; n < N; n++)
        for (int64_t c = 0; c < C; c++) put(x + n * C + c, get(weight + idx[n] * C + c));
    return KERNEL_DONE;
}

/* Column c of the words' sums. They are made in fp32 and rounded once: a frequent token has thousands of terms. */
static void column_of_words(const scalar *dx, const int64_t *idx, scalar *dwte, float *sums, int64_t c, int64_t N,
                            int64_t C, int64_t V, int64_t add) {
    for (int64_t v = 0; v < V; v++) sums[v] = add & ADD_DWTE ? get(dwte + v * C + c) : 0.0f;
    for (int64_t n = 0; n < N; n++) sums[idx[n]] += get(dx + n * C + c);
    for (int64_t v = 0; v < V; v++) put(dwte + v * C + c, sums[v]);
}

int embedding_backward_v1(const scalar *dx, const int64_t *idx, scalar *dweight, int64_t N, int64_t C, int64_t V,
                          int64_t add) {
    if (!tokens_fit(idx, N, V)) return BAD_TOKEN;
    float *sums = malloc((size_t)V * sizeof(float) + 1);
    if (!sums) return KERNEL_OUT_OF_MEMORY;
    for (int64_t c = 0; c < C; c++) column_of_words(dx, idx, dweight, sums, c, N, C, V, add);
    free(sums);
    return KERNEL_DONE;
}

int encoder_backward_v1(const scalar *dx, const int64_t *idx, scalar *dwte, scalar *dwpe, int64_t B, int64_t T,
                        int64_t C, int64_t V, int64_t P, int64_t add) {
    if (!tokens_fit(idx, B * T, V)) return BAD_TOKEN;
    float *sums = malloc((size_t)(V > P ? V : P) * sizeof(float) + 1);
    if (!sums) return KERNEL_OUT_OF_MEMORY;
    for (int64_t c = 0; c < C; c++) {
        column_of_words(dx, idx, dwte, sums, c, B * T, C, V, add);
        for (int64_t p = 0; p < P; p++) sums[p] = add & ADD_DWPE ? get(dwpe + p * C + c) : 0.0f;
        for (int64_t n = 0; n < B * T; n++) sums[n % T] += get(dx + n * C + c);
        for (int64_t p = 0; p < P; p++) put(dwpe + p * C + c, sums[p]);
    }
    free(sums);
    return KERNEL_DONE;
}

/* ---- version 2: threads over tokens forward, over words backward ------------------------------------------------- */

int encoder_forward_v2(const int64_t *idx, const scalar *wte, const scalar *wpe, scalar *x, int64_t B, int64_t T,
                       int64_t C, int64_t V) {
    if (!tokens_fit(idx, B * T, V)) return BAD_TOKEN;
#pragma omp parallel for schedule(static) if (B * T * C >= PARALLEL_FROM)
    for (int64_t n = 0; n < B * T; n++) {
        const scalar *word = wte + idx[n] * C, *position = wpe + n % T * C;
        for (int64_t c = 0; c < C; c += WIDTH)
            v_store_some(x + n * C + c, C - c,
                         v_load_some(word + c, C - c, 0.0f) + v_load_some(position + c, C - c, 0.0f));
    }
    return KERNEL_DONE;
}

int embedding_forward_v2(const int64_t *idx, const scalar *weight, scalar *x, int64_t N, int64_t C, int64_t V) {
    if (!tokens_fit(idx, N, V)) return BAD_TOKEN;
#pragma omp parallel for schedule(static) if (N * C >= PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) memcpy(x + n * C, weight + idx[n] * C, (size_t)C * sizeof(scalar));
    return KERNEL_DONE;
}

/* The tokens' numbers in the order of their words, and of themselves within a word: a radix sort, 8 bits a pass. `order`
 * and `other` have room for n each; returns the one that holds the result. */
static int64_t *by_word(const int64_t *idx, int64_t *order, int64_t *other, int64_t n, int64_t V) {
    for (int64_t i = 0; i < n; i++) order[i] = i;
    for (int shift = 0; V - 1 >> shift; shift += 8) {
        int64_t start[257] = {0};
        for (int64_t i = 0; i < n; i++) start[(idx[i] >> shift & 255) + 1]++;
        for (int d = 0; d < 256; d++) start[d + 1] += start[d];
        for (int64_t i = 0; i < n; i++) other[start[idx[order[i]] >> shift & 255]++] = order[i];
        int64_t *swap = order;
        order = other, other = swap;
    }
    return order;
}

/* out (+)= the sum of `count` rows of dx: their numbers are in `rows`, or `step` apart from `first` on. In fp32, rounded
 * once; the order of the terms does not depend on the number of threads. */
static inline void sum_rows(const scalar *dx, const int64_t *rows, int64_t first, int64_t step, int64_t count,
                            scalar *out, int64_t C, int add) {
    for (int64_t c = 0; c < C; c += WIDTH) {
        vec sum = add ? v_load_some(out + c, C - c, 0.0f) : v_all(0.0f);
        for (int64_t i = 0; i < count; i++)
            sum += v_load_some(dx + (rows ? rows[i] : first + i * step) * C + c, C - c, 0.0f);
        v_store_some(out + c, C - c, sum);
    }
}

static void zero_rows(scalar *p, int64_t rows, int64_t C) {
#pragma omp parallel for schedule(static) if (rows * C >= PARALLEL_FROM)
    for (int64_t r = 0; r < rows; r++) memset(p + r * C, 0, (size_t)C * sizeof(scalar));
}

/* The rows of all words, shared among the threads of a parallel region: whoever meets the first token of a word sums all
 * of them. */
static void sum_words(const scalar *dx, const int64_t *idx, const int64_t *order, scalar *dwte, int64_t N, int64_t C,
                      int64_t add) {
#pragma omp for schedule(dynamic, 16) nowait
    for (int64_t i = 0; i < N; i++) {
        int64_t word = idx[order[i]], end = i + 1;
        if (i && idx[order[i - 1]] == word) continue;
        while (end < N && idx[order[end]] == word) end++;
        sum_rows(dx, order + i, 0, 0, end - i, dwte + word * C, C, add & ADD_DWTE);
    }
}

int embedding_backward_v2(const scalar *dx, const int64_t *idx, scalar *dweight, int64_t N, int64_t C, int64_t V,
                          int64_t add) {
    if (!tokens_fit(idx, N, V)) return BAD_TOKEN;
    int64_t *scratch = malloc((size_t)(2 * N) * sizeof(int64_t) + 1);
    if (!scratch) return KERNEL_OUT_OF_MEMORY;
    int64_t *order = by_word(idx, scratch, scratch + N, N, V);
    if (!(add & ADD_DWTE)) zero_rows(dweight, V, C);
#pragma omp parallel if (N * C >= PARALLEL_FROM)
    sum_words(dx, idx, order, dweight, N, C, add);
    free(scratch);
    return KERNEL_DONE;
}

int encoder_backward_v2(const scalar *dx, const int64_t *idx, scalar *dwte, scalar *dwpe, int64_t B, int64_t T,
                        int64_t C, int64_t V, int64_t P, int64_t add) {
    int64_t N = B * T;
    if (!tokens_fit(idx, N, V)) return BAD_TOKEN;
    int64_t *scratch = malloc((size_t)(2 * N) * sizeof(int64_t) + 1);
    if (!scratch) return KERNEL_OUT_OF_MEMORY;
    int64_t *order = by_word(idx, scratch, scratch + N, N, V);
    if (!(add & ADD_DWTE)) zero_rows(dwte, V, C);
    if (!(add & ADD_DWPE)) zero_rows(dwpe + T * C, P - T, C);
#pragma omp parallel if (N * C >= PARALLEL_FROM)
    {
        sum_words(dx, idx, order, dwte, N, C, add);
#pragma omp for schedule(static)
        for (int64_t t = 0; t < T; t++) sum_rows(dx, NULL, t, T, B, dwpe + t * C, C, add & ADD_DWPE);
    }
    free(scratch);
    return KERNEL_DONE;
}
