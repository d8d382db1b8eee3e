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

#if defined(__AVX512F__) && defined(__AVX512BW__)
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

/* What a kernel returns. Codes from 2 on are the family's own; its Python file gives each a sentence. */
enum { KERNEL_DONE = 0, KERNEL_OUT_OF_MEMORY = 1 };

typedef float vec __attribute__((vector_size(4 * WIDTH)));
typedef int32_t ivec __attribute__((vector_size(4 * WIDTH)));
typedef uint32_t uvec __attribute__((vector_size(4 * WIDTH)));
typedef uint16_t hvec __attribute__((vector_size(2 * WIDTH)));

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
#ifdef PERFKIT_BF16
    uvec bits = (uvec)value;
    uvec rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    uvec nan = (uvec)(value != value);
    hvec half = __builtin_convertvector((nan & (bits >> 16 | 0x40)) | (~nan & rounded), hvec);
    memcpy(p, &half, sizeof half);
#else
    memcpy(p, &value, sizeof value);
#endif
}

/* The first n < WIDTH elements; the other lanes hold `fill`. */
static inline vec v_load_part(const scalar *p, int64_t n, float fill) {
#if defined(PERFKIT_AVX512) && !defined(PERFKIT_BF16)
    return (vec)_mm512_mask_loadu_ps((__m512)v_all(fill), (__mmask16)((1u << n) - 1), p);
#else
    float lanes[WIDTH];
    vec value;
    for (int i = 0; i < WIDTH; i++) lanes[i] = i < n ? get(p + i) : fill;
    memcpy(&value, lanes, sizeof value);
    return value;
#endif
}

static inline void v_store_part(scalar *p, int64_t n, vec value) {
#if defined(PERFKIT_AVX512) && !defined(PERFKIT_BF16)
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)value);
#else
    scalar lanes[WIDTH];
    v_store(lanes, value);
    memcpy(p, lanes, (size_t)n * sizeof(scalar));
#endif
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

/* Lane by lane, a NaN in `value` survives. */
static inline vec v_at_least(vec value, float low) {
    vec bound = v_all(low);
#if defined(PERFKIT_AVX512)
    return (vec)_mm512_max_ps((__m512)bound, (__m512)value);
#elif defined(PERFKIT_AVX2)
    return (vec)_mm256_max_ps((__m256)bound, (__m256)value);
#else
    ivec below = value < bound;
    return (vec)((below & (ivec)bound) | (~below & (ivec)value));
#endif
}

static inline vec v_at_most(vec value, float high) {
    return -v_at_least(-value, -high);
}

/* The larger of two; NaN lanes are not promised to survive. */
static inline vec v_max(vec a, vec b) {
#if defined(PERFKIT_AVX512)
    return (vec)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(PERFKIT_AVX2)
    return (vec)_mm256_max_ps((__m256)a, (__m256)b);
#else
    ivec less = a < b;
    return (vec)((less & (ivec)b) | (~less & (ivec)a));
#endif
}

static inline vec v_where(ivec condition, vec yes, vec no) {
    return (vec)((condition & (ivec)yes) | (~condition & (ivec)no));
}

/* All bits set in the first n lanes. */
static inline ivec v_lanes_below(int64_t n) {
    int32_t lanes[WIDTH];
    ivec number;
    for (int i = 0; i < WIDTH; i++) lanes[i] = i;
    memcpy(&number, lanes, sizeof number);
    return number < (int32_t)n;
}

/* The sum over lanes, always in the same order. */
static inline float v_sum(vec value) {
    float lanes[WIDTH];
    memcpy(lanes, &value, sizeof value);
    for (int half = WIDTH / 2; half; half /= 2)
        for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
    return lanes[0];
}

static inline float v_largest(vec value) {
    float lanes[WIDTH];
    memcpy(lanes, &value, sizeof value);
    for (int half = WIDTH / 2; half; half /= 2)
        for (int i = 0; i < half; i++) lanes[i] = lanes[i] < lanes[i + half] ? lanes[i + half] : lanes[i];
    return lanes[0];
}

/* ---- functions ------------------------------------------------------------------------------------------------ */

/* e^x for x <= 0 (and up to 88), NaN for NaN, 0 for -inf; relative error below 2e-7. x = n ln 2 + r with |r| <= ln 2 / 2,
 * 2^n by exponent arithmetic, e^r by the minimax polynomial of degree 6 (own fit). Without AVX-512, results below the
 * smallest normal number become 0. */
static inline vec v_exp(vec x) {
    x = v_at_least(x, -105.0f); /* -inf - -inf would be NaN below; e^-105 is 0 in fp32 */
#if defined(PERFKIT_AVX512)
    vec n = (vec)_mm512_roundscale_ps((__m512)(x * 1.44269504f), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
    /* Adding 1.5 * 2^23 leaves the integer nearest to the sum in the low bits of the mantissa. */
    const vec magic = v_all(12582912.0f);
    vec shifted = x * 1.44269504f + magic;
    vec n = shifted - magic;
#endif
    vec r = x - n * 0.693359375f; /* ln 2 in two parts, the first exact in few bits */
    r = r - n * -2.12194440e-4f;
    vec p = r * 1.3836799e-3f + 8.3748568e-3f;
    p = p * r + 4.1668228e-2f;
    p = p * r + 1.6666420e-1f;
    p = p * r + 4.9999991e-1f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
#if defined(PERFKIT_AVX512)
    return (vec)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
    ivec exponent = ((ivec)shifted - (ivec)magic + 127) << 23;
    return v_where(x < -87.33f, v_all(0.0f), p * (vec)exponent);
#endif
}

/* 1 / x for x in [1, 2]: there an estimate and one Newton step serve, far cheaper than a division. */
static inline vec v_reciprocal(vec x) {
#if defined(PERFKIT_AVX512)
    vec guess = (vec)_mm512_rcp14_ps((__m512)x);
    return guess * (2.0f - x * guess);
#else
    return 1.0f / x;
#endif
}

#endif
