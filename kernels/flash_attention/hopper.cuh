/* What Hopper's tensor cores need (sm_90a): products of a warpgroup by wgmma, tiles by the copy engine, barriers.
 *
 * A tile in shared memory is made of panels of 64 columns of bf16, 128 bytes a row, whose 16-byte pieces the copy
 * engine puts in an order that avoids bank conflicts (the 128-byte swizzle): piece p of row r lies where piece
 * p ^ (r % 8) would. Panels begin at multiples of 1024 bytes. A product reads a panel along its rows (its inner
 * dimension is the columns) or turned (its inner dimension is the rows).
 */
#pragma once

#include <perfkit/device.cuh>

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* As the driver encodes it. */
struct alignas(64) TensorMap {
    char bytes[128];
};

typedef unsigned long long Barrier;
typedef unsigned long long Matrix; /* a descriptor of shared memory, as wgmma takes it */

#define ROW 128    /* bytes of a panel's row */
#define EIGHT 1024 /* bytes of its eight rows, after which the order of pieces repeats */

DEVICE uint32 address_of(const void *p) { return (uint32)__cvta_generic_to_shared(p); }

/* ---- barriers ---------------------------------------------------------------------------------------------------- */

DEVICE void make_barrier(Barrier *barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address_of(barrier)), "r"(arrivals) : "memory");
}

DEVICE void barriers_made() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

DEVICE void arrive(Barrier *barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address_of(barrier)) : "memory");
}

/* Lanes of a warp that arrive at a barrier when it has read. One is enough where the warp has met since then. racecheck
 * takes that for a race, so benchmarks/gpu_sanitize.py gives it kernels in which all arrive. */
#ifndef ARRIVING_LANES
#define ARRIVING_LANES 1
#endif

DEVICE void make_barrier_of_warps(Barrier *barrier, int warps) { make_barrier(barrier, warps * ARRIVING_LANES); }

DEVICE void arrive_as_warp(Barrier *barrier) {
    if (threadIdx.x % 32 < ARRIVING_LANES) arrive(barrier);
}

/* Arrive, and let the phase also wait for `bytes` that copies bring. */
DEVICE void arrive_expecting(Barrier *barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address_of(barrier)), "r"(bytes)
                 : "memory");
}

/* Until the barrier's phase of this parity is complete: 0 for its first. */
DEVICE void wait_for(Barrier *barrier, int parity) {
    asm volatile(
        "{\n.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra AGAIN;\n}"
        ::"r"(address_of(barrier)), "r"(parity)
        : "memory");
}

/* A barrier of `threads` threads of the block by its number, from 1 on: all wait, or some only arrive. */
DEVICE void meet(int barrier, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory"); }
DEVICE void let_go(int barrier, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/* Where panels are written by ordinary stores: by each writing thread, before the barrier after which products read. */
DEVICE void writes_before_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

template <int REGISTERS> DEVICE void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS> DEVICE void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* One panel from column `column` and row `row` of matrix `matrix` on; what lies outside of the tensor is 0. */
DEVICE void copy_panel(uint32 to, const TensorMap *map, Barrier *barrier, int column, int row, int matrix) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %4, %5}], [%2];"
        ::"r"(to), "l"(map), "r"(address_of(barrier)), "r"(column), "r"(row), "r"(matrix)
        : "memory");
}

DEVICE void copy_bytes(void *to, const void *from, int bytes, Barrier *barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     address_of(to)),
                 "l"(from), "r"(bytes), "r"(address_of(barrier))
                 : "memory");
}

DEVICE void fetch_map(const TensorMap *map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* The operand at `address`: `next` is the distance of its panels where the product reads several of them turned. */
DEVICE Matrix matrix_at(uint32 address, int next = 16) {
    return (1ull << 62) | ((Matrix)(EIGHT >> 4) << 32) | ((Matrix)(next >> 4) << 16) | ((address & 0x3ffff) >> 4);
}

/* Before the first of some products: what was written to their registers comes first. */
DEVICE void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void products_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/* Until at most LATER of the groups between begin and end are under way. */
template <int LATER> DEVICE void wait_for_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LATER) : "memory");
}

