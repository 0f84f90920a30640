"""What parts of a filter are: options in a frozen dataclass, from which a filter builds the module.

The options are plain values, as in files; tensors are created by the module, and are saved and trained with the filter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from ...core.gaussian import dense
from ...core.system import System
from ...errors import ConfigError
from ...shapes import Float

Values = float | tuple[Any, ...] | list[Any] | Tensor
"""A number for all, numbers for lines, or numbers for channels and lines."""


@dataclass(frozen=True)
class Part:
    """Options of a part of a filter."""

    kind: ClassVar[str] = ""
    """Its name in files."""
    starts: ClassVar[tuple[str, ...]] = ()
    """Options that are where tensors start: a saved filter has the tensors, and leaves them out."""


@dataclass(frozen=True)
class NoisePart(Part):
    """Options of coloured measurement noise; ``sensor`` names the sensor that has it, None stands for all channels."""

    sensor: str | None = field(default=None, kw_only=True)

    def build(self, channels: slice, system: System) -> NoiseStates:
        """The module of this part.

        Args:
            channels: the channels of the sensor.
            system: the system of the filter.

        Returns:
            The module.
        """
        raise NotImplementedError


class Moved(NamedTuple):
    """Noise states after a step: their mean, and ``ν⁺ = A ν + N(0, Q)`` about it."""

    mean: Float[Tensor, "B s"]
    A: Float[Tensor, "*A s s"]
    Q: Float[Tensor, "*A s s"]


class OwnMeasurement(NamedTuple):
    """What the control says about noise states themselves, as the speed of a rotor does."""

    innovation: Float[Tensor, "B j"]
    H: Float[Tensor, "j s"]
    variance: Float[Tensor, " j"]
    weight: Float[Tensor, "B j"]


class NoiseStates(nn.Module):
    """States ``ν`` of coloured measurement noise, ``y = h(x) + C ν + v``; the base class of all parts that add some.

    Args:
        channels: the channels of the filter that have this noise.
        system: the system of the filter; it is not registered as a module of the part.
    """

    size: int
    """Number of states."""
    controls: int = 0
    """Number of control inputs, which follow those of the system."""
    reads_variance: bool = False
    """Whether :meth:`move` reads the variances of the states."""
    linear: bool = True
    """Whether ``A`` and ``Q`` do not depend on the states."""

    def __init__(self, channels: slice, system: System) -> None:
        super().__init__()
        self.channels = channels
        self.width = channels.stop - channels.start
        self.dt = system.dt
        self._system = (system,)

    @property
    def white_std(self) -> Float[Tensor, " m"]:
        """The standard deviation of the white noise of each channel of the part, in float64."""
        with torch.no_grad():
            variance = dense(self._system[0].measurement_noise()).diagonal()
            return variance[self.channels].double().sqrt().cpu()

    @property
    def white_dtype(self) -> torch.dtype:
        """The dtype of the system, in which values that were given keep their digits."""
        with torch.no_grad():
            return dense(self._system[0].measurement_noise()).dtype

    def begin(self, like: Tensor) -> tuple[Float[Tensor, " s"], Float[Tensor, " s"]]:
        """Mean and variance of the states before the first step; by default zero and one."""
        return like.new_zeros(self.size), like.new_ones(self.size)

    def prepare(self, white_std: Float[Tensor, " m"]) -> Any:
        """What no step changes, from raw parameters: a NamedTuple whose ``C`` is what the part's channels measure."""
        raise NotImplementedError

    def move(self, prepared: Any, mean: Tensor, variance: Tensor | None, ratio: Float[Tensor, " B"] | None) -> Moved:
        """The states after a step of ``ratio`` nominal steps, or of one."""
        raise NotImplementedError

    def continuous(self, prepared: Any) -> tuple[Float[Tensor, "s s"], Float[Tensor, "s s"]] | None:
        """Drift and spectral density of the states in continuous time, in nominal steps; None if they have none."""
        return None

    def own_measurement(self, mean: Tensor, variance: Tensor, control: Tensor) -> OwnMeasurement | None:
        """What the control inputs of this part say about its states; None if it has none."""
        return None

    def bounded(self, mean: Tensor) -> Tensor:
        """The states within the bounds of the part; by default as they are."""
        return mean

    def levels(self) -> list[int | None]:
        """For each state the number of the line that it belongs to, or None where a level does not scale it."""
        raise NotImplementedError


# ---- units of lines --------------------------------------------------------------------------------------------------


def bandwidth_hz(radius: Float[Tensor, "*B"], dt: float) -> Float[Tensor, "*B"]:
    """The full width at half power of an oscillator: its autocorrelation ``exp(-a |τ|) cos ωτ`` has ``a / π``."""
    return -radius.log() / (math.pi * dt)


def as_values(name: str, value: Values, shape: Sequence[int], positive: bool = False) -> Tensor:
    """Numbers for lines and channels, expanded to ``shape``; raises ConfigError where they do not fit."""
    given = torch.as_tensor(value, dtype=torch.float64).detach().cpu()
    if not bool((given > 0 if positive else given >= 0).all()):
        raise ConfigError(
            f"{name} = {given.flatten().tolist()} must {'be positive' if positive else 'not be negative'}"
        )
    try:
        return given.expand(tuple(shape))
    except RuntimeError:
        raise ConfigError(
            f"{name} has shape {list(given.shape)}; wanted a number, {shape[-1]} numbers, or shape {list(shape)}"
        ) from None


def poles(hz: Tensor, width: Tensor, dt: float, limit: float) -> tuple[Tensor, Tensor]:
    """Radians per step and pole radius of lines; raises ConfigError where a rate or ``limit`` does not allow them."""
    if bool((hz >= 0.5 / dt).any()):
        raise ConfigError(
            f"hz = {hz.flatten().tolist()}: a frequency lies from 0 to below half the sampling rate, "
            f"{0.5 / dt:g} Hz at the nominal step of {dt:g} s"
        )
    narrowest = float(bandwidth_hz(torch.tensor(largest_radius(limit), dtype=torch.float64), dt))
    if bool((width <= narrowest).any()):
        raise ConfigError(
            f"bandwidth_hz = {width.flatten().tolist()}: pole_radius = {limit} at {1 / dt:g} samples per "
            f"second allows bandwidths above {narrowest:.3g} Hz; give more, or a larger pole_radius"
        )
    return 2 * math.pi * dt * hz, torch.exp(-math.pi * dt * width)


def largest_radius(limit: float) -> float:
    """The stated limit of a pole radius less a margin that keeps it in float32."""
    return limit * (1 - 4 * torch.finfo(torch.float32).eps)


def set_poles(raw_frequency: Tensor, raw_radius: Tensor, frequency: Tensor, radius: Tensor, limit: float) -> None:
    """Write frequencies (radians per step) and pole radii into raw parameters."""
    tiny, top = torch.finfo(raw_radius.dtype).eps, largest_radius(limit)
    if bool((radius >= top).any()):
        raise ConfigError(
            f"an oscillator has radius {float(radius.max())}, at or above pole_radius = {limit}; "
            "raise pole_radius, or give the oscillator more damping"
        )
    raw_frequency.copy_(torch.logit((frequency / math.pi).clamp(tiny, 1 - tiny)))
    raw_radius.copy_(torch.logit((radius / top).clamp(tiny, 1 - tiny)))


def spread_evenly(count: int) -> Float[Tensor, " k"]:
    """Raw frequencies that cover the band evenly."""
    return torch.logit((torch.arange(count) + 0.5) / max(1, count))
