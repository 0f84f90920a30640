"""The health of a running filter, from its innovations: a pure function of tensors with memory of its own.

The normalised innovation shows whether a stated covariance holds. It shows nothing where the covariance grows without
bound together with the error, as in a filter that does not track at all, or where a filter has no covariance. Therefore
the innovations are also compared with the errors of two predictions that need no filter: the last measurement, and the
running mean of the measurements. A filter that predicts worse than both, without stating so, has diverged.
"""

from __future__ import annotations

from enum import IntFlag
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.gaussian import normalized_square
from ..core.layout import Layout
from ..shapes import Bool, Float, Int
from ..types import Status, StepOutput

MEMORY = 50.0
"""Measurements over which statistics are averaged ..."""
FAST = 10.0
"""... and those of a shorter average, by which an alarm ends soon after its cause."""
SETTLED = 20
"""Measurements of a channel before its innovations are judged."""
INCONSISTENT = 4.0
"""Average of the normalised squared innovation, one if consistent, above which the covariance is too small."""
UNEXPLAINED = 1.5
"""Power of the innovations over that of the errors of both trivial predictions, above which a filter does not track."""
UNBOUNDED = 25.0
"""Stated variance over the power of the trivial error, and over the smallest one, above which it is not meaningful."""
CLIPPED = 10.0, 100.0
"""The most that one innovation, and one variance or NIS, counts: a wide prior must not be an alarm for long."""
RESOLUTION = 0.01
"""Share of the smallest stated variance that trivial errors have at least: a sensor at rest may have no spread."""


class Reason(IntFlag):
    """Why a stream is not healthy. From ``NOT_FINITE`` on they mean that it has diverged."""

    NONE = 0
    FACTORIZATION_FAILED = int(Status.FACTORIZATION_FAILED)
    NON_FINITE_OBSERVATION = int(Status.NON_FINITE_OBSERVATION)
    PRECISION_LOST = int(Status.PRECISION_LOST)
    GATED = 8
    RECOVERED = 16
    LATE = 32
    DUPLICATE = 64
    STALE = 128
    INCONSISTENT = 256
    NOT_TRACKING = 512
    OFF_CLOCK = 1024
    RESTARTED = 2048
    REJECTED = 4096
    NOT_FINITE = 8192
    DIVERGED = 16384


EXPLANATIONS = {
    Reason.FACTORIZATION_FAILED: "the innovation covariance was not positive definite, so the measurement was not used",
    Reason.NON_FINITE_OBSERVATION: "a measurement was not finite, or too large to be squared, and was not used",
    Reason.PRECISION_LOST: "rounding has changed the estimate: use float64, coordinates relative to an origin nearby, "
    "or solve='square_root'",
    Reason.GATED: "a measurement was rejected by the gate",
    Reason.RECOVERED: "measurements were rejected for so long that the filter was widened to accept them",
    Reason.LATE: "a measurement was older than the history that is kept, and was not used",
    Reason.DUPLICATE: "a sensor was already measured at this time, and the second value was not used",
    Reason.STALE: "there has been no measurement for too long",
    Reason.INCONSISTENT: "innovations are larger than their stated covariance: Q or R is too small, or the model wrong",
    Reason.NOT_TRACKING: "the last measurement and the mean of the measurements both predict better than the filter",
    Reason.REJECTED: "the result of the step was not finite: the estimate is that of the step before",
    Reason.OFF_CLOCK: "a time stamp was further ahead than longest_gap, so the measurement was not used",
    Reason.RESTARTED: "time stamps jumped by more than longest_gap and stayed there, so the filter started anew",
    Reason.NOT_FINITE: "results are not finite, step after step: the filter stays where it is",
    Reason.DIVERGED: "the filter predicts worse than the mean of the measurements, and its covariance does not say so",
}


class Monitor(NamedTuple):
    """Memory of the statistics of each channel and stream."""

    seen: Float[Tensor, "B m"]
    """Number of measurements of each channel."""
    last: Float[Tensor, "B m"]
    mean: Float[Tensor, "B m"]
    averages: Float[Tensor, "B 5 m"]
    """Of squares: the change, the distance from the mean, and relative to these the innovation, the innovation over a
    short time, and its stated variance."""
    lowest: Float[Tensor, "B m"]
    """The smallest stated variance of the innovation."""
    excess: Float[Tensor, "B"]
    """Average of the squared normalised innovation divided by the number of channels."""
    rejected: Float[Tensor, "B g"]
    """Measurements of each sensor that the gate has rejected in a row."""


class Checked(NamedTuple):
    """What the monitor says about one step."""

    reason: Int[Tensor, "B"]
    nis: Float[Tensor, "B"]
    """Squared normalised innovation divided by the number of measured channels; NaN where nothing was measured."""
    suspect: Bool[Tensor, "B g"]
    """Sensors whose innovation lies outside the gate."""


