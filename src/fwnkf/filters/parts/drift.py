"""Drift of a sensor: an offset of each channel that changes slowly (first-order Gauss-Markov)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ...core.system import System
from ...registry import PARTS, limited
from ...shapes import Float
from .lines import START
from .part import Moved, NoisePart, NoiseStates, Values, as_values


@PARTS.register("drift")
@dataclass(frozen=True)
class Drift(NoisePart):
    """An offset of each channel with the autocorrelation ``std² exp(-|τ| / seconds)``.

    Args:
        seconds: correlation time.
        std: standard deviation in the unit of the measurement. None starts so small that the filter equals the
            classical one until it is trained or fitted.
        sensor: the sensor that drifts; None for all channels.

    >>> import torch, fwnkf
    >>> one = torch.eye(1)
    >>> system = fwnkf.LinearSystem.of(F=one, H=one, Q=one, R=one, dt=0.01)
    >>> fwnkf.FWNKF(system, noise=Drift(seconds=60.0, std=0.5)).noise_states.std
    tensor([0.5000], grad_fn=<ExpBackward0>)
    """

    kind = "drift"
    starts = ("seconds", "std")
    seconds: float = limited(30.0, above=0.0)
    std: float | None = limited(None, above=0.0)

    def build(self, channels: slice, system: System) -> DriftStates:
        return DriftStates(self, channels, system)


class PreparedDrift(NamedTuple):
    """The matrices of a nominal step."""

    C: Float[Tensor, "m m"]
    A: Float[Tensor, "m m"]
    Q: Float[Tensor, "m m"]
    log_kept: Float[Tensor, " m"]
    """Logarithm of what is left of an offset after a nominal step."""


class DriftStates(NoiseStates):
    """One state for each channel, with unit variance; correlation times and standard deviations are parameters.

    Args:
        options: the part.
        channels: the channels that drift.
        system: the system of the filter.
    """

    def __init__(self, options: Drift, channels: slice, system: System) -> None:
        super().__init__(channels, system)
        self.size = self.width
        like = torch.ones_like(self.white_std)
        std = START * self.white_std if options.std is None else options.std * like
        self.log_seconds = nn.Parameter((options.seconds * like).log().to(self.white_dtype))
        self.log_std = nn.Parameter(std.log().to(self.white_dtype))

    @torch.no_grad()
    def set(self, seconds: Values, std: Values) -> None:
        """Set correlation times in seconds and standard deviations in the unit of the measurement.

        Args:
            seconds: one for all channels, or one for each.
            std: likewise.
        """
        self.log_seconds.copy_(as_values("seconds", seconds, (self.width,), positive=True).log())
        self.log_std.copy_(as_values("std", std, (self.width,), positive=True).log())

    @property
    def seconds(self) -> Float[Tensor, " m"]:
        """Correlation times."""
        return self.log_seconds.exp()

    @property
    def std(self) -> Float[Tensor, " m"]:
        """Standard deviations in the unit of the measurement."""
        return self.log_std.exp()

    def prepare(self, white_std: Tensor) -> PreparedDrift:
        log_kept = -self.dt / self.log_seconds.exp()
        return PreparedDrift(self.std.diag(), *_matrices(log_kept), log_kept)

    def move(self, prepared: PreparedDrift, mean: Tensor, variance: Tensor | None, ratio: Tensor | None) -> Moved:
        A, Q = prepared.A, prepared.Q
        if ratio is not None:
            A, Q = _matrices(prepared.log_kept * ratio.unsqueeze(-1))
        return Moved(mean * torch.diagonal(A, dim1=-2, dim2=-1), A, Q)

    def continuous(self, prepared: PreparedDrift) -> tuple[Tensor, Tensor]:
        return prepared.log_kept.diag(), (-2 * prepared.log_kept).diag()

    def levels(self) -> list[int | None]:
        return [0] * self.width


def _matrices(log_kept: Float[Tensor, "*B m"]) -> tuple[Float[Tensor, "*B m m"], Float[Tensor, "*B m m"]]:
    return torch.diag_embed(log_kept.exp()), torch.diag_embed(-torch.expm1(2 * log_kept))
