"""Velocity of a multirotor from the drag of its rotors, and zero velocity on the ground, from raw samples of an IMU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core.gaussian import matvec
from ..core.preprocess import Inputs
from ..core.system import System
from ..errors import ConfigError
from ..registry import PREPROCESS
from ..shapes import Float
from ..systems.inertial_drag import STANDING_BLOCKS, DragStrapdown
from .strapdown_imu import Samples, StrapdownIMU, StrapdownIMUConfig


@dataclass(frozen=True)
class RotorDragConfig(StrapdownIMUConfig):
    """No options: axes, drag coefficients, thresholds and sizes of blocks are those of the system.

    >>> RotorDragConfig()
    RotorDragConfig()
    """


class BlockMemory(NamedTuple):
    """The last samples, the sums over the block so far, and the last blocks, newest last.

    A row of ``total`` or ``window`` is the six channels of the IMU and the vibration (the sum of squared second
    differences of the force in ``total``, its root mean square in ``window``). ``blocks`` counts whole blocks, up to
    the largest number that makes a difference.
    """

    samples: Samples
    total: Float[Tensor, "B 7"]
    filled: Float[Tensor, "B"]
    window: Float[Tensor, "B recent 7"]
    blocks: Float[Tensor, "B"]


@PREPROCESS.register("rotor_drag")
class RotorDrag(StrapdownIMU):
    """Raw samples to the control of every sample, and to velocities at the end of each block of samples.

    At the end of a block the first two channels are the velocity across the rotor axis, measured in flight, and the
    other three the velocity in the body frame, zero while the vehicle stands. All else is masked. Causal: nothing
    depends on later samples.

    Args:
        config: no options.
        system: that of the filter, a :class:`~fwnkf.systems.DragStrapdown`.

    >>> from fwnkf.systems import DragStrapdownConfig
    >>> unit = RotorDrag(RotorDragConfig(), DragStrapdown(DragStrapdownConfig(block=1)))
    >>> memory, sample = unit.init(1, torch.zeros(1)), Inputs(torch.zeros(1, 6), torch.ones(1, 6), None, None)
    >>> for _ in range(5):
    ...     memory, inputs = unit(memory, sample)
    >>> inputs.weight  # five equal samples: it stands
    tensor([[0., 0., 1., 1., 1.]])
    """

    Config = RotorDragConfig

    def __init__(self, config: RotorDragConfig, system: System | None = None) -> None:
        super().__init__(config, system)
        if not isinstance(system, DragStrapdown):
            raise ConfigError(
                f"preprocess 'rotor_drag' works with the system 'drag_strapdown', not with {type(system).__name__}"
            )
        self._drag = (system,)

    def init(self, batch: int, like: Tensor) -> Any:
        recent = self._drag[0].config.recent
        return BlockMemory(
            super().init(batch, like),
            like.new_zeros(batch, 7),
            like.new_zeros(batch),
            like.new_zeros(batch, recent, 7),
            like.new_zeros(batch),
        )

    def forward(self, state: Any, raw: Inputs) -> tuple[Any, Inputs]:
        (system,) = self._drag
        block, recent = system.config.block, system.config.recent
        samples, u = self.control(state.samples, raw)
        # the second difference needs two samples before this one
        second = samples.last[:, 3:] - 2 * samples.older[:, 3:] + state.samples.older[:, 3:]
        square = torch.where(state.samples.number >= 2, second.square().sum(-1), 0.0)
        total = state.total + torch.cat((samples.last, square.unsqueeze(-1)), -1)
        filled = state.filled + 1
        end = (filled >= block).unsqueeze(-1)

        mean = total[:, :6] / block
        before = torch.where(state.blocks.unsqueeze(-1) > 0, state.window[:, -1, :6], mean)
        newest = torch.cat((mean, (total[:, 6:] / block).sqrt()), -1)
        window = torch.cat((state.window[:, 1:], newest.unsqueeze(1)), 1)
        blocks = (state.blocks + 1).clamp_max(max(recent, STANDING_BLOCKS))
        modes = system.block_modes(window, blocks)
        measured = torch.cat((modes.flying.unsqueeze(-1).expand(-1, 2), modes.standing.unsqueeze(-1).expand(-1, 3)), -1)
        across = matvec(system.drag, system.block_features(mean, before))
        weight = (measured & end).to(raw.y)
        y = torch.nn.functional.pad(across, (0, 3)) * weight

        memory = BlockMemory(
            samples,
            torch.where(end, 0.0, total),
            torch.where(end[:, 0], 0.0, filled),
            torch.where(end.unsqueeze(-1), window, state.window),
            torch.where(end[:, 0], blocks, state.blocks),
        )
        return memory, Inputs(y, weight, u, raw.dt)
