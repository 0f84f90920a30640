"""The interface of all filters: ``init``, pure ``predict``, ``update`` and ``step``, and ``run`` over time.

A filter implements ``setup``, which creates its tensors, and the recursion: ``prepare`` computes what is the same in
all steps (differentiably, once per run), ``predict_state`` and ``update_state`` are the halves of one step on clean
inputs. Cleaning, checks and the loop over time are here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeVar, get_args, overload

import torch
from torch import Tensor, nn

from ..core.gaussian import Noise
from ..core.layout import Layout
from ..core.linear_run import Continuous
from ..core.motion import Linearity
from ..core.preprocess import Inputs, Preprocess, Preprocessed, grouped
from ..core.scan import scan
from ..core.smoothing import LinearStep, LinearSteps, batched
from ..core.system import System, system_name
from ..core.trajectory import Trajectory
from ..errors import ConfigError, NoObservationModelError, ShapeError
from ..lazy import upper
from ..registry import FILTERS, parse_config
from ..shapes import Bool, Float
from ..summary import about, html_card, learned_words, one_line, option_words, step_words
from ..types import Frame, FrameT, Gaussian, Statistics, StepOutput
from . import engines
from .engines import Engine
from .inputs import InputSizes, batched_prior, check_inputs, check_lengths, clean
from .outputs import per_step, rejected, rejected_prediction, scale_covariance, with_resolution

if TYPE_CHECKING:
    from .frames import Samples
else:  # runtime shape checks evaluate annotations, and frames are read where one is given
    Samples = Any

FilterType = TypeVar("FilterType", bound="Filter")
PriorAt = Literal["first_measurement", "before_first_step"]
"""The time to which a prior belongs."""


SIZES = frozenset(("state_dim", "observation_dim", "control_dim", "dt", "layout", "channels", "diagonal_noise"))
"""Options that other words of a filter's ``repr`` say."""
FORMS = {"solve": "square_root", "moments": "second_order"}
"""Options of a filter and the value of each that needs code of its own in both halves of the recursion."""


class Prediction(NamedTuple):
    """A state before its measurement, and how the prediction was made; None where nothing was predicted."""

    state: Any
    F: Float[Tensor, "*B D D"] | None = None
    """The linear model of the prediction over all coordinates that the filter carries a covariance of."""
    Q: Float[Tensor, "*B D D"] | None = None
    precise: Bool[Tensor, " B"] | None = None
    """Whether the prediction kept its digits."""
    ok: Bool[Tensor, " B"] | None = None
    """Whether its factorisations worked."""
    drawn: tuple[Float[Tensor, "B d"], Float[Tensor, "B d d"]] | None = None
    """Size of the mean and covariance about which points were drawn."""
    noise: Noise | None = None
    """The measurement noise, if the prediction computed it too."""

    def keeps_digits(self, precise: Bool[Tensor, " B"]) -> Bool[Tensor, " B"]:
        """Whether an update was precise, and the prediction before it, if there was one."""
        return precise if self.precise is None else precise & self.precise


class LinearModel(NamedTuple):
    """``x⁺ = F x + B u + N(0, Q)``, ``y = H x + N(0, R)`` over all coordinates of a filter, noise states included."""

    kind: Linearity
    """``"constant"``, ``"time_varying"`` (with the lengths of the steps) or ``"state_dependent"``."""
    F: Float[Tensor, "*T D D"] | None = None
    B: Float[Tensor, "*T D p"] | None = None
    H: Float[Tensor, "m D"] | None = None
    Q: Float[Tensor, "*T D D"] | None = None
    R: Noise | None = None
    continuous: Continuous | None = None
    """The model in continuous time with the nominal step as its unit, if the matrices of all steps follow from one."""


RECURSION = {"prepare", "predict_state", "update_state", "hold", "advance", "transition_model"}
"""Methods that make a filter another one: a class that overrides one of them states its own :meth:`linear_model`."""


