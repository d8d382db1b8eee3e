/* Rows of a matrix: held in registers by a group of threads, or read at any alignment; and sums over columns. */
#pragma once
#include <perfkit/device.cuh>

/* `columns` numbers of a row in the registers of THREADS neighbouring threads, PACKS accesses of WIDTH elements each, as
 * they lie in memory: bf16 takes half the registers. THREADS is 32 (one warp a row) or the whole block.
 * columns <= THREADS · PACKS · WIDTH, and a multiple of WIDTH. A place (k, j) is the same element in every Row. */
template <class T, int WIDTH, int PACKS, int THREADS> struct Row {
    Pack<T, WIDTH> packs[PACKS];

    static DEVICE int column(int k) { return (k * THREADS + (int)(threadIdx.x % THREADS)) * WIDTH; }
    DEVICE float at(int k, int j) const { return packs[k].at(j); }

    /* Elements from `columns` on are `fill`. */
    DEVICE void load(const T *row, int columns, float fill = 0.0f) {
        float v[WIDTH];
#pragma unroll
        for (int j = 0; j < WIDTH; j++) v[j] = fill;
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            if (column(k) < columns) packs[k].load(row + column(k));
            else packs[k].pack(v);
        }
    }

    /* The first `used` elements of a row, where `used` is any number; the others are `fill`. */
    DEVICE void load_part(const T *row, int used, float fill) {
        load(row, used, fill);
#pragma unroll
        for (int k = 0; k < PACKS; k++)
            if (column(k) < used && column(k) + WIDTH > used) {
                float v[WIDTH];
#pragma unroll
                for (int j = 0; j < WIDTH; j++) v[j] = column(k) + j < used ? at(k, j) : fill;
                packs[k].pack(v);
            }
    }

    /* f(v, k, j) of every element, written to the same places of another row. */
    template <class F> DEVICE void store(T *row, int columns, F f) const {
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            float v[WIDTH];
#pragma unroll
            for (int j = 0; j < WIDTH; j++) v[j] = f(at(k, j), k, j);
            if (column(k) < columns) ::store(row + column(k), v);
        }
    }

    /* The sum, and the maximum, of f(v, k, j) over the row, for every thread. */
    template <class F> DEVICE float sum(F f) const { return reduce<Sum>(f); }
    template <class F> DEVICE float largest(F f) const { return reduce<Largest>(f); }

    template <class R, class F> DEVICE float reduce(F f) const {
        float result = R::none();
#pragma unroll
        for (int k = 0; k < PACKS; k++)
#pragma unroll
            for (int j = 0; j < WIDTH; j++) result = R::join(result, f(at(k, j), k, j));
        return over_group<R, THREADS>(result);
    }
};

/* fp32 numbers in the places of a Row. */
template <int WIDTH, int PACKS> struct Numbers {
    float v[PACKS][WIDTH];

    template <class F> DEVICE void each(F f) {
#pragma unroll
        for (int k = 0; k < PACKS; k++)
#pragma unroll
            for (int j = 0; j < WIDTH; j++) v[k][j] = f(v[k][j], k, j);
    }
};

/* ---- rows that start anywhere ----------------------------------------------------------------------------------- */

/* 16-byte accesses to a row whatever its address: counted from the aligned address at or below its start, so that only
 * the first and the last access, the edges, may hold elements that are not the row's. */
