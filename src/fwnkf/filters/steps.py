"""Which lengths the steps of a filter have, and which values act in a step without a sample.

Decided once for everything that has samples with time stamps: recordings (:mod:`fwnkf.runtime.recordings`), records of
a training, and frames.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..errors import DataError
from ..logs.clock import RATE_TOLERANCE
from ..shapes import Float

Filter = Any
"""A :class:`fwnkf.Filter`, which imports this module for its frames."""
NOMINAL_TOLERANCE = 1e-6
"""Relative difference up to which a step has the nominal length: the rounding of float32."""


def last_known(values: NDArray[Any], axis: int = 0) -> NDArray[Any]:
    """In every row the last finite values of it and the rows before, which act from then on.

    >>> last_known(np.array([[1.0], [np.nan], [3.0], [np.nan]]))[:, 0].tolist()
    [1.0, 1.0, 3.0, 3.0]
    """
    number = np.arange(values.shape[axis]).reshape([-1 if k == axis else 1 for k in range(values.ndim)])
    rows = np.where(np.isfinite(values), number, 0)
    held: NDArray[Any] = np.take_along_axis(values, np.maximum.accumulate(rows, axis), axis)
    return held


def step_for(
    model: Filter, step: float, *, stamps: bool = False, tolerance: float = RATE_TOLERANCE, name: str = "the log"
) -> float | None:
    """The seconds between samples, where the filter has to be told them; None where it takes its own step.

    Args:
        model: the filter.
        step: seconds between the samples.
        stamps: whether the steps are to be those of the time stamps in any case.
        tolerance: relative difference up to which the samples have the rate of the filter.
        name: what the samples are called in errors.

    Raises:
        DataError: the filter has a fixed step of another length.
    """
    nominal = step if model.system is None else model.system.dt / model.input_sizes.block
    same = abs(step / nominal - 1) <= tolerance
    if not (model.system is not None and model.system.takes_dt) and (stamps or not same):
        raise DataError(
            f"the filter runs at {1 / nominal:.5g} Hz with a fixed step of {nominal:.6g} s, but {name} has "
            f"{1 / step:.5g} Hz; resample the log, or use a filter of that rate, or one with continuous=True"
        )
    return None if same and not stamps else step


def dt_for(model: Filter, dt: Float[Tensor, "N T"], *, continued: bool = False) -> Float[Tensor, "N T"] | None:
    """``dt``, or None if the filter takes none or does not need it.

    A system in continuous time is discretised anew for every ``dt``, which takes most of the time of a step. If all
    steps after the first have the nominal length, a run without ``dt`` computes the same with one discretisation.
    ``continued`` says that the first step is one like the others, not that of a prior.
    """
    if not model.takes_dt:
        return None
    system = model.system
    if system is None or not system.discretizes or model.preprocess is not None:
        return dt
    steps = dt if continued else dt[:, 1:]
    return None if bool(((steps / system.dt - 1).abs() < NOMINAL_TOLERANCE).all()) else dt
