"""How well a filter bridges missing measurements: the first measurement after a gap against what it predicted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fwnkf.core.trajectory import Trajectory
from fwnkf.errors import ConfigError
from fwnkf.filters.base import Filter
from fwnkf.shapes import Float

__all__ = ["GapErrors", "gap_errors"]

BATCH = 1024
"""Records that run at a time."""


class GapErrors(NamedTuple):
    """Prediction errors at the end of gaps of several lengths, with the covariance that the filter states for them.

    >>> GapErrors(torch.zeros(1, 2, 1), torch.ones(1, 2, 1, 1)).error.shape
    torch.Size([1, 2, 1])
    """

    error: Float[Tensor, "N K m"]
    """By record, length and channel."""
    cov: Float[Tensor, "N K m m"]
    """Covariances of the errors."""


@torch.no_grad()
def gap_errors(
    model: Filter,
    y: Float[Tensor, "N T m"],
    u: Float[Tensor, "N T p"] | None,
    begin: int,
    lengths: Sequence[int],
    *,
    dt: Float[Tensor, "N T"] | None = None,
) -> GapErrors:
    """Errors of the measurement ``length`` samples after sample ``begin - 1``, with none in between.

    The control goes on during a gap. A length of one step is the ordinary one-step prediction. Lengths ascend; for a
    filter with a preprocessing that reads blocks of samples, ``begin`` and the lengths are whole blocks.

    Args:
        model: the filter.
        y: measurements.
        u: controls.
        begin: first sample of the gap.
        lengths: lengths of the gaps in samples, ascending.
        dt: lengths of the steps in seconds.

    Returns:
        Errors at the end of each gap.

    Raises:
        ConfigError: a gap does not fit the records or the blocks of the filter.

    >>> import fwnkf
    >>> one = torch.eye(1)
    >>> walk = fwnkf.KF(F=one, H=one, Q=one, R=one)
    >>> found = gap_errors(walk, torch.zeros(1, 60, 1), None, begin=50, lengths=(1, 5))
    >>> found.cov.flatten().diff().round()  # four more steps of Q
    tensor([4.])
    """
    block = model.input_sizes.block
    odd = [number for number in (begin, *lengths) if number < block or number % block]
    if odd or list(lengths) != sorted(set(lengths)) or begin + max(lengths) > y.shape[1]:
        raise ConfigError(
            f"gaps of {list(lengths)} samples behind {begin}: wanted ascending whole steps of {block} sample(s) within "
            f"the {y.shape[1]} samples of the records"
        )
    parts = []
    for rows in torch.arange(len(y)).split(BATCH):
        own_u, own_dt = (None if item is None else item[rows] for item in (u, dt))
        parts.append(_errors(model, y[rows], own_u, own_dt, begin, lengths, block))
    return GapErrors(*(torch.cat(values) for values in zip(*parts, strict=True)))


def _errors(
    model: Filter,
    y: Tensor,
    u: Tensor | None,
    dt: Tensor | None,
    begin: int,
    lengths: Sequence[int],
    block: int,
) -> GapErrors:

    def run(first: int, stop: int, state: Any = None, present: bool = True) -> Trajectory:
        part = slice(first, stop)
        steps, times = (None if item is None else item[:, part] for item in (u, dt))
        mask = torch.full_like(y[:, part], present, dtype=torch.bool) & y[:, part].isfinite()
        return model.run(y[:, part], steps, mask, times, state=state).raise_for_status()

    state, at = run(0, begin).state, begin
    errors, covs = [], []
    for length in lengths:
        end = begin + length - block
        if end > at:
            state = run(at, end, state, present=False).state
            at = end
        probe = run(at, at + block, state)
        errors.append(probe.innovation[:, 0])
        covs.append(probe.innovation_cov[:, 0])
    return GapErrors(torch.stack(errors, 1), torch.stack(covs, 1))
