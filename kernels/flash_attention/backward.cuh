/* dq, dk and dv: a first kernel for the sums of dy·y, the main one, and one that rounds dq.
 *
 * The main one's blocks have a tile of keys each, keep the sums of dk and dv in registers, and add their parts of dq to
 * sums in memory by atomics, so that dq's last bits depend on the order in which blocks come. For the same order at each
 * call, blocks would have to wait for each other, or compute two of the five products twice.
 */
#include "blocks.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* dq is summed in fp32, in tiles of 64 queries and 64 columns as the registers of a warpgroup hold them. */
DEVICE float *dq_tile(float *sums, int head, int padded, int query, int panel, int panels) {
    return sums + (((int64)head * (padded / 64) + query / 64) * panels + panel) * 4096 + threadIdx.x % 128 * 4;
}

/* delta = Σ dy·y of each row, lse in units of log2, and the sums of dq 0. Rows beyond the last weigh nothing. */
template <int D>
__global__ void flash_backward_begin(const bf16 *dy, const bf16 *y, const float *lse, float *lse2, float *delta,
                                     float *sums, int64 rows, int64 time, int64 padded) {
    const int LANES = D / 8;
    int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x, row = i / LANES, part = i % LANES;
    if (row >= rows) return;
    float4 *zero = reinterpret_cast<float4 *>(sums) + 2 * i;
    zero[0] = zero[1] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    int64 t = row % padded, from = row / padded * time + t;
    float product = 0.0f;
    if (t < time) {
        float a[8], b[8];
        load<8>(dy + from * D + 8 * part, a), load<8>(y + from * D + 8 * part, b);
#pragma unroll
        for (int j = 0; j < 8; j++) product += a[j] * b[j];
    }
#pragma unroll
    for (int lanes = 1; lanes < LANES; lanes *= 2) product += __shfl_xor_sync(FULL_WARP, product, lanes);
    if (part == 0) {
        delta[row] = product;
        lse2[row] = t < time ? lse[from] * LOG2_E : infinity();
    }
}

/* dq from its sums: a tile a block. */
template <int D> __global__ void flash_backward_end(float *sums, bf16 *dq, int64 time, int64 padded, double scale) {
    int tiles = (int)padded / 64, panels = D / 64, head = blockIdx.x / (tiles * panels);
    int query = blockIdx.x / panels % tiles * 64, panel = blockIdx.x % panels;
    const float *from = dq_tile(sums, head, (int)padded, query, panel, panels);
    float d[32];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float4 four = *reinterpret_cast<const float4 *>(from + i * 512);
        d[4 * i] = four.x, d[4 * i + 1] = four.y, d[4 * i + 2] = four.z, d[4 * i + 3] = four.w;
    }
    int row = query + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    write_rows<D>(dq + (int64)head * time * D + 64 * panel, d, (float)scale, (float)scale, row, (int)time);
}

template <int QUERIES, int STAGES> struct BackwardShared {
    float lse[STAGES][QUERIES], delta[STAGES][QUERIES];
    Ring<STAGES> queries, upstream;
    Barrier own_full;
};

