/* Cross entropy of N rows of V logits (of Vp columns in memory) against one target a row; the mean over the rows whose
 * target is not `ignore`. Columns from V on are never read, and their gradient is 0. Losses are fp32 in every precision.
 *
 * logsumexp = log sum exp(logits), a row's loss = logsumexp - logits[target],
 * dlogits = (exp(logits - logsumexp) - [v = target]) dloss / counted rows, 0 in ignored rows.
 * A target that is neither an index nor `ignore` makes the loss, and the gradients of its row, NaN: a kernel cannot
 * raise an error without the processor waiting for it.
 */
#include <perfkit/rows.cuh>

/* The loss of a row: 0 where ignored, NaN for a target that is none. */
template <class T>
DEVICE float loss_of_row(const T *logits, int64 target, float logsumexp, int64 V, int64 ignore) {
    if (target == ignore) return 0.0f;
    if (target < 0 || target >= V) return not_a_number();
    return logsumexp - get(logits + target);
}

/* One block: the number of rows that count, for every thread. */
template <int THREADS> DEVICE float counted_rows(const int64 *targets, int64 N, int64 ignore) {
    float count = 0.0f; /* exact up to 2^24 rows a thread */
    for (int64 row = threadIdx.x; row < N; row += THREADS) count += targets[row] != ignore;
    return over_group<Sum, THREADS>(count);
}

/* One block of 1024: the mean of the rows' losses, in a fixed order. */
__global__ void cross_entropy_mean(const float *losses, const int64 *targets, float *loss, int64 N, int64 ignore) {
    float sum = 0.0f;
    for (int64 row = threadIdx.x; row < N; row += 1024) sum += losses[row];
    sum = over_group<Sum, 1024>(sum);
    float count = counted_rows<1024>(targets, N, ignore);
    if (threadIdx.x == 0) *loss = sum / count;
}

/* One block of 1024: what every gradient is multiplied by. */
__global__ void cross_entropy_factor(const float *dloss, const int64 *targets, float *factor, int64 N, int64 ignore) {
    float count = counted_rows<1024>(targets, N, ignore);
    if (threadIdx.x == 0) *factor = *dloss / count;
}

/* The gradient of a row's padding, by the threads of a block. */
template <class T, int THREADS> DEVICE void clear_padding(T *row, int64 V, int64 Vp) {
    for (int64 v = V + threadIdx.x; v < Vp; v += THREADS) put(row + v, 0.0f);
}

/* ---- version 1: one thread a row; one thread an element ------------------------------------------------------------ */

template <class T>
__global__ void cross_entropy_forward_v1(const T *logits, const int64 *targets, float *losses, float *logsumexp,
                                         int64 N, int64 V, int64 Vp, int64 ignore) {
    int64 row = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= N) return;
    logits += row * Vp;
    float largest = -infinity();
    double sum = 0.0; /* one after the other, thousands of them */
    for (int64 v = 0; v < V; v++) largest = fmaxf(largest, get(logits + v));
    for (int64 v = 0; v < V; v++) sum += expf(get(logits + v) - largest);
    float total = largest + logf((float)sum);
    logsumexp[row] = total;
    losses[row] = loss_of_row(logits, targets[row], total, V, ignore);
}

template <class T>
__global__ void cross_entropy_backward_v1(const T *logits, const int64 *targets, const float *logsumexp,
                                          const float *factor, T *dlogits, int64 N, int64 V, int64 Vp, int64 ignore) {
    int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N * Vp) return;
    int64 row = i / Vp, v = i % Vp, target = targets[row];
    float gradient = expf(get(logits + i) - logsumexp[row]) - (v == target ? 1.0f : 0.0f);
    if (target != ignore && (target < 0 || target >= V)) gradient = not_a_number();
    put(dlogits + i, target == ignore || v >= V ? 0.0f : gradient * *factor);
}

/* ---- version 2: one block a row, neighbouring threads on neighbouring elements; the row is read twice --------------- */

