/* LayerNorm over rows of C numbers. x input, y output, dy and dx their gradients; mean and rstd (one a row) are fp32.
 *
 * y = h weight + bias with h = (x - mean) rstd; g = dy weight, dx = rstd (g - mean(g) - h mean(g h)),
 * dweight = sum over rows of dy h, dbias = sum over rows of dy. Bits of `add` say which of dx, dweight and dbias are added
 * to what is there.
 */
#include <perfkit/rows.cuh>

/* ---- version 1: one thread a row; one thread a column for the sums over rows -------------------------------------- */

template <class T>
__global__ void layernorm_forward_v1(const T *x, const T *weight, const T *bias, T *y, float *mean, float *rstd,
                                     int64 N, int64 C, double eps) {
    int64 row = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= N) return;
    x += row * C;
    y += row * C;
    float m = 0.0f, squares = 0.0f;
    for (int64 c = 0; c < C; c++) m += get(x + c);
    m /= C;
    for (int64 c = 0; c < C; c++) squares += (get(x + c) - m) * (get(x + c) - m);
    float r = rsqrtf(squares / C + (float)eps);
    for (int64 c = 0; c < C; c++) put(y + c, (get(x + c) - m) * r * get(weight + c) + get(bias + c));
    mean[row] = m;
    rstd[row] = r;
}

template <class T>
__global__ void layernorm_backward_rows_v1(const T *dy, const T *x, const T *weight, const float *mean,
                                           const float *rstd, T *dx, int64 N, int64 C) {
    int64 row = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= N) return;
    dy += row * C;
    x += row * C;
    dx += row * C;
    float m = mean[row], r = rstd[row], sum_g = 0.0f, sum_gh = 0.0f;
    for (int64 c = 0; c < C; c++) {
        float g = get(dy + c) * get(weight + c);
        sum_g += g;
        sum_gh += g * (get(x + c) - m) * r;
    }
    for (int64 c = 0; c < C; c++) {
        float g = get(dy + c) * get(weight + c), h = (get(x + c) - m) * r;
        put(dx + c, r * (g - sum_g / C - h * (sum_gh / C)));
    }
}

template <class T>
__global__ void layernorm_backward_columns_v1(const T *dy, const T *x, const float *mean, const float *rstd, T *dweight,
                                              T *dbias, int64 N, int64 C) {
    int64 c = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= C) return;
    float dw = 0.0f, db = 0.0f;
    for (int64 row = 0; row < N; row++) {
        float d = get(dy + row * C + c);
        dw += d * (get(x + row * C + c) - mean[row]) * rstd[row];
        db += d;
    }
    put(dweight + c, dw);
    put(dbias + c, db);
}

/* ---- version 2: one warp a row, vectors within; blocks of columns for the sums over rows --------------------------- */

template <class T, int WIDTH>
__global__ void layernorm_forward_v2(const T *x, const T *weight, const T *bias, T *y, float *mean, float *rstd,
                                     int64 N, int64 C, double eps) {
    int64 row = ((int64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int first = threadIdx.x % 32 * WIDTH;
    if (row >= N) return;
    x += row * C;
    y += row * C;
    float v[WIDTH], w[WIDTH], b[WIDTH];
    float m = 0.0f, squares = 0.0f;
    for (int c = first; c < C; c += 32 * WIDTH) {
        load(x + c, v);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) m += v[j];
    }
    m = over_warp<Sum>(m) / C;
    for (int c = first; c < C; c += 32 * WIDTH) {
        load(x + c, v);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) squares += (v[j] - m) * (v[j] - m);
    }
    float r = rsqrtf(over_warp<Sum>(squares) / C + (float)eps);
    for (int c = first; c < C; c += 32 * WIDTH) {
        load(x + c, v);
        load(weight + c, w);
        load(bias + c, b);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) v[j] = (v[j] - m) * r * w[j] + b[j];
        store(y + c, v);
    }
    if (first) return;
    mean[row] = m;
    rstd[row] = r;
}

