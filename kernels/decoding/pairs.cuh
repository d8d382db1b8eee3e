/* The pairs of outputs that decoding.cu's products make, beside the plain one of tiles.cuh. */
#pragma once

#include <perfkit/tiles.cuh>

template <class T> struct Added : Neighbours<T> {
    const T *residual;

    DEVICE void write(int64 n, int64 pair, float low, float high) const {
        const T *before = residual + n * this->M + 2 * pair;
        high += 2 * pair + 1 < this->M ? get(before + 1) : 0.0f;
        Neighbours<T>::write(n, pair, low + get(before), high);
    }
};

/* The same output of the gate and of what it lets through. */
template <class T> struct Gated {
    const T *gate, *up;
    T *g;
    int64 C, F;

    DEVICE const T *first(int64 pair) const { return gate + pair * C; }
    DEVICE const T *second(int64 pair) const { return up + pair * C; }
    DEVICE void write(int64 n, int64 pair, float low, float high) const { put(g + n * F + pair, low * sigmoid(low) * high); }
};

/* The outputs at p and p + P of a head: of the queries, then of the keys, then of the values. */
template <class T> struct Heads {
    const T *wq, *wk, *wv, *cosine, *sine;
    const int64 *position;
    T *keys, *values, *q;
    int64 C, NH, NKV, P, S;

    /* Which head, of all three, and which pair of it; 64-bit divisions would take as long as a load. */
    DEVICE uint32 head(int64 pair) const { return (uint32)pair / (uint32)P; }
    DEVICE uint32 within(uint32 head) const { return head < NH ? head : head < NH + NKV ? head - NH : head - NH - NKV; }
    DEVICE const T *first(int64 pair) const {
        uint32 h = head(pair), p = (uint32)pair - h * (uint32)P;
        const T *weight = h < NH ? wq : h < NH + NKV ? wk : wv;
        return weight + (within(h) * 2 * P + p) * C;
    }
    DEVICE const T *second(int64 pair) const { return first(pair) + P * C; }
    DEVICE void write(int64 n, int64 pair, float low, float high) const {
        uint32 h = head(pair), p = (uint32)pair - h * (uint32)P;
        int64 at = *position;
        if (h < NH + NKV) {
            float c = get(cosine + at * P + p), s = get(sine + at * P + p), u = low;
            low = u * c - high * s, high = high * c + u * s;
        }
        T *cache = h < NH + NKV ? keys : values;
        T *y = h < NH ? q + (n * NH + h) * 2 * P : cache + ((n * NKV + within(h)) * S + at) * 2 * P;
        put(y + p, low), put(y + p + P, high);
    }
};
