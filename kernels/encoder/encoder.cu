/* The encoder: x[b,t] = wte[idx[b,t]] + wpe[t], or the token's row alone, rows of C numbers; backward, dwte[v] is the sum of dx over the tokens
 * with idx = v, dwpe[t] the sum over b of dx[b,t], and rows that nothing asks for are 0.
 *
 * B batch, T time, V rows of wte, P rows of wpe (at least T). A token that is no row of wte gives NaN forward, and
 * counts for nothing backward: a kernel cannot raise an error without the processor waiting for it.
 */
#include <perfkit/rows.cuh>

/* ---- version 1: one element a thread -------------------------------------------------------------------------------- */

template <class T>
__global__ void encoder_forward_v1(const int64 *idx, const T *wte, const T *wpe, T *x, int64 n, int64 time, int64 C,
                                   int64 V) {
    int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int64 c = i % C, token = idx[i / C], t = i / C % time;
    put(x + i, token >= 0 && token < V ? get(wte + token * C + c) + get(wpe + t * C + c) : not_a_number());
}

template <class T>
__global__ void embedding_forward_v1(const int64 *idx, const T *weight, T *x, int64 n, int64 C, int64 V) {
    int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int64 token = idx[i / C];
    put(x + i, token >= 0 && token < V ? get(weight + token * C + i % C) : not_a_number());
}

/* One element of dwte a thread: every thread looks at all tokens. */
template <class T>
__global__ void encoder_backward_wte_v1(const T *dx, const int64 *idx, T *dwte, int64 tokens, int64 C, int64 V) {
    int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= V * C) return;
    float sum = 0.0f;
    for (int64 token = 0; token < tokens; token++)
        if (idx[token] == i / C) sum += get(dx + token * C + i % C);
    put(dwte + i, sum);
}

template <class T>
__global__ void encoder_backward_wpe_v1(const T *dx, T *dwpe, int64 B, int64 time, int64 C, int64 P) {
    int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= P * C) return;
    float sum = 0.0f;
    if (i / C < time)
        for (int64 b = 0; b < B; b++) sum += get(dx + b * time * C + i);
    put(dwpe + i, sum);
}

/* ---- version 2: WIDTH elements an access, several under way at once; sums without atomics, in a fixed order ----------- */

/* One warp a token. */
template <class T, int WIDTH, int PACKS>
__global__ void encoder_forward_v2(const int64 *idx, const T *wte, const T *wpe, T *x, int64 tokens, int64 time,
                                   int64 C, int64 V) {
    int64 token = ((int64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (token >= tokens) return;
    int64 word = idx[token];
    bool known = word >= 0 && word < V;
    const T *a = wte + (known ? word : 0) * C, *b = wpe + token % time * C;
    for (int64 first = threadIdx.x % 32 * WIDTH; first < C; first += 32 * WIDTH * PACKS) {
        Pack<T, WIDTH> of_word[PACKS], of_place[PACKS];
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            int64 c = first + k * 32 * WIDTH;
            if (c < C) of_word[k].load(a + c), of_place[k].load(b + c);
        }
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            int64 c = first + k * 32 * WIDTH;
            if (c >= C) continue;
            float v[WIDTH], w[WIDTH];
            of_word[k].unpack(v);
            of_place[k].unpack(w);
#pragma unroll
            for (int j = 0; j < WIDTH; j++) v[j] = known ? v[j] + w[j] : not_a_number();
            store(x + token * C + c, v);
        }
    }
}

