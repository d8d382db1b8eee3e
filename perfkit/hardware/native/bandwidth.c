/* What the memory does at best, by working set. One JSON line a pattern and size; threads come from OMP_NUM_THREADS.
 *
 *   bandwidth SECONDS ORDER STREAM BYTES...   ORDER: zigzag or ascending
 *
 * Each thread works on its own part of float arrays. Counted are the bytes a program asks for: triad a = b + s*c 12 a
 * float, copy 8, negate in place 8, sum 4, fill 4; never the read that a plain store to a line outside the cache adds (write-allocate). So
 * from STREAM bytes on, stores that bypass the cache are tried too.
 * A pass goes downwards, the next one upwards ("zigzag"): a kernel that follows another finds the end of the data still
 * in cache, and a roof must allow for that. "ascending" leaves it out, for main memory alone.
 * Long passes are timed in segments, and the best time of each segment is added up: on a shared machine hardly any whole
 * pass runs uninterrupted.
 */
#include "common.h"
#ifdef __linux__
#include <sys/mman.h>
#endif

enum { BLOCK = 4096, SKEW = 5 * 1024 + 64, SLACK = 4 * SKEW, SEGMENT = 16 << 20, MAX_SEGMENTS = 1024 };

/* A store that bypasses the cache, where there is one. */
#if defined(__AVX512F__)
#define STREAM(p, v) _mm512_stream_ps((float *)(p), (__m512)(v))
#elif defined(__AVX__)
#define STREAM(p, v) _mm256_stream_ps((float *)(p), (__m256)(v))
#elif defined(__SSE2__)
#define STREAM(p, v) _mm_stream_ps((float *)(p), (__m128)(v))
#elif defined(__clang__)
#define STREAM(p, v) __builtin_nontemporal_store((v), (p))
#endif
#define PLAIN(p, v) (*(p) = (v))

#define ARGUMENTS floats *restrict a, const floats *restrict b, const floats *restrict c, size_t n
#define EACH _Pragma("GCC unroll 4") for (size_t i = 0; i < n; i++)
#define DEFINE_STORES(suffix, STORE)                          \
    static float triad_##suffix(ARGUMENTS) {                  \
        EACH STORE(a + i, b[i] + 3.0f * c[i]);                \
        return 0;                                             \
    }                                                         \
    static float copy_##suffix(ARGUMENTS) {                   \
        (void)c;                                              \
        EACH STORE(a + i, b[i]);                              \
        return 0;                                             \
    }                                                         \
    static float fill_##suffix(ARGUMENTS) {                   \
        (void)b, (void)c;                                     \
        const floats value = (floats){0} + 1.0f;              \
        EACH STORE(a + i, value);                             \
        return 0;                                             \
    }

DEFINE_STORES(plain, PLAIN)
#ifdef STREAM
DEFINE_STORES(stream, STREAM)
#endif

static float sum_plain(ARGUMENTS) {
    (void)a, (void)c;
    floats s[8] = {{0}};
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++) s[k] += b[i + k];
    for (; i < n; i++) s[0] += b[i];
    for (int k = 1; k < 8; k++) s[0] += s[k];
    float total = 0;
    for (int k = 0; k < LANES; k++) total += s[0][k];
    return total;
}

/* In place: every float is read and written, so twice the working set moves, and no store needs a line that was not read. */
static float negate_plain(ARGUMENTS) {
    (void)b, (void)c;
    EACH a[i] = -a[i];
    return 0;
}

typedef struct {
    const char *name, *stores;
    int arrays;   /* a working set is this many arrays, and each pass touches all of them once */
    int moves;    /* bytes that count, a byte of the working set */
    float expect; /* what a holds afterwards, given b = 2 and c = 1 */
    float (*run)(ARGUMENTS);
} pattern;

