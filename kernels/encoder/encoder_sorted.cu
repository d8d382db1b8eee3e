/* The encoder's backward over tokens that are sorted by word first: version 3. encoder.cu says what is computed.
 *
 * The sort keeps the order of a word's tokens, so every sum has a fixed order: it takes 8 bits of the words a pass. The
 * sorted tokens are cut into pieces of 32. What a piece holds of a word it sums alone, so that a word of many tokens is
 * shared by many warps; where a word goes on over several pieces, their sums are added afterwards, in order.
 *
 * An entry is a token with its word in the upper 32 bits; V stands for a word that is no row of dwte. Bits of `add` say
 * which outputs to add to: ADD_DWTE, ADD_DWPE.
 */
#include <perfkit/rows.cuh>

constexpr int DIGITS = 256, WARPS = 8;      /* of a pass; of a block that sorts, one thread a digit */
constexpr int EACH = 8, TILE = DIGITS * EACH; /* tokens of a thread, and of a block */
constexpr int PIECE = 32, AHEAD = 8;        /* entries of a piece; rows of dx under way at once */

DEVICE int word_of(int64 entry) { return (int)(entry >> 32); }
DEVICE int token_of(int64 entry) { return (int)entry; }
DEVICE int digit_of(int64 entry, int64 shift) { return (int)(entry >> shift) & (DIGITS - 1); }

/* The first pass reads idx, the others what the one before wrote. */
template <bool FIRST> DEVICE int64 entry_at(const int64 *from, int64 i, int64 V) {
    if (!FIRST) return from[i];
    int64 word = from[i];
    return (word >= 0 && word < V ? word : V) << 32 | i;
}

/* ---- the sort ------------------------------------------------------------------------------------------------------- */

/* counts[d][b]: the tokens of block b with digit d. */
template <bool FIRST>
__global__ void encoder_backward_count_v3(const int64 *from, int *counts, int64 N, int64 V, int64 shift) {
    __shared__ int of_digit[DIGITS];
    of_digit[threadIdx.x] = 0;
    __syncthreads();
    for (int k = 0; k < EACH; k++) {
        int64 i = (int64)blockIdx.x * TILE + k * DIGITS + threadIdx.x;
        if (i < N) atomicAdd(of_digit + digit_of(entry_at<FIRST>(from, i, V), shift), 1);
    }
    __syncthreads();
    counts[(int64)threadIdx.x * gridDim.x + blockIdx.x] = of_digit[threadIdx.x];
}

/* The sum of the values of the threads before this one, in a block of DIGITS. */
DEVICE int sum_before(int value) {
    __shared__ int of_warp[WARPS];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, sum = value;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        int other = __shfl_up_sync(FULL_WARP, sum, step);
        if (lane >= step) sum += other;
    }
    if (lane == 31) of_warp[warp] = sum;
    __syncthreads();
    sum -= value;
    for (int w = 0; w < warp; w++) sum += of_warp[w];
    return sum;
}

/* Where the entries of this thread's digit begin that are this block's: behind those of smaller digits, and behind those
 * of the blocks before. */
DEVICE int begin_of_digit(const int *counts) {
    int before = 0, all = 0;
    for (int b = 0; b < gridDim.x; b++) {
        int count = counts[(int64)threadIdx.x * gridDim.x + b];
        if (b < blockIdx.x) before += count;
        all += count;
    }
    return sum_before(all) + before;
}

template <bool FIRST>
__global__ void encoder_backward_sort_v3(const int64 *from, const int *counts, int64 *to, int64 N, int64 V,
                                         int64 shift) {
    __shared__ int places[WARPS][DIGITS]; /* a warp's entries of each digit so far; then where they go */
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64 first = (int64)blockIdx.x * TILE + warp * 32 * EACH + lane; /* a warp's lie together: their order is kept */
    int64 entries[EACH];
    int ranks[EACH];
    for (int w = 0; w < WARPS; w++) places[w][threadIdx.x] = 0;
    int begin = begin_of_digit(counts);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < EACH; k++) entries[k] = first + k * 32 < N ? entry_at<FIRST>(from, first + k * 32, V) : -1;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        int digit = entries[k] < 0 ? DIGITS : digit_of(entries[k], shift);
        uint32 alike = __match_any_sync(FULL_WARP, digit);
        int before = digit < DIGITS ? places[warp][digit] : 0;
        ranks[k] = before + __popc(alike & ((1u << lane) - 1));
        __syncwarp();
        if (digit < DIGITS && __ffs(alike) - 1 == lane) places[warp][digit] = before + __popc(alike);
        __syncwarp();
    }
    __syncthreads();
    for (int w = 0; w < WARPS; w++) {
        int count = places[w][threadIdx.x];
        places[w][threadIdx.x] = begin;
        begin += count;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < EACH; k++)
        if (entries[k] >= 0) to[places[warp][digit_of(entries[k], shift)] + ranks[k]] = entries[k];
}

/* ---- the sums ------------------------------------------------------------------------------------------------------- */

