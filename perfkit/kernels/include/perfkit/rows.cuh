/* Rows of a matrix: held in registers by a group of threads, or read at any alignment; and sums over columns. */
#pragma once
#include <perfkit/device.cuh>

/* `columns` numbers of a row in the registers of THREADS neighbouring threads, PACKS accesses of WIDTH elements each.
 * THREADS is 32 (one warp a row) or the whole block. columns <= THREADS · PACKS · WIDTH, and a multiple of WIDTH. */
template <class T, int WIDTH, int PACKS, int THREADS> struct Row {
    float v[PACKS][WIDTH];

    static DEVICE int column(int k) { return (k * THREADS + (int)(threadIdx.x % THREADS)) * WIDTH; }

    /* Elements from `columns` on are `fill`. */
    DEVICE void load(const T *row, int columns, float fill = 0.0f) {
        Pack<T, WIDTH> packs[PACKS];
#pragma unroll
        for (int k = 0; k < PACKS; k++)
            if (column(k) < columns) packs[k].load(row + column(k));
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            packs[k].unpack(v[k]);
            if (column(k) >= columns)
#pragma unroll
                for (int j = 0; j < WIDTH; j++) v[k][j] = fill;
        }
    }

    /* The first `used` elements of a row of `columns`, where `used` is any number; the others are `fill`. */
    DEVICE void load_part(const T *row, int used, float fill) {
        load(row, used, fill);
#pragma unroll
        for (int k = 0; k < PACKS; k++)
#pragma unroll
            for (int j = 0; j < WIDTH; j++)
                if (column(k) + j >= used) v[k][j] = fill;
    }

    DEVICE void store(T *row, int columns) const {
#pragma unroll
        for (int k = 0; k < PACKS; k++)
            if (column(k) < columns) ::store(row + column(k), v[k]);
    }

    /* v = f(v, place), where place = (pack, element) finds the same element of another Row. */
    template <class F> DEVICE void each(F f) {
#pragma unroll
        for (int k = 0; k < PACKS; k++)
#pragma unroll
            for (int j = 0; j < WIDTH; j++) v[k][j] = f(v[k][j], k, j);
    }

    /* The sum, and the maximum, of f(v, place) over the row, for every thread. */
    template <class F> DEVICE float sum(F f) const { return reduce<Sum>(f); }
    template <class F> DEVICE float largest(F f) const { return reduce<Largest>(f); }

    template <class R, class F> DEVICE float reduce(F f) const {
        float result = R::none();
#pragma unroll
        for (int k = 0; k < PACKS; k++)
#pragma unroll
            for (int j = 0; j < WIDTH; j++) result = R::join(result, f(v[k][j], k, j));
        return over_group<R, THREADS>(result);
    }
};

/* ---- rows that start anywhere ----------------------------------------------------------------------------------- */

/* 16-byte accesses to a row whatever its address: counted from the aligned address at or below its start, so that only
 * the first and the last access, the edges, may hold elements that are not the row's. */
template <class T> struct AnyRow {
    static constexpr int WIDTH = 16 / sizeof(T);
    T *aligned;
    int lead; /* elements before the row in the first access */
    int columns;

    DEVICE AnyRow(const T *row, int columns) : columns(columns) {
        unsigned long long address = (unsigned long long)row;
        lead = (int)(address % 16) / (int)sizeof(T);
        aligned = (T *)(address - address % 16);
    }

    DEVICE int packs() const { return (lead + columns + WIDTH - 1) / WIDTH; }
    DEVICE int column(int p) const { return p * WIDTH - lead; }
    DEVICE bool inside(int p, int j) const { return column(p) + j >= 0 && column(p) + j < columns; }
    /* Accesses from `begin` up to `end` hold nothing but the row. */
    DEVICE int begin() const { return lead > 0; }
    DEVICE int end() const { return (lead + columns) / WIDTH; }

    DEVICE T *at(int p) const { return aligned + (int64)p * WIDTH; }

    /* An edge; what lies outside the row is `fill`. */
    DEVICE void load_edge(int p, Pack<T, WIDTH> &pack, float fill) const {
        float v[WIDTH];
#pragma unroll
        for (int j = 0; j < WIDTH; j++) v[j] = inside(p, j) ? get(at(p) + j) : fill;
        pack.pack(v);
    }

    DEVICE void load(int p, Pack<T, WIDTH> &pack, float fill, bool whole) const {
        if (whole) pack.load(at(p));
        else load_edge(p, pack, fill);
    }

    DEVICE void store(int p, const float (&v)[WIDTH], bool whole) const {
        if (whole) {
            ::store(at(p), v);
        } else {
#pragma unroll
            for (int j = 0; j < WIDTH; j++)
                if (inside(p, j)) put(at(p) + j, v[j]);
        }
    }

    /* The edge that this one of THREADS threads takes, or -1: the first thread the first, the last thread the last. */
    template <int THREADS> DEVICE int edge() const {
        if (threadIdx.x == 0 && lead > 0) return 0;
        int last = packs() - 1;
        return threadIdx.x == THREADS - 1 && last >= end() && last >= begin() ? last : -1;
    }
};

