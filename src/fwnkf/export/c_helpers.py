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
            real sum = B[i * m + j];
            for (int k = 0; k < i; ++k) {
                sum -= L[i * n + k] * X[k * m + j];
            }
            X[i * m + j] = sum * inverse;
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
            real sum = B[i * m + j];
            for (int k = i + 1; k < n; ++k) {
                sum -= U[i * n + k] * X[k * m + j];
            }
            X[i * m + j] = sum * inverse;
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