template <class T, int THREADS>
__global__ void __launch_bounds__(THREADS, 1)
    cross_entropy_forward_v2(const T *logits, const int64 *targets, float *losses, float *logsumexp, int64 N, int64 V,
                             int64 Vp, int64 ignore) {
    int64 row = blockIdx.x;
    logits += row * Vp;
    float largest = -3.402823466e38f, sum = 0.0f;
    for (int64 v = threadIdx.x; v < V; v += THREADS) largest = fmaxf(largest, get(logits + v));
    largest = over_group<Largest, THREADS>(largest);
    for (int64 v = threadIdx.x; v < V; v += THREADS) sum += exponential(get(logits + v) - largest);
    sum = over_group<Sum, THREADS>(sum);
    if (threadIdx.x) return;
    float total = largest + logf(sum);
    logsumexp[row] = total;
    losses[row] = loss_of_row(logits, targets[row], total, V, ignore);
}

template <class T, int THREADS>
__global__ void __launch_bounds__(THREADS, 1)
    cross_entropy_backward_v2(const T *logits, const int64 *targets, const float *logsumexp, const float *factor,
                              T *dlogits, int64 N, int64 V, int64 Vp, int64 ignore) {
    int64 row = blockIdx.x, target = targets[row];
    float total = logsumexp[row], scaled = target == ignore ? 0.0f : *factor;
    if (target != ignore && (target < 0 || target >= V)) scaled = not_a_number();
    for (int64 v = threadIdx.x; v < V; v += THREADS) {
        float gradient = exponential(get(logits + row * Vp + v) - total) - (v == target ? 1.0f : 0.0f);
        put(dlogits + row * Vp + v, target == ignore ? 0.0f : gradient * scaled);
    }
    clear_padding<T, THREADS>(dlogits + row * Vp, V, Vp);
}

/* ---- version 3: 16-byte accesses wherever the row starts, read once ------------------------------------------------- */

template <class T, int THREADS>
__global__ void __launch_bounds__(THREADS, 1)
    cross_entropy_forward_v3(const T *logits, const int64 *targets, float *losses, float *logsumexp, int64 N, int64 V,
                             int64 Vp, int64 ignore) {
    constexpr int WIDTH = AnyRow<T>::WIDTH;
    int64 row = blockIdx.x;
    logits += row * Vp;
    Exponentials seen;
    each_pack<THREADS, 4>(AnyRow<T>(logits, (int)V), -infinity(), [&](int, const Pack<T, WIDTH> &pack, bool) {
        float v[WIDTH];
        pack.unpack(v);
        seen.take(v);
    });
    seen.join_group<THREADS>();
    if (threadIdx.x) return;
    float total = seen.logarithm();
    logsumexp[row] = total;
    losses[row] = loss_of_row(logits, targets[row], total, V, ignore);
}

template <class T, int THREADS>
__global__ void __launch_bounds__(THREADS, 1)
    cross_entropy_backward_v3(const T *logits, const int64 *targets, const float *logsumexp, const float *factor,
                              T *dlogits, int64 N, int64 V, int64 Vp, int64 ignore) {
    constexpr int WIDTH = AnyRow<T>::WIDTH;
    int64 row = blockIdx.x, target = targets[row];
    AnyRow<T> from(logits + row * Vp, (int)V), to(dlogits + row * Vp, (int)V);
    clear_padding<T, THREADS>(dlogits + row * Vp, V, Vp);
    if (target == ignore) {
        float zeros[WIDTH] = {};
        each_place<THREADS>(to, [&](int p, bool whole) { to.store(p, zeros, whole); });
        return;
    }
    bool known = target >= 0 && target < V;
    float total = LOG2_E * logsumexp[row], scaled = known ? *factor : not_a_number();
    int chosen = known ? (int)target : 0;
    each_pack<THREADS, 4>(from, 0.0f, [&](int p, const Pack<T, WIDTH> &pack, bool whole) {
        float v[WIDTH];
        pack.unpack(v);
        int place = chosen - from.column(p); /* of the target within this access: seldom there */
#pragma unroll
        for (int j = 0; j < WIDTH; j++) v[j] = exponential_over(v[j], total) * scaled;
        if ((uint32)place < WIDTH)
#pragma unroll
            for (int j = 0; j < WIDTH; j++) v[j] -= j == place ? scaled : 0.0f;
        to.store(p, v, whole);
    });
}
