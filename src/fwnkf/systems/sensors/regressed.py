"""A sensor whose function is not known: a linear function of the state, fitted to states and measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...core.gaussian import matvec
from ...core.motion import Linearity
from ...core.sensor_definition import SensorDefinition
from ...core.system import as_layout
from ...registry import SENSORS, at_least


@dataclass(frozen=True)
class RegressedConfig:
    """State and channels of a :class:`Regressed` sensor.

    >>> Regressed(RegressedConfig(state_dim=3, channels=2)).H.shape
    torch.Size([2, 4])
    """

    state_dim: int = at_least(1, 1)
    """Number of components of the state."""
    channels: int = at_least(1, 1)
    """Number of channels."""
    layout: tuple[Any, ...] = ()
    """Name, kind and size of the parts of the state; by default Euclidean."""
    correlated: bool = False
    """Whether the noise of the channels is correlated."""


@SENSORS.register("regressed")
class Regressed(SensorDefinition):
    """``y = H [1, f(x)] + v``, ``f`` the features of the state: its numbers, cosine and sine of its angles.

    :func:`fwnkf.identify.fit_observation` fits ``H`` and ``R``. It reads the whole state of the motion.

    Args:
        config: sizes.

    >>> import torch
    >>> Regressed(RegressedConfig(state_dim=2)).observe(torch.tensor([3.0, 4.0]))
    tensor([3.])
    """

    Config = RegressedConfig
    arguments = ("x",)
    H: Tensor
    R: Tensor

    def __init__(self, config: RegressedConfig) -> None:
        super().__init__(config, config.channels)
        self.domain, self.diagonal_noise = as_layout(config.layout, config.state_dim), not config.correlated
        m, size = config.channels, self.domain.feature_size
        self.register_buffer("H", torch.nn.functional.pad(torch.eye(m, size), (1, 0)))
        self.register_buffer("R", torch.eye(m))

    @property
    def linearity(self) -> Linearity:
        return "time_varying" if self.domain.flat else "state_dependent"

    def observe(self, *parts: Tensor) -> Tensor:
        return matvec(self.H[:, 1:], self.domain.features(parts[0])) + self.H[:, 0]

    def linearize(self, *parts: Tensor) -> tuple[Tensor, Tensor]:
        H = self.H[:, 1:]
        return self.observe(*parts), H if self.domain.flat else H @ self.domain.features_jacobian(parts[0])

    def measurement_covariance(self) -> Tensor:
        return self.R