static const pattern PATTERNS[] = {
    {"triad", "plain", 3, 1, 5, triad_plain}, {"copy", "plain", 2, 1, 2, copy_plain},
    {"negate", "plain", 1, 2, -2, negate_plain}, {"sum", "plain", 1, 1, 0, sum_plain},
    {"fill", "plain", 1, 1, 1, fill_plain},
#ifdef STREAM
    {"triad", "streaming", 3, 1, 5, triad_stream}, {"copy", "streaming", 2, 1, 2, copy_stream},
    {"fill", "streaming", 1, 1, 1, fill_stream},
#endif
};

typedef struct {
    floats *a, *b, *c;
    size_t n;
} arrays;

static char **regions; /* one a thread, touched by itself first, so that its pages lie in its own memory node */

static int prepare(size_t largest) {
    int ok = 1;
    regions = calloc((size_t)omp_get_max_threads(), sizeof(char *));
#pragma omp parallel reduction(&& : ok)
    {
        size_t each = largest / (size_t)omp_get_num_threads() + SLACK;
        void *memory = NULL;
        ok = !posix_memalign(&memory, 2u << 20, each);
#ifdef MADV_HUGEPAGE
        if (ok) madvise(memory, each, MADV_HUGEPAGE); /* without it page walks hide what the memory can do */
#endif
        if (ok) memset(memory, 0, each);
        regions[omp_get_thread_num()] = memory;
    }
    return ok;
}

/* This thread's arrays, b = 2 and c = 1; all the same one where one is enough. They start in different cache sets. */
static arrays arrange(const pattern *p, size_t bytes) {
    char *region = regions[omp_get_thread_num()];
    arrays x = {.n = bytes / (size_t)omp_get_num_threads() / (size_t)p->arrays / WIDTH};
    x.b = (floats *)region;
    x.a = p->arrays > 1 ? (floats *)(region + x.n * WIDTH + SKEW) : x.b;
    x.c = p->arrays > 2 ? (floats *)(region + 2 * (x.n * WIDTH + SKEW)) : x.b;
    for (size_t i = 0; i < x.n; i++) x.a[i] = (floats){0};
    for (size_t i = 0; i < x.n; i++) x.c[i] = (floats){0} + 1.0f;
    for (size_t i = 0; i < x.n; i++) x.b[i] = (floats){0} + 2.0f;
    return x;
}

/* One pass over vectors [from, to), block by block; what the blocks sum to. */
static float pass(const pattern *p, arrays x, size_t from, size_t to, int downwards) {
    float total = 0;
    size_t blocks = (to - from + BLOCK - 1) / BLOCK;
    for (size_t i = 0; i < blocks; i++) {
        size_t start = from + (downwards ? blocks - 1 - i : i) * BLOCK;
        total += p->run(x.a + start, x.b + start, x.c + start, start + BLOCK < to ? BLOCK : to - start);
    }
    __asm__ volatile("" ::: "memory");
    return total;
}

static int right(const pattern *p, arrays x) {
    float sum = pass(p, x, 0, x.n, 0);
    if (p->run == sum_plain) return sum > 1.99f * LANES * x.n && sum < 2.01f * LANES * x.n;
    for (size_t i = 0; i < x.n; i += x.n / 97 + 1)
        if (x.a[i][LANES - 1] != p->expect) return 0;
    return x.n > 0 && x.a[x.n - 1][LANES - 1] == p->expect;
}

/* Short passes: as many as make a sample long against clock and barrier, and short against an interruption. */
static int measure_short(const pattern *p, size_t bytes, double seconds, int zigzag, sample_list *out) {
    double begin = now(), start = 0;
    long passes = 1;
    int stop = 0, ok = 1;
#pragma omp parallel reduction(&& : ok)
    {
        arrays x = arrange(p, bytes);
        ok = right(p, x);
        while (!stop) {
#pragma omp barrier
#pragma omp master
            start = now();
#pragma omp barrier
            float ignored = 0;
            for (long i = 0; i < passes; i++) ignored += pass(p, x, 0, x.n, zigzag && !(i & 1));
            discarded = ignored;
#pragma omp barrier
#pragma omp master
            {
                double taken = now() - start, spent = now() - begin;
                if (taken < 2e-4 && spent < seconds)
                    passes *= 2;
                else
                    out->rates[out->count++] = (double)bytes * (double)p->moves * (double)passes / taken;
                stop = out->count == MAX_SAMPLES || (spent > seconds && out->count >= 3);
            }
#pragma omp barrier
        }
    }
    return ok;
}

