/* The gate of Llama's MLP: y = gate s up with s = 1 / (1 + exp(-gate)).
 *
 * dgate = dy up s (1 + gate (1 - s)), dup = dy gate s.
 * Argument order everywhere: input tensors, output tensors, sizes. n is the number of elements.
 */
#include <perfkit/activations.h>
#include <perfkit/fp8.h>

/* ---- version 1: as the formula says --------------------------------------------------------------------------- */

int swiglu_forward_v1(const scalar *gate, const scalar *up, scalar *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        float g = get(gate + i);
        put(y + i, g / (1.0f + expf(-g)) * get(up + i));
    }
    return KERNEL_DONE;
}

int swiglu_backward_v1(const scalar *dy, const scalar *gate, const scalar *up, scalar *dgate, scalar *dup, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        float g = get(gate + i), s = 1.0f / (1.0f + expf(-g)), d = get(dy + i);
        put(dgate + i, d * get(up + i) * s * (1.0f + g * (1.0f - s)));
        put(dup + i, d * g * s);
    }
    return KERNEL_DONE;
}

/* ---- version 2: threads and vectors --------------------------------------------------------------------------- */

int swiglu_forward_v2(const scalar *gate, const scalar *up, scalar *y, int64_t n) {
#define GATED(i, lanes)                                                                                               \
    v_store_some(y + i, lanes, v_silu(v_load_some(gate + i, lanes, 0.0f)) * v_load_some(up + i, lanes, 0.0f))
    FOR_EACH_VECTOR(n, GATED)
    return KERNEL_DONE;
}

/* The compiler sees that both take the same sigmoid. */
static inline void gradients(vec d, vec g, vec u, scalar *dgate, scalar *dup, int64_t lanes) {
    v_store_some(dgate, lanes, d * u * v_silu_slope(g));
    v_store_some(dup, lanes, d * v_silu(g));
}

int swiglu_backward_v2(const scalar *dy, const scalar *gate, const scalar *up, scalar *dgate, scalar *dup, int64_t n) {
#define GATE_GRADIENTS(i, lanes)                                                                                      \
    gradients(v_load_some(dy + i, lanes, 0.0f), v_load_some(gate + i, lanes, 0.0f), v_load_some(up + i, lanes, 0.0f), \
              dgate + i, dup + i, lanes)
    FOR_EACH_VECTOR(n, GATE_GRADIENTS)
    return KERNEL_DONE;
}

/* ---- with the largest absolute value of each result, for its cast to fp8; version 1 ------------------------------ */

int swiglu_amax_forward_v1(const scalar *gate, const scalar *up, float *amax, scalar *y, int64_t n) {
    swiglu_forward_v2(gate, up, y, n);
    raise_amax(amax, y, n);
    return KERNEL_DONE;
}

int swiglu_amax_backward_v1(const scalar *dy, const scalar *gate, const scalar *up, float *amax_gate, float *amax_up,
                            scalar *dgate, scalar *dup, int64_t n) {
    swiglu_backward_v2(dy, gate, up, dgate, dup, n);
    raise_amax(amax_gate, dgate, n);
    raise_amax(amax_up, dup, n);
    return KERNEL_DONE;
}
