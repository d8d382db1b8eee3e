/* Bulk copies from global to shared memory (sm_90): one thread asks, no register holds what is under way, and a barrier
 * tells when it is there. Addresses and sizes are multiples of 16 bytes. */
#pragma once

#include <perfkit/rows.cuh>

#if __CUDA_ARCH__ >= 900
typedef unsigned long long BulkBarrier;

DEVICE uint32 shared_address(const void *p) { return (uint32)__cvta_generic_to_shared(p); }

/* By one thread, and then a barrier of the block before the others wait. */
DEVICE void make_bulk_barrier(BulkBarrier *barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* How many bytes the copies bring that are asked for next. */
DEVICE void expect_bulk(BulkBarrier *barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

DEVICE void copy_bulk(void *to, const void *from, int bytes, BulkBarrier *barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

/* Until the bytes are there. `odd` is 0 the first time that a barrier is waited for, then 1 and 0 in turns. */
DEVICE void wait_for_bulk(BulkBarrier *barrier, int odd) {
    int done;
    do {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.s32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(shared_address(barrier)), "r"(odd)
                     : "memory");
    } while (!done);
}

/* Sums over all threads of a cluster of blocks, or of one block. A warp sends its sum to every block, whose barrier tells
 * when all have come: a barrier of the cluster would also wait for what was written to global memory before it. */
template <int WARPS, int BLOCKS> struct ClusterSum {
    float of_warps[2][BLOCKS * WARPS];
    BulkBarrier there[2];

    /* By one thread; then a barrier of the cluster. */
    DEVICE void make() { make_bulk_barrier(&there[0]), make_bulk_barrier(&there[1]); }

    /* The sum for every thread, and a barrier of each block. `turn` counts the calls: places alternate, so that none is
     * written while it is read. */
    DEVICE float operator()(float value, int turn) {
        int lane = threadIdx.x % 32, place = turn % 2;
        float *own = &of_warps[place][cluster_rank() * WARPS + threadIdx.x / 32];
        value = over_warp<Sum>(value);
        if (BLOCKS == 1) {
            if (lane == 0) *own = value;
            __syncthreads();
        } else {
            if (threadIdx.x == 0) expect_bulk(&there[place], (int)sizeof(of_warps[0]));
            if (lane < BLOCKS) send(own, &there[place], lane, value);
            wait_for_bulk(&there[place], turn / 2 % 2);
            __syncthreads();
        }
        float sum = 0.0f;
#pragma unroll
        for (int warp = 0; warp < BLOCKS * WARPS; warp += 32)
            if (warp + lane < BLOCKS * WARPS) sum += of_warps[place][warp + lane];
        return over_warp<Sum>(sum);
    }

    /* `value` to the same place of block `rank`, and word of it to the same barrier there. */
    static DEVICE void send(float *own, BulkBarrier *barrier, int rank, float value) {
        uint32 to = shared_address(own), told = shared_address(barrier);
        asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(to) : "r"(rank));
        asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(told) : "r"(rank));
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to),
                     "r"(__float_as_uint(value)), "r"(told)
                     : "memory");
    }
};
#endif
