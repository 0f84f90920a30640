"""Steps of several samples: the last measurement of each block, and the control of all its samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..core.preprocess import Inputs, Preprocess
from ..core.system import System
from ..errors import ConfigError
from ..registry import PREPROCESS, at_least


@dataclass(frozen=True)
class LastSampleConfig:
    """Sizes of a :class:`LastSample`.

    >>> LastSample(LastSampleConfig(channels=3, block=4)).block
    4
    """

    channels: int = at_least(1, 1)
    """Channels of a measurement."""
    controls: int = at_least(0, 0)
    """Control inputs of one sample."""
    block: int = at_least(1, 1)
    """Samples in a block."""


@PREPROCESS.register("last_sample")
class LastSample(Preprocess):
    """One step for each block of samples: its last measurement, and the control of all its samples side by side.

    For a measurement that was low-pass filtered before, so that every ``block``-th sample has all of it, and a control
    whose course within a block matters. A channel that is missing in the last sample is missing in the step; ``dt`` is
    summed.

    Args:
        config: sizes.
        system: that of the filter, to check the sizes against.

    >>> import torch
    >>> unit = LastSample(LastSampleConfig(channels=1, controls=1, block=2))
    >>> samples = torch.tensor([[[1.0], [2.0]]])
    >>> inputs = unit((), Inputs(samples, torch.ones_like(samples), 10 * samples, None))[1]
    >>> inputs.y, inputs.u
    (tensor([[2.]]), tensor([[10., 20.]]))
    """

    Config = LastSampleConfig

    def __init__(self, config: LastSampleConfig, system: System | None = None) -> None:
        super().__init__(config)
        self.observation_dim, self.control_dim, self.block = config.channels, config.controls, config.block
        if system is not None and (system.observation_layout.size, system.control_dim) != (
            config.channels,
            config.controls * config.block,
        ):
            raise ConfigError(
                f"preprocess last_sample: {config.channels} channels and {config.block} x {config.controls} control "
                f"inputs, but the system has {system.observation_layout.size} and {system.control_dim}"
            )

    def forward(self, state: Any, raw: Inputs) -> tuple[Any, Inputs]:
        if self.block == 1:
            return state, raw
        u, dt = (None if raw.u is None else raw.u.flatten(1)), (None if raw.dt is None else raw.dt.sum(1))
        return state, Inputs(raw.y[:, -1], raw.weight[:, -1], u, dt)
