/* A GRU of two layers as one would write it by hand: the bare network against which the generated filter is measured.
   Weights are stored by input, so that the inner loops run over neighbours. */
#include <math.h>

enum { INPUTS = 5, HIDDEN = 256 };

float input_0[INPUTS][3 * HIDDEN], hidden_0[HIDDEN][3 * HIDDEN], input_1[HIDDEN][3 * HIDDEN], hidden_1[HIDDEN][3 * HIDDEN];
float bias[4][3 * HIDDEN];

static void product(const float *x, int n, float (*weight)[3 * HIDDEN], const float *offset, float *out)
{
    for (int j = 0; j < 3 * HIDDEN; ++j) {
        out[j] = offset[j];
    }
    for (int i = 0; i < n; ++i) {
        for (int j = 0; j < 3 * HIDDEN; ++j) {
            out[j] += x[i] * weight[i][j];
        }
    }
}

static void cell(const float *from_input, const float *from_hidden, float *h)
{
    for (int j = 0; j < HIDDEN; ++j) {
        const float reset = 1.0f / (1.0f + expf(-(from_input[j] + from_hidden[j])));
        const float update = 1.0f / (1.0f + expf(-(from_input[HIDDEN + j] + from_hidden[HIDDEN + j])));
        const float candidate = tanhf(from_input[2 * HIDDEN + j] + reset * from_hidden[2 * HIDDEN + j]);
        h[j] = candidate + update * (h[j] - candidate);
    }
}

void gru_steps(const float *x, float *h, int steps)
{
    float from_input[3 * HIDDEN], from_hidden[3 * HIDDEN];
    for (int t = 0; t < steps; ++t) {
        product(x, INPUTS, input_0, bias[0], from_input);
        product(h, HIDDEN, hidden_0, bias[1], from_hidden);
        cell(from_input, from_hidden, h);
        product(h, HIDDEN, input_1, bias[2], from_input);
        product(h + HIDDEN, HIDDEN, hidden_1, bias[3], from_hidden);
        cell(from_input, from_hidden, h + HIDDEN);
    }
}
