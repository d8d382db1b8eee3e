/* Vectors of floats for C kernels: one source for AVX-512, AVX2 with FMA, and plain C (any other processor).
 *
 * The compiler's target chooses at compile time; perfkit compiles on the machine that runs the kernel, for its processor.
 * `scalar` is the type in memory: float, or bf16 with -DPERFKIT_BF16. Arithmetic is always fp32 (`vec`, WIDTH lanes).
 * Arithmetic on `vec` uses plain operators (+, *, <, ?:), a GNU C extension that gcc and clang share.
 *
 * Compiled without -ffast-math: NaN and infinities keep their meaning, and loading a kernel leaves denormals alone.
 */
#ifndef PERFKIT_VECTOR_H
#define PERFKIT_VECTOR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#include <immintrin.h>
#define PERFKIT_AVX512 1
#define WIDTH 16
#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define PERFKIT_AVX2 1
#define WIDTH 8
#else
#define WIDTH 4
#endif

/* Functions of a vector's lanes, which must become part of the loop that calls them: their constants are then loaded once. */
#define LANEWISE static inline __attribute__((always_inline))

/* Elements of work below which starting threads costs more than it saves. */
#define PARALLEL_FROM 16384

/* Elementwise work, for `AT(i, lanes)` that does the vector of `lanes` elements from i on: threads take chunks, a chunk's
 * whole vectors go four at a time, and only the last one may be a part. Within a chunk `lanes` is a constant. */
#define CHUNK 8192
#define FOR_EACH_VECTOR(n, AT)                                                                                        \
    {                                                                                                                 \
        const int64_t elements = (n);                                                                                 \
        _Pragma("omp parallel for schedule(static) if (elements >= PARALLEL_FROM)")                                   \
        for (int64_t chunk = 0; chunk < elements; chunk += CHUNK) {                                                   \
            int64_t end = elements - chunk < CHUNK ? elements : chunk + CHUNK, at = chunk;                            \
            _Pragma("GCC unroll 4")                                                                                   \
            for (; at + WIDTH <= end; at += WIDTH) AT(at, WIDTH);                                                     \
            if (at < end) AT(at, end - at);                                                                           \
        }                                                                                                             \
    }

/* The same for work that only moves memory, with `AT` writing by v_stream: a store past the caches spares the processor from
 * reading what it is about to overwrite. It pays where all operands together are more than a last-level cache keeps, and
 * needs aligned results: where `v_streams` says so. */
#define STREAM_FROM ((int64_t)32 << 20)
#define FOR_EACH_VECTOR_STREAMED(n, AT)                                                                               \
    {                                                                                                                 \
        const int64_t elements = (n);                                                                                 \
        _Pragma("omp parallel for schedule(static)")                                                                  \
        for (int64_t chunk = 0; chunk < elements; chunk += CHUNK) {                                                   \
            int64_t end = elements - chunk < CHUNK ? elements : chunk + CHUNK, at = chunk;                            \
            _Pragma("GCC unroll 4")                                                                                   \
            for (; at + WIDTH <= end; at += WIDTH) AT(at, WIDTH);                                                     \
            if (at < end) AT(at, end - at);                                                                           \
            v_stream_done();                                                                                          \
        }                                                                                                             \
    }

/* What a kernel returns. Codes from 2 on are the family's own; its Python file gives each a sentence. */
enum { KERNEL_DONE = 0, KERNEL_OUT_OF_MEMORY = 1 };

typedef float vec __attribute__((vector_size(4 * WIDTH)));
typedef int32_t ivec __attribute__((vector_size(4 * WIDTH)));
typedef uint32_t uvec __attribute__((vector_size(4 * WIDTH)));
typedef uint16_t hvec __attribute__((vector_size(2 * WIDTH)));

/* 32 bytes whatever WIDTH is, for fp32 where nothing but memory counts: some processors with AVX-512 move half vectors
 * faster than whole ones, and none is known to move them slower. */