template <class T, int WIDTH>
__global__ void layernorm_backward_rows_v2(const T *dy, const T *x, const T *weight, const float *mean,
                                           const float *rstd, T *dx, int64 N, int64 C, int64 add) {
    int64 row = ((int64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int first = threadIdx.x % 32 * WIDTH;
    if (row >= N) return;
    dy += row * C;
    x += row * C;
    dx += row * C;
    float m = mean[row], r = rstd[row], sum_g = 0.0f, sum_gh = 0.0f;
    float d[WIDTH], v[WIDTH], w[WIDTH], before[WIDTH];
    for (int c = first; c < C; c += 32 * WIDTH) {
        load(dy + c, d);
        load(x + c, v);
        load(weight + c, w);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) {
            sum_g += d[j] * w[j];
            sum_gh += d[j] * w[j] * (v[j] - m) * r;
        }
    }
    sum_g = over_warp<Sum>(sum_g) / C;
    sum_gh = over_warp<Sum>(sum_gh) / C;
    for (int c = first; c < C; c += 32 * WIDTH) {
        load(dy + c, d);
        load(x + c, v);
        load(weight + c, w);
        if (add & 1) load(dx + c, before);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) {
            d[j] = r * (d[j] * w[j] - sum_g - (v[j] - m) * r * sum_gh);
            if (add & 1) d[j] += before[j];
        }
        store(dx + c, d);
    }
}

/* A block takes 32 columns, a warp every eighth row of its part of the rows. */
template <class T>
__global__ void layernorm_backward_columns_v2(const T *dy, const T *x, const float *mean, const float *rstd,
                                              float *parts, int64 N, int64 C) {
    __shared__ float of_warp[2][8][32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64 c = (int64)blockIdx.x * 32 + lane;
    float dw = 0.0f, db = 0.0f;
    if (c < C)
        for (int64 row = blockIdx.y * 8 + warp; row < N; row += gridDim.y * 8) {
            float d = get(dy + row * C + c);
            dw += d * (get(x + row * C + c) - mean[row]) * rstd[row];
            db += d;
        }
    of_warp[0][warp][lane] = dw;
    of_warp[1][warp][lane] = db;
    __syncthreads();
    if (warp >= 2 || c >= C) return;
    float sum = 0.0f;
    for (int w = 0; w < 8; w++) sum += of_warp[warp][w][lane];
    parts[(blockIdx.y * 2 + warp) * C + c] = sum;
}

/* The sums over the parts of both: dweight by the first gridDim.x / 2 blocks, dbias by the others. */
template <class T>
__global__ void layernorm_backward_parts(const float *parts, T *dweight, T *dbias, int64 count, int64 C, int64 add) {
    int half = gridDim.x / 2, second = blockIdx.x >= half;
    int64 first = (int64)(blockIdx.x - second * half) * 32;
    sum_parts(parts + second * C, second ? dbias : dweight, (int)count, 2 * C, first, C, add >> (1 + second) & 1);
}

/* ---- version 3: the row stays in registers: memory is read once, by 16-byte accesses ------------------------------- */

template <class T, int WIDTH, int PACKS, int THREADS, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    layernorm_forward_v3(const T *x, const T *weight, const T *bias, T *y, float *mean, float *rstd, int64 N, int64 C,
                         double eps) {
    int64 row = (int64)blockIdx.x * (BLOCK / THREADS) + threadIdx.x / THREADS;
    if (row >= N) return;
    int columns = (int)C;
    Row<T, WIDTH, PACKS, THREADS> held, factors, shifts;
    held.load(x + row * C, columns);
    float m = held.sum([](float v, int, int) { return v; }) / columns;
    float squares = held.sum([&](float v, int k, int) {
        float d = held.column(k) < columns ? v - m : 0.0f;
        return d * d;
    });
    float r = rsqrtf(squares / columns + (float)eps);
    factors.load(weight, columns); /* not before: what waits for the row takes few registers, and more rows are under way */
    shifts.load(bias, columns);
    held.store(y + row * C, columns,
               [&](float v, int k, int j) { return (v - m) * r * factors.at(k, j) + shifts.at(k, j); });
    if (threadIdx.x % THREADS) return;
    mean[row] = m;
    rstd[row] = r;
}

/* The sums of the block's groups for dweight and dbias, added in the order of the groups, become the block's part.
 * `memory` holds 2 C numbers a group; groups of THREADS threads hold them in the places of a Row. */
template <class T, int WIDTH, int PACKS, int THREADS, int BLOCK>
DEVICE void sums_of_groups(const Numbers<WIDTH, PACKS> &dw, const Numbers<WIDTH, PACKS> &db, float *memory,
                           float *parts, int columns) {
    float *ours = memory + threadIdx.x / THREADS * 2 * columns;
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        int c = Row<T, WIDTH, PACKS, THREADS>::column(k);
        if (c >= columns) continue;
#pragma unroll
        for (int j = 0; j < WIDTH; j++) ours[c + j] = dw.v[k][j], ours[columns + c + j] = db.v[k][j];
    }
    __syncthreads();
    for (int c = threadIdx.x; c < 2 * columns; c += BLOCK) {
        float sum = 0.0f;
#pragma unroll
        for (int group = 0; group < BLOCK / THREADS; group++) sum += memory[group * 2 * columns + c];
        parts[(int64)blockIdx.x * 2 * columns + c] = sum;
    }
}

