/* Reads a checkpoint and a debug state by their documented layout alone, computes GPT-2 from them in double precision,
 * and compares logits, loss and gradients (by central differences).
 *
 *     llmc_reader CHECKPOINT STATE      prints one line a comparison; 0 when all hold
 *
 * B batch, T time, C channels, NH heads, L layers, V vocabulary, Vp padded vocabulary, M longest time.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WTE, WPE, LN1W, LN1B, QKVW, QKVB, PROJW, PROJB, LN2W, LN2B, FCW, FCB, OUTW, OUTB, LNFW, LNFB, TENSORS };

static int M, V, L, NH, C, Vp, B, T;
static long sizes[TENSORS], starts[TENSORS], total;

static void *need(size_t bytes) {
    void *p = calloc(bytes, 1);
    if (!p) exit(3);
    return p;
}

static void take(FILE *file, void *into, size_t bytes) {
    if (fread(into, 1, bytes, file) != bytes) { printf("the file is too short\n"); exit(2); }
}

static double *take_floats(FILE *file, long n) {
    float *raw = need(4 * n);
    double *values = need(8 * n);
    take(file, raw, 4 * n);
    for (long i = 0; i < n; i++) values[i] = raw[i];
    free(raw);
    return values;
}

static void at_end(FILE *file) {
    if (fgetc(file) != EOF) { printf("the file is too long\n"); exit(2); }
    fclose(file);
}

static void normalise(double *out, const double *x, const double *w, const double *b) {
    double mean = 0, variance = 0;
    for (int i = 0; i < C; i++) mean += x[i] / C;
    for (int i = 0; i < C; i++) variance += (x[i] - mean) * (x[i] - mean) / C;
    for (int i = 0; i < C; i++) out[i] = (x[i] - mean) / sqrt(variance + 1e-5) * w[i] + b[i];
}

/* out (outputs) = w (outputs, inputs) x (inputs) + b */
static void linear(double *out, const double *x, const double *w, const double *b, int inputs, int outputs) {
    for (int o = 0; o < outputs; o++) {
        double sum = b ? b[o] : 0;
        for (int i = 0; i < inputs; i++) sum += w[(long)o * inputs + i] * x[i];
        out[o] = sum;
    }
}