/* The largest element seen and the sum of exp(element − largest), over elements taken one access at a time. */
struct Exponentials {
    float largest = -3.402823466e38f; /* finite, so that differences of two never are NaN */
    float sum = 0.0f;

    template <int WIDTH> DEVICE void take(const float (&v)[WIDTH]) {
        float high = largest;
#pragma unroll
        for (int j = 0; j < WIDTH; j++) high = fmaxf(high, v[j]);
        float added = 0.0f;
#pragma unroll
        for (int j = 0; j < WIDTH; j++) added += exponential(v[j] - high);
        sum = sum * exponential(largest - high) + added;
        largest = high;
    }

    /* Of all threads of the group, for every thread. */
    template <int THREADS> DEVICE void join() {
        float high = over_group<Largest, THREADS>(largest);
        sum = over_group<Sum, THREADS>(sum * exponential(largest - high));
        largest = high;
    }

    DEVICE float logarithm() const { return largest + logf(sum); }
};

/* f(p, pack, whole) for every access p of the row, by the THREADS threads of the block: AHEAD accesses of each thread
 * are under way at once. `whole` is a constant wherever it is used: edges go apart. */
template <int THREADS, int AHEAD, class T, class F> DEVICE void each_pack(const AnyRow<T> &row, float fill, F f) {
    Pack<T, AnyRow<T>::WIDTH> held[AHEAD];
    int end = row.end();
    for (int first = row.begin() + threadIdx.x; first < end; first += THREADS * AHEAD) {
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (first + k * THREADS < end) held[k].load(row.at(first + k * THREADS));
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (first + k * THREADS < end) f(first + k * THREADS, held[k], true);
    }
    int edge = row.template edge<THREADS>();
    if (edge < 0) return;
    row.load_edge(edge, held[0], fill);
    f(edge, held[0], false);
}

/* f(p, whole) for the same accesses by the same threads, nothing loaded. */
template <int THREADS, class T, class F> DEVICE void each_place(const AnyRow<T> &row, F f) {
    for (int p = row.begin() + threadIdx.x; p < row.end(); p += THREADS) f(p, true);
    int edge = row.template edge<THREADS>();
    if (edge >= 0) f(edge, false);
}

/* ---- sums over rows --------------------------------------------------------------------------------------------- */

/* out[c] = Σ over p of parts[p · columns + c], in a fixed order. A block of 256 threads takes 32 columns. */
template <class T> DEVICE void sum_parts(const float *parts, T *out, int count, int64 columns) {
    __shared__ float of_warp[8][32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64 c = (int64)blockIdx.x * 32 + lane;
    float sum = 0.0f;
    if (c < columns) {
#pragma unroll 8
        for (int p = warp; p < count; p += 8) sum += parts[p * columns + c];
    }
    of_warp[warp][lane] = sum;
    __syncthreads();
    if (warp || c >= columns) return;
    for (int w = 1; w < 8; w++) sum += of_warp[w][lane];
    put(out + c, sum);
}