class Filter(nn.Module):
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
    learns_transition: ClassVar[bool] = False
    """Whether networks of the filter move the state, so that a learned system needs none of its own."""
    implements: ClassVar[tuple[str, ...]] = ()
    """Which of :data:`FORMS` the recursion has. A class that overrides a half of it has those that it states itself."""
    instead_of_system: ClassVar[str] = ""
    """What to give to a filter that takes no system."""
    latent_innovations: ClassVar[bool] = False
    """Whether the innovations are those of a learned latent space, so that they say nothing about the measurements."""
    smooths: bool = True
    """Whether each step has a linear model, so that :func:`fwnkf.smooth` can be used."""
    predicts_from_measurement: bool = False
    """Whether :meth:`step` gives the measurement to the prediction already, as the encoder of the paper reads it."""
    takes_missing_controls: bool = False
    """Whether NaN in ``u`` is a missing value; otherwise a step with a control that is not finite is rejected."""
    preprocess: Preprocess | None
    """Preprocessing of raw samples; saved with the filter, applied by both :meth:`run` and :meth:`step`."""
    covariance_scale: Tensor | None
    """Factors on the reported variances of the state, see :meth:`calibrate_covariance`."""

    def __init__(self, system: System | None = None, **options: Any) -> None:
        config, arrays = self.parse(system, options)
        self._set_up(config, system, arrays)

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "Config" in vars(cls) and "__init__" not in vars(cls):
            cls.__init__ = Filter.__init__  # type: ignore[method-assign]  # the parent's has not these options
        if {"predict_state", "update_state"} & vars(cls).keys() and "implements" not in vars(cls):
            cls.implements = ()
        if RECURSION & vars(cls).keys() and "linear_model" not in vars(cls):
            cls.linear_model = Filter.linear_model  # type: ignore[method-assign]  # that of the parent is another filter's

    @classmethod
    def from_config(cls: type[FilterType], config: Any, system: System | None = None, **arrays: Tensor) -> FilterType:
        """A filter from a config that is complete, such as one that was saved.

        Args:
            config: an instance of ``cls.Config``.
            system: the equations of motion.
            **arrays: tensors by name, see :attr:`arrays`.

        Returns:
            The filter.
        """
        model = cls.__new__(cls)
        model._set_up(config, system, arrays)
        return model

    @classmethod
    def parse(cls, system: System | None, options: Mapping[str, Any]) -> tuple[Any, dict[str, Tensor]]:
        """The config and the tensors of a constructor's arguments.

        Args:
            system: the equations of motion.
            options: the arguments; None stands for an option that was not given.

        Returns:
            The config, and the tensors by name.
        """
        cls._check_system(system)
        given = {name: value for name, value in options.items() if value is not None}
        arrays = {name: torch.as_tensor(given.pop(name)) for name in cls.arrays if name in given}
        owner = f"filter {FILTERS.name_of(cls) or cls.__name__}"
        config: Any = parse_config(cls.Config, cls.infer_options(given, arrays, system), owner)
        return config, arrays

    @classmethod
    def _check_system(cls, system: System | None) -> None:
        if system is not None and not cls.takes_system:
            name = FILTERS.name_of(cls) or cls.__name__
            raise ConfigError(f"filter {name!r} takes {cls.instead_of_system}, not a system")

    def _set_up(self, config: Any, system: System | None, arrays: dict[str, Tensor]) -> None:
        self._check_system(system)
        super().__init__()
        self.config = config
        self.system = None
        self.preprocess = None
        self.register_buffer("covariance_scale", None)
        self.setup(config, system, arrays)
        self.check_forms()
        if self.system is None and self.layout.origins:
            raise ConfigError(f"filter {self.name!r} has no system, so its layout cannot have an origin")
        source = list(arrays.values()) if system is None else [*system.parameters(), *system.buffers()]
        reference = next((tensor for tensor in source if tensor.is_floating_point()), None)
        if reference is not None:
            self.to(dtype=reference.dtype, device=reference.device)

    def check_forms(self) -> None:
        """Raise ConfigError if the config asks for a form of the recursion that this filter does not have."""
        for option, form in FORMS.items():
            if getattr(self.config, option, None) == form and form not in self.implements:
                raise ConfigError(
                    f"filter {self.name!r}: its predict_state and update_state do not implement {option}={form!r}; "
                    f"leave it out, or write it and list {form!r} in {type(self).__name__}.implements"
                )
        if getattr(self.config, "solve", None) == "sequential" and self.system and not self.system.diagonal_noise:
            raise ConfigError(
                f"filter {self.name!r}: solve='sequential' uses one channel after the other, but their noise is "
                "correlated: give a diagonal R, or use another solve"
            )

    # ---- implemented by each filter -------------------------------------------------------------------------

    def setup(self, config: Any, system: System | None, arrays: dict[str, Tensor]) -> None:
        """Create layouts, parameters and buffers; called by the constructor, which then sets dtype and device.

        Args:
            config: the options, complete.
            system: the equations of motion, or None.
            arrays: tensors by name.
        """
        raise NotImplementedError

    def init_state(self, belief: Gaussian, generator: torch.Generator | None) -> Any:
        """The state before the first step.

        Args:
            belief: mean and covariance with a batch axis.
            generator: for filters that sample.

        Returns:
            A NamedTuple of tensors.
        """
        raise NotImplementedError

    def prepare(self) -> Any:
        """Values that all steps share: matrices from raw parameters, folded weights.

        Returns:
            What :meth:`advance` takes as ``prepared``.
        """
        return None

    def predict_state(
        self,
        prepared: Any,
        state: Any,
        u: Float[Tensor, "B p"] | None,
        dt: Float[Tensor, "B"] | None,
        measured: tuple[Float[Tensor, "B m"], Float[Tensor, "B m"]] | None = None,
    ) -> Prediction:
        """The state after one step, before its measurement.

        Args:
            prepared: what :meth:`prepare` returned.
            state: the state of the last step.
            u: the control since the last step.
            dt: the length of the step in seconds; None for the nominal one.
            measured: the measurement and its weights, for a filter with :attr:`predicts_from_measurement`.

        Returns:
            The prediction.
        """
        raise NotImplementedError

    def update_state(
        self, prepared: Any, ahead: Prediction, y: Float[Tensor, "B m"], weight: Float[Tensor, "B m"]
    ) -> tuple[Any, StepOutput, LinearStep | None]:
        """A prediction conditioned on clean inputs: ``y`` is finite, ``weight`` is 1 where a channel was measured.

        Args:
            prepared: what :meth:`prepare` returned.
            ahead: what :meth:`predict_state` returned, or :meth:`hold`.
            y: measurements after preprocessing, zero where missing.
            weight: 1 where a channel was measured, else 0.

        Returns:
            The next state, the output of the step, and its linear model; None for a filter that cannot be smoothed.
        """
        raise NotImplementedError

    def hold(
        self,
        prepared: Any,
        state: Any,
        u: Float[Tensor, "B p"] | None,
        measured: tuple[Float[Tensor, "B m"], Float[Tensor, "B m"]] | None = None,
    ) -> Prediction:
        """A state as it is, to be conditioned on a measurement without a prediction.

        Args:
            prepared: what :meth:`prepare` returned.
            state: the state.
            u: the control, for an encoder that reads it, and for speeds of rotors that come with it.
            measured: as in :meth:`predict_state`.

        Returns:
            The state in the form in which :meth:`update_state` takes it.
        """
        return Prediction(state)

    def linear_model(self, prepared: Any = None, dt: Float[Tensor, "*T"] | None = None) -> LinearModel:
        """The matrices of a step, as far as they do not depend on the state.

        A filter *states* what its matrices depend on; fits, smoothers and loops over time read it here and do not try
        to find out.

        Args:
            prepared: what :meth:`prepare` returned; None computes it.
            dt: the length of the step in seconds, or lengths of steps; None for the nominal one.

        Returns:
            The model: its ``kind``, and the matrices unless that is ``"state_dependent"``.
        """
        return LinearModel("state_dependent")

    def _check_smoothing(self) -> None:
        """Raise ConfigError if this filter, with its options, cannot be smoothed."""
        if not self.smooths:
            raise ConfigError(self._not_smoothed())

    def _not_smoothed(self) -> str:
        return (
            f"filter {self.name!r} cannot be smoothed: the covariance it states, if any, does not follow from a linear "
            "model of each step. Use a filter with a covariance recursion, such as 'ekf' or 'fwnkf'"
        )

    def joint_covariance(self, state: Any) -> Float[Tensor, "B D D"]:
        """The covariance in a state, over all coordinates of :class:`LinearStep`.

        Args:
            state: a state of the filter.

        Returns:
            The covariance of the state's coordinates, then those of noise states.
        """
        return state.cov

    def joint_belief(self, state: Any) -> Gaussian:
        """The belief in a state, over all coordinates of :meth:`linear_model`.

        Args:
            state: a state of the filter.

        Returns:
            Mean and covariance.
        """
        return Gaussian(state.mean, self.joint_covariance(state))

    def with_joint_belief(self, state: Any, belief: Gaussian) -> Any:
        """The state with another belief: the inverse of :meth:`joint_belief`.

        Args:
            state: a state of the filter.
            belief: mean and covariance over all coordinates.

        Returns:
            The state.
        """
        return state._replace(mean=belief.mean, cov=belief.cov)

    def observe(self, x: Float[Tensor, "*B n"]) -> Float[Tensor, "*B m"]:
        """``H(x)``, where the filter has an observation model.

        Args:
            x: the state.

        Returns:
            The measurement without noise.

        Raises:
            NoObservationModelError: the filter has none.
        """
        raise NoObservationModelError(
            f"filter {self.name!r} has no observation model, so its estimates cannot be compared with measurements "
            "(no spectral loss, no innovations); use a filter that has one, or set the weight of the loss to 0"
        )

    @property
    def observes(self) -> bool:
        """Whether the filter has an observation model, so that :meth:`observe` can be called."""
        return type(self).observe is not Filter.observe

    def regularization(self) -> Float[Tensor, ""]:
        """The filter's own term of the training loss, such as a KL divergence; zero by default.

        Returns:
            The term, a scalar.
        """
        return self._like().new_zeros(())

    def normalize(self, statistics: Statistics) -> None:
        """Store the scales of training data in buffers, so that they are saved; by default those of the system.

        Args:
            statistics: means and standard deviations of the training data.
        """
        if self.system is not None:
            self.system.normalize(statistics)

    @classmethod
    def infer_options(cls, options: dict[str, Any], arrays: dict[str, Tensor], system: System | None) -> dict[str, Any]:
        """Options completed with what follows from the arrays or the system, mostly sizes.

        Args:
            options: the options given.
            arrays: the tensors given.
            system: the system given.

        Returns:
            The options, completed.
        """
        return options

    # ---- use -----------------------------------------------------------------------------------------------

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

    def predict(
        self,
        state: Any,
        u: Float[Tensor, "B p"] | None = None,
        dt: Float[Tensor, "B"] | None = None,
        *,
        prepared: Any = None,
    ) -> Any:
        """The state after one step, before its measurement. Pure: same inputs, same bits.

        Where the result is not finite, the state stays as it was.

        Args:
            state: the state of the last step, or that of :meth:`init`.
            u: the control since the last step.
            dt: the length of the step in seconds; by default the nominal one.
            prepared: ``filter.prepare()``, computed once for all steps of a stream; compute it again whenever a
                parameter changes.

        Returns:
            The predicted state, for :meth:`update` or for another :meth:`predict`.

        Raises:
            ConfigError: the filter preprocesses raw samples, so that a step needs all of them.
            ShapeError: inputs do not have the sizes or the dtype of the filter.
            DataError: ``dt`` is negative or not finite.
        """
        self._takes_halves("predict")
        like = self._like()
        check_inputs(self.name, self.input_sizes, like, None, u, None, dt, time_axes=0)
        check_lengths(dt)
        prepared = self.prepare() if prepared is None else prepared
        after = self.predict_state(prepared, state, u, dt).state
        return rejected_prediction(state, after, *self._moved_by(u, dt, moves=True))

    def update(
        self,
        state: Any,
        y: Float[Tensor, "B *N k"],
        mask: Bool[Tensor, "B *N k"] | None = None,
        sensor: str | None = None,
        *,
        u: Float[Tensor, "B *N p"] | None = None,
        dt: Float[Tensor, "B *N"] | None = None,
        prepared: Any = None,
        reject: bool = True,
    ) -> tuple[Any, StepOutput]:
        """Condition on ``y`` without predicting; pure.

        After :meth:`predict` it completes a step; several sensors are conditioned on one after the other. After
        :meth:`init` it takes a first measurement at the time of the prior: ``init``, ``update``, then ``step`` compute
        the same bits as ``run``.

        Args:
            state: that of :meth:`predict` or :meth:`init`.
            y: measurements, of all channels or of ``sensor``.
            mask: True where a channel was measured; by default everywhere.
            sensor: the sensor that was measured, see :attr:`fwnkf.System.sensor_channels`; by default all.
            u: the control, which moves nothing; an encoder that no prediction has advanced reads it.
            dt: read by a preprocessing only.
            prepared: as in :meth:`predict`.
            reject: False leaves out the check of the result, for generated code that makes it itself.

        Returns:
            The next state, and the output of the step.
        """
        if sensor is not None:
            y, mask = self._only(sensor, y, mask)
        self._check(y, u, mask, dt, time_axes=0)
        return self._single(self._advance_held, state, y, mask, u, dt, prepared, moves=False, reject=reject)

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
            prepared, reject: as in :meth:`update`.

        Returns:
            The next state, and the output of the step.

        Raises:
            ShapeError: inputs do not have the sizes or the dtype of the filter.
            DataError: ``dt`` is negative or not finite.
        """
        self._check(y, u, mask, dt, time_axes=0)
        check_lengths(dt)
        return self._single(self.advance, state, y, mask, u, dt, prepared, moves=True, reject=reject)

    def advance(
        self, prepared: Any, state: Any, y: Tensor, weight: Tensor, u: Tensor | None, dt: Tensor | None
    ) -> tuple[Any, StepOutput, LinearStep | None]:
        """One step on clean inputs: :meth:`predict_state`, then :meth:`update_state`.

        Args:
            prepared: what :meth:`prepare` returned.
            state: the state of the last step.
            y: measurements after preprocessing, zero where missing.
            weight: 1 where a channel was measured, else 0.
            u: the control since the last step.
            dt: the length of the step in seconds; None for the nominal one.

        Returns:
            The next state, the output of the step, and its linear model.
        """
        measured = (y, weight) if self.predicts_from_measurement else None
        return self.update_state(prepared, self.predict_state(prepared, state, u, dt, measured), y, weight)

    def _advance_held(
        self, prepared: Any, state: Any, y: Tensor, weight: Tensor, u: Tensor | None, dt: Tensor | None
    ) -> tuple[Any, StepOutput, LinearStep | None]:
        """As :meth:`advance`, without a prediction."""
        measured = (y, weight) if self.predicts_from_measurement else None
        return self.update_state(prepared, self.hold(prepared, state, u, measured), y, weight)

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
        after, _, out, _ = self._preprocessed_step(advance, prepared, state, Inputs(y, weight, u, dt))
        if reject:
            after, out = rejected(state, after, out, *self._moved_by(u, dt, moves))
        return after, out._replace(status=out.status | per_step(flagged, 1))

    def _preprocessed_step(
        self, advance: Callable[..., tuple[Any, ...]], prepared: Any, state: Any, inputs: Inputs
    ) -> tuple[Any, Tensor, StepOutput, LinearStep | None]:
        """Preprocessing, one step of the filter, and calibration of the covariance it reports.

        Returns the state, the weights of the channels after preprocessing, and the outputs of ``advance``.
        """
        if self.preprocess is None:
            state, out, linear = advance(prepared, state, *inputs)
        else:
            memory, inputs = self.preprocess(state.preprocess, inputs)
            filter_state, out, linear = advance(prepared, state.filter, *inputs)
            state = Preprocessed(memory, filter_state)
        out = with_resolution(self.layout, out)
        out = out if self.covariance_scale is None else scale_covariance(out, self.covariance_scale)
        return state, inputs.weight, out, linear

    def _moved_by(self, u: Tensor | None, dt: Tensor | None, moves: bool) -> tuple[Tensor | None, Tensor | None]:
        """The control and the length that must be numbers for a step to be made."""
        return None if self.takes_missing_controls or not moves else u, dt if moves else None

    def _takes_halves(self, method: str) -> None:
        if self.preprocess is not None:
            raise ConfigError(
                f"filter {self.name!r} preprocesses raw samples, which a whole step reads together: call step instead "
                f"of {method}"
            )

    def _only(self, sensor: str, y: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Measurements of one sensor as those of all channels, of which the others are missing."""
        self._takes_halves("update(…, sensor=…)")
        sensors = {} if self.system is None else self.system.sensor_channels
        if sensor not in sensors:
            raise ConfigError(f"filter {self.name!r} has no sensor {sensor!r}; there are: {', '.join(sensors)}")
        place = sensors[sensor]
        if y.shape[-1] != place.stop - place.start:
            raise ShapeError(
                f"sensor {sensor!r} has {place.stop - place.start} channel(s), but y has shape {tuple(y.shape)}"
            )
        around = (place.start, self.observation_dim - place.stop)
        present = torch.ones_like(y, dtype=torch.bool) if mask is None else mask
        return nn.functional.pad(y, around), nn.functional.pad(present, around)

    def samples(self, frame: Frame, columns: Mapping[str, str] | None = None) -> Samples:
        """The rows of a frame as :meth:`run` takes them, for all that a frame of estimates does not hold.

        Args:
            frame: a DataFrame of pandas or polars, or a Dataset of xarray.
            columns: as in :meth:`run`.

        Returns:
            ``y``, ``u``, ``mask`` and ``dt``, with a batch axis of one.

        Raises:
            DataError: a channel has no column, or the stamps go back or do not fit the step of the filter.
            ConfigError: it is no such frame, or narwhals is not installed.

        >>> import pandas, torch, fwnkf
        >>> one = torch.eye(1)
        >>> kf = fwnkf.KF(F=one, H=one, Q=one, R=one)
        >>> samples = kf.samples(pandas.DataFrame({"y": [1.0, None, 2.0]}))
        >>> samples.mask.flatten(), kf.log_likelihood(*samples).shape
        (tensor([ True, False,  True]), torch.Size([1]))
        """
        from .frames import read_samples

        return read_samples(self, [frame], columns)

    @overload
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
        engine: Engine = "auto",
        outputs: Sequence[str] | None = None,
        engine_steps: int | None = None,
    ) -> Trajectory: ...

    @overload
    def run(
        self,
        y: FrameT,
        *,
        columns: Mapping[str, str] | None = None,
        prior: Gaussian | None = None,
        prior_at: PriorAt = "first_measurement",
        generator: torch.Generator | None = None,
        engine: Engine = "auto",
    ) -> FrameT: ...

    def run(
        self,
        y: Float[Tensor, "B T m"] | Frame,
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
        engine: Engine = "auto",
        outputs: Sequence[str] | None = None,
        engine_steps: int | None = None,
        columns: Mapping[str, str] | None = None,
    ) -> Trajectory | Frame:
        """Filter complete sequences from a prior, or continue from the ``trajectory.state`` of an earlier run.

        The prior is the belief at the time of the first measurement: the first step conditions without predicting,
        whatever ``u[:, 0]`` and ``dt[:, 0]`` are. Without a prior the first step predicts as every other, from
        :meth:`initial_belief` or from zero with unit covariance; likewise with a state, which is that of the last step.
        With a preprocessing that reads blocks of samples there is one output per complete block.

        A frame is one recording, and what is returned is a frame of the same library with the same time: a row for each
        step, the means under the names of the state's components and standard deviations as ``NAME_std``, without
        gradients. Channels and controls are found by name; NaN is missing; the control of a row acts from it to the
        next; stamps give ``dt`` where they are not those of the nominal step. :meth:`samples` gives the same tensors.

        Args:
            y: measurements; or a DataFrame of pandas or polars or a Dataset of xarray, which takes ``columns``,
                ``prior``, ``prior_at``, ``generator`` and ``engine``.
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
            engine: how the loop over time is run: ``"loop"`` by PyTorch step by step, ``"scan"`` for a linear model by
                PyTorch over all steps at once, ``"native"`` by compiled code on the CPU without gradients. By default
                the fastest that serves, see :mod:`fwnkf.filters.engines`; :attr:`Trajectory.engine` says which.
            outputs: names of the outputs that are wanted, such as ``("mean", "cov")``; the others are None. By default
                all.
            engine_steps: for a part of a recording the length of the whole, by which the engine is chosen.
            columns: of a frame, the columns of channels, controls and ``"time"`` by these names, where they are called
                otherwise: ``{"gyro_x": "wx*0.0174533", "time": "stamp"}``.

        Returns:
            The outputs of all steps and the last state; of a frame the estimates as a frame.

        Raises:
            ShapeError: inputs do not have the sizes or the dtype of the filter.
            DataError: a ``dt`` is negative or not finite; a frame has no column for a channel, or its stamps go back.
            ConfigError: options that exclude each other, or an engine that does not serve this filter.
            NumericalFailureError: of a frame, a step failed; of tensors :meth:`Trajectory.raise_for_status` raises it.
        """
        if not isinstance(y, Tensor):
            others = {
                "u": u, "mask": mask, "dt": dt, "state": state, "truncate": truncate, "checkpoint": checkpoint,
                "prepared": prepared, "advance": advance, "outputs": outputs, "engine_steps": engine_steps,
                "smoothing": smoothing or None,
            }  # fmt: skip
            if given := [name for name, value in others.items() if value is not None]:
                raise ConfigError(
                    f"{given[0]}=… is for tensors, and y is a {type(y).__name__}: measurements, controls and time are "
                    "its columns; for anything else use its tensors, filter.run(*filter.samples(frame), …), and "
                    "fwnkf.smooth(filter, frame) for smoothed estimates"
                )
            from .frames import filter_frame

            start = {"prior": prior, "prior_at": prior_at, "generator": generator, "engine": engine}
            frame: Frame = filter_frame(self, y, columns, **start)
            return frame
        if columns is not None:
            raise ConfigError("columns=… is for frames, and y is a tensor, whose channels have no names")
        engines.check(engine, outputs)
        state, inputs, flagged, predicts_first = self._begin(y, u, mask, dt, prior, prior_at, state, generator)
        if prepared is None:
            prepared = self.prepare()
        if smoothing:
            self._check_smoothing()
            if advance is not None:
                raise ConfigError("smoothing=True records what advance computes inside: leave advance=… out")
        by_loop = [name for name, value in (("advance", advance), ("truncate", truncate), ("checkpoint", checkpoint))
                   if value is not None]  # fmt: skip
        if by_loop and engine not in ("auto", "loop"):
            raise ConfigError(f"{by_loop[0]}=… is for engine='loop'")
        tried: tuple[Engine, ...] = (engine,) if engine != "auto" else ("loop",)
        if engine == "auto" and not by_loop:
            tried = engines.choose(self, prepared, state, inputs, engine_steps or inputs.y.shape[1], smoothing)
        for name in tried:
            try:
                track = self._run_on(
                    name, prepared, state, inputs, predicts_first, smoothing, outputs,
                    advance=advance, truncate=truncate, checkpoint=checkpoint,
                )  # fmt: skip
                break
            except engines.EngineError:
                if name == tried[-1]:
                    raise
        measured = None if self.latent_innovations else self.observation_layout
        return track._replace(status=track.status | flagged, engine=name, layout=self.layout, measured=measured)

    def _begin(
        self,
        y: Tensor,
        u: Tensor | None,
        mask: Tensor | None,
        dt: Tensor | None,
        prior: Gaussian | None,
        prior_at: PriorAt,
        state: Any,
        generator: torch.Generator | None,
    ) -> tuple[Any, Inputs, Tensor, bool]:
        """The state before the first step, clean inputs and their status, and whether the first step predicts."""
        self._check(y, u, mask, dt, time_axes=1)
        if state is not None and prior is not None:
            raise ConfigError("give either a prior (to start) or a state (to continue), not both")
        if prior_at not in get_args(PriorAt):
            raise ConfigError(f"prior_at = {prior_at!r}; wanted one of {', '.join(get_args(PriorAt))}")
        predicts_first = prior is None or prior_at == "before_first_step"
        block = self.input_sizes.block
        check_lengths(dt, first=0 if predicts_first else block)
        if state is None:
            prior = self.initial_belief(y, u, mask, dt) if prior is None else prior
            state = self.init(y.shape[0], prior, generator=generator)
        y, weight, flagged = clean(y, mask)
        flagged = per_step(flagged if block == 1 else flagged.unfold(1, block, block), 2)
        inputs = Inputs(*(grouped(item, block) for item in (y, weight, u, dt)))  # type: ignore[arg-type]
        return state, inputs, flagged, predicts_first

    def log_likelihood(
        self,
        y: Float[Tensor, "B T m"],
        u: Float[Tensor, "B T p"] | None = None,
        mask: Bool[Tensor, "B T m"] | None = None,
        dt: Float[Tensor, "B T"] | None = None,
        prior: Gaussian | None = None,
        *,
        prior_at: PriorAt = "first_measurement",
        state: Any = None,
        prepared: Any = None,
        engine: Engine = "auto",
    ) -> Float[Tensor, " B"]:
        """The logarithm of the likelihood of each record, differentiable in the parameters of the filter.

        That of :meth:`run`, without its trajectory: for a filter with a linear model both the value and its gradient
        are computed by compiled code, where there is a compiler.

        Args:
            y, u, mask, dt, prior, prior_at, state, prepared, engine: as in :meth:`run`.

        Returns:
            One number for each record.

        Raises:
            NoObservationModelError: the innovations are not those of the measured channels.

        >>> import torch, fwnkf
        >>> one = torch.eye(1)
        >>> kf = fwnkf.KF(F=one, H=one, Q=one, R=one, learn=("R",))
        >>> kf.log_likelihood(torch.zeros(1, 1, 1), prior=fwnkf.Gaussian(torch.zeros(1), one)).detach()
        tensor([-1.2655])
        """
        engines.check(engine, None)
        if engine == "native" or (engine == "auto" and y.shape[1] >= engines.LINEAR_STEPS):
            begin = self._begin(y, u, mask, dt, prior, prior_at, state, None)
            known = self.prepare() if prepared is None else prepared
            found = engines.log_likelihood(self, known, begin[0], begin[1], begin[3])
            if found is not None:
                return found
        outputs = ("innovation", "innovation_cov")
        track = self.run(
            y, u, mask, dt, prior, prior_at=prior_at, state=state, prepared=prepared, engine=engine, outputs=outputs
        )
        return track.log_likelihood

    def _run_on(
        self,
        engine: Engine,
        prepared: Any,
        state: Any,
        inputs: Inputs,
        predicts_first: bool,
        smoothing: bool,
        outputs: Sequence[str] | None,
        *,
        advance: Callable[..., tuple[Any, StepOutput]] | None,
        truncate: int | None,
        checkpoint: int | None,
    ) -> Trajectory:
        """Run on one engine; raises :class:`fwnkf.filters.engines.EngineError` where it cannot."""
        if engine in ("scan", "native"):
            track = engines.run_linear(self, prepared, state, inputs, predicts_first, engine, outputs, smoothing)
            if track is not None:
                return track

        def with_step(step: Callable[..., tuple[Any, ...]], moves: bool) -> Any:
            def body(carry: Any, inputs: Any) -> tuple[Any, tuple[Any, ...]]:
                return self._scanned(step, moves, prepared, carry, inputs, smoothing, outputs, engine == "native")

            return body

        start = state
        body = with_step(self.advance if advance is None else advance, moves=True)
        first = None if predicts_first else with_step(self._advance_held, moves=False)
        if engine == "native":
            key = engines.identity(self, prepared, smoothing, outputs)
            state, (weight, out, steps, density) = engines.run_traced(body, state, inputs, first, key)
        else:
            state, (weight, out, steps, density) = scan(
                body, state, inputs, first=first, truncate=truncate, checkpoint=checkpoint
            )
        linear = None
        if smoothing:
            linear = LinearSteps(self.joint_covariance(start if self.preprocess is None else start.filter), steps)
        return Trajectory(**out._asdict(), state=state, linear=linear, weight=weight, log_density=density)

    def _scanned(
        self,
        step: Callable[..., tuple[Any, ...]],
        moves: bool,
        prepared: Any,
        carry: Any,
        inputs: Any,
        smoothing: bool,
        outputs: Sequence[str] | None,
        density: bool,
    ) -> tuple[Any, tuple[Any, ...]]:
        """One step of the loop over time: the state after it, and the weights, outputs, record and log density."""
        given = Inputs(*inputs)
        after, used, out, linear = self._preprocessed_step(step, prepared, carry, given)
        after, out = rejected(carry, after, out, *self._moved_by(given.u, given.dt, moves))
        chosen = engines.selected(out, outputs)
        # compiled code computes it in passing; afterwards every innovation covariance is factored once more
        found = engines.log_density(chosen, used) if density else None
        return after, (used, chosen, self._recorded(linear) if smoothing else None, found)

    def run_with(
        self,
        install: Callable[[Float[Tensor, " p"]], None],
        values: Float[Tensor, " p"],
        key: Hashable,
        y: Float[Tensor, "B T m"],
        u: Float[Tensor, "B T p"] | None = None,
        mask: Bool[Tensor, "B T m"] | None = None,
        dt: Float[Tensor, "B T"] | None = None,
        prior: Gaussian | None = None,
        *,
        prior_at: PriorAt = "first_measurement",
        outputs: Sequence[str] | None = None,
        smoothing: bool = False,
    ) -> Trajectory:
        """As :meth:`run` by compiled code, which takes some numbers of the filter as they are in each run.

        :meth:`run` compiles all numbers of a filter in. A fit runs the same filter with many values.

        Args:
            install: puts values into the filter, as tensors that follow its argument.
            values: those of this run. The filter keeps them.
            key: stands for the filter with any values; see :func:`fwnkf.native.time_loop.scan_native`.
            y, u, mask, dt, prior, prior_at, outputs, smoothing: as in :meth:`run`.

        Returns:
            The outputs of all steps and the last state.

        Raises:
            EngineError: there is no compiler, or no C for the step.
        """
        install(values)
        state, inputs, flagged, predicts_first = self._begin(y, u, mask, dt, prior, prior_at, None, None)
        engines.check_native(self, state, inputs)

        def with_step(step: Callable[..., tuple[Any, ...]], moves: bool) -> Any:
            def body(carry: Any, inputs: Any, constants: Tensor) -> tuple[Any, tuple[Any, ...]]:
                install(constants)
                return self._scanned(step, moves, self.prepare(), carry, inputs, smoothing, outputs, True)

            return body

        start, body = state, with_step(self.advance, moves=True)
        first = None if predicts_first else with_step(self._advance_held, moves=False)
        name = (key, smoothing, None if outputs is None else tuple(outputs), predicts_first)
        try:
            state, (weight, out, steps, density) = engines.run_traced(body, state, inputs, first, name, values)
        finally:
            install(values)  # those of the tracing do not live longer than it
        linear = LinearSteps(self.joint_covariance(start), steps) if smoothing else None
        track = Trajectory(**out._asdict(), state=state, linear=linear, weight=weight, log_density=density)
        return track._replace(status=track.status | flagged, engine="native")

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

    def push_to_hub(
        self,
        repo_id: str,
        *,
        folder: str | Path | None = None,
        private: bool | None = None,
        revision: str | None = None,
        token: str | bool | None = None,
        message: str | None = None,
    ) -> str:
        """Upload the filter to a Hugging Face hub, from which :func:`fwnkf.from_pretrained` loads it (extra ``hub``).

        Args:
            repo_id: ``owner/name``; the repository is created if needed.
            folder: a folder whose ``README.md``, ``columns.json`` and ``results.json`` go along. Without a card a short
                one is written, unless the repository has one.
            private: whether a new repository is private; None for the default of the account.
            revision: the branch; by default ``main``.
            token: a token that may write; by default that of ``hf auth login``.
            message: the message of the commit.

        Returns:
            The address of the commit.

        Raises:
            CheckpointError: the filter is not registered, see :func:`fwnkf.save`.
            DataError: the hub refused, or cannot be reached.
        """
        options = {"folder": folder, "private": private, "revision": revision, "token": token, "message": message}
        address: str = upper("fwnkf.hub.upload.push_to_hub")(self, repo_id, **options)
        return address

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

    def _recorded(self, linear: LinearStep | None) -> LinearStep:
        """The linear model of a step with a batch axis on every matrix."""
        if linear is None:
            raise ConfigError(self._not_smoothed())
        return batched(linear)

    def __repr__(self) -> str:
        return one_line(self._title(), self._facts()) if self._is_set_up() else super().__repr__()

    def _repr_html_(self) -> str:
        return html_card(self._title(), self._facts(), note=about(type(self)))

    def _is_set_up(self) -> bool:
        """Whether there is something to say: not while a constructor runs."""
        return hasattr(self, "layout") and hasattr(self, "observation_layout")

    def _title(self) -> str:
        return self.name if self.system is None else f"{self.name} on {system_name(self.system)}"

    def _facts(self) -> dict[str, str]:
        return {
            "state": self.layout.words(),
            "channels": self.observation_layout.words(),
            "controls": str(self.control_dim or ""),
            "raw samples": "" if self.preprocess is None else f"{self.input_sizes.channels} channels, preprocessed",
            "step": step_words(self.nominal_step, self.takes_dt),
            "options": option_words(self.config, leave_out=SIZES),
            "learned": learned_words(self),
            "numbers": str(self.dtype).removeprefix("torch.") + f" on {self.device}",
        }

    # ---- properties -----------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name under which the filter is registered."""
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
    def nominal_step(self) -> float | None:
        """The length of a step in seconds if ``dt`` is not given; None for a filter that counts in steps."""
        return None if self.system is None else self.system.dt

    @property
    def observation_dim(self) -> int:
        """Number of channels after preprocessing."""
        return self.observation_layout.size

    def _like(self) -> Tensor:
        """A tensor with the dtype and device of the filter."""
        for tensor in (*self.parameters(), *self.buffers()):
            if tensor.is_floating_point():
                return tensor
        return torch.zeros(())

    # ---- helpers --------------------------------------------------------------------------------------------

    def _check(self, y: Tensor, u: Tensor | None, mask: Tensor | None, dt: Tensor | None, time_axes: int) -> None:
        check_inputs(self.name, self.input_sizes, self._like(), y, u, mask, dt, time_axes)


def stated_model(system: System, R: Noise, dt: Float[Tensor, "*T"] | None) -> LinearModel:
    """The model of a filter on a system alone, as the system states it."""
    flat = system.layout.flat and system.observation_layout.flat
    if system.linearity != "constant" or not flat:
        return LinearModel("state_dependent")
    F, B, Q = system.matrices(dt)
    _, H = system.linearize_observation(system.layout.origin(F)[None])
    kind: Linearity = "constant" if dt is None or dt.ndim == 0 else "time_varying"
    return LinearModel(kind, F, B, H if H.ndim == 2 else H[0], Q, R, system.continuous())


def adopt(module: Filter, system: System | None) -> System:
    """Set the layouts and the control size of a filter to those of its system."""
    if system is None:
        raise ConfigError(f"filter {module.name!r} needs system=…, a fwnkf.System with transition and observation")
    module.layout, module.observation_layout = system.layout, system.observation_layout
    module.control_dim = system.control_dim
    return system


def arguments(names: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a constructor from its ``locals()``, so that they are written down once."""
    return {name: value for name, value in names.items() if name not in ("self", "__class__")}
