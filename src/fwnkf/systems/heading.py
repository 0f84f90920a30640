"""Heading from a magnetometer, for a sensor whose tilt another filter knows.

The other filter (see :mod:`.attitude`) tells up from down, and turns about the vertical with the gyroscope: its north
drifts. The magnetometer shows by how much. Indoors the earth's field is bent by iron in the building, and whatever is
fixed to the sensor may be a magnet. Both are states: what turns with the sensor (``magnet``) can be told from what does
not (``local``) once the sensor turns. The tilt is left alone: a bent field knows less of it than gravity does.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import rotation
from ..core.gaussian import matvec
from ..core.layout import Layout
from ..core.system import System
from ..registry import SYSTEMS, at_least, limited
from ..shapes import Float

UP = (0.0, 0.0, 1.0)


@dataclass(frozen=True)
class HeadingConfig:
    """How a gyroscope's heading drifts, and what a magnetometer reads; fields in µT.

    ``field`` is the earth's, east, north and up; an east part says that magnetic north is not the north wanted. The
    drift has a bias (``bias_std`` rad/s at the start, ``bias_walk``), an error in parts of the rate (``rate_std``,
    memory ``rate_seconds``) and white noise (``density``). ``magnet_std`` is that of a magnet on the sensor,
    ``local_std`` that of the bent field, which changes within ``local_seconds``, ``magnetometer_std`` that of one
    observation. ``magnetometer_delay`` is the age of a reading in seconds, for those who prepare the observations.
    """

    field: tuple[float, ...] = (0.0, 15.0, -41.0)
    heading_std: float = limited(0.1, above=0.0)
    bias_std: float = limited(1e-3, above=0.0)
    bias_walk: float = limited(2e-5, above=0.0)
    rate_std: float = limited(6e-3, above=0.0)
    rate_seconds: float = limited(1.0, above=0.0)
    density: float = limited(1e-3, above=0.0)
    magnet_std: float = limited(1.0, above=0.0)
    local_std: float = limited(1.5, above=0.0)
    local_seconds: float = limited(8.0, above=0.0)
    magnetometer_std: float = limited(3.0, above=0.0)
    magnetometer_delay: float = at_least(0.0, 0.0)
    dt: float = limited(0.084, above=0.0)


@SYSTEMS.register("heading")
class Heading(System):
    """The turn ``δ`` about the vertical from the other filter's frame to the world; ``u = (|ω|, orientation there)``.

    ``δ⁺ = δ + dt (b + |ω| d)``, ``d⁺ = r d``, ``local⁺ = ρ local``; the orientation ``q`` is a state only to carry it
    to the observation: the field in the other filter's frame, ``Rz(δ)ᵀ (field + local) + R(q) magnet``.

    >>> import torch
    >>> system = Heading(HeadingConfig())
    >>> system.observe(system.layout.origin(torch.zeros(()))).tolist()
    [0.0, 15.0, -41.0]
    """

    Config = HeadingConfig
    control_dim = 5
    diagonal_noise = True
    field: Tensor
    eye: Tensor
    up: Tensor

    def __init__(self, config: HeadingConfig) -> None:
        super().__init__(config)
        self.dt = config.dt
        drift = [("heading", "angle", 1), ("bias", "euclidean", 1), ("rate_error", "euclidean", 1)]
        fields = [("magnet", "euclidean", 3), ("local", "euclidean", 3)]
        self.layout = Layout.parse([*drift, *fields, ("orientation", "quaternion", 4)])
        self.observation_layout = Layout.parse([("magnetometer", "euclidean", 3)])
        self.register_buffer("field", torch.tensor(config.field), persistent=False)
        self.register_buffer("eye", torch.eye(12), persistent=False)
        self.register_buffer("up", torch.tensor(UP), persistent=False)

    def transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> Tensor:
        turning, q = (x.new_zeros(*x.shape[:-1], 1), x[..., 9:]) if u is None else (u[..., :1], u[..., 1:5])
        step = self._seconds(dt)
        rate, local = self._kept(dt)
        angle = x[..., :1] + step * (x[..., 1:2] + turning * x[..., 2:3])
        return torch.cat((angle, x[..., 1:2], rate * x[..., 2:3], x[..., 3:6], local * x[..., 6:9], q), -1)

    def linearize_transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        turning = x.new_zeros(*x.shape[:-1], 1) if u is None else u[..., :1]
        step, one = self._seconds(dt), torch.ones_like(turning)
        rate, local = self._kept(dt)
        kept = one if u is None else torch.zeros_like(one)
        parts = [one, one, rate * one, *[one] * 3, *[local * one] * 3, *[kept] * 3]
        by_bias, by_error = (step * one).unsqueeze(-1), (step * turning).unsqueeze(-1)
        first = self.eye[:1].mT * (by_bias * self.eye[1] + by_error * self.eye[2])
        return self.transition(x, u, dt), torch.diag_embed(torch.cat(parts, -1)) + first

    def process_noise(self, dt: Tensor | None) -> Tensor:
        """A magnet stays as it is; rate error and bent field keep their variance; the orientation is given."""
        config, step = self.config, self._seconds(dt)
        rate, local = self._kept(dt)
        drift = (config.density**2 * step, config.bias_walk**2 * step, config.rate_std**2 * (1 - rate**2))
        bent = [config.local_std**2 * (1 - local**2)] * 3
        zero = [torch.zeros_like(step)] * 3
        return torch.diag_embed(torch.cat((*drift, *zero, *bent, *zero), -1))

    def observe(self, x: Tensor) -> Tensor:
        return self._earth(x)[0] + matvec(rotation.to_matrix(x[..., 9:]), x[..., 3:6])

    def linearize_observation(self, x: Tensor) -> tuple[Tensor, Tensor]:
        earth, turn = self._earth(x)
        R = rotation.to_matrix(x[..., 9:])
        # d Rz(δ)ᵀ f / dδ = -ẑ × Rz(δ)ᵀ f
        by_heading = torch.linalg.cross(earth, self.up.expand_as(earth)).unsqueeze(-1)
        by_orientation = -R @ rotation.skew(x[..., 3:6])
        H = torch.cat((by_heading, torch.zeros_like(R[..., :2]), R, turn, by_orientation), -1)
        return earth + matvec(R, x[..., 3:6]), H

    def measurement_covariance(self) -> Tensor:
        return self.config.magnetometer_std**2 * self.eye[:3, :3]

    def start_variances(self) -> Float[Tensor, "*B 12"]:
        """Of the first step, whose heading is what the magnetometer says."""
        config = self.config
        stds = [config.heading_std, config.bias_std, config.rate_std] + [config.magnet_std] * 3 + [config.local_std] * 3
        return self.eye.new_tensor([*stds, 0.0, 0.0, 0.0]).square()

    # ---- parts of a step ------------------------------------------------------------------------------------

    def _seconds(self, dt: Tensor | None) -> Float[Tensor, "*B 1"]:
        return self.eye.new_tensor([self.dt]) if dt is None else dt.unsqueeze(-1)

    def _kept(self, dt: Tensor | None) -> tuple[Float[Tensor, "*B 1"], Float[Tensor, "*B 1"]]:
        """What a step leaves of rate error and bent field."""
        step = self._seconds(dt)
        return (-step / self.config.rate_seconds).exp(), (-step / self.config.local_seconds).exp()

    def _earth(self, x: Tensor) -> tuple[Float[Tensor, "*B 3"], Float[Tensor, "*B 3 3"]]:
        """The field outside the sensor in the other filter's frame, and the turn into that frame."""
        turn = rotation.to_matrix(rotation.exp(-x[..., :1] * self.up))
        return matvec(turn, self.field + x[..., 6:9]), turn
