"""What is learned about frequencies: the innovation filter ``Φ`` and noise states, with their raw parameters."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..core import constrain, iir, oscillators
from ..errors import ConfigError
from ..shapes import Float


class InnovationShaper(nn.Module):
    """The learnable causal filter ``Φ`` of Algorithm 2, a cascade of stable biquads; starts as the identity."""

    def __init__(self, channels: int, sections: int, shared: bool, radius: float) -> None:
        super().__init__()
        lead = () if shared else (channels,)
        self.raw = nn.Parameter(torch.zeros(*lead, sections, 5))
        self.channels, self.radius = channels, radius

    @property
    def memory_size(self) -> int:
        return 2 * self.raw.shape[-2]

    def sections(self) -> iir.Sections:
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


class OscillatorMatrices(NamedTuple):
    """Noise states for the nominal step: ``ν⁺ = A ν + N(0, Q)``, ``v = C ν + white``."""

    A: Float[Tensor, "s s"]
    Q: Float[Tensor, "s s"]
    C: Float[Tensor, "m s"]


class NoiseStates(nn.Module):
    """Learned coloured measurement noise: oscillators of each channel alone, and modes that all channels share.

    Each channel has ``count`` oscillators of learned frequency, damping and amplitude. Besides, ``modes`` oscillators
    are seen by all channels through ``mixing`` ``[m, 2 modes]``: two numbers are gain and phase of a mode in a channel,
    as for the vibration modes of an airframe in the axes of an IMU.

    Amplitudes and mixing are in units of the channel's white standard deviation and start at 1e-4, that is 1e-8 of its
    power: small enough that an untrained filter is the classical one, yet not zero, where the gradient would vanish.
    """

    START = 1e-4

    def __init__(self, channels: int, count: int, shared: bool, radius: float, modes: int = 0) -> None:
        super().__init__()
        lead = 1 if shared else channels
        self.channels, self.count, self.limit, self.modes = channels, count, radius, modes
        self.raw_frequency = nn.Parameter(_spread(count).repeat(lead, 1))
        self.raw_radius = nn.Parameter(torch.full((lead, count), math.log(0.9 / 0.1)))
        self.amplitude = nn.Parameter(torch.full((lead, count), self.START))
        if modes:
            self.raw_mode_frequency = nn.Parameter(_spread(modes))
            self.raw_mode_radius = nn.Parameter(torch.full((modes,), math.log(0.9 / 0.1)))
            self.mixing = nn.Parameter(torch.full((channels, 2 * modes), self.START))

    @property
    def size(self) -> int:
        return 2 * (self.channels * self.count + self.modes)

    @property
    def largest_radius(self) -> float:
        """The stated limit less a margin that keeps it in float32."""
        return self.limit * (1 - 4 * torch.finfo(torch.float32).eps)

    def frequency(self) -> Float[Tensor, "m k"]:
        """Radians per nominal step, in ``(0, π)``."""
        return constrain.bounded(self.raw_frequency, 0.0, math.pi).expand(self.channels, -1)

    def radius(self) -> Float[Tensor, "m k"]:
        """Pole radius, below the stated limit."""
        return constrain.bounded(self.raw_radius, 0.0, self.largest_radius).expand(self.channels, -1)

    def mode_frequency(self) -> Float[Tensor, " k"]:
        """Radians per nominal step of the shared modes, in ``(0, π)``."""
        return constrain.bounded(self.raw_mode_frequency, 0.0, math.pi)

    def mode_radius(self) -> Float[Tensor, " k"]:
        """Pole radius of the shared modes, below the stated limit."""
        return constrain.bounded(self.raw_mode_radius, 0.0, self.largest_radius)

    @torch.no_grad()
    def set_oscillators(self, frequency: Tensor, radius: Tensor, amplitude: Tensor) -> None:
        """Start from given oscillators ``[m or 1, k]``: radians per step, pole radius, amplitude over the white std."""
        _set_poles(self.raw_frequency, self.raw_radius, frequency, radius, self)
        self.amplitude.copy_(amplitude)

    @torch.no_grad()
    def set_modes(self, frequency: Float[Tensor, " k"], radius: Float[Tensor, " k"], mixing: Tensor) -> None:
        """Start from given shared modes: radians per step, pole radius, and ``[m, 2 k]`` over the white std."""
        if not self.modes:
            raise ConfigError("this filter has no shared modes; build it with modes = their number")
        _set_poles(self.raw_mode_frequency, self.raw_mode_radius, frequency, radius, self)
        self.mixing.copy_(mixing)

    def transition(self, ratio: Float[Tensor, "B"] | None) -> tuple[Tensor, Tensor]:
        """``A`` and ``Q`` of the oscillators of each channel, then of the shared modes, for steps of any length."""
        radius, frequency = self.radius().flatten(), self.frequency().flatten()
        if self.modes:
            radius = torch.cat((radius, self.mode_radius()))
            frequency = torch.cat((frequency, self.mode_frequency()))
        return oscillators.transition(radius, frequency, ratio)

    def forward(self, white_std: Float[Tensor, " m"]) -> OscillatorMatrices:
        C = oscillators.output(self.amplitude.expand(self.channels, -1) * white_std.unsqueeze(-1))
        if self.modes:
            C = torch.cat((C, self.mixing * white_std.unsqueeze(-1)), -1)
        return OscillatorMatrices(*self.transition(None), C)


def _spread(count: int) -> Float[Tensor, " k"]:
    """Raw frequencies that cover the band evenly."""
    return torch.logit((torch.arange(count) + 0.5) / max(1, count))


def _set_poles(
    raw_frequency: Tensor, raw_radius: Tensor, frequency: Tensor, radius: Tensor, states: NoiseStates
) -> None:
    tiny = torch.finfo(raw_radius.dtype).eps
    top = states.largest_radius
    if bool((radius >= top).any()):
        raise ConfigError(
            f"an oscillator has radius {float(radius.max())}, at or above pole_radius = {states.limit}; "
            "raise pole_radius or damp it"
        )
    raw_frequency.copy_(torch.logit((frequency / math.pi).clamp(tiny, 1 - tiny)))
    raw_radius.copy_(torch.logit((radius / top).clamp(tiny, 1 - tiny)))
