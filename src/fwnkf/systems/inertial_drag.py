"""Inertial navigation of a multirotor: the drag of its rotors makes the accelerometer a sensor of velocity.

Thrust has no part across the axis of the rotors, so what the accelerometer reads there is drag, ``f = -K v``, next to
the lever arm of the sensor and an offset (Abeywardena et al. 2013, Leishman et al. 2014). That holds while it flies:
how strongly the sensor shakes and stirs says whether it flies, stands, or is carried by hand with its rotors off.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..core import rotation
from ..core.gaussian import block_diagonal, matvec
from ..core.layout import Layout
from ..errors import ConfigError
from ..registry import SYSTEMS, at_least
from ..shapes import Bool, Float
from ..types import Gaussian
from .inertial_calibrated import CalibratedStrapdown, CalibratedStrapdownConfig, Sighting

READ = 6
"""What velocity across the rotors' axis is read from: two forces, three angular accelerations, one."""
SETTLED = 4
"""Blocks before the first that may count as standing: a spread of fewer says little."""


@dataclass(frozen=True)
class DragStrapdownConfig(CalibratedStrapdownConfig):
    """As :class:`CalibratedStrapdownConfig`, and how to tell flying from standing.

    The sensor is read in blocks of samples. Shaking is the second difference of the specific force (m/s², root mean
    square), stirring the standard deviation of the means of blocks, of the angular rate (rad/s) and of the specific
    force (m/s²); each over the last ``recent`` blocks or as many as there are. The vehicle stands where it stirs less
    than ``still``, from the fifth block on, and flies where it does not stand and shakes more than ``flying``; in
    between, in a hand with the rotors off, nothing is known of its velocity. ``variances`` has five numbers.
    """

    block: int = at_least(1, 10)
    flying: float = at_least(0.0, 2.5)
    still: tuple[float, ...] = (0.025, 0.12)
    recent: int = at_least(1, 10)


