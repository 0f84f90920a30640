/* The Kalman filter, its smoother and the gradient of its likelihood over recordings, for a linear model.

   Compiled with the sizes as macros: N states, M channels, and `real`. Matrices are in row-major order. Products are
   sums of rows, because a compiler may not reorder the sum of a scalar product and so cannot vectorise it. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef SINGLE
typedef float real;
#define EPS 1.1920928955078125e-07f
#define SQRT sqrtf
#define LOG logf
#define ABS fabsf
#else
typedef double real;
#define EPS 2.220446049250313e-16
#define SQRT sqrt
#define LOG log
#define ABS fabs
#endif

#define LOG_2PI ((real)1.8378770664093453)
#define ROUNDINGS 1000 /* core/gaussian.py */
#define DIGITS 32      /* core/forms.py */

enum { FACTORIZATION_FAILED = 1, PRECISION_LOST = 4, REJECTED = 256 };

typedef struct {
    int64_t records, steps, kinds, channels, width, controls, terms, entries, reported;
    int64_t predicts_first, shared;
    const real *F, *Q, *B;    /* [kinds][N][N], [kinds][N][N], [kinds][N][controls] */
    const real *H, *R;        /* [M][N], [M][M] */
    const real *factor;       /* of Q, elementwise, [N][N]; or NULL */
    const real *y, *weight;   /* [records][steps][channels] */
    const real *u;            /* [records][steps][controls]; or NULL */
    const real *dt;           /* [records][steps] in units of the series; NULL without a series */
    const int64_t *index;     /* [records][steps]: which of the kinds; or NULL */
    const int64_t *forced;    /* [records][steps]: statuses of other blocks, which fail together; or NULL */
    const real *series;       /* [terms][entries]: coefficients of F - I and Q in the length of a step; or NULL */
    const real *longest;      /* [terms]: h up to which that many terms, and one more, are exact to rounding */
    const int32_t *entry;     /* [entries]: their places in F, then, from N N on, in Q */
    const int32_t *channel;   /* [M]: the places of the channels in y */
    const int32_t *state;     /* [N]: the places of the states in the outputs, which have `width` coordinates */
    real norm;                /* of the drift over one unit of the series */
    real *start_mean, *start_cov;                     /* [records][N], [records][N][N]: before, and after the run */
    real *mean, *cov, *prior_mean, *prior_cov;        /* [records][steps][width], … [width][width]; or NULL */
    real *innovation, *innovation_cov, *log_density;  /* [records][steps][channels], …; or NULL */
    int64_t *status;                                  /* [records][steps]; or NULL */
} Arguments;

/* What a step does to any mean: the matrices, and bounds on rounding. */
typedef struct {
    real KT[M][N];       /* transposed gain; zero rows where masked */
    real low[M][M];      /* S = L D Lᵀ over the channels that were measured */
    real pivot[M], inverse[M], reach[M], inverse_std[M];
    real spread[N], variance[N];
    real log_det;
    int measured[M];
    int ok, precise, finite, failed;
} Step;

#if N > 6 && defined(__GNUC__)
#define APART __attribute__((noinline)) /* inlined everywhere they take seconds to compile */
#else
#define APART
#endif

/* ---- matrices of a step ---------------------------------------------------------------------------------------- */

/* Rows are summed in registers: vectors of the compiler (GCC, Clang, Zig) that the loop over k leaves there. */
#define LANES (32 / (int)sizeof(real))
typedef real vector __attribute__((vector_size(32), aligned(sizeof(real)), may_alias));
#define WIDE ((N / LANES) * LANES)

static APART void product(const real A[N][N], const real B[N][N], real out[N][N]) /* A B, without zeros of A */
{
    for (int i = 0; i < N; ++i) {
        for (int j = 0; j < WIDE; j += 4 * LANES) {
            vector sum[4] = {{0}, {0}, {0}, {0}};
            const int count = (WIDE - j) / LANES < 4 ? (WIDE - j) / LANES : 4;
            for (int k = 0; k < N; ++k) {
                const real a = A[i][k];
                if (N > 6 && a == 0) { continue; }
#pragma GCC unroll 4
                for (int l = 0; l < 4; ++l) {
                    if (l < count) { sum[l] += a * *(const vector *)&B[k][j + l * LANES]; }
                }
            }
#pragma GCC unroll 4
            for (int l = 0; l < 4; ++l) {
                if (l < count) { *(vector *)&out[i][j + l * LANES] = sum[l]; }
            }
        }
        for (int j = WIDE; j < N; ++j) {
            real sum = 0;
            for (int k = 0; k < N; ++k) { sum += A[i][k] * B[k][j]; }
            out[i][j] = sum;
        }
    }
}