/* One warp a token. */
template <class T, int WIDTH, int PACKS>
__global__ void embedding_forward_v2(const int64 *idx, const T *weight, T *x, int64 tokens, int64 C, int64 V) {
    int64 token = ((int64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (token >= tokens) return;
    int64 word = idx[token];
    bool known = word >= 0 && word < V;
    const T *row = weight + (known ? word : 0) * C;
    float unknown[WIDTH];
#pragma unroll
    for (int j = 0; j < WIDTH; j++) unknown[j] = not_a_number();
    for (int64 first = threadIdx.x % 32 * WIDTH; first < C; first += 32 * WIDTH * PACKS) {
        Pack<T, WIDTH> packs[PACKS];
#pragma unroll
        for (int k = 0; k < PACKS; k++)
            if (first + k * 32 * WIDTH < C) packs[k].load(row + first + k * 32 * WIDTH);
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            if (first + k * 32 * WIDTH >= C) continue;
            if (!known) packs[k].pack(unknown);
            packs[k].store(x + token * C + first + k * 32 * WIDTH);
        }
    }
}

/* Adds to `sum` the elements from c on of those of 32 tokens whose lane votes, AHEAD of them under way at once, in order. */
template <class T, int WIDTH>
DEVICE void add_tokens(float (&sum)[WIDTH], const T *dx, int token, bool ours, int64 c, int64 C) {
    constexpr int AHEAD = 4;
    uint32 votes = __ballot_sync(FULL_WARP, ours);
    while (votes) {
        Pack<T, WIDTH> packs[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            packs[k].zero();
            int64 next = __shfl_sync(FULL_WARP, token, votes ? __ffs(votes) - 1 : 0);
            if (votes && c < C) packs[k].load(dx + next * C + c);
            votes &= votes - 1;
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
#pragma unroll
            for (int j = 0; j < WIDTH; j++) sum[j] += packs[k].at(j);
    }
}

/* A block of 256 threads owns WORDS rows of dwte: it goes through all tokens, notes in order those of its words, and
 * writes each of its rows once. No atomics on dwte, no pass that fills with zeros. Where more tokens are its than the
 * list has `room` for, it goes through all tokens again for each of its words. */
template <class T, int WIDTH, int WORDS>
__global__ void __launch_bounds__(256, 4)
    encoder_backward_wte_v2(const T *dx, const int64 *idx, T *dwte, int64 tokens, int64 C, int64 V, int64 room) {
    extern __shared__ int list[]; /* tokens of our words, in order; the word's number in the upper bits */
    __shared__ int of_warp[8], count;
    __shared__ int present[WORDS]; /* whether some token names the word */
    constexpr int EACH = 8, SHIFT = 24, TOKEN = (1 << SHIFT) - 1;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64 first_word = (int64)blockIdx.x * WORDS;
    if (threadIdx.x == 0) count = 0;
    if (threadIdx.x < WORDS) present[threadIdx.x] = 0;
    __syncthreads();
    for (int64 start = 0; start < tokens; start += 256 * EACH) {
        int64 first = start + warp * 32 * EACH + lane; /* a warp's tokens lie together, so that their order is kept */
        int word[EACH];
        uint32 votes[EACH];
        int of_this = 0;
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            int64 distance = first + k * 32 < tokens ? idx[first + k * 32] - first_word : -1;
            word[k] = distance >= 0 && distance < WORDS && first_word + distance < V ? (int)distance : -1;
        }
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            votes[k] = __ballot_sync(FULL_WARP, word[k] >= 0);
            of_this += __popc(votes[k]);
        }
        if (lane == 0) of_warp[warp] = of_this;
        if (!__syncthreads_or(of_this)) continue; /* many groups of tokens hold none of ours */
        int before = count, all = 0;
        for (int w = 0; w < 8; w++) {
            if (w < warp) before += of_warp[w];
            all += of_warp[w];
        }
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            int place = before + __popc(votes[k] & ((1u << lane) - 1));
            if (word[k] >= 0) {
                if (place < room) list[place] = (int)(first + k * 32) | word[k] << SHIFT;
                present[word[k]] = 1;
            }
            before += __popc(votes[k]);
        }
        __syncthreads();
        if (threadIdx.x == 0) count += all;
        __syncthreads();
    }
    int64 words = V - first_word < WORDS ? V - first_word : WORDS;
    float zeros[WIDTH] = {};
    for (int word = warp; word < words; word += 8)
        if (!present[word])
            for (int64 c = lane * WIDTH; c < C; c += 32 * WIDTH) store(dwte + (first_word + word) * C + c, zeros);
    /* One warp a word and stretch of columns: the tokens of other words are passed over. */
    int stretches = (int)((C + 32 * WIDTH - 1) / (32 * WIDTH));
    for (int task = warp; task < words * stretches; task += 8) {
        int word = task / stretches;
        if (!present[word]) continue;
        int64 c = ((int64)(task % stretches) * 32 + lane) * WIDTH;
        float sum[WIDTH] = {};
        if (count <= room)
            for (int start = 0; start < count; start += 32) {
                int entry = start + lane < count ? list[start + lane] : -1;
                add_tokens(sum, dx, entry & TOKEN, entry >= 0 && entry >> SHIFT == word, c, C);
            }
        else
            for (int64 start = lane; start - lane < tokens; start += 32)
                add_tokens(sum, dx, (int)start, start < tokens && idx[start] == first_word + word, c, C);
        if (c < C) store(dwte + (first_word + word) * C + c, sum);
    }
}

template <class T, int WIDTH>
__global__ void encoder_backward_wpe_v2(const T *dx, T *dwpe, int64 B, int64 time, int64 C, int64 P) {
    int64 i = ((int64)blockIdx.x * blockDim.x + threadIdx.x) * WIDTH;
    if (i >= P * C) return;
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
    store(dwpe + i, sum);
}
