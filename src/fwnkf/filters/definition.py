"""The part of a filter that differs from filter to filter: its construction and the methods it implements.

A filter implements ``setup``, which creates its tensors, and two methods for the recursion. ``prepare`` computes what
is the same in all steps (differentiably, once per run), ``advance`` is one step on clean inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from ..core.layout import Layout
from ..core.preprocess import Preprocess
from ..core.smoothing import LinearStep
from ..core.system import System
from ..errors import ConfigError, NoObservationModelError
from ..registry import FILTERS
from ..shapes import Float
from ..types import Gaussian, Statistics, StepOutput
from .options import check_system, parse_options
from .rest import at_rest

FilterType = TypeVar("FilterType", bound="FilterDefinition")


class FilterDefinition(nn.Module):
    """How a filter is constructed, and the methods that each filter implements; see :class:`~fwnkf.Filter`.

    Filters of the package state their options in a signature of their own. Such a constructor passes its arguments on
    and does nothing else; a filter is set up by :meth:`setup`.

    Args:
        system: the equations of motion, for filters that take them.
        **options: options of the config, and tensors by name.
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
    instead_of_system: ClassVar[str] = ""
    """What to give to a filter that takes no system."""
    latent_innovations: ClassVar[bool] = False
    """Whether the innovations are those of a learned latent space, so that they say nothing about the measurements."""
    takes_missing_controls: ClassVar[bool] = False
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
            cls.__init__ = FilterDefinition.__init__  # type: ignore[method-assign]  # the parent's has not these options

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
        return parse_options(cls, system, options)

    def _set_up(self, config: Any, system: System | None, arrays: dict[str, Tensor]) -> None:
        check_system(type(self), system)
        super().__init__()
        self.config = config
        self.system = None
        self.preprocess = None
        self.register_buffer("covariance_scale", None)
        self.setup(config, system, arrays)
        if self.system is None and self.layout.origins:
            raise ConfigError(f"filter {self.name!r} has no system, so its layout cannot have an origin")
        source = list(arrays.values()) if system is None else [*system.parameters(), *system.buffers()]
        reference = next((tensor for tensor in source if tensor.is_floating_point()), None)
        if reference is not None:
            self.to(dtype=reference.dtype, device=reference.device)

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

    def advance(
        self,
        prepared: Any,
        state: Any,
        y: Float[Tensor, "B m"],
        weight: Float[Tensor, "B m"],
        u: Float[Tensor, "B p"] | None,
        dt: Float[Tensor, "B"] | None,
    ) -> tuple[Any, StepOutput]:
        """One step on clean inputs: ``y`` is finite, ``weight`` is 1 where a channel was measured and 0 elsewhere.

        Args:
            prepared: what :meth:`prepare` returned.
            state: the state of the last step.
            y: measurements after preprocessing, zero where missing.
            weight: 1 where a channel was measured, else 0.
            u: the control since the last step.
            dt: the length of the step in seconds; None for the nominal one.

        Returns:
            The next state, and the output of the step.
        """
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
        """As :meth:`advance`, and the linear model of the step. A filter implements this one if it can be smoothed.

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
        raise ConfigError(
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
        return type(self).observe is not FilterDefinition.observe

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

    @classmethod
    def unused_options(cls, config: Any, given: Mapping[str, Any]) -> list[str]:
        """A sentence for each option given that has no effect with the others.

        Args:
            config: the config of the filter.
            given: the options that were given.

        Returns:
            The sentences.
        """
        return []

    def at_rest(self, prepared: Any, y: Float[Tensor, "B m"]) -> tuple[Any, Any, Float[Tensor, "B"] | None]:
        """What a step of zero length is taken with: a filter whose system does not move, its ``prepared`` and ``dt``.

        A filter that has neither a system nor ``dt`` implements it for itself.

        Args:
            prepared: what :meth:`prepare` returned.
            y: the measurement, for its batch size and dtype.

        Returns:
            The filter, its ``prepared``, and ``dt``.
        """
        if self.system is None and not self.takes_dt:
            raise ConfigError(
                f"filter {self.name!r} counts in steps and does not state what a step of zero length is, so it cannot "
                "condition on a measurement without predicting. Give the belief one step before the first measurement "
                "and prior_at='before_first_step', or implement at_rest in the filter"
            )
        return at_rest(self), prepared, y.new_zeros(len(y))

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
