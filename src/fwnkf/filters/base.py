"""The contract every filter shares: ``init``, a pure ``step``, and ``run`` over time.

A filter writes two methods. ``prepare`` computes what does not change from step to step (differentiably, once per
run), ``advance`` is one step on clean inputs. Cleaning, checking and the loop over time live here, once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from ..core.layout import Layout
from ..core.preprocess import Inputs, Preprocess, Preprocessed, grouped
from ..core.scan import scan
from ..core.system import System
from ..errors import ConfigError, NoObservationModelError, ShapeError
from ..registry import FILTERS, parse_config
from ..shapes import Bool, Float
from ..types import Gaussian, StepOutput, Trajectory
from .outputs import clean, per_step, scale_covariance


class Statistics(NamedTuple):
    """Means and standard deviations of training data, for networks that want their inputs near one.

    ``feature`` is of :meth:`Layout.features`, ``step`` the root mean square of what one step adds to each tangent
    coordinate of the state.
    """

    feature_mean: Float[Tensor, " f"]
    feature_std: Float[Tensor, " f"]
    observation_mean: Float[Tensor, " m"]
    observation_std: Float[Tensor, " m"]
    control_mean: Float[Tensor, " p"]
    control_std: Float[Tensor, " p"]
    step: Float[Tensor, " d"]


class Filter(nn.Module):
    """Base of all filters. ``State`` is a NamedTuple of tensors; nothing that changes is kept on ``self``."""

    Config: ClassVar[type]
    arrays: ClassVar[tuple[str, ...]] = ()
    """Tensors that may be given to :func:`build` by name; they end up in the module, not in its config."""
    layout: Layout
    observation_layout: Layout
    control_dim: int = 0
    system: System | None
    owns_system: ClassVar[bool] = False
    """Whether the system is rebuilt from the filter's own config rather than saved beside it."""
    takes_system: ClassVar[bool] = True
    """Whether equations of motion can be given to it."""
    preprocess: Preprocess | None
    """What happens to raw samples before the filter; saved with it, applied by :meth:`run` and :meth:`step` alike."""
    covariance_scale: Tensor | None
    """Factors on the reported variances of the state, from recordings left out; the recursion is not touched."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.system = None
        self.preprocess = None
        self.register_buffer("covariance_scale", None)

    # ---- what a filter writes -------------------------------------------------------------------------------

    def init_state(self, belief: Gaussian, generator: torch.Generator | None) -> Any:
        """The state before the first step, from a batched belief."""
        raise NotImplementedError

    def prepare(self) -> Any:
        """What every step needs and no step changes: matrices from raw parameters, folded weights."""
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
        """One step on clean inputs: ``y`` is finite, ``weight`` is 1 where it counts and 0 where it does not."""
        raise NotImplementedError

    def observe(self, x: Float[Tensor, "*B n"]) -> Float[Tensor, "*B m"]:
        """``H(x)``, where the filter has an observation model."""
        raise NoObservationModelError(
            f"filter {self.name!r} has no observation model, so nothing can be compared with the measurements "
            "(no spectral loss, no innovations of the sensor); use a filter that has one, or set the weight to 0"
        )

    def regularization(self) -> Float[Tensor, ""]:
        """What the filter's own paper adds to the training loss (a KL term, say); zero for most."""
        return self._like().new_zeros(())

    def normalize(self, statistics: Statistics) -> None:
        """Take the scales of training data into buffers, so that they are saved; nothing to do for most."""

    @classmethod
    def infer_options(cls, options: dict[str, Any], arrays: dict[str, Tensor], system: System | None) -> dict[str, Any]:
        """Options completed by what the arrays or the system already say (sizes, mostly)."""
        return options

    # ---- what everybody calls -------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return FILTERS.name_of(type(self)) or type(self).__name__

    @property
    def takes_dt(self) -> bool:
        """Whether a step may have a length in seconds; a filter that counts in steps refuses ``dt``."""
        return self.system is None or self.system.takes_dt

    @property
    def observation_dim(self) -> int:
        """Channels the filter itself reads, after preprocessing."""
        return self.observation_layout.size

    @property
    def initial_steps(self) -> int:
        """How many of the first steps :meth:`initial_belief` reads; 0 where a prior has to be given."""
        return 0 if self.system is None else self.system.initial_steps

    def initial_belief(
        self,
        y: Float[Tensor, "B T m"],
        u: Float[Tensor, "B T p"] | None = None,
        mask: Bool[Tensor, "B T m"] | None = None,
        dt: Float[Tensor, "B T"] | None = None,
    ) -> Gaussian | None:
        """The belief before the first step as the first samples of a recording say it; None if the filter cannot tell.

        :meth:`run` starts from it if neither a prior nor a state is given. Whoever steps by hand gives it to
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
        """The initial belief from the first steps, preprocessed."""
        assert self.system is not None
        return self.system.initial_belief(inputs.y, inputs.weight, inputs.u)

    def preprocessed(self, raw: Inputs) -> Inputs:
        """Whole sequences through the preprocessing, from its start."""
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
        batch axis. ``generator`` feeds filters that sample; without one they draw from a fixed seed, so that the same
        call gives the same bits.
        """
        if isinstance(batch_size, tuple):
            if len(batch_size) != 1:
                raise ShapeError(f"batch shape {batch_size}: give exactly one batch axis (flatten the others)")
            (batch_size,) = batch_size
        like = self._like()
        if prior is None:
            prior = Gaussian(self.layout.origin(like), torch.eye(self.layout.tangent_size).to(like))
        n, d = self.layout.size, self.layout.tangent_size
        if prior.mean.shape[-1] < n and self.system is not None:
            prior = self.system.complete_prior(prior)
        if prior.mean.dtype != like.dtype or prior.mean.device != like.device:
            raise ShapeError(
                f"filter {self.name!r} works in {like.dtype} on {like.device}, the prior comes in "
                f"{prior.mean.dtype} on {prior.mean.device}; convert one of them"
            )
        leads = ((), (1,), (batch_size,))
        if prior.mean.shape not in [(*lead, n) for lead in leads] or prior.cov.shape not in [
            (*lead, d, d) for lead in leads
        ]:
            raise ShapeError(
                f"prior of filter {self.name!r}: mean {tuple(prior.mean.shape)}, cov {tuple(prior.cov.shape)}; "
                f"wanted [{batch_size}, {n}] and [{batch_size}, {d}, {d}]"
            )
        belief = Gaussian(
            prior.mean.expand(batch_size, n).clone(),
            prior.cov.to(prior.mean).expand(batch_size, d, d).clone(),
        )
        state = self.init_state(belief, generator)
        return state if self.preprocess is None else Preprocessed(self.preprocess.init(batch_size, like), state)

    def step(
        self,
        state: Any,
        y: Float[Tensor, "B m"],
        u: Float[Tensor, "B p"] | None = None,
        mask: Bool[Tensor, "B m"] | None = None,
        dt: Float[Tensor, "B"] | None = None,
        *,
        prepared: Any = None,
    ) -> tuple[Any, StepOutput]:
        """Predict, then condition on ``y``. Pure: same inputs, same bits.

        ``mask`` is True where a channel was measured. A streaming caller computes ``prepared = filter.prepare()``
        once and hands it in; it must be computed anew whenever a parameter changes.
        """
        self._check(y, u, mask, dt, time_axes=0)
        y, weight, flagged = clean(y, mask)
        if prepared is None:
            prepared = self.prepare()
        state, out = self._advance(self.advance, prepared, state, Inputs(y, weight, u, dt))
        return state, out._replace(status=out.status | per_step(flagged, 1))

    def _advance(
        self, advance: Callable[..., tuple[Any, StepOutput]], prepared: Any, state: Any, inputs: Inputs
    ) -> tuple[Any, StepOutput]:
        """Preprocess, one step of the filter, calibrate what it reports; the state holds the memory of both."""
        if self.preprocess is None:
            state, out = advance(prepared, state, *inputs)
        else:
            memory, inputs = self.preprocess(state.preprocess, inputs)
            following, out = advance(prepared, state.filter, *inputs)
            state = Preprocessed(memory, following)
        return state, out if self.covariance_scale is None else scale_covariance(out, self.covariance_scale)

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
    ) -> Trajectory:
        """Filter whole sequences; ``state`` goes on from an earlier ``trajectory.state`` instead of a prior.

        Without either, the filter starts from :meth:`initial_belief`, or from zero with unit covariance. With a
        preprocessing that reads blocks of samples there is one output for each whole block. ``truncate=k`` cuts the
        gradient every ``k`` steps, ``checkpoint=k`` trades time for memory in training. ``advance`` stands in for
        :meth:`advance`, compiled for instance.
        """
        self._check(y, u, mask, dt, time_axes=1)
        if state is not None and prior is not None:
            raise ConfigError("give either a prior (start) or a state (go on), not both")
        if state is None:
            prior = self.initial_belief(y, u, mask, dt) if prior is None else prior
            state = self.init(y.shape[0], prior, generator=generator)
        y, weight, flagged = clean(y, mask)
        block = 1 if self.preprocess is None else self.preprocess.block
        if prepared is None:
            prepared = self.prepare()

        step = self.advance if advance is None else advance

        def body(carry: Any, inputs: Any) -> tuple[Any, StepOutput]:
            return self._advance(step, prepared, carry, Inputs(*inputs))

        inputs = [grouped(item, block) for item in (y, weight, u, dt)]
        state, out = scan(body, state, inputs, truncate=truncate, checkpoint=checkpoint)
        out = out._replace(status=out.status | per_step(flagged if block == 1 else flagged.unfold(1, block, block), 2))
        return Trajectory(**out._asdict(), state=state)

    @torch.no_grad()
    def calibrate_covariance(self, scale: Float[Tensor, " d"] | None) -> None:
        """Multiply the reported variances of the state by these factors (None: as they are), saved with the filter.

        For a filter whose error is larger in some coordinates than it states, measured on recordings left out of its
        fit (:func:`fwnkf.metrics.consistency.variance_ratio`). Gains, innovations and NIS stay as they are.
        """
        if scale is not None and (scale.shape != (self.layout.tangent_size,) or not bool((scale > 0).all())):
            raise ShapeError(
                f"covariance scale {tuple(scale.shape)}: wanted {self.layout.tangent_size} positive factors"
            )
        self.covariance_scale = None if scale is None else scale.detach().clone().to(self._like())

    # ---- helpers --------------------------------------------------------------------------------------------

    def _like(self) -> Tensor:
        """Any tensor of the module: it carries the dtype and device the filter works in."""
        for tensor in (*self.parameters(), *self.buffers()):
            if tensor.is_floating_point():
                return tensor
        return torch.zeros(())

    def _check(self, y: Tensor, u: Tensor | None, mask: Tensor | None, dt: Tensor | None, time_axes: int) -> None:
        front = self.preprocess
        channels = self.observation_dim if front is None else front.observation_dim
        controls = self.control_dim if front is None else front.control_dim
        block = 1 if front is None else front.block
        axes: tuple[str, ...] = ("B", "T") if time_axes else ("B",) if block == 1 else ("B", str(block))
        lead = y.shape[: len(axes)]
        wanted = f"[{', '.join((*axes, str(channels)))}]"
        whole = time_axes or block == 1 or lead[-1] == block
        if y.ndim != 1 + len(axes) or y.shape[-1] != channels or not whole:
            raise ShapeError(f"filter {self.name!r}: y has shape {tuple(y.shape)}, wanted {wanted}")
        like = self._like()
        if y.dtype != like.dtype or y.device != like.device:
            raise ShapeError(
                f"filter {self.name!r} works in {like.dtype} on {like.device}, y comes in {y.dtype} on {y.device}; "
                "convert one of them, e.g. filter.to(y)"
            )
        if mask is not None and (mask.shape != y.shape or mask.dtype != torch.bool):
            raise ShapeError(f"mask is {mask.dtype} {tuple(mask.shape)}, wanted torch.bool {tuple(y.shape)}")
        if dt is not None and dt.shape != lead:
            raise ShapeError(f"dt has shape {tuple(dt.shape)}, wanted {tuple(lead)}: seconds per stream and step")
        for name, item in (("u", u), ("dt", dt)):
            if item is not None and item.dtype != y.dtype:
                raise ShapeError(f"{name} comes in {item.dtype}, y in {y.dtype}; convert it, e.g. {name}.to(y)")
        if u is not None and (controls == 0 or u.shape != (*lead, controls)):
            raise ShapeError(
                f"u has shape {tuple(u.shape)}, filter {self.name!r} takes "
                + (f"{(*lead, controls)}" if controls else "no control")
            )


