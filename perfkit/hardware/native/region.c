/* What it takes to begin work on all threads and to wait for them: `region SECONDS` prints one JSON line.
 *
 * An empty parallel region, again and again; between two of them the first thread works alone for some µs, as a program
 * does that calls one kernel after the other. Threads come from OMP_NUM_THREADS.
 */
#include "common.h"

static const double ALONE = 5e-6;

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    double seconds = atof(argv[1]), begin = now();
    static sample_list samples;
    int arrived = 0, right = 1;
    while (samples.count < MAX_SAMPLES && now() - begin < seconds) {
        double start = now();
        while (now() - start < ALONE) {}
        arrived = 0;
        start = now();
#pragma omp parallel
        {
#pragma omp atomic
            arrived++;
        }
        double end = now();
        right = right && arrived == omp_get_max_threads();
        if (end > start) samples.rates[samples.count++] = 1 / (end - start);
    }
    printf("{");
    print_rates(&samples, right && samples.count > 0, 0);
    return 0;
}
