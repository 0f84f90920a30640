"""Is this measured in the unit it should be? Limits no real recording of its kind comes near, and cross-checks."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..core import rotation
from ..errors import DataError
from ..shapes import Bool, Float

GYRO_LIMIT = 100.0
"""rad/s, some 5,700 degrees a second: beyond every gyroscope of the known sets."""
ACCELERATION_LIMIT = 500.0
"""m/s², some 50 g."""
POSITION_LIMIT = 1e4
"""m: the known sets were recorded in rooms."""
SPEED_LIMIT = 100.0
"""m/s."""
MISSING_LIMIT = 0.5
"""A measurement more than half of which is missing is no recording."""

Place = Callable[[int, int], str]
"""Names file, line and column of a row and a column of the tensor at hand."""


def within(values: Float[Tensor, "T k"], limit: float, unit: str, place: Place, hint: str) -> None:
    """Raise if a finite value is larger than any real one."""
    wild = (values.isfinite() & (values.abs() > limit)).nonzero()
    if len(wild):
        row, column = (int(i) for i in wild[0])
        raise DataError(
            f"{place(row, column)}: {float(values[row, column]):g} {unit} is larger than any real value "
            f"({limit:g}); {len(wild)} such value(s). {hint}"
        )


def measured(
    values: Float[Tensor, "T m"], what: str, where: str, time: Tensor
) -> tuple[Bool[Tensor, "T m"], list[str]]:
    """The mask of finite values, and a note if some are missing."""
    mask = values.isfinite()
    lost = int((~mask).sum())
    if lost == 0:
        return mask, []
    if lost > MISSING_LIMIT * mask.numel():
        raise DataError(f"{where}: {lost} of {mask.numel()} values of {what} are not finite; the file is damaged")
    first = float(time[int((~mask).any(-1).nonzero()[0])])
    return mask, [f"{lost} value(s) of {what} are not finite and masked, the first at {first:.3f} s"]


def gravity(acceleration: Float[Tensor, "T 3"], where: str) -> None:
    """An accelerometer feels gravity: its median length must be near 9.81 m/s²."""
    lengths = acceleration.norm(dim=-1)
    median = float(lengths[lengths.isfinite()].median()) if bool(lengths.isfinite().any()) else math.nan
    if 5.0 <= median <= 20.0:
        return
    guess = "it looks like g: multiply by 9.80665" if 0.5 <= median <= 2.0 else "check unit and columns"
    raise DataError(
        f"{where}: the median length of the acceleration is {median:.4g} m/s², far from gravity (9.81); {guess}"
    )


def rotation_rate(
    time: Float[Tensor, " T"],
    gyro: Float[Tensor, "T 3"],
    q: Float[Tensor, "T 4"],
    known: Bool[Tensor, " T"],
    where: str,
) -> None:
    """Gyroscope against truth over steps of about 0.1 s: a factor of 57 means degrees, another one other columns."""
    lag = max(1, round(0.1 / float(time.diff().median())))
    if len(time) <= 2 * lag:
        return
    turned = rotation.log(rotation.multiply(rotation.conjugate(q[:-lag]), q[lag:])).norm(dim=-1)
    sums = torch.cat((gyro.new_zeros(1, 3), gyro.nan_to_num(0.0).cumsum(0)))
    mean = (sums[lag:-1] - sums[: -lag - 1]) / lag
    elapsed = time[lag:] - time[:-lag]
    good = known[:-lag] & known[lag:] & (turned < 2.0) & (elapsed < 1.0)  # half a turn between samples says nothing
    if int(good.sum()) < 10:
        return
    truth = float((turned / elapsed)[good].square().mean().sqrt())
    felt = float(mean.norm(dim=-1)[good].square().mean().sqrt())
    if truth < 0.1:  # at rest the bias of the gyroscope decides, not its unit
        if felt > 10.0:
            raise DataError(f"{where}: the gyroscope turns at {felt:.3g} rad/s while the truth is at rest; check units")
        return
    ratio = felt / truth
    if not 0.2 <= ratio <= 5.0:
        guess = "it looks like degrees: multiply by π/180" if 20.0 <= ratio <= 120.0 else "check units and columns"
        raise DataError(
            f"{where}: the gyroscope turns {ratio:.3g} times as fast as the truth ({felt:.3g} against {truth:.3g} "
            f"rad/s); {guess}"
        )


def unit_quaternions(
    q: Float[Tensor, "T 4"], place: Place, tolerance: float = 0.01
) -> tuple[Float[Tensor, "T 4"], Bool[Tensor, " T"]]:
    """Quaternions scaled to length one, and which are finite; one that is not nearly of length one is an error."""
    finite = q.isfinite().all(-1)
    lengths = torch.where(finite[:, None], q, torch.nan).norm(dim=-1)
    off = (finite & ((lengths - 1).abs() > tolerance)).nonzero()
    if len(off):
        row = int(off[0])
        raise DataError(
            f"{place(row, 0)}: the quaternion has length {float(lengths[row]):.4g}, not 1; {len(off)} such row(s). "
            "The columns are others than expected, or the file is damaged"
        )
    return torch.where(finite[:, None], q / lengths[:, None], torch.nan), finite