/* out (+)= sum, WIDTH columns. */
template <class T, int WIDTH> DEVICE void put_sum(T *out, const float (&sum)[WIDTH], bool add) {
    float v[WIDTH];
    if (add) load(out, v);
#pragma unroll
    for (int j = 0; j < WIDTH; j++) v[j] = (add ? v[j] : 0.0f) + sum[j];
    store(out, v);
}

/* One warp a piece and 32 · WIDTH columns. parts[piece][0] is the sum of a word that began in a piece before,
 * parts[piece][1] that of a word that begins here and goes on. */
template <class T, int WIDTH>
__global__ void encoder_backward_pieces_v3(const T *dx, const int64 *sorted, T *dwte, float *parts, int64 N, int64 C,
                                           int64 V, int64 add) {
    int64 piece = (int64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, start = piece * PIECE;
    int lane = threadIdx.x % 32;
    if (start >= N) return;
    int64 c = ((int64)blockIdx.y * 32 + lane) * WIDTH;
    int64 mine = start + lane < N ? sorted[start + lane] : V << 32;
    int word = word_of(mine), token = token_of(mine);
    int after = start + PIECE < N ? word_of(sorted[start + PIECE]) : -1;
    bool began = start > 0 && word_of(sorted[start - 1]) == __shfl_sync(FULL_WARP, word, 0);
    float sum[WIDTH] = {};
    for (int first = 0; first < PIECE; first += AHEAD) {
        Pack<T, WIDTH> packs[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            int64 row = __shfl_sync(FULL_WARP, token, first + k);
            packs[k].zero();
            if (__shfl_sync(FULL_WARP, word, first + k) < V && c < C) packs[k].load(dx + row * C + c);
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            int i = first + k, ours = __shfl_sync(FULL_WARP, word, i);
            int next = __shfl_sync(FULL_WARP, word, (i + 1) % PIECE);
            bool goes_on = i + 1 == PIECE && after == ours;
#pragma unroll
            for (int j = 0; j < WIDTH; j++) sum[j] += packs[k].at(j);
            if (i + 1 < PIECE && next == ours) continue;
            if (ours < V && c < C) {
                if (began || goes_on) {
                    float *part = parts + (piece * 2 + !began) * C + c;
#pragma unroll
                    for (int j = 0; j < WIDTH; j++) part[j] = sum[j];
                } else {
                    put_sum(dwte + ours * C + c, sum, add & 1);
                }
            }
            began = false;
#pragma unroll
            for (int j = 0; j < WIDTH; j++) sum[j] = 0.0f;
        }
    }
}

/* The words that go on over several pieces: one warp for the piece in which a word begins, and 32 · WIDTH columns. */
template <class T, int WIDTH>
__global__ void encoder_backward_words_v3(const float *parts, const int64 *sorted, T *dwte, int64 N, int64 C,
                                          int64 V, int64 add) {
    int64 piece = (int64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, start = piece * PIECE;
    int lane = threadIdx.x % 32;
    if (start + PIECE >= N) return;
    int word = word_of(sorted[start + PIECE - 1]);
    bool from_before = start > 0 && word_of(sorted[start - 1]) == word;
    if (word >= V || word_of(sorted[start + PIECE]) != word || from_before) return;
    int64 c = ((int64)blockIdx.y * 32 + lane) * WIDTH;
    float sum[WIDTH] = {};
    if (c < C) {
#pragma unroll
        for (int j = 0; j < WIDTH; j++) sum[j] = parts[(piece * 2 + 1) * C + c + j];
    }
    for (int64 next = piece + 1;; next += 32) {
        int64 first = (next + lane) * PIECE; /* a word's pieces follow one another */
        int pieces = __popc(__ballot_sync(FULL_WARP, first < N && word_of(sorted[first]) == word));
        if (c < C) {
#pragma unroll 4
            for (int p = 0; p < pieces; p++) {
#pragma unroll
                for (int j = 0; j < WIDTH; j++) sum[j] += parts[(next + p) * 2 * C + c + j];
            }
        }
        if (pieces < 32) break;
    }
    if (c < C) put_sum(dwte + word * C + c, sum, add & 1);
}

template <class T, int WIDTH> __global__ void encoder_backward_fill_v3(T *out, int64 n) {
    int64 i = ((int64)blockIdx.x * blockDim.x + threadIdx.x) * WIDTH;
    float zeros[WIDTH] = {};
    if (i < n) store(out + i, zeros);
}

template <class T, int WIDTH>
__global__ void encoder_backward_wpe_v3(const T *dx, T *dwpe, int64 B, int64 time, int64 C, int64 P, int64 add) {
    int64 i = ((int64)blockIdx.x * blockDim.x + threadIdx.x) * WIDTH;
    if (i >= P * C || (add && i / C >= time)) return;
    float sum[WIDTH] = {};
    if (i / C < time) {
#pragma unroll 8
        for (int64 b = 0; b < B; b++) {
            float v[WIDTH];
            load(dx + b * time * C + i, v);
#pragma unroll
            for (int j = 0; j < WIDTH; j++) sum[j] += v[j];
        }
    }
    put_sum(dwpe + i, sum, add);
}