/* Long passes: the best time of each segment and direction; *best is the rate of a pass made of these. */
static int measure_long(const pattern *p, size_t bytes, double seconds, int zigzag, sample_list *out, double *best) {
    static double times[2][MAX_SEGMENTS];
    double begin = now(), start = 0, whole = 0;
    size_t segments = bytes / SEGMENT < MAX_SEGMENTS ? bytes / SEGMENT : MAX_SEGMENTS;
    int stop = 0, ok = 1;
    for (size_t k = 0; k < 2 * MAX_SEGMENTS; k++) times[k / MAX_SEGMENTS][k % MAX_SEGMENTS] = 1e30;
#pragma omp parallel reduction(&& : ok)
    {
        arrays x = arrange(p, bytes);
        ok = right(p, x);
        for (int down = zigzag; !stop; down = zigzag && !down) {
            for (size_t i = 0; i < segments; i++) {
                size_t k = down ? segments - 1 - i : i;
#pragma omp barrier
#pragma omp master
                start = now();
#pragma omp barrier
                discarded = pass(p, x, x.n * k / segments, x.n * (k + 1) / segments, down);
#pragma omp barrier
#pragma omp master
                {
                    double taken = now() - start;
                    if (taken < times[down][k]) times[down][k] = taken;
                    whole += taken;
                }
            }
#pragma omp master
            {
                out->rates[out->count++] = (double)bytes * (double)p->moves / whole;
                whole = 0;
                stop = out->count == MAX_SAMPLES || (now() - begin > seconds && out->count >= 4);
            }
#pragma omp barrier
        }
    }
    double total = 0;
    for (size_t k = 0; k < segments; k++) total += zigzag ? (times[0][k] + times[1][k]) / 2 : times[0][k];
    *best = (double)bytes * (double)p->moves / total;
    return ok;
}

static void measure_size(size_t bytes, double seconds, int zigzag, int streaming) {
    static sample_list samples;
    for (size_t k = 0; k < sizeof(PATTERNS) / sizeof(*PATTERNS); k++) {
        const pattern *p = &PATTERNS[k];
        if (*p->stores == 's' && !streaming) continue;
        if (*p->name == 'f' && bytes >= 4 * SEGMENT) continue; /* beyond the caches filling is never the fastest */
        size_t unit = (size_t)omp_get_max_threads() * (size_t)p->arrays * WIDTH, whole = bytes / unit * unit;
        double best = 0;
        samples.count = 0;
        int ok = bytes < 2 * SEGMENT ? measure_short(p, whole, seconds, zigzag, &samples)
                                     : measure_long(p, whole, seconds, zigzag, &samples, &best);
        printf("{\"pattern\": \"%s\", \"stores\": \"%s\", \"bytes\": %zu, ", p->name, p->stores, bytes);
        print_rates(&samples, ok, best);
    }
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    size_t stream_from = (size_t)strtoull(argv[3], NULL, 10), largest = 0;
    for (int i = 4; i < argc; i++) {
        size_t bytes = (size_t)strtoull(argv[i], NULL, 10);
        if (bytes > largest) largest = bytes;
    }
    if (!prepare(largest)) {
        fprintf(stderr, "no memory for %zu bytes\n", largest);
        return 3;
    }
    for (int i = 4; i < argc; i++) {
        size_t bytes = (size_t)strtoull(argv[i], NULL, 10);
        measure_size(bytes, atof(argv[1]), !strcmp(argv[2], "zigzag"), bytes >= stream_from);
    }
    return 0;
}
