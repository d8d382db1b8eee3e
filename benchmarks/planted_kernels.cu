// Kernels with one planted fault each, and the same work without it. A line with `planted NAME` is the one to find.
//
//     nvcc -O3 -arch=sm_90 -lineinfo planted_kernels.cu -o planted && ./planted stride
//
// Each program run launches one kernel once, after its inputs are filled.

#include <mma.h>

#include <cstdio>
#include <cstring>

constexpr int SIDE = 4096, COUNT = SIDE * SIDE, TILE = 32, HELD = 64;
constexpr int STEPS = 32, TURNS = 256, PARTS = 16;  // of a prologue and the loop after it, and parts of the work
constexpr int ORDER = 2048, WIDE = 128, DEEP = 8, OWN = 8;  // of a product: tiles of WIDE × WIDE, OWN × OWN a thread
constexpr int BLOCKS = 4 * 132, SHORT = 4096, LONG = 64 * SHORT;

__global__ void fill(float* x, int* lengths) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < COUNT; i += gridDim.x * blockDim.x) x[i] = i % 7 * 0.125f;
    if (blockIdx.x == 0)
        for (int b = threadIdx.x; b < BLOCKS; b += blockDim.x) lengths[b] = b % 132 == 5 ? LONG : SHORT;
}

// A matrix is scaled; neighbouring threads read neighbouring rows.
__global__ void stride(const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int row = i % SIDE, column = i / SIDE;
    float value = x[row * SIDE + column];  // planted stride
    y[i] = 2.0f * value;
}

__global__ void stride_healthy(const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float value = x[i];
    y[i] = 2.0f * value;
}

// Sums along the rows of a tile in shared memory: all threads of a warp read the same bank, unless rows are padded.
template <int PITCH>
__device__ __forceinline__ void load_tile(float (*tile)[PITCH], const float* x) {
    tile[threadIdx.y][threadIdx.x] = x[(blockIdx.y * TILE + threadIdx.y) * SIDE + blockIdx.x * TILE + threadIdx.x];
    __syncthreads();
}

__global__ void conflict(const float* x, float* y) {
    __shared__ float tile[TILE][TILE];
    load_tile(tile, x);
    float sum = 0.0f;
    for (int k = 0; k < TILE; k++) {
        float value = tile[threadIdx.x][(threadIdx.y + k) % TILE];  // planted conflict
        sum = sum * 0.5f + value;
    }
    y[(blockIdx.y * TILE + threadIdx.y) * SIDE + blockIdx.x * TILE + threadIdx.x] = sum;
}

__global__ void conflict_healthy(const float* x, float* y) {
    __shared__ float tile[TILE][TILE + 1];
    load_tile(tile, x);
    float sum = 0.0f;
    for (int k = 0; k < TILE; k++) {
        float value = tile[threadIdx.x][(threadIdx.y + k) % TILE];
        sum = sum * 0.5f + value;
    }
    y[(blockIdx.y * TILE + threadIdx.y) * SIDE + blockIdx.x * TILE + threadIdx.x] = sum;
}

// HELD running values a thread. Two blocks of 1024 threads on a multiprocessor leave 32 registers to each thread.
__global__ void __launch_bounds__(1024, 2) spill(const float* x, float* y) {
    float held[HELD];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll
    for (int k = 0; k < HELD; k++) held[k] = 0.0f;
    for (int step = 0; step < 16; step++) {
        float value = x[(i + step * 1024) % COUNT];
#pragma unroll
        for (int k = 0; k < HELD; k++)
            held[k] = held[k] * value + (k + 1);  // planted spill
    }
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < HELD; k++) sum += held[k] * held[HELD - 1 - k];
    y[i] = sum;
}

__global__ void __launch_bounds__(256) spill_healthy(const float* x, float* y) {
    float held[HELD];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll
    for (int k = 0; k < HELD; k++) held[k] = 0.0f;
    for (int step = 0; step < 16; step++) {
        float value = x[(i + step * 1024) % COUNT];
#pragma unroll
        for (int k = 0; k < HELD; k++)
            held[k] = held[k] * value + (k + 1);
    }
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < HELD; k++) sum += held[k] * held[HELD - 1 - k];
    y[i] = sum;
}

// The sum of all numbers: one atomic operation for each, or one for each warp.
__global__ void atomics(const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float value = x[i] * 0.5f;
    atomicAdd(y, value);  // planted atomics
}

