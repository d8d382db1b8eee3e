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
    float largest = -infinity();
    double sum = 0.0; /* one after the other, thousands of them */
    for (int64 v = 0; v < V; v++) largest = fmaxf(largest, get(logits + v));
    for (int64 v = 0; v < V; v++) sum += expf(get(logits + v) - largest);
    float total = largest + logf((float)sum);
    losses[row] = target.loss(total, get(logits + target.chosen));
    for (int64 v = 0; v < V; v++) {
        float gradient = expf(get(logits + v) - total) - (v == target.chosen ? 1.0f : 0.0f);
        put(logits + v, target.counts ? gradient * target.scaled : 0.0f);
    }
    for (int64 v = V; v < Vp; v++) put(logits + v, 0.0f);
}

/* ---- version 2: one block a row, 16-byte accesses wherever the row starts; the row is read twice -------------------- */

/* The target, the padding, and rows that do not count are seldom met: they are looked for once an access. */
template <class T, int WIDTH>
DEVICE void put_gradient(const AnyRow<T> &row, int p, const Pack<T, WIDTH> &pack, bool whole, const Target &target,
                         float from, int64 V) {
    float v[WIDTH];
    int first = row.column(p), place = target.chosen - first;
#pragma unroll
    for (int j = 0; j < WIDTH; j++) v[j] = exponential_over(pack.at(j), from) * target.scaled;
    if ((uint32)place < WIDTH)
#pragma unroll
        for (int j = 0; j < WIDTH; j++) v[j] -= j == place ? target.scaled : 0.0f;
    if (first + WIDTH > V || !target.counts)
#pragma unroll
        for (int j = 0; j < WIDTH; j++) v[j] = target.counts && first + j < V ? v[j] : 0.0f;
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
    each_pack<THREADS, 2>(row, -infinity(),
                          [&](int p, const Pack<T, WIDTH> &pack, bool) { take_logits(seen, row, p, pack, V); });
    seen.join_group<THREADS>();
    float from = seen.log_2();
    if (threadIdx.x == 0) losses[blockIdx.x] = target.loss(seen.logarithm(), chosen);
    each_pack<THREADS, 2>(
        row, 0.0f, [&](int p, const Pack<T, WIDTH> &pack, bool whole) { put_gradient(row, p, pack, whole, target, from, V); });
}

/* ---- version 3: the row stays in shared memory and is read once ------------------------------------------------------ */

/* BLOCKS blocks of a cluster share a row; on GPUs without clusters BLOCKS is 1. Each thread writes and reads its own
 * accesses in shared memory: no barrier between. */
template <class T, int THREADS, int BLOCKS>
DEVICE void classify(T *logits, const int64 *targets, float *losses, int64 V, int64 Vp, int64 ignore, double dloss,
                     int rank) {
    extern __shared__ uint4 held[];
    constexpr int WIDTH = AnyRow<T>::WIDTH;
    int64 n = blockIdx.x / BLOCKS;
    logits += n * Vp;
    AnyRow<T> row = part_of_row(logits, (int)Vp, rank, BLOCKS);
    int first = (int)(Vp * rank / BLOCKS); /* column of the part's first element */
    Target target(targets[n], V, ignore, dloss);
    float chosen = get(logits + target.chosen); /* before it is overwritten */
    target.chosen -= first;
    Exponentials seen;
    each_pack<THREADS, 4>(row, -infinity(), [&](int p, const Pack<T, WIDTH> &pack, bool) {
        held[p] = pack.whole;
        take_logits(seen, row, p, pack, V - first);
    });
    seen.join_group<THREADS>();
#if __CUDA_ARCH__ >= 900
    if (BLOCKS > 1) join_cluster<BLOCKS>(seen);
#endif
    float from = seen.log_2();
    if (threadIdx.x == 0 && rank == 0) losses[n] = target.loss(seen.logarithm(), chosen);
    each_place<THREADS>(row, [&](int p, bool whole) {
        Pack<T, WIDTH> pack;
        pack.whole = held[p];
        put_gradient(row, p, pack, whole, target, from, V - first);
    });
}

template <class T, int THREADS>
__global__ void __launch_bounds__(THREADS, 1)
    classifier_v3(T *logits, const int64 *targets, float *losses, int64 N, int64 V, int64 Vp, int64 ignore,
                  double dloss) {
    classify<T, THREADS, 1>(logits, targets, losses, V, Vp, ignore, dloss, 0);
}

#if __CUDA_ARCH__ >= 900
template <class T, int THREADS, int BLOCKS>
__global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(THREADS)
    classifier_cluster(T *logits, const int64 *targets, float *losses, int64 N, int64 V, int64 Vp, int64 ignore,
                       double dloss) {
    classify<T, THREADS, BLOCKS>(logits, targets, losses, V, Vp, ignore, dloss, cluster_rank());
    cluster_wait();
}
#endif
