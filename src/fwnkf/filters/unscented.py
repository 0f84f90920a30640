"""The unscented Kalman filter: sigma points instead of Jacobians."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from ..core.forms import measured_precisely, points_resolved
from ..core.gaussian import FullNoise, condition, dense, prediction_keeps_digits, symmetrize
from ..core.linearize import (
    repeated,
    sigma_moments,
    sigma_points,
    sigma_rule,
    statistical_linearization,
)
from ..core.smoothing import LinearStep, Measurement
from ..core.system import System
from ..registry import FILTERS
from ..types import Gaussian, StepOutput
from .base import Prediction, adopt, arguments
from .extended import SystemFilter
from .outputs import step_output


@dataclass(frozen=True)
class UnscentedConfig:
    """The options of :class:`UnscentedKalmanFilter`, which describes them."""

    alpha: float = 1.0
    beta: float = 0.0
    kappa: float = 0.0
    solve: Literal["auto", "cholesky", "unrolled"] = "auto"


@FILTERS.register("ukf")
class UnscentedKalmanFilter(SystemFilter):
    """Unscented Kalman filter on a given system; sigma points are computed again after the prediction.

    The default spread is the cubature rule, whose covariances are positive semidefinite.

    Args:
        system: the equations of motion.
        alpha, kappa: sigma points lie ``α √(d + κ)`` standard deviations from the mean.
        beta: extra weight of the central point in covariances; 2 is the usual choice for a Gaussian.
        solve: implementation of the small linear solve (see :mod:`fwnkf.core.gaussian`).

    >>> import torch, fwnkf
    >>> system = fwnkf.systems.Pendulum(fwnkf.systems.PendulumConfig())
    >>> fwnkf.UKF(system).run(torch.zeros(1, 5, system.observation_layout.size)).cov.shape
    torch.Size([1, 5, 2, 2])
    """

    Config = UnscentedConfig

    def __init__(
        self,
        system: System,
        *,
        alpha: float = 1.0,
        beta: float = 0.0,
        kappa: float = 0.0,
        solve: Literal["auto", "cholesky", "unrolled"] = "auto",
    ) -> None:
        super().__init__(**arguments(locals()))

    def setup(self, config: UnscentedConfig, system: System | None, arrays: dict[str, Tensor]) -> None:
        self.system = adopt(self, system)
        self.rule = sigma_rule(self.layout.tangent_size, config.alpha, config.beta, config.kappa)

    def predict_state(
        self,
        prepared: Any,
        state: Gaussian,
        u: Tensor | None,
        dt: Tensor | None,
        measured: tuple[Tensor, Tensor] | None = None,
    ) -> Prediction:
        drawn = sigma_points(state.mean, state.cov, self.layout, self.rule)
        count = drawn.points.shape[1]
        moved = self.system.transition(drawn.points.flatten(0, 1), repeated(u, count), repeated(dt, count)).unflatten(
            0, (-1, count)
        )
        mean, deviations, spread = sigma_moments(moved, self.layout, self.rule)
        Q = prepared.Q if dt is None else self.system.process_noise(dt)
        Q = self.system.process_noise_at(Q, state.mean, u)
        prior = Gaussian(mean, symmetrize(spread + Q))
        F, unexplained = statistical_linearization(drawn, deviations, self.rule)
        precise = prediction_keeps_digits(state.cov, F, prior.cov)
        around = self.layout.magnitude(state.mean), state.cov
        return Prediction(prior, F, Q + unexplained, precise, drawn.ok, around)

    def update_state(
        self, prepared: Any, ahead: Prediction, y: Tensor, weight: Tensor
    ) -> tuple[Gaussian, StepOutput, LinearStep]:
        prior = ahead.state
        redrawn = sigma_points(prior.mean, prior.cov, self.layout, self.rule)
        predicted, deviations_y, cov_y = sigma_moments(
            self.system.observe(redrawn.points), self.observation_layout, self.rule
        )
        H, residual_cov = statistical_linearization(redrawn, deviations_y, self.rule)
        innovation = self.innovation(y, predicted, weight)
        noise = FullNoise(dense(prepared.R) + residual_cov)
        update = condition(prior.cov, innovation, H, noise, weight, self.config.solve)
        posterior = Gaussian(self.layout.boxplus(prior.mean, update.correction), update.cov)
        ok = redrawn.ok & update.ok
        drawn_from = [
            (self.layout.magnitude(prior.mean), prior.cov),
            (self.observation_layout.magnitude(predicted), cov_y),
        ]
        precise = measured_precisely(update.precise, y, prepared.R, weight)
        if ahead.precise is not None and ahead.ok is not None and ahead.drawn is not None:
            ok, precise = ok & ahead.ok, precise & ahead.precise
            drawn_from.append(ahead.drawn)
        precise = precise & points_resolved(drawn_from, update, innovation)
        out = step_output(prior, posterior, innovation, update.innovation_cov, ok, precise)
        measurement = Measurement(innovation, H, noise, weight, update.ok)
        return posterior, out, LinearStep(ahead.F, ahead.Q, measurement, update.correction, posterior.mean)
