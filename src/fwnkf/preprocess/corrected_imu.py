"""An IMU calibrated and corrected by a network: raw samples to the turn and the force of each step.

The gyroscope's error depends on what the sensor goes through: vibration, force, rotation. Its constant and linear part
is a calibration; what is left is learned as a correction of the rate by causal convolutions over the samples of the
past (compare M. Brossard, S. Bonnabel, A. Barrau: Denoising IMU Gyroscopes With Deep Learning for Open-Loop Attitude
Estimation, IEEE Robotics and Automation Letters 5(3), 2020).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.convolutions import DilatedConvolutions, Past
from ..core.gaussian import matvec
from ..core.preprocess import Inputs, Preprocess
from ..core.system import System
from ..errors import ConfigError
from ..registry import PREPROCESS, at_least, limited
from ..shapes import Float
from .preintegration import Preintegrated, exponential_mean, hold_last, preintegrate


@dataclass(frozen=True)
class CorrectedIMUConfig:
    """Sampling, the sizes of the network, and how rest is detected.

    >>> CorrectedIMU(CorrectedIMUConfig(block=8, taps=7, dilations=(1, 4, 16))).network.memory
    126
    """

    sample_rate: float = limited(200.0, above=0.0)
    """Samples per second (Hz)."""
    block: int = at_least(1, 8)
    """Samples in one step; the network reads all of them, and its correction is constant over them."""
    channels: int = at_least(0, 32)
    """Channels of the layers of the network; 0 for a calibration without network."""
    taps: int = at_least(1, 7)
    """Taps of each layer."""
    dilations: tuple[int, ...] = at_least(1, (1, 4, 16))
    """Steps from one tap to the next, for each layer."""
    dropout: float = limited(0.0, min=0.0, max=1.0)
    """Probability that a number of a layer's addition is left out in training."""
    rest_seconds: float = limited(0.5, above=0.0)
    """Time for which the sensor must have been still to be at rest (s)."""
    rest_mean_seconds: float = limited(0.5, above=0.0)
    """Time constant of the means and variances that tell whether it is still (s)."""
    rest_rate: float = limited(0.02, above=0.0)
    """Largest standard deviation of the rate of a still sensor, and a bound of its mean (rad/s)."""
    rest_force: float = limited(0.3, above=0.0)
    """Largest standard deviation of the force of a still sensor (m/s²)."""


class RestMemory(NamedTuple):
    """Exponential means of the samples and of their squares, the seconds for which the sensor has been still."""

    mean: Float[Tensor, "B 6"]
    square: Float[Tensor, "B 6"]
    still: Float[Tensor, "B"]
    started: Float[Tensor, "B"]


class CorrectedMemory(NamedTuple):
    """The last calibrated sample, the past of the network, and whether the sensor is at rest."""

    last: Float[Tensor, "B 6"]
    past: Past
    rest: RestMemory


