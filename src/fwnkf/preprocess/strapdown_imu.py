"""Raw samples of an IMU as the control of a strapdown system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core.composed import ComposedSystem
from ..core.preprocess import Inputs, Preprocess
from ..core.system import System
from ..errors import ConfigError
from ..registry import PREPROCESS
from ..shapes import Float
from ..systems.inertial_calibrated import CalibratedStrapdownMotion


@dataclass(frozen=True)
class StrapdownIMUConfig:
    """No options: sizes follow from the system.

    >>> StrapdownIMUConfig()
    StrapdownIMUConfig()
    """


class Samples(NamedTuple):
    """The last two samples, and the number of samples so far, counted up to two."""

    last: Float[Tensor, "B 6"]
    older: Float[Tensor, "B 6"]
    number: Float[Tensor, "B"]


@PREPROCESS.register("strapdown_imu")
class StrapdownIMU(Preprocess):
    """Angular rate and specific force to ``u = (previous sample, current sample, site)``; nothing is observed.

    The raw control is the one-hot site, if the system has sites. A sample (or channel) that is missing is replaced by
    the one before it.

    Args:
        config: no options.
        system: that of the filter, on a :class:`~fwnkf.systems.CalibratedStrapdownMotion`.

    >>> from fwnkf.systems import CalibratedStrapdown, CalibratedStrapdownConfig
    >>> unit = StrapdownIMU(StrapdownIMUConfig(), CalibratedStrapdown(CalibratedStrapdownConfig()))
    >>> one, two = (Inputs(torch.full((1, 6), value), torch.ones(1, 6), None, None) for value in (1.0, 2.0))
    >>> memory, _ = unit(unit.init(1, one.y), one)
    >>> unit(memory, two)[1].u
    tensor([[1., 1., 1., 1., 1., 1., 2., 2., 2., 2., 2., 2.]])
    """

    Config = StrapdownIMUConfig
    observation_dim = 6

    def __init__(self, config: StrapdownIMUConfig, system: System | None = None) -> None:
        super().__init__(config)
        motion = system.motion if isinstance(system, ComposedSystem) else None
        if system is None or not isinstance(motion, CalibratedStrapdownMotion):
            raise ConfigError(
                f"preprocess {PREPROCESS.name_of(type(self))!r} works with a calibrated strapdown, not with "
                f"{type(system).__name__}; give the system of the filter"
            )
        self._system = (system,)  # owned by the filter, which saves its tensors
        self.control_dim = motion.config.sites

    def init(self, batch: int, like: Tensor) -> Samples:
        blank = like.new_zeros(batch, 6)
        return Samples(blank, blank, like.new_zeros(batch))

    def forward(self, state: Any, raw: Inputs) -> tuple[Any, Inputs]:
        samples, u = self.control(state, raw)
        (system,) = self._system
        nothing = raw.y.new_zeros(raw.y.shape[0], system.observation_layout.size)
        return samples, Inputs(nothing, nothing, u, raw.dt)

    def control(self, samples: Samples, raw: Inputs) -> tuple[Samples, Float[Tensor, "B p"]]:
        """The samples with the new one among them, and the control.

        Args:
            samples: the last samples.
            raw: the raw inputs of one sample.

        Returns:
            The samples with the new one among them, and the control.
        """
        now = torch.where(raw.weight > 0, raw.y, samples.last)
        before = torch.where(samples.number.unsqueeze(-1) > 0, samples.last, now)
        parts = [before, now]
        if self.control_dim:
            parts.append(now.new_zeros(now.shape[0], self.control_dim) if raw.u is None else raw.u)
        return Samples(now, samples.last, (samples.number + 1).clamp_max(2)), torch.cat(parts, -1)
