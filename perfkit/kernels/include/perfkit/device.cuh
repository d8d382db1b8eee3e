/* What CUDA kernels share: elements and 16-byte accesses, sums over warps and blocks, fast functions.
 *
 * T is the type in memory, float or bf16; arithmetic is fp32. WIDTH is how many elements one access takes; the host
 * function chooses it so that accesses are aligned. Needs no header of the CUDA toolkit, for sm_80 and later.
 */
#pragma once

typedef long long int64;
typedef unsigned int uint32;

#define DEVICE __device__ __forceinline__
#define FULL_WARP 0xffffffffu

/* The upper half of a float's bits. */
struct bf16 {
    unsigned short bits;
};

/* ---- one element ---------------------------------------------------------------------------------------------- */

DEVICE float get(const float *p) { return *p; }
DEVICE float get(const bf16 *p) { return __uint_as_float((uint32)p->bits << 16); }

/* Two floats to bf16, to nearest even; `low` goes to the lower address. */
DEVICE uint32 two_bf16(float low, float high) {
    uint32 bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

DEVICE void put(float *p, float value) { *p = value; }
DEVICE void put(bf16 *p, float value) { p->bits = (unsigned short)two_bf16(value, 0.0f); }

/* ---- WIDTH elements by one access ----------------------------------------------------------------------------- */

template <int BYTES> struct Word;
template <> struct Word<2> { typedef unsigned short type; };
template <> struct Word<4> { typedef uint32 type; };
template <> struct Word<8> { typedef uint2 type; };
template <> struct Word<16> { typedef uint4 type; };

/* WIDTH elements as they lie in memory: keeping them so takes half the registers in bf16. */
template <class T, int WIDTH> struct Pack {
    typedef typename Word<WIDTH * sizeof(T)>::type word;
    union {
        word whole;
        uint32 parts[(WIDTH * sizeof(T) + 3) / 4];
    };

    DEVICE void load(const T *p) { whole = *reinterpret_cast<const word *>(p); }
    DEVICE void store(T *p) const { *reinterpret_cast<word *>(p) = whole; }
    DEVICE void zero() {
#pragma unroll
        for (int i = 0; i < (int)(sizeof(parts) / 4); i++) parts[i] = 0;
    }

    DEVICE float at(int i) const {
        if (sizeof(T) == 4) return __uint_as_float(parts[i]);
        return __uint_as_float(i % 2 ? parts[i / 2] & 0xffff0000u : parts[i / 2] << 16);
    }

    DEVICE void unpack(float (&v)[WIDTH]) const {
#pragma unroll
        for (int i = 0; i < WIDTH; i++) v[i] = at(i);
    }

    DEVICE void pack(const float (&v)[WIDTH]) {
        if (sizeof(T) == 4) {
#pragma unroll
            for (int i = 0; i < WIDTH; i++) parts[i] = __float_as_uint(v[i]);
        } else {
#pragma unroll
            for (int i = 0; i < WIDTH; i += 2) parts[i / 2] = two_bf16(v[i], i + 1 < WIDTH ? v[i + 1] : 0.0f);
        }
    }
};

template <int WIDTH, class T> DEVICE void load(const T *p, float (&v)[WIDTH]) {
    Pack<T, WIDTH> pack;
    pack.load(p);
    pack.unpack(v);
}

template <int WIDTH, class T> DEVICE void store(T *p, const float (&v)[WIDTH]) {
    Pack<T, WIDTH> pack;
    pack.pack(v);
    pack.store(p);
}

/* What a function over elements inherits from when it needs nothing but their values. */
struct Elementwise {
    DEVICE void begin(int64 i) {}
};

/* function(j, in, out) for each of n elements: INS tensors in, OUTS tensors out; after function.begin(i), j counts the
 * elements from i on, up to WIDTH. A block takes PACKS · WIDTH · its threads elements; the loads of a thread are all
 * under way before the first is used. Elements beyond the last whole access go one by one. */
template <int WIDTH, int PACKS, int INS, int OUTS, class T, class F>
DEVICE void each_element(const T *const (&in)[INS], T *const (&out)[OUTS], int64 n, F function) {
    int64 first = ((int64)blockIdx.x * blockDim.x * PACKS + threadIdx.x) * WIDTH, stride = (int64)blockDim.x * WIDTH;
    Pack<T, WIDTH> packs[PACKS][INS];
#pragma unroll
    for (int k = 0; k < PACKS; k++)
#pragma unroll
        for (int t = 0; t < INS; t++)
            if (first + k * stride + WIDTH <= n) packs[k][t].load(in[t] + first + k * stride);
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        int64 i = first + k * stride;
        if (i + WIDTH <= n) {
            float v[INS][WIDTH], results[OUTS][WIDTH];
            function.begin(i);
#pragma unroll
            for (int t = 0; t < INS; t++) packs[k][t].unpack(v[t]);
#pragma unroll
            for (int j = 0; j < WIDTH; j++) {
                float a[INS], y[OUTS];
#pragma unroll
                for (int t = 0; t < INS; t++) a[t] = v[t][j];
                function(j, a, y);
#pragma unroll
                for (int t = 0; t < OUTS; t++) results[t][j] = y[t];
            }
#pragma unroll
            for (int t = 0; t < OUTS; t++) store(out[t] + i, results[t]);
        } else {
            for (; i < n; i++) {
                float a[INS], y[OUTS];
#pragma unroll
                for (int t = 0; t < INS; t++) a[t] = get(in[t] + i);
                function(0, a, y);
#pragma unroll
                for (int t = 0; t < OUTS; t++) put(out[t] + i, y[t]);
            }
        }
    }
}

