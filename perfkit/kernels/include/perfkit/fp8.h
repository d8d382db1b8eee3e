/* Numbers of fp8, one byte each: e4m3 (up to 448, no infinity) and e5m2 (up to 57344), and a tensor's largest value. */
#ifndef PERFKIT_FP8_H
#define PERFKIT_FP8_H

#include <perfkit/vector.h>

/* A format: explicit bits of the mantissa, bias of the exponent, largest number. */
typedef struct {
    int mantissa, bias;
    float most;
} Format;

static const Format E4M3 = {3, 7, 448.0f}, E5M2 = {2, 15, 57344.0f};

/* Of a largest value: its scale is not 0. */
#define LEAST_AMAX 0x1p-100f

static inline uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

static inline float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

/* |v| by its bits: as integers they are in the same order, with infinity and then NaN at the end. */
static inline uint32_t magnitude(float value) { return bits_of(value) & 0x7fffffffu; }

/* amax = the larger of amax and the largest |x| of n numbers. */
static inline void raise_amax(float *amax, const scalar *x, int64_t n) {
    uint32_t largest = bits_of(*amax);
#pragma omp parallel for schedule(static) reduction(max : largest) if (n >= PARALLEL_FROM)
    for (int64_t i = 0; i < n; i++) {
        uint32_t size = magnitude(get(x + i));
        largest = size > largest ? size : largest;
    }
    *amax = float_of(largest);
}

/* What a stored number divides by: NaN stays NaN. */
static inline float scale_of(float amax, Format format) {
    return (amax < LEAST_AMAX ? LEAST_AMAX : amax) / format.most;
}

/* To the nearest number of the format, ties to even; beyond the largest, that one. */
static inline uint8_t to_fp8(float value, Format format) {
    uint32_t bits = bits_of(value), size = bits & 0x7fffffffu;
    uint8_t sign = (uint8_t)(bits >> 24 & 0x80);
    if (size > 0x7f800000u) return sign | 0x7f;
    if (size > bits_of(format.most)) size = bits_of(format.most);
    int dropped = 23 - format.mantissa;
    uint32_t normal = (uint32_t)(128 - format.bias) << 23; /* the smallest normal number */
    if (size < normal) { /* added to this one, the last bit kept is that of the smallest number there is */
        float step = float_of((uint32_t)(128 - format.bias + dropped) << 23);
        return sign | (uint8_t)(bits_of(float_of(size) + step) - bits_of(step));
    }
    size += (1u << (dropped - 1)) - 1 + (size >> dropped & 1);
    return sign | (uint8_t)((size >> dropped) - ((uint32_t)(127 - format.bias) << format.mantissa));
}

#endif