__global__ void atomics_healthy(const float* x, float* y) {
    float value = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < COUNT / 8; i += gridDim.x * blockDim.x) value += x[i] * 0.5f;
    for (int step = 16; step; step /= 2) value += __shfl_down_sync(~0u, value, step);
    if (threadIdx.x % 32 == 0) atomicAdd(y, value);
}

// Each block adds as many numbers as `lengths` has for it, or all add the same number of them.
__global__ void uneven(const float* x, float* y, const int* lengths) {
    float sum = 0.0f;
    int length = lengths[blockIdx.x];
    for (int k = threadIdx.x; k < length; k += blockDim.x) {
        float value = x[(blockIdx.x * SHORT + k) % COUNT];  // planted uneven
        sum = sum * 0.5f + __sinf(value);  // planted uneven
    }
    y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

__global__ void uneven_healthy(const float* x, float* y, int length) {
    float sum = 0.0f;
    for (int k = threadIdx.x; k < length; k += blockDim.x) {
        float value = x[(blockIdx.x * SHORT + k) % COUNT];
        sum = sum * 0.5f + __sinf(value);
    }
    y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// A table is made by one warp while the others wait, or by all of them.
__global__ void barrier(const float* x, float* y) {
    __shared__ float table[1024];
    float sum = 0.0f;
    for (int round = 0; round < 8; round++) {
        if (threadIdx.x < 32)
            for (int k = threadIdx.x; k < 1024; k += 32)
                table[k] = __expf(x[(blockIdx.x * 8 + round) * 1024 + k]);
        __syncthreads();  // planted barrier
        sum += table[(threadIdx.x * 33 + round) % 1024];
        __syncthreads();
    }
    y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

__global__ void barrier_healthy(const float* x, float* y) {
    __shared__ float table[1024];
    float sum = 0.0f;
    for (int round = 0; round < 8; round++) {
        for (int k = threadIdx.x; k < 1024; k += blockDim.x)
            table[k] = __expf(x[(blockIdx.x * 8 + round) * 1024 + k]);
        __syncthreads();
        sum += table[(threadIdx.x * 33 + round) % 1024];
        __syncthreads();
    }
    y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// Each block follows a chain of pointers before its loop; or as many blocks as fit at once do so once for all their parts.
__device__ __forceinline__ int chained(const int* next, int at) {
#pragma unroll
    for (int k = 0; k < STEPS; k++)
        at = __ldcg(next + at);  // planted prologue
    return at;
}

__device__ __forceinline__ float summed(const float* x, int part) {
    float sum = 0.0f;
    for (int k = 0; k < TURNS; k++) sum = sum * 0.5f + x[(k * 128 + threadIdx.x + part) % (1 << 16)];
    return sum;
}

__global__ void prologue(const float* x, float* y, const int* next) {
    int at = chained(next, blockIdx.x % 1024);
    y[blockIdx.x * blockDim.x + threadIdx.x] = summed(x, at);
}

__global__ void prologue_healthy(const float* x, float* y, const int* next) {
    int at = chained(next, blockIdx.x % 1024);
    for (int part = 0; part < PARTS; part++)
        y[(blockIdx.x * PARTS + part) * blockDim.x + threadIdx.x] = summed(x, at + part);
}

// A product of matrices on the vector units, each thread OWN × OWN sums; or on the matrix units.
__global__ void __launch_bounds__(256) product(const float* x, float* y) {
    __shared__ __align__(16) float left[DEEP][WIDE], right[DEEP][WIDE];
    int row = threadIdx.x / 16 * OWN, column = threadIdx.x % 16 * OWN;
    float sum[OWN][OWN] = {};
    for (int k = 0; k < ORDER; k += DEEP) {
        for (int i = threadIdx.x; i < DEEP * WIDE; i += blockDim.x) {
            left[i / WIDE][i % WIDE] = x[(k + i / WIDE) * ORDER + blockIdx.y * WIDE + i % WIDE];  // transposed as it is
            right[i / WIDE][i % WIDE] = x[(k + i / WIDE) * ORDER + blockIdx.x * WIDE + i % WIDE];
        }
        __syncthreads();
#pragma unroll
        for (int d = 0; d < DEEP; d++)
#pragma unroll
            for (int i = 0; i < OWN; i++)
#pragma unroll
                for (int j = 0; j < OWN; j++)
                    sum[i][j] += left[d][row + i] * right[d][column + j];  // planted product
        __syncthreads();
    }
    for (int i = 0; i < OWN; i++)
        for (int j = 0; j < OWN; j++)
            y[(blockIdx.y * WIDE + row + i) * ORDER + blockIdx.x * WIDE + column + j] = sum[i][j];
}

__global__ void __launch_bounds__(256) product_healthy(const float* x, float* y) {
    using namespace nvcuda::wmma;
    int warp = threadIdx.x / 32, row = blockIdx.y * WIDE + warp / 2 * 32, column = blockIdx.x * WIDE + warp % 2 * 64;
    fragment<accumulator, 16, 16, 8, float> sum[2][4];
    for (int i = 0; i < 8; i++) fill_fragment(sum[i / 4][i % 4], 0.0f);
    for (int k = 0; k < ORDER; k += 8) {
        fragment<matrix_a, 16, 16, 8, precision::tf32, col_major> left[2];
        fragment<matrix_b, 16, 16, 8, precision::tf32, row_major> right[4];
        for (int i = 0; i < 2; i++) load_matrix_sync(left[i], x + k * ORDER + row + 16 * i, ORDER);
        for (int j = 0; j < 4; j++) load_matrix_sync(right[j], x + k * ORDER + column + 16 * j, ORDER);
        for (int i = 0; i < 8; i++) mma_sync(sum[i / 4][i % 4], left[i / 4], right[i % 4], sum[i / 4][i % 4]);
    }
    for (int i = 0; i < 8; i++)
        store_matrix_sync(y + (row + i / 4 * 16) * ORDER + column + i % 4 * 16, sum[i / 4][i % 4], ORDER, mem_row_major);
}

int main(int count, char** words) {
    const char* name = count > 1 ? words[1] : "";
    auto is = [&](const char* other) { return !strcmp(name, other); };
    float *x, *y;
    int *lengths, *next;
    static int links[1024];
    for (int i = 0; i < 1024; i++) links[i] = (i * 421 + 97) % 1024;
    cudaMalloc(&x, COUNT * sizeof(float));
    cudaMalloc(&y, COUNT * sizeof(float));
    cudaMalloc(&lengths, BLOCKS * sizeof(int));
    cudaMalloc(&next, sizeof(links));
    cudaMemcpy(next, links, sizeof(links), cudaMemcpyHostToDevice);
    fill<<<1024, 256>>>(x, lengths);
    dim3 tiles(SIDE / TILE, SIDE / TILE), tile(TILE, TILE), parts(ORDER / WIDE, ORDER / WIDE);
    int fit = 132 * 2, held = 96 * 1024;  // bytes of shared memory, with which two blocks fit on a multiprocessor
    cudaFuncSetAttribute(prologue, cudaFuncAttributeMaxDynamicSharedMemorySize, held);
    cudaFuncSetAttribute(prologue_healthy, cudaFuncAttributeMaxDynamicSharedMemorySize, held);
    if (is("stride")) stride<<<COUNT / 256, 256>>>(x, y);
    else if (is("stride_healthy")) stride_healthy<<<COUNT / 256, 256>>>(x, y);
    else if (is("conflict")) conflict<<<tiles, tile>>>(x, y);
    else if (is("conflict_healthy")) conflict_healthy<<<tiles, tile>>>(x, y);
    else if (is("spill")) spill<<<COUNT / 1024 / 16, 1024>>>(x, y);
    else if (is("spill_healthy")) spill_healthy<<<COUNT / 256 / 16, 256>>>(x, y);
    else if (is("atomics")) atomics<<<COUNT / 256 / 8, 256>>>(x, y);
    else if (is("atomics_healthy")) atomics_healthy<<<1024, 256>>>(x, y);
    else if (is("uneven")) uneven<<<BLOCKS, 256>>>(x, y, lengths);
    else if (is("uneven_healthy")) uneven_healthy<<<BLOCKS, 256>>>(x, y, SHORT + (LONG - SHORT) / 132);
    else if (is("barrier")) barrier<<<1024, 256>>>(x, y);
    else if (is("barrier_healthy")) barrier_healthy<<<1024, 256>>>(x, y);
    else if (is("prologue")) prologue<<<fit * PARTS, 128, held>>>(x, y, next);
    else if (is("prologue_healthy")) prologue_healthy<<<fit, 128, held>>>(x, y, next);
    else if (is("product")) product<<<parts, 256>>>(x, y);
    else if (is("product_healthy")) product_healthy<<<parts, 256>>>(x, y);
    else return fprintf(stderr, "Unknown kernel: %s\n", name), 2;
    cudaError_t error = cudaDeviceSynchronize();
    if (error != cudaSuccess) fprintf(stderr, "%s: %s\n", name, cudaGetErrorString(error));
    return error != cudaSuccess;
}
