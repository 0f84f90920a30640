"""Tilt-compensated magnetometer: the field in the frame of a filter that knows the tilt but not the heading."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core import rotation
from ..core.gaussian import matvec
from ..core.preprocess import Inputs, Preprocess, Preprocessed
from ..core.system import System
from ..core.trajectory import Trajectory
from ..core.tree import named_leaves, tree_unflatten
from ..errors import ConfigError
from ..registry import PREPROCESS, at_least
from ..shapes import Bool, Float
from .preintegration import PreintegratedIMU, between_steps, part_of


@dataclass(frozen=True)
class TiltCompensatedMagnetometerConfig:
    """Options of a :class:`TiltCompensatedMagnetometer`.

    >>> TiltCompensatedMagnetometerConfig(delay=0.01).delay
    0.01
    """

    delay: float = at_least(0.0, 0.0)
    """Age of a sample of the magnetometer in seconds."""


class LeveledField(NamedTuple):
    """The mean field of a block in the tilt filter's frame, and the sensor's orientation there halfway."""

    field: Float[Tensor, "*B 3"]
    weight: Float[Tensor, "*B 3"]
    orientation: Float[Tensor, "*B 4"]


def leveled_field(
    path: Float[Tensor, "*B N 4"],
    gyro: Float[Tensor, "*B N 3"],
    field: Float[Tensor, "*B N 3"],
    weight: Float[Tensor, "*B N 3"],
    delay: float | Tensor,
) -> LeveledField:
    """Blocks of magnetometer samples rotated by the orientations ``path``, ``delay`` seconds before each.

    Samples of which an axis is missing are left out of the mean.

    >>> level = torch.tensor([1.0, 0.0, 0.0, 0.0]).expand(2, 4)
    >>> field = torch.tensor([[0.0, 15.0, -41.0], [0.0, 17.0, -41.0]])
    >>> leveled_field(level, torch.zeros(2, 3), field, torch.ones(2, 3), 0.0).field
    tensor([  0.,  16., -41.])
    """
    then = rotation.extrapolate(path, gyro, -delay)
    complete = weight.amin(-1, keepdim=True)
    count = complete.sum(-2)
    total = (matvec(rotation.to_matrix(then), field) * complete).sum(-2)
    mean = total / count.clamp_min(1)
    return LeveledField(mean, (count > 0).to(mean).expand_as(mean), then[..., path.shape[-2] // 2, :])


class MagnetometerMemory(NamedTuple):
    """State of the tilt filter, its last orientation and gyroscope bias, and the number of blocks seen."""

    steps: Float[Tensor, "B"]
    tilt: Any
    orientation: Float[Tensor, "B 4"]
    bias: Float[Tensor, "B 3"]


@PREPROCESS.register("tilt_compensated_magnetometer")
class TiltCompensatedMagnetometer(Preprocess):
    """Samples ``(gyroscope, accelerometer, magnetometer)`` for a filter on :class:`~fwnkf.systems.Heading`.

    The inner filter is stepped on each block; the field is rotated into its frame and averaged.

    Args:
        config: options.
        system: that of the filter, a :class:`~fwnkf.systems.Heading`.
        inner: a filter that estimates the tilt from gyroscope and accelerometer, with a :class:`PreintegratedIMU`.

    >>> import torch, fwnkf
    >>> from fwnkf.preprocess import PreintegratedIMU, PreintegratedIMUConfig
    >>> from fwnkf.systems import Handheld, HandheldConfig, Heading, HeadingConfig
    >>> tilt = fwnkf.EKF(Handheld(HandheldConfig(dt=0.24)))
    >>> tilt.preprocess = PreintegratedIMU(PreintegratedIMUConfig(sample_rate=100.0, block=24), tilt.system)
    >>> model = fwnkf.EKF(Heading(HeadingConfig(dt=0.24)))
    >>> model.preprocess = TiltCompensatedMagnetometer(TiltCompensatedMagnetometerConfig(), model.system, tilt)
    >>> samples = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 9.81, 0.0, 15.0, -41.0]).expand(1, 48, 9)
    >>> model.run(samples).mean.shape
    torch.Size([1, 2, 13])
    """

    Config = TiltCompensatedMagnetometerConfig
    observation_dim = 9

    def __init__(
        self, config: TiltCompensatedMagnetometerConfig, system: System | None = None, inner: Any = None
    ) -> None:
        super().__init__(config)
        if system is None:
            raise ConfigError("tilt_compensated_magnetometer needs the system of its filter, a Heading")
        if inner is None or not isinstance(inner.preprocess, PreintegratedIMU):
            raise ConfigError(
                "tilt_compensated_magnetometer needs an inner filter for the tilt with preintegrated_imu preprocessing"
            )
        if abs(system.dt - inner.system.dt) > 1e-3 * system.dt:
            raise ConfigError(
                f"tilt_compensated_magnetometer: steps of {system.dt:g} s, the tilt filter's are {inner.system.dt:g} s"
            )
        self.inner = inner
        self._system = (system,)  # in a tuple: the filter owns the system and saves its tensors
        self.block = inner.preprocess.block

    def init(self, batch: int, like: Tensor) -> MagnetometerMemory:
        zero = like.new_zeros(batch)
        level = like.new_tensor([1.0, 0.0, 0.0, 0.0]).expand(batch, 4).clone()
        return MagnetometerMemory(zero, self.inner.init(batch), level, like.new_zeros(batch, 3))

    def forward(self, state: MagnetometerMemory, raw: Inputs) -> tuple[MagnetometerMemory, Inputs]:
        inner, imu = self.inner, self.inner.preprocess
        samples, weight = raw.y.reshape(len(raw.y), self.block, 9), raw.weight.reshape(len(raw.y), self.block, 9)
        memory, inputs, block = imu.step(state.tilt.preprocess, Inputs(samples[..., :6], weight[..., :6], None, raw.dt))
        # the first block gives the tilt filter its initial belief; both are computed, so that no branch reads data
        first = inner.system.initial_belief(*(item.unsqueeze(1) for item in inputs[:3]))
        begin = (state.steps == 0).unsqueeze(-1)
        belief = select(begin.squeeze(-1), inner.init_state(first, None), state.tilt.filter)
        before = torch.where(begin, part_of(inner.system, first.mean, "orientation"), state.orientation)
        following, out, _ = inner.advance(inner.prepare(), belief, *inputs)
        after, bias = (part_of(inner.system, out.mean, name) for name in ("orientation", "gyro_bias"))
        dt = imu.sample_seconds(samples, raw.dt)
        path = between_steps(block.rotations, before, state.bias, after, dt)
        path = rotation.extrapolate(path, samples[..., :3], imu.config.delay)
        leveled = leveled_field(path, samples[..., :3], samples[..., 6:], weight[..., 6:], self.config.delay)
        u = torch.cat((block.rate.norm(dim=-1, keepdim=True), leveled.orientation), -1)
        state = MagnetometerMemory(state.steps + 1, Preprocessed(memory, following), after, bias)
        return state, Inputs(leveled.field, leveled.weight, u, inputs.dt)

    def orientation(
        self, samples: Float[Tensor, "B T 9"], trajectory: Trajectory, dt: Float[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T 4"]:
        """The orientation at every sample, causal: that of the tilt filter, rotated by the last heading estimated.

        The tilt filter is run again over the samples, which must be without missing ones.

        Args:
            samples: those of the run; the ones after the last whole block are included.
            trajectory: what the run returned.
            dt: lengths of the samples in seconds; by default those of the nominal rate.

        Returns:
            Unit quaternions, sensor to world.
        """
        imu = samples[..., :6]
        path = self.inner.preprocess.orientation(imu, self.inner.run(imu, dt=dt), dt)
        first = samples[:, : self.block]
        shape = (len(samples), 1, -1)
        steps = None if dt is None else dt[:, : self.block]
        inputs = self(self.init(len(samples), samples), Inputs(first, torch.ones_like(first), None, steps))[1]
        belief = self._system[0].initial_belief(*(item.reshape(shape) for item in inputs[:3]))
        return with_heading(path, torch.cat((belief.mean[:, :1], trajectory.mean[..., 0]), 1), self.block)


def with_heading(path: Float[Tensor, "B T 4"], headings: Float[Tensor, "B K"], block: int) -> Float[Tensor, "B T 4"]:
    """Orientations rotated about the vertical by the heading of each block of samples.

    >>> level = torch.tensor([1.0, 0.0, 0.0, 0.0]).expand(1, 3, 4)
    >>> rotation.log(with_heading(level, torch.tensor([[0.1, 0.2]]), 2))[0, :, 2]
    tensor([0.1000, 0.1000, 0.2000])
    """
    angles = headings.repeat_interleave(block, 1)[:, : path.shape[1]]
    zero = torch.zeros_like(angles)
    return rotation.multiply(rotation.exp(torch.stack((zero, zero, angles), -1)), path)


def select(condition: Bool[Tensor, "B"], a: Any, b: Any) -> Any:
    """``a`` for the batch items where the condition holds, else ``b``: states of the same filter."""
    leaves = []
    for (_, x), (_, y) in zip(named_leaves(a), named_leaves(b), strict=True):
        leaves.append(torch.where(condition.reshape(-1, *[1] * (x.ndim - 1)), x, y))
    return tree_unflatten(a, iter(leaves))
