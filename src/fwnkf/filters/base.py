"""The interface of all filters: ``init``, a pure ``step``, and ``run`` over time.

A filter implements two methods. ``prepare`` computes what is the same in all steps (differentiably, once per run),
``advance`` is one step on clean inputs. Cleaning, checks and the loop over time are implemented here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from ..core.layout import Layout
from ..core.preprocess import Inputs, Preprocess, Preprocessed, grouped
from ..core.scan import scan
from ..core.smoothing import LinearStep, LinearSteps, batched
from ..core.system import System
from ..errors import ConfigError, NoObservationModelError, ShapeError
from ..registry import FILTERS
from ..shapes import Bool, Float
from ..types import Gaussian, StepOutput, Trajectory
from .inputs import InputSizes, batched_prior, check_inputs, clean
from .options import check_system, parse_options
from .outputs import per_step, scale_covariance


class Statistics(NamedTuple):
    """Means and standard deviations of training data, for networks whose inputs should be of order one.

    ``feature`` refers to :meth:`Layout.features`; ``step`` is the root mean square change of each tangent coordinate of
    the state in one step.
    """

    feature_mean: Float[Tensor, " f"]
    feature_std: Float[Tensor, " f"]
    observation_mean: Float[Tensor, " m"]
    observation_std: Float[Tensor, " m"]
    control_mean: Float[Tensor, " p"]
    control_std: Float[Tensor, " p"]
    step: Float[Tensor, " d"]


FilterType = TypeVar("FilterType", bound="Filter")


class Filter(nn.Module):
    """Base class of all filters. The state is a NamedTuple of tensors; a step changes nothing on ``self``."""

    Config: ClassVar[type]
    arrays: ClassVar[tuple[str, ...]] = ()
    """Tensors that :func:`build` takes by name; they become tensors of the module and are not in its config."""
    layout: Layout
    observation_layout: Layout
    control_dim: int = 0
    system: System | None
    owns_system: ClassVar[bool] = False
    """Whether the system is rebuilt from the filter's own config instead of being saved with it."""
    takes_system: ClassVar[bool] = True
    """Whether the filter takes ``system=…``, the equations of motion."""
    instead_of_system: ClassVar[str] = ""
    """What to give to a filter that takes no system."""
    preprocess: Preprocess | None
    """Preprocessing of raw samples; saved with the filter, applied by both :meth:`run` and :meth:`step`."""
    covariance_scale: Tensor | None
    """Factors on the reported variances of the state, see :meth:`calibrate_covariance`."""

    def __init__(self, system: System | None = None, **options: Any) -> None:
        """Options of the config and tensors by name. Filters of the package state theirs in a signature of their own.

        Such a constructor passes its arguments on and does nothing else; a filter is set up by :meth:`setup`.
        """
        config, arrays = self.parse(system, options)
        self._set_up(config, system, arrays)

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "Config" in vars(cls) and "__init__" not in vars(cls):
            cls.__init__ = Filter.__init__  # type: ignore[method-assign]  # the parent's has not these options

    @classmethod
    def from_config(cls: type[FilterType], config: Any, system: System | None = None, **arrays: Tensor) -> FilterType:
        """A filter from a config that is complete, such as one that was saved."""
        model = cls.__new__(cls)
        model._set_up(config, system, arrays)
        return model

    @classmethod
    def parse(cls, system: System | None, options: Mapping[str, Any]) -> tuple[Any, dict[str, Tensor]]:
        """The config and the tensors of a constructor's arguments; None stands for an option that was not given."""
        return parse_options(cls, system, options)

    def _set_up(self, config: Any, system: System | None, arrays: dict[str, Tensor]) -> None:
        check_system(type(self), system)
        super().__init__()
        self.config = config
        self.system = None
        self.preprocess = None
        self.register_buffer("covariance_scale", None)
        self.setup(config, system, arrays)
        source = list(arrays.values()) if system is None else [*system.parameters(), *system.buffers()]
        reference = next((tensor for tensor in source if tensor.is_floating_point()), None)
        if reference is not None:
            self.to(dtype=reference.dtype, device=reference.device)

    # ---- implemented by each filter -------------------------------------------------------------------------

    def setup(self, config: Any, system: System | None, arrays: dict[str, Tensor]) -> None:
        """Create layouts, parameters and buffers; called by the constructor, which then sets dtype and device."""
        raise NotImplementedError

    def init_state(self, belief: Gaussian, generator: torch.Generator | None) -> Any:
        """The state before the first step, from a batched belief."""
        raise NotImplementedError

    def prepare(self) -> Any:
        """Values that all steps share: matrices from raw parameters, folded weights."""
        return None

    def advance(
        self,
        prepared: Any,
        state: Any,
        y: Float[Tensor, "B m"],
        weight: Float[Tensor, "B m"],
        u: Float[Tensor, "B p"] | None,
        dt: Float[Tensor, "B"] | None,
    ) -> tuple[Any, StepOutput]:
        """One step on clean inputs: ``y`` is finite, ``weight`` is 1 where a channel was measured and 0 elsewhere."""
        return self.advance_linearized(prepared, state, y, weight, u, dt)[:2]

    def advance_linearized(
        self,
        prepared: Any,
        state: Any,
        y: Float[Tensor, "B m"],
        weight: Float[Tensor, "B m"],
        u: Float[Tensor, "B p"] | None,
        dt: Float[Tensor, "B"] | None,
    ) -> tuple[Any, StepOutput, LinearStep]:
        """As :meth:`advance`, and the linear model of the step. A filter implements this one if it can be smoothed."""
        raise ConfigError(
            f"filter {self.name!r} cannot be smoothed: the covariance it states, if any, does not follow from a linear "
            "model of each step. Use a filter with a covariance recursion, such as 'ekf' or 'fwnkf'"
        )

    def joint_covariance(self, state: Any) -> Float[Tensor, "B D D"]:
        """The covariance in a state, over all coordinates of :class:`LinearStep`."""
        return state.cov

    def observe(self, x: Float[Tensor, "*B n"]) -> Float[Tensor, "*B m"]:
        """``H(x)``, where the filter has an observation model."""
        raise NoObservationModelError(
            f"filter {self.name!r} has no observation model, so its estimates cannot be compared with measurements "
            "(no spectral loss, no innovations); use a filter that has one, or set the weight of the loss to 0"
        )

    def regularization(self) -> Float[Tensor, ""]:
        """The filter's own term of the training loss, such as a KL divergence; zero by default."""
        return self._like().new_zeros(())

    def normalize(self, statistics: Statistics) -> None:
        """Store the scales of training data in buffers, so that they are saved; does nothing by default."""

    @classmethod
    def infer_options(cls, options: dict[str, Any], arrays: dict[str, Tensor], system: System | None) -> dict[str, Any]:
        """Options completed with what follows from the arrays or the system, mostly sizes."""
        return options

    @classmethod
    def unused_options(cls, config: Any, given: Mapping[str, Any]) -> list[str]:
        """A sentence for each option given that has no effect with the others."""
        return []

    # ---- the public interface -------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return FILTERS.name_of(type(self)) or type(self).__name__

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the filter, which its inputs must have."""
        return self._like().dtype

    @property
    def device(self) -> torch.device:
        """The device of the filter, on which its inputs must be."""
        return self._like().device

    @property
    def takes_dt(self) -> bool:
        """Whether the filter takes ``dt``, the length of each step in seconds."""
        return self.system is None or self.system.takes_dt

    @property
    def observation_dim(self) -> int:
        """Number of channels after preprocessing."""
        return self.observation_layout.size

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
        """The belief before the first step, estimated from the first samples; None if ``initial_steps`` is 0.

        :meth:`run` starts from it if neither a prior nor a state is given. Before :meth:`step`, pass it to
        :meth:`init`.
        """
        if not self.initial_steps:
            return None
        self._check(y, u, mask, dt, time_axes=1)
        if y.shape[1] == 0:
            return None
        y, weight, _ = clean(y, mask)
        count = self.initial_steps * (1 if self.preprocess is None else self.preprocess.block)
        first = slice(count)
        inputs = Inputs(
            y[:, first], weight[:, first], None if u is None else u[:, first], None if dt is None else dt[:, first]
        )
        return self.belief_from(inputs if self.preprocess is None else self.preprocessed(inputs))

    def belief_from(self, inputs: Inputs) -> Gaussian:
        """The initial belief from the preprocessed inputs of the first steps."""
        assert self.system is not None
        return self.system.initial_belief(inputs.y, inputs.weight, inputs.u)

    def preprocessed(self, raw: Inputs) -> Inputs:
        """Complete sequences after preprocessing, which starts without memory."""
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
        """The state before the first step.

        ``prior`` is the belief before the first *prediction* (zero mean, unit covariance if None), with or without a
        batch axis. ``generator`` is for filters that sample; without it they use a fixed seed, so that the same call
        gives the same bits.
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
    ) -> tuple[Any, StepOutput]:
        """Predict, then condition on ``y``. Pure: same inputs, same bits.

        ``mask`` is True where a channel was measured. For streaming, compute ``prepared = filter.prepare()`` once and
        pass it to every step; compute it again whenever a parameter changes.
        """
        self._check(y, u, mask, dt, time_axes=0)
        y, weight, flagged = clean(y, mask)
        if prepared is None:
            prepared = self.prepare()
        state, out = self._advance(self.advance, prepared, state, Inputs(y, weight, u, dt))
        return state, out._replace(status=out.status | per_step(flagged, 1))

    def _advance(
        self, advance: Callable[..., tuple[Any, ...]], prepared: Any, state: Any, inputs: Inputs
    ) -> tuple[Any, ...]:
        """Preprocessing, one step of the filter, and calibration of the covariance it reports."""
        if self.preprocess is None:
            state, out, *more = advance(prepared, state, *inputs)
        else:
            memory, inputs = self.preprocess(state.preprocess, inputs)
            filter_state, out, *more = advance(prepared, state.filter, *inputs)
            state = Preprocessed(memory, filter_state)
        return state, out if self.covariance_scale is None else scale_covariance(out, self.covariance_scale), *more

    def run(
        self,
        y: Float[Tensor, "B T m"],
        u: Float[Tensor, "B T p"] | None = None,
        mask: Bool[Tensor, "B T m"] | None = None,
        dt: Float[Tensor, "B T"] | None = None,
        prior: Gaussian | None = None,
        *,
        state: Any = None,
        truncate: int | None = None,
        checkpoint: int | None = None,
        generator: torch.Generator | None = None,
        prepared: Any = None,
        advance: Callable[..., tuple[Any, StepOutput]] | None = None,
        smoothing: bool = False,
    ) -> Trajectory:
        """Filter complete sequences from a prior, or continue from the ``trajectory.state`` of an earlier run.

        Without either, the filter starts from :meth:`initial_belief`, or from zero with unit covariance. With a
        preprocessing that reads blocks of samples there is one output per complete block. ``truncate=k`` detaches the
        state every ``k`` steps, ``checkpoint=k`` trades time for memory in training. ``advance`` replaces
        :meth:`advance`, for example by a compiled version. ``smoothing=True`` records what :func:`fwnkf.smooth` needs.
        """
        self._check(y, u, mask, dt, time_axes=1)
        if state is not None and prior is not None:
            raise ConfigError("give either a prior (to start) or a state (to continue), not both")
        if state is None:
            prior = self.initial_belief(y, u, mask, dt) if prior is None else prior
            state = self.init(y.shape[0], prior, generator=generator)
        y, weight, flagged = clean(y, mask)
        block = 1 if self.preprocess is None else self.preprocess.block
        if prepared is None:
            prepared = self.prepare()

        if smoothing and advance is not None:
            raise ConfigError("smoothing=True records what advance computes inside: leave advance=… out")
        step = self.advance_linearized if smoothing else self.advance if advance is None else advance

        def body(carry: Any, inputs: Any) -> tuple[Any, tuple[StepOutput, LinearStep | None]]:
            carry, out, *linear = self._advance(step, prepared, carry, Inputs(*inputs))
            return carry, (out, batched(linear[0]) if linear else None)

        inputs = [grouped(item, block) for item in (y, weight, u, dt)]
        first = state
        state, (out, steps) = scan(body, state, inputs, truncate=truncate, checkpoint=checkpoint)
        out = out._replace(status=out.status | per_step(flagged if block == 1 else flagged.unfold(1, block, block), 2))
        linear = None
        if smoothing:
            linear = LinearSteps(self.joint_covariance(first if self.preprocess is None else first.filter), steps)
        return Trajectory(**out._asdict(), state=state, linear=linear)

    @torch.no_grad()
    def calibrate_covariance(self, scale: Float[Tensor, " d"] | None) -> None:
        """Multiply the reported variances of the state by these factors, saved with the filter (None: remove).

        Use it where errors on recordings that were not used for training are larger or smaller than the reported
        variance (:func:`fwnkf.metrics.consistency.variance_ratio`). Gains, innovations and NIS do not change.
        """
        if scale is not None and (scale.shape != (self.layout.tangent_size,) or not bool((scale > 0).all())):
            raise ShapeError(
                f"covariance scale {tuple(scale.shape)}: wanted {self.layout.tangent_size} positive factors"
            )
        self.covariance_scale = None if scale is None else scale.detach().clone().to(self._like())

    # ---- helpers --------------------------------------------------------------------------------------------

    def _like(self) -> Tensor:
        """A tensor with the dtype and device of the filter."""
        for tensor in (*self.parameters(), *self.buffers()):
            if tensor.is_floating_point():
                return tensor
        return torch.zeros(())

    def _check(self, y: Tensor, u: Tensor | None, mask: Tensor | None, dt: Tensor | None, time_axes: int) -> None:
        preprocess = self.preprocess
        sizes = (
            InputSizes(self.observation_dim, self.control_dim)
            if preprocess is None
            else InputSizes(preprocess.observation_dim, preprocess.control_dim, preprocess.block)
        )
        check_inputs(self.name, sizes, self._like(), y, u, mask, dt, time_axes)


def adopt(module: Filter, system: System | None) -> System:
    """Set the layouts and the control size of a filter to those of its system."""
    if system is None:
        raise ConfigError(f"filter {module.name!r} needs system=…, a fwnkf.System with transition and observation")
    module.layout, module.observation_layout = system.layout, system.observation_layout
    module.control_dim = system.control_dim
    return system