@PREPROCESS.register("corrected_imu")
class CorrectedIMU(Preprocess):
    """Samples ``(gyroscope rad/s, accelerometer m/s²)``: ``z = A (y - b)``, the rate of ``z`` plus a network's output.

    Gives ``u``, the constant rate with the same total rotation as the corrected samples of the block, and ``y``, the
    mean force in the frame halfway through it, for a filter on :class:`~fwnkf.systems.GravityAttitude`. If that
    observes the rate at rest, it is given too, and masked while the sensor moves. ``A`` holds scale factors,
    misalignment and sensitivity of the gyroscope to the force. Before training the network adds nothing.
    A missing sample is replaced by the one before it, zero at the start; the force of an axis is missing if all of its
    samples in the block are.

    Args:
        config: sampling and sizes.
        system: that of the filter, to check the sizes against.
        bias: ``b``; by default zero.
        matrix: ``A``; by default the identity.

    >>> unit = CorrectedIMU(CorrectedIMUConfig(sample_rate=100.0, block=2), bias=torch.tensor([0.1, 0, 0, 0, 0, 0]))
    >>> samples = torch.tensor([[[0.1, 0, 0.3, 0, 0, 9.8], [0.1, 0, 0.5, 0, 0, 9.8]]])
    >>> inputs = unit(unit.init(1, samples), Inputs(samples, torch.ones_like(samples), None, None))[1]
    >>> inputs.u.detach(), inputs.y.detach()
    (tensor([[0.0000, 0.0000, 0.4000]]), tensor([[0.0000, 0.0000, 9.8000]]))
    """

    Config = CorrectedIMUConfig
    observation_dim = 6
    bias: Tensor
    matrix: Tensor

    def __init__(
        self,
        config: CorrectedIMUConfig,
        system: System | None = None,
        *,
        bias: Tensor | None = None,
        matrix: Tensor | None = None,
    ) -> None:
        super().__init__(config)
        self.block = config.block
        self._observed = 3 if system is None else system.observation_layout.size
        if system is not None and (self._observed not in (3, 6) or system.control_dim != 3):
            raise ConfigError(
                "preprocess corrected_imu gives a force (3), or a force and the rate at rest (6), and a rate (3) as "
                f"control, but the system observes {self._observed} channels and takes {system.control_dim} control "
                "inputs"
            )
        self.register_buffer("bias", torch.zeros(6) if bias is None else bias.clone())
        self.register_buffer("matrix", torch.eye(6) if matrix is None else matrix.clone())
        self.network: DilatedConvolutions | None = None
        if config.channels:
            self.network = DilatedConvolutions(
                6 * config.block,
                config.channels,
                3,
                taps=config.taps,
                dilations=config.dilations,
                dropout=config.dropout,
            )

    def init(self, batch: int, like: Tensor) -> CorrectedMemory:
        six, zero = like.new_zeros(batch, 6), like.new_zeros(batch)
        past = () if self.network is None else self.network.start(batch, like)
        return CorrectedMemory(six, past, RestMemory(six, six, zero, zero))

    def forward(self, state: CorrectedMemory, raw: Inputs) -> tuple[CorrectedMemory, Inputs]:
        samples = raw.y.reshape(len(raw.y), self.block, 6)
        weight = raw.weight.reshape(samples.shape)
        held = hold_last(self.calibrated(samples), self._known(weight), state.last)
        past, correction = self._correct(state.past, held.unsqueeze(1))
        dt = self._seconds(samples, raw.dt)
        block = self.integrated(held, correction[:, 0], dt)
        rest = self._rest(state.rest, held, dt.sum(-1))
        y, measured = block.force, weight[..., 3:].amax(1)
        if self._observed == 6:
            still = (rest.still >= self.config.rest_seconds).to(y).unsqueeze(-1)
            y = torch.cat((y, block.rate), -1)
            measured = torch.cat((measured, still * weight[..., :3].amax(1)), -1)
        inputs = Inputs(y, measured, block.rate, None if raw.dt is None else dt.sum(-1))
        return CorrectedMemory(held[:, -1], past, rest), inputs

    def calibrated(self, samples: Float[Tensor, "*B 6"]) -> Float[Tensor, "*B 6"]:
        """``A (y - b)``.

        Args:
            samples: raw samples.

        Returns:
            Rate and force.
        """
        return matvec(self.matrix, samples - self.bias)

    def integrated(
        self, samples: Float[Tensor, "*B N 6"], correction: Float[Tensor, "*B 3"], dt: Float[Tensor, "*B N"]
    ) -> Preintegrated:
        """One rate and one force of each block.

        Args:
            samples: calibrated samples of each block.
            correction: what is added to the rate of all samples of the block.
            dt: lengths of the samples in seconds.

        Returns:
            The preintegrated blocks.
        """
        return preintegrate(samples[..., :3] + correction.unsqueeze(-2), samples[..., 3:], dt)

    def corrections(self, samples: Float[Tensor, "B T 6"]) -> Float[Tensor, "B K 3"]:
        """The network's output for each whole block of complete sequences, in one pass: what training needs.

        Args:
            samples: raw samples without missing ones.

        Returns:
            Corrections of the rate (rad/s).
        """
        steps = samples.shape[1] // self.block
        whole = self.calibrated(samples[:, : steps * self.block])
        start = self.init(len(whole), whole)
        return self._correct(start.past, whole.reshape(len(whole), steps, self.block, 6))[1]

    def whole(self, samples: Float[Tensor, "B T 6"], weight: Float[Tensor, "B T 6"]) -> Inputs:
        """The inputs of the filter for complete sequences of samples of nominal length, as steps from the start give.

        All but the detection of rest is done for the whole sequence at once, which is faster than steps by far.

        Args:
            samples: raw samples, of any value where missing.
            weight: 1 where a channel was measured, else 0.

        Returns:
            One input for each whole block.
        """
        steps = samples.shape[1] // self.block
        shape = (len(samples), steps, self.block, 6)
        weight = weight[:, : steps * self.block]
        raw = torch.where(weight > 0, samples[:, : steps * self.block], 0.0)
        start = self.init(len(raw), raw)
        held = hold_last(self.calibrated(raw), self._known(weight), start.last).reshape(shape)
        correction = self._correct(start.past, held)[1]
        block = self.integrated(held, correction, held.new_full(shape[:3], 1 / self.config.sample_rate))
        measured = weight.reshape(shape).amax(2)
        if self._observed == 3:
            return Inputs(block.force, measured[..., 3:], block.rate, None)
        rest, still = start.rest, []
        seconds = held.new_full((len(raw),), self.block / self.config.sample_rate)
        for samples_now in held.unbind(1):
            rest = self._rest(rest, samples_now, seconds)
            still.append(rest.still >= self.config.rest_seconds)
        resting = torch.stack(still, 1).to(held).unsqueeze(-1)
        observed = torch.cat((measured[..., 3:], resting * measured[..., :3]), -1)
        return Inputs(torch.cat((block.force, block.rate), -1), observed, block.rate, None)

    def _correct(self, past: Past, samples: Float[Tensor, "B K N 6"]) -> tuple[Past, Float[Tensor, "B K 3"]]:
        """The correction of the rate in each of the next blocks."""
        if self.network is None:
            return past, samples.new_zeros(*samples.shape[:2], 3)
        return self.network.run(past, samples.flatten(2))

    def _rest(self, state: RestMemory, samples: Tensor, seconds: Tensor) -> RestMemory:
        decay, started = (-seconds / self.config.rest_mean_seconds).exp(), state.started > 0
        mean = exponential_mean(state.mean, samples.mean(1), decay, started)
        square = exponential_mean(state.square, samples.square().mean(1), decay, started)
        spread = (square - mean.square()).clamp_min(0).sqrt()
        quiet = (
            (spread[:, :3].amax(-1) < self.config.rest_rate)
            & (spread[:, 3:].amax(-1) < self.config.rest_force)
            & (mean[:, :3].abs().amax(-1) < self.config.rest_rate)
        )
        still = torch.where(quiet, state.still + seconds, 0.0)
        return RestMemory(mean, square, still, torch.ones_like(state.started))

    def _known(self, weight: Tensor) -> Tensor:
        """1 where all raw channels were measured that a calibrated channel is made of."""
        return (matvec((self.matrix != 0).to(weight), 1 - weight) == 0).to(weight)

    def _seconds(self, samples: Tensor, dt: Tensor | None) -> Tensor:
        if dt is None:
            return samples.new_full(samples.shape[:2], 1 / self.config.sample_rate)
        return dt.reshape(samples.shape[:2])