/* out = base + Σ scale factor[q] rows[q] over `count` rows; factors are `stride` apart. Sums stay in registers. */
static inline void add_rows(real *out, const real *base, real scale, const real *factor, int stride,
                            const real rows[][N], int count)
{
    for (int j = 0; j < WIDE; j += 4 * LANES) {
        vector sum[4];
        const int wide = (WIDE - j) / LANES < 4 ? (WIDE - j) / LANES : 4;
#pragma GCC unroll 4
        for (int w = 0; w < 4; ++w) {
            if (w < wide) { sum[w] = *(const vector *)(base + j + w * LANES); }
        }
        for (int q = 0; q < count; ++q) {
            const real f = scale * factor[q * stride];
#pragma GCC unroll 4
            for (int w = 0; w < 4; ++w) {
                if (w < wide) { sum[w] += f * *(const vector *)(rows[q] + j + w * LANES); }
            }
        }
#pragma GCC unroll 4
        for (int w = 0; w < 4; ++w) {
            if (w < wide) { *(vector *)(out + j + w * LANES) = sum[w]; }
        }
    }
    for (int j = WIDE; j < N; ++j) {
        real sum = base[j];
        for (int q = 0; q < count; ++q) { sum += scale * factor[q * stride] * rows[q][j]; }
        out[j] = sum;
    }
}

/* Where matrices of a model are not zero, found once for a run: columns of each row of F, states that channels see. */
typedef struct {
    int entries[N], column[N][N], states, seen[N], unseen[N];
} Pattern;

static APART void transpose(const real A[N][N], real out[N][N])
{
    for (int i = 0; i < N; ++i) {
        for (int j = 0; j < N; ++j) { out[j][i] = A[i][j]; }
    }
}

static void symmetrize(real P[N][N])
{
    for (int i = 0; i < N; ++i) {
        for (int j = 0; j < i; ++j) { P[i][j] = P[j][i] = (real)0.5 * P[i][j] + (real)0.5 * P[j][i]; }
    }
}

/* A P Aᵀ + add for a symmetric P, exactly symmetric; as A (A P)ᵀ, which twice leaves out the zeros of A */
static APART void congruence(const real A[N][N], const real P[N][N], const real add[N][N], real out[N][N])
{
    real half[N][N], turned[N][N], full[N][N];
    product(A, P, half);
    transpose((const void *)half, turned);
    product(A, (const void *)turned, full);
    for (int i = 0; i < N; ++i) {
        for (int j = 0; j < N; ++j) { full[i][j] = (real)0.5 * (full[i][j] + add[i][j]); }
    }
    transpose((const void *)full, turned);
    for (int i = 0; i < N; ++i) { /* symmetrised in whole rows, which are faster than pairs */
        for (int j = 0; j < N; ++j) { out[i][j] = full[i][j] + turned[i][j]; }
    }
}

/* The matrices of a step of any length from the series of F - I, B and Q in the length, doubled where it is long. */
static void discretize(const Arguments *a, real length, const real *u, real F[N][N], real Q[N][N], real shift[N])
{
    int doublings = 0;
    for (real norm = a->norm * length; norm > (real)0.5 && doublings < 2048; norm *= (real)0.5) { ++doublings; }
    real h = length, added[N], moved[N][N], by[N][N];
    for (int k = 0; k < doublings; ++k) { h *= (real)0.5; }
    real *f = &F[0][0], *q = &Q[0][0], values[2 * N * N];
    const int64_t used = a->entries;
    for (int i = 0; i < N * N; ++i) { f[i] = q[i] = 0; }
    for (int i = 0; i < N; ++i) { added[i] = 0; }
    for (int64_t i = 0; i < used; ++i) { values[i] = 0; }
    int64_t needed = 0; /* found from the length alone: a run that is cut and continued has the same bits */
    while (needed < a->terms - 1 && h > a->longest[needed]) { ++needed; }
    for (int64_t k = needed; k >= 0; --k) {
        const real *terms = a->series + k * used;
        for (int64_t i = 0; i < used; ++i) { values[i] = h * (values[i] + terms[i]); }
        if (u) {
            for (int i = 0; i < N; ++i) {
                const real *row = a->B + (k * N + i) * a->controls;
                real sum = 0;
                for (int64_t p = 0; p < a->controls; ++p) { sum += row[p] * u[p]; }
                added[i] = h * (added[i] + sum);
            }
        }
    }
    for (int64_t i = 0; i < used; ++i) { /* entries of F, then of Q, that are not always zero */
        const int32_t place = a->entry[i];
        if (place < N * N) { f[place] = values[i]; } else { q[place - N * N] = values[i]; }
    }
    for (int k = 0; k < doublings; ++k) { /* F is less the identity here */
        product(F, Q, moved);
        for (int i = 0; i < N; ++i) {
            for (int j = 0; j < N; ++j) { moved[i][j] += Q[i][j]; }
        }
        real FT[N][N];
        transpose(F, FT);
        product(moved, FT, by);
        for (int i = 0; i < N; ++i) {
            real sum = 2 * added[i];
            for (int j = 0; j < N; ++j) {
                Q[i][j] += moved[i][j] + by[i][j];
                sum += F[i][j] * added[j];
            }
            shift[i] = sum;
        }
        symmetrize(Q);
        for (int i = 0; i < N; ++i) { added[i] = shift[i]; }
        product(F, F, moved);
        for (int i = 0; i < N * N; ++i) { f[i] = 2 * f[i] + (&moved[0][0])[i]; }
    }
    for (int i = 0; i < N; ++i) {
        F[i][i] += 1;
        shift[i] = added[i];
    }
    if (a->factor) {
        for (int i = 0; i < N * N; ++i) { q[i] *= a->factor[i]; }
    }
}

