"""What a system implements: transition, observation, their noise, and Jacobians where they should be fast."""

from __future__ import annotations

import sys
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from ..errors import ConfigError, shown
from ..shapes import Float
from ..types import Gaussian, Statistics
from . import linearize
from .gaussian import DiagonalNoise, FullNoise, Noise
from .layout import Layout

LARGEST = sys.float_info.max
Linearity = Literal["constant", "time_varying", "state_dependent"]
"""What the Jacobians of a function depend on, from the simplest to the most general:

- ``"constant"``: on ``dt`` alone. The transition is ``F(dt) x + B(dt) u``, the measurement ``H x``.
- ``"time_varying"``: on ``dt`` and the control ``u``, which are known before the filter runs, but not on the state. The
  transition is ``F(u, dt) x + c(u, dt)``, the measurement ``H x + c``.
- ``"state_dependent"``: on the state too, as far as anyone has said.
"""


def least_linear(*parts: Linearity) -> Linearity:
    """The most general of these; ``"constant"`` of none.

    >>> least_linear("constant", "time_varying")
    'time_varying'
    """
    kinds: tuple[Linearity, ...] = get_args(Linearity)
    return kinds[max((kinds.index(part) for part in parts), default=0)]


class SystemDefinition(nn.Module):
    """The methods of a system, see :class:`~fwnkf.System`; Jacobians are by automatic differentiation by default."""

    Config: ClassVar[type]
    layout: Layout
    """Parts of the state."""
    observation_layout: Layout
    """Parts of the measurement."""
    control_dim: int = 0
    """Number of control inputs."""
    diagonal_noise: bool = False
    """Whether the channels of the measurement noise are independent, which allows the fastest updates."""
    diagonal_process: bool = False
    """Whether the process noise is known to be diagonal, for steps of every length."""
    discretizes: bool = False
    """Whether a step with ``dt`` takes a discretisation that a step of nominal length does not."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config

    @property
    def dt(self) -> float:
        """The nominal step in seconds, used where a call has no ``dt``; 1 if a system states none."""
        return self._nominal

    @dt.setter
    def dt(self, seconds: float) -> None:
        # here, where every system states it: a filter would go back in time, with covariances that are none
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds <= LARGEST:
            raise ConfigError(f"dt = {shown(seconds)}: the nominal step must be a positive number of seconds")
        self._nominal = float(seconds)

    _nominal: float = 1.0

    @property
    def takes_dt(self) -> bool:
        """Whether ``dt`` can be given for each step; a discrete system has a fixed step length."""
        return True

    @property
    def transition_linearity(self) -> Linearity:
        """What the Jacobian of the transition depends on, see :data:`Linearity`."""
        return "state_dependent"

    @property
    def observation_linearity(self) -> Linearity:
        """What the Jacobian of the observation depends on, see :data:`Linearity`."""
        return "state_dependent"

    @property
    def linearity(self) -> Linearity:
        """What the Jacobians of the system depend on: the more general of transition and observation.

        The system states it; it is not found out by trying. Angles and rotations of a layout are not considered: where
        a layout is not flat, ``F x`` holds up to wrapping.
        """
        return least_linear(self.transition_linearity, self.observation_linearity)

    @property
    def sensor_channels(self) -> dict[str, slice]:
        """The channels of each sensor by its name; by default the parts of the measurement are the sensors."""
        channels, begin = {}, 0
        for part in self.observation_layout.parts:
            channels[part.name] = slice(begin, begin + part.size)
            begin += part.size
        return channels

    initial_steps: int = 0
    """Number of steps that :meth:`initial_belief` reads; 0 for a system that needs a prior."""

    def initial_belief(
        self, y: Float[Tensor, "B k m"], weight: Float[Tensor, "B k m"], u: Float[Tensor, "B k p"] | None
    ) -> Gaussian:
        """The belief before the first step, from the first ``k ≤ initial_steps`` steps of a recording.

        Args:
            y: measurements of these steps, zero where masked.
            weight: 1 where a channel was measured, else 0.
            u: controls of these steps.

        Returns:
            The belief, ``[B, n]`` and ``[B, d, d]``.
        """
        raise NotImplementedError

    def prior(self) -> Gaussian | None:
        """The belief before any measurement, if the system states one.

        Returns:
            ``[n]`` and ``[d, d]``, or None.
        """
        return None

    def complete_prior(self, prior: Gaussian) -> Gaussian:
        """Complete a prior on the first parts of the state with the system's own prior on the other parts.

        Args:
            prior: a belief about all parts of the state, or about the first ones only.

        Returns:
            A belief about all parts.
        """
        return prior

    def normalize(self, statistics: Statistics) -> None:
        """Store the scales of training data in a system with networks; does nothing by default.

        Args:
            statistics: means and standard deviations of the training data.
        """

    def transition(
        self, x: Float[Tensor, "B n"], u: Float[Tensor, "B p"] | None, dt: Float[Tensor, "B"] | None
    ) -> Float[Tensor, "B n"]:
        """The next state without noise.

        Args:
            x: the state.
            u: the control since the last step; None for none.
            dt: the length of the step in seconds; None for the nominal one.

        Returns:
            The state after the step.
        """
        raise NotImplementedError

    def observe(self, x: Float[Tensor, "*B n"]) -> Float[Tensor, "*B m"]:
        """The measurement without noise; must accept any number of leading axes.

        Args:
            x: the state.

        Returns:
            What the sensors would measure.
        """
        raise NotImplementedError

    def process_noise(self, dt: Float[Tensor, "B"] | None) -> Float[Tensor, "*B d d"]:
        """The covariance ``Q`` of the process noise of one step.

        Args:
            dt: the length of the step in seconds; None for the nominal one.

        Returns:
            ``Q`` in the tangent space, ``[d, d]`` or one for each batch item.
        """
        raise NotImplementedError

    def measurement_covariance(self) -> Float[Tensor, "m m"]:
        """The covariance ``R`` of the measurement noise.

        Returns:
            ``R``.
        """
        raise NotImplementedError

    def linearize_transition(
        self, x: Float[Tensor, "B n"], u: Float[Tensor, "B p"] | None, dt: Float[Tensor, "B"] | None
    ) -> tuple[Float[Tensor, "B n"], Float[Tensor, "*B d d"]]:
        """The next state and its Jacobian ``F`` in the tangent space.

        Args:
            x: the state.
            u: the control since the last step; None for none.
            dt: the length of the step in seconds; None for the nominal one.

        Returns:
            The state after the step and ``F``, which may lack the batch axis.
        """
        return linearize.jacobian(lambda z: self.transition(z, u, dt), x, self.layout, self.layout)

    def linearize_observation(self, x: Float[Tensor, "B n"]) -> tuple[Float[Tensor, "B m"], Float[Tensor, "*B m d"]]:
        """The measurement and its Jacobian ``H`` in the tangent space.

        Args:
            x: the state.

        Returns:
            The measurement without noise and ``H``, which may lack the batch axis.
        """
        return linearize.jacobian(self.observe, x, self.layout, self.observation_layout)

    def measurement_noise(self) -> Noise:
        """``R`` in the form that the updates take.

        Returns:
            Variances if the channels are independent, else the matrix.
        """
        R = self.measurement_covariance()
        return DiagonalNoise(torch.diagonal(R, dim1=-2, dim2=-1)) if self.diagonal_noise else FullNoise(R)