/* A tile of keys: two warpgroups have 64 each, and walk along the queries from the diagonal on. */
template <int D, int QUERIES, int STAGES> struct Backward {
    static const int PANELS = D / 64, N = QUERIES / 2;
    static const int KV_BYTES = KEYS * D * 2, Q_BYTES = QUERIES * D * 2, DS_BYTES = KEYS * QUERIES * 2;
    typedef BackwardShared<QUERIES, STAGES> Shared;

    Shared &shared;
    uint32 keys, values, queries, upstream, slopes; /* tiles */
    int head, first, group, time, padded;           /* head: of keys; first: its first key */

    DEVICE int begin() const { return first / QUERIES; }
    DEVICE int end() const { return (time + QUERIES - 1) / QUERIES; }

    DEVICE void bring(const TensorMap *q, const TensorMap *dy, const TensorMap *k, const TensorMap *v, const float *lse,
                      const float *delta) {
        arrive_expecting(&shared.own_full, 2 * KV_BYTES);
#pragma unroll
        for (int i = 0; i < PANELS; i++) {
            copy_panel(keys + i * KEYS * ROW, k, &shared.own_full, 64 * i, first, head);
            copy_panel(values + i * KEYS * ROW, v, &shared.own_full, 64 * i, first, head);
        }
        Turn<STAGES> turn;
        for (int of = head * group; of < (head + 1) * group; of++)
            for (int m = begin(); m < end(); m++, turn.n++) {
                int64 row = (int64)of * padded + m * QUERIES;
                bring_tile(queries, q, shared.queries, turn, m, of, shared.lse[turn.stage()], lse + row);
                bring_tile(upstream, dy, shared.upstream, turn, m, of, shared.delta[turn.stage()], delta + row);
            }
    }

    DEVICE void bring_tile(uint32 to, const TensorMap *map, Ring<STAGES> &ring, const Turn<STAGES> &turn, int m, int of,
                           float *statistics, const float *from) {
        turn.wait_empty(ring);
        Barrier *full = &ring.full[turn.stage()];
        arrive_expecting(full, Q_BYTES + 4 * QUERIES);
#pragma unroll
        for (int i = 0; i < PANELS; i++)
            copy_panel(to + turn.stage() * Q_BYTES + i * QUERIES * ROW, map, full, 64 * i, m * QUERIES, of);
        copy_bytes(statistics, from, 4 * QUERIES, full);
    }

    /* d (64 keys, QUERIES) = own · otherᵀ */
    DEVICE void ask(float (&d)[N], uint32 own, uint32 other) const {
        products_begin();
#pragma unroll
        for (int i = 0; i < D / 16; i++)
            multiply<0, 0>(d, matrix_at(own + i / 4 * KEYS * ROW + i % 4 * 32),
                           matrix_at(other + i / 4 * QUERIES * ROW + i % 4 * 32), i > 0);
        products_end();
    }

    /* sum (64 keys, D) += weights (64 keys, QUERIES) · other (QUERIES, D) */
    DEVICE void ask_sum(float (&sum)[D / 2], const uint32 (&weights)[N / 2], uint32 other) const {
        products_begin();
#pragma unroll
        for (int i = 0; i < QUERIES / 16; i++)
            multiply<1>(sum, weights + 4 * i, matrix_at(other + i * 2 * EIGHT, QUERIES * ROW), 1);
        products_end();
    }

    /* This warpgroup's part of dq: 64 queries and 64 columns, over all keys of the block. */
    DEVICE void ask_dq(float (&dq)[32], int own, uint32 slope) const {
        uint32 a = slope + (QUERIES == 128 ? own * KEYS * ROW : 0), b = keys + (D == 128 ? own * KEYS * ROW : 0);
        products_begin();
#pragma unroll
        for (int i = 0; i < KEYS / 16; i++)
            multiply<1, 1>(dq, matrix_at(a + i * 2 * EIGHT), matrix_at(b + i * 2 * EIGHT), i > 0);
        products_end();
    }

    DEVICE void compute(bf16 *dk, bf16 *dv, float *sums, float scale) {
        float dkeys[D / 2], dvalues[D / 2];
#pragma unroll
        for (int i = 0; i < D / 2; i++) dkeys[i] = dvalues[i] = 0.0f;
        Turn<STAGES> turn;
        int m = begin(), of = head * group, left = group * (end() - m);
        wait_for(&shared.own_full, 0);
        while (true) {
            step(dkeys, dvalues, turn, sums, of, m, scale * LOG2_E);
            if (--left == 0) break;
            if (++m == end()) m = begin(), of++;
        }
        hold(dkeys), hold(dvalues);
        int64 start = (int64)head * time * D;
        write_rows<D>(dk + start, dkeys, scale, scale, own_key(), time);
        write_rows<D>(dv + start, dvalues, 1.0f, 1.0f, own_key(), time);
    }

    static DEVICE int own() { return threadIdx.x / 128 - 1; }

    /* Key of a thread's upper row; the lower one is 8 on. */
    DEVICE int own_key() const { return first + 64 * own() + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4; }

    DEVICE void ask_scores(float (&score)[N], const Turn<STAGES> &turn) const {
        turn.wait_full(shared.queries);
        ask(score, keys + own() * 64 * ROW, queries + turn.stage() * Q_BYTES);
    }

    /* The tile of queries m of head `of`. */
    DEVICE void step(float (&dkeys)[D / 2], float (&dvalues)[D / 2], Turn<STAGES> &turn, float *sums,
                     int of, int m, float factor) const {
        int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, column = lane % 4 * 2;
        float score[N], slope[N], dq[32];
        uint32 p[N / 2], ds[N / 2];
        uint32 query = queries + turn.stage() * Q_BYTES, dy = upstream + turn.stage() * Q_BYTES;
        uint32 written = slopes + (turn.n & 1) * DS_BYTES;
        ask_scores(score, turn);
        turn.wait_full(shared.upstream);
        ask(slope, values + own() * 64 * ROW, dy);
        const float *lse = shared.lse[turn.stage()] + column, *delta = shared.delta[turn.stage()] + column;
        wait_for_products<1>();
        hold(score);
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            float2 from = *reinterpret_cast<const float2 *>(lse + 2 * i);
#pragma unroll
            for (int j = 0; j < 4; j++)
                score[i + j] = power_of_2(fmaf(score[i + j], factor, -(j % 2 ? from.y : from.x)));
        }
        /* Each branch waits for itself: else the assembler puts exp off until the products have ended. */
        if (m * QUERIES < first + 64 * own() + 63) {
            int rest = own_key() - m * QUERIES - column;
#pragma unroll
            for (int i = 0; i < N; i++)
                if (i / 4 * 8 + i % 2 < rest + i / 2 % 2 * 8) score[i] = 0.0f;
            wait_for_products<0>();
            hold(slope);
        } else {
            wait_for_products<0>();
            hold(slope);
        }
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            float2 from = *reinterpret_cast<const float2 *>(delta + 2 * i);
#pragma unroll
            for (int j = 0; j < 4; j += 2) {
                ds[(i + j) / 2] = two_bf16(score[i + j] * (slope[i + j] - from.x),
                                           score[i + j + 1] * (slope[i + j + 1] - from.y));
                p[(i + j) / 2] = two_bf16(score[i + j], score[i + j + 1]);
            }
        }
        ask_sum(dvalues, p, dy);
        ask_sum(dkeys, ds, query);
        write_slopes(written, ds, 64 * own() + 16 * warp, lane);
        writes_before_products();
        meet(1, 256);
        ask_dq(dq, own(), written);
        wait_for_products<1>();
        turn.done(shared.queries), turn.done(shared.upstream);
        turn.n++;
        wait_for_products<0>();
        hold(dq);
        int panel = D == 128 ? own() : 0, at = m * QUERIES + (QUERIES == 128 ? 64 * own() : 0);
        float *to = dq_tile(sums, of, padded, at, panel, PANELS);
        if (at >= time) return;