#define NARROW 8
typedef float vec8 __attribute__((vector_size(4 * NARROW)));
typedef int32_t ivec8 __attribute__((vector_size(4 * NARROW)));

static inline vec8 v8_load(const float *p) {
    vec8 value;
    memcpy(&value, p, sizeof value);
    return value;
}

static inline void v8_store(float *p, vec8 value) {
    memcpy(p, &value, sizeof value);
}

/* Elementwise fp32: `AT(i)` does the eight elements from i on, `ONE(i)` one of those left over. */
#define FOR_EACH_NARROW(n, AT, ONE)                                                                                   \
    {                                                                                                                 \
        const int64_t elements = (n);                                                                                 \
        _Pragma("omp parallel for schedule(static) if (elements >= PARALLEL_FROM)")                                   \
        for (int64_t chunk = 0; chunk < elements; chunk += CHUNK) {                                                   \
            int64_t end = elements - chunk < CHUNK ? elements : chunk + CHUNK, at = chunk;                            \
            _Pragma("GCC unroll 4")                                                                                   \
            for (; at + NARROW <= end; at += NARROW) AT(at);                                                          \
            for (; at < end; at++) ONE(at);                                                                           \
        }                                                                                                             \
    }

/* ---- one element ---------------------------------------------------------------------------------------------- */

#ifdef PERFKIT_BF16
typedef uint16_t scalar;

static inline float get(const scalar *p) {
    uint32_t bits = (uint32_t)*p << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static inline void put(scalar *p, float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if (value != value) *p = (uint16_t)(bits >> 16 | 0x40); /* rounding must not carry a NaN into infinity */
    else *p = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16); /* to nearest, ties to even */
}
#else
typedef float scalar;
static inline float get(const scalar *p) { return *p; }
static inline void put(scalar *p, float value) { *p = value; }
#endif

/* ---- loads and stores ----------------------------------------------------------------------------------------- */

static inline vec v_all(float value) {
    return value - (vec){0};
}

static inline vec v_load(const scalar *p) {
#ifdef PERFKIT_BF16
    hvec half;
    memcpy(&half, p, sizeof half);
    return (vec)(__builtin_convertvector(half, uvec) << 16);
#else
    vec value;
    memcpy(&value, p, sizeof value);
    return value;
#endif
}

static inline void v_store(scalar *p, vec value) {
#if defined(PERFKIT_BF16) && defined(__AVX512BF16__)
    __m256bh half = _mm512_cvtneps_pbh((__m512)value); /* the same rounding, but denormal numbers become 0 */
    memcpy(p, &half, sizeof half);
#elif defined(PERFKIT_BF16)
    uvec bits = (uvec)value;
    uvec rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    uvec nan = (uvec)(value != value);
    hvec half = __builtin_convertvector((nan & (bits >> 16 | 0x40)) | (~nan & rounded), hvec);
    memcpy(p, &half, sizeof half);
#else
    memcpy(p, &value, sizeof value);
#endif
}

/* Whether `bytes` moved by a call that writes to p are worth streaming, and p can take it. Only fp32 is streamed. */
static inline int v_streams(const scalar *p, int64_t bytes) {
#if defined(PERFKIT_BF16) || !(defined(PERFKIT_AVX512) || defined(PERFKIT_AVX2))
    (void)p, (void)bytes;
    return 0;
#else
    return bytes >= STREAM_FROM && (uintptr_t)p % sizeof(vec) == 0;
#endif
}

static inline void v_stream(scalar *p, vec value) {
#if defined(PERFKIT_AVX512) && !defined(PERFKIT_BF16)
    _mm512_stream_ps(p, (__m512)value);
#elif defined(PERFKIT_AVX2) && !defined(PERFKIT_BF16)
    _mm256_stream_ps(p, (__m256)value);
#else
    v_store(p, value);
#endif
}

