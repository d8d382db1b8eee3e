// A kernel of three stages with the regions of perfkit/profile.cuh, and the same without one of them.
//
//     nvcc -O3 -arch=sm_90 -I perfkit/kernels/include [-DPERFKIT_PROFILE] [-DWITHOUT=1] timed_regions.cu -o timed
//     ./timed FILE.regions      prints the median time of a launch in microseconds
//
// Each stage is a chain of dependent instructions and ends at a barrier, so that the stages do not overlap and do not
// share a unit that is full: leaving one out saves what it takes.

#include <perfkit/profile.cuh>

#include <algorithm>
#include <cstdio>
#include <vector>

#ifndef WITHOUT
#define WITHOUT 0
#endif

constexpr int ROUNDS = 4, NEXT = 1024;

__global__ void stages(const int* chain, float* y) {
    __shared__ int next[NEXT];
    for (int i = threadIdx.x; i < NEXT; i += blockDim.x) next[i] = (i + 33) % NEXT;
    __syncthreads();
    float value = threadIdx.x;
    int at = threadIdx.x, place = threadIdx.x;
    for (int round = 0; round < ROUNDS; round++) {
        if (WITHOUT != 1) {
            PERFKIT_BEGIN(arithmetic);
#pragma unroll 16
            for (int k = 0; k < 32768; k++) value = fmaf(value, 0.999f, 0.5f);
            __syncthreads();
            PERFKIT_END(arithmetic);
        }
        if (WITHOUT != 2) {
            PERFKIT_BEGIN(shared_chain);
#pragma unroll 16
            for (int k = 0; k < 8192; k++) at = next[at];
            __syncthreads();
            PERFKIT_END(shared_chain);
        }
        if (WITHOUT != 3) {
            PERFKIT_BEGIN(global_chain);
            for (int k = 0; k < 512; k++) place = __ldcg(chain + place);
            __syncthreads();
            PERFKIT_END(global_chain);
        }
    }
    y[blockIdx.x * blockDim.x + threadIdx.x] = value + at + place;
}

int main(int count, char** words) {
    constexpr int LONG = 1 << 16, TIMES = 21;
    std::vector<int> host(LONG);
    for (int i = 0; i < LONG; i++) host[i] = (i + 8 * 1021) % LONG;
    int* chain;
    float* y;
    int device, blocks;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, device);
    cudaMalloc(&chain, LONG * sizeof(int));
    cudaMalloc(&y, blocks * 256 * sizeof(float));
    cudaMemcpy(chain, host.data(), LONG * sizeof(int), cudaMemcpyHostToDevice);
    std::vector<float> times;
    cudaEvent_t begin, end;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    for (int k = 0; k < TIMES; k++) {
        if (k == TIMES - 1 && perfkit_write_regions("/dev/null")) return 1;  // only the last launch is kept
        cudaEventRecord(begin);
        stages<<<blocks, 256>>>(chain, y);
        cudaEventRecord(end);
        if (cudaEventSynchronize(end)) return fprintf(stderr, "%s\n", cudaGetErrorString(cudaGetLastError())), 1;
        float ms;
        cudaEventElapsedTime(&ms, begin, end);
        times.push_back(1000 * ms);
    }
    std::sort(times.begin() + 1, times.end());
    printf("%.3f\n", times[TIMES / 2]);
    return count > 1 ? perfkit_write_regions(words[1]) : 0;
}
