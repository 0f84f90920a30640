"""What a system implements: a motion, the observation, their noise, and Jacobians where they should be fast."""

from __future__ import annotations

import torch
from torch import Tensor

from ..shapes import Float
from . import linearize
from .gaussian import DiagonalNoise, FullNoise, Noise
from .layout import Layout
from .motion import Linearity, Motion, least_linear


class SystemDefinition(Motion):
    """The methods of a system, see :class:`~fwnkf.System`; Jacobians are by automatic differentiation by default."""

    observation_layout: Layout
    """Parts of the measurement."""
    diagonal_noise: bool = False
    """Whether the channels of the measurement noise are independent, which allows the fastest updates."""

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

    def observe(self, x: Float[Tensor, "*B n"]) -> Float[Tensor, "*B m"]:
        """The measurement without noise; must accept any number of leading axes.

        Args:
            x: the state.

        Returns:
            What the sensors would measure.
        """
        raise NotImplementedError

    def measurement_covariance(self) -> Float[Tensor, "m m"]:
        """The covariance ``R`` of the measurement noise.

        Returns:
            ``R``.
        """
        raise NotImplementedError

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
