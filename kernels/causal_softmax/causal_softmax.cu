/* Causal softmax over the rows of (B NH, T, S), which are the last T of S tokens: row i of a matrix looks at its first
 * S - T + i + 1 columns, the others are 0.
 *
 * att = exp(scale s) / sum; dscores = scale att (datt - sum of datt att). `rows` = B NH T.
 */
#include <perfkit/rows.cuh>

/* ---- version 1: one thread a row ---------------------------------------------------------------------------------- */

template <class E>
__global__ void causal_softmax_forward_v1(const E *scores, E *att, int64 rows, int64 T, int64 S, double scale) {
    int64 row = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    int64 used = S - T + row % T + 1;
    scores += row * S;
    att += row * S;
    float largest = -infinity();
    double sum = 0.0; /* one after the other, thousands of them */
    for (int64 c = 0; c < used; c++) largest = fmaxf(largest, (float)scale * get(scores + c));
    for (int64 c = 0; c < used; c++) sum += expf((float)scale * get(scores + c) - largest);
    for (int64 c = 0; c < S; c++)
        put(att + c, c < used ? expf((float)scale * get(scores + c) - largest) / (float)sum : 0.0f);
}

template <class E>
__global__ void causal_softmax_backward_v1(const E *datt, const E *att, E *dscores, int64 rows, int64 T, int64 S, double scale) {
    int64 row = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    int64 used = S - T + row % T + 1;
    datt += row * S;
    att += row * S;
    dscores += row * S;
    double sum = 0.0;
    for (int64 c = 0; c < used; c++) sum += get(datt + c) * get(att + c);
    for (int64 c = 0; c < S; c++)
        put(dscores + c, c < used ? (float)scale * get(att + c) * (get(datt + c) - (float)sum) : 0.0f);
}

/* ---- version 2: one warp a row, WIDTH elements an access; the row is read twice ------------------------------------ */

template <class E, int WIDTH>
__global__ void causal_softmax_forward_v2(const E *scores, E *att, int64 rows, int64 T, int64 S, double scale) {
    int64 row = ((int64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (row >= rows) return;
    int used = (int)(S - T + row % T) + 1, first = threadIdx.x % 32 * WIDTH;
    float factor = (float)scale, v[WIDTH];
    scores += row * S;
    att += row * S;
    Exponentials seen;
    for (int c = first; c < used; c += 32 * WIDTH) {
        load(scores + c, v);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) v[j] = c + j < used ? factor * v[j] : -infinity();
        seen.take(v);
    }
    seen.join_group<32>();
    float scaled = 1.0f / seen.sum;
    for (int c = first; c < S; c += 32 * WIDTH) {
        if (c < used) load(scores + c, v);
#pragma unroll
        for (int j = 0; j < WIDTH; j++)
            v[j] = c + j < used ? exponential_over(factor * v[j], seen.from) * scaled : 0.0f;
        store(att + c, v);
    }
}

template <class E, int WIDTH>
__global__ void causal_softmax_backward_v2(const E *datt, const E *att, E *dscores, int64 rows, int64 T, int64 S, double scale) {
    int64 row = ((int64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (row >= rows) return;
    int used = (int)(S - T + row % T) + 1, first = threadIdx.x % 32 * WIDTH;
    float factor = (float)scale, d[WIDTH], v[WIDTH], sum = 0.0f;
    datt += row * S;
    att += row * S;
    dscores += row * S;
    for (int c = first; c < used; c += 32 * WIDTH) {
        load(datt + c, d);
        load(att + c, v);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) sum += c + j < used ? d[j] * v[j] : 0.0f;
    }
    sum = over_warp<Sum>(sum);
    for (int c = first; c < S; c += 32 * WIDTH) {
        if (c < used) load(datt + c, d), load(att + c, v);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) v[j] = c + j < used ? factor * v[j] * (d[j] - sum) : 0.0f;
        store(dscores + c, v);
    }
}

/* ---- version 3: the row stays in registers and is read once; what lies behind the diagonal is not read -------------- */

template <class E, int WIDTH, int PACKS, int THREADS, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    causal_softmax_forward_v3(const E *scores, E *att, int64 rows, int64 T, int64 S, double scale) {
    int64 row = (int64)blockIdx.x * (BLOCK / THREADS) + threadIdx.x / THREADS;
    if (row >= rows) return;
    int used = (int)(S - T + row % T) + 1;
    float factor = (float)scale;
    Row<E, WIDTH, PACKS, THREADS> held;
    Numbers<WIDTH, PACKS> powers;
    held.load(scores + row * S, used);
    powers.each([&](float, int k, int j) { return held.column(k) + j < used ? factor * held.at(k, j) : -infinity(); });
    float largest = held.largest([&](float, int k, int j) { return powers.v[k][j]; });
    powers.each([&](float v, int, int) { return exponential(v - largest); });
    float scaled = 1.0f / held.sum([&](float, int k, int j) { return powers.v[k][j]; });
    held.store(att + row * S, (int)S, [&](float, int k, int j) { return powers.v[k][j] * scaled; });
}

template <class E, int WIDTH, int PACKS, int THREADS, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    causal_softmax_backward_v3(const E *datt, const E *att, E *dscores, int64 rows, int64 T, int64 S, double scale) {
    int64 row = (int64)blockIdx.x * (BLOCK / THREADS) + threadIdx.x / THREADS;
    if (row >= rows) return;
    int used = (int)(S - T + row % T) + 1;
    Row<E, WIDTH, PACKS, THREADS> a, d;
    a.load(att + row * S, used);
    d.load_part(datt + row * S, used, 0.0f); /* behind the diagonal att is 0 */
    float sum = a.sum([&](float v, int k, int j) { return v * d.at(k, j); });
    float factor = (float)scale;
    a.store(dscores + row * S, (int)S, [&](float v, int k, int j) {
        return a.column(k) + j < used ? factor * v * (d.at(k, j) - sum) : 0.0f;
    });
}
