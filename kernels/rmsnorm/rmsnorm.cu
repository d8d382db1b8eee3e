/* RMSNorm over rows of C numbers, alone or of the residual sum x = a + b. rstd (one a row) is fp32.
 *
 * y = h weight with h = x rstd, rstd = 1 / sqrt(mean(x^2) + eps); g = dy weight, dx = rstd (g - h mean(g h)),
 * dweight = sum over rows of dy h. Bits of `add` say which of dx and dweight are added to what is there.
 */
#include <perfkit/bulk.cuh>

/* ---- version 1: one thread a row; one thread a column for the sums over rows -------------------------------------- */

template <class T> DEVICE float rstd_of(const T *x, int64 C, double eps) {
    float squares = 0.0f;
    for (int64 c = 0; c < C; c++) squares += get(x + c) * get(x + c);
    return rsqrtf(squares / C + (float)eps);
}

template <class T>
__global__ void rmsnorm_forward_v1(const T *x, const T *weight, T *y, float *rstd, int64 N, int64 C, double eps) {
    int64 row = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= N) return;
    x += row * C, y += row * C;
    float r = rstd_of(x, C, eps);
    for (int64 c = 0; c < C; c++) put(y + c, get(x + c) * r * get(weight + c));
    rstd[row] = r;
}

template <class T>
__global__ void residual_rmsnorm_forward_v1(const T *a, const T *b, const T *weight, T *x, T *y, float *rstd, int64 N,
                                            int64 C, double eps) {
    int64 row = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= N) return;
    a += row * C, b += row * C, x += row * C, y += row * C;
    for (int64 c = 0; c < C; c++) put(x + c, get(a + c) + get(b + c));
    float r = rstd_of(x, C, eps);
    for (int64 c = 0; c < C; c++) put(y + c, get(x + c) * r * get(weight + c));
    rstd[row] = r;
}

template <class T>
__global__ void rmsnorm_backward_rows_v1(const T *dy, const T *x, const T *weight, const float *rstd, T *dx, int64 N,
                                         int64 C) {
    int64 row = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= N) return;
    dy += row * C, x += row * C, dx += row * C;
    float r = rstd[row], sum_gh = 0.0f;
    for (int64 c = 0; c < C; c++) sum_gh += get(dy + c) * get(weight + c) * get(x + c) * r;
    for (int64 c = 0; c < C; c++)
        put(dx + c, r * (get(dy + c) * get(weight + c) - get(x + c) * r * (sum_gh / C)));
}

template <class T>
__global__ void rmsnorm_backward_columns_v1(const T *dy, const T *x, const float *rstd, T *dweight, int64 N, int64 C) {
    int64 c = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= C) return;
    float dw = 0.0f;
    for (int64 row = 0; row < N; row++) dw += get(dy + row * C + c) * get(x + row * C + c) * rstd[row];
    put(dweight + c, dw);
}

/* ---- version 2: one warp a row, vectors within; blocks of columns for the sums over rows --------------------------- */

/* y of a row by one warp, from x in memory: the lane's rstd. */
template <class T, int WIDTH>
DEVICE float norm_of_warp(const T *x, const T *weight, T *y, int first, int64 C, double eps) {
    float v[WIDTH], w[WIDTH], squares = 0.0f;
    for (int c = first; c < C; c += 32 * WIDTH) {
        load(x + c, v);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) squares += v[j] * v[j];
    }
    float r = rsqrtf(over_warp<Sum>(squares) / C + (float)eps);
    for (int c = first; c < C; c += 32 * WIDTH) {
        load(x + c, v);
        load(weight + c, w);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) v[j] = v[j] * r * w[j];
        store(y + c, v);
    }
    return r;
}

