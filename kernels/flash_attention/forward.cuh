/* y and lse. A block of the grid stays on its multiprocessor and takes blocks of queries, 64 for each warpgroup.
 *
 * While the product of p with v runs, the softmax of the next keys is computed, whose scores were asked for before. The
 * warpgroups take turns in asking for products, so that one multiplies while others compute exp.
 */
#include "blocks.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <int GROUPS, int STAGES> struct ForwardShared {
    Ring<STAGES> keys, values;
    Barrier query_full, query_empty;
    int block;
};

template <int D, int GROUPS, int STAGES, bool COUNTED> struct Forward {
    static const int QUERIES = 64 * GROUPS, PANELS = D / 64;
    static const int Q_BYTES = QUERIES * D * 2, KV_BYTES = KEYS * D * 2;
    typedef ForwardShared<GROUPS, STAGES> Shared;

    Shared &shared;
    uint32 queries, keys, values; /* tiles */
    int heads, group, time, section, blocks;

    /* Blocks are cut off from the last query on, so that the one that is not whole has the fewest keys; a warpgroup's
     * queries begin at a multiple of 64, which may be below 0 there. */
    DEVICE int first_query(const Block &block) const { return (time + 63) / 64 * 64 - (block.place + 1) * QUERIES; }
    DEVICE int keys_of(int first) const { return (min(first + QUERIES, time) + KEYS - 1) / KEYS; }

    /* The next block of this multiprocessor: as a counter gives them, or there and back along the multiprocessors, so
     * that each has about as much. */
    DEVICE int following(int turn, int *next) const {
        if (COUNTED) return gridDim.x + atomicAdd(next, 1);
        return (turn + 1) * gridDim.x + (turn % 2 ? blockIdx.x : gridDim.x - 1 - blockIdx.x);
    }

    /* One thread: the tiles of the block that a counter gives, of the next one, and so on. */
    DEVICE void bring(const TensorMap *q, const TensorMap *k, const TensorMap *v, int *next) {
        Turn<STAGES> key, value;
        int index = blockIdx.x;
        for (int turn = 0;; turn++) {
            Block block(min(index, blocks - 1), blocks / heads, heads, section);
            int first = first_query(block), n = keys_of(first), head = block.head / group;
            if (index < blocks) bring_tile(keys, k, shared.keys, key, n - 1, head);
            wait_for(&shared.query_empty, (turn & 1) ^ 1);
            shared.block = index;
            if (index >= blocks) break;
            index = following(turn, next);
            arrive_expecting(&shared.query_full, Q_BYTES);
#pragma unroll
            for (int i = 0; i < PANELS; i++)
                copy_panel(queries + i * QUERIES * ROW, q, &shared.query_full, 64 * i, first, block.head);
            for (int i = n - 1; i >= 0; i--) {
                if (i > 0) bring_tile(keys, k, shared.keys, key, i - 1, head);
                bring_tile(values, v, shared.values, value, i, head);
            }
        }
        arrive(&shared.query_full);
    }

    DEVICE void bring_tile(uint32 to, const TensorMap *map, Ring<STAGES> &ring, Turn<STAGES> &turn, int i, int head) {
        turn.wait_empty(ring);
        Barrier *full = &ring.full[turn.stage()];
        arrive_expecting(full, KV_BYTES);
#pragma unroll
        for (int panel = 0; panel < PANELS; panel++)
            copy_panel(to + turn.stage() * KV_BYTES + panel * KEYS * ROW, map, full, 64 * panel, i * KEYS, head);
        turn.n++;
    }

    /* score = q · kᵀ: a warpgroup's 64 queries and a tile of keys. */
    DEVICE void ask_scores(float (&score)[64], int own, int stage) const {
        products_begin();
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            uint32 a = queries + own * 64 * ROW + i / 4 * QUERIES * ROW + i % 4 * 32;
            uint32 b = keys + stage * KV_BYTES + i / 4 * KEYS * ROW + i % 4 * 32;
            multiply<0, 0>(score, matrix_at(a), matrix_at(b), i > 0);
        }
        products_end();
    }

    /* result += p · v */
    DEVICE void ask_result(float (&result)[D / 2], const uint32 (&p)[32], int stage) const {
        products_begin();
#pragma unroll
        for (int i = 0; i < KEYS / 16; i++)
            multiply<1>(result, p + 4 * i, matrix_at(values + stage * KV_BYTES + i * 2 * EIGHT, KEYS * ROW), 1);
        products_end();
    }

    /* A scale below 0 would turn the order of scores round, and one of 0 make NaN of those that are masked: the queries
     * are negated or zeroed instead. */
    DEVICE void change_queries(int own, bool negative) const {
        for (int i = threadIdx.x % 128; i < 512 * PANELS; i += 128) {
            uint32 at = queries + i / 512 * QUERIES * ROW + own * 64 * ROW + i % 512 * 16, x[4];
            asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                         : "r"(at));
            for (int j = 0; j < 4; j++) x[j] = negative ? x[j] ^ 0x80008000u : 0;
            asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(x[0]), "r"(x[1]), "r"(x[2]),
                         "r"(x[3])
                         : "memory");
        }
        writes_before_products();
        meet(1 + GROUPS + own, 128);
    }

    /* A warp has read its queries for the last time, and every lane of it which block they are. */
    DEVICE void leave_queries() const {
        __syncwarp();
        arrive_as_warp(&shared.query_empty);
    }

    DEVICE void compute(bf16 *y, float *lse, float scale) {
        float factor = scale == 0.0f ? 1.0f : fabsf(scale) * LOG2_E;
        int own = threadIdx.x / 128 - 1, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
        int my_turn = 1 + own, others_turn = 1 + (own + 1) % GROUPS;
        Turn<STAGES> key, value;
        if (own == GROUPS - 1) let_go(1, 256);
        for (int turn = 0;; turn++) {
            wait_for(&shared.query_full, turn & 1);
            int index = shared.block;
            if (index >= blocks) break;
            if (scale <= 0.0f) change_queries(own, scale < 0.0f);
            Block block(index, blocks / heads, heads, section);
            int first = first_query(block), n = keys_of(first) - 1;
            first += 64 * own;
            int row = first + 16 * warp + lane / 4, diagonal = first < 0 ? -1 : min(first / KEYS, n);
            float score[64], result[D / 2], top[2], sum[2];
            uint32 p[32];
#pragma unroll
            for (int i = 0; i < D / 2; i++) result[i] = 0.0f;
            for (; n > diagonal; n--) { /* these keys all come after this warpgroup's queries */
                key.wait_full(shared.keys), value.wait_full(shared.values);
                key.done(shared.keys), value.done(shared.values);
                key.n++, value.n++;
                if (n > 0) meet(my_turn, 256), let_go(others_turn, 256);
            }
            if (diagonal < 0) { /* and so do all */
                leave_queries();
                continue;
            }
            key.wait_full(shared.keys);
            ask_scores(score, own, key.stage());
            wait_for_products<0>();
            hold(score);
            key.done(shared.keys);
            key.n++;
            mask(score, row - n * KEYS);
            begin_softmax(score, top, sum, factor);
            pack(score, p);
            for (; n > 0; n--) {
                key.wait_full(shared.keys);
                meet(my_turn, 256);
                ask_scores(score, own, key.stage());
                value.wait_full(shared.values);
                ask_result(result, p, value.stage());
                let_go(others_turn, 256);
                wait_for_products<1>();
                hold(score);
                key.done(shared.keys);
                key.n++;
                float shrink[2];
                bool grows = softmax(score, top, sum, shrink, factor);
                if (grows) {
                    wait_for_products<0>();
                    hold(result);
#pragma unroll
                    for (int i = 0; i < D / 2; i++) result[i] *= shrink[i / 2 % 2];
                } else {
                    wait_for_products<0>();
                    hold(result);
                }
                value.done(shared.values);
                value.n++;
                pack(score, p);
            }
            leave_queries();
            value.wait_full(shared.values);
            ask_result(result, p, value.stage());
#pragma unroll
            for (int i = 0; i < 2; i++) {
                sum[i] += __shfl_xor_sync(FULL_WARP, sum[i], 1);
                sum[i] += __shfl_xor_sync(FULL_WARP, sum[i], 2);
            }
            wait_for_products<0>();
            hold(result);
            value.done(shared.values);
            value.n++;
            int64 start = (int64)block.head * time;
            write_rows<D>(y + start * D, result, 1.0f / sum[0], 1.0f / sum[1], row, time);
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (lane % 4 == 0 && row + 8 * i < time)
                    lse[start + row + 8 * i] = (top[i] * factor + log2f(sum[i])) * 0.6931471805599453f;
        }
    }

    /* Keys after a query; `row` counts from the tile's first key. */
    static DEVICE void mask(float (&score)[64], int row) {
        int column = threadIdx.x % 4 * 2;
#pragma unroll
        for (int i = 0; i < 64; i++)
            if (column + i / 4 * 8 + i % 2 > row + i / 2 % 2 * 8) score[i] = -infinity();
    }

    static DEVICE void greatest(const float (&score)[64], float (&high)[2]) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            high[i] = fmaxf(score[2 * i], score[2 * i + 1]);
