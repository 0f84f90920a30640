"""The chi-square distribution, without scipy."""

from __future__ import annotations

import math


def mean_square_quantile(z: float, freedom: float) -> float:
    """Quantile of a chi-square variable over its degrees of freedom, ``z`` standard normal deviations from its median.

    By the cube of Wilson and Hilferty (1931).

    >>> round(mean_square_quantile(1.96, 100), 3)  # 129.561 / 100
    1.296
    """
    spread = 2 / (9 * freedom)
    return float(max(0.0, 1 - spread + z * math.sqrt(spread)) ** 3)


def chi_square_tail(value: float, freedom: float) -> float:
    """Probability of a larger value.

    >>> round(chi_square_tail(129.561, 100), 3)
    0.025
    """
    import torch

    half = torch.tensor(freedom / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(half, torch.tensor(value / 2, dtype=torch.float64)))
