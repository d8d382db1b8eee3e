/* A few rows by a weight that is far larger than all else: it is read once, by rows, at memory's speed. */
#ifndef PERFKIT_FEW_ROWS_H
#define PERFKIT_FEW_ROWS_H

#include <perfkit/vector.h>
#ifdef _OPENMP
#include <omp.h>
#else
#define omp_get_max_threads() 1
#endif

/* A thread takes the weight in pieces of so many bytes as they lie in memory: who is held up takes fewer. The larger ones
 * where each thread has several. */
#define SMALLEST_PIECE ((int64_t)128 << 10)
#define LARGEST_PIECE ((int64_t)512 << 10)
#define PIECES_A_THREAD 4
/* Rows of the weight that are read side by side: a processor's own prefetching follows each only to the page's end. */
#define OUTS 8
/* Rows of x that a weight serves once it is loaded: as many as the sums find registers. */
#if WIDTH == 16
#define TOGETHER 2
#else
#define TOGETHER 1
#endif

/* y[r M + o] = x[r] . w[o] for `rows` rows of x, K apart, and `outs` rows of the weight. */
LANEWISE void products(const float *x, const scalar *w, float *y, int64_t K, int64_t M, const int rows, const int outs) {
    vec sums[TOGETHER][OUTS];
    for (int r = 0; r < rows; r++)
        for (int o = 0; o < outs; o++) sums[r][o] = v_all(0.0f);
    int64_t k = 0;
    for (; k + WIDTH <= K; k += WIDTH) {
        vec weights[OUTS];
        for (int o = 0; o < outs; o++) {
            __builtin_prefetch(w + (o + outs) * K + k, 0, 2);
            weights[o] = v_load(w + o * K + k);
        }
        for (int r = 0; r < rows; r++) {
            vec value = v_load_float(x + r * K + k);
            for (int o = 0; o < outs; o++) sums[r][o] += value * weights[o];
        }
    }
    for (int r = 0; r < rows; r++)
        for (int o = 0; o < outs; o++) {
            float sum = v_sum(sums[r][o]);
            for (int64_t rest = k; rest < K; rest++) sum += x[r * K + rest] * get(w + o * K + rest);
            y[r * M + o] = sum;
        }
}

LANEWISE void some_rows(const float *x, const scalar *w, float *y, int64_t K, int64_t M, int64_t rows, const int outs) {
    if (rows == 1 || TOGETHER == 1) products(x, w, y, K, M, 1, outs);
    else products(x, w, y, K, M, TOGETHER, outs);
}

/* y (N, M) = x (N, K) . weight (M, K)^T, by threads over pieces of the weight. */
static inline void by_weight(const float *x, const scalar *weight, float *y, int64_t N, int64_t K, int64_t M) {
    int64_t bytes = M * K * (int64_t)sizeof(scalar) / (PIECES_A_THREAD * omp_get_max_threads());
    bytes = bytes < SMALLEST_PIECE ? SMALLEST_PIECE : bytes > LARGEST_PIECE ? LARGEST_PIECE : bytes;
    int64_t piece = bytes / (int64_t)sizeof(scalar) / (K ? K : 1) / OUTS * OUTS;
    if (piece < OUTS) piece = OUTS;
#pragma omp parallel for schedule(dynamic) if (M * K >= PARALLEL_FROM)
    for (int64_t from = 0; from < M; from += piece) {
        int64_t end = from + piece < M ? from + piece : M;
        for (int64_t m = from; m < end;) {
            const int whole = m + OUTS <= end;
            for (int64_t n = 0; n < N; n += TOGETHER) {
                if (whole) some_rows(x + n * K, weight + m * K, y + n * M + m, K, M, N - n, OUTS);
                else some_rows(x + n * K, weight + m * K, y + n * M + m, K, M, N - n, 1);
            }
            m += whole ? OUTS : 1;
        }
    }
}

#endif
