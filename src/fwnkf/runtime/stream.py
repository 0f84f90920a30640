"""A filter on live measurements: the one object of the package that holds state."""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import torch
from torch import Tensor

from ..checkpoint import dump_state, load_state, seal, unseal
from ..errors import CheckpointError, ConfigError
from ..filters.base import Filter, PriorAt
from ..types import Gaussian
from .estimate import Estimate
from .exclusive import OneThread, one_thread
from .health import Monitor, Reason
from .inputs import StreamInputs
from .snapshot_facts import check_facts, check_tensors
from .stamps import OtherClock, seconds
from .stamps import longest_gap as seconds_to_predict
from .stepper import Moment, Options, Sample, Stepper

FORMAT = 2
"""Format 2 of a snapshot added a checksum; format 1, which version 0.2 wrote, is read without one."""

Values = Any
"""A number, a sequence of numbers or a NumPy array; for a batch of streams with one row for each."""


class Stream:
    """A filter that follows measurements as they arrive, for one stream or a batch of streams with a common clock.

    Args:
        model: the filter.
        streams: number of streams; None is a single one, whose arrays have no batch axis.
        prior, prior_at: as in :meth:`fwnkf.Filter.run`, in tensors or NumPy arrays. Measurements, estimates and a prior
            that is no tensor are absolute numbers, where parts of the layouts have an origin.
        history: seconds for which measurements are kept: one that arrives late by at most as much is put in its place
            and the later ones are filtered again, to the same bits as if all had arrived in order.
        sensors: names of groups of channels; by default the parts of the filter's measurement.
        gate: the probability with which a correct measurement of one sensor passes; others are rejected.
        recover_after: rejections in a row after which the measurements are accepted: the filter starts anew from its
            prediction with a covariance that explains them.
        stale_after: seconds without a measurement that degrade the health.
        step: time step in seconds, for filters whose system has no time step.
        longest_step: divides longer gaps, for systems whose equations are not accurate over them.
        longest_gap: seconds that the filter predicts over at most; by default a minute, or 3,000 steps if that is
            longer, and no more than 3,000 steps for a filter that bridges a gap by steps. A measurement whose stamp is
            further away is not used. If ``recover_after`` different stamps in a row are, and are near each other, the
            clock was set or the device was off: the stream starts anew with them.
        compiled: compile the step in the first call.

    >>> import numpy as np, torch, fwnkf
    >>> eye = torch.eye(1)
    >>> stream = fwnkf.Stream(fwnkf.KF(F=eye, H=eye, Q=0.01 * eye, R=eye))
    >>> for value in (1.0, 0.9, 1.2):
    ...     estimate = stream.step(value)
    >>> estimate.mean.round(2), estimate.health
    (array([0.78], dtype=float32), 'ok')
    """

    def __init__(
        self,
        model: Filter,
        *,
        streams: int | None = None,
        prior: Any = None,
        prior_at: PriorAt = "first_measurement",
        history: float = 0.0,
        sensors: Mapping[str, Sequence[int]] | None = None,
        gate: float | None = None,
        recover_after: int = 10,
        stale_after: float | None = None,
        step: float | None = None,
        longest_step: float | None = None,
        longest_gap: float | None = None,
        compiled: bool = False,
    ) -> None:
        if gate is not None and not 0 < gate < 1:
            raise ConfigError(
                f"gate = {gate} is not a probability; to reject one correct measurement in 10,000: 0.9999"
            )
        if gate is not None and (model.latent_innovations or not model.observes):
            raise ConfigError(f"filter {model.name!r} has no innovations of the measurements, so it has no gate")
        for name, value in (("history", history), ("recover_after", recover_after), ("stale_after", stale_after)):
            if value is not None and not value >= 0:
                raise ConfigError(f"{name} = {value} must not be negative")
        for name, value in (("streams", streams), ("step", step), ("longest_step", longest_step)):
            if value is not None and not value > 0:
                raise ConfigError(f"{name} = {value} must be positive")
        if not math.isfinite(history):
            raise ConfigError(f"history = {history}: seconds for which measurements are kept; every one takes memory")
        if prior_at not in get_args(PriorAt):
            raise ConfigError(f"prior_at = {prior_at!r}; wanted one of {', '.join(get_args(PriorAt))}")
        self.filter = model
        self.streams, self.history = streams, history
        self._inputs = StreamInputs(model, streams, sensors)
        self.sensors = self._inputs.sensors
        self._prior, self._prior_at = self._inputs.prior(prior), prior_at
        updates = prior is not None and prior_at == "first_measurement"
        step = model.nominal_step if step is None else step
        gap = seconds_to_predict(longest_gap, model.takes_dt, step, longest_step)
        self._options = Options(step, longest_step, gap, gate, recover_after, stale_after, updates, compiled)
        self._stepper = Stepper(model, self._inputs.groups(), self._options)
        self._busy = OneThread()
        self.reset()

    # ---- use ------------------------------------------------------------------------------------------------

    @one_thread
    def reset(self, prior: Any = None) -> None:
        """Forget everything and start anew.

        Args:
            prior: another prior to start from; None keeps the one there is.
        """
        if prior is not None:
            self._prior = self._inputs.prior(prior)
            self._options = self._options._replace(updates_first=self._prior_at == "first_measurement")
            self._stepper.options = self._options
        self._base: Moment | None = None
        self._samples: list[Sample] = []
        self._done: list[Moment] = []
        self._timed: bool | None = None
        self._belief_from = 0
        self._other = OtherClock(self._options.longest_gap, self._options.recover_after)
        self.late = 0
        """Measurements that came too late to be used."""

    @one_thread
    def step(
        self, y: Values | Mapping[str, Values] | None, t: float | None = None, u: Values = None, mask: Values = None
    ) -> Estimate:
        """Take what was measured at a time and return the newest estimate.

        Values of different sensors at the same time may come in several calls. With a preprocessing of blocks, ``y``,
        ``u`` and ``mask`` have one row for each sample of the block. A sample that raises an error leaves the stream as
        it was.

        Args:
            y: all channels, or values by name of sensor, or None: then the filter only predicts. NaN is a missing
                value.
            t: the time in seconds; without it each step has the nominal length.
            u: the control since the last step, by default as in the step before.
            mask: True where a channel was measured.

        Returns:
            The newest estimate, also for a measurement that came late.
        """
        before = self._timed, self._belief_from, [*self._samples], [*self._done], self._base, self.late
        held = self._other.held
        try:
            reason = self._take(self._sample(y, t, u, mask))
        except BaseException:
            self._timed, self._belief_from, self._samples, self._done, self._base, self.late = before
            self._other.held = held
            raise
        self._forget()
        newest = self._done[-1]
        return Estimate(
            self.filter.layout, self._samples[-1].time, newest.last, newest.reason | reason, self.streams is None
        )

    @property
    def time(self) -> float:
        """Time of the newest measurement; NaN before the first."""
        return self._samples[-1].time if self._samples else math.nan

    # ---- late measurements ----------------------------------------------------------------------------------

    def _take(self, sample: Sample) -> Reason:
        """Use a sample, or hold it if its stamp is not of this clock."""
        ahead = sample.time - self.time if sample.timed and self._samples else 0.0
        gap = self._options.longest_gap
        if -max(gap, self.history) <= ahead <= gap:
            self._other.held = ()
            return self._use(sample)
        samples = self._other.add(sample)
        if samples is None:
            self.late += ahead < 0
            return Reason.LATE if ahead < 0 else Reason.OFF_CLOCK
        self._base, self._samples, self._done, self._belief_from = None, [], [], 0
        for item in samples:
            self._use(item)
        return Reason.RESTARTED

    def _use(self, sample: Sample) -> Reason:
        reason, first = self._insert(sample)
        if first is not None:
            self._replay(first)
        return reason

    def _insert(self, sample: Sample) -> tuple[Reason, int | None]:
        """Put a sample in its place; returns the first one that must be filtered (again), None if it is not used."""
        if not sample.timed or not self._samples or sample.time > self._samples[-1].time:
            self._samples.append(sample)
            return Reason.NONE, len(self._samples) - 1
        if self._base is not None:
            too_late = sample.time <= self._base.stamp
        else:
            too_late = sample.time < min(self._samples[0].time, self._samples[-1].time - self.history)
        if too_late:
            self.late += 1
            return Reason.LATE, None
        place = bisect_left(self._samples, sample.time, key=lambda item: item.time)
        if place < len(self._samples) and self._samples[place].time == sample.time:
            known = self._samples[place]
            fresh = sample.mask & ~known.mask
            reason = Reason.NONE if bool((fresh == sample.mask).all()) else Reason.DUPLICATE
            if reason and not bool(fresh.any()):
                return reason, None
            self._samples[place] = known._replace(
                y=torch.where(fresh, sample.y, known.y),
                mask=known.mask | fresh,
                measured=known.measured or sample.measured,
                u=known.u if sample.u is None else sample.u,
            )
            return reason, place
        self._samples.insert(place, sample)
        return Reason.NONE, place

    def _replay(self, first: int) -> None:
        """Filter the samples from the number ``first`` on."""
        if self._base is None and self._estimates_belief:
            known = self._known(len(self._samples))
            if known != self._belief_from or first < known:  # the belief is another one
                first, self._belief_from = 0, known
        del self._done[first:]
        moment = self._done[-1] if first else self._base or self._begin()
        for sample in self._samples[first:]:
            moment = self._stepper(moment, sample)
            self._done.append(moment)

    def _forget(self) -> None:
        """Drop what no late measurement within the history needs; the last sample may still get other sensors."""
        if self._base is None and self._estimates_belief and len(self._samples) < self.filter.initial_steps:
            return
        oldest = self._samples[-1].time - self.history
        count = 0
        while count < len(self._samples) - 1 and (self._samples[count].time < oldest or not self._timed):
            count += 1
        if count:
            self._base = self._done[count - 1]
            del self._samples[:count], self._done[:count]

    @property
    def _estimates_belief(self) -> bool:
        return self._prior is None and self.filter.initial_steps > 0

    def _known(self, count: int) -> int:
        """Samples from which the initial belief is estimated: powers of two until there are enough."""
        wanted = self.filter.initial_steps
        return wanted if count >= wanted else 1 << (max(count, 1).bit_length() - 1)

    @torch.no_grad()
    def _begin(self) -> Moment:
        batch, prior = self.streams or 1, self._prior
        if self._estimates_belief:
            first = self._samples[: self._belief_from]
            join = torch.stack if self._inputs.block == 1 else torch.cat
            held: list[Any] = []
            for sample in first:
                held.append(held[-1] if held and sample.u is None else sample.u)
            u = None if held[0] is None else join(held, 1)
            y, mask = join([sample.y for sample in first], 1), join([sample.mask for sample in first], 1)
            prior = self.filter.initial_belief(y, u, mask)
        return self._stepper.begin(self.filter.init(batch, prior), batch)

    # ---- snapshots ------------------------------------------------------------------------------------------

    @one_thread
    def snapshot(self) -> bytes:
        """Everything the stream knows.

        Returns:
            Bytes, from which :meth:`restore` continues in another process with the same bits.
        """
        tensors: dict[str, Tensor] = {}
        facts: dict[str, Any] = {
            "options": self._options._asdict(),
            "streams": self.streams,
            "history": self.history,
            "sensors": {name: list(channels) for name, channels in self.sensors.items()},
            "prior_at": self._prior_at,
            "timed": self._timed,
            "late": self.late,
            "samples": [[item.time, item.timed, item.u is not None] for item in (*self._samples, *self._other.held)],
            "held": len(self._other.held),
        }
        if self._prior is not None:
            tensors |= {f"prior.{name}": value for name, value in self._prior._asdict().items()}
        if self._base is not None:
            last = self._base.last.plain()
            state = dump_state(self.filter, last.filter)
            tensors["filter"] = torch.frombuffer(bytearray(state), dtype=torch.uint8)
            tensors |= {f"monitor.{name}": value for name, value in last.monitor._asdict().items()}
            facts["base"] = [self._base.time, self._base.stamp, self._base.heard]
            if self._base.control is not None:
                tensors["control"] = self._base.control
        for number, sample in enumerate((*self._samples, *self._other.held)):
            tensors |= {f"{number}.y": sample.y, f"{number}.mask": sample.mask}
            if sample.u is not None:
                tensors[f"{number}.u"] = sample.u
        plain = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
        metadata = {"fwnkf_stream": str(FORMAT), "filter": self.filter.name, "facts": json.dumps(facts)}
        return seal(plain, metadata)

    @classmethod
    def restore(cls, model: Filter, data: bytes) -> Stream:
        """The stream that was saved by :meth:`snapshot`, with its options.

        Args:
            model: the same filter.
            data: the bytes.

        Returns:
            The stream.

        Raises:
            CheckpointError: the bytes are not a snapshot, are damaged, or are one of another filter.
        """
        tensors, metadata = unseal(data, "fwnkf_stream", FORMAT, "a snapshot of a stream")
        if metadata.get("filter") != model.name:
            raise CheckpointError(
                f"this snapshot is of filter {metadata.get('filter')!r}; wanted filter {model.name!r}"
            )
        try:
            facts = json.loads(metadata.get("facts", "null"))
        except (ValueError, RecursionError) as error:
            raise CheckpointError(f"these bytes are not a snapshot of a stream: {error}") from error
        try:
            return cls._restored(model, facts, {name: value.to(model.device) for name, value in tensors.items()})
        except (LookupError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
            raise CheckpointError(f"the snapshot does not fit the filter {model.name!r}: {error}") from error

    @classmethod
    def _restored(cls, model: Filter, facts: dict[str, Any], tensors: dict[str, Tensor]) -> Stream:
        check_facts(facts, tensors)
        options = dict(facts["options"])
        options.pop("updates_first")
        prior = Gaussian(tensors["prior.mean"], tensors["prior.cov"]) if "prior.mean" in tensors else None
        names = ("streams", "history", "sensors", "prior_at")
        stream = cls(model, prior=prior, **{name: facts[name] for name in names}, **options)
        monitor = stream._stepper.watch.start(stream.streams or 1)
        check_tensors(tensors, monitor, stream._inputs, len(facts["samples"]))
        stream._timed, stream.late = facts["timed"], facts["late"]
        if "filter" in tensors:
            monitor = Monitor(*(tensors[f"monitor.{name}"] for name in Monitor._fields))
            state = load_state(model, bytes(tensors["filter"].cpu().numpy()))
            time, stamp, heard = facts["base"]
            stream._base = stream._stepper.moment(state, monitor, time, stamp, heard, tensors.get("control"))
        samples = [
            Sample(
                time,
                tensors[f"{k}.y"],
                mask := tensors[f"{k}.mask"],
                tensors[f"{k}.u"] if given else None,
                timed,
                bool(mask.any()),
            )
            for k, (time, timed, given) in enumerate(facts["samples"])
        ]
        used = len(samples) - facts.get("held", 0)
        stream._samples, stream._other.held = samples[:used], tuple(samples[used:])
        if stream._samples:
            stream._replay(0)
        return stream

    # ---- inputs ---------------------------------------------------------------------------------------------

    def _sample(self, y: Any, t: float | None, u: Any, mask: Any) -> Sample:
        inputs, model = self._inputs, self.filter
        timed = t is not None
        t = None if t is None else seconds(t)
        if self._timed is None:
            self._timed = timed
        elif self._timed != timed:
            raise ConfigError("give the time t of every measurement or of none")
        if t is None:
            t = 0.0 if math.isnan(self.time) else self.time + (self._options.step or 1.0) * inputs.block
        elif not model.takes_dt and self._options.step is None:
            raise ConfigError(f"filter {model.name!r} has no time step: give step=… in seconds, or leave t out")
        values, present = inputs.measurement(y, mask)
        return Sample(t, values, present, inputs.control(u), timed, bool(present.any()))
