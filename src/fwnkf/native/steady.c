/* Squared errors of one-step predictions of filters with constant gains, for models side by side in lanes of vectors.

   The states of a model are pairs that move apart from each other, and of each the first is measured. All arrays of a
   model have LANES models in their last axis. */

#include <stdint.h>

#define LANES 8

/* matrix: [pairs][4][LANES], gain: [pairs][2][LANES], output: [pairs][LANES]; state is room for [pairs][2][LANES].
   y, present and counted have a value for each step; total: [LANES]. */
void squared_errors(int64_t steps, int64_t pairs, const double *restrict matrix, const double *restrict gain,
                    const double *restrict output, const double *restrict y, const double *restrict present,
                    const double *restrict counted, double *restrict state, double *restrict total)
{
    for (int64_t i = 0; i < 2 * pairs * LANES; i++) state[i] = 0.0;
    for (int64_t t = 0; t < steps; t++) {
        double error[LANES];
        const double sample = y[t], seen = present[t], counts = counted[t];
        for (int k = 0; k < LANES; k++) error[k] = sample;
        for (int64_t p = 0; p < pairs; p++)
            for (int k = 0; k < LANES; k++) error[k] -= output[p * LANES + k] * state[2 * p * LANES + k];
        for (int k = 0; k < LANES; k++) {
            error[k] *= seen;
            total[k] += counts * error[k] * error[k];
        }
        for (int64_t p = 0; p < pairs; p++) {
            const double *F = matrix + 4 * p * LANES, *K = gain + 2 * p * LANES;
            double *x = state + 2 * p * LANES;
            for (int k = 0; k < LANES; k++) {
                const double first = x[k] + K[k] * error[k], second = x[LANES + k] + K[LANES + k] * error[k];
                x[k] = F[k] * first + F[LANES + k] * second;
                x[LANES + k] = F[2 * LANES + k] * first + F[3 * LANES + k] * second;
            }
        }
    }
}
