"""The model of a system: transition, observation and their noise.

The EKF, the UKF, KalmanNet and the FW-NKF all work on a :class:`System`. Jacobians are computed by automatic
differentiation unless the system defines its own, which are faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..errors import ConfigError
from ..registry import SYSTEMS, parse_config
from ..shapes import Float
from ..types import Gaussian
from . import constrain, linearize
from .gaussian import DiagonalNoise, FullNoise, Noise
from .layout import Layout


class System(nn.Module):
    """Transition, observation and noise of a system. Subclass it, and register the subclass to save filters on it.

    ``dt`` is the nominal step in seconds, used where a call has no ``dt``. ``diagonal_noise`` declares the channels of
    the measurement noise independent, which allows the fastest updates.
    """

    Config: ClassVar[type]
    layout: Layout
    observation_layout: Layout
    control_dim: int = 0
    dt: float = 1.0
    diagonal_noise: bool = False

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config

    @property
    def takes_dt(self) -> bool:
        """Whether ``dt`` can be given for each step; a discrete system has a fixed step length."""
        return True

    initial_steps: int = 0
    """Number of steps that :meth:`initial_belief` reads; 0 for a system that needs a prior."""

    def initial_belief(
        self, y: Float[Tensor, "B k m"], weight: Float[Tensor, "B k m"], u: Float[Tensor, "B k p"] | None
    ) -> Gaussian:
        """The belief before the first step, from the first ``k ≤ initial_steps`` steps of a recording."""
        raise NotImplementedError

    def complete_prior(self, prior: Gaussian) -> Gaussian:
        """Complete a prior on the first parts of the state with the system's own prior on the other parts."""
        return prior

    def transition(
        self, x: Float[Tensor, "B n"], u: Float[Tensor, "B p"] | None, dt: Float[Tensor, "B"] | None
    ) -> Float[Tensor, "B n"]:
        """The next state without noise."""
        raise NotImplementedError

    def observe(self, x: Float[Tensor, "*B n"]) -> Float[Tensor, "*B m"]:
        """The measurement without noise; must accept any number of leading axes."""
        raise NotImplementedError

    def process_noise(self, dt: Float[Tensor, "B"] | None) -> Float[Tensor, "*B d d"]:
        """``Q`` of one step."""
        raise NotImplementedError

    def measurement_covariance(self) -> Float[Tensor, "m m"]:
        """``R``."""
        raise NotImplementedError

    def linearize_transition(
        self, x: Float[Tensor, "B n"], u: Float[Tensor, "B p"] | None, dt: Float[Tensor, "B"] | None
    ) -> tuple[Float[Tensor, "B n"], Float[Tensor, "*B d d"]]:
        """The next state and its Jacobian ``F`` in the tangent space."""
        return linearize.jacobian(lambda z: self.transition(z, u, dt), x, self.layout, self.layout)

    def linearize_observation(self, x: Float[Tensor, "B n"]) -> tuple[Float[Tensor, "B m"], Float[Tensor, "*B m d"]]:
        """The measurement and its Jacobian ``H`` in the tangent space."""
        return linearize.jacobian(self.observe, x, self.layout, self.observation_layout)

    def measurement_noise(self) -> Noise:
        """``R`` in the form that the updates take."""
        R = self.measurement_covariance()
        return DiagonalNoise(torch.diagonal(R, dim1=-2, dim2=-1)) if self.diagonal_noise else FullNoise(R)


class Covariance(nn.Module):
    """A covariance that is either fixed (zeros allowed) or learned (positive definite by construction)."""

    value: Tensor

    def __init__(self, value: Tensor, learn: bool) -> None:
        super().__init__()
        self.learn = learn
        if learn:
            log_std, slopes = constrain.inverse_covariance(value)
            self.log_std = nn.Parameter(log_std.clone())
            self.slopes = nn.Parameter(slopes.clone())
        else:
            self.register_buffer("value", value.clone())

    def forward(self) -> Float[Tensor, "n n"]:
        if self.learn:
            return constrain.covariance(self.log_std, self.slopes)
        return self.value


def build_system(name: str, config: dict[str, Any]) -> System:
    """Build a registered system from its name and plain configuration; its tensors are loaded afterwards."""
    cls = SYSTEMS[name]
    return cls(parse_config(cls.Config, config, f"system {name}"))


def as_layout(parts: Sequence[Any], state_dim: int) -> Layout:
    """The layout of a config: its named parts if there are any, otherwise Euclidean."""
    layout = Layout.parse(parts) if parts else Layout.euclidean(state_dim)
    if layout.size != state_dim:
        raise ConfigError(f"the layout has {layout.size} components, but state_dim = {state_dim}; make them equal")
    return layout