/* F, Q and what the controls add, for step `at` of all records */
static void matrices(const Arguments *a, int64_t at, const real **F, const real **Q, real shift[N], real ownF[N][N],
                     real ownQ[N][N])
{
    const real *u = a->u ? a->u + at * a->controls : NULL;
    if (a->dt) {
        discretize(a, a->dt[at], u, ownF, ownQ, shift);
        *F = &ownF[0][0];
        *Q = &ownQ[0][0];
        return;
    }
    const int64_t kind = a->index ? a->index[at] : 0;
    *F = a->F + kind * N * N;
    *Q = a->Q + kind * N * N;
    for (int i = 0; i < N; ++i) {
        real sum = 0;
        if (u) {
            const real *row = a->B + (kind * N + i) * a->controls;
            for (int64_t p = 0; p < a->controls; ++p) { sum += row[p] * u[p]; }
        }
        shift[i] = sum;
    }
}

static int finite(const real *values, int count)
{
    real sum[8] = {0}, rest = 0; /* several sums, which do not wait for each other */
    int i = 0;
    for (; i + 8 <= count; i += 8) {
        for (int l = 0; l < 8; ++l) { sum[l] += values[i + l] - values[i + l]; }
    }
    for (; i < count; ++i) { rest += values[i] - values[i]; }
    for (int l = 0; l < 8; ++l) { rest += sum[l]; }
    return rest == 0;
}

/* ---- the step of a covariance ----------------------------------------------------------------------------------- */

static void find_pattern(const Arguments *a, Pattern *pattern)
{
    const real(*H)[N] = (const void *)a->H;
    unsigned char used[N * N] = {0};
    if (a->dt) {
        for (int64_t i = 0; i < a->entries && a->entry[i] < N * N; ++i) { used[a->entry[i]] = 1; }
        for (int i = 0; i < N; ++i) { used[i * N + i] = 1; }
    } else {
        for (int64_t kind = 0; kind < a->kinds; ++kind) {
            for (int i = 0; i < N * N; ++i) { used[i] |= a->F[kind * N * N + i] != 0; }
        }
    }
    pattern->states = 0;
    for (int i = 0; i < N; ++i) {
        pattern->entries[i] = 0;
        for (int k = 0; k < N; ++k) {
            if (used[i * N + k]) { pattern->column[i][pattern->entries[i]++] = k; }
        }
        pattern->unseen[i] = 1;
        for (int q = 0; q < M; ++q) { pattern->unseen[i] &= H[q][i] == 0; }
        if (!pattern->unseen[i]) { pattern->seen[pattern->states++] = i; }
    }
}

/* A B without the zeros of A, in the columns from that of the diagonal on if `upper`; small matrices as a whole */
static APART void sparse_product(const real A[N][N], const Pattern *pattern, const real B[N][N], int upper,
                                 real out[N][N])
{
    if (N <= 6) {
        product(A, B, out);
        return;
    }
    for (int i = 0; i < N; ++i) {
        const int *column = pattern->column[i], count = pattern->entries[i];
        for (int j = upper ? i / LANES * LANES : 0; j < WIDE; j += 4 * LANES) {
            vector sum[4] = {{0}, {0}, {0}, {0}};
            const int wide = (WIDE - j) / LANES < 4 ? (WIDE - j) / LANES : 4;
            for (int l = 0; l < count; ++l) {
                const real a = A[i][column[l]];
                const real *row = B[column[l]] + j;
#pragma GCC unroll 4
                for (int w = 0; w < 4; ++w) {
                    if (w < wide) { sum[w] += a * *(const vector *)(row + w * LANES); }
                }
            }
#pragma GCC unroll 4
            for (int w = 0; w < 4; ++w) {
                if (w < wide) { *(vector *)&out[i][j + w * LANES] = sum[w]; }
            }
        }
        for (int j = WIDE; j < N; ++j) {
            real sum = 0;
            for (int l = 0; l < count; ++l) { sum += A[i][column[l]] * B[column[l]][j]; }
            out[i][j] = sum;
        }
    }
}

static APART void prediction(const real F[N][N], const real Q[N][N], const real P[N][N], const Pattern *pattern,
                             real prior[N][N], int *precise)
{
    real half[N][N], turned[N][N], std[N];
    sparse_product(F, pattern, P, 0, half);
    transpose((const void *)half, turned);
    sparse_product(F, pattern, (const void *)turned, 1, prior);
    for (int i = 0; i < N; ++i) {
        for (int j = i; j < N; ++j) { prior[j][i] = prior[i][j] += Q[i][j]; }
        std[i] = P[i][i] > 0 ? SQRT(P[i][i]) : 0;
    }
    for (int i = 0; i < N; ++i) {
        real sum = 0;
        for (int l = 0; l < pattern->entries[i]; ++l) {
            const int k = pattern->column[i][l];
            sum += ABS(F[i][k]) * std[k];
        }
        *precise &= prior[i][i] >= ROUNDINGS * EPS * sum * sum;
    }
}