template <class T> struct AnyRow {
    static constexpr int WIDTH = 16 / sizeof(T);
    T *aligned;
    int lead; /* elements before the row in the first access */
    int columns;

    DEVICE AnyRow(const T *row, int columns) : columns(columns) {
        unsigned long long address = (unsigned long long)row;
        lead = (int)(address % 16) / (int)sizeof(T);
        aligned = (T *)(address - address % 16);
    }

    DEVICE int packs() const { return (lead + columns + WIDTH - 1) / WIDTH; }
    DEVICE int column(int p) const { return p * WIDTH - lead; }
    DEVICE bool inside(int p, int j) const { return column(p) + j >= 0 && column(p) + j < columns; }
    /* Accesses from `begin` up to `end` hold nothing but the row. */
    DEVICE int begin() const { return lead > 0; }
    DEVICE int end() const { return (lead + columns) / WIDTH; }

    DEVICE T *at(int p) const { return aligned + (int64)p * WIDTH; }

    /* An edge; what lies outside the row is `fill`. */
    DEVICE void load_edge(int p, Pack<T, WIDTH> &pack, float fill) const {
        float v[WIDTH];
#pragma unroll
        for (int j = 0; j < WIDTH; j++) v[j] = inside(p, j) ? get(at(p) + j) : fill;
        pack.pack(v);
    }

    DEVICE void load(int p, Pack<T, WIDTH> &pack, float fill, bool whole) const {
        if (whole) pack.load(at(p));
        else load_edge(p, pack, fill);
    }

    DEVICE void store(int p, const float (&v)[WIDTH], bool whole) const {
        if (whole) {
            ::store(at(p), v);
        } else {
#pragma unroll
            for (int j = 0; j < WIDTH; j++)
                if (inside(p, j)) put(at(p) + j, v[j]);
        }
    }

    /* The edge that this one of THREADS threads takes, or -1: the first thread the first, the last thread the last. */
    template <int THREADS> DEVICE int edge() const {
        if (threadIdx.x == 0 && lead > 0) return 0;
        int last = packs() - 1;
        return threadIdx.x == THREADS - 1 && last >= end() && last >= begin() ? last : -1;
    }
};

/* The sum of exp(element) as sum · 2^from, over elements taken one access at a time; from is log2 e times the largest. */
struct Exponentials {
    float from = -1e38f; /* finite, so that differences never are NaN */
    float sum = 0.0f;

    template <int WIDTH> DEVICE void take(const float (&v)[WIDTH]) {
        float high = v[0], added = 0.0f;
#pragma unroll
        for (int j = 1; j < WIDTH; j++) high = fmaxf(high, v[j]);
        high = fmaxf(from, LOG2_E * high);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) added += exponential_over(v[j], high);
        sum = sum * power_of_2(from - high) + added;
        from = high;
    }

    DEVICE void join(float other_from, float other_sum) {
        float high = fmaxf(from, other_from);
        sum = sum * power_of_2(from - high) + other_sum * power_of_2(other_from - high);
        from = high;
    }

    /* Of all threads of the group, for every thread. */
    template <int THREADS> DEVICE void join_group() {
        float high = over_group<Largest, THREADS>(from);
        sum = over_group<Sum, THREADS>(sum * power_of_2(from - high));
        from = high;
    }

    /* log2 of the whole sum, and its natural logarithm. */
    DEVICE float log_2() const { return from + log2f(sum); }
    DEVICE float logarithm() const { return log_2() * (1.0f / LOG2_E); }
};

/* f(p, pack, whole) for every access p of the row, by the THREADS threads of the block: AHEAD accesses of each thread
 * are under way at once. `whole` is a constant wherever it is used: edges go apart. */
template <int THREADS, int AHEAD, class T, class F> DEVICE void each_pack(const AnyRow<T> &row, float fill, F f) {
    Pack<T, AnyRow<T>::WIDTH> held[AHEAD];
    int end = row.end();
    for (int first = row.begin() + threadIdx.x; first < end; first += THREADS * AHEAD) {
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (first + k * THREADS < end) held[k].load(row.at(first + k * THREADS));
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (first + k * THREADS < end) f(first + k * THREADS, held[k], true);
    }
    int edge = row.template edge<THREADS>();
    if (edge < 0) return;
    row.load_edge(edge, held[0], fill);
    f(edge, held[0], false);
}

/* f(p, whole) for the same accesses by the same threads, nothing loaded. */
template <int THREADS, class T, class F> DEVICE void each_place(const AnyRow<T> &row, F f) {
    for (int p = row.begin() + threadIdx.x; p < row.end(); p += THREADS) f(p, true);
    int edge = row.template edge<THREADS>();
    if (edge >= 0) f(edge, false);
}

/* ---- rows over a cluster of blocks (sm_90) ------------------------------------------------------------------------ */

/* A row's part that block `rank` of `blocks` takes. */
template <class T> DEVICE AnyRow<T> part_of_row(const T *row, int columns, int rank, int blocks) {
    int first = (int)((int64)columns * rank / blocks), last = (int)((int64)columns * (rank + 1) / blocks);
    return AnyRow<T>(row + first, last - first);
}

#if __CUDA_ARCH__ >= 900
DEVICE int cluster_rank() {
    int rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.aligned;" ::: "memory"); }
DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }

