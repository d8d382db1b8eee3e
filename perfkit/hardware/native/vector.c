/* What the vector units do at best: `vector SECONDS` prints one JSON line a resource. Threads come from OMP_NUM_THREADS.
 *
 * Each thread runs independent chains of x = x*m + a (integers: x = (x + m) ^ a), two operations a lane and step, enough
 * of them to hide the latency, in registers only.
 */
#include "common.h"

#if defined(__x86_64__) && !defined(__AVX512F__)
#define CHAINS 12 /* of 16 registers: the rest holds m and a */
#else
#define CHAINS 24 /* of 32 */
#endif

/* `steps` steps of every chain from x = 0, 1, 2, …; returns one lane, summed over the chains. */
#define DEFINE_CHAINS(name, type, lane, STEP)                                            \
    static lane name(long steps, lane m, lane a) {                                       \
        type x[CHAINS], vm = (type){0} + m, va = (type){0} + a;                          \
        for (int k = 0; k < CHAINS; k++) x[k] = (type){0} + (lane)k;                     \
        for (long i = 0; i < steps; i++) {                                               \
            _Pragma("GCC unroll 24") for (int k = 0; k < CHAINS; k++) x[k] = STEP(x[k]); \
        }                                                                                \
        for (int k = 1; k < CHAINS; k++) x[0] += x[k];                                   \
        return x[0][0];                                                                  \
    }
#define MULTIPLY_ADD(x) ((x) * vm + va)
#define ADD_XOR(x) (((x) + vm) ^ va)

DEFINE_CHAINS(chains_float, floats, float, MULTIPLY_ADD)
DEFINE_CHAINS(chains_double, doubles, double, MULTIPLY_ADD)
DEFINE_CHAINS(chains_int, ints, int, ADD_XOR)

/* x = 0.5 x + 1 ends at 2 in every chain; the integer chains are replayed one by one. */
static int right(void) {
    unsigned expect = 0;
    for (unsigned k = 0; k < CHAINS; k++) {
        unsigned x = k;
        for (int i = 0; i < 200; i++) x = (x + 7u) ^ 12345u;
        expect += x;
    }
    float f = chains_float(200, 0.5f, 1.0f) / CHAINS;
    double d = chains_double(200, 0.5, 1.0) / CHAINS;
    return f > 1.999f && f < 2.001f && d > 1.999999 && d < 2.000001 && (unsigned)chains_int(200, 7, 12345) == expect;
}

static double run(int kind, long steps) {
    if (kind == 0) return chains_float(steps, 0.5f, 1.0f);
    if (kind == 1) return chains_double(steps, 0.5, 1.0);
    return chains_int(steps, 7, 12345);
}

static void measure(int kind, const char *name, int lanes, double seconds) {
    static sample_list samples;
    const long steps = 20000;
    double begin = now(), start = 0, sink = 0;
    int stop = 0;
    samples.count = 0;
#pragma omp parallel reduction(+ : sink)
    while (!stop) {
#pragma omp barrier
#pragma omp master
        start = now();
#pragma omp barrier
        sink += run(kind, steps);
#pragma omp barrier
#pragma omp master
        {
            double operations = 2.0 * lanes * CHAINS * (double)steps * omp_get_num_threads();
            samples.rates[samples.count++] = operations / (now() - start);
            stop = samples.count == MAX_SAMPLES || now() - begin > seconds;
        }
#pragma omp barrier
    }
    discarded = (float)sink;
    printf("{\"resource\": \"%s\", \"bits\": %d, ", name, WIDTH * 8);
    print_rates(&samples, right(), 0);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    double seconds = atof(argv[1]);
    measure(0, "vector_fp32", LANES, seconds);
    measure(1, "vector_fp64", LANES / 2, seconds);
    measure(2, "vector_int", LANES, seconds);
    return 0;
}
