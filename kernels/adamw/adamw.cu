/* AdamW over n parameters: param, m and v change in place. m and v are fp32 in every precision.
 *
 * g = grad_scale grad;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
 * param = decay param - lr (m / correction1) / (sqrt(v / correction2) + eps).
 */
#include <perfkit/device.cuh>

struct Numbers {
    float beta1, rest1, beta2, rest2, eps, decay, rate, root, grad_scale;
    /* Worked out in fp64: 1 - beta2 loses digits in fp32. */
    DEVICE Numbers(double lr, double beta1, double beta2, double eps, double decay, double correction1,
                   double correction2, double grad_scale)
        : beta1((float)beta1), rest1((float)(1.0 - beta1)), beta2((float)beta2), rest2((float)(1.0 - beta2)),
          eps((float)eps), decay((float)decay), rate((float)(lr / correction1)), root((float)(1.0 / correction2)),
          grad_scale((float)grad_scale) {}
};

DEVICE void step(float &param, float grad, float &m, float &v, const Numbers &n) {
    float g = n.grad_scale * grad;
    m = n.beta1 * m + n.rest1 * g;
    v = n.beta2 * v + n.rest2 * g * g;
    param = n.decay * param - n.rate * m / (sqrtf(v * n.root) + n.eps);
}

/* ---- version 1: one parameter a thread ------------------------------------------------------------------------------ */

template <class T>
__global__ void adamw_step_v1(T *param, const T *grad, float *m, float *v, int64 n, double lr, double beta1,
                              double beta2, double eps, double decay, double correction1, double correction2,
                              double grad_scale) {
    int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Numbers numbers(lr, beta1, beta2, eps, decay, correction1, correction2, grad_scale);
    float p = get(param + i);
    step(p, get(grad + i), m[i], v[i], numbers);
    put(param + i, p);
}

/* ---- version 2: WIDTH parameters a thread by 16-byte accesses to m and v --------------------------------------------- */

template <class T, int WIDTH>
__global__ void adamw_step_v2(T *param, const T *grad, float *m, float *v, int64 n, double lr, double beta1,
                              double beta2, double eps, double decay, double correction1, double correction2,
                              double grad_scale) {
    int64 i = ((int64)blockIdx.x * blockDim.x + threadIdx.x) * WIDTH;
    Numbers numbers(lr, beta1, beta2, eps, decay, correction1, correction2, grad_scale);
    if (i + WIDTH <= n) {
        float p[WIDTH], g[WIDTH], first[WIDTH], second[WIDTH];
        load(param + i, p);
        load(grad + i, g);
        load(m + i, first);
        load(v + i, second);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) step(p[j], g[j], first[j], second[j], numbers);
        store(param + i, p);
        store(m + i, first);
        store(v + i, second);
    } else {
        for (; i < n; i++) {
            float p = get(param + i);
            step(p, get(grad + i), m[i], v[i], numbers);
            put(param + i, p);
        }
    }
}