@SYSTEMS.register("drag_strapdown")
class DragStrapdown(CalibratedStrapdown):
    """A calibrated strapdown that sees velocity across the axis of its rotors in flight, and all of it when it stands.

    The observation is ``(A R(q)ᵀ v)₂,₃ + o`` and ``R(q)ᵀ v``, with ``A`` the rotation ``axes`` that turns the axis of
    the rotors into the first. The former is read off each block of samples in flight: ``D (f₂, f₃, α₁, α₂, α₃, 1)``,
    where ``f`` is the specific force in those axes and ``α`` the change of the angular rate from block to block. The
    latter is zero while it stands. Two more pairs of numbers stay as they are throughout a flight: ``tilt``, the
    horizontal acceleration by which gravity is off in the frame of the given start, and the offset ``o``.

    >>> import torch
    >>> system = DragStrapdown(DragStrapdownConfig())
    >>> system.sight(torch.zeros(1, 100, 6)).mask[0].any(0).tolist()  # it stands
    [False, False, True, True, True]
    """

    Config = DragStrapdownConfig
    axes: Tensor
    drag: Tensor
    tilt_spread: Tensor
    """Standard deviations of the tilt from one frame to the next, m/s²."""
    offset_spread: Tensor
    """Standard deviations of the offset from one flight to the next, m/s."""

    def __init__(self, config: DragStrapdownConfig) -> None:
        super().__init__(config)
        if not config.biases:
            raise ConfigError("system drag_strapdown: biases = False; its state has them: leave biases = True")
        parts = [(part.name, part.kind, part.size) for part in self.layout.parts]
        self.layout = Layout.parse([*parts, ("tilt", "euclidean", 2), ("offset", "euclidean", 2)])
        self.observation_layout = Layout.parse([("across", "euclidean", 2), ("standing", "euclidean", 3)])
        self.register_buffer("eye", torch.eye(self.layout.tangent_size), persistent=False)
        self.register_buffer("axes", torch.eye(3))
        self.register_buffer("drag", torch.zeros(2, READ))
        self.register_buffer("tilt_spread", torch.zeros(2))
        self.register_buffer("offset_spread", torch.zeros(2))

    # ---- motion ---------------------------------------------------------------------------------------------

    def transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> Tensor:
        return self._leaned(x, super().transition(x, u, dt), dt)

    def linearize_transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        moved, F = super().linearize_transition(x, u, dt)
        step = self._seconds(x, dt).unsqueeze(-1)
        level = self.eye[:3, :2]
        by_tilt = torch.cat((0.5 * step * step * level, step * level, torch.zeros_like(F[..., 6:, :2])), -2)
        above = nn.functional.pad(torch.cat((F, by_tilt), -1), (0, 2))
        below = self.eye[-4:].expand(*F.shape[:-2], 4, -1)
        return self._leaned(x, moved, dt), torch.cat((above, below), -2)

    def _leaned(self, x: Tensor, moved: Tensor, dt: Tensor | None) -> Tensor:
        return self._pulled(moved, nn.functional.pad(x[..., 16:18], (0, 1)), dt)

    def process_noise(self, dt: Tensor | None) -> Tensor:
        return nn.functional.pad(super().process_noise(dt), (0, 4, 0, 4))

    def start(self, given: Gaussian) -> Gaussian:
        begun = super().start(given)
        spread = torch.cat((self.tilt_spread, self.offset_spread)).square().diag()
        return Gaussian(nn.functional.pad(begun.mean, (0, 4)), block_diagonal(begun.cov, spread))

    # ---- sight ----------------------------------------------------------------------------------------------

    def observe(self, x: Tensor) -> Tensor:
        seen = super().observe(x)
        return torch.cat((matvec(self.axes[1:], seen) + x[..., 18:], seen), -1)

    def linearize_observation(self, x: Tensor) -> tuple[Tensor, Tensor]:
        seen, H = super().linearize_observation(x)
        across = self.axes[1:] @ H + self.eye[-2:]
        return torch.cat((matvec(self.axes[1:], seen) + x[..., 18:], seen), -1), torch.cat((across, H), -2)

    def measurement_covariance(self) -> Tensor:
        return torch.diag_embed(self.eye.new_tensor(self.config.variances or [self.config.variance] * 5))

    def blocks(self, imu: Float[Tensor, "B T 6"]) -> Float[Tensor, "B K 6"]:
        """Means over whole blocks of samples."""
        whole = imu.shape[1] // self.config.block * self.config.block
        return imu[:, :whole].unflatten(1, (-1, self.config.block)).mean(2)

    def features(self, imu: Float[Tensor, "B T 6"]) -> Float[Tensor, "B K 6"]:
        """What drag is read from, for whole blocks; the first block has none before it and counts as steady."""
        rate, force = self.blocks(imu).unflatten(-1, (2, 3)).unbind(-2)
        change = nn.functional.pad(matvec(self.axes, rate).diff(dim=1), (0, 0, 1, 0))
        across = matvec(self.axes, force)[..., 1:]
        return torch.cat((across, change / (self.config.block * self.dt), torch.ones_like(across[..., :1])), -1)

    def modes(self, imu: Float[Tensor, "B T 6"]) -> tuple[Bool[Tensor, "B K"], Bool[Tensor, "B K"]]:
        """Whether it flies and whether it stands, at the end of each block."""
        means = self.blocks(imu)
        second = nn.functional.pad(imu[..., 3:].diff(n=2, dim=1), (0, 0, 2, 0)).square().sum(-1, keepdim=True)
        whole = means.shape[1] * self.config.block
        shaking = self._recent(second[:, :whole].unflatten(1, (-1, self.config.block)).mean(2).sqrt())[..., 0]
        centred = means - means[:, :1]  # differences of large squares would be lost in float32
        stirring = (self._recent(centred.square()) - self._recent(centred).square()).clamp_min(0.0)
        rate, force = stirring.unflatten(-1, (2, 3)).sum(-1).sqrt().unbind(-1)
        still = (rate < self.config.still[0]) & (force < self.config.still[1])
        stands = still & (torch.arange(still.shape[1], device=imu.device) >= SETTLED)
        return (shaking > self.config.flying) & ~stands, stands

    def _recent(self, values: Float[Tensor, "B K c"]) -> Float[Tensor, "B K c"]:
        """The mean over the last blocks, or as many as there are."""
        total, recent = values.cumsum(1), self.config.recent
        before = nn.functional.pad(total, (0, 0, recent, 0))[:, : total.shape[1]]
        count = torch.arange(1, total.shape[1] + 1, device=values.device).clamp_max(recent)
        return (total - before) / count.to(values).unsqueeze(-1)

    def sight(self, imu: Float[Tensor, "B T 6"], site: Float[Tensor, "B s"] | None = None) -> Sighting:
        """Control and velocities of whole records, causal: what stands at a sample was known by then."""
        flies, stands = (mode.unsqueeze(-1) for mode in self.modes(imu))
        read = nn.functional.pad(matvec(self.drag, self.features(imu)), (0, 3))
        seen = torch.cat((flies.expand(-1, -1, 2), stands.expand(-1, -1, 3)), -1)
        ends = torch.arange(read.shape[1], device=imu.device) * self.config.block + self.config.block - 1
        blank = torch.zeros_like(imu[..., :5])
        y = blank.index_copy(1, ends, torch.where(seen, read, 0.0))
        mask = torch.zeros_like(blank, dtype=torch.bool).index_copy(1, ends, seen)
        return Sighting(y, mask, super().sight(imu, site).u)


def axes_of(thrust: Float[Tensor, " 3"]) -> Float[Tensor, "3 3"]:
    """The shortest rotation that turns ``thrust`` into the first axis."""
    first = torch.zeros_like(thrust)
    first[0] = 1.0
    unit = thrust / thrust.norm()
    around = torch.linalg.cross(unit, first)
    sine = around.norm()
    if float(sine) == 0.0:
        return torch.eye(3).to(thrust)
    return rotation.to_matrix(rotation.exp(around / sine * torch.atan2(sine, unit[0])))
