/* Sums over the rows of a matrix in two stages, by parts of the rows whose number does not depend on the number of
 * threads: the same bits on one thread and on many.
 */
#pragma once
#include <perfkit/vector.h>
#include <stdlib.h>

#define PARTS 64
#define ROWS_A_PART 16

/* N rows of M columns in `count` parts of `rows` rows; part p has sums of its own, 0 at first. */
typedef struct {
    int64_t N, M, padded, rows, count;
    float *sums;
} Parts;

/* 0 where there is no memory. */
static inline int parts_begin(Parts *parts, int64_t N, int64_t M) {
    int64_t padded = (M + WIDTH - 1) / WIDTH * WIDTH, rows = (N + PARTS - 1) / PARTS;
    if (rows < ROWS_A_PART) rows = ROWS_A_PART;
    int64_t count = (N + rows - 1) / rows;
    *parts = (Parts){N, M, padded, rows, count, calloc((size_t)(count * padded) + 1, sizeof(float))};
    return parts->sums != NULL;
}

static inline float *part_sums(const Parts *parts, int64_t p) { return parts->sums + p * parts->padded; }

/* The row behind the last of part p. */
static inline int64_t part_end(const Parts *parts, int64_t p) {
    return (p + 1) * parts->rows < parts->N ? (p + 1) * parts->rows : parts->N;
}

/* sums[m] += value, WIDTH columns. */
static inline void part_add(float *sums, vec value) { v_store_float(sums, v_load_float(sums) + value); }

/* out (+)= the parts' sums, in their order. */
static inline void parts_end(Parts *parts, scalar *out, int64_t add) {
    for (int64_t m = 0; m < parts->M; m += WIDTH) {
        vec sum = add ? v_load_some(out + m, parts->M - m, 0.0f) : v_all(0.0f);
        for (int64_t p = 0; p < parts->count; p++) sum += v_load_float(part_sums(parts, p) + m);
        v_store_some(out + m, parts->M - m, sum);
    }
    free(parts->sums);
}
