"""The interface of all filters: ``init``, a pure ``step``, and ``run`` over time.

What each filter implements is in :mod:`.definition`. Cleaning, checks and the loop over time are implemented here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from ..core.preprocess import Inputs, Preprocessed, grouped
from ..core.scan import scan
from ..core.smoothing import LinearStep, LinearSteps, batched
from ..core.system import System
from ..core.trajectory import Trajectory
from ..errors import ConfigError, ShapeError
from ..shapes import Bool, Float
from ..types import Gaussian, StepOutput
from .definition import FilterDefinition
from .inputs import InputSizes, batched_prior, check_inputs, check_lengths, clean
from .outputs import per_step, rejected, scale_covariance, with_resolution

PriorAt = Literal["first_measurement", "before_first_step"]
"""The time to which a prior belongs."""


class Filter(FilterDefinition):
    """Base class of all filters. The state is a NamedTuple of tensors; a step changes nothing on ``self``.

    Args:
        system: the equations of motion, for filters that take them.
        **options: options of the filter's ``Config``, and its tensors by name.

    >>> import torch, fwnkf
    >>> eye = torch.eye(1)
    >>> filter = fwnkf.KF(F=eye, H=eye, Q=eye, R=eye)
    >>> state, out = filter.step(filter.init(1), torch.ones(1, 1))  # one measurement
    >>> filter.run(torch.ones(1, 100, 1)).mean.shape  # a recording
    torch.Size([1, 100, 1])
    """

    @property
    def initial_steps(self) -> int:
        """Number of steps that :meth:`initial_belief` reads; 0 for a filter that needs a prior."""
        return 0 if self.system is None else self.system.initial_steps

    def initial_belief(
        self,
        y: Float[Tensor, "B T m"],
        u: Float[Tensor, "B T p"] | None = None,
        mask: Bool[Tensor, "B T m"] | None = None,
        dt: Float[Tensor, "B T"] | None = None,
    ) -> Gaussian | None:
        """The belief before the first step, estimated from the first samples.

        :meth:`run` starts from it if neither a prior nor a state is given. Before :meth:`step`, pass it to
        :meth:`init`.

        Args:
            y, u, mask, dt: a recording, as :meth:`run` takes it; the first :attr:`initial_steps` steps are read.

        Returns:
            The belief, or None if :attr:`initial_steps` is 0.
        """
        if not self.initial_steps:
            return None
        self._check(y, u, mask, dt, time_axes=1)
        if y.shape[1] == 0:
            return None
        y, weight, _ = clean(y, mask)
        count = self.initial_steps * self.input_sizes.block
        first = slice(count)
        inputs = Inputs(
            y[:, first], weight[:, first], None if u is None else u[:, first], None if dt is None else dt[:, first]
        )
        return self.belief_from(inputs if self.preprocess is None else self.preprocessed(inputs))

    def belief_from(self, inputs: Inputs) -> Gaussian:
        """The initial belief from the preprocessed inputs of the first steps.

        Args:
            inputs: preprocessed inputs with a time axis.

        Returns:
            The belief before the first step.
        """
        assert self.system is not None
        return self.system.initial_belief(inputs.y, inputs.weight, inputs.u)

    def preprocessed(self, raw: Inputs) -> Inputs:
        """Complete sequences after preprocessing, which starts without memory.

        Args:
            raw: raw inputs with a time axis.

        Returns:
            The inputs of the filter, one for each complete block.
        """
        preprocess = self.preprocess
        assert preprocess is not None
        items = [grouped(item, preprocess.block) for item in raw]
        state = preprocess.init(raw.y.shape[0], raw.y)

        def body(carry: Any, inputs: Any) -> tuple[Any, Inputs]:
            return preprocess(carry, Inputs(*inputs))

        return Inputs(*scan(body, state, items)[1])

    def init(
        self,
        batch_size: int | tuple[int, ...] = 1,
        prior: Gaussian | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> Any:
        """The state from which :meth:`step` and :meth:`update` start.

        If the prior is a belief at the time of the first measurement, call :meth:`update` with that measurement and
        :meth:`step` with the next ones; if it is one of a step before, call :meth:`step` with the first one too.

        Args:
            batch_size: number of batch items, or a shape of one axis.
            prior: the belief, with a batch axis or without; None is zero with unit covariance.
            generator: for filters that sample; by default a fixed seed, so that the same call gives the same bits.

        Returns:
            The state, a NamedTuple of tensors.

        Raises:
            ShapeError: the batch shape has more than one axis, or the prior does not fit the filter.
        """
        if isinstance(batch_size, tuple):
            if len(batch_size) != 1:
                raise ShapeError(f"batch shape {batch_size}: give exactly one batch axis (flatten the others)")
            (batch_size,) = batch_size
        like = self._like()
        if prior is None:
            prior = Gaussian(self.layout.origin(like), torch.eye(self.layout.tangent_size).to(like))
        if prior.mean.shape[-1] < self.layout.size and self.system is not None:
            prior = self.system.complete_prior(prior)
        belief = batched_prior(self.name, prior, batch_size, self.layout, like)
        state = self.init_state(belief, generator)
        return state if self.preprocess is None else Preprocessed(self.preprocess.init(batch_size, like), state)

    def step(
        self,
        state: Any,
        y: Float[Tensor, "B *N m"],
        u: Float[Tensor, "B *N p"] | None = None,
        mask: Bool[Tensor, "B *N m"] | None = None,
        dt: Float[Tensor, "B *N"] | None = None,
        *,
        prepared: Any = None,
        reject: bool = True,
    ) -> tuple[Any, StepOutput]:
        """Predict, then condition on ``y``. Pure: same inputs, same bits.

        A step whose result is not finite is rejected: the state stays as it was, and the status says so.

        With a preprocessing of blocks, inputs have the samples of one block on a second axis ``N``.

        Args:
            state: the state of the last step, or that of :meth:`init`.
            y: measurements; NaN where masked is allowed.
            u: the control since the last step.
            mask: True where a channel was measured; by default everywhere.
            dt: the length of the step in seconds; by default the nominal one.
            prepared: ``filter.prepare()``, computed once for all steps of a stream; compute it again whenever a
                parameter changes.
            reject: False leaves out the check of the result, for generated code that makes it itself.

        Returns:
            The next state, and the output of the step.

        Raises:
            ShapeError: inputs do not have the sizes or the dtype of the filter.
            DataError: ``dt`` is negative or not finite.
        """
        self._check(y, u, mask, dt, time_axes=0)
        check_lengths(dt)
        return self._single(self.advance, state, y, mask, u, dt, prepared, moves=True, reject=reject)

    def update(
        self,
        state: Any,
        y: Float[Tensor, "B *N m"],
        u: Float[Tensor, "B *N p"] | None = None,
        mask: Bool[Tensor, "B *N m"] | None = None,
        dt: Float[Tensor, "B *N"] | None = None,
        *,
        prepared: Any = None,
        reject: bool = True,
    ) -> tuple[Any, StepOutput]:
        """Condition on ``y`` without predicting, as a step of zero length would; pure.

        For a first measurement at the time of the prior: ``init``, ``update``, then ``step`` compute the same bits as
        ``run``.

        Args:
            state: that of :meth:`init`.
            y: measurements.
            u: the control, which moves nothing; an encoder reads it.
            mask: True where a channel was measured; by default everywhere.
            dt: read by a preprocessing only.
            prepared, reject: as in :meth:`step`.

        Returns:
            The next state, and the output of the step.
        """
        self._check(y, u, mask, dt, time_axes=0)
        return self._single(self._advance_at_rest, state, y, mask, u, dt, prepared, moves=False, reject=reject)

    def _single(
        self,
        advance: Callable[..., tuple[Any, ...]],
        state: Any,
        y: Tensor,
        mask: Tensor | None,
        u: Tensor | None,
        dt: Tensor | None,
        prepared: Any,
        moves: bool,
        reject: bool,
    ) -> tuple[Any, StepOutput]:
        y, weight, flagged = clean(y, mask)
        prepared = self.prepare() if prepared is None else prepared
        after, _, out = self._advance(advance, prepared, state, Inputs(y, weight, u, dt))
        if reject:
            after, out = rejected(state, after, out, *self._moved_by(u, dt, moves))
        return after, out._replace(status=out.status | per_step(flagged, 1))

    def _advance(
        self, advance: Callable[..., tuple[Any, ...]], prepared: Any, state: Any, inputs: Inputs
    ) -> tuple[Any, ...]:
        """Preprocessing, one step of the filter, and calibration of the covariance it reports.

        Returns the state, the weights of the channels after preprocessing, and the outputs of ``advance``.
        """
        if self.preprocess is None:
            state, out, *more = advance(prepared, state, *inputs)
        else:
            memory, inputs = self.preprocess(state.preprocess, inputs)
            filter_state, out, *more = advance(prepared, state.filter, *inputs)
            state = Preprocessed(memory, filter_state)
        out = with_resolution(self.layout, out)
        out = out if self.covariance_scale is None else scale_covariance(out, self.covariance_scale)
        return state, inputs.weight, out, *more

    def _moved_by(self, u: Tensor | None, dt: Tensor | None, moves: bool) -> tuple[Tensor | None, Tensor | None]:
        """The control and the length that must be numbers for a step to be made."""
        return None if self.takes_missing_controls or not moves else u, dt if moves else None

    def _advance_at_rest(
        self,
        prepared: Any,
        state: Any,
        y: Tensor,
        weight: Tensor,
        u: Tensor | None,
        dt: Tensor | None,
        linearized: bool = False,
    ) -> tuple[Any, ...]:
        """As :meth:`advance` or :meth:`advance_linearized`, in a step of zero length whatever ``dt`` is."""
        still, prepared, dt = self.at_rest(prepared, y)
        return (still.advance_linearized if linearized else still.advance)(prepared, state, y, weight, u, dt)

    def run(
        self,
        y: Float[Tensor, "B T m"],
        u: Float[Tensor, "B T p"] | None = None,
        mask: Bool[Tensor, "B T m"] | None = None,
        dt: Float[Tensor, "B T"] | None = None,
        prior: Gaussian | None = None,
        *,
        prior_at: PriorAt = "first_measurement",
        state: Any = None,
        truncate: int | None = None,
        checkpoint: int | None = None,
        generator: torch.Generator | None = None,
        prepared: Any = None,
        advance: Callable[..., tuple[Any, StepOutput]] | None = None,
        smoothing: bool = False,
    ) -> Trajectory:
        """Filter complete sequences from a prior, or continue from the ``trajectory.state`` of an earlier run.

        The prior is the belief at the time of the first measurement: the first step conditions without predicting,
        whatever ``u[:, 0]`` and ``dt[:, 0]`` are. Without a prior the first step predicts as every other, from
        :meth:`initial_belief` or from zero with unit covariance; likewise with a state, which is that of the last step.
        With a preprocessing that reads blocks of samples there is one output per complete block.

        Args:
            y: measurements.
            u: controls.
            mask: True where a channel was measured; by default everywhere.
            dt: lengths of the steps in seconds; by default the nominal one.
            prior: the belief to start from.
            prior_at: ``"before_first_step"`` for a prior that is the belief one step before the first measurement.
            state: the state to continue from, instead of a prior.
            truncate: detach the state every so many steps (truncated backpropagation).
            checkpoint: recompute blocks of so many steps in the backward pass, which trades time for memory.
            generator: for filters that sample.
            prepared: ``filter.prepare()``, if it was computed before.
            advance: replaces :meth:`advance`, for example by a compiled version.
            smoothing: record what :func:`fwnkf.smooth` needs.

        Returns:
            The outputs of all steps and the last state.

        Raises:
            ShapeError: inputs do not have the sizes or the dtype of the filter.
            DataError: a ``dt`` is negative or not finite.
            ConfigError: options that exclude each other.
        """
        self._check(y, u, mask, dt, time_axes=1)
        if state is not None and prior is not None:
            raise ConfigError("give either a prior (to start) or a state (to continue), not both")
        if prior_at not in get_args(PriorAt):
            raise ConfigError(f"prior_at = {prior_at!r}; wanted one of {', '.join(get_args(PriorAt))}")
        predicts_first = prior is None or prior_at == "before_first_step"
        check_lengths(dt, first=0 if predicts_first else self.input_sizes.block)
        if state is None:
            prior = self.initial_belief(y, u, mask, dt) if prior is None else prior
            state = self.init(y.shape[0], prior, generator=generator)
        y, weight, flagged = clean(y, mask)
        block = self.input_sizes.block
        if prepared is None:
            prepared = self.prepare()

        if smoothing and advance is not None:
            raise ConfigError("smoothing=True records what advance computes inside: leave advance=… out")
        step = self.advance_linearized if smoothing else self.advance if advance is None else advance

        def with_step(step: Callable[..., tuple[Any, ...]], moves: bool) -> Any:
            def body(carry: Any, inputs: Any) -> tuple[Any, tuple[Tensor, StepOutput, LinearStep | None]]:
                given = Inputs(*inputs)
                after, used, out, *linear = self._advance(step, prepared, carry, given)
                after, out = rejected(carry, after, out, *self._moved_by(given.u, given.dt, moves))
                return after, (used, out, batched(linear[0]) if linear else None)

            return body

        inputs = [grouped(item, block) for item in (y, weight, u, dt)]
        start = state
        state, (weight, out, steps) = scan(
            with_step(step, moves=True),
            state,
            inputs,
            first=None
            if predicts_first
            else with_step(partial(self._advance_at_rest, linearized=smoothing), moves=False),
            truncate=truncate,
            checkpoint=checkpoint,
        )
        out = out._replace(status=out.status | per_step(flagged if block == 1 else flagged.unfold(1, block, block), 2))
        linear = None
        if smoothing:
            linear = LinearSteps(self.joint_covariance(start if self.preprocess is None else start.filter), steps)
        return Trajectory(**out._asdict(), state=state, linear=linear, weight=weight)

    forward = run

    @torch.no_grad()
    def calibrate_covariance(self, scale: Float[Tensor, " d"] | None) -> None:
        """Multiply the reported variances of the state by constant factors, which are saved with the filter.

        Use it where errors on recordings that were not used for training are larger or smaller than the reported
        variance (:func:`fwnkf.metrics.consistency.variance_ratio`). Gains, innovations and NIS do not change.

        Args:
            scale: a positive factor for each tangent coordinate of the state; None removes them.
        """
        if scale is not None and (scale.shape != (self.layout.tangent_size,) or not bool((scale > 0).all())):
            raise ShapeError(
                f"covariance scale {tuple(scale.shape)}: wanted {self.layout.tangent_size} positive factors"
            )
        self.covariance_scale = None if scale is None else scale.detach().clone().to(self._like())

    @property
    def input_sizes(self) -> InputSizes:
        """Channels of a raw measurement, of a raw control, and samples per step: those before preprocessing."""
        preprocess = self.preprocess
        if preprocess is None:
            return InputSizes(self.observation_dim, self.control_dim)
        return InputSizes(preprocess.observation_dim, preprocess.control_dim, preprocess.block)

    @property
    def input_origin(self) -> tuple[float, ...]:
        """What raw measurements are relative to, see :class:`fwnkf.Part`; empty if to zero."""
        origins = self.observation_layout.origins
        if origins and self.preprocess is not None:
            raise ConfigError(
                f"filter {self.name!r}: raw samples before a preprocessing have no origin; give it relative numbers, "
                "and a layout without an origin"
            )
        return origins

    # ---- helpers --------------------------------------------------------------------------------------------

    def _check(self, y: Tensor, u: Tensor | None, mask: Tensor | None, dt: Tensor | None, time_axes: int) -> None:
        check_inputs(self.name, self.input_sizes, self._like(), y, u, mask, dt, time_axes)


def adopt(module: Filter, system: System | None) -> System:
    """Set the layouts and the control size of a filter to those of its system."""
    if system is None:
        raise ConfigError(f"filter {module.name!r} needs system=…, a fwnkf.System with transition and observation")
    module.layout, module.observation_layout = system.layout, system.observation_layout
    module.control_dim = system.control_dim
    return system
