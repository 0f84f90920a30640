"""The extended Kalman filter, and the base class of filters on a system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ..core.gaussian import Noise, condition, propagate
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
    """``moments="second_order"`` adds the second-order correction of the transition (Gaussian second-order filter).

    ``solve`` is the implementation of the small linear solve (see :mod:`fwnkf.core.gaussian`).
    """

    moments: Literal["linear", "second_order"] = "linear"
    solve: Literal["auto", "cholesky", "unrolled", "sequential"] = "auto"


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
        """``y ⊟ ŷ``, zero where masked."""
        return self.observation_layout.boxminus(y, predicted) * weight


@FILTERS.register("ekf")
class ExtendedKalmanFilter(SystemFilter):
    """Extended Kalman filter on a given system; on a linear system it equals the Kalman filter."""

    Config = ExtendedConfig

    def __init__(
        self,
        system: System,
        *,
        moments: Literal["linear", "second_order"] = "linear",
        solve: Literal["auto", "cholesky", "unrolled", "sequential"] = "auto",
    ) -> None:
        super().__init__(**arguments(locals()))

    def setup(self, config: ExtendedConfig, system: System | None, arrays: dict[str, Tensor]) -> None:
        self.system = adopt(self, system)

    def predict(
        self, prepared: Any, belief: Gaussian, u: Tensor | None, dt: Tensor | None
    ) -> tuple[Gaussian, Tensor, Tensor]:
        """The belief after one step, before the measurement, and the ``F`` and ``Q`` of its covariance."""
        mean, F = self.system.linearize_transition(belief.mean, u, dt)
        Q = prepared.Q if dt is None else self.system.process_noise(dt)
        if self.config.moments == "linear":
            return Gaussian(mean, propagate(belief.cov, F, Q)), F, Q

        def move(points: Tensor) -> Tensor:
            count = points.shape[0] // belief.mean.shape[0]
            return self.system.transition(points, repeated(u, count), repeated(dt, count))

        second_order = second_order_correction(move, *belief, self.layout, self.layout)
        Q = Q + second_order.cov
        return Gaussian(self.layout.boxplus(mean, second_order.shift), propagate(belief.cov, F, Q)), F, Q

    def advance_linearized(
        self, prepared: Any, state: Gaussian, y: Tensor, weight: Tensor, u: Tensor | None, dt: Tensor | None
    ) -> tuple[Gaussian, StepOutput, LinearStep]:
        prior, F, Q = self.predict(prepared, state, u, dt)
        predicted, H = self.system.linearize_observation(prior.mean)
        innovation = self.innovation(y, predicted, weight)
        update = condition(prior.cov, innovation, H, prepared.R, weight, self.config.solve)
        posterior = Gaussian(self.layout.boxplus(prior.mean, update.correction), update.cov)
        out = step_output(prior, posterior, innovation, update.innovation_cov, update.ok)
        measurement = Measurement(innovation, H, prepared.R, weight, update.ok)
        return posterior, out, LinearStep(F, Q, measurement, update.correction, posterior.mean)