#pragma unroll
            for (int n = 4; n < 64; n += 4) high[i] = fmaxf(high[i], fmaxf(score[n + 2 * i], score[n + 2 * i + 1]));
            high[i] = fmaxf(high[i], __shfl_xor_sync(FULL_WARP, high[i], 1));
            high[i] = fmaxf(high[i], __shfl_xor_sync(FULL_WARP, high[i], 2));
        }
    }

    static DEVICE void powers(float (&score)[64], const float (&top)[2], float (&sum)[2], float factor) {
#pragma unroll
        for (int i = 0; i < 64; i++) {
            float x = fmaf(score[i], factor, -top[i / 2 % 2] * factor);
            score[i] = power_of_2(x);
            sum[i / 2 % 2] += score[i];
        }
    }

    static DEVICE void begin_softmax(float (&score)[64], float (&top)[2], float (&sum)[2], float factor) {
        greatest(score, top);
        sum[0] = sum[1] = 0.0f;
        powers(score, top, sum, factor);
    }

    /* Whether what was summed must shrink: the greatest score that it is relative to is only followed when a row's has
     * grown by 2^8, which neither fp32 nor bf16 minds. */
    static DEVICE bool softmax(float (&score)[64], float (&top)[2], float (&sum)[2], float (&shrink)[2], float factor) {
        float high[2];
        greatest(score, high);
        bool grows = (high[0] - top[0]) * factor > 8.0f || (high[1] - top[1]) * factor > 8.0f;
        grows = __any_sync(FULL_WARP, grows);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            high[i] = grows ? fmaxf(high[i], top[i]) : top[i];
            shrink[i] = power_of_2((top[i] - high[i]) * factor);
            sum[i] *= shrink[i];
            top[i] = high[i];
        }
        powers(score, top, sum, factor);
        return grows;
    }

    static DEVICE void pack(const float (&score)[64], uint32 (&p)[32]) {
#pragma unroll
        for (int i = 0; i < 32; i++) p[i] = two_bf16(score[2 * i], score[2 * i + 1]);
    }
};