/* No use of these registers moves across. */
template <int N> DEVICE void hold(float (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}

#define REGISTERS_8(d, i) \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
        "+f"(d[i + 7])
#define REGISTERS_32(d) REGISTERS_8(d, 0), REGISTERS_8(d, 8), REGISTERS_8(d, 16), REGISTERS_8(d, 24)
#define REGISTERS_64(d) \
    REGISTERS_32(d), REGISTERS_8(d, 32), REGISTERS_8(d, 40), REGISTERS_8(d, 48), REGISTERS_8(d, 56)

/* d (64 rows, twice as many columns as registers) = a · b over 16 of the inner dimension, plus d if `add` is not 0. */
template <int TURN_A, int TURN_B>
DEVICE void multiply(float (&d)[32], Matrix a, Matrix b, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
        "}, %32, %33, p, 1, 1, %35, %36;\n}"
        : REGISTERS_32(d)
        : "l"(a), "l"(b), "r"(add), "n"(TURN_A), "n"(TURN_B));
}

template <int TURN_B>
DEVICE void multiply(float (&d)[32], const uint32 *a, Matrix b, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
        "}, {%32, %33, %34, %35}, %36, p, 1, 1, %38;\n}"
        : REGISTERS_32(d)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(TURN_B));
}

template <int TURN_A, int TURN_B>
DEVICE void multiply(float (&d)[64], Matrix a, Matrix b, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
        "}, %64, %65, p, 1, 1, %67, %68;\n}"
        : REGISTERS_64(d)
        : "l"(a), "l"(b), "r"(add), "n"(TURN_A), "n"(TURN_B));
}

template <int TURN_B>
DEVICE void multiply(float (&d)[64], const uint32 *a, Matrix b, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
        "}, {%64, %65, %66, %67}, %68, p, 1, 1, %70;\n}"
        : REGISTERS_64(d)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(TURN_B));
}

/* In d of a warpgroup, thread t has of n-th eight columns d[4n], d[4n + 1]: row t / 4 of its warp's sixteen, columns
 * t % 4 · 2 and the next; and d[4n + 2], d[4n + 3]: the same eight rows on. As a's four registers a product takes the
 * pairs of two such n in this order. */

/* Four words of each of four neighbouring threads: word i of thread t goes to thread i as its word t. */
DEVICE void turn_words(uint32 (&x)[4]) {
    int t = threadIdx.x % 4;
#pragma unroll
    for (int bit = 1; bit <= 2; bit *= 2)
#pragma unroll
        for (int pair = 0; pair < 2; pair++) {
            int low = bit == 1 ? 2 * pair : pair, high = low + bit;
            uint32 other = __shfl_xor_sync(FULL_WARP, t & bit ? x[low] : x[high], bit);
            if (t & bit) x[low] = other;
            else x[high] = other;
        }
}

/* The two rows of a thread of d, scaled, to rows of D columns in bf16, by 16-byte pieces, but for rows from `last` on. */
template <int D, int N>
DEVICE void write_rows(bf16 *to, const float (&d)[N], float scale0, float scale1, int row, int last) {
    int t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < N / 4; n += 4) {
        uint32 upper[4], lower[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            upper[i] = two_bf16(d[4 * (n + i)] * scale0, d[4 * (n + i) + 1] * scale0);
            lower[i] = two_bf16(d[4 * (n + i) + 2] * scale1, d[4 * (n + i) + 3] * scale1);
        }
        turn_words(upper), turn_words(lower);
        bf16 *place = to + (int64)row * D + 8 * n + 8 * t;
        if (row < last) *reinterpret_cast<uint4 *>(place) = make_uint4(upper[0], upper[1], upper[2], upper[3]);
        if (row + 8 < last)
            *reinterpret_cast<uint4 *>(place + 8 * D) = make_uint4(lower[0], lower[1], lower[2], lower[3]);
    }
}

/* ---- rings ------------------------------------------------------------------------------------------------------- */

/* Stages that tiles wait in: the copies complete `full`, and every computing warp arrives at `empty` when it has read. */
template <int STAGES> struct Ring {
    Barrier full[STAGES], empty[STAGES];

    DEVICE void make(int readers) {
        for (int i = 0; i < STAGES; i++) make_barrier(&full[i], 1), make_barrier_of_warps(&empty[i], readers);
    }
};

/* Number `n` of the tiles that went through a ring. */
template <int STAGES> struct Turn {
    int n = 0;

    DEVICE int stage() const { return n % STAGES; }
    DEVICE int odd() const { return n / STAGES & 1; }
    DEVICE void wait_full(Ring<STAGES> &ring) const { wait_for(&ring.full[stage()], odd()); }
    DEVICE void wait_empty(Ring<STAGES> &ring) const { wait_for(&ring.empty[stage()], odd() ^ 1); }
    DEVICE void done(Ring<STAGES> &ring) const { arrive_as_warp(&ring.empty[stage()]); }
};

#endif