/* The gain and what an update makes of the covariance. */
static APART void update(const Arguments *a, const Pattern *pattern, const real *weight, const real prior[N][N],
                         real S[M][M], real P[N][N], Step *step)
{
    const real(*H)[N] = (const void *)a->H;
    const real(*R)[M] = (const void *)a->R;
    real HP[M][N], rows[M][N], scaled[M][M];
    for (int q = 0; q < M; ++q) {
        for (int j = 0; j < N; ++j) { HP[q][j] = 0; }
        for (int k = 0; k < N; ++k) {
            const real h = H[q][k];
            if (h == 0) { continue; }
            for (int j = 0; j < N; ++j) { HP[q][j] += h * prior[k][j]; }
        }
    }
    for (int q = 0; q < M; ++q) {
        for (int p = 0; p <= q; ++p) {
            real one = R[q][p], other = R[p][q];
            for (int k = 0; k < N; ++k) {
                one += HP[q][k] * H[p][k];
                other += HP[p][k] * H[q][k];
            }
            S[q][p] = S[p][q] = (real)0.5 * one + (real)0.5 * other;
        }
    }
    step->ok = !step->failed;
    step->log_det = 0;
    for (int q = 0; q < M; ++q) {
        const int measured = weight[a->channel[q]] > 0;
        step->measured[q] = measured;
        step->pivot[q] = 1;
        step->inverse[q] = 0;
        for (int j = 0; j < N; ++j) { rows[q][j] = measured ? HP[q][j] : 0; }
        if (!measured) {
            for (int p = 0; p < q; ++p) { step->low[q][p] = 0; }
            continue;
        }
        real pivot = S[q][q];
        for (int p = 0; p < q; ++p) {
            if (!step->measured[p]) {
                step->low[q][p] = 0;
                continue;
            }
            real entry = S[q][p];
            for (int k = 0; k < p; ++k) {
                if (step->measured[k]) { entry -= scaled[q][k] * step->low[p][k]; }
            }
            scaled[q][p] = entry;
            step->low[q][p] = entry * step->inverse[p];
            pivot -= entry * step->low[q][p];
            for (int j = 0; j < N; ++j) { rows[q][j] -= step->low[q][p] * rows[p][j]; }
        }
        step->ok &= pivot > 0;
        step->pivot[q] = pivot;
        step->inverse[q] = 1 / pivot;
        step->log_det += LOG(pivot);
    }
    for (int q = M - 1; q >= 0; --q) {
        for (int j = 0; j < N; ++j) { rows[q][j] *= step->inverse[q]; }
        for (int k = q + 1; k < M; ++k) {
            if (!step->measured[q] || !step->measured[k]) { continue; }
            for (int j = 0; j < N; ++j) { rows[q][j] -= step->low[k][q] * rows[k][j]; }
        }
        for (int j = 0; j < N; ++j) { step->KT[q][j] = step->ok ? rows[q][j] : 0; }
    }
    /* Joseph's form (I - K H) P (I - K H)ᵀ + K R Kᵀ as X + (K R - X Hᵀ) Kᵀ with X = P - K (H P): K and H are narrow.
       The rounding of X is corrected with X itself, so that it is computed once. */
    real XT[N][N], WT[M][N], zero[N] = {0};
    const real(*KT)[N] = (const void *)step->KT;
    for (int k = 0; k < N; ++k) { add_rows(XT[k], prior[k], -1, &HP[0][k], N, KT, M); }
    for (int p = 0; p < M; ++p) {
        add_rows(WT[p], zero, 1, R[p], 1, KT, M);
        for (int l = 0; l < pattern->states; ++l) {
            const int k = pattern->seen[l];
            add_rows(WT[p], WT[p], -1, &H[p][k], 1, (const void *)XT[k], 1);
        }
    }
    for (int k = 0; k < N; ++k) { add_rows(XT[k], XT[k], 1, &KT[0][k], N, (const void *)WT, M); }
    for (int i = 0; i < N; ++i) {
        for (int j = i; j < N; ++j) { P[i][j] = P[j][i] = (real)0.5 * (XT[i][j] + XT[j][i]); }
    }
    /* bounds on rounding: keeps_digits and _resolved of core/gaussian.py */
    real before[N], after[N];
    for (int i = 0; i < N; ++i) {
        before[i] = prior[i][i] > 0 ? SQRT(prior[i][i]) : 0;
        after[i] = P[i][i] > 0 ? SQRT(P[i][i]) : 0;
        step->variance[i] = P[i][i];
    }
    for (int q = 0; q < M; ++q) {
        real seen = 0, held = 0;
        for (int k = 0; k < N; ++k) {
            seen += ABS(H[q][k]) * before[k];
            held += ABS(H[q][k]) * after[k];
        }
        step->reach[q] = SQRT(seen * seen + S[q][q]);
        step->inverse_std[q] = 1 / SQRT(S[q][q]);
        step->precise &= !step->measured[q] || R[q][q] > 100 * EPS * held * held;
    }
    real left[N]; /* |I - K H| times the standard deviations */
    for (int i = 0; i < N; ++i) { left[i] = pattern->unseen[i] * before[i]; }
    for (int l = 0; l < pattern->states; ++l) {
        const int k = pattern->seen[l];
        real entry[N];
        for (int i = 0; i < N; ++i) { entry[i] = i == k; }
        for (int q = 0; q < M; ++q) {
            for (int i = 0; i < N; ++i) { entry[i] -= H[q][k] * step->KT[q][i]; }
        }
        for (int i = 0; i < N; ++i) { left[i] += ABS(entry[i]) * before[k]; }
    }
    for (int i = 0; i < N; ++i) {
        real spread = before[i];
        for (int q = 0; q < M; ++q) { spread += ABS(step->KT[q][i]) * step->reach[q]; }
        step->precise &= P[i][i] >= ROUNDINGS * EPS * left[i] * left[i];
        step->spread[i] = spread;
    }
    step->finite = finite(&P[0][0], N * N) && finite(&S[0][0], M * M);
}

