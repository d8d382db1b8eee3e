/* The fused classifier: the loss of each of N rows, and its gradient in the place of the logits.
 *
 * A row has V logits and padding up to Vp. losses = logsumexp - logits[target]; then
 * logits = dloss (exp(logits - logsumexp) - [v = target]), 0 in the padding and in rows with target = ignore.
 * A target that is neither an index below V nor `ignore` makes its row NaN.
 */
#include <perfkit/rows.cuh>

/* What a row's target asks for: gradients are multiplied by `scaled`; the element `chosen` loses 1. */
struct Target {
    float scaled;
    int chosen;
    bool counts;
    DEVICE Target(int64 target, int64 V, int64 ignore, double dloss) {
        bool known = target >= 0 && target < V;
        counts = target != ignore;
        chosen = known ? (int)target : 0;
        scaled = !counts ? 0.0f : known ? (float)dloss : not_a_number();
    }
    /* 0 · scaled is NaN for a target that is none. */
    DEVICE float loss(float logsumexp, float logit) const { return counts ? logsumexp - logit + 0.0f * scaled : 0.0f; }
};

/* ---- version 1: one thread a row ---------------------------------------------------------------------------------- */

template <class T>
__global__ void classifier_v1(T *logits, const int64 *targets, float *losses, int64 N, int64 V, int64 Vp, int64 ignore,
                              double dloss) {
    int64 row = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= N) return;
    logits += row * Vp;
    Target target(targets[row], V, ignore, dloss);
    float largest = -infinity(), sum = 0.0f;
    for (int64 v = 0; v < V; v++) largest = fmaxf(largest, get(logits + v));
    for (int64 v = 0; v < V; v++) sum += expf(get(logits + v) - largest);
    float total = largest + logf(sum);
    losses[row] = target.loss(total, get(logits + target.chosen));
    for (int64 v = 0; v < V; v++) {
        float gradient = expf(get(logits + v) - total) - (v == target.chosen ? 1.0f : 0.0f);
        put(logits + v, target.counts ? gradient * target.scaled : 0.0f);
    }
    for (int64 v = V; v < Vp; v++) put(logits + v, 0.0f);
}

/* ---- version 2: one block a row, 16-byte accesses wherever the row starts; the row is read twice -------------------- */

template <class T, int WIDTH>
DEVICE void put_gradient(const AnyRow<T> &row, int p, const Pack<T, WIDTH> &pack, bool whole, const Target &target,
                         float total, int64 V) {
    float v[WIDTH];
    pack.unpack(v);
    int first = row.column(p);
#pragma unroll
    for (int j = 0; j < WIDTH; j++) {
        float gradient = (exponential(v[j] - total) - (first + j == target.chosen ? 1.0f : 0.0f)) * target.scaled;
        v[j] = target.counts && first + j < V ? gradient : 0.0f;
    }
    row.store(p, v, whole);
}

/* The padding's elements are -infinity for the sum of exponentials. */
template <class T, int WIDTH>
DEVICE void take_logits(Exponentials &seen, const AnyRow<T> &row, int p, const Pack<T, WIDTH> &pack, int64 V) {
    float v[WIDTH];
    pack.unpack(v);
    if (row.column(p) + WIDTH > V)
#pragma unroll
        for (int j = 0; j < WIDTH; j++) v[j] = row.column(p) + j < V ? v[j] : -infinity();
    seen.take(v);
}

template <class T, int THREADS>
__global__ void __launch_bounds__(THREADS, 1)
    classifier_v2(T *logits, const int64 *targets, float *losses, int64 N, int64 V, int64 Vp, int64 ignore,
                  double dloss) {
    constexpr int WIDTH = AnyRow<T>::WIDTH;
    AnyRow<T> row(logits + blockIdx.x * Vp, (int)Vp);
    Target target(targets[blockIdx.x], V, ignore, dloss);
    float chosen = get(logits + blockIdx.x * Vp + target.chosen); /* before it is overwritten */
    Exponentials seen;
    each_pack<THREADS, 4>(row, -infinity(),
                          [&](int p, const Pack<T, WIDTH> &pack, bool) { take_logits(seen, row, p, pack, V); });
    seen.join<THREADS>();
    float total = seen.logarithm();
    if (threadIdx.x == 0) losses[blockIdx.x] = target.loss(total, chosen);
    each_pack<THREADS, 4>(
        row, 0.0f, [&](int p, const Pack<T, WIDTH> &pack, bool whole) { put_gradient(row, p, pack, whole, target, total, V); });
}

/* ---- version 3: the row stays in shared memory and is read once ------------------------------------------------------ */

/* Asks for a row to be brought into L2, for the block that comes next. */
template <class T> DEVICE void prefetch_row(const T *row, int64 columns) {
#if __CUDA_ARCH__ >= 900
    unsigned long long first = (unsigned long long)row & ~15ull, last = (unsigned long long)(row + columns) & ~15ull;
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(first), "r"((uint32)(last - first)) : "memory");
#endif
}

/* `ahead` rows on, the row is asked for while this one is written: 0 for not at all. */
template <class T, int THREADS>
__global__ void __launch_bounds__(THREADS, 1)
    classifier_v3(T *logits, const int64 *targets, float *losses, int64 N, int64 V, int64 Vp, int64 ignore, double dloss,
                  int64 ahead) {
    extern __shared__ uint4 held[];
    constexpr int WIDTH = AnyRow<T>::WIDTH;
    AnyRow<T> row(logits + blockIdx.x * Vp, (int)Vp);
    Target target(targets[blockIdx.x], V, ignore, dloss);
    float chosen = get(logits + blockIdx.x * Vp + target.chosen);
    Exponentials seen;
    each_pack<THREADS, 4>(row, -infinity(), [&](int p, const Pack<T, WIDTH> &pack, bool whole) {
        held[p] = pack.whole;
        take_logits(seen, row, p, pack, V);
    });
    seen.join<THREADS>();
    if (threadIdx.x == 0 && ahead && blockIdx.x + ahead < N) prefetch_row(logits + (blockIdx.x + ahead) * Vp, Vp);
    float total = seen.logarithm();
    if (threadIdx.x == 0) losses[blockIdx.x] = target.loss(total, chosen);
    each_place<THREADS>(row, [&](int p, bool whole) { /* each thread its own accesses: no barrier */
        Pack<T, WIDTH> pack;
        pack.whole = held[p];
        put_gradient(row, p, pack, whole, target, total, V);
    });
}
