/* Vectors as wide as the processor's, the clock, and samples: shared by the programs that measure ceilings. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define WIDTH 64
#elif defined(__AVX__)
#define WIDTH 32
#else
#define WIDTH 16
#endif

typedef float floats __attribute__((vector_size(WIDTH), may_alias));
typedef double doubles __attribute__((vector_size(WIDTH), may_alias));
typedef int ints __attribute__((vector_size(WIDTH), may_alias));

enum { LANES = WIDTH / 4, MAX_SAMPLES = 4096 };

static volatile float discarded; /* keeps results that nobody reads from being optimised away */

typedef struct {
    double rates[MAX_SAMPLES];
    int count;
} sample_list;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int descending(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return (a < b) - (a > b);
}

/* The end of a JSON line. `best` 0: the best of the samples. */
static void print_rates(sample_list *s, int ok, double best) {
    qsort(s->rates, (size_t)s->count, sizeof(double), descending);
    printf("\"ok\": %s, \"best\": %.6g, \"median\": %.6g, \"count\": %d}\n", ok ? "true" : "false",
           best > 0 ? best : s->rates[0], s->rates[s->count / 2], s->count);
    fflush(stdout);
}