/* S⁻¹ v over the channels that were measured, and vᵀ S⁻¹ v */
static real solve(const Step *step, const real v[M], real out[M])
{
    real square = 0;
    for (int q = 0; q < M; ++q) {
        out[q] = step->measured[q] ? v[q] : 0;
        for (int p = 0; p < q; ++p) { out[q] -= step->low[q][p] * out[p]; }
        square += out[q] * out[q] * step->inverse[q];
    }
    for (int q = M - 1; q >= 0; --q) {
        out[q] *= step->inverse[q];
        for (int k = q + 1; k < M; ++k) { out[q] -= step->measured[q] ? step->low[k][q] * out[k] : 0; }
    }
    return square;
}

/* ---- the filter -------------------------------------------------------------------------------------------------- */

static void write_cov(const Arguments *a, real *target, int64_t at, const real P[N][N])
{
    if (!target) { return; }
    real *out = target + at * a->width * a->width;
    if (a->width == N && a->state[N - 1] == N - 1) { /* places are in order: these are all states */
        memcpy(out, P, sizeof(real) * N * N);
        return;
    }
    for (int i = 0; i < N; ++i) {
        if (a->state[i] >= a->width) { continue; }
        for (int j = 0; j < N; ++j) {
            if (a->state[j] < a->width) { out[a->state[i] * a->width + a->state[j]] = P[i][j]; }
        }
    }
}

static void write_mean(const Arguments *a, real *target, int64_t at, const real m[N])
{
    if (!target) { return; }
    for (int i = 0; i < N; ++i) {
        if (a->state[i] < a->width) { target[at * a->width + a->state[i]] = m[i]; }
    }
}

/* One mean through one step; returns the status. `moved` is the prediction, `m` is overwritten unless rejected. */
static int64_t condition(const Arguments *a, int64_t at, const Step *step, const real moved[N], real m[N], int rejected)
{
    const real(*H)[N] = (const void *)a->H;
    const real *y = a->y + at * a->channels;
    real v[M], weighted[M], next[N], farthest = 0, total = 0;
    int precise = step->precise;
    for (int q = 0; q < M; ++q) {
        v[q] = 0;
        if (!step->measured[q]) { continue; }
        const real value = y[a->channel[q]], variance = a->R[q * M + q], size = DIGITS * EPS * value;
        real sum = 0;
        for (int k = 0; k < N; ++k) { sum += H[q][k] * moved[k]; }
        v[q] = value - sum;
        const real far = ABS(v[q]) * step->inverse_std[q];
        farthest = far > farthest ? far : farthest;
        precise &= size * size <= variance || variance == 0;
    }
    real square = solve(step, v, weighted);
    for (int q = 0; q < M; ++q) {
        if (!step->measured[q]) { continue; }
        real size = step->ok ? ABS(weighted[q]) : 0;
        const real by_pivot = farthest / SQRT(step->pivot[q]);
        size = by_pivot > size ? by_pivot : size;
        total += step->reach[q] * size;
    }
    total = total > (real)0.5 ? total : (real)0.5;
    for (int i = 0; i < N; ++i) { next[i] = moved[i]; }
    for (int q = 0; q < M; ++q) {
        for (int i = 0; i < N; ++i) { next[i] += step->KT[q][i] * v[q]; }
    }
    int resolved = 1;
    for (int i = 0; i < N; ++i) {
        const real error = 20 * EPS * step->spread[i] * total;
        precise &= step->variance[i] >= error * error;
        if (a->state[i] < a->reported) {
            const real one = ABS(next[i]), other = ABS(moved[i]), size = DIGITS * EPS * (one > other ? one : other);
            resolved &= size * size <= step->variance[i] || step->variance[i] == 0;
        }
    }
    write_mean(a, a->prior_mean, at, moved);
    write_mean(a, a->mean, at, next);
    if (a->innovation) {
        for (int q = 0; q < M; ++q) { a->innovation[at * a->channels + a->channel[q]] = v[q]; }
    }
    if (a->log_density) {
        int count = 0;
        for (int q = 0; q < M; ++q) { count += step->measured[q]; }
        if (!step->ok) {
            square = 0;
            for (int q = 0; q < M; ++q) { square += v[q] * v[q]; }
        }
        a->log_density[at] += (real)-0.5 * (square + (step->ok ? step->log_det : 0) + count * LOG_2PI);
    }
    int64_t status = step->ok ? 0 : FACTORIZATION_FAILED;
    status |= step->ok && !(precise && resolved) ? PRECISION_LOST : 0;
    if (rejected || !step->finite || !finite(next, N)) {
        return (status & ~(int64_t)PRECISION_LOST) | REJECTED;
    }
    for (int i = 0; i < N; ++i) { m[i] = next[i]; }
    return status;
}

