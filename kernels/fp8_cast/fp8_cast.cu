/* Tensors in fp8 with one scale each. x is (N, M), x8 the same, x8t its transpose; amax and scale are single numbers. */
#include <perfkit/fp8.cuh>

typedef unsigned char byte;

/* ---- the largest absolute value, version 1 -------------------------------------------------------------------- */

template <class T, int WIDTH, int PACKS> __global__ void fp8_amax_v1(const T *x, float *amax, int64 n) {
    int64 first = ((int64)blockIdx.x * blockDim.x * PACKS + threadIdx.x) * WIDTH, stride = (int64)blockDim.x * WIDTH;
    Pack<T, WIDTH> packs[PACKS];
#pragma unroll
    for (int k = 0; k < PACKS; k++)
        if (first + k * stride + WIDTH <= n) packs[k].load(x + first + k * stride);
        else packs[k].zero();
    uint32 largest = 0;
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
#pragma unroll
        for (int j = 0; j < WIDTH; j++) largest = max(largest, magnitude(packs[k].at(j)));
        int64 i = first + k * stride;
        if (i < n && i + WIDTH > n)
            for (; i < n; i++) largest = max(largest, magnitude(get(x + i)));
    }
    raise_amax(amax, largest);
}

/* ---- the cast, version 1: one element a thread ------------------------------------------------------------------- */

template <class T, class F>
__global__ void fp8_cast_v1(const T *x, const float *amax, byte *x8, byte *x8t, float *scale, int64 N, int64 M) {
    int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    float divisor = scale_of<F>(*amax);
    if (i == 0) *scale = divisor;
    if (i >= N * M) return;
    byte value = (byte)two_fp8<F>(get(x + i) * (1.0f / divisor), 0.0f);
    x8[i] = value;
    x8t[i % M * N + i / M] = value;
}

/* ---- version 2: tiles by way of shared memory --------------------------------------------------------------------- */

#define SIDE 128 /* rows and columns of a tile */
#define COLUMNS 8
#define ROWS 4 /* of a thread: their bytes are a word of x8t */

/* A block of 512 threads takes a tile: a thread eight columns of four rows, 16 bytes a row in bf16. Four bytes of a column
 * are a word in shared memory, and four words what a thread writes to x8t. Word w of column c lies at w ^ 2 (c / 8): the
 * lanes of a warp, 16 columns apart by eight and two words, are in 32 banks then, and 16 bytes stay together but for the
 * order of their halves. M divides by COLUMNS, N by 16. */
template <class T, class F>
__global__ void __launch_bounds__(512)
    fp8_cast_v2(const T *x, const float *amax, byte *x8, byte *x8t, float *scale, int64 N, int64 M) {
    __shared__ uint4 tile[SIDE * SIDE / 16];
    uint32 *words = reinterpret_cast<uint32 *>(tile);
    float divisor = scale_of<F>(*amax), factor = 1.0f / divisor;
    if (blockIdx.x == 0 && threadIdx.x == 0) *scale = divisor;
    int64 across = (M + SIDE - 1) / SIDE;
    int64 top = blockIdx.x / across * SIDE, left = blockIdx.x % across * SIDE;
    int group = threadIdx.x % 16, four = threadIdx.x / 16;
    int64 row = top + four * ROWS, column = left + group * COLUMNS;
    if (row < N && column < M) {
        Pack<T, 16 / sizeof(T)> packs[ROWS][COLUMNS * sizeof(T) / 16];
        constexpr int WIDTH = 16 / sizeof(T);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int p = 0; p < COLUMNS / WIDTH; p++) packs[r][p].load(x + (row + r) * M + column + p * WIDTH);
        uint32 bytes[ROWS][COLUMNS / 2]; /* two in each */
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
#pragma unroll
            for (int c = 0; c < COLUMNS; c += 2)
                bytes[r][c / 2] = two_fp8<F>(packs[r][c / WIDTH].at(c % WIDTH) * factor,
                                             packs[r][c / WIDTH].at(c % WIDTH + 1) * factor);
            uint2 eight = {bytes[r][0] | bytes[r][1] << 16, bytes[r][2] | bytes[r][3] << 16};
            *reinterpret_cast<uint2 *>(x8 + (row + r) * M + column) = eight;
        }
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            uint32 pick = c % 2 ? 0x0051u : 0x0040u; /* byte c % 2 of each of two rows */
            uint32 low = __byte_perm(bytes[0][c / 2], bytes[1][c / 2], pick);
            uint32 high = __byte_perm(bytes[2][c / 2], bytes[3][c / 2], pick);
            words[(group * COLUMNS + c) * (SIDE / ROWS) + (four ^ 2 * group)] = __byte_perm(low, high, 0x5410);
        }
    }
    __syncthreads();
#pragma unroll
    for (int part = threadIdx.x; part < SIDE * SIDE / 16; part += 512) {
        int c = part / (SIDE / 16), quarter = part % (SIDE / 16), turn = c / COLUMNS;
        if (left + c >= M || top + quarter * 16 >= N) continue;
        uint4 found = tile[c * (SIDE / 16) + (quarter ^ turn / 2)];
        if (turn % 2) found = {found.z, found.w, found.x, found.y};
        *reinterpret_cast<uint4 *>(x8t + (left + c) * N + top + quarter * 16) = found;
    }
}