class Watch:
    """The functions that follow the health of one filter.

    ``groups [g, m]`` is one where a channel belongs to a sensor, ``limits [m + 1]`` are the squared normalised
    innovations that a gate lets through for each number of channels. Without innovations of measured channels
    (``comparable=False``) only the estimate itself is checked.
    """

    def __init__(self, layout: Layout, groups: Float[Tensor, "g m"], limits: Tensor | None, comparable: bool) -> None:
        self.layout, self.groups, self.limits, self.comparable = layout, groups, limits, comparable
        self.forgetting = groups.new_tensor([1 / MEMORY] * 3 + [1 / FAST] + [1 / MEMORY]).unsqueeze(-1)

    def start(self, batch: int) -> Monitor:
        """The memory before the first step."""
        g, m = self.groups.shape
        channels, averages = self.groups.new_zeros(batch, m), self.groups.new_zeros(batch, 5, m)
        return Monitor(
            channels, channels, channels, averages, channels, channels[:, 0], self.groups.new_zeros(batch, g)
        )

    def __call__(
        self, monitor: Monitor, out: StepOutput, y: Float[Tensor, "B m"], measured: Bool[Tensor, "B m"]
    ) -> tuple[Monitor, Checked]:
        """Judge a step from its output and the clean measurements ``y``, with zeros where nothing was measured."""
        finite = torch.isfinite(out.mean).all(-1) & torch.isfinite(out.cov).all(-1).all(-1)
        rejected = (out.status & int(Status.REJECTED)) != 0  # its outputs mean nothing, and its state is that of before
        reason = (out.status & ~int(Status.REJECTED)) + rejected * int(Reason.REJECTED)
        reason = reason + (~finite & ~rejected) * int(Reason.NOT_FINITE)
        measured = measured & ~rejected.unsqueeze(-1)
        if not self.comparable:
            nothing = monitor.rejected.new_zeros(monitor.rejected.shape, dtype=torch.bool)
            return monitor, Checked(reason, torch.full_like(monitor.excess, torch.nan), nothing)
        weight = measured.to(out.mean.dtype)
        squares, count = self._squares(out, weight)
        suspect = squares.new_zeros(squares.shape, dtype=torch.bool)
        if self.limits is not None:
            suspect = squares > self.limits.expand(len(count), -1).gather(-1, count)
        present = weight.sum(-1)
        nis = normalized_square(out.innovation * weight, out.innovation_cov, weight)[0] / present
        monitor = self._averaged(monitor, out, y, measured, nis)
        return monitor, Checked(reason + self._judged(monitor), nis, suspect)

    def _squares(self, out: StepOutput, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The squared normalised innovation of each sensor and how many of its channels were measured."""
        squares, counts = [], []
        for group in self.groups.unbind(0):
            share = weight * group
            squares.append(normalized_square(out.innovation * share, out.innovation_cov, share)[0])
            counts.append(share.sum(-1))
        return torch.stack(squares, -1), torch.stack(counts, -1).long()

    def _averaged(self, monitor: Monitor, out: StepOutput, y: Tensor, measured: Tensor, nis: Tensor) -> Monitor:
        known = monitor.seen > 0
        change, away = (
            torch.where(known, self.layout.boxminus(y, place), 0.0) for place in (monitor.last, monitor.mean)
        )
        stated = torch.diagonal(out.innovation_cov, dim1=-2, dim2=-1)
        lowest = torch.where(measured & ~(known & (monitor.lowest < stated)), stated, monitor.lowest)
        # a plain mean until there are enough measurements for a moving one
        rate = torch.maximum(1 / (monitor.seen + measured).clamp_min(1).unsqueeze(1), self.forgetting)
        errors = torch.lerp(monitor.averages[:, :2], torch.stack((change, away), 1).square(), rate[:, :2])
        trivial = torch.maximum(errors.amax(1), RESOLUTION * lowest)
        error = (out.innovation.square() / trivial).clamp_max(CLIPPED[0])
        relative = (stated / torch.maximum(trivial, lowest)).clamp_max(CLIPPED[1])
        scores = torch.lerp(monitor.averages[:, 2:], torch.stack((error, error, relative), 1), rate[:, 2:])
        averages = torch.cat((errors, scores), 1)
        # a value whose square overflows, or an estimate that is not finite, would stay in the averages for ever
        used = measured & averages.isfinite().all(1) & lowest.isfinite()
        mean = torch.where(known, self.layout.boxplus(monitor.mean, rate[:, 0] * away), y)
        pace = rate[:, 0].amin(-1)
        excess = torch.lerp(monitor.excess, nis.clamp_max(CLIPPED[1]), pace)
        excess = torch.where(nis.isfinite(), excess, monitor.excess)
        heard = (measured.to(y.dtype) @ self.groups.mT) > 0
        return Monitor(
            monitor.seen + used,
            torch.where(used, y, monitor.last),
            torch.where(used, mean, monitor.mean),
            torch.where(used.unsqueeze(1), averages, monitor.averages),
            torch.where(used, lowest, monitor.lowest),
            excess,
            torch.where(heard, 0.0, monitor.rejected),
        )

    def _judged(self, monitor: Monitor) -> Int[Tensor, "B"]:
        _, _, slow, fast, stated = monitor.averages.unbind(1)
        settled = monitor.seen >= SETTLED
        lost = settled & (torch.minimum(slow, fast) > UNEXPLAINED)
        inconsistent = settled.any(-1) & (monitor.excess > INCONSISTENT)
        unbounded = (lost & (stated > UNBOUNDED)).any(-1)
        diverged = lost.any(-1) & (inconsistent | unbounded)
        not_tracking = lost.any(-1) & (monitor.excess > UNEXPLAINED)  # a wide covariance may explain it
        return (
            inconsistent * int(Reason.INCONSISTENT)
            + (not_tracking & ~diverged) * int(Reason.NOT_TRACKING)
            + diverged * int(Reason.DIVERGED)
        )