static void move(const real F[N][N], const real shift[N], const real m[N], real out[N])
{
    for (int i = 0; i < N; ++i) {
        real sum = shift[i];
        for (int j = 0; j < N; ++j) { sum += F[i][j] * m[j]; }
        out[i] = sum;
    }
}

/* Filter all records. With `shared` they have the covariances of the first. Returns the union of all statuses. */
int64_t kalman_filter(const Arguments *a)
{
    int64_t all = 0;
    Step *known = NULL;
    const int64_t T = a->steps;
    Pattern pattern;
    find_pattern(a, &pattern);
    if (a->shared && a->records > 1) {
        known = malloc(T * sizeof(Step));
        if (!known) { return -1; }
    }
    for (int64_t b = 0; b < a->records; ++b) {
        real m[N], P[N][N], prior[N][N], S[M][M], ownF[N][N], ownQ[N][N], shift[N], moved[N];
        memcpy(m, a->start_mean + b * N, sizeof m);
        memcpy(P, a->start_cov + b * N * N, sizeof P);
        Step own;
        for (int64_t t = 0; t < T; ++t) {
            const int64_t at = b * T + t;
            const real *F, *Q;
            const int moves = t > 0 || a->predicts_first;
            Step *step = known ? known + t : &own;
            int rejected = a->forced && (a->forced[at] & REJECTED);
            if (moves) {
                matrices(a, at, &F, &Q, shift, ownF, ownQ);
                rejected |= a->u && !finite(a->u + at * a->controls, (int)a->controls);
                move((const void *)F, shift, m, moved);
            } else {
                memcpy(moved, m, sizeof moved);
            }
            if (!known || b == 0) {
                step->precise = 1;
                step->failed = a->forced && (a->forced[at] & FACTORIZATION_FAILED);
                real next[N][N];
                if (moves) {
                    prediction((const void *)F, (const void *)Q, (const void *)P, &pattern, prior, &step->precise);
                } else {
                    memcpy(prior, P, sizeof prior);
                }
                update(a, &pattern, a->weight + at * a->channels, (const void *)prior, S, next, step);
                write_cov(a, a->prior_cov, at, (const void *)prior);
                write_cov(a, a->cov, at, (const void *)next);
                if (a->innovation_cov) {
                    real *out = a->innovation_cov + at * a->channels * a->channels;
                    for (int q = 0; q < M; ++q) {
                        for (int p = 0; p < M; ++p) { out[a->channel[q] * a->channels + a->channel[p]] = S[q][p]; }
                    }
                }
                const int64_t status = condition(a, at, step, moved, m, rejected);
                if (!(status & REJECTED)) { memcpy(P, next, sizeof P); }
                if (a->status) { a->status[at] |= status; }
                all |= status;
            } else {
                const int64_t status = condition(a, at, step, moved, m, rejected);
                if (a->status) { a->status[at] |= status; }
                all |= status;
            }
        }
        memcpy(a->start_mean + b * N, m, sizeof m);
        if (!known || b == 0) { memcpy(a->start_cov + b * N * N, P, sizeof P); }
        else { memcpy(a->start_cov + b * N * N, a->start_cov, sizeof P); }
    }
    free(known);
    return all;
}

/* ---- the smoother ------------------------------------------------------------------------------------------------ */

/* X with X A = B for a positive semidefinite A: rows of B are in its range. A pivot that is rounding counts as zero. */
static void right_solve_psd(const real A[N][N], const real B[N][N], real X[N][N])
{
    real low[N][N], inverse[N], rows[N][N]; /* rows[k][i] = B[i][k] */
    transpose(B, rows);
    for (int q = 0; q < N; ++q) {
        real pivot = A[q][q];
        for (int p = 0; p < q; ++p) {
            real entry = A[q][p];
            for (int k = 0; k < p; ++k) { entry -= low[q][k] * low[p][k] * (inverse[k] > 0 ? 1 / inverse[k] : 0); }
            low[q][p] = entry * inverse[p];
            pivot -= entry * low[q][p];
            for (int i = 0; i < N; ++i) { rows[q][i] -= low[q][p] * rows[p][i]; }
        }
        inverse[q] = pivot > 8 * N * EPS * ABS(A[q][q]) ? 1 / pivot : 0;
    }
    for (int q = N - 1; q >= 0; --q) {
        for (int i = 0; i < N; ++i) { rows[q][i] *= inverse[q]; }
        for (int k = q + 1; k < N; ++k) {
            const real l = inverse[q] > 0 ? low[k][q] : 0;
            for (int i = 0; i < N; ++i) { rows[q][i] -= l * rows[k][i]; }
        }
    }
    transpose((const void *)rows, X);
}

/* The gain of the smoother, E = P Fᵀ (P⁻)⁻¹, and the covariance of the next step with this one. */
static void backward_gain(const real P[N][N], const real F[N][N], const real prior[N][N], const real Ps[N][N],
                          real E[N][N], real *cross)
{
    real PF[N][N], FT[N][N];
    transpose(F, FT);
    product(P, (const void *)FT, PF);
    right_solve_psd(prior, (const void *)PF, E);
    if (cross) { product((const void *)E, Ps, (void *)cross); }
}