def build(name: str, **options: Any) -> Filter:
    """A filter by name: plain options go to its config, tensors to its arrays, a system to ``system``.

    >>> import torch, fwnkf
    >>> eye = torch.eye(2)
    >>> kf = fwnkf.build("kf", F=eye, H=eye, Q=0.1 * eye, R=eye)
    >>> kf.run(torch.zeros(1, 5, 2)).mean.shape
    torch.Size([1, 5, 2])
    """
    cls = FILTERS[name]
    system = options.pop("system", None)
    arrays = {key: torch.as_tensor(options.pop(key)) for key in cls.arrays if options.get(key) is not None}
    options = {key: value for key, value in options.items() if not (key in cls.arrays and value is None)}
    config = parse_config(cls.Config, cls.infer_options(options, arrays, system), f"filter {name}")
    return make(cls, config, system, arrays)


def make(cls: Any, config: Any, system: System | None, arrays: dict[str, Tensor]) -> Filter:
    """Construct a filter and give it the dtype and device of what it was given."""
    built: Filter = cls(config, system=system, **arrays)
    source = list(arrays.values()) if system is None else [*system.parameters(), *system.buffers()]
    reference = next((tensor for tensor in source if tensor.is_floating_point()), None)
    return built if reference is None else built.to(dtype=reference.dtype, device=reference.device)


def adopt(module: Filter, system: System | None) -> System:
    """Take a system as the filter's own: its layouts and control become the filter's."""
    if system is None:
        raise ConfigError(f"filter {module.name!r} needs system=…, a fwnkf.System with transition and observation")
    module.layout, module.observation_layout = system.layout, system.observation_layout
    module.control_dim = system.control_dim
    return system


def available() -> list[str]:
    """The names of all registered filters."""
    return sorted(FILTERS)


def options_of(config: Any) -> dict[str, Any]:
    """A config as plain values, ready for JSON."""
    return dataclasses.asdict(config)
