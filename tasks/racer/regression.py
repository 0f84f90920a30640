"""Regressions of the rate at the end of a gap: hold, ridge, and a network on what the ridge leaves.

Each gap length has its own fit. The inputs are 40 frames of gyro and accelerometer before the gap, and motor commands
with their squares from 30 ms before the gap to its end (to its beginning for a prediction without future commands).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fwnkf.shapes import Float
from tasks.racer.protocol import CONTEXT, Flight, Windows, windows

PAST = 40
BEFORE = 28
"""Frames before the gap whose motor commands are read, about 30 ms."""
RIDGE = 1e-4
"""Penalty of a weight, in units of the variance of its input."""
FIT_STRIDE = 24
WIDTH, BATCH, RATE, STEPS = 128, 512, 1e-3, 2700
"""The network of the protocol: what 16 seconds of one core took."""
FAR = 8.0
"""Standard deviations beyond which the inputs of the network are constant."""


@dataclass(frozen=True, eq=False)
class Ridge:
    """A linear map of standardised inputs to the change of the rate in ``gap`` frames, or of all commands in it."""

    gap: int
    commands: int
    """Frames after the beginning of the gap whose motor commands are read."""
    shift: Tensor
    scale: Tensor
    weight: Float[Tensor, "i o"]
    offset: Float[Tensor, " o"]

    def inputs(self, data: Windows) -> Float[Tensor, "N i"]:
        return (features(data, self.commands) - self.shift) / self.scale

    def change(self, data: Windows) -> Float[Tensor, "N o"]:
        """What the map was fitted to."""
        return self.offset + self.inputs(data) @ self.weight

    def __call__(self, data: Windows) -> Float[Tensor, "N 3"]:
        """The rate at the end of the gap."""
        return _last(data) + self.change(data)


@dataclass(frozen=True, eq=False)
class Network:
    """Two layers of ``tanh`` on the inputs of a ridge, added to it."""

    ridge: Ridge
    layers: nn.Sequential

    @torch.no_grad()
    def __call__(self, data: Windows) -> Float[Tensor, "N 3"]:
        change: Tensor = self.layers(self.ridge.inputs(data).clamp(-FAR, FAR))
        return self.ridge(data) + change


def features(data: Windows, commands: int) -> Float[Tensor, "N i"]:
    """What the regressions read of each window, whose gap begins behind the context."""
    past = torch.cat((data.y, data.force), -1)[:, CONTEXT - PAST : CONTEXT].flatten(1)
    motors = data.motors[:, CONTEXT - BEFORE : CONTEXT + commands].flatten(1)
    return torch.cat((past, motors, motors.square()), 1)


def hold(data: Windows) -> Float[Tensor, "N 3"]:
    """The last rate before the gap."""
    return _last(data)


def extrapolate(data: Windows, gap: int, over: int = 5) -> Float[Tensor, "N 3"]:
    """The last rate, moved on by the mean slope of the frames before."""
    last = _last(data)
    return last + gap / over * (last - data.y[:, CONTEXT - 1 - over])


def fit_ridge(group: Sequence[Flight], gap: int, *, future: bool = True) -> Ridge:
    """The change of the rate, with motor commands to the end of the gap or to its beginning."""
    return _fit(group, gap, gap if future else 0, lambda data: data.y[:, CONTEXT + gap - 1] - _last(data))


def fit_commands(group: Sequence[Flight], gap: int) -> Ridge:
    """The change of the motor commands of each frame of a gap, from what is known at its beginning."""
    return _fit(group, gap, 0, lambda data: _change_of_commands(data, gap).flatten(1))


def forecast(ridge: Ridge, data: Windows) -> Float[Tensor, "N T 4"]:
    """Motor commands to the end of a gap whose own commands are forecast."""
    known = data.motors[:, :CONTEXT]
    later = known[:, -1:] + ridge.change(data).unflatten(1, (ridge.gap, -1))
    return torch.cat((known, later.clamp(0, 1)), 1)


def _change_of_commands(data: Windows, gap: int) -> Float[Tensor, "N G 4"]:
    return data.motors[:, CONTEXT : CONTEXT + gap] - data.motors[:, CONTEXT - 1 : CONTEXT]


def _fit(group: Sequence[Flight], gap: int, commands: int, target: Callable[[Windows], Tensor]) -> Ridge:
    """Least squares with a small penalty on windows of training flights, in float64."""
    count, outputs = 0, 0
    total: Tensor | float = 0.0
    for one in group:
        data = windows([one], gap, stride=FIT_STRIDE)
        x, change = features(data, commands).double(), target(data).double()
        outputs = change.shape[1]
        rows = torch.cat((x, change, torch.ones(len(x), 1).double()), 1)
        total, count = total + rows.mT @ rows, count + len(rows)
    assert isinstance(total, Tensor)
    mean = total[-1, :-1] / count
    cov = total[:-1, :-1] / count - mean.unsqueeze(-1) * mean
    scale = cov.diagonal().clamp_min(1e-12).sqrt()
    scale[-outputs:] = 1.0
    cov = cov / (scale.unsqueeze(-1) * scale)
    inputs = len(mean) - outputs
    penalty = RIDGE * torch.eye(inputs, dtype=cov.dtype)
    weight = torch.linalg.solve(cov[:inputs, :inputs] + penalty, cov[:inputs, inputs:])
    values = (mean[:inputs], scale[:inputs], weight, mean[inputs:])
    return Ridge(gap, commands, *(value.float() for value in values))


def fit_network(ridge: Ridge, group: Sequence[Flight], seed: int) -> Network:
    """A network on the ridge's residual, on the same windows."""
    x, left = [], []
    for one in group:
        data = windows([one], ridge.gap, stride=FIT_STRIDE)
        x.append(ridge.inputs(data).clamp(-FAR, FAR))
        left.append(data.y[:, CONTEXT + ridge.gap - 1] - ridge(data))
    inputs, target = torch.cat(x), torch.cat(left)
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    layers = nn.Sequential(
        nn.Linear(inputs.shape[1], WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 3)
    )
    optimizer = torch.optim.Adam(layers.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, STEPS)
    for _ in range(STEPS):
        rows = torch.randint(len(inputs), (BATCH,), generator=generator)
        loss = (layers(inputs[rows]) - target[rows]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return Network(ridge, layers)


def _last(data: Windows) -> Float[Tensor, "N 3"]:
    return data.y[:, CONTEXT - 1]
