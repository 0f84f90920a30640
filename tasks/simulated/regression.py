"""A baseline where the equations are not given: least squares on products of state coordinates.

The next state is regressed on all products of at most ``degree`` features of the state, the measurement on the
features themselves, both on the same training records as the trained filter. An EKF runs on the system that was fitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement

import torch
from torch import Tensor

from fwnkf import System
from fwnkf.data.protocols import Records
from fwnkf.shapes import Float


@dataclass(frozen=True)
class PolynomialConfig:
    """``dt`` is the step of the training records in seconds, ``degree`` that of the products."""

    dt: float
    degree: int = 2


class PolynomialSystem(System):
    """``x⁺ = x ⊞ (dt/dt₀) (W φ(x) + B u)`` and ``y = H [1, f(x)]``, ``φ`` the products of the features ``f``."""

    Config = PolynomialConfig
    W: Tensor
    B: Tensor
    H: Tensor
    Q: Tensor
    R: Tensor

    def __init__(self, config: PolynomialConfig, records: Records) -> None:
        super().__init__(config)
        self.layout, self.dt = records.layout, config.dt
        if records.system is None:
            raise ValueError("simulated records come with their system, whose observation layout is used here")
        self.observation_layout = records.system.observation_layout
        self.control_dim = 0 if records.u is None else records.u.shape[-1]
        truth, y = records.truth.double(), records.y.double()
        here, following = truth[:, :-1].flatten(0, 1), truth[:, 1:].flatten(0, 1)
        inputs = products(self.layout.features(here), config.degree)
        if records.u is not None:
            inputs = torch.cat((inputs, records.u[:, 1:].double().flatten(0, 1)), -1)
        step = self.layout.boxminus(following, here)
        weight = least_squares(inputs, step)
        residual = step - inputs @ weight
        seen = _with_one(self.layout.features(truth.flatten(0, 1)))
        observed = least_squares(seen, y.flatten(0, 1))
        noise = y.flatten(0, 1) - seen @ observed
        split = inputs.shape[-1] - self.control_dim
        self.register_buffer("W", weight[:split].mT.contiguous())
        self.register_buffer("B", weight[split:].mT.contiguous())
        self.register_buffer("H", observed.mT.contiguous())
        self.register_buffer("Q", residual.mT @ residual / len(residual))
        self.register_buffer("R", noise.mT @ noise / len(noise))

    def transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> Tensor:
        step = products(self.layout.features(x), self.config.degree) @ self.W.mT
        if u is not None:
            step = step + u @ self.B.mT
        return self.layout.boxplus(x, step if dt is None else step * (dt / self.dt).unsqueeze(-1))

    def observe(self, x: Tensor) -> Tensor:
        return _with_one(self.layout.features(x)) @ self.H.mT

    def process_noise(self, dt: Tensor | None) -> Tensor:
        return self.Q if dt is None else self.Q * (dt / self.dt)[..., None, None]

    def measurement_covariance(self) -> Tensor:
        return self.R


def products(features: Float[Tensor, "*B k"], degree: int) -> Float[Tensor, "*B q"]:
    """One, the features, and their products of at most ``degree`` factors.

    >>> products(torch.tensor([2.0, 3.0]), 2)
    tensor([1., 2., 3., 4., 6., 9.])
    """
    padded = _with_one(features)
    chosen = torch.tensor(list(combinations_with_replacement(range(padded.shape[-1]), degree)), device=features.device)
    return padded[..., chosen].prod(-1)


def least_squares(inputs: Float[Tensor, "N k"], outputs: Float[Tensor, "N d"]) -> Float[Tensor, "k d"]:
    """The weights of least norm with the least squared error: squares of sine and cosine are not independent."""
    scale = inputs.square().mean(0).sqrt()
    return torch.linalg.lstsq(inputs / scale, outputs, rcond=1e-10, driver="gelsd").solution / scale.unsqueeze(-1)


def fit_polynomial(records: Records, degree: int = 2) -> PolynomialSystem:
    """The system with the least squared error of one step, in float64."""
    return PolynomialSystem(PolynomialConfig(float(records.dt[0, 1]), degree), records)


def _with_one(features: Tensor) -> Tensor:
    return torch.cat((torch.ones_like(features[..., :1]), features), -1)
