"""A floor of the process noise of a regressed motion, from how well a filter on it states its errors.

Residuals of one step say how wrong the motion is, and not what linearising it costs a filter: where dynamics contract,
a covariance without process noise collapses in some direction, and the errors that are left there are many times the
stated ones. The floor with the greatest likelihood of the true states is added; it is zero where it does not help.
"""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor

from ..core.composed import ComposedSystem
from ..core.covariance import Covariance
from ..core.gaussian import log_prob
from ..data.protocols import Records
from ..evaluation.evaluate import estimate
from ..evaluation.rows import known_steps
from ..filters.factory import build
from ..metrics.accuracy import residual
from ..shapes import Float

SHARES = tuple(range(-12, -1))
"""Decimal logarithms of the floors that are tried, in squares of the size of a step: 1e-12 to 1e-2."""
RECORDS = 200
"""Records that are filtered for each floor, at most."""
CLEAR = 1.96
"""Standard errors by which a floor must be better than none."""
LOST = 1e6
"""Loss of a step whose covariance is singular."""


@torch.no_grad()
def with_process_floor(
    system: ComposedSystem, records: Records, step: Float[Tensor, " d"], moments: str = "linear"
) -> ComposedSystem:
    """The system with a floor of its ``Q``.

    Args:
        system: a regressed motion and its sensors.
        records: with true states; those that the motion was fitted to will do, for a floor is one number.
        step: size of a step of each coordinate.
        moments: of the filter that will run on it.

    Returns:
        A copy, or the system itself if no floor is better.
    """
    few = records.take(range(min(len(records), RECORDS)))
    floor = step.double().square().diag()

    def made(share: float) -> ComposedSystem:
        changed = copy.deepcopy(system)
        Q = changed.motion.Q
        assert isinstance(Q, Covariance)
        Q.assign(Q() + 10.0**share * floor)
        return changed

    losses = [record_losses(made(share) if share is not None else system, few, moments) for share in (None, *SHARES)]
    means = [float(one.mean()) for one in losses]
    best = min(range(len(means)), key=means.__getitem__)
    gain = losses[0] - losses[best]
    if best == 0 or float(gain.mean()) <= CLEAR * float(gain.std()) / math.sqrt(len(gain)):
        return system
    share = float(SHARES[best - 1])
    if 1 < best < len(SHARES):  # the minimum of the parabola through three neighbours
        before, at, after = means[best - 1 : best + 2]
        share += 0.5 * (before - after) / (before - 2 * at + after)
    return made(share)


def record_losses(system: ComposedSystem, records: Records, moments: str = "linear") -> Float[Tensor, " N"]:
    """Mean negative log-density of the true states of each record under the filter's estimates.

    It is :data:`LOST` at most, as where a covariance is singular. The first step is left out: a state that is given
    exactly has no density.
    """
    found = estimate(build("fwnkf", system=system, moments=moments), records)
    assert found.cov is not None
    error = residual(records.layout, found.mean.double(), records.truth.double())[:, 1:]
    density, ok = log_prob(error, found.cov.double()[:, 1:])
    values = torch.where(ok, -density, LOST).nan_to_num(LOST).clamp_max(LOST)
    known = known_steps(records)
    counted = torch.ones_like(ok) if known is None else known[:, 1:]
    return torch.where(counted, values, 0.0).sum(1) / counted.sum(1).clamp_min(1)
