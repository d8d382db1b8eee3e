/* What several families do to one row of n elements: largest element, sums, softmax, LayerNorm. */
#ifndef PERFKIT_ROWS_H
#define PERFKIT_ROWS_H

#include <perfkit/vector.h>

#ifndef LOG2_E
#define LOG2_E 1.4426950408889634f
#endif

/* exp(x - shift). The difference is taken first: large values lose no digits. */
static inline vec v_exp_of(vec x, float shift) {
    return v_exp2((x - shift) * LOG2_E);
}

/* Elements summed in fp32, a lane each WIDTH; the sums of longer rows go on in fp64. A multiple of every WIDTH. */
#define FP32_TERMS 2048

/* ---- sums -------------------------------------------------------------------------------------------------------- */

static inline float row_largest(const scalar *x, int64_t n) {
    vec top[2] = {v_all(-INFINITY), v_all(-INFINITY)};
    int64_t i = 0;
    for (; i + 2 * WIDTH <= n; i += 2 * WIDTH) {
        top[0] = v_max(top[0], v_load(x + i));
        top[1] = v_max(top[1], v_load(x + i + WIDTH));
    }
    float largest = v_largest(v_max(top[0], top[1]));
    for (; i < n; i++) largest = fmaxf(largest, get(x + i));
    return largest;
}

/* The sum of the row, or of (x - shift)^2: four independent sums hide the latency of an addition. */
static inline float row_sum(const scalar *x, int64_t n, float shift, int squared) {
    vec sums[4] = {v_all(0.0f), v_all(0.0f), v_all(0.0f), v_all(0.0f)};
    int64_t i = 0;
    for (; i + 4 * WIDTH <= n; i += 4 * WIDTH)
        for (int k = 0; k < 4; k++) {
            vec v = v_load(x + i + k * WIDTH) - shift;
            sums[k] += squared ? v * v : v;
        }
    for (; i + WIDTH <= n; i += WIDTH) {
        vec v = v_load(x + i) - shift;
        sums[0] += squared ? v * v : v;
    }
    vec v = v_load_part(x + i, n - i, shift) - shift;
    sums[1] += squared ? v * v : v;
    return v_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

/* ---- softmax ----------------------------------------------------------------------------------------------------- */

/* 2^(c x - largest), from memory where the row already keeps it in full precision. */
static inline vec softmax_again(vec kept, vec x, float c, float largest) {
#ifdef PERFKIT_BF16
    (void)kept;
    return v_exp2(x * c - largest);
#else
    (void)x, (void)c, (void)largest;
    return kept;
#endif
}

/* y = 2^(c x) over its sum: softmax of scale x with c = scale log2(e). */
static inline void row_softmax(const scalar *x, scalar *y, int64_t n, float c) {
    int64_t whole = n - n % WIDTH, rest = n - whole;
    vec top = v_all(-INFINITY);
    for (int64_t i = 0; i < whole; i += WIDTH) top = v_max(top, v_load(x + i) * c);
    float largest = v_largest(top);
    for (int64_t i = whole; i < n; i++) largest = fmaxf(largest, get(x + i) * c);

    double sum = 0.0;
    for (int64_t start = 0; start < whole; start += FP32_TERMS) {
        int64_t end = whole - start < FP32_TERMS ? whole : start + FP32_TERMS;
        vec sums = v_all(0.0f);
        for (int64_t i = start; i < end; i += WIDTH) {
            vec e = v_exp2(v_load(x + i) * c - largest);
            v_store(y + i, e);
            sums += e;
        }
        sum += v_sum(sums);
    }
    vec e = v_exp2(v_load_part(x + whole, rest, 0.0f) * c - largest);
    float inverse = (float)(1.0 / (sum + v_sum(v_where(v_lanes_below(rest), e, v_all(0.0f)))));

    for (int64_t i = 0; i < whole; i += WIDTH)
        v_store(y + i, softmax_again(v_load(y + i), v_load(x + i), c, largest) * inverse);
    v_store_part(y + whole, rest, e * inverse);
}

/* dx = c y (dy - sum of y dy). */
static inline void row_softmax_gradient(const scalar *dy, const scalar *y, scalar *dx, int64_t n, float c) {
    int64_t whole = n - n % WIDTH, rest = n - whole;
    vec last_y = v_load_part(y + whole, rest, 0.0f), last_dy = v_load_part(dy + whole, rest, 0.0f);
    double sum = v_sum(last_y * last_dy);
    for (int64_t start = 0; start < whole; start += FP32_TERMS) {
        int64_t end = whole - start < FP32_TERMS ? whole : start + FP32_TERMS;
        vec sums[2] = {v_all(0.0f), v_all(0.0f)};
        int64_t i = start;
        for (; i + 2 * WIDTH <= end; i += 2 * WIDTH) {
            sums[0] += v_load(y + i) * v_load(dy + i);
            sums[1] += v_load(y + i + WIDTH) * v_load(dy + i + WIDTH);
        }
        if (i < end) sums[0] += v_load(y + i) * v_load(dy + i);
        sum += v_sum(sums[0] + sums[1]);
    }
    float dot = (float)sum;
    for (int64_t i = 0; i < whole; i += WIDTH) v_store(dx + i, v_load(y + i) * c * (v_load(dy + i) - dot));
    v_store_part(dx + whole, rest, last_y * c * (last_dy - dot));
}

/* ---- LayerNorm --------------------------------------------------------------------------------------------------- */

static inline void row_layernorm(const scalar *x, const scalar *weight, const scalar *bias, scalar *y, float *mean,
                                 float *rstd, int64_t n, double eps) {
    int64_t whole = n - n % WIDTH, rest = n - whole;
    float m = row_sum(x, n, 0.0f, 0) / (float)n;
    float r = 1.0f / sqrtf(row_sum(x, n, m, 1) / (float)n + (float)eps);
    for (int64_t i = 0; i < whole; i += WIDTH) {
        __builtin_prefetch(x + n + i, 0, 2); /* the next row: nothing else asks for it while this one is written */
        v_store(y + i, (v_load(x + i) - m) * r * v_load(weight + i) + v_load(bias + i));
    }
    vec last = (v_load_part(x + whole, rest, 0.0f) - m) * r;
    v_store_part(y + whole, rest,
                 last * v_load_part(weight + whole, rest, 0.0f) + v_load_part(bias + whole, rest, 0.0f));
    *mean = m;
    *rstd = r;
}

#endif
