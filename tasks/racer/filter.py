"""The filter of the racing quadrotor: a linear model from subspace identification, and what a GRU adds to it.

``x⁺ = F x + B u + g(x, h) + w``: the first three states are the rate, the others what its past tells beyond it (motor
lag, the controller's state, slow torques); ``u`` are the motor commands of four frames; ``g`` is a network that reads
the memory ``h`` of a GRU. In a variant the GRU sets the variances of ``w`` as well. Before training it is the Kalman
filter of the linear model.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

import fwnkf
from fwnkf.core.linear import LinearSystem
from fwnkf.core.networks import JacobianNetwork
from fwnkf.filters.fwnkf import FrequencyWeightedNeuralKalmanFilter
from fwnkf.identify import subspace
from fwnkf.preprocess import LastSample, LastSampleConfig
from fwnkf.shapes import Float
from tasks.racer.protocol import BLOCK, COLLISION, MOTORS, STEP, Flight, control

ORDER = 9
CONTROLS = MOTORS + 1
FIT_STRIDE = 11
JUMP = 6.0
"""Standard deviations beyond which an innovation is a collision.

Chosen on collisions of training flights and on flights 0, 6, 12 and 16; that they matter was seen on a test flight.
"""
START_CONTEXT = 0.1
"""Standard deviation of the weights from the GRU to the network at the start of training."""


@dataclass(frozen=True)
class Options:
    """What a variant of the filter has."""

    hidden: int = 64
    width: int = 64
    control: bool = True
    adaptive: bool = False
    """Whether the GRU sets ``Q_t``."""
    sections: int = 0
    """Noise states of each channel."""


VARIANTS = {
    "without_gru": replace(Options(), hidden=0),
    "without_control": replace(Options(), control=False),
    "with_q_t": replace(Options(), adaptive=True),
    "with_noise_states": replace(Options(), sections=1),
}


def steps(one: Flight, phase: int = 0) -> tuple[Float[Tensor, "K 3"], Float[Tensor, "K p"]]:
    """A flight as the filter sees it behind its preprocessing: the last rate of each step, and its control."""
    count = (len(one) - phase) // BLOCK
    part = slice(phase, phase + count * BLOCK)
    return one.rate[part][BLOCK - 1 :: BLOCK], control(one.motors[part]).unflatten(0, (count, BLOCK)).flatten(1)


def linear_model(group: Sequence[Flight], order: int = ORDER) -> LinearSystem:
    """The linear system of training flights, by least squares."""
    records = [part for one in group for part in without_collisions(*steps(one))]
    return subspace(records, order, stride=FIT_STRIDE, dt=BLOCK * STEP)


def without_collisions(y: Tensor, u: Tensor, limit: float = COLLISION) -> list[tuple[Tensor, Tensor]]:
    """The parts of a flight between moments that were not measured or in which it hit something."""
    out = (~(y.abs().amax(-1) <= limit)).nonzero().flatten().tolist()
    bounds = [-1, *out, len(y)]
    return [(y[first + 1 : last], u[first + 1 : last]) for first, last in pairwise(bounds) if last - first > 100]


def on_frames(model: fwnkf.Filter) -> fwnkf.Filter:
    """The filter with the preprocessing that makes steps of frames, in place."""
    controls = CONTROLS if model.control_dim else 0
    config = LastSampleConfig(channels=3, controls=controls, block=BLOCK)
    model.preprocess = LastSample(config, model.system)
    return model


def linear_filter(linear: LinearSystem) -> fwnkf.Filter:
    """The Kalman filter of the linear model, in the same steps."""
    return on_frames(fwnkf.EKF(system=copy.deepcopy(linear).to(torch.float32)))


def new_filter(
    linear: LinearSystem, options: Options, group: Sequence[Flight], seed: int
) -> FrequencyWeightedNeuralKalmanFilter:
    """An untrained filter on the linear system, its networks in the scales of training flights."""
    torch.manual_seed(seed)
    with_control = options.control
    system = LinearSystem.of(
        F=linear.F.float(), H=linear.H.float(), Q=linear.Q().float(), R=linear.R().float(),
        B=linear.B.float() if with_control else None, learn=("F", "B", "Q") if with_control else ("F", "Q"),
        dt=linear.dt, diagonal_noise=True,
    )  # fmt: skip
    networks = bool(options.hidden)
    model = fwnkf.FWNKF(
        system,
        encoder=fwnkf.GRU(options.hidden) if networks else None,
        residual=fwnkf.MLP(options.width) if networks else None,
        noise=fwnkf.Lines(options.sections, shared=True, pole_radius=0.999) if options.sections else None,
        jump=0.0 if options.sections else JUMP,
    )
    if options.hidden:
        scale(model, group)
    return model


def multiply_adds(model: fwnkf.Filter) -> float:
    """Multiplications of one step in networks and in the covariance, dense matrices counted as such."""
    n, m = model.layout.tangent_size, model.observation_layout.tangent_size
    weights = [value for name, value in model.named_parameters() if value.ndim == 2 and not name.startswith("system.")]
    p = 0 if model.system is None else model.system.control_dim
    jacobian = sum(value.shape[0] * n for value in weights if value.shape[1] == n)
    covariance = 2 * n**3 + 2 * n**2 * m + 2 * n * m**2
    return float(sum(value.numel() for value in weights) + n * jacobian + n * n + n * p + covariance)


@torch.no_grad()
def scale(model: FrequencyWeightedNeuralKalmanFilter, group: Sequence[Flight]) -> None:
    """Set the scales of the networks from the states of the linear filter on training flights."""
    y, u = (torch.cat(values) for values in zip(*(steps(one) for one in group[:4]), strict=True))
    records = max(1, min(64, len(y) // 100))  # of at least 100 steps, of which the first half lets the filter settle
    length = len(y) // records
    y, u = (item[: records * length].unflatten(0, (records, length))[:, :100] for item in (y, u))
    states = model.run(y, u if model.control_dim else None).mean[:, 50:].flatten(0, 1)
    mean, std = states.mean(0), states.std(0)
    assert isinstance(model.system, LinearSystem)
    assert model.encoder is not None
    network = model.residual
    assert isinstance(network, JacobianNetwork)
    network.normalize(mean, std, model.system.Q().diagonal().sqrt())
    assert network.context is not None
    network.context.weight.normal_(std=START_CONTEXT)
    inputs = [mean, y.flatten(0, 1).mean(0)], [std, y.flatten(0, 1).std(0)]
    if model.control_dim:
        flat = u.flatten(0, 1)
        # the flag of known commands is one in these flights
        spread = torch.where(flat.std(0) > 0, flat.std(0), torch.ones_like(flat[0]))
        inputs[0].append(flat.mean(0))
        inputs[1].append(spread)
    model.encoder.normalize(torch.cat(inputs[0]), torch.cat(inputs[1]))
