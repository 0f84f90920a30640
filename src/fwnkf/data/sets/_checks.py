"""Plausibility checks of recordings: limits that no real recording reaches, and consistency between sensors."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ...core import rotation
from ...errors import DataError
from ...shapes import Bool, Float

GYRO_LIMIT = 100.0
"""rad/s, about 5,700 °/s; beyond the range of common gyroscopes."""
ACCELERATION_LIMIT = 500.0
"""m/s², about 50 g."""
POSITION_LIMIT = 1e4
"""m; the supported data sets were recorded indoors."""
SPEED_LIMIT = 100.0
"""m/s."""
MISSING_LIMIT = 0.5
"""Largest accepted fraction of missing measurements."""

Place = Callable[[int, int], str]
"""Returns the file, line and column that a row and column of a tensor were read from."""


def within(values: Float[Tensor, "T k"], limit: float, unit: str, place: Place, hint: str) -> None:
    """Raise if a finite value exceeds the limit."""
    outliers = (values.isfinite() & (values.abs() > limit)).nonzero()
    if len(outliers):
        row, column = (int(i) for i in outliers[0])
        raise DataError(
            f"{place(row, column)}: {float(values[row, column]):g} {unit} exceeds the limit of {limit:g} {unit}; "
            f"{len(outliers)} such value(s). {hint}"
        )


def measured(
    values: Float[Tensor, "T m"], what: str, where: str, time: Tensor
) -> tuple[Bool[Tensor, "T m"], list[str]]:
    """The mask of finite values, and a note if any are missing."""
    mask = values.isfinite()
    lost = int((~mask).sum())
    if lost == 0:
        return mask, []
    if lost > MISSING_LIMIT * mask.numel():
        raise DataError(f"{where}: {lost} of {mask.numel()} values of {what} are not finite; the file is damaged")
    first = float(time[int((~mask).any(-1).nonzero()[0])])
    return mask, [f"{lost} value(s) of {what} are not finite and are masked, the first at {first:.3f} s"]


def gravity(acceleration: Float[Tensor, "T 3"], where: str) -> None:
    """Raise if the median length of the measured acceleration is far from gravity, 9.81 m/s²."""
    lengths = acceleration.norm(dim=-1)
    median = float(lengths[lengths.isfinite()].median()) if bool(lengths.isfinite().any()) else math.nan
    if 5.0 <= median <= 20.0:
        return
    hint = "the unit may be g: multiply by 9.80665" if 0.5 <= median <= 2.0 else "check unit and columns"
    raise DataError(
        f"{where}: the median length of the acceleration is {median:.4g} m/s², far from gravity (9.81); {hint}"
    )


def rotation_rate(
    time: Float[Tensor, " T"],
    gyro: Float[Tensor, "T 3"],
    q: Float[Tensor, "T 4"],
    known: Bool[Tensor, " T"],
    where: str,
) -> None:
    """Raise if the gyroscope and the ground truth differ by a factor over steps of 0.1 s; 57 means degrees."""
    lag = max(1, round(0.1 / float(time.diff().median())))
    if len(time) <= 2 * lag:
        return
    angle = rotation.log(rotation.multiply(rotation.conjugate(q[:-lag]), q[lag:])).norm(dim=-1)
    sums = torch.cat((gyro.new_zeros(1, 3), gyro.nan_to_num(0.0).cumsum(0)))
    mean = (sums[lag:-1] - sums[: -lag - 1]) / lag
    elapsed = time[lag:] - time[:-lag]
    good = known[:-lag] & known[lag:] & (angle < 2.0) & (elapsed < 1.0)  # near half a turn the angle is ambiguous
    if int(good.sum()) < 10:
        return
    truth = float((angle / elapsed)[good].square().mean().sqrt())
    gyro_rate = float(mean.norm(dim=-1)[good].square().mean().sqrt())
    if truth < 0.1:  # at rest the ratio depends on the bias of the gyroscope
        if gyro_rate > 10.0:
            raise DataError(f"{where}: the gyroscope measures {gyro_rate:.3g} rad/s at rest; check its unit")
        return
    ratio = gyro_rate / truth
    if not 0.2 <= ratio <= 5.0:
        hint = "the unit may be degrees: multiply by π/180" if 20.0 <= ratio <= 120.0 else "check units and columns"
        raise DataError(
            f"{where}: the gyroscope measures {ratio:.3g} times the rate of the ground truth ({gyro_rate:.3g} and "
            f"{truth:.3g} rad/s); {hint}"
        )


def unit_quaternions(
    q: Float[Tensor, "T 4"], place: Place, tolerance: float = 0.01
) -> tuple[Float[Tensor, "T 4"], Bool[Tensor, " T"]]:
    """Normalized quaternions and the mask of the finite ones; raises if the norm of one is far from 1."""
    finite = q.isfinite().all(-1)
    lengths = torch.where(finite[:, None], q, torch.nan).norm(dim=-1)
    invalid = (finite & ((lengths - 1).abs() > tolerance)).nonzero()
    if len(invalid):
        row = int(invalid[0])
        raise DataError(
            f"{place(row, 0)}: the norm of the quaternion is {float(lengths[row]):.4g}, not 1; {len(invalid)} such "
            "row(s). The columns differ from the expected ones, or the file is damaged"
        )
    return torch.where(finite[:, None], q / lengths[:, None], torch.nan), finite
