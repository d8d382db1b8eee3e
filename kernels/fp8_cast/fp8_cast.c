/* Tensors in fp8 with one scale each: the largest absolute value, and the cast to both layouts.
 *
 * Argument order everywhere: input tensors, output tensors, sizes. x is (N, M), x8 the same, x8t its transpose; amax and
 * scale are single numbers in fp32.
 */
#include <perfkit/fp8.h>

/* Numbers of a tile of TILE rows and columns are written both ways while they are in the cache. */
#define TILE 64

int fp8_amax_v1(const scalar *x, float *amax, int64_t n) {
    raise_amax(amax, x, n);
    return KERNEL_DONE;
}

static int cast(const scalar *x, float amax, uint8_t *x8, uint8_t *x8t, float *scale, int64_t N, int64_t M, Format to) {
    *scale = scale_of(amax, to);
    float factor = 1.0f / *scale;
    int64_t across = (M + TILE - 1) / TILE, tiles = (N + TILE - 1) / TILE * across;
#pragma omp parallel for schedule(static) if (N * M >= PARALLEL_FROM)
    for (int64_t t = 0; t < tiles; t++) {
        int64_t n0 = t / across * TILE, m0 = t % across * TILE;
        for (int64_t n = n0; n < N && n < n0 + TILE; n++)
            for (int64_t m = m0; m < M && m < m0 + TILE; m++)
                x8[n * M + m] = x8t[m * N + n] = to_fp8(get(x + n * M + m) * factor, to);
    }
    return KERNEL_DONE;
}

int fp8_cast_v1(const scalar *x, const float *amax, uint8_t *x8, uint8_t *x8t, float *scale, int64_t N, int64_t M) {
    return cast(x, *amax, x8, x8t, scale, N, M, E4M3);
}

int fp8_gradient_cast_v1(const scalar *dy, const float *amax, uint8_t *dy8, uint8_t *dy8t, float *scale, int64_t N,
                         int64_t M) {
    return cast(dy, *amax, dy8, dy8t, scale, N, M, E5M2);
}
