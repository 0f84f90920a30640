"""What is learned about frequencies: the innovation filter ``Φ`` and noise states, with their raw parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..core import constrain, iir, oscillators
from ..core.gaussian import dense
from ..errors import ConfigError
from ..shapes import Float

Values = float | Sequence[float] | Sequence[Sequence[float]] | Tensor
"""Numbers for oscillators, and for the channels that have them."""


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
    owner: tuple[Any, ...] = ()
    """The filter, in a tuple because it is not a part of its noise states."""

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

    # ---- physical units -------------------------------------------------------------------------------------

    @torch.no_grad()
    def set(self, hz: Values, bandwidth_hz: Values, std: Values) -> None:
        """Set the oscillators of each channel: frequency and bandwidth in Hz, ``std`` in the unit of the measurement.

        ``bandwidth_hz`` is the full width at half power of the line in the spectrum of the noise. Its correlation falls
        to ``1/e`` in ``1 / (π bandwidth)`` seconds, for ``hz=0`` the time constant of a drift. Each argument is a
        number, a list with one number for each oscillator, or a list of such lists, one for each channel.

        >>> import torch, fwnkf
        >>> eye = torch.eye(1)
        >>> filter = fwnkf.FWNKF(H=eye, Q=eye, R=eye, shaping="noise", hidden=0, dt=0.01, pole_radius=0.9999)
        >>> filter.noise_states.set(hz=23.0, bandwidth_hz=0.2, std=0.3)
        >>> [round(value.item(), 4) for value in (filter.noise_states.hz, filter.noise_states.bandwidth_hz)]
        [23.0, 0.2]
        """
        dt, white = self._units()
        lead, count = self.amplitude.shape
        frequency, radius = self._poles(
            _values("hz", hz, self.raw_frequency.shape), _values("bandwidth_hz", bandwidth_hz, (lead, count)), dt
        )
        relative = _not_negative("std", _values("std", std, (self.channels, count))) / white.unsqueeze(-1)
        if lead == 1 and not torch.allclose(relative, relative[:1].expand_as(relative), rtol=1e-6):
            raise ConfigError(
                "shared_shaper=True gives all channels one amplitude relative to their white noise, so these std "
                "cannot be had; build the filter with shared_shaper=False"
            )
        self.set_oscillators(frequency, radius, relative[:lead])

    @torch.no_grad()
    def set_shared(self, hz: Values, bandwidth_hz: Values, std: Values, phase: Values = 0.0) -> None:
        """Set the shared modes, as :meth:`set`; ``std`` and ``phase`` (radians) may differ from channel to channel."""
        if not self.modes:
            raise ConfigError("this filter has no shared modes; build it with modes = their number")
        dt, white = self._units()
        frequency, radius = self._poles(
            _values("hz", hz, (self.modes,)), _values("bandwidth_hz", bandwidth_hz, (self.modes,)), dt
        )
        seen = (self.channels, self.modes)
        relative = _not_negative("std", _values("std", std, seen)) / white.unsqueeze(-1)
        angle = _values("phase", phase, seen)
        mixing = torch.stack((relative * angle.cos(), relative * angle.sin()), -1).flatten(-2)
        self.set_modes(frequency, radius, mixing)

    @property
    def hz(self) -> Float[Tensor, "... m k"]:
        """Frequencies of the oscillators of each channel, in Hz at the nominal step."""
        return self.frequency() / (2 * math.pi * self._units()[0])

    @property
    def bandwidth_hz(self) -> Float[Tensor, "m k"]:
        """Full widths at half power of the oscillators of each channel, in Hz."""
        return bandwidth_hz(self.radius(), self._units()[0])

    @property
    def std(self) -> Float[Tensor, "m k"]:
        """Standard deviations of the oscillators of each channel, in the unit of the measurement."""
        return self.amplitude.abs() * self._units()[1].to(self.amplitude).unsqueeze(-1)

    @property
    def shared_hz(self) -> Float[Tensor, " k"]:
        """Frequencies of the shared modes, in Hz at the nominal step."""
        return self.mode_frequency() / (2 * math.pi * self._units()[0])

    @property
    def shared_bandwidth_hz(self) -> Float[Tensor, " k"]:
        """Full widths at half power of the shared modes, in Hz."""
        return bandwidth_hz(self.mode_radius(), self._units()[0])

    @property
    def shared_std(self) -> Float[Tensor, "m k"]:
        """Standard deviations of the shared modes in each channel, in the unit of the measurement."""
        return self.mixing.unflatten(-1, (-1, 2)).norm(dim=-1) * self._units()[1].to(self.mixing).unsqueeze(-1)

    def _units(self) -> tuple[float, Float[Tensor, " m"]]:
        """The nominal step in seconds, and the white standard deviation of each channel in float64."""
        if not self.owner:
            raise ConfigError(
                "these noise states are not part of a filter, which has the sampling rate and the white noise; "
                "set them with set_oscillators"
            )
        (model,) = self.owner
        with torch.no_grad():
            return float(model.config.dt), dense(model.prepare().R).diagonal().double().sqrt().cpu()

    def _poles(self, hz: Tensor, width: Tensor, dt: float) -> tuple[Tensor, Tensor]:
        if bool((hz < 0).any() | (hz >= 0.5 / dt).any()):
            raise ConfigError(
                f"hz = {hz.flatten().tolist()}: a frequency lies from 0 to below half the sampling rate, "
                f"{0.5 / dt:g} Hz at the nominal step of {dt:g} s"
            )
        narrowest = float(bandwidth_hz(torch.tensor(self.largest_radius, dtype=torch.float64), dt))
        if bool((width <= narrowest).any()):
            raise ConfigError(
                f"bandwidth_hz = {width.flatten().tolist()}: pole_radius = {self.limit} at {1 / dt:g} samples per "
                f"second allows bandwidths above {narrowest:.3g} Hz; give more, or build with a larger pole_radius"
            )
        return 2 * math.pi * dt * hz, torch.exp(-math.pi * dt * width)

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

    def level_owners(self, kind: str, like: Tensor) -> tuple[Float[Tensor, " L"], Float[Tensor, "L s"]]:
        """Whether the white noise, and each noise state, has each level: ``kind`` as ``track_level`` of a filter."""
        own = [1 + k for k in range(self.count) for _ in range(2)] * self.channels
        own += [1 + self.count + k for k in range(self.modes) for _ in range(2)]
        if kind == "common":
            own = [0] * self.size
        count = 1 + max(own)
        states = torch.tensor([[float(owner == level) for owner in own] for level in range(count)])
        return torch.eye(count)[0].to(like), states.to(like)

    def forward(self, white_std: Float[Tensor, " m"]) -> OscillatorMatrices:
        C = oscillators.output(self.amplitude.expand(self.channels, -1) * white_std.unsqueeze(-1))
        if self.modes:
            C = torch.cat((C, self.mixing * white_std.unsqueeze(-1)), -1)
        return OscillatorMatrices(*self.transition(None), C)


def bandwidth_hz(radius: Float[Tensor, "*B"], dt: float) -> Float[Tensor, "*B"]:
    """The full width at half power of an oscillator: its autocorrelation ``exp(-a |τ|) cos ωτ`` has ``a / π``."""
    return -radius.log() / (math.pi * dt)


def _values(name: str, value: Values, shape: tuple[int, ...]) -> Tensor:
    given = torch.as_tensor(value, dtype=torch.float64).detach().cpu()
    try:
        return given.expand(shape)
    except RuntimeError:
        raise ConfigError(
            f"{name} has shape {list(given.shape)}; wanted a number, {shape[-1]} numbers, or shape {list(shape)}"
        ) from None


def _not_negative(name: str, value: Tensor) -> Tensor:
    if not bool((value >= 0).all()):
        raise ConfigError(f"{name} = {value.flatten().tolist()} must not be negative")
    return value


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
