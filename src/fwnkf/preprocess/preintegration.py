"""Blocks of IMU samples for a filter that steps more slowly than the sensor: preintegration, rest, speed.

Within a block the gyroscope rotates every sample of the accelerometer into one frame before they are averaged, so that
vibration cancels where it should: in a frame that does not rotate with the sensor. Compare M. Lupton, S. Sukkarieh:
Visual-inertial-aided navigation for high-dynamic motion, IEEE Transactions on Robotics 28, 2012.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..core import rotation
from ..core.gaussian import matvec
from ..core.preprocess import Inputs, Preprocess, grouped
from ..core.system import System
from ..core.trajectory import Trajectory
from ..errors import ConfigError, ShapeError
from ..registry import PREPROCESS, at_least, limited
from ..shapes import Bool, Float


class Preintegrated(NamedTuple):
    """A block of samples as one constant rate and force."""

    rate: Float[Tensor, "*B 3"]
    """The constant rate with the same total rotation, rad/s."""
    force: Float[Tensor, "*B 3"]
    """Mean specific force in the sensor frame halfway through that rotation, m/s²."""
    rotations: Float[Tensor, "*B N 4"]
    """Orientation after each sample relative to the beginning of the block."""


def preintegrate(
    gyro: Float[Tensor, "*B N 3"], force: Float[Tensor, "*B N 3"], dt: Float[Tensor, "*B N"]
) -> Preintegrated:
    """Rate and force of blocks of ``N`` samples, ``dt`` seconds each.

    >>> gyro = torch.tensor([0.0, 0.0, 1.0]).expand(10, 3)
    >>> preintegrate(gyro, 9.81 * gyro, torch.full((10,), 0.01)).rate
    tensor([0.0000, 0.0000, 1.0000])
    """
    turn = gyro * dt.unsqueeze(-1)
    rotations = rotation.cumulative(rotation.exp(turn))
    halfway = rotation.multiply(rotations, rotation.exp(-turn / 2))
    mean = matvec(rotation.to_matrix(halfway), force).mean(-2)
    total = rotation.log(rotations[..., -1, :])
    middle = matvec(rotation.to_matrix(rotation.exp(-total / 2)), mean)
    return Preintegrated(total / dt.sum(-1, keepdim=True), middle, rotations)


def between_steps(
    rotations: Float[Tensor, "*B N 4"],
    before: Float[Tensor, "*B 4"],
    bias: Float[Tensor, "*B 3"],
    after: Float[Tensor, "*B 4"],
    dt: Float[Tensor, "*B N"],
) -> Float[Tensor, "*B N 4"]:
    """Orientation at every sample of a block, causal: the estimate before it and the gyroscope minus its bias.

    The estimate after the block is that of its last sample.
    """
    path = rotation.multiply(before.unsqueeze(-2), rotations)
    elapsed = dt.cumsum(-1).unsqueeze(-1)
    path = rotation.multiply(path, rotation.exp(-bias.unsqueeze(-2) * elapsed))
    return torch.cat((path[..., :-1, :], after.unsqueeze(-2)), -2)


def exponential_mean(
    mean: Float[Tensor, "B n"], x: Float[Tensor, "B n"], decay: Float[Tensor, "B"], started: Bool[Tensor, "B"]
) -> Float[Tensor, "B n"]:
    """``m⁺ = r m + (1 - r) x``; the first value counts as the mean before it."""
    decay = decay.unsqueeze(-1)
    return decay * torch.where(started.unsqueeze(-1), mean, x) + (1 - decay) * x


@dataclass(frozen=True)
class PreintegratedIMUConfig:
    """Sampling, delay, and how rest and speed are detected.

    The conditions and thresholds of rest are those of VQF (Laidig, Seel 2023).

    >>> PreintegratedIMUConfig(sample_rate=200.0, block=10).block / 200.0
    0.05
    """

    sample_rate: float = limited(100.0, above=0.0)
    """Samples per second (Hz)."""
    block: int = at_least(1, 24)
    """Samples in one step."""
    delay: float = at_least(0.0, 0.0)
    """Age of a gyroscope sample (s), and so of the state; :meth:`PreintegratedIMU.orientation` makes up for it."""
    rest_seconds: float = limited(1.5, above=0.0)
    """Time for which the sensor must have been still to be at rest (s)."""
    rest_mean_seconds: float = limited(0.5, above=0.0)
    """Time constant of the means of rate and force that a still sensor stays close to (s)."""
    rest_rate: float = limited(math.radians(2.0), above=0.0)
    """Distance of the rate from its mean, and of that from zero, of a still sensor (rad/s)."""
    rest_force: float = limited(0.5, above=0.0)
    """Distance of the force from its mean, of a still sensor (m/s²)."""
    speed_seconds: float = limited(3.0, above=0.0)
    """Time constant of the speed, the root mean square of an axis (s)."""
    integration_seconds: float = limited(1.0, above=0.0)
    """Time constant over which force is integrated to velocity (s)."""


class RestMemory(NamedTuple):
    """Exponential mean of rate and force, and the seconds for which the sensor has been still."""

    mean: Float[Tensor, "B 6"]
    still: Float[Tensor, "B"]


class SpeedMemory(NamedTuple):
    """Orientation by the gyroscope alone, and exponential means of force, velocity and squared speed in its frame."""

    frame: Float[Tensor, "B 4"]
    force: Float[Tensor, "B 3"]
    velocity: Float[Tensor, "B 3"]
    velocity_mean: Float[Tensor, "B 3"]
    square: Float[Tensor, "B 1"]


class IMUMemory(NamedTuple):
    """What the preprocessing keeps from block to block; ``steps`` counts the blocks seen."""

    steps: Float[Tensor, "B"]
    last: Float[Tensor, "B 6"]
    rest: RestMemory
    speed: SpeedMemory


@PREPROCESS.register("preintegrated_imu")
class PreintegratedIMU(Preprocess):
    """Samples ``(gyroscope rad/s, accelerometer m/s²)`` for a filter on :class:`~fwnkf.systems.Handheld`.

    Gives ``u = (rate, force, speed of the hand)`` of each block and ``y = (0, 0, rate)``; the position is observed at
    every step, velocity and gyroscope bias at rest only. A missing sample is replaced by the one before it.

    Args:
        config: sampling and thresholds.
        system: that of the filter, whose state has an orientation and a gyroscope bias.

    >>> import fwnkf
    >>> from fwnkf.systems import Handheld, HandheldConfig
    >>> model = fwnkf.build("ekf", system=Handheld(HandheldConfig(dt=0.24)))
    >>> model.preprocess = PreintegratedIMU(PreintegratedIMUConfig(sample_rate=100.0, block=24), model.system)
    >>> imu = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 9.81]).expand(1, 100, 6)
    >>> model.preprocess.orientation(imu, model.run(imu)).shape
    torch.Size([1, 100, 4])
    """

    Config = PreintegratedIMUConfig
    observation_dim = 6

    def __init__(self, config: PreintegratedIMUConfig, system: System | None = None) -> None:
        super().__init__(config)
        self.block = config.block
        if system is None or not {"orientation", "gyro_bias"} <= {part.name for part in system.layout.parts}:
            raise ConfigError("preintegrated_imu needs a system whose state has an orientation and a gyro_bias")
        step = config.block / config.sample_rate
        if abs(system.dt - step) > 1e-3 * step:
            raise ConfigError(
                f"preintegrated_imu: {config.block} samples at {config.sample_rate:g} Hz are {step:g} s, the system's "
                f"step is {system.dt:g} s; set one of block, sample_rate and the system's dt to match"
            )
        self._system = (system,)  # in a tuple: the filter owns the system and saves its tensors

    def init(self, batch: int, like: Tensor) -> IMUMemory:
        zero, three = like.new_zeros(batch), like.new_zeros(batch, 3)
        six = like.new_zeros(batch, 6)
        frame = like.new_tensor([1.0, 0.0, 0.0, 0.0]).expand(batch, 4).clone()
        speed = SpeedMemory(frame, three, three, three, zero.unsqueeze(-1))
        return IMUMemory(zero, six, RestMemory(six, zero), speed)

    def forward(self, state: IMUMemory, raw: Inputs) -> tuple[IMUMemory, Inputs]:
        memory, inputs, _ = self.step(state, raw)
        return memory, inputs

    def step(self, state: IMUMemory, raw: Inputs) -> tuple[IMUMemory, Inputs, Preintegrated]:
        """As :meth:`forward`, with the rotations within the block.

        Args:
            state: the memory of the step before.
            raw: the raw inputs of one block.

        Returns:
            The next memory, the inputs of the filter, and the preintegrated block.
        """
        samples = raw.y.unsqueeze(1) if self.block == 1 and raw.y.ndim == 2 else raw.y
        weight = raw.weight.reshape(samples.shape)
        dt = self.sample_seconds(samples, raw.dt)
        samples = hold_last(samples, weight, state.last)
        block = preintegrate(samples[..., :3], samples[..., 3:6], dt)
        seconds, started = dt.sum(-1), state.steps > 0
        rest = self._rest(state.rest, block, seconds, started)
        speed = self._speed(state.speed, block, seconds, started)
        resting = (rest.still >= self.config.rest_seconds).to(samples).unsqueeze(-1)
        zero = torch.zeros_like(block.rate)
        inputs = Inputs(
            torch.cat((zero, zero, block.rate), -1),
            torch.cat((torch.ones_like(zero), resting.expand(-1, 6)), -1),
            torch.cat((block.rate, block.force, speed.square.sqrt()), -1),
            None if raw.dt is None else seconds,
        )
        return IMUMemory(state.steps + 1, samples[:, -1], rest, speed), inputs, block

    def orientation(
        self,
        imu: Float[Tensor, "B T m"],
        trajectory: Trajectory,
        dt: Float[Tensor, "B T"] | None = None,
        *,
        start: Float[Tensor, "B 4"] | None = None,
        delay: float | Tensor | None = None,
    ) -> Float[Tensor, "B T 4"]:
        """The orientation at every sample, causal: the last estimate and the gyroscope since, minus its bias.

        Args:
            imu: the samples of the run, without missing ones; those after the last whole block are included.
            trajectory: what the run returned.
            dt: lengths of the samples in seconds; by default those of the nominal rate.
            start: the orientation before the first sample if a prior was given; by default that of the initial belief.
            delay: the delay compensated, in seconds; by default that of the config.

        Returns:
            Unit quaternions, sensor to world.
        """
        system = self._system[0]
        q, bias = (part_of(system, trajectory.mean, name) for name in ("orientation", "gyro_bias"))
        seconds = self.sample_seconds(imu, dt)
        samples, steps = grouped(imu, self.block), grouped(seconds, self.block)
        assert samples is not None
        assert steps is not None
        if self.block == 1:
            samples, steps = samples.unsqueeze(2), steps.unsqueeze(2)
        if samples.shape[:2] != q.shape[:2]:
            raise ShapeError(
                f"{imu.shape[1]} samples make {samples.shape[1]} blocks, the trajectory has {q.shape[1]} steps; "
                "give the samples of the run"
            )
        block = preintegrate(samples[..., :3], samples[..., 3:6], steps)
        if start is None:
            u = torch.cat((block.rate, block.force, torch.zeros_like(block.rate[..., :1])), -1)[:, :1]
            empty = u.new_zeros(len(u), 1, system.observation_layout.size)
            start = part_of(system, system.initial_belief(empty, empty, u).mean, "orientation")
        before = torch.cat((start.unsqueeze(1), q[:, :-1]), 1)
        known_bias = torch.cat((torch.zeros_like(bias[:, :1]), bias[:, :-1]), 1)
        path = between_steps(block.rotations, before, known_bias, q, steps).flatten(1, 2)
        count = path.shape[1]
        if count < imu.shape[1]:
            turns = rotation.exp((imu[:, count:, :3] - bias[:, -1:]) * seconds[:, count:].unsqueeze(-1))
            path = torch.cat((path, rotation.cumulative(torch.cat((path[:, -1:], turns), 1))[:, 1:]), 1)
        return rotation.extrapolate(path, imu[..., :3], self.config.delay if delay is None else delay)

    def sample_seconds(self, samples: Float[Tensor, "B N m"], dt: Float[Tensor, "*C"] | None) -> Float[Tensor, "B N"]:
        """The length of each sample in seconds.

        Args:
            samples: samples, for their number and dtype.
            dt: the lengths, if they are known.

        Returns:
            ``dt``, or the lengths at the nominal rate.
        """
        if dt is None:
            return samples.new_full(samples.shape[:2], 1 / self.config.sample_rate)
        return dt.reshape(samples.shape[:2])

    # ---- parts of a step ------------------------------------------------------------------------------------

    def _rest(self, state: RestMemory, block: Preintegrated, seconds: Tensor, started: Tensor) -> RestMemory:
        now = torch.cat((block.rate, block.force), -1)
        mean = exponential_mean(state.mean, now, (-seconds / self.config.rest_mean_seconds).exp(), started)
        deviation = now - mean
        still = (
            (deviation[:, :3].norm(dim=-1) < self.config.rest_rate)
            & (deviation[:, 3:].norm(dim=-1) < self.config.rest_force)
            & (mean[:, :3].abs().amax(-1) < self.config.rest_rate)
        )
        return RestMemory(mean, torch.where(still, state.still + seconds, 0.0))

    def _speed(self, state: SpeedMemory, block: Preintegrated, seconds: Tensor, started: Tensor) -> SpeedMemory:
        """Speed of a motion to and fro, from the sensors alone.

        In the frame held by the gyroscope gravity is constant, so the force without its mean is the acceleration. Its
        leaky integral is the velocity; the slow drift of the frame disappears with the means.
        """
        config = self.config
        slow, leak = (-seconds / config.speed_seconds).exp(), (-seconds / config.integration_seconds).exp()
        half = rotation.exp(block.rate * seconds.unsqueeze(-1) / 2)
        halfway = rotation.multiply(state.frame, half)
        force = matvec(rotation.to_matrix(halfway), block.force)
        mean = exponential_mean(state.force, force, slow, started)
        velocity = exponential_mean(state.velocity, force - mean, leak, started)
        change = config.integration_seconds * velocity
        velocity_mean = exponential_mean(state.velocity_mean, change, slow, started)
        square = (change - velocity_mean).square().mean(-1, keepdim=True)
        frame = rotation.normalize(rotation.multiply(halfway, half))
        return SpeedMemory(frame, mean, velocity, velocity_mean, exponential_mean(state.square, square, slow, started))


def hold_last(
    samples: Float[Tensor, "B N m"], weight: Float[Tensor, "B N m"], last: Float[Tensor, "B m"]
) -> Float[Tensor, "B N m"]:
    """Missing samples (``weight`` 0) replaced by the one before, ``last`` being that before the first.

    >>> hold_last(torch.tensor([[[1.0], [0.0], [3.0]]]), torch.tensor([[[1.0], [0.0], [1.0]]]), torch.zeros(1, 1))
    tensor([[[1.],
             [1.],
             [3.]]])
    """
    places = torch.arange(1, samples.shape[1] + 1, device=samples.device).reshape(1, -1, 1)
    latest = torch.where(weight > 0, places, 0).cummax(1).values
    return torch.cat((last.unsqueeze(1), samples), 1).gather(1, latest)


def part_of(system: System, x: Float[Tensor, "*B n"], name: str) -> Float[Tensor, "*B k"]:
    """One named part of a state."""
    at = 0
    for part in system.layout.parts:
        if part.name == name:
            return x[..., at : at + part.size]
        at += part.size
    raise ConfigError(f"the state has no part {name!r}; there are: {', '.join(p.name for p in system.layout.parts)}")
