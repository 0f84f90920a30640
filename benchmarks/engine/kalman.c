/* A Kalman filter as one writes it by hand for one model: dense matrices of fixed size (N states, M channels), channels
 * of independent noise taken one after the other, NaN for a missing value. The belief is that at the first measurement.
 *
 *   gcc -O3 -march=native -shared -fPIC -DN=12 -DM=3 -DTRACKER kalman.c -lm
 *
 * With TRACKER the model is that of a target of position, velocity, acceleration and the bias of the tracker, three axes
 * each: F and Q of every step follow from its length. Without it F and Q are given, one for all steps.
 */
#include <math.h>
#include <string.h>

#define LOG_2PI 1.8378770664093453

typedef struct {
    double F[N][N], Q[N][N];     /* without TRACKER */
    double H[M][N], R[M];
    double mean[N], cov[N][N];   /* the belief at the first measurement */
    double density[3];           /* with TRACKER: of the jerk, by axis */
    double bias_std[3], seconds; /* and the bias: standard deviation by axis, correlation time */
} model;

#ifdef TRACKER
static void discretize(const model *given, double h, double F[N][N], double Q[N][N])
{
    const double h2 = h * h, h3 = h2 * h, h4 = h3 * h, h5 = h4 * h, decay = exp(-h / given->seconds);
    for (int i = 0; i < 3; ++i) {
        const double q = given->density[i], b = given->bias_std[i];
        F[i][3 + i] = F[3 + i][6 + i] = h;
        F[i][6 + i] = h2 / 2;
        F[9 + i][9 + i] = decay;
        Q[i][i] = q * h5 / 20;
        Q[i][3 + i] = Q[3 + i][i] = q * h4 / 8;
        Q[i][6 + i] = Q[6 + i][i] = q * h3 / 6;
        Q[3 + i][3 + i] = q * h3 / 3;
        Q[3 + i][6 + i] = Q[6 + i][3 + i] = q * h2 / 2;
        Q[6 + i][6 + i] = q * h;
        Q[9 + i][9 + i] = b * b * (1 - decay * decay);
    }
}
#endif

static void predict(double F[N][N], double Q[N][N], double x[N], double P[N][N])
{
    double moved[N], FP[N][N], Ft[N][N];
    for (int i = 0; i < N; ++i) {
        double sum = 0;
        for (int k = 0; k < N; ++k) {
            sum += F[i][k] * x[k];
            Ft[k][i] = F[i][k];
        }
        moved[i] = sum;
    }
    memcpy(x, moved, sizeof moved);
    for (int i = 0; i < N; ++i) {
        double row[N] = {0};
        for (int k = 0; k < N; ++k)
            for (int j = 0; j < N; ++j) row[j] += F[i][k] * P[k][j];
        memcpy(FP[i], row, sizeof row);
    }
    for (int i = 0; i < N; ++i) {
        double row[N];
        memcpy(row, Q[i], sizeof row);
        for (int k = 0; k < N; ++k)
            for (int j = 0; j < N; ++j) row[j] += FP[i][k] * Ft[k][j];
        memcpy(P[i], row, sizeof row);
    }
    for (int i = 0; i < N; ++i)
        for (int j = 0; j < i; ++j) P[i][j] = P[j][i];
}

/* The log-likelihood of one measurement; x and P become those given it. */
static double update(const model *given, const double *y, double x[N], double P[N][N], double *innovation)
{
    double total = 0;
    for (int c = 0; c < M; ++c) {
        double predicted = 0;
        for (int k = 0; k < N; ++k) predicted += given->H[c][k] * x[k];
        innovation[c] = isnan(y[c]) ? 0 : y[c] - predicted;
    }
    for (int c = 0; c < M; ++c) {
        if (isnan(y[c])) continue;
        const double *h = given->H[c];
        double Ph[N] = {0}, gain[N], s = given->R[c], residual = y[c];
        for (int k = 0; k < N; ++k)
            for (int j = 0; j < N; ++j) Ph[j] += h[k] * P[k][j];
        for (int k = 0; k < N; ++k) {
            s += h[k] * Ph[k];
            residual -= h[k] * x[k];
        }
        for (int k = 0; k < N; ++k) {
            gain[k] = Ph[k] / s;
            x[k] += gain[k] * residual;
        }
        for (int i = 0; i < N; ++i)
            for (int j = 0; j < N; ++j) P[i][j] -= gain[i] * Ph[j];
        total -= 0.5 * (LOG_2PI + log(s) + residual * residual / s);
    }
    return total;
}

void kalman_run(const model *given, const double *y, const double *dt, long steps, double *mean, double *cov,
                double *innovation, double *log_likelihood)
{
    double x[N], P[N][N], F[N][N] = {{0}}, Q[N][N] = {{0}}, total = 0;
    memcpy(x, given->mean, sizeof x);
    memcpy(P, given->cov, sizeof P);
#ifdef TRACKER
    for (int i = 0; i < N; ++i) F[i][i] = 1;
#else
    (void)dt;
    memcpy(F, given->F, sizeof F);
    memcpy(Q, given->Q, sizeof Q);
#endif
    for (long t = 0; t < steps; ++t) {
        if (t > 0) {
#ifdef TRACKER
            discretize(given, dt[t], F, Q);
#endif
            predict(F, Q, x, P);
        }
        total += update(given, y + t * M, x, P, innovation + t * M);
        memcpy(mean + t * N, x, sizeof x);
        memcpy(cov + t * N * N, P, sizeof P);
    }
    *log_likelihood = total;
}
