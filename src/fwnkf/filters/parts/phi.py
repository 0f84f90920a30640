"""``Φ``: the learned causal filter of the innovation (Algorithm 2 of the paper)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ...core import iir
from ...errors import ConfigError
from ...registry import PARTS, at_least
from ...shapes import Float
from .part import Part


@PARTS.register("phi")
@dataclass(frozen=True)
class Phi(Part):
    """A cascade of stable biquads in front of the gain; it starts as the identity.

    The Joseph form is not the covariance of such an update. ``covariance="augmented"`` carries the memory of ``Φ``
    along and is exact. Where error bars matter, noise states (:class:`~fwnkf.Lines`) are the better form.

    Args:
        sections: number of biquads.
        shared: whether all channels have the same ``Φ``.
        pole_radius: bound on every pole.
        covariance: ``"joseph"`` as the paper writes it, or ``"augmented"``, the exact one.
        gain: with the exact covariance: the Kalman gain of white noise, or the optimal one for the ``"shaped"``
            innovation.

    >>> import torch, fwnkf
    >>> one = torch.eye(1)
    >>> system = fwnkf.LinearSystem.of(F=one, H=one, Q=one, R=one, dt=0.01)
    >>> y = torch.randn(1, 9, 1)
    >>> torch.equal(fwnkf.FWNKF(system, phi=Phi(sections=2)).run(y).mean, fwnkf.EKF(system).run(y).mean)
    True
    """

    kind = "phi"
    sections: int = at_least(1, 1)
    shared: bool = True
    pole_radius: float = 0.999
    covariance: Literal["joseph", "augmented"] = "joseph"
    gain: Literal["kalman", "shaped"] = "kalman"

    def __post_init__(self) -> None:
        if not 0 < self.pole_radius < 1:
            raise ConfigError(f"phi: pole_radius = {self.pole_radius} must lie strictly between 0 and 1")
        if self.gain == "shaped" and self.covariance != "augmented":
            raise ConfigError("phi: gain='shaped' needs the exact covariance: set covariance='augmented'")


class InnovationShaper(nn.Module):
    """The parameters of :class:`Phi`.

    Args:
        options: the part.
        channels: number of channels.
    """

    def __init__(self, options: Phi, channels: int) -> None:
        super().__init__()
        lead = () if options.shared else (channels,)
        self.raw = nn.Parameter(torch.zeros(*lead, options.sections, 5))
        self.channels, self.radius = channels, options.pole_radius

    @property
    def memory_size(self) -> int:
        """Numbers that the cascade remembers for each channel."""
        return 2 * self.raw.shape[-2]

    def sections(self) -> iir.Sections:
        """The biquads."""
        return iir.sections(self.raw, self.radius)

    @torch.no_grad()
    def set_sections(self, given: iir.Sections) -> None:
        """Start from a given stable cascade, shaped like :meth:`sections`."""
        if bool((iir.poles(given).abs() >= self.radius * (1 - iir.ROUNDING_MARGIN)).any()):
            raise ConfigError(
                f"the sections given have a pole outside {self.radius} (less rounding); raise pole_radius or damp it"
            )
        self.raw.copy_(iir.raw_from_sections(given, self.radius).expand_as(self.raw))

    def forward(self) -> Float[Tensor, "*C s s"]:
        """The matrix that :func:`fwnkf.core.iir.step` applies, or one per channel."""
        return iir.state_space(self.sections())
