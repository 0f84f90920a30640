"""The one table of tolerances. A value looser than its neighbours carries its reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

TOLERANCES: dict[str, dict[torch.dtype, float]] = {
    # the same real-number expression, computed in another order
    "rounding": {torch.float64: 1e-12, torch.float32: 2e-6},
    # a few dozen steps of the same recursion by another algorithm
    "algebra": {torch.float64: 1e-10, torch.float32: 1e-5},
    # the two sides factor differently conditioned matrices: a joint posterior of all steps against a recursion
    "joint": {torch.float64: 1e-10},
    # float32 at a condition number of 1e8: what is left are the first digits, and they must be right
    "conditioned": {torch.float32: 0.01},
    # 2,000 samples through a recursion whose memory is larger than its output, each side rounding its own way
    "cascade": {torch.float64: 1e-12},
    # central differences with step h have an error of h² plus eps/h: about 1e-9 at best
    "finite_difference": {torch.float64: 1e-7},
    # a batch is multiplied by other kernels than a single item, and the rounding grows along the trajectory
    "batch": {torch.float64: 1e-10, torch.float32: 1e-4},
    # a traced graph decomposes some operations into others
    "export": {torch.float64: 1e-10, torch.float32: 1e-5},
}


def assert_close(actual: Any, expected: Any, kind: str = "algebra") -> None:
    """Relative and absolute tolerance of one kind from the table; accepts tensors and arrays, NaN equals nothing."""
    actual, expected = (torch.as_tensor(np.asarray(x) if isinstance(x, np.generic) else x) for x in (actual, expected))
    real = actual.dtype.to_real() if actual.dtype.is_complex else actual.dtype
    tolerance = TOLERANCES[kind][real]
    torch.testing.assert_close(actual.detach(), expected.detach(), rtol=tolerance, atol=tolerance)


def assert_same_bits(actual: torch.Tensor, expected: torch.Tensor, what: str = "") -> None:
    """Equal to the last bit; NaN equals NaN, so that it cannot hide."""
    assert actual.dtype == expected.dtype, what
    assert actual.shape == expected.shape, what
    same = (actual == expected) | (actual.isnan() & expected.isnan())
    assert bool(same.all()), f"{what}: {int((~same).sum())} of {same.numel()} numbers differ"