template <class T, int WIDTH>
__global__ void rmsnorm_forward_v2(const T *x, const T *weight, T *y, float *rstd, int64 N, int64 C, double eps) {
    int64 row = ((int64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int first = threadIdx.x % 32 * WIDTH;
    if (row >= N) return;
    float r = norm_of_warp<T, WIDTH>(x + row * C, weight, y + row * C, first, C, eps);
    if (first == 0) rstd[row] = r;
}

template <class T, int WIDTH>
__global__ void residual_rmsnorm_forward_v2(const T *a, const T *b, const T *weight, T *x, T *y, float *rstd, int64 N,
                                            int64 C, double eps) {
    int64 row = ((int64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int first = threadIdx.x % 32 * WIDTH;
    if (row >= N) return;
    a += row * C, b += row * C, x += row * C;
    float v[WIDTH], w[WIDTH];
    for (int c = first; c < C; c += 32 * WIDTH) {
        load(a + c, v), load(b + c, w);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) v[j] += w[j];
        store(x + c, v);
    }
    /* A lane reads again what it has written itself. */
    float r = norm_of_warp<T, WIDTH>(x, weight, y + row * C, first, C, eps);
    if (first == 0) rstd[row] = r;
}

template <class T, int WIDTH>
__global__ void rmsnorm_backward_rows_v2(const T *dy, const T *x, const T *weight, const float *rstd, T *dx, int64 N,
                                         int64 C, int64 add) {
    int64 row = ((int64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int first = threadIdx.x % 32 * WIDTH;
    if (row >= N) return;
    dy += row * C, x += row * C, dx += row * C;
    float r = rstd[row], sum_gh = 0.0f, d[WIDTH], v[WIDTH], w[WIDTH], before[WIDTH];
    for (int c = first; c < C; c += 32 * WIDTH) {
        load(dy + c, d), load(x + c, v), load(weight + c, w);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) sum_gh += d[j] * w[j] * v[j] * r;
    }
    sum_gh = over_warp<Sum>(sum_gh) / C;
    for (int c = first; c < C; c += 32 * WIDTH) {
        load(dy + c, d), load(x + c, v), load(weight + c, w);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) d[j] = r * (d[j] * w[j] - v[j] * r * sum_gh);
        if (add & 1) {
            load(dx + c, before);
#pragma unroll
            for (int j = 0; j < WIDTH; j++) d[j] += before[j];
        }
        store(dx + c, d);
    }
}

/* A block takes 32 columns, a warp every eighth row of its part of the rows. */
template <class T>
__global__ void rmsnorm_backward_columns_v2(const T *dy, const T *x, const float *rstd, float *parts, int64 N,
                                            int64 C) {
    __shared__ float of_warp[8][32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64 c = (int64)blockIdx.x * 32 + lane;
    float dw = 0.0f;
    if (c < C)
        for (int64 row = blockIdx.y * 8 + warp; row < N; row += gridDim.y * 8)
            dw += get(dy + row * C + c) * get(x + row * C + c) * rstd[row];
    of_warp[warp][lane] = dw;
    __syncthreads();
    if (warp || c >= C) return;
    float sum = 0.0f;
    for (int w = 0; w < 8; w++) sum += of_warp[w][lane];
    parts[blockIdx.y * C + c] = sum;
}

template <class T>
__global__ void rmsnorm_backward_parts(const float *parts, T *dweight, int64 count, int64 C, int64 add) {
    sum_parts(parts, dweight, (int)count, C, (int64)blockIdx.x * 32, C, add >> 1 & 1);
}

/* ---- version 3: the row stays in registers: memory is read once, by 16-byte accesses ------------------------------- */

/* y of a held row, and its rstd by the group's first thread. */
template <class T, int WIDTH, int PACKS, int THREADS>
DEVICE void norm_of_held(const Row<T, WIDTH, PACKS, THREADS> &held, const T *weight, T *y, float *rstd, int columns,
                         double eps) {
    Row<T, WIDTH, PACKS, THREADS> factors;
    float r = rsqrtf(held.sum([](float v, int, int) { return v * v; }) / columns + (float)eps);
    factors.load(weight, columns); /* not before: what waits for the row takes few registers */
    held.store(y, columns, [&](float v, int k, int j) { return v * r * factors.at(k, j); });
    if (threadIdx.x % THREADS == 0) *rstd = r;
}

template <class T, int WIDTH, int PACKS, int THREADS, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    rmsnorm_forward_v3(const T *x, const T *weight, T *y, float *rstd, int64 N, int64 C, double eps) {
    int64 row = (int64)blockIdx.x * (BLOCK / THREADS) + threadIdx.x / THREADS;
    if (row >= N) return;
    Row<T, WIDTH, PACKS, THREADS> held;
    held.load(x + row * C, (int)C);
    norm_of_held(held, weight, y + row * C, rstd + row, (int)C, eps);
}

template <class T, int WIDTH, int PACKS, int THREADS, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    residual_rmsnorm_forward_v3(const T *a, const T *b, const T *weight, T *x, T *y, float *rstd, int64 N, int64 C,
                                double eps) {
    int64 row = (int64)blockIdx.x * (BLOCK / THREADS) + threadIdx.x / THREADS;
    if (row >= N) return;
    int columns = (int)C;
    Row<T, WIDTH, PACKS, THREADS> held, other;
    held.load(a + row * C, columns);
    other.load(b + row * C, columns);
#pragma unroll
    for (int k = 0; k < PACKS; k++) { /* as x is written: in bf16 the norm is that of the rounded sum */
        float v[WIDTH];
#pragma unroll
        for (int j = 0; j < WIDTH; j++) v[j] = held.at(k, j) + other.at(k, j);
        held.packs[k].pack(v);
        if (held.column(k) < columns) held.packs[k].store(x + row * C + held.column(k));
    }
    norm_of_held(held, weight, y + row * C, rstd + row, columns, eps);
}

/* The sums over rows of a block's groups, added in order, into the block's part. */
template <class T, int WIDTH, int PACKS, int THREADS, int BLOCK>
DEVICE void write_part(const Numbers<WIDTH, PACKS> &dw, float *of_groups, float *parts, int columns) {
    float *ours = of_groups + threadIdx.x / THREADS * columns;
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        int c = Row<T, WIDTH, PACKS, THREADS>::column(k);
        if (c >= columns) continue;
#pragma unroll
        for (int j = 0; j < WIDTH; j++) ours[c + j] = dw.v[k][j];
    }
    __syncthreads();
    for (int c = threadIdx.x; c < columns; c += BLOCK) {
        float sum = 0.0f;
#pragma unroll
        for (int other = 0; other < BLOCK / THREADS; other++) sum += of_groups[other * columns + c];
        parts[(int64)blockIdx.x * columns + c] = sum;
    }
}

/* Each group of threads takes every so many rows, and keeps its sums over them in registers. dx and the sums from one
 * reading of dy and x, and with ADD of dx. RESIDENT blocks share a multiprocessor. */
template <class T, int WIDTH, int PACKS, int THREADS, int BLOCK, int RESIDENT, bool ADD>
__global__ void __launch_bounds__(BLOCK, RESIDENT)
    rmsnorm_backward_v3(const T *dy, const T *x, const T *weight, const float *rstd, T *dx, float *parts, int64 N,
                        int64 C) {
    extern __shared__ float of_groups[]; /* C a group */
    constexpr int GROUPS = BLOCK / THREADS;
    int columns = (int)C, group = threadIdx.x / THREADS;
    Numbers<WIDTH, PACKS> dw;
    dw.each([](float, int, int) { return 0.0f; });
    for (int64 row = (int64)blockIdx.x * GROUPS + group; row < N; row += (int64)gridDim.x * GROUPS) {
        Row<T, WIDTH, PACKS, THREADS> held, g, factors, before;
        held.load(x + row * C, columns);
        g.load(dy + row * C, columns);
        if (ADD) before.load(dx + row * C, columns);
        factors.load(weight, columns); /* from L1 each time: it would take too many registers */
        float r = rstd[row];
        dw.each([&](float sum, int k, int j) { return sum + g.at(k, j) * held.at(k, j) * r; });
        float mean_gh =
            g.sum([&](float v, int k, int j) { return v * factors.at(k, j) * held.at(k, j) * r; }) / columns;
        g.store(dx + row * C, columns, [&](float v, int k, int j) {
            float value = r * (v * factors.at(k, j) - held.at(k, j) * r * mean_gh);
            return ADD ? before.at(k, j) + value : value;
        });
    }
    write_part<T, WIDTH, PACKS, THREADS, BLOCK>(dw, of_groups, parts, columns);
}

/* ---- version 4: rows pass through shared memory by bulk copies, over a cluster where they are long (sm_90) --------- */

template <class T> /* by blocks of fewer threads, which all find room at once */
__global__ void rmsnorm_backward_few_parts(const float *parts, T *dweight, int64 count, int64 C, int64 add) {
    sum_parts<8>(parts, dweight, (int)count, C, (int64)blockIdx.x * 32, C, add >> 1 & 1);
}

#if __CUDA_ARCH__ >= 900
/* fp32 numbers by accesses of at most 16 bytes. */
template <int WIDTH> DEVICE void store_numbers(float *to, const float (&v)[WIDTH]) {
    constexpr int EACH = WIDTH < 4 ? WIDTH : 4;
#pragma unroll
    for (int first = 0; first < WIDTH; first += EACH) {
        float some[EACH];
#pragma unroll
        for (int j = 0; j < EACH; j++) some[j] = v[first + j];
        store(to + first, some);
    }
}

/* Each of BLOCKS blocks of a cluster takes its part of the columns of every so many rows. STAGES rows are under way to
 * shared memory while another is worked on in registers, so that memory never waits for the sum over a row. The sums
 * over rows stay in registers. */
template <class T, int WIDTH, int PACKS, int THREADS, int STAGES, int BLOCKS, int RESIDENT, bool ADD>
__global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(THREADS, RESIDENT)
    rmsnorm_backward_v4(const T *dy, const T *x, const T *weight, const float *rstd, T *dx, float *parts, int64 N,
                        int64 C) {
    typedef Row<T, WIDTH, PACKS, THREADS> Part;
    extern __shared__ __align__(128) T staged[]; /* STAGES times a part of dy and one of x */
    __shared__ BulkBarrier barriers[STAGES];
    __shared__ ClusterSum<THREADS / 32, BLOCKS> over_cluster;
    int columns = (int)C / BLOCKS, bytes = columns * (int)sizeof(T);
    int64 first = cluster_rank() * columns, cluster = blockIdx.x / BLOCKS, stride = gridDim.x / BLOCKS;
    auto ask = [&](int64 row, int stage) {
        T *to = staged + 2 * stage * columns;
        expect_bulk(&barriers[stage], 2 * bytes);
        copy_bulk(to, dy + row * C + first, bytes, &barriers[stage]);
        copy_bulk(to + columns, x + row * C + first, bytes, &barriers[stage]);
    };
    if (threadIdx.x == 0) {
        over_cluster.make();
        for (int stage = 0; stage < STAGES; stage++) make_bulk_barrier(&barriers[stage]);
        for (int stage = 0; stage < STAGES; stage++)
            if (cluster + stage * stride < N) ask(cluster + stage * stride, stage);
    }
    __syncthreads();
    if (BLOCKS > 1) cluster_arrive(), cluster_wait(); /* none writes to a block that has not begun */
    Part factors;
    factors.load(weight + first, columns);
    Numbers<WIDTH, PACKS> dw;
    dw.each([](float, int, int) { return 0.0f; });
    int stage = 0, odd = 0, turn = 0;
    for (int64 row = cluster; row < N; row += stride, turn++) {
        T *out = dx + row * C + first;
        Part held, g, before;
        float r = rstd[row], sum = 0.0f;
        if (ADD) before.load(out, columns);
        wait_for_bulk(&barriers[stage], odd);
        g.load(staged + 2 * stage * columns, columns);
        held.load(staged + (2 * stage + 1) * columns, columns);
        dw.each([&](float so_far, int k, int j) {
            float product = g.at(k, j) * held.at(k, j);
            sum += product * factors.at(k, j);
            return so_far + product * r;
        });
        sum = over_cluster(sum, turn); /* after it all of this stage is in registers */
        if (threadIdx.x == 0 && row + STAGES * stride < N) ask(row + STAGES * stride, stage);
        float factor = sum * r * r / (int)C;
        g.store(out, columns, [&](float v, int k, int j) {
            float value = r * (v * factors.at(k, j) - held.at(k, j) * factor);
            return ADD ? before.at(k, j) + value : value;
        });
        if (++stage == STAGES) stage = 0, odd ^= 1;
    }
    float *part = parts + cluster * C + first;
#pragma unroll
    for (int k = 0; k < PACKS; k++)
        if (Part::column(k) < columns) store_numbers(part + Part::column(k), dw.v[k]);
}
#endif
