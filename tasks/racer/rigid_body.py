"""An EKF with the equations of a rigid body and of motors with a lag, its constants fitted to training flights.

``ω̇ = G s² + c ∘ (ω_y ω_z, ω_z ω_x, ω_x ω_y) + d ∘ ω + b + τ`` with motor states ``s`` that follow the commands with a
time constant, and a slow torque ``τ``. A regression of the change of the rate on the integrals of the right-hand side
starts ``G, c, d, b`` and the time constant. It is biased, because the controller answers to what the equations leave;
the likelihood of the measurements in gaps and before them, by which the filters here are trained, corrects it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from scipy.signal import lfilter  # type: ignore[import-untyped]
from torch import Tensor, nn

from fwnkf import EKF, Filter
from fwnkf.core.gaussian import DiagonalNoise, Noise
from fwnkf.core.layout import Layout
from fwnkf.core.system import System
from fwnkf.shapes import Float
from tasks.interface import Say
from tasks.racer.filter import on_frames, steps, without_collisions
from tasks.racer.protocol import BLOCK, HOVER, STEP, Flight
from tasks.racer.training import Plan, Streams, train_likelihood

LAGS = (0.01, 0.015, 0.02, 0.03, 0.04, 0.06)
SPAN = 5
"""Steps over which the change of the rate is regressed."""
TORQUE_SECONDS = 0.1
"""Time constant of the slow torque."""
PARTS = (("rate", "euclidean", 3), ("motors", "euclidean", 4), ("torque", "euclidean", 3))


@dataclass(frozen=True)
class RigidBodyConfig:
    """Constants of the equations: rows of ``terms`` for each axis, in the order of :func:`terms`."""

    lag: float
    terms: tuple[tuple[float, ...], ...]
    rate_std: float = 0.03
    torque_std: float = 10.0
    noise_std: float = 1e-3


class RigidBody(System):
    """Rate, motor states and slow torque; the control is that of the filters here, four frames of commands."""

    Config = RigidBodyConfig
    control_dim = BLOCK * 5
    diagonal_noise = True
    eye: Tensor

    def __init__(self, config: RigidBodyConfig) -> None:
        super().__init__(config)
        self.dt = BLOCK * STEP
        self.layout, self.observation_layout = Layout.parse(PARTS), Layout.parse(PARTS[:1])
        self.constants = nn.Parameter(torch.tensor(config.terms))
        self.log_lag = nn.Parameter(torch.tensor(config.lag).log())
        self.log_rate_std = nn.Parameter(torch.full((3,), config.rate_std).log())
        self.log_torque_std = nn.Parameter(torch.full((3,), config.torque_std).log())
        self.log_seconds = nn.Parameter(torch.tensor(TORQUE_SECONDS).log())
        self.register_buffer("eye", torch.eye(10), persistent=False)

    def transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> Tensor:
        return self.linearize_transition(x, u, dt)[0]

    def linearize_transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        assert u is not None
        rate, motors, torque = x[..., :3], x[..., 3:7], x[..., 7:]
        following, share = follow(motors, u, self.log_lag.exp())
        fade = torch.exp(-self.dt / self.log_seconds.exp())
        values, by_rate = terms(rate, following)
        moved = rate + self.dt * (values @ self.constants.mT + torque)
        lag = self.dt * share * 2 * self.constants[:, :4] * following.unsqueeze(-2)
        eye, zero = self.eye.expand(*x.shape[:-1], 10, 10), torch.zeros_like(lag)
        upper = torch.cat((eye[..., :3, :3] + self.dt * self.constants @ by_rate, lag, self.dt * eye[..., :3, :3]), -1)
        middle = torch.cat((zero.mT, share * eye[..., :4, :4], zero.mT), -1)
        lower = torch.cat((zero[..., :3], zero, fade * eye[..., :3, :3]), -1)
        return torch.cat((moved, following, fade * torque), -1), torch.cat((upper, middle, lower), -2)

    def observe(self, x: Tensor) -> Tensor:
        return x[..., :3]

    def linearize_observation(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x[..., :3], self.eye[:3]

    def process_noise(self, dt: Tensor | None) -> Tensor:
        grown = 1 - torch.exp(-2 * self.dt / self.log_seconds.exp())
        torque = (2 * self.log_torque_std).exp() * grown
        return torch.cat(((2 * self.log_rate_std).exp(), torch.zeros(4).to(torque), torque)).diag()

    def measurement_covariance(self) -> Tensor:
        return self.config.noise_std**2 * self.eye[:3, :3]

    def measurement_noise(self) -> Noise:
        return DiagonalNoise(self.measurement_covariance().diagonal())


def follow(motors: Float[Tensor, "*B 4"], u: Float[Tensor, "*B p"], lag: Tensor) -> tuple[Tensor, Tensor]:
    """Motor states after the frames of one step, and the share of the old ones that is left."""
    keep = torch.exp(-STEP / lag)
    for commands in u.unflatten(-1, (BLOCK, 5))[..., :4].unbind(-2):
        motors = keep * motors + (1 - keep) * (commands + HOVER)
    return motors, keep**BLOCK


def terms(rate: Float[Tensor, "*B 3"], motors: Float[Tensor, "*B 4"]) -> tuple[Tensor, Tensor]:
    """Squares of motor states, products and rates, and one; and their derivatives in the rate."""
    x, y, z = rate.unbind(-1)
    products = torch.stack((y * z, z * x, x * y), -1)
    values = torch.cat((motors.square(), products, rate, torch.ones_like(rate[..., :1])), -1)
    zero = torch.zeros_like(x)
    by_rate = torch.zeros(*rate.shape[:-1], 11, 3).to(rate)
    by_rate[..., 4:7, :] = torch.stack(
        (torch.stack((zero, z, y), -1), torch.stack((z, zero, x), -1), torch.stack((y, x, zero), -1)), -2
    )
    by_rate[..., 7:10, :] = torch.eye(3).to(rate)
    return values, by_rate


def fit(group: Sequence[Flight], say: Say, plan: Plan | None = None) -> Filter:
    """The EKF with constants of training flights."""
    records = [part for one in group for part in without_collisions(*steps(one))]
    fits = {lag: _regression(records, lag) for lag in LAGS}
    lag = min(fits, key=lambda one: float(fits[one][1]))
    rows = tuple(tuple(row) for row in fits[lag][0].mT.tolist())
    model = EKF(system=RigidBody(RigidBodyConfig(lag, rows)))
    plan = Plan(likelihood_rate=0.05) if plan is None else plan
    train_likelihood(model, Streams(group, plan.likelihood_batch, 0), plan, say, list(model.parameters()))
    return on_frames(model.requires_grad_(False))


def _regression(records: Sequence[tuple[Tensor, Tensor]], lag: float) -> tuple[Tensor, Tensor]:
    rows, targets = [], []
    for y, u in records:
        commands = u.unflatten(-1, (BLOCK, 5))[..., :4].flatten(0, 1) + HOVER
        filtered = _lagged(commands, lag)[BLOCK - 1 :: BLOCK]
        values = terms(y, filtered)[0]
        total = values.double().cumsum(0)
        at = torch.arange(20, len(y) - SPAN, 7)
        rows.append((total[at + SPAN] - total[at]) * BLOCK * STEP)
        targets.append((y[at + SPAN] - y[at]).double())
    x, target = torch.cat(rows), torch.cat(targets)
    solution = torch.linalg.lstsq(x, target).solution
    return solution.float(), (target - x @ solution).square().mean()


def _lagged(commands: Float[Tensor, "T 4"], lag: float) -> Float[Tensor, "T 4"]:
    keep = math.exp(-STEP / lag)
    first = (keep * commands[:1].double()).numpy()
    values, _ = lfilter([1 - keep], [1, -keep], commands.double().numpy(), axis=0, zi=first)
    return torch.from_numpy(values).to(commands)
