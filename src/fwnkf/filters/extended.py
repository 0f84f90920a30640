"""The extended Kalman filter, and the base class of filters on a system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ..core.forms import CovarianceForm, Factored, covariance_form, measured_precisely, points_resolved
from ..core.gaussian import Noise
from ..core.linearize import repeated, second_order_correction
from ..core.motion import Nominal
from ..core.smoothing import LinearStep, Measurement
from ..core.system import System
from ..registry import FILTERS
from ..types import Gaussian, StepOutput
from .base import Filter, LinearModel, Prediction, adopt, arguments, stated_model
from .outputs import step_output


@dataclass(frozen=True)
class ExtendedConfig:
    """The options of :class:`ExtendedKalmanFilter`, which describes them."""

    moments: Literal["linear", "second_order"] = "linear"
    solve: Literal["auto", "cholesky", "unrolled", "sequential", "square_root"] = "auto"


class Noises(NamedTuple):
    """What steps of the nominal length share, and ``R``, computed once per run."""

    nominal: Nominal
    R: Noise

    @property
    def Q(self) -> Tensor:
        """``Q`` of the nominal step."""
        return self.nominal.Q


class SystemFilter(Filter):
    """Base class of filters on a given :class:`~fwnkf.System`; the default state is a Gaussian belief."""

    system: System

    def init_state(self, belief: Gaussian, generator: torch.Generator | None) -> Gaussian:
        return belief

    def prepare(self) -> Any:
        return Noises(self.system.nominal(), self.system.measurement_noise())

    def observe(self, x: Tensor) -> Tensor:
        return self.system.observe(x)

    def innovation(self, y: Tensor, predicted: Tensor, weight: Tensor) -> Tensor:
        """``y ⊟ ŷ``, zero where masked.

        Args:
            y: the measurement.
            predicted: the measurement predicted.
            weight: 1 where a channel was measured, else 0.

        Returns:
            The innovation.
        """
        return self.observation_layout.boxminus(y, predicted) * weight


Belief = Gaussian | Factored
"""The state of a Kalman filter: mean and covariance, the latter as factors with ``solve="square_root"``."""


class KalmanRecursion(SystemFilter):
    """Base class of the filters whose state is the belief alone, with the covariance in the form of ``solve``."""

    @property
    def form(self) -> CovarianceForm:
        """How the covariance is carried from step to step."""
        return covariance_form(self.config.solve)

    def init_state(self, belief: Gaussian, generator: torch.Generator | None) -> Belief:  # type: ignore[override]
        state: Belief = self.form.belief(belief.mean, self.form.start(belief.cov))
        return state

    def joint_covariance(self, state: Belief) -> Tensor:
        return self.form.covariance(state[1])

    def conditioned(
        self, ahead: Prediction, y: Tensor, innovation: Tensor, H: Tensor, R: Noise, weight: Tensor
    ) -> tuple[Belief, StepOutput, LinearStep]:
        """A prediction conditioned on a measurement with a linear model.

        Args:
            ahead: the prediction.
            y: the measurement.
            innovation: the innovation, zero where masked.
            H, R: its model.
            weight: 1 where a channel was measured, else 0.

        Returns:
            The next state, the output of the step, and its linear model.
        """
        form, (mean, carried) = self.form, ahead.state
        update = form.condition(carried, innovation, H, R, weight)
        posterior = Gaussian(self.layout.boxplus(mean, update.correction), form.covariance(update.cov))
        precise = ahead.keeps_digits(measured_precisely(update.precise, y, R, weight))
        if ahead.drawn is not None:
            precise = precise & points_resolved([ahead.drawn], update, innovation)
        prior = Gaussian(mean, form.covariance(carried))
        out = step_output(prior, posterior, innovation, update.innovation_cov, update.ok, precise)
        measurement = Measurement(innovation, H, R, weight, update.ok)
        linear = LinearStep(ahead.F, ahead.Q, measurement, update.correction, posterior.mean)
        return form.belief(posterior.mean, update.cov), out, linear

    def joint_belief(self, state: Belief) -> Gaussian:
        return Gaussian(state.mean, self.joint_covariance(state))

    def with_joint_belief(self, state: Belief, belief: Gaussian) -> Belief:
        made: Belief = self.form.belief(belief.mean, self.form.start(belief.cov))
        return made

    def stated_model(self, prepared: Any, dt: Tensor | None) -> LinearModel:
        """The linear model of the system, for a filter that uses it as it is.

        Args:
            prepared: what :meth:`prepare` returned; None computes it.
            dt: the length of the step in seconds, or lengths of steps; None for the nominal one.

        Returns:
            The model.
        """
        prepared = self.prepare() if prepared is None else prepared
        return stated_model(self.system, prepared.R, dt)


@FILTERS.register("ekf")
class ExtendedKalmanFilter(KalmanRecursion):
    """Extended Kalman filter on a given system; on a linear system it equals the Kalman filter.

    Args:
        system: the equations of motion.
        moments: ``"second_order"`` adds the second-order correction of the transition (Gaussian second-order filter).
        solve: implementation of the small linear solve (see :mod:`fwnkf.core.gaussian`); ``"square_root"`` carries the
            factors of the covariance instead of the covariance, for what float32 cannot hold.

    >>> import torch, fwnkf
    >>> system = fwnkf.systems.Pendulum(fwnkf.systems.PendulumConfig())
    >>> fwnkf.EKF(system).run(torch.zeros(1, 5, system.observation_layout.size)).cov.shape
    torch.Size([1, 5, 2, 2])
    """

    Config = ExtendedConfig
    implements = ("square_root", "second_order")

    def __init__(
        self,
        system: System,
        *,
        moments: Literal["linear", "second_order"] = "linear",
        solve: Literal["auto", "cholesky", "unrolled", "sequential", "square_root"] = "auto",
    ) -> None:
        super().__init__(**arguments(locals()))

    def setup(self, config: ExtendedConfig, system: System | None, arrays: dict[str, Tensor]) -> None:
        self.system = adopt(self, system)

    def transition_model(
        self, prepared: Noises, x: Tensor, u: Tensor | None, dt: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The next state, ``F`` and ``Q`` of one step; a filter that changes the model overrides this.

        Args:
            prepared: what :meth:`prepare` returned.
            x: the state.
            u: the control since the last step.
            dt: the length of the step in seconds; None for the nominal one.

        Returns:
            State after the step, its Jacobian, and the process noise.
        """
        return self.system.linearized_step(prepared.nominal, x, u, dt)

    def predict_state(
        self,
        prepared: Noises,
        state: Belief,
        u: Tensor | None,
        dt: Tensor | None,
        measured: tuple[Tensor, Tensor] | None = None,
    ) -> Prediction:
        form, (before, carried) = self.form, state
        mean, F, Q = self.transition_model(prepared, before, u, dt)
        drawn = None
        if self.config.moments == "second_order":

            def move(points: Tensor) -> Tensor:
                count = points.shape[0] // before.shape[0]
                return self.system.transition(points, repeated(u, count), repeated(dt, count))

            cov = form.covariance(carried)
            second_order = second_order_correction(move, before, cov, self.layout, self.layout)
            mean, Q = self.layout.boxplus(mean, second_order.shift), Q + second_order.cov
            drawn = self.layout.magnitude(before), cov
        moved = form.propagate(carried, F, Q)
        precise = form.predicts_precisely(carried, F, moved)
        return Prediction(form.belief(mean, moved), F, Q, precise, drawn=drawn)

    def update_state(
        self, prepared: Noises, ahead: Prediction, y: Tensor, weight: Tensor
    ) -> tuple[Belief, StepOutput, LinearStep]:
        predicted, H = self.system.linearize_observation(ahead.state.mean)
        return self.conditioned(ahead, y, self.innovation(y, predicted, weight), H, prepared.R, weight)

    def linear_model(self, prepared: Any = None, dt: Tensor | None = None) -> LinearModel:
        if self.config.moments != "linear":
            return LinearModel("state_dependent")
        return self.stated_model(prepared, dt)
