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
