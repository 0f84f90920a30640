"""The extended Kalman filter, and the base class of filters on a system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ..core.forms import CovarianceForm, Factored, covariance_form, measured_precisely, points_resolved
from ..core.gaussian import Noise
from ..core.linearize import repeated, second_order_correction
from ..core.smoothing import LinearStep, Measurement
from ..core.system import System
from ..registry import FILTERS
from ..types import Gaussian, StepOutput
from .base import Filter, adopt
from .options import arguments
from .outputs import step_output


@dataclass(frozen=True)
class ExtendedConfig:
    """The options of :class:`ExtendedKalmanFilter`, which describes them."""

    moments: Literal["linear", "second_order"] = "linear"
    solve: Literal["auto", "cholesky", "unrolled", "sequential", "square_root"] = "auto"


class Noises(NamedTuple):
    """``Q`` of the nominal step and ``R``, computed once per run."""

    Q: Tensor
    R: Noise


class SystemFilter(Filter):
    """Base class of filters on a given :class:`~fwnkf.System`; the default state is a Gaussian belief."""

    system: System

    def init_state(self, belief: Gaussian, generator: torch.Generator | None) -> Gaussian:
        return belief

    def prepare(self) -> Any:
        return Noises(self.system.process_noise(None), self.system.measurement_noise())

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
        self,
        prior: tuple[Tensor, Tensor],
        measured: tuple[Tensor, Tensor, Tensor, Noise, Tensor],
        F: Tensor,
        Q: Tensor,
        before: Belief,
        draws: bool = False,
    ) -> tuple[Belief, StepOutput, LinearStep]:
        """The end of a step: the prior conditioned on the measurement.

        Args:
            prior: mean, and covariance in the form in which it is carried.
            measured: ``y``, innovation, ``H``, ``R`` and weight.
            F, Q: of the step, for its linear model.
            before: the state before the step.
            draws: whether points were drawn around it.

        Returns:
            The next state, the output of the step, and its linear model.
        """
        y, innovation, H, R, weight = measured
        form, (mean, carried) = self.form, prior
        update = form.condition(carried, innovation, H, R, weight)
        posterior = Gaussian(self.layout.boxplus(mean, update.correction), form.covariance(update.cov))
        precise = measured_precisely(update.precise, y, R, weight) & form.predicts_precisely(before[1], F, carried)
        if draws:
            drawn = self.layout.magnitude(before.mean), form.covariance(before[1])
            precise = precise & points_resolved([drawn], update, innovation)
        stated = Gaussian(mean, form.covariance(carried))
        out = step_output(stated, posterior, innovation, update.innovation_cov, update.ok, precise)
        linear = LinearStep(F, Q, Measurement(innovation, H, R, weight, update.ok), update.correction, posterior.mean)
        return form.belief(posterior.mean, update.cov), out, linear


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

    def predict(
        self, prepared: Any, belief: Belief, u: Tensor | None, dt: Tensor | None
    ) -> tuple[tuple[Tensor, Tensor], Tensor, Tensor]:
        """The belief after one step, before the measurement, and the ``F`` and ``Q`` of its covariance.

        Args:
            prepared: what :meth:`prepare` returned.
            belief: the state of the last step.
            u: the control since then.
            dt: the length of the step in seconds; None for the nominal one.

        Returns:
            Mean and carried covariance, ``F``, and ``Q``.
        """
        mean, F = self.system.linearize_transition(belief.mean, u, dt)
        Q = prepared.Q if dt is None else self.system.process_noise(dt)
        if self.config.moments == "linear":
            return (mean, self.form.propagate(belief[1], F, Q)), F, Q

        def move(points: Tensor) -> Tensor:
            count = points.shape[0] // belief.mean.shape[0]
            return self.system.transition(points, repeated(u, count), repeated(dt, count))

        cov = self.form.covariance(belief[1])
        second_order = second_order_correction(move, belief.mean, cov, self.layout, self.layout)
        Q = Q + second_order.cov
        return (self.layout.boxplus(mean, second_order.shift), self.form.propagate(belief[1], F, Q)), F, Q

    def advance_linearized(
        self, prepared: Any, state: Belief, y: Tensor, weight: Tensor, u: Tensor | None, dt: Tensor | None
    ) -> tuple[Belief, StepOutput, LinearStep]:
        prior, F, Q = self.predict(prepared, state, u, dt)
        predicted, H = self.system.linearize_observation(prior[0])
        innovation = self.innovation(y, predicted, weight)
        draws = self.config.moments == "second_order"
        return self.conditioned(prior, (y, innovation, H, prepared.R, weight), F, Q, state, draws)
