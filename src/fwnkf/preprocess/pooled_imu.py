"""An IMU that is both what a filter observes and what drives it, averaged over blocks of samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.preprocess import Calibration, CalibrationConfig, Inputs
from ..core.system import System
from ..errors import ConfigError
from ..registry import PREPROCESS


@dataclass(frozen=True)
class PooledIMUConfig(CalibrationConfig):
    """Channels of a raw sample, samples in a block, and which channels are observed and which are control inputs.

    >>> PooledIMU(PooledIMUConfig(block=8)).block
    8
    """

    channels: int = 6
    """Number of channels of a raw sample."""
    observed: tuple[int, ...] = (3, 4, 5)
    """Channels that become the observation."""
    control: tuple[int, ...] = (0, 1, 2)
    """Channels that become the control."""


@PREPROCESS.register("pooled_imu")
class PooledIMU(Calibration):
    """``y' = A (y - b)`` and the mean over a block, as :class:`Calibration`; channels become observation and control.

    Motion is driven by the sensor itself (gyroscope, accelerometer), so it takes no control from outside. A control
    channel without a sample in the whole block keeps its last value, zero at the start.

    Args:
        config: sizes and channels.
        system: that of the filter, to check the sizes against.
        bias: ``b``, one number for each channel; by default zero.
        matrix: ``A``; by default the identity.

    >>> unit = PooledIMU(PooledIMUConfig(block=2))
    >>> samples = torch.tensor([[[0.0, 0, 0, 1, 0, 9.8], [0.2, 0, 0, 3, 0, 9.8]]])
    >>> inputs = unit(unit.init(1, samples), Inputs(samples, torch.ones_like(samples), None, None))[1]
    >>> inputs.y, inputs.u
    (tensor([[2.0000, 0.0000, 9.8000]]), tensor([[0.1000, 0.0000, 0.0000]]))
    """

    Config = PooledIMUConfig

    def __init__(
        self,
        config: PooledIMUConfig,
        system: System | None = None,
        *,
        bias: Tensor | None = None,
        matrix: Tensor | None = None,
    ) -> None:
        super().__init__(config, bias=bias, matrix=matrix)
        wanted = {*config.observed, *config.control}
        if not wanted <= set(range(config.channels)):
            raise ConfigError(
                f"observed {config.observed} and control {config.control}: channels are 0 to {config.channels - 1}"
            )
        if system is not None and (len(config.observed), len(config.control)) != (
            system.observation_layout.size,
            system.control_dim,
        ):
            raise ConfigError(
                f"observed {config.observed} and control {config.control}: the system observes "
                f"{system.observation_layout.size} channels and takes {system.control_dim} control inputs"
            )

    def init(self, batch: int, like: Tensor) -> Any:
        return (like.new_zeros(batch, len(self.config.control)),)

    def forward(self, state: Any, raw: Inputs) -> tuple[Any, Inputs]:
        _, pooled = super().forward((), raw)
        observed, control = list(self.config.observed), list(self.config.control)
        u = torch.where(pooled.weight[..., control] > 0, pooled.y[..., control], state[0])
        return (u,), Inputs(pooled.y[..., observed], pooled.weight[..., observed], u, pooled.dt)