static double gelu(double x) { return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

/* Attention of one sequence: qkv (T, 3C) → out (T, C). */
static void attend(double *out, const double *qkv) {
    int size = C / NH;
    double *p = need(8 * T);
    for (int h = 0; h < NH; h++)
        for (int t = 0; t < T; t++) {
            double largest = -INFINITY, sum = 0;
            for (int s = 0; s <= t; s++) {
                p[s] = 0;
                for (int i = h * size; i < (h + 1) * size; i++) p[s] += qkv[t * 3 * C + i] * qkv[s * 3 * C + C + i];
                p[s] /= sqrt(size);
                if (p[s] > largest) largest = p[s];
            }
            for (int s = 0; s <= t; s++) sum += p[s] = exp(p[s] - largest);
            for (int i = h * size; i < (h + 1) * size; i++) {
                out[t * C + i] = 0;
                for (int s = 0; s <= t; s++) out[t * C + i] += p[s] / sum * qkv[s * 3 * C + 2 * C + i];
            }
        }
    free(p);
}

/* The mean loss; logits (B, T, V) where asked for. */
static double forward(const double *p, const int32_t *x, const int32_t *y, double *logits) {
    double *r = need(8L * T * C), *n = need(8L * T * C), *qkv = need(24L * T * C), *a = need(8L * T * C);
    double *f = need(32L * C), *o = need(8L * C), *scores = need(8L * V), loss = 0;
    for (int b = 0; b < B; b++) {
        for (int t = 0; t < T; t++)
            for (int c = 0; c < C; c++)
                r[t * C + c] = p[starts[WTE] + (long)x[b * T + t] * C + c] + p[starts[WPE] + t * C + c];
        for (int l = 0; l < L; l++) {
            const double *w[TENSORS];
            for (int k = LN1W; k <= OUTB; k++) w[k] = p + starts[k] + sizes[k] / L * l;
            for (int t = 0; t < T; t++) {
                normalise(n + t * C, r + t * C, w[LN1W], w[LN1B]);
                linear(qkv + t * 3 * C, n + t * C, w[QKVW], w[QKVB], C, 3 * C);
            }
            attend(a, qkv);
            for (int t = 0; t < T; t++) {
                linear(o, a + t * C, w[PROJW], w[PROJB], C, C);
                for (int c = 0; c < C; c++) r[t * C + c] += o[c];
                normalise(n, r + t * C, w[LN2W], w[LN2B]);
                linear(f, n, w[FCW], w[FCB], C, 4 * C);
                for (int c = 0; c < 4 * C; c++) f[c] = gelu(f[c]);
                linear(o, f, w[OUTW], w[OUTB], 4 * C, C);
                for (int c = 0; c < C; c++) r[t * C + c] += o[c];
            }
        }
        for (int t = 0; t < T; t++) {
            double largest = -INFINITY, sum = 0;
            normalise(n, r + t * C, p + starts[LNFW], p + starts[LNFB]);
            linear(scores, n, p + starts[WTE], NULL, C, V);
            for (int v = 0; v < V; v++) largest = fmax(largest, scores[v]);
            for (int v = 0; v < V; v++) sum += exp(scores[v] - largest);
            loss += (largest + log(sum) - scores[y[b * T + t]]) / (B * T);
            if (logits) memcpy(logits + ((long)b * T + t) * V, scores, 8L * V);
        }
    }
    free(r), free(n), free(qkv), free(a), free(f), free(o), free(scores);
    return loss;
}

static int verdict(const char *what, double difference, double allowed) {
    int ok = difference <= allowed;
    printf("%s %s: %.2e (allowed %.0e)\n", ok ? "OK" : "NOT OK", what, difference, allowed);
    return ok;
}

int main(int count, char **names) {
    int32_t header[256];
    FILE *file = count == 3 ? fopen(names[1], "rb") : NULL;
    if (!file) return 2;
    take(file, header, sizeof header);
    if (header[0] != 20240326 || header[1] != 3) return 2;
    M = header[2], V = header[3], L = header[4], NH = header[5], C = header[6], Vp = header[7];
    long c = C, all = (long)L * C, shapes[TENSORS] = {
        Vp * c, M * c, all, all, 3 * all * c, 3 * all, all * c, all, all, all, 4 * all * c, 4 * all, 4 * all * c, all, c, c,
    };
    for (int k = 0; k < TENSORS; k++) sizes[k] = shapes[k], starts[k] = total, total += shapes[k];
    double *weights = take_floats(file, total);
    at_end(file);

    file = fopen(names[2], "rb");
    if (!file) return 2;
    take(file, header, sizeof header);
    if (header[0] != 20240327 || header[1] != 2) return 2;
    B = header[2], T = header[3];
    int32_t *x = need(4L * B * T), *y = need(4L * B * T);
    take(file, x, 4L * B * T);
    take(file, y, 4L * B * T);
    double *expected = take_floats(file, (long)B * T * V), *loss = take_floats(file, 1), *gradients = take_floats(file, total);
    at_end(file);

    double *logits = need(8L * B * T * V), worst = 0;
    int ok = verdict("loss", fabs(forward(weights, x, y, logits) - *loss), 1e-5);
    for (long i = 0; i < (long)B * T * V; i++) worst = fmax(worst, fabs(logits[i] - expected[i]));
    ok &= verdict("logits", worst, 1e-5);
    for (int k = 0; k < TENSORS; k++) {
        char name[32];
        double size = 0;
        worst = 0;
        for (long i = 0; i < sizes[k]; i++) size = fmax(size, fabs(gradients[starts[k] + i]));
        for (int n = 0; n < 12; n++) { /* twelve elements, spread over the tensor */
            double *w = weights + starts[k] + (sizes[k] - 1) * n / 11, before = *w, step = 1e-4;
            *w = before + step;
            double above = forward(weights, x, y, NULL);
            *w = before - step;
            double slope = (above - forward(weights, x, y, NULL)) / (2 * step);
            *w = before;
            worst = fmax(worst, fabs(slope - gradients[w - weights]));
        }
        snprintf(name, sizeof name, "gradient %d", k);
        ok &= verdict(name, worst / size, 1e-4);
    }
    return !ok;
}
