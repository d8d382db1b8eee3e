/* GELU (tanh form), the sigmoid and SiLU, lane by lane, with their slopes: shared by the families that apply them. */
#ifndef PERFKIT_ACTIVATIONS_H
#define PERFKIT_ACTIVATIONS_H

#include <perfkit/vector.h>

#define LOG2_E 1.4426950408889634f
#define SQRT_2_OVER_PI 0.7978845608028654f
#define CUBE 0.044715f /* GELU: u = sqrt(2/pi) (x + CUBE x^3) */

/* ---- GELU: y = 0.5 x (1 + tanh u) ------------------------------------------------------------------------------- */

/* 0.5 (1 + tanh u) is the sigmoid s of 2u, and with e = exp(-2u) = 2^t: s = 1 / (1 + e), 1 - s = e s.
 * Beyond |x| = 9.5, s is 0 or 1 to 33 digits: x is clamped there, so that neither x^3 nor e overflows. */
#define GELU_LIMIT 9.5f
#define GELU_T1 (-2.0f * LOG2_E * SQRT_2_OVER_PI)
#define GELU_T3 (GELU_T1 * CUBE)

typedef struct {
    vec low; /* x, or -GELU_LIMIT below it: there x s is 0, and stays 0 for every x */
    vec x;   /* x within the limits */
    vec square, e, s;
} GeluGate;

LANEWISE GeluGate gelu_gate(vec value) {
    vec low = v_at_least(value, -GELU_LIMIT), x = v_at_most(low, GELU_LIMIT);
    vec square = x * x;
    vec e = v_exp2_within(x * (square * GELU_T3 + GELU_T1));
    return (GeluGate){low, x, square, e, v_reciprocal(1.0f + e)};
}

LANEWISE vec v_gelu(vec x) {
    GeluGate g = gelu_gate(x);
    return g.low * g.s;
}

/* s + x ds/dx, with ds/dx = s (1 - s) d(2u)/dx. */
LANEWISE vec v_gelu_slope(vec x) {
    GeluGate g = gelu_gate(x);
    vec du = g.square * (6.0f * SQRT_2_OVER_PI * CUBE) + 2.0f * SQRT_2_OVER_PI;
    return g.s + g.s * (g.e * g.s) * (g.x * du);
}

/* ---- sigmoid and SiLU -------------------------------------------------------------------------------------------- */

/* exp(-x) for x clamped to where the sigmoid is neither 0 nor 1 in fp32, and its exponential stays finite. */
#define SIGMOID_LIMIT 87.0f

LANEWISE vec sigmoid_e(vec x) {
    return v_exp2_within(v_at_most(v_at_least(x, -SIGMOID_LIMIT), SIGMOID_LIMIT) * -LOG2_E);
}

LANEWISE vec v_sigmoid(vec x) {
    return v_reciprocal(1.0f + sigmoid_e(x));
}

/* x s; -SIGMOID_LIMIT s is 0 to 36 digits, and stays so for every smaller x. */
LANEWISE vec v_silu(vec x) {
    return v_at_least(x, -SIGMOID_LIMIT) * v_sigmoid(x);
}

/* s + x s (1 - s), with 1 - s = e s. */
LANEWISE vec v_silu_slope(vec x) {
    vec e = sigmoid_e(x), s = v_reciprocal(1.0f + e);
    return s + v_at_most(v_at_least(x, -SIGMOID_LIMIT), SIGMOID_LIMIT) * (e * s * s);
}

#endif