/* Each group of threads takes every so many rows, and keeps its sums over them in registers. dx, and both sums,
 * from one reading of dy and x, and with ADD of dx. RESIDENT blocks share a multiprocessor. */
template <class T, int WIDTH, int PACKS, int THREADS, int BLOCK, int RESIDENT, bool ADD>
__global__ void __launch_bounds__(BLOCK, RESIDENT)
    layernorm_backward_v3(const T *dy, const T *x, const T *weight, const float *mean, const float *rstd, T *dx,
                          float *parts, int64 N, int64 C) {
    extern __shared__ float of_groups[]; /* 2 C a group */
    constexpr int GROUPS = BLOCK / THREADS;
    int columns = (int)C, group = threadIdx.x / THREADS;
    Numbers<WIDTH, PACKS> dw, db;
    dw.each([](float, int, int) { return 0.0f; });
    db.each([](float, int, int) { return 0.0f; });
    for (int64 row = (int64)blockIdx.x * GROUPS + group; row < N; row += (int64)gridDim.x * GROUPS) {
        Row<T, WIDTH, PACKS, THREADS> held, g, factors, before;
        held.load(x + row * C, columns);
        g.load(dy + row * C, columns);
        if (ADD) before.load(dx + row * C, columns);
        factors.load(weight, columns); /* from L1 each time: it would take too many registers */
        float m = mean[row], r = rstd[row];
        auto h = [&](int k, int j) { return (held.at(k, j) - m) * r; };
        dw.each([&](float sum, int k, int j) { return sum + g.at(k, j) * h(k, j); });
        db.each([&](float sum, int k, int j) { return sum + g.at(k, j); });
        float mean_g = g.sum([&](float v, int k, int j) { return v * factors.at(k, j); }) / columns;
        float mean_gh = g.sum([&](float v, int k, int j) { return v * factors.at(k, j) * h(k, j); }) / columns;
        g.store(dx + row * C, columns, [&](float v, int k, int j) {
            float value = r * (v * factors.at(k, j) - mean_g - h(k, j) * mean_gh);
            return ADD ? before.at(k, j) + value : value;
        });
    }
    sums_of_groups<T, WIDTH, PACKS, THREADS, BLOCK>(dw, db, of_groups, parts, columns);
}
