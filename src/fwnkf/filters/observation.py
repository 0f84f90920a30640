"""Observation models of the FW-NKF: a given matrix or function, a learned matrix, a learned network.

A model answers two questions: ``observe(x)`` anywhere, and ``(ŷ, H)`` at the prior. A learned model needs an anchor
besides the spectral loss, which alone pulls its output to zero: the loss ``anchor`` asks it to reconstruct what was
measured from the true state.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from ..core.gaussian import matvec
from ..core.layout import Layout
from ..core.system import System
from ..errors import ConfigError
from .networks import JacobianNetwork

ObservationKind = Literal["given_matrix", "given_function", "learned_matrix", "learned_network"]


class MatrixObservation(nn.Module):
    """``y = H x``, given or learned."""

    def __init__(self, H: Tensor, learn: bool) -> None:
        super().__init__()
        if learn:
            self.H = nn.Parameter(H.clone())
        else:
            self.register_buffer("H", H.clone())

    def observe(self, x: Tensor) -> Tensor:
        return matvec(self.H, x)

    def linearize(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return matvec(self.H, x), self.H


class SystemObservation(nn.Module):
    """The observation function of a given system, linearised at the prior."""

    def __init__(self, system: System) -> None:
        super().__init__()
        # a plain tuple keeps the system from being registered (and saved) a second time under this module
        self._system = (system,)

    def observe(self, x: Tensor) -> Tensor:
        return self._system[0].observe(x)

    def linearize(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self._system[0].linearize_observation(x)


class NetworkObservation(nn.Module):
    """``y = H₀ x + g(x)`` with a learned matrix and a network that starts at zero: the paper's ``H(·)``."""

    def __init__(self, layout: Layout, H: Tensor, width: int) -> None:
        super().__init__()
        self.layout = layout
        self.H = nn.Parameter(H.clone())
        self.network = JacobianNetwork(layout.feature_size, 0, width, H.shape[-2])

    def observe(self, x: Tensor) -> Tensor:
        read = self.layout.features(x)
        return matvec(self.H, read) + self.network(read)

    def linearize(self, x: Tensor) -> tuple[Tensor, Tensor]:
        read = self.layout.features(x)
        value, slope = self.network.with_jacobian(read)
        H = self.H + slope
        return matvec(self.H, read) + value, H if self.layout.flat else H @ self.layout.features_jacobian(x)


ObservationModel = MatrixObservation | SystemObservation | NetworkObservation


def make_observation(
    kind: ObservationKind, layout: Layout, channels: int, H: Tensor | None, system: System | None, width: int
) -> ObservationModel:
    """The model of a config, with an error that says what is missing."""
    if kind == "given_function":
        if system is None:
            raise ConfigError("observation='given_function' needs system=…, whose observe() it linearises")
        return SystemObservation(system)
    columns = layout.feature_size if kind == "learned_network" else layout.size
    start = torch.eye(channels, columns) if H is None else H
    if start.shape != (channels, columns):
        raise ConfigError(f"H has shape {tuple(start.shape)}, wanted {(channels, columns)}")
    if kind == "learned_network":
        return NetworkObservation(layout, start, width)
    if any(part.kind == "quaternion" for part in layout.parts):
        raise ConfigError(f"observation={kind!r} is a matrix on plain numbers; a quaternion state needs a function")
    return MatrixObservation(start, learn=kind == "learned_matrix")