/* What lies at `mine` in the shared memory of block `rank` of the cluster. */
DEVICE float of_block(const float *mine, int rank) {
    uint32 address = (uint32)__cvta_generic_to_shared(mine);
    float value;
    asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(address) : "r"(rank));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
    return value;
}

/* Two numbers of each block, which all its threads have alike, for all threads of the cluster. The kernel must call
 * `cluster_wait` before it ends: a block's shared memory has to outlive the reading of it. */
template <int BLOCKS> DEVICE void of_cluster(float first, float second, float (&values)[BLOCKS][2]) {
    __shared__ float mine[2];
    if (threadIdx.x == 0) mine[0] = first, mine[1] = second;
    cluster_arrive();
    cluster_wait();
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) values[b][0] = of_block(mine, b), values[b][1] = of_block(mine + 1, b);
    cluster_arrive();
}

template <int BLOCKS> DEVICE void join_cluster(Exponentials &seen) {
    float values[BLOCKS][2];
    of_cluster<BLOCKS>(seen.from, seen.sum, values);
    seen = Exponentials();
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) seen.join(values[b][0], values[b][1]);
}

template <int BLOCKS> DEVICE float sum_over_cluster(float sum) {
    float values[BLOCKS][2], total = 0.0f;
    of_cluster<BLOCKS>(sum, 0.0f, values);
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) total += values[b][0];
    return total;
}
#endif

/* ---- sums over rows --------------------------------------------------------------------------------------------- */

/* out[c] = Σ over p of parts[p · stride + c], in a fixed order, or with `add` that and what is there. A block of WARPS
 * warps takes 32 columns from `first` on. */
template <int WARPS = 32, class T>
DEVICE void sum_parts(const float *parts, T *out, int count, int64 stride, int64 first, int64 columns, bool add = false) {
    __shared__ float of_warp[WARPS][32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64 c = first + lane;
    float sum = 0.0f;
    if (c < columns) {
#pragma unroll 8
        for (int p = warp; p < count; p += WARPS) sum += parts[p * stride + c];
    }
    of_warp[warp][lane] = sum;
    __syncthreads();
    if (warp || c >= columns) return;
    sum = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; w++) sum += of_warp[w][lane];
    put(out + c, add ? get(out + c) + sum : sum);
}

template <class T> __global__ void bias_gradient_sum(const float *parts, T *db, int64 count, int64 M, int64 add) {
    sum_parts(parts, db, (int)count, M, (int64)blockIdx.x * 32, M, add);
}

/* parts[p][c] = the sum of column c over the rows of part p = blockIdx.y, of N rows of M columns. A block of 256 threads
 * takes 32 · WIDTH columns, a warp every eighth row of its part, ROWS of them under way at once: terms.load(held, row, c)
 * starts one, terms.give(held, row, c, v) ends it with what is added. */
template <int WIDTH, int ROWS, class Terms> DEVICE void sum_columns(float *parts, int64 N, int64 M, const Terms &terms) {
    __shared__ float of_warp[8][32 * WIDTH];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64 column = ((int64)blockIdx.x * 32 + lane) * WIDTH, step = gridDim.y * 8;
    float sum[WIDTH] = {};
    if (column < M)
        for (int64 row = blockIdx.y * 8 + warp; row < N; row += step * ROWS) {
            typename Terms::Held held[ROWS];
#pragma unroll
            for (int k = 0; k < ROWS; k++)
                if (row + k * step < N) terms.load(held[k], row + k * step, column);
#pragma unroll
            for (int k = 0; k < ROWS; k++) {
                if (row + k * step >= N) continue;
                float v[WIDTH];
                terms.give(held[k], row + k * step, column, v);
#pragma unroll
                for (int j = 0; j < WIDTH; j++) sum[j] += v[j];
            }
        }
#pragma unroll
    for (int j = 0; j < WIDTH; j++) of_warp[warp][j * 32 + lane] = sum[j]; /* neighbouring lanes, neighbouring banks */
    __syncthreads();
    for (int i = threadIdx.x; i < 32 * WIDTH; i += 256) {
        int64 c = (int64)blockIdx.x * 32 * WIDTH + i;
        if (c >= M) return;
        float total = 0.0f;
        for (int w = 0; w < 8; w++) total += of_warp[w][i % WIDTH * 32 + i / WIDTH];
        parts[blockIdx.y * M + c] = total;
    }
}