/* What the smoother carries from a step to the one before it. */
typedef struct {
    real mean[N], cov[N][N], prior_mean[N], prior_cov[N][N], F[N][N], Q[N][N];
} Following;

/* Smooth a part of records given what comes after it. `mean` … `prior_cov` are those of the filter over all N
   coordinates; `mean` and `cov` become the smoothed ones. `following`, one for each record, is what the part after this
   one left, if `follows`, and becomes what this one leaves. cross[t] is the covariance of the step before t with t. */
int64_t kalman_smoother(const Arguments *a, int64_t follows, Following *following, real *cross)
{
    const int64_t T = a->steps;
    for (int64_t b = 0; b < a->records; ++b) {
        Following *next = following + b;
        for (int64_t t = T - 1; t >= 0; --t) {
            const int64_t at = b * T + t;
            real *m = a->mean + at * N;
            real(*P)[N] = (void *)(a->cov + at * N * N);
            if (t < T - 1 || follows) {
                real E[N][N], A[N][N], sum[N][N], added[N][N];
                backward_gain((const void *)P, (const void *)next->F, (const void *)next->prior_cov,
                              (const void *)next->cov, E, cross && t < T - 1 ? cross + (at + 1) * N * N : NULL);
                product((const void *)E, (const void *)next->F, A);
                for (int i = 0; i < N; ++i) {
                    for (int j = 0; j < N; ++j) {
                        A[i][j] = (i == j) - A[i][j];
                        sum[i][j] = next->cov[i][j] + next->Q[i][j];
                    }
                }
                /* (I - E F) P (I - E F)ᵀ + E (Q + Ps) Eᵀ: nothing is subtracted */
                memset(added, 0, sizeof added);
                congruence((const void *)E, (const void *)sum, (const void *)added, added);
                for (int i = 0; i < N; ++i) {
                    for (int j = 0; j < N; ++j) { m[i] += E[i][j] * (next->mean[j] - next->prior_mean[j]); }
                }
                congruence((const void *)A, (const void *)P, (const void *)added, next->cov);
                memcpy(P, next->cov, sizeof next->cov);
            } else {
                memcpy(next->cov, P, sizeof next->cov);
            }
            memcpy(next->mean, m, sizeof next->mean);
            memcpy(next->prior_mean, a->prior_mean + at * N, sizeof next->prior_mean);
            memcpy(next->prior_cov, a->prior_cov + at * N * N, sizeof next->prior_cov);
            const int rejected = a->status && (a->status[at] & REJECTED);
            if (!rejected && (t > 0 || a->predicts_first)) {
                const real *f, *q;
                real shift[N], ownF[N][N], ownQ[N][N];
                matrices(a, at, &f, &q, shift, ownF, ownQ);
                memcpy(next->F, f, sizeof next->F);
                memcpy(next->Q, q, sizeof next->Q);
            } else {
                memset(next->F, 0, sizeof next->F);
                memset(next->Q, 0, sizeof next->Q);
                for (int i = 0; i < N; ++i) { next->F[i][i] = 1; }
            }
        }
        if (cross) {
            real E[N][N];
            backward_gain((const void *)(a->start_cov + b * N * N), (const void *)next->F,
                          (const void *)next->prior_cov, (const void *)next->cov, E, cross + b * T * N * N);
        }
    }
    return 0;
}

/* ---- the gradient of the log-likelihood --------------------------------------------------------------------------- */

/* Adjoints of the recursion (Koopman and Shephard 1992): r and N are the derivatives of what follows a prediction in
   its mean and, as (r rᵀ - N) / 2, in its covariance. `scale` are the derivatives by the log-likelihood of each record.
   Adds to gradients in F, Q and B of each kind, H, R; sets those in the mean and the covariance at the start. */
