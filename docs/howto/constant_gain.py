"""A filter written from scratch: a constant gain, as in alpha-beta filters and observers, that can be trained."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

import fwnkf
from fwnkf.core.gaussian import dense, joseph, matvec, propagate, symmetrize
from fwnkf.filters.base import Prediction, adopt
from fwnkf.filters.extended import Noises
from fwnkf.filters.outputs import step_output
from fwnkf.types import Gaussian, StepOutput


@dataclass(frozen=True)
class ConstantGainConfig:
    """No options: the gain is a tensor, and tensors are saved beside the config, not in it."""


@fwnkf.register_filter("constant_gain")
class ConstantGainFilter(fwnkf.Filter):
    """``x̂ = x̂⁻ + K (y - h(x̂⁻))`` with the same ``K`` in every step; ``K`` is zero unless it is given."""

    Config = ConstantGainConfig
    arrays = ("K",)
    smooths = False  # its steps have no linear model that fwnkf.smooth could use
    system: fwnkf.System

    def setup(self, config: ConstantGainConfig, system: fwnkf.System | None, arrays: dict[str, Tensor]) -> None:
        self.system = adopt(self, system)  # layouts and sizes are those of the system
        zero = torch.zeros(self.layout.tangent_size, self.observation_dim)
        self.K = nn.Parameter(arrays.get("K", zero).clone())

    def init_state(self, belief: Gaussian, generator: torch.Generator | None) -> Gaussian:
        return belief

    def prepare(self) -> Noises:
        return Noises(self.system.nominal(), self.system.measurement_noise())

    def predict_state(
        self,
        prepared: Noises,
        state: Gaussian,
        u: Tensor | None,
        dt: Tensor | None,
        measured: tuple[Tensor, Tensor] | None = None,
    ) -> Prediction:
        mean, F, Q = self.system.linearized_step(prepared.nominal, state.mean, u, dt)
        return Prediction(Gaussian(mean, propagate(state.cov, F, Q)))

    def update_state(
        self, prepared: Noises, ahead: Prediction, y: Tensor, weight: Tensor
    ) -> tuple[Gaussian, StepOutput, None]:
        prior = ahead.state
        predicted, H = self.system.linearize_observation(prior.mean)
        innovation = self.observation_layout.boxminus(y, predicted) * weight
        K = self.K * weight.unsqueeze(-2)  # a channel that was not measured corrects nothing
        corrected = self.layout.boxplus(prior.mean, matvec(K, innovation))
        posterior = Gaussian(corrected, joseph(prior.cov, K, H, prepared.R))  # Joseph's form holds for any gain
        S = symmetrize(H @ prior.cov @ H.mT + dense(prepared.R))
        factored = torch.ones(len(y), dtype=torch.bool, device=y.device)  # nothing is factored, so nothing can fail
        precise = torch.ones_like(factored)  # nothing is subtracted that could lose its digits
        return posterior, step_output(prior, posterior, innovation, S, factored, precise), None

    def observe(self, x: Tensor) -> Tensor:  # for losses and reports that compare estimates with measurements
        return self.system.observe(x)
