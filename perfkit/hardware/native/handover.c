/* How fast threads read what others wrote: `handover SECONDS` prints one JSON line. Threads come from OMP_NUM_THREADS.
 *
 * All threads write an array in short stripes, dealt out in turn, as a matrix product divides its columns. Then each
 * reads a share of it in one piece, as a loop over elements does, and writes as much elsewhere: of T threads, (T-1)/T of
 * what one reads lies in other cores' caches. Between the two the first thread works alone for some µs. Counted are the
 * bytes that are read. The array is small enough for the caches that each core has for itself.
 */
#include "common.h"

enum { SHARE = 128 << 10, STRIPE = 512 / WIDTH }; /* bytes a thread, vectors a stripe */

static const double ALONE = 5e-6;

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    size_t threads = (size_t)omp_get_max_threads(), each = SHARE / WIDTH, n = each * threads;
    floats *x = aligned_alloc(4096, n * WIDTH), *y = aligned_alloc(4096, n * WIDTH);
    if (!x || !y) return 3;
    memset(x, 0, n * WIDTH);
    memset(y, 0, n * WIDTH);
    double seconds = atof(argv[1]), begin = now(), start = 0;
    static sample_list samples;
    int stop = 0;
#pragma omp parallel
    for (float round = 1; !stop; round++) {
        size_t t = (size_t)omp_get_thread_num();
        for (size_t i = t * STRIPE; i < n; i += threads * STRIPE)
            for (size_t k = i; k < i + STRIPE; k++) x[k] = (floats){0} + round;
#pragma omp barrier
#pragma omp master
        {
            start = now();
            while (now() - start < ALONE) {}
            start = now();
        }
#pragma omp barrier
        for (size_t i = t * each; i < (t + 1) * each; i++) y[i] = x[i] * 0.5f;
#pragma omp barrier
#pragma omp master
        {
            double taken = now() - start;
            samples.rates[samples.count++] = (double)(n * WIDTH) / taken;
            stop = samples.count == MAX_SAMPLES || now() - begin > seconds;
        }
#pragma omp barrier
    }
    int right = 1;
    for (size_t i = 0; i < n; i += STRIPE) right = right && y[i][0] == (float)samples.count * 0.5f;
    printf("{");
    print_rates(&samples, right, 0);
    return 0;
}