/* What was streamed is there for other threads from here on. */
static inline void v_stream_done(void) {
#if defined(PERFKIT_AVX512) || defined(PERFKIT_AVX2)
    _mm_sfence();
#endif
}

/* The first n < WIDTH elements; the other lanes hold `fill`. Nothing else in memory is touched. */
static inline vec v_load_part(const scalar *p, int64_t n, float fill) {
#if defined(PERFKIT_AVX512) && defined(PERFKIT_BF16)
    __mmask16 mask = (__mmask16)((1u << n) - 1);
    __m512i bits = _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, p)), 16);
    return (vec)_mm512_mask_mov_ps((__m512)v_all(fill), mask, _mm512_castsi512_ps(bits));
#elif defined(PERFKIT_AVX512)
    return (vec)_mm512_mask_loadu_ps((__m512)v_all(fill), (__mmask16)((1u << n) - 1), p);
#else
    float lanes[WIDTH];
    vec value = v_all(fill);
    if (n == 0) return value;
    memcpy(lanes, &value, sizeof value);
    for (int64_t i = 0; i < n; i++) lanes[i] = get(p + i);
    memcpy(&value, lanes, sizeof value);
    return value;
#endif
}

static inline void v_store_part(scalar *p, int64_t n, vec value) {
#if defined(PERFKIT_AVX512) && !defined(PERFKIT_BF16)
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)value);
#else
    scalar lanes[WIDTH];
    if (n == 0) return;
    v_store(lanes, value);
    memcpy(p, lanes, (size_t)n * sizeof(scalar));
#endif
}

/* The n <= WIDTH elements from p on: a whole vector in nearly every call, without the cost of a part. */
static inline vec v_load_some(const scalar *p, int64_t n, float fill) {
    return n >= WIDTH ? v_load(p) : v_load_part(p, n, fill);
}

static inline void v_store_some(scalar *p, int64_t n, vec value) {
    if (n >= WIDTH) v_store(p, value);
    else v_store_part(p, n, value);
}

static inline void v_stream_some(scalar *p, int64_t n, vec value) {
    if (n >= WIDTH) v_stream(p, value);
    else v_store_part(p, n, value);
}

/* fp32 in memory whatever `scalar` is: partial sums and saved statistics. */
static inline vec v_load_float(const float *p) {
    vec value;
    memcpy(&value, p, sizeof value);
    return value;
}

static inline void v_store_float(float *p, vec value) {
    memcpy(p, &value, sizeof value);
}

/* ---- lanes ---------------------------------------------------------------------------------------------------- */

static inline vec v_where(ivec condition, vec yes, vec no) {
    return (vec)((condition & (ivec)yes) | (~condition & (ivec)no));
}

/* Lane by lane; a NaN in `value` survives: the instructions return their second operand when either is one. */
static inline vec v_at_least(vec value, float low) {
    vec bound = v_all(low);
#if defined(PERFKIT_AVX512)
    return (vec)_mm512_max_ps((__m512)bound, (__m512)value);
#elif defined(PERFKIT_AVX2)
    return (vec)_mm256_max_ps((__m256)bound, (__m256)value);
#else
    return v_where(value < bound, bound, value);
#endif
}

static inline vec v_at_most(vec value, float high) {
    vec bound = v_all(high);
#if defined(PERFKIT_AVX512)
    return (vec)_mm512_min_ps((__m512)bound, (__m512)value);
#elif defined(PERFKIT_AVX2)
    return (vec)_mm256_min_ps((__m256)bound, (__m256)value);
#else
    return v_where(value > bound, bound, value);
#endif
}

/* The larger of two; NaN lanes are not promised to survive. */
static inline vec v_max(vec a, vec b) {
#if defined(PERFKIT_AVX512)
    return (vec)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(PERFKIT_AVX2)
    return (vec)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return v_where(a < b, b, a);
#endif
}

