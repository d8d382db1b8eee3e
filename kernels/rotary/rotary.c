/* Rotary position embedding: (u, v) -> (u cos - v sin, v cos + u sin) for u at p and v at p + P of each head; backward is
 * the turn back, with -sin.
 *
 * q (N, NH, 2P) and k (N, NKV, 2P) with N = B T; cos and sin (T, P).
 * Argument order everywhere: input tensors, output tensors, N, T, NH, NKV, P.
 */
#include <perfkit/vector.h>

/* ---- version 1: as the formula says --------------------------------------------------------------------------- */

static void turn_v1(const scalar *x, const scalar *cosine, const scalar *sine, scalar *y, int64_t N, int64_t T,
                    int64_t heads, int64_t P, float sign) {
    for (int64_t head = 0; head < N * heads; head++)
        for (int64_t p = 0; p < P; p++) {
            int64_t at = head * 2 * P + p, angle = head / heads % T * P + p;
            float u = get(x + at), v = get(x + at + P), c = get(cosine + angle), s = sign * get(sine + angle);
            put(y + at, u * c - v * s);
            put(y + at + P, v * c + u * s);
        }
}

int rotary_forward_v1(const scalar *q, const scalar *k, const scalar *cosine, const scalar *sine, scalar *turned_q,
                      scalar *turned_k, int64_t N, int64_t T, int64_t NH, int64_t NKV, int64_t P) {
    turn_v1(q, cosine, sine, turned_q, N, T, NH, P, 1.0f);
    turn_v1(k, cosine, sine, turned_k, N, T, NKV, P, 1.0f);
    return KERNEL_DONE;
}

int rotary_backward_v1(const scalar *q, const scalar *k, const scalar *cosine, const scalar *sine, scalar *dq,
                       scalar *dk, int64_t N, int64_t T, int64_t NH, int64_t NKV, int64_t P) {
    turn_v1(q, cosine, sine, dq, N, T, NH, P, -1.0f);
    turn_v1(k, cosine, sine, dk, N, T, NKV, P, -1.0f);
    return KERNEL_DONE;
}

/* ---- version 2: threads over positions, vectors within a head --------------------------------------------------- */

static inline void turn_heads(const scalar *x, const scalar *cosine, const scalar *sine, scalar *y, int64_t heads,
                              int64_t P, float sign) {
    for (int64_t head = 0; head < heads; head++, x += 2 * P, y += 2 * P)
        for (int64_t p = 0; p < P; p += WIDTH) {
            int64_t lanes = P - p;
            vec u = v_load_some(x + p, lanes, 0.0f), v = v_load_some(x + P + p, lanes, 0.0f);
            vec c = v_load_some(cosine + p, lanes, 0.0f), s = v_load_some(sine + p, lanes, 0.0f) * sign;
            v_store_some(y + p, lanes, u * c - v * s);
            v_store_some(y + P + p, lanes, v * c + u * s);
        }
}

static void turn_v2(const scalar *q, const scalar *k, const scalar *cosine, const scalar *sine, scalar *out_q,
                    scalar *out_k, int64_t N, int64_t T, int64_t NH, int64_t NKV, int64_t P, float sign) {
#pragma omp parallel for schedule(static) if (N * (NH + NKV) * P >= PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        const scalar *c = cosine + n % T * P, *s = sine + n % T * P;
        turn_heads(q + n * NH * 2 * P, c, s, out_q + n * NH * 2 * P, NH, P, sign);
        turn_heads(k + n * NKV * 2 * P, c, s, out_k + n * NKV * 2 * P, NKV, P, sign);
    }
}

int rotary_forward_v2(const scalar *q, const scalar *k, const scalar *cosine, const scalar *sine, scalar *turned_q,
                      scalar *turned_k, int64_t N, int64_t T, int64_t NH, int64_t NKV, int64_t P) {
    turn_v2(q, k, cosine, sine, turned_q, turned_k, N, T, NH, NKV, P, 1.0f);
    return KERNEL_DONE;
}

int rotary_backward_v2(const scalar *q, const scalar *k, const scalar *cosine, const scalar *sine, scalar *dq,
                       scalar *dk, int64_t N, int64_t T, int64_t NH, int64_t NKV, int64_t P) {
    turn_v2(q, k, cosine, sine, dq, dk, N, T, NH, NKV, P, -1.0f);
    return KERNEL_DONE;
}
