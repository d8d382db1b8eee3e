// Time inside a kernel: regions that you name, of each warp, with its multiprocessor.
//
//     #include <perfkit/profile.cuh>
//
//     PERFKIT_BEGIN(load);
//     …
//     PERFKIT_END(load);
//
// Both are nothing unless PERFKIT_PROFILE is defined (nvcc -DPERFKIT_PROFILE). With it, the first active thread of each
// warp that comes to END writes a record. After the kernel, the host writes them to a file for `perfkit inspect`:
//
//     perfkit_write_regions("kernel.regions");
//
// A region lasts from the issue of its first instruction to that of its last: the latency of a load counts where its
// value is used. Writing a record takes about a microsecond of its warp, after the region; a region around others
// contains theirs. A name has at most 16 letters. The records belong to one source file: where several include this
// header, each has its own, and writes its own.
#pragma once

#ifndef PERFKIT_PROFILE

#define PERFKIT_BEGIN(name)
#define PERFKIT_END(name)
#define perfkit_write_regions(path) 0

#else

#ifndef PERFKIT_RECORDS
#define PERFKIT_RECORDS (1 << 18)  // those after it are counted, and lost
#endif

#define PERFKIT_BEGIN(name) const perfkit::Start perfkit_start_##name = perfkit::start()
#define PERFKIT_END(name)                                                             \
    do {                                                                              \
        static_assert(sizeof(#name) <= 17, "A region's name has at most 16 letters"); \
        constexpr unsigned long long low = perfkit::packed(#name, sizeof(#name), 0);  \
        constexpr unsigned long long high = perfkit::packed(#name, sizeof(#name), 8); \
        perfkit::finish(low, high, perfkit_start_##name);                             \
    } while (0)

namespace perfkit {

struct Start {
    unsigned long long ns, cycle;
};

struct Region {
    unsigned long long name[2], begin_cycle, end_cycle, begin_ns, end_ns;
    unsigned multiprocessor, block, warp, launch;
};

struct Regions {
    unsigned long long count;  // of all records, the lost ones too
    Region records[PERFKIT_RECORDS];
};

}  // namespace perfkit

#ifdef __CUDACC_RTC__
extern "C" __device__ perfkit::Regions perfkit_regions;  // the host finds it by this name
#else
static __device__ perfkit::Regions perfkit_regions;
#endif

namespace perfkit {

// Eight letters of a name as a number.
__host__ __device__ constexpr unsigned long long packed(const char* text, int size, int from) {
    unsigned long long word = 0;
    for (int i = from; i < from + 8 && i < size - 1; i++) word |= (unsigned long long)text[i] << (8 * (i - from));
    return word;
}

__device__ __forceinline__ unsigned long long cycle() {
    unsigned long long value;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(value)::"memory");
    return value;
}

__device__ __forceinline__ unsigned long long nanoseconds() {
    unsigned long long value;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(value)::"memory");
    return value;
}

__device__ __forceinline__ Start start() {
    unsigned long long ns = nanoseconds();
    return {ns, cycle()};
}

__device__ __forceinline__ void finish(unsigned long long low, unsigned long long high, Start begun) {
    unsigned long long ended = cycle(), ns = nanoseconds(), grid;
    unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z), lane, multiprocessor;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    if (lane != __ffs(__activemask()) - 1) return;
    asm("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
    asm("mov.u64 %0, %%gridid;" : "=l"(grid));
    unsigned long long place = atomicAdd(&perfkit_regions.count, 1ull);
    if (place >= PERFKIT_RECORDS) return;
    unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    perfkit_regions.records[place] = {{low, high}, begun.cycle, ended, begun.ns, ns,
                                      multiprocessor, block, thread / 32, (unsigned)grid};
}

}  // namespace perfkit

#ifndef __CUDACC_RTC__
#include <cstdio>
#include <vector>

// Writes all records so far, and forgets them. Returns 0, or a number where CUDA or the file refuses.
static inline int perfkit_write_regions(const char* path) {
    perfkit::Regions* own;
    unsigned long long count = 0, zero = 0;
    int device = 0, multiprocessors = 0;
    cudaError_t error = cudaDeviceSynchronize();
    if (!error) error = cudaGetSymbolAddress((void**)&own, perfkit_regions);
    if (!error) error = cudaMemcpy(&count, &own->count, sizeof(count), cudaMemcpyDeviceToHost);
    if (!error) error = cudaGetDevice(&device);
    if (!error) error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    unsigned long long kept = count < PERFKIT_RECORDS ? count : PERFKIT_RECORDS;
    std::vector<perfkit::Region> records(kept);
    size_t bytes = kept * sizeof(perfkit::Region);
    if (!error) error = cudaMemcpy(records.data(), own->records, bytes, cudaMemcpyDeviceToHost);
    if (!error) error = cudaMemcpy(&own->count, &zero, sizeof(zero), cudaMemcpyHostToDevice);
    if (error) return fprintf(stderr, "perfkit_write_regions: %s\n", cudaGetErrorString(error)), 1;
    FILE* file = fopen(path, "wb");
    if (!file) return fprintf(stderr, "perfkit_write_regions: cannot write %s\n", path), 2;
    unsigned about[4] = {1, sizeof(perfkit::Region), (unsigned)multiprocessors, 0};
    bool whole = fwrite("PKREGION", 8, 1, file) == 1 && fwrite(about, sizeof(about), 1, file) == 1 &&
                 fwrite(&count, sizeof(count), 1, file) == 1 && fwrite(records.data(), 1, bytes, file) == bytes;
    return fclose(file) || !whole ? (fprintf(stderr, "perfkit_write_regions: cannot write %s\n", path), 2) : 0;
}
#endif

#endif