/* All bits set in the first n lanes. */
static inline ivec v_lanes_below(int64_t n) {
    int32_t lanes[WIDTH];
    ivec number;
    for (int i = 0; i < WIDTH; i++) lanes[i] = i;
    memcpy(&number, lanes, sizeof number);
    return number < (int32_t)n;
}

#if defined(PERFKIT_AVX2)
static inline __m128 v_halves_added(__m256 v) {
    return _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
}

static inline __m128 v_halves_largest(__m256 v) {
    return _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
}
#endif

/* The sum over lanes, always in the same order. */
static inline float v_sum(vec value) {
#if defined(PERFKIT_AVX512)
    return _mm512_reduce_add_ps((__m512)value);
#elif defined(PERFKIT_AVX2)
    __m128 four = v_halves_added((__m256)value);
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
#else
    return (value[0] + value[2]) + (value[1] + value[3]);
#endif
}

static inline float v_largest(vec value) {
#if defined(PERFKIT_AVX512)
    return _mm512_reduce_max_ps((__m512)value);
#elif defined(PERFKIT_AVX2)
    __m128 four = v_halves_largest((__m256)value);
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
#else
    return fmaxf(fmaxf(value[0], value[2]), fmaxf(value[1], value[3]));
#endif
}

/* ---- functions ------------------------------------------------------------------------------------------------ */

/* 2^t = 2^n 2^f with n the integer nearest to t and |f| <= 1/2: exponent arithmetic, and a minimax polynomial of degree 5
 * (own fit, exact at f = 0). Relative error below 2e-7. For |t| <= 126. */
static inline vec v_exp2_within(vec t) {
#if defined(PERFKIT_AVX512)
    vec n = (vec)_mm512_roundscale_ps((__m512)t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
    /* Adding 1.5 * 2^23 leaves the integer nearest to the sum in the low bits of the mantissa. */
    const vec magic = v_all(12582912.0f);
    vec shifted = t + magic;
    vec n = shifted - magic;
#endif
    vec f = t - n;
    vec p = f * 1.326464582e-3f + 9.671576321e-3f;
    p = p * f + 5.550734699e-2f;
    p = p * f + 2.402224094e-1f;
    p = p * f + 6.931470037e-1f;
    p = p * f + 1.0f;
#if defined(PERFKIT_AVX512)
    return (vec)_mm512_scalef_ps((__m512)p, (__m512)n); /* right for every finite t, denormal results included */
#else
    return p * (vec)(((ivec)shifted - (ivec)magic + 127) << 23);
#endif
}

/* 2^t for t <= 126: 0 for -inf, NaN for NaN. Without AVX-512, results below the smallest normal number become 0. */
static inline vec v_exp2(vec t) {
#if defined(PERFKIT_AVX512)
    return v_exp2_within(v_at_least(t, -160.0f)); /* n - n is NaN for -inf */
#else
    return v_where(t < -126.0f, v_all(0.0f), v_exp2_within(v_at_least(t, -126.0f)));
#endif
}

/* The square root, correctly rounded. */
static inline vec v_sqrt(vec x) {
#if defined(PERFKIT_AVX512)
    return (vec)_mm512_sqrt_ps((__m512)x);
#elif defined(PERFKIT_AVX2)
    return (vec)_mm256_sqrt_ps((__m256)x);
#else
    float lanes[WIDTH];
    memcpy(lanes, &x, sizeof x);
    for (int i = 0; i < WIDTH; i++) lanes[i] = sqrtf(lanes[i]);
    memcpy(&x, lanes, sizeof x);
    return x;
#endif
}

/* 1 / x for normal x whose reciprocal is normal too: an estimate and one Newton step, far cheaper than a division. */
static inline vec v_reciprocal(vec x) {
#if defined(PERFKIT_AVX512)
    vec guess = (vec)_mm512_rcp14_ps((__m512)x);
    return guess * (2.0f - x * guess);
#else
    return 1.0f / x;
#endif
}

#endif
