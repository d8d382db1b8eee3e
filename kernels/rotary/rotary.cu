/* Rotary position embedding: (u, v) -> (u cos - v sin, v cos + u sin) for u at p and v at p + P of each head; backward is
 * the turn back. q (N, NH, 2P) and k (N, NKV, 2P) with N = B T; cos and sin (T, P).
 */
#include <perfkit/device.cuh>

/* WIDTH pairs of one head, of q or k: where they lie, and where their angles do. */
struct Place {
    bool of_q;
    int64 at, angle; /* of the first element of the lower half; the upper is P further */
};

/* Thread i of N (NH + NKV) P / WIDTH: pairs first, then heads of q, then those of k, then positions. */
template <int WIDTH> DEVICE Place place_of(int64 i, int64 T, int64 NH, int64 NKV, int64 P) {
    uint32 packs = (uint32)P / WIDTH, heads = (uint32)(NH + NKV);
    uint32 p = (uint32)(i % packs) * WIDTH;
    int64 rest = i / packs;
    uint32 head = (uint32)(rest % heads);
    int64 n = rest / heads;
    bool of_q = head < (uint32)NH;
    int64 row = of_q ? n * NH + head : n * NKV + (head - (uint32)NH);
    return {of_q, row * 2 * P + p, n % T * P + p};
}

template <int SIGN, int WIDTH, class T>
DEVICE void turn(const T *q, const T *k, const T *cosine, const T *sine, T *out_q, T *out_k, int64 N, int64 time,
                 int64 NH, int64 NKV, int64 P) {
    int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N * (NH + NKV) * (P / WIDTH)) return;
    Place place = place_of<WIDTH>(i, time, NH, NKV, P);
    const T *x = (place.of_q ? q : k) + place.at;
    T *y = (place.of_q ? out_q : out_k) + place.at;
    float u[WIDTH], v[WIDTH], c[WIDTH], s[WIDTH], low[WIDTH], high[WIDTH];
    load(x, u), load(x + P, v), load(cosine + place.angle, c), load(sine + place.angle, s);
#pragma unroll
    for (int j = 0; j < WIDTH; j++) {
        low[j] = u[j] * c[j] - SIGN * v[j] * s[j];
        high[j] = v[j] * c[j] + SIGN * u[j] * s[j];
    }
    store(y, low), store(y + P, high);
}

/* ---- version 1: one pair a thread ------------------------------------------------------------------------------------ */

template <class T>
__global__ void rotary_forward_v1(const T *q, const T *k, const T *cosine, const T *sine, T *out_q, T *out_k, int64 N,
                                  int64 time, int64 NH, int64 NKV, int64 P) {
    turn<1, 1>(q, k, cosine, sine, out_q, out_k, N, time, NH, NKV, P);
}

template <class T>
__global__ void rotary_backward_v1(const T *q, const T *k, const T *cosine, const T *sine, T *out_q, T *out_k, int64 N,
                                   int64 time, int64 NH, int64 NKV, int64 P) {
    turn<-1, 1>(q, k, cosine, sine, out_q, out_k, N, time, NH, NKV, P);
}

/* ---- version 2: 16-byte accesses to both halves of a head ------------------------------------------------------------ */

template <class T, int WIDTH>
__global__ void rotary_forward_v2(const T *q, const T *k, const T *cosine, const T *sine, T *out_q, T *out_k, int64 N,
                                  int64 time, int64 NH, int64 NKV, int64 P) {
    turn<1, WIDTH>(q, k, cosine, sine, out_q, out_k, N, time, NH, NKV, P);
}

template <class T, int WIDTH>
__global__ void rotary_backward_v2(const T *q, const T *k, const T *cosine, const T *sine, T *out_q, T *out_k, int64 N,
                                   int64 time, int64 NH, int64 NKV, int64 P) {
    turn<-1, WIDTH>(q, k, cosine, sine, out_q, out_k, N, time, NH, NKV, P);
}

/* ---- version 3: a block takes one position; a thread the same pairs of several heads, whose angles it reads once ------ */

/* blockDim.x is a multiple of P / WIDTH; AHEAD heads of a thread are under way at once. */
template <int SIGN, int WIDTH, int AHEAD, class T>
DEVICE void turn_position(const T *q, const T *k, const T *cosine, const T *sine, T *out_q, T *out_k, int64 time,
                          int64 NH, int64 NKV, int64 P) {
    typedef Pack<T, WIDTH> Access;
    int packs = (int)P / WIDTH, slots = blockDim.x / packs, heads = (int)(NH + NKV), size = 2 * (int)P;
    int slot = threadIdx.x / packs, p = threadIdx.x % packs * WIDTH;
    int64 n = blockIdx.x, angle = (uint32)n % (uint32)time * P + p;
    int64 of_q = n * NH * size + p, of_k = n * NKV * size + p;
    Access c, s;
    c.load(cosine + angle), s.load(sine + angle);
    for (int first = slot; first < heads; first += slots * AHEAD) {
        Access u[AHEAD], v[AHEAD];
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            int head = first + a * slots;
            if (head >= heads) continue;
            const T *x = head < NH ? q + of_q + head * size : k + of_k + (head - (int)NH) * size;
            u[a].load(x), v[a].load(x + P);
        }
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            int head = first + a * slots;
            if (head >= heads) continue;
            T *y = head < NH ? out_q + of_q + head * size : out_k + of_k + (head - (int)NH) * size;
            float low[WIDTH], high[WIDTH];
#pragma unroll
            for (int j = 0; j < WIDTH; j++) {
                low[j] = u[a].at(j) * c.at(j) - SIGN * v[a].at(j) * s.at(j);
                high[j] = v[a].at(j) * c.at(j) + SIGN * u[a].at(j) * s.at(j);
            }
            store(y, low), store(y + P, high);
        }
    }
}

template <class T, int WIDTH, int AHEAD>
__global__ void rotary_forward_v3(const T *q, const T *k, const T *cosine, const T *sine, T *out_q, T *out_k, int64 N,
                                  int64 time, int64 NH, int64 NKV, int64 P) {
    turn_position<1, WIDTH, AHEAD>(q, k, cosine, sine, out_q, out_k, time, NH, NKV, P);
}

template <class T, int WIDTH, int AHEAD>
__global__ void rotary_backward_v3(const T *q, const T *k, const T *cosine, const T *sine, T *out_q, T *out_k, int64 N,
                                   int64 time, int64 NH, int64 NKV, int64 P) {
    turn_position<-1, WIDTH, AHEAD>(q, k, cosine, sine, out_q, out_k, time, NH, NKV, P);
}
