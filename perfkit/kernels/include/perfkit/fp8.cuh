/* Numbers of fp8, one byte each: e4m3 (up to 448, no infinity) and e5m2 (up to 57344), and a tensor's largest value. */
#pragma once

#include <perfkit/device.cuh>

/* A format: explicit bits of the mantissa, bias of the exponent, largest number. */
struct E4M3 {
    static constexpr int MANTISSA = 3, BIAS = 7;
    static constexpr float MOST = 448.0f;
};

struct E5M2 {
    static constexpr int MANTISSA = 2, BIAS = 15;
    static constexpr float MOST = 57344.0f;
};

/* Of a largest value: its scale is not 0. */
#define LEAST_AMAX 7.888609052210118e-31f /* 2^-100 */

/* What a stored number divides by. NaN stays NaN. */
template <class F> DEVICE float scale_of(float amax) { return (amax < LEAST_AMAX ? LEAST_AMAX : amax) / F::MOST; }

/* To the nearest number of the format, ties to even; beyond the largest, that one. */
template <class F> DEVICE uint32 to_fp8(float value) {
    uint32 bits = __float_as_uint(value), size = bits & 0x7fffffffu, sign = bits >> 24 & 0x80u;
    if (size > 0x7f800000u) return sign | 0x7f;
    size = min(size, __float_as_uint(F::MOST));
    constexpr int DROPPED = 23 - F::MANTISSA;
    if (size < (uint32)(128 - F::BIAS) << 23) { /* below the smallest normal number: its last bit is the smallest one */
        uint32 step = (uint32)(128 - F::BIAS + DROPPED) << 23;
        return sign | (__float_as_uint(__uint_as_float(size) + __uint_as_float(step)) - step);
    }
    size += (1u << (DROPPED - 1)) - 1 + (size >> DROPPED & 1);
    return sign | ((size >> DROPPED) - ((uint32)(127 - F::BIAS) << F::MANTISSA));
}

/* Two numbers, `low` to the lower address: by one instruction since sm_89. */
template <class F> DEVICE uint32 two_fp8(float low, float high) {
#if __CUDA_ARCH__ >= 890
    unsigned short both;
    if (F::MANTISSA == 3) asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(high), "f"(low));
    else asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(both) : "f"(high), "f"(low));
    return both;
#else
    return to_fp8<F>(low) | to_fp8<F>(high) << 8;
#endif
}

/* ---- the largest absolute value ------------------------------------------------------------------------------- */

/* |value| by its bits: as integers they are in the same order, with infinity and then NaN at the end. */
DEVICE uint32 magnitude(float value) { return __float_as_uint(value) & 0x7fffffffu; }

/* The same of a value that is stored as T. Rounding keeps the order: that of the largest value will do. */
DEVICE uint32 stored(uint32 size, const float *) { return size; }
DEVICE uint32 stored(uint32 size, const bf16 *) {
    return size > 0x7f800000u ? size : two_bf16(__uint_as_float(size), 0.0f) << 16;
}

/* amax = the larger of amax and that of all threads of the block. Most blocks see that it is large enough already. */
DEVICE void raise_amax(float *amax, uint32 largest) {
    __shared__ uint32 of_block;
    if (threadIdx.x == 0) of_block = 0;
    __syncthreads();
    largest = __reduce_max_sync(FULL_WARP, largest);
    if (threadIdx.x % 32 == 0) atomicMax(&of_block, largest);
    __syncthreads();
    if (threadIdx.x) return;
    uint32 *place = reinterpret_cast<uint32 *>(amax);
    if (of_block > *reinterpret_cast<volatile uint32 *>(place)) atomicMax(place, of_block);
}