/* i % columns, by a 32-bit division where that does. */
DEVICE int64 column_of(int64 i, int64 columns) {
    return (i >> 32) == 0 ? (int64)((uint32)i % (uint32)columns) : i % columns;
}

/* ---- sums and maxima over THREADS neighbouring threads ---------------------------------------------------------- */

struct Sum {
    static DEVICE float join(float a, float b) { return a + b; }
    static DEVICE float none() { return 0.0f; }
};

struct Largest {
    static DEVICE float join(float a, float b) { return fmaxf(a, b); }
    static DEVICE float none() { return -__int_as_float(0x7f800000); }
};

/* Over LANES lanes of a warp, a power of two; every lane gets the result, and always the same one. */
template <class R, int LANES = 32> DEVICE float over_warp(float value) {
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) value = R::join(value, __shfl_xor_sync(FULL_WARP, value, step));
    return value;
}

/* Over a group: THREADS lanes of a warp (THREADS <= 32), or the whole block of THREADS threads (a multiple of 32).
 * Every thread gets the result. The order of the sum is fixed. */
template <class R, int THREADS> DEVICE float over_group(float value) {
    if (THREADS <= 32) return over_warp<R, THREADS <= 32 ? THREADS : 32>(value);
    constexpr int WARPS = THREADS > 32 ? THREADS / 32 : 1;
    __shared__ float of_warp[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    value = over_warp<R>(value);
    __syncthreads(); /* the call before may still be reading */
    if (lane == 0) of_warp[warp] = value;
    __syncthreads();
    value = lane < WARPS ? of_warp[lane] : R::none();
    return over_warp<R>(value);
}

/* ---- functions ------------------------------------------------------------------------------------------------ */

#define LOG2_E 1.4426950408889634f

/* 2^x, 2 ulp; results below the smallest normal number are 0. */
DEVICE float power_of_2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

DEVICE float exponential(float x) { return power_of_2(LOG2_E * x); } /* |x| / 2^24 more, relative */

/* exp(x) / 2^from: one multiply-add before the power. */
DEVICE float exponential_over(float x, float from) { return power_of_2(fmaf(x, LOG2_E, -from)); }

/* 1 / x, 1 ulp, 0 for infinity. */
DEVICE float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

DEVICE float sigmoid(float x) { return reciprocal(1.0f + exponential(-x)); }

DEVICE float infinity() { return __int_as_float(0x7f800000); }
DEVICE float not_a_number() { return __int_as_float(0x7fffffff); }