int64_t kalman_gradient(const Arguments *a, const real *scale, real *gF, real *gQ, real *gB, real *gH, real *gR,
                        real *g_mean, real *g_cov)
{
    const real(*H)[N] = (const void *)a->H;
    const int64_t T = a->steps;
    real(*sumH)[N] = (void *)gH;
    real(*sumR)[M] = (void *)gR;
    Pattern pattern;
    find_pattern(a, &pattern);
    for (int64_t b = 0; b < a->records; ++b) {
        real r[N], L[N][N]; /* derivatives at the belief after step t */
        memset(r, 0, sizeof r);
        memset(L, 0, sizeof L);
        const real s = scale[b];
        for (int64_t t = T - 1; t >= 0; --t) {
            const int64_t at = b * T + t;
            const real *before = a->prior_mean + at * N;
            const real(*prior)[N] = (const void *)(a->prior_cov + at * N * N);
            real S[M][M], P[N][N], v[M], weighted[M], e[M], D[M][M], Si[M][M], KL[M][N], W[M][M];
            Step step;
            step.precise = 1;
            step.failed = 0;
            update(a, &pattern, a->weight + at * a->channels, prior, S, P, &step);
            for (int q = 0; q < M; ++q) {
                real sum = 0;
                for (int k = 0; k < N; ++k) { sum += H[q][k] * before[k]; }
                v[q] = step.measured[q] ? a->y[at * a->channels + a->channel[q]] - sum : 0;
            }
            solve(&step, v, weighted);
            for (int q = 0; q < M; ++q) {
                real unit[M];
                for (int p = 0; p < M; ++p) { unit[p] = p == q; }
                solve(&step, unit, Si[q]);
                real sum = 0;
                for (int k = 0; k < N; ++k) { sum += step.KT[q][k] * r[k]; }
                e[q] = weighted[q] - sum;
                for (int j = 0; j < N; ++j) { KL[q][j] = 0; }
                for (int k = 0; k < N; ++k) {
                    const real f = step.KT[q][k];
                    for (int j = 0; j < N; ++j) { KL[q][j] += f * L[k][j]; }
                }
            }
            for (int q = 0; q < M; ++q) {
                for (int p = 0; p < M; ++p) {
                    real sum = Si[q][p];
                    for (int k = 0; k < N; ++k) { sum += KL[q][k] * step.KT[p][k]; }
                    D[q][p] = step.measured[q] && step.measured[p] ? sum : 0;
                    W[q][p] = (real)0.5 * (e[q] * e[p] - D[q][p]);
                    sumR[q][p] += s * W[q][p];
                }
            }
            /* in H: e m⁻ᵀ + (s rᵀ - 2 Kᵀ A + 2 W H) P⁻ with A = (r rᵀ - L) / 2 */
            for (int q = 0; q < M; ++q) {
                if (!step.measured[q]) { continue; }
                real row[N];
                const real kr = weighted[q] - e[q];
                for (int k = 0; k < N; ++k) {
                    row[k] = weighted[q] * r[k] - kr * r[k] + KL[q][k];
                    for (int p = 0; p < M; ++p) { row[k] += 2 * W[q][p] * (step.measured[p] ? H[p][k] : 0); }
                }
                for (int j = 0; j < N; ++j) {
                    real sum = e[q] * before[j];
                    for (int k = 0; k < N; ++k) { sum += row[k] * prior[k][j]; }
                    sumH[q][j] += s * sum;
                }
            }
            /* before the update: r ← r + Hᵀ e, L ← Hᵀ S⁻¹ H + (I - K H)ᵀ L (I - K H) */
            real A[N][N], AT[N][N], seen[N][N], next[N][N];
            for (int k = 0; k < N; ++k) {
                for (int j = 0; j < N; ++j) {
                    real sum = k == j;
                    for (int q = 0; q < M; ++q) { sum -= H[q][k] * step.KT[q][j]; }
                    AT[k][j] = sum;
                }
            }
            transpose((const void *)AT, A);
            for (int i = 0; i < N; ++i) {
                for (int j = 0; j < N; ++j) {
                    real sum = 0;
                    for (int q = 0; q < M; ++q) {
                        for (int p = 0; p < M; ++p) {
                            if (step.measured[q] && step.measured[p]) { sum += H[q][i] * Si[q][p] * H[p][j]; }
                        }
                    }
                    seen[i][j] = sum;
                }
            }
            congruence((const void *)AT, (const void *)L, (const void *)seen, next);
            for (int i = 0; i < N; ++i) {
                for (int q = 0; q < M; ++q) { r[i] += step.measured[q] ? H[q][i] * e[q] : 0; }
            }
            memcpy(L, next, sizeof L);
            if (t == 0 && !a->predicts_first) { continue; }
            /* before the prediction */
            const int64_t kind = a->index ? a->index[at] : 0;
            const real(*F)[N] = (const void *)(a->F + kind * N * N);
            const real *m = t ? a->mean + (at - 1) * N : a->start_mean + b * N;
            const real(*P0)[N] = (const void *)(t ? a->cov + (at - 1) * N * N : a->start_cov + b * N * N);
            real G[N][N], GF[N][N], GFP[N][N], FT[N][N];
            for (int i = 0; i < N; ++i) {
                for (int j = 0; j < N; ++j) {
                    G[i][j] = (real)0.5 * (r[i] * r[j] - L[i][j]);
                    gQ[(kind * N + i) * N + j] += s * G[i][j];
                }
            }
            product((const void *)G, F, GF);
            product((const void *)GF, P0, GFP);
            for (int i = 0; i < N; ++i) {
                for (int j = 0; j < N; ++j) { gF[(kind * N + i) * N + j] += s * (r[i] * m[j] + 2 * GFP[i][j]); }
                for (int64_t p = 0; a->u && p < a->controls; ++p) {
                    gB[(kind * N + i) * a->controls + p] += s * r[i] * a->u[at * a->controls + p];
                }
            }
            transpose(F, FT);
            memset(seen, 0, sizeof seen);
            congruence((const void *)FT, (const void *)L, (const void *)seen, next);
            memcpy(L, next, sizeof L);
            real back[N];
            for (int i = 0; i < N; ++i) {
                real sum = 0;
                for (int j = 0; j < N; ++j) { sum += FT[i][j] * r[j]; }
                back[i] = sum;
            }
            memcpy(r, back, sizeof r);
        }
        for (int i = 0; i < N; ++i) {
            g_mean[b * N + i] = s * r[i];
            for (int j = 0; j < N; ++j) { g_cov[(b * N + i) * N + j] = s * (real)0.5 * (r[i] * r[j] - L[i][j]); }
        }
    }
    return 0;
}
