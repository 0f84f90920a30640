"""C functions that generated steps call; only those that are used are written into a file."""

from __future__ import annotations

import re

MATH = {
    "FABS": "fabs",
    "SQRT": "sqrt",
    "EXP": "exp",
    "LOG": "log",
    "LOG1P": "log1p",
    "EXPM1": "expm1",
    "SIN": "sin",
    "COS": "cos",
    "TAN": "tan",
    "ASIN": "asin",
    "ACOS": "acos",
    "ATAN": "atan",
    "ATAN2": "atan2",
    "TANH": "tanh",
    "RINT": "rint",
    "FLOOR": "floor",
    "POW": "pow",
}
"""Functions of ``math.h`` by the macro that stands for them in either precision."""

HELPERS: dict[str, str] = {
    "SIGMOID": """\
static real SIGMOID(real x)
{
    return R(1.0) / (R(1.0) + EXP(-x));
}
""",
    "larger": """\
static real larger(real x, real y) /* not a number if either is not */
{
    return x > y || x != x ? x : y;
}
""",
    "smaller": """\
static real smaller(real x, real y) /* not a number if either is not */
{
    return x < y || x != x ? x : y;
}
""",
    "elu": """\
static real elu(real x)
{
    return x > R(0.0) ? x : EXPM1(x);
}
""",
    "lerp": """\
static real lerp(real a, real b, real w) /* exactly a for w = 0 and b for w = 1 */
{
    return w < R(0.5) ? a + w * (b - a) : b - (b - a) * (R(1.0) - w);
}
""",
    "modulo": """\
static real modulo(real x, real y)
{
    return x - y * FLOOR(x / y);
}
""",
    "int_modulo": """\
static int64_t int_modulo(int64_t x, int64_t y)
{
    const int64_t r = x % y;
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
""",
    "cholesky": """\
static int cholesky(real *L, const real *A, int n) /* lower factor; 0, or the row at which A is not positive */
{
    for (int i = 0; i < n * n; ++i) {
        L[i] = R(0.0);
    }
    for (int j = 0; j < n; ++j) {
        real pivot = A[j * n + j];
        for (int k = 0; k < j; ++k) {
            pivot -= L[j * n + k] * L[j * n + k];
        }
        if (!(pivot > R(0.0))) {
            return j + 1;
        }
        const real root = SQRT(pivot);
        const real inverse = R(1.0) / root;
        L[j * n + j] = root;
        for (int i = j + 1; i < n; ++i) {
            real sum = A[i * n + j];
            for (int k = 0; k < j; ++k) {
                sum -= L[i * n + k] * L[j * n + k];
            }
            L[i * n + j] = sum * inverse;
        }
    }
    return 0;
}
""",
    "solve_lower": """\
static void solve_lower(real *X, const real *L, const real *B, int n, int m) /* L X = B */
{
    for (int i = 0; i < n; ++i) {
        const real inverse = R(1.0) / L[i * n + i];
        for (int j = 0; j < m; ++j) {
            X[i * m + j] = B[i * m + j];
        }
        for (int k = 0; k < i; ++k) { /* rows at a time: neighbours in memory */
            const real factor = L[i * n + k];
            for (int j = 0; j < m; ++j) {
                X[i * m + j] -= factor * X[k * m + j];
            }
        }
        for (int j = 0; j < m; ++j) {
            X[i * m + j] *= inverse;
        }
    }
}
""",
    "solve_upper": """\
static void solve_upper(real *X, const real *U, const real *B, int n, int m) /* U X = B */
{
    for (int i = n - 1; i >= 0; --i) {
        const real inverse = R(1.0) / U[i * n + i];
        for (int j = 0; j < m; ++j) {
            X[i * m + j] = B[i * m + j];
        }
        for (int k = i + 1; k < n; ++k) { /* rows at a time: neighbours in memory */
            const real factor = U[i * n + k];
            for (int j = 0; j < m; ++j) {
                X[i * m + j] -= factor * X[k * m + j];
            }
        }
        for (int j = 0; j < m; ++j) {
            X[i * m + j] *= inverse;
        }
    }
}
""",
    "matrix_exponential": """\
/* Scaling, Taylor polynomial and squaring of exp(A) - I: the identity would take digits that squaring brings back. */
static void matrix_exponential(real *E, const real *A, int n, real *work)
{
    real *const scaled = work, *const term = work + n * n, *const next = work + 2 * n * n;
    real norm = R(0.0);
    int halvings = 0;
    for (int i = 0; i < n; ++i) {
        real row = R(0.0);
        for (int j = 0; j < n; ++j) {
            row += FABS(A[i * n + j]);
        }
        norm = row > norm ? row : norm;
    }
    while (norm > R(0.5) && halvings < 64) {
        norm *= R(0.5);
        ++halvings;
    }
    real factor = R(1.0);
    for (int i = 0; i < halvings; ++i) {
        factor *= R(0.5);
    }
    for (int i = 0; i < n * n; ++i) {
        scaled[i] = factor * A[i];
        term[i] = i % (n + 1) == 0 ? R(1.0) : R(0.0);
        E[i] = R(0.0);
    }
    for (int order = 1; order <= 14; ++order) {
        for (int i = 0; i < n; ++i) {
            for (int j = 0; j < n; ++j) {
                real sum = R(0.0);
                for (int k = 0; k < n; ++k) {
                    sum += term[i * n + k] * scaled[k * n + j];
                }
                next[i * n + j] = sum / (real)order;
            }
        }
        for (int i = 0; i < n * n; ++i) {
            term[i] = next[i];
            E[i] += term[i];
        }
    }
    for (int squaring = 0; squaring < halvings; ++squaring) {
        for (int i = 0; i < n; ++i) {
            for (int j = 0; j < n; ++j) {
                real sum = R(2.0) * E[i * n + j];
                for (int k = 0; k < n; ++k) {
                    sum += E[i * n + k] * E[k * n + j];
                }
                next[i * n + j] = sum;
            }
        }
        for (int i = 0; i < n * n; ++i) {
            E[i] = next[i];
        }
    }
    for (int i = 0; i < n; ++i) {
        E[i * (n + 1)] += R(1.0);
    }
}
""",
    "discretize": """\
/* F = exp(A dt), D = integral of exp(A s) B, Q = integral of exp(A s) S exp(A s)': a series over a short step, which is
   then doubled. E is F - I, which keeps the digits of slow motions. */
static void discretize(
    real *F, real *D, real *Q, const real *A, const real *B, const real *S, real dt, int n, int p, int terms,
    real *work)
{
    const int w = n + n + p;
    real *const block = work, *const series = work + w * w, *const next = work + 2 * w * w;
    real *const E = F, *const T = next;
    real rows = R(0.0), columns = R(0.0);
    for (int i = 0; i < n; ++i) {
        real row = R(0.0), column = R(0.0);
        for (int j = 0; j < n; ++j) {
            row += FABS(A[i * n + j]);
            column += FABS(A[j * n + i]);
        }
        rows = row > rows ? row : rows;
        columns = column > columns ? column : columns;
    }
    real norm = (rows < columns ? rows : columns) * FABS(dt), h = dt;
    int doublings = 0;
    while ((norm > R(0.5) || (2 * n - 1 > terms && doublings < 2)) && doublings < 2048) {
        norm *= R(0.5);
        h *= R(0.5);
        ++doublings;
    }
    for (int i = 0; i < w; ++i) {
        for (int j = 0; j < w; ++j) {
            real entry = R(0.0);
            if (i < n) {
                entry = j < n ? A[i * n + j] : j < 2 * n ? S[i * n + j - n] : B[i * p + j - 2 * n];
            } else if (i < 2 * n && j >= n && j < 2 * n) {
                entry = -A[(j - n) * n + i - n];
            }
            block[i * w + j] = h * entry;
            series[i * w + j] = block[i * w + j];
        }
    }
    for (int order = terms; order > 1; --order) {
        for (int i = 0; i < w; ++i) {
            for (int j = 0; j < w; ++j) {
                real sum = R(0.0);
                for (int k = 0; k < w; ++k) {
                    sum += block[i * w + k] * series[k * w + j];
                }
                next[i * w + j] = block[i * w + j] + sum / (real)order;
            }
        }
        for (int i = 0; i < w * w; ++i) {
            series[i] = next[i];
        }
    }
    for (int i = 0; i < n; ++i) {
        for (int j = 0; j < n; ++j) {
            E[i * n + j] = series[i * w + j];
            real sum = series[i * w + n + j];
            for (int k = 0; k < n; ++k) {
                sum += series[i * w + n + k] * series[j * w + k];
            }
            T[i * n + j] = sum;
        }
        for (int j = 0; j < p; ++j) {
            D[i * p + j] = series[i * w + 2 * n + j];
        }
    }
    for (int i = 0; i < n; ++i) {
        for (int j = 0; j < n; ++j) {
            Q[i * n + j] = R(0.5) * (T[i * n + j] + T[j * n + i]);
        }
    }
    for (int doubling = 0; doubling < doublings; ++doubling) {
        real *const EQ = block, *const EE = series, *const ED = next; /* T is next too, and used after ED */
        for (int i = 0; i < n; ++i) {
            for (int j = 0; j < n; ++j) {
                real eq = Q[i * n + j], ee = R(2.0) * E[i * n + j];
                for (int k = 0; k < n; ++k) {
                    eq += E[i * n + k] * Q[k * n + j];
                    ee += E[i * n + k] * E[k * n + j];
                }
                EQ[i * n + j] = eq;
                EE[i * n + j] = ee;
            }
            for (int j = 0; j < p; ++j) {
                real ed = R(2.0) * D[i * p + j];
                for (int k = 0; k < n; ++k) {
                    ed += E[i * n + k] * D[k * p + j];
                }
                ED[i * p + j] = ed;
            }
        }
        for (int i = 0; i < n * p; ++i) {
            D[i] = ED[i];
        }
        for (int i = 0; i < n; ++i) {
            for (int j = 0; j < n; ++j) {
                real sum = Q[i * n + j] + EQ[i * n + j];
                for (int k = 0; k < n; ++k) {
                    sum += EQ[i * n + k] * E[j * n + k];
                }
                T[i * n + j] = sum;
            }
        }
        for (int i = 0; i < n; ++i) {
            for (int j = 0; j < n; ++j) {
                Q[i * n + j] = R(0.5) * (T[i * n + j] + T[j * n + i]);
            }
        }
        for (int i = 0; i < n * n; ++i) {
            E[i] = EE[i];
        }
    }
    for (int i = 0; i < n; ++i) {
        F[i * (n + 1)] += R(1.0);
    }
}
""",
}


def preamble(text: str, double: bool) -> str:
    """Definitions that the given code needs: literals, functions of ``math.h`` and helpers."""
    used: list[str] = []
    scanned = text
    for name in [*HELPERS][::-1]:  # helpers may call others that stand before them
        if re.search(rf"\b{name}\(", scanned):
            used.append(name)
            scanned += HELPERS[name]
    suffix = "" if double else "f"
    lines = [f"#define R(number) number{'' if double else '##f'}"]
    lines += [f"#define {macro} {name}{suffix}" for macro, name in MATH.items() if re.search(rf"\b{macro}\(", scanned)]
    return "\n".join(lines) + "\n\n" + "\n".join(HELPERS[name] for name in used[::-1])