__global__ void flash_forward_begin(int *next) {
    if (threadIdx.x == 0) *next = 0;
}

template <int D, int GROUPS, int STAGES, bool COUNTED>
__global__ void __launch_bounds__(128 * (GROUPS + 1), 1)
    flash_forward(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                  const __grid_constant__ TensorMap v, bf16 *y, float *lse, int *next, int64 heads, int64 group,
                  int64 time, int64 section, double scale) {
    typedef Forward<D, GROUPS, STAGES, COUNTED> This;
    extern __shared__ char memory[];
    __shared__ typename This::Shared shared;
    uint32 tiles = (address_of(memory) + EIGHT - 1) / EIGHT * EIGHT;
    uint32 keys = tiles + This::Q_BYTES, values = keys + STAGES * This::KV_BYTES;
    int blocks = (int)heads * (((int)time + This::QUERIES - 1) / This::QUERIES);
    This forward{shared, tiles, keys, values, (int)heads, (int)group, (int)time, (int)section, blocks};
    if (threadIdx.x == 0) {
        fetch_map(&q), fetch_map(&k), fetch_map(&v);
        shared.keys.make(4 * GROUPS), shared.values.make(4 * GROUPS);
        make_barrier(&shared.query_full, 1), make_barrier_of_warps(&shared.query_empty, 4 * GROUPS);
        barriers_made();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        give_registers<GROUPS == 3 ? 32 : 24>();
        if (threadIdx.x == 0) forward.bring(&q, &k, &v, next);
    } else {
        take_registers<GROUPS == 3 ? 160 : 240>();
        forward.compute(y, lse, (float)scale);
    }
}

#endif