#pragma unroll
        for (int i = 0; i < 8; i++)
            asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to + i * 512),
                         "f"(dq[4 * i]), "f"(dq[4 * i + 1]), "f"(dq[4 * i + 2]), "f"(dq[4 * i + 3])
                         : "memory");
    }

    /* A warp's 16 keys of ds to panels of 64 queries, a row a key. */
    static DEVICE void write_slopes(uint32 to, const uint32 (&ds)[N / 2], int key, int lane) {
        int row = lane % 16;
        to += (key + row) * ROW;
#pragma unroll
        for (int i = 0; i < QUERIES / 16; i++) {
            uint32 piece = 2 * (i % 4) + lane / 16;
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                             to + i / 4 * KEYS * ROW + ((piece ^ (row % 8)) << 4)),
                         "r"(ds[4 * i]), "r"(ds[4 * i + 1]), "r"(ds[4 * i + 2]), "r"(ds[4 * i + 3])
                         : "memory");
        }
    }
};

template <int D, int QUERIES, int STAGES>
__global__ void __launch_bounds__(384, 1)
    flash_backward(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap dy,
                   const __grid_constant__ TensorMap k, const __grid_constant__ TensorMap v, const float *lse,
                   const float *delta, bf16 *dk, bf16 *dv, float *sums, int64 heads, int64 group, int64 time,
                   int64 padded, int64 section, double scale) {
    typedef Backward<D, QUERIES, STAGES> This;
    extern __shared__ char memory[];
    __shared__ alignas(16) typename This::Shared shared;
    uint32 keys = (address_of(memory) + EIGHT - 1) / EIGHT * EIGHT, values = keys + This::KV_BYTES;
    uint32 queries = values + This::KV_BYTES, upstream = queries + STAGES * This::Q_BYTES;
    uint32 slopes = upstream + STAGES * This::Q_BYTES;
    Block block(blockIdx.x, (int)padded / KEYS, (int)heads, (int)section); /* the first keys have most queries */
    This backward{shared,     keys,       values,             queries,    upstream,  slopes,
                  block.head, block.place * KEYS, (int)group, (int)time, (int)padded};
    if (threadIdx.x == 0) {
        fetch_map(&q), fetch_map(&dy), fetch_map(&k), fetch_map(&v);
        shared.queries.make(8), shared.upstream.make(8);
        make_barrier(&shared.own_full, 1);
        barriers_made();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        give_registers<24>();
        if (threadIdx.x == 0) backward.bring(&q, &dy, &k, &v, lse, delta);
    } else {
        take_registers<240>();
        backward.compute(dk, dv, sums, (float)scale);
    }
}

#endif
