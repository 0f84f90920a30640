"""One sample of a stream: gaps, the gate, and the step of the filter.

It is a pure function, everything that changes is in a :class:`Moment`. Late measurements need this: the samples after
them are filtered again, to the same bits as if all had arrived in order.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core.preprocess import Preprocessed
from ..core.tree import tree_select
from ..errors import DataError
from ..filters.base import Filter
from ..metrics.consistency import chi_square_quantile
from ..shapes import Bool, Float
from ..types import Gaussian, StepOutput
from .fast_step import FastStep, PackedStep, Stepped
from .health import Checked, Monitor, Reason, Watch

MOST_STEPS = 100_000
"""Steps without measurement that bridge a gap; a longer one is an error of the clock."""
WIDENING = tuple(10.0**power for power in range(1, 13))
"""Factors on the variances that are tried until a measurement passes the gate again."""


class Sample(NamedTuple):
    """What was measured at one time, with a batch axis."""

    time: float
    y: Float[Tensor, "B *N m"]
    mask: Bool[Tensor, "B *N m"]
    u: Float[Tensor, "B *N p"] | None
    timed: bool
    """Whether the time was given; else the step has the nominal length."""
    measured: bool
    """Whether any channel was measured."""


class Moment(NamedTuple):
    """Everything that the next sample needs."""

    last: Stepped | PackedStep
    """The step before, or the begin."""
    time: float
    """Time of the filter; NaN before the first sample."""
    stamp: float
    """Time of the sample, from which that of a filter with a fixed step differs by up to half a step."""
    heard: float
    """Time of the last measurement that was not empty; NaN before it."""
    control: Tensor | None
    reason: Reason
    """What is said of the sample itself."""


class Options(NamedTuple):
    """The options of a stream that its steps need; see :class:`fwnkf.Stream`."""

    step: float | None
    longest_step: float | None
    longest_gap: float
    gate: float | None
    recover_after: int
    stale_after: float | None
    updates_first: bool
    compiled: bool


class Stepper:
    """The pure function from one moment of a stream to the next."""

    def __init__(self, model: Filter, groups: Tensor, options: Options) -> None:
        self.model, self.options = model, options
        with torch.no_grad():
            self.prepared = model.prepare()
        channels = groups.shape[-1]
        limits = None
        if options.gate is not None:
            limits = chi_square_quantile(torch.arange(channels + 1), options.gate).to(groups)
        self.watch = Watch(model.observation_layout, groups, limits, not model.latent_innovations and model.observes)
        # after a preprocessing the raw channels are not those of the innovation: all of them are one sensor
        self.sensor_of = groups.argmax(0) if model.preprocess is None else None
        self.fast = FastStep(self._step, model) if options.compiled else self._eager

    def begin(self, state: Any, batch: int) -> Moment:
        """The moment before the first sample."""
        return self.moment(state, self.watch.start(batch), math.nan, math.nan, math.nan, None)

    def moment(
        self, state: Any, monitor: Monitor, time: float, stamp: float, heard: float, control: Tensor | None
    ) -> Moment:
        """A moment of which nothing but its memory is known."""
        nothing: Any = None
        return Moment(Stepped(state, monitor, nothing, nothing), time, stamp, heard, control, Reason.NONE)

    @torch.no_grad()
    def __call__(self, moment: Moment, sample: Sample) -> Moment:
        model, options = self.model, self.options
        u = moment.control if sample.u is None else sample.u
        last, time = moment.last, sample.time
        before, dt, still = self._bridge(moment, sample)
        if before:
            last = self._predicted(last.plain(), sample, u, dt, before)
        if sample.timed and not model.takes_dt and options.step is not None and not math.isnan(moment.time):
            time = moment.time + (before + (not still)) * options.step
        step = self._still if still else self.fast
        inputs = (sample.y, u, sample.mask, dt)
        stepped = step(last, *inputs)
        reason = Reason.NONE
        if options.gate is not None and bool(stepped.checked.suspect.any()):
            stepped = self._gated(step, last.plain(), stepped.plain(), inputs)
        if last.out is not None and bool((stepped.checked.reason & int(Reason.REJECTED)).any()):
            stepped = _kept(last.plain(), stepped.plain())
        heard = moment.heard
        if sample.measured:
            heard = sample.time
        elif options.stale_after is not None and sample.time - heard > options.stale_after:
            reason |= Reason.STALE
        return Moment(stepped, time, sample.time, heard, u, reason)

    def _predicted(self, last: Stepped, sample: Sample, u: Tensor | None, dt: Tensor | None, count: int) -> Stepped:
        """Steps without measurement."""
        state = last.filter
        for _ in range(count):
            state, _ = self.model.step(
                state, torch.zeros_like(sample.y), u, torch.zeros_like(sample.mask), dt, prepared=self.prepared
            )
        return last._replace(filter=state)

    def _bridge(self, moment: Moment, sample: Sample) -> tuple[int, Tensor | None, bool]:
        """Steps without measurement before that of the sample, the length of each, and whether the last has none."""
        options, first = self.options, math.isnan(moment.time)
        if first or not sample.timed:
            return 0, None, first and options.updates_first
        gap = sample.time - moment.time
        part = options.longest_step if self.model.takes_dt else options.step
        if part is not None and not abs(gap / part) <= MOST_STEPS:
            raise DataError(
                f"a gap of {gap:.6g} s, from {moment.time:.6f} s to {sample.time:.6f} s, would take {gap / part:,.0f} "
                "steps without measurement; check the time stamps, or start anew with Stream.reset"
            )
        if self.model.takes_dt:
            parts = 1 if options.longest_step is None else math.ceil(gap / options.longest_step - 1e-9)
            count, still = max(parts, 1) - 1, False
            block = sample.y.shape[1] if sample.y.ndim == 3 else None
            length = gap / (count + 1) / (block or 1)
            shape = sample.y.shape[:1] if block is None else sample.y.shape[:2]
            dt = torch.full(shape, length, dtype=sample.y.dtype, device=sample.y.device)
        else:
            assert options.step is not None  # checked when a time was given
            steps = max(round(gap / options.step), 0)
            count, dt, still = max(steps - 1, 0), None, steps == 0
        return count, dt, still

    def _step(
        self, state: Any, monitor: Monitor, y: Tensor, u: Tensor | None, mask: Tensor, dt: Tensor | None
    ) -> Stepped:
        """A step of the filter, and its health."""
        state, out = self.model.step(state, y, u, mask, dt, prepared=self.prepared)
        return Stepped(state, *self._watched(monitor, out, y, mask))

    def _update(
        self, state: Any, monitor: Monitor, y: Tensor, u: Tensor | None, mask: Tensor, dt: Tensor | None
    ) -> Stepped:
        """As :meth:`_step`, without predicting."""
        state, out = self.model.update(state, y, mask, u=u, dt=dt, prepared=self.prepared)
        return Stepped(state, *self._watched(monitor, out, y, mask))

    def _eager(self, last: Stepped | PackedStep, *inputs: Any) -> Stepped:
        known = last.plain()
        return self._step(known.filter, known.monitor, *inputs)

    def _still(self, last: Stepped | PackedStep, *inputs: Any) -> Stepped:
        known = last.plain()
        return self._update(known.filter, known.monitor, *inputs)

    def _watched(
        self, monitor: Monitor, out: StepOutput, y: Tensor, mask: Tensor
    ) -> tuple[Monitor, StepOutput, Checked]:
        if not self.watch.comparable:
            measured = out.innovation != 0
        elif self.model.preprocess is None:
            measured = mask & ((y - y) == 0)
            y = torch.where(measured, y, 0.0)
        else:
            measured = out.innovation != 0  # the innovation of a channel that was not measured is zero
            y = self.model.observation_layout.boxplus(self.model.observe(out.prior_mean), out.innovation)
        monitor, checked = self.watch(monitor, out, y, measured)
        return monitor, out, checked

    # ---- gate -----------------------------------------------------------------------------------------------

    def _gated(
        self,
        step: Any,
        last: Stepped,
        tried: Stepped,
        inputs: tuple[Tensor, Tensor | None, Tensor, Tensor | None],
    ) -> Stepped:
        """The step again without the sensors outside the gate, or from a wider belief if that has lasted too long."""
        y, u, mask, dt = inputs
        monitor, checked = last.monitor, tried.checked
        due = checked.suspect & (monitor.rejected + 1 >= self.options.recover_after)
        outside = checked.suspect & ~due
        hidden = outside.any(-1, keepdim=True) if self.sensor_of is None else outside[:, self.sensor_of]
        allowed = mask & ~(hidden.unsqueeze(1) if mask.ndim == 3 else hidden)
        result = step(last, y, u, allowed, dt).plain()
        recovering = due.any(-1)
        if bool(recovering.any()):
            wider = self._widened(last.filter, tried.out, (y, u, allowed, dt), recovering)
            result = tree_select(recovering, wider, result)
        rejected = torch.where(outside, monitor.rejected + 1, result.monitor.rejected)
        reason = result.checked.reason + outside.any(-1) * int(Reason.GATED) + recovering * int(Reason.RECOVERED)
        monitor = result.monitor._replace(rejected=rejected)
        return result._replace(monitor=monitor, checked=result.checked._replace(reason=reason))

    def _widened(
        self,
        state: Any,
        out: StepOutput,
        inputs: tuple[Tensor, Tensor | None, Tensor, Tensor | None],
        due: Bool[Tensor, "B"],
    ) -> Stepped:
        """The update from the prediction with a covariance so wide that the measurement passes the gate."""
        # the statistics before a jump say nothing about the filter after it
        fresh = self.watch.start(len(due))
        # without correlations, which would read a jump of a position as a velocity
        variances = torch.diagonal(out.prior_cov, dim1=-2, dim2=-1)
        done = ~due
        result: Any = None
        for factor in WIDENING:
            wider = out.prior_cov + (factor - 1) * torch.diag_embed(variances)
            belief = self.model.init(len(due), Gaussian(out.prior_mean, wider))
            if isinstance(belief, Preprocessed):
                belief = belief._replace(preprocess=state.preprocess)
            tried = self._update(belief, fresh, *inputs)
            result = tried if result is None else tree_select(done, result, tried)
            done = done | ~tried.checked.suspect.any(-1)
            if bool(done.all()):
                break
        return result


def _kept(last: Stepped, stepped: Stepped) -> Stepped:
    """A step with the outputs of the one before in the streams that rejected it, as their states are.

    A stream that rejects one step after the other does so because of its own state or model, not of one bad input.
    """
    rejected = (stepped.checked.reason & int(Reason.REJECTED)) != 0
    again = rejected & ((last.checked.reason & int(Reason.REJECTED)) != 0)
    out = tree_select(~rejected, stepped.out, last.out)._replace(status=stepped.out.status)
    reason = stepped.checked.reason | again * int(Reason.NOT_FINITE)
    return stepped._replace(out=out, checked=stepped.checked._replace(reason=reason))
