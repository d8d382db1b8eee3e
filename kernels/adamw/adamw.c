/* AdamW over n parameters: param, m and v change in place. m and v are fp32 in every precision.
 *
 * g = grad_scale grad;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
 * param = decay param - lr (m / correction1) / (sqrt(v / correction2) + eps).
 * decay = 1 - lr weight_decay and correction = 1 - beta^step arrive computed: they are the same for every element.
 */
#include <perfkit/vector.h>

/* ---- version 1: as the formula says --------------------------------------------------------------------------- */

int adamw_step_v1(scalar *param, const scalar *grad, float *m, float *v, int64_t n, double lr, double beta1,
                  double beta2, double eps, double decay, double correction1, double correction2, double grad_scale) {
    for (int64_t i = 0; i < n; i++) {
        double g = grad_scale * get(grad + i);
        double mean = beta1 * m[i] + (1.0 - beta1) * g;
        double square = beta2 * v[i] + (1.0 - beta2) * g * g;
        m[i] = (float)mean;
        v[i] = (float)square;
        double change = lr * (mean / correction1) / (sqrt(square / correction2) + eps);
        put(param + i, (float)(decay * get(param + i) - change));
    }
    return KERNEL_DONE;
}

/* ---- version 2: threads and vectors, in fp32 -------------------------------------------------------------------- */

typedef struct {
    float beta1, one_less_beta1, beta2, one_less_beta2, eps, decay, rate, inverse_root, grad_scale;
} Step;

static inline void adamw_vector(scalar *param, const scalar *grad, float *m, float *v, int64_t lanes, Step s) {
    vec g = v_load_some(grad, lanes, 0.0f) * s.grad_scale;
    vec mean = v_load_float(m) * s.beta1 + g * s.one_less_beta1;
    vec square = v_load_float(v) * s.beta2 + g * g * s.one_less_beta2;
    v_store_float(m, mean);
    v_store_float(v, square);
    vec change = mean * s.rate / (v_sqrt(square) * s.inverse_root + s.eps);
    v_store_some(param, lanes, v_load_some(param, lanes, 0.0f) * s.decay - change);
}

/* The last elements, fewer than a vector: m and v by way of whole vectors of our own. */
static void adamw_rest(scalar *param, const scalar *grad, float *m, float *v, int64_t rest, Step s) {
    float means[WIDTH] = {0}, squares[WIDTH] = {0};
    memcpy(means, m, (size_t)rest * sizeof(float));
    memcpy(squares, v, (size_t)rest * sizeof(float));
    adamw_vector(param, grad, means, squares, rest, s);
    memcpy(m, means, (size_t)rest * sizeof(float));
    memcpy(v, squares, (size_t)rest * sizeof(float));
}

int adamw_step_v2(scalar *param, const scalar *grad, float *m, float *v, int64_t n, double lr, double beta1,
                  double beta2, double eps, double decay, double correction1, double correction2, double grad_scale) {
    Step s = {
        .beta1 = (float)beta1, .one_less_beta1 = (float)(1.0 - beta1),
        .beta2 = (float)beta2, .one_less_beta2 = (float)(1.0 - beta2),
        .eps = (float)eps, .decay = (float)decay,
        .rate = (float)(lr / correction1), .inverse_root = (float)(1.0 / sqrt(correction2)),
        .grad_scale = (float)grad_scale,
    };
    int64_t whole = n - n % WIDTH;
#pragma omp parallel for schedule(static) if (n >= PARALLEL_FROM)
    for (int64_t i = 0; i < whole; i += WIDTH) adamw_vector(param + i, grad + i, m + i, v + i, WIDTH, s);
    if (whole < n) adamw_rest(param + whole, grad + whole, m + whole, v + whole, n - whole, s);
    return KERNEL_DONE;
}
