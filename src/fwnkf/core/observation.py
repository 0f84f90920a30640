"""Observation models inside filters and systems: a fixed matrix or function, a learned matrix, a learned network.

A model implements ``observe(x)`` and ``linearize(x)``, which returns ``(ŷ, H)``. The spectral loss alone drives the
output of a learned model to zero; train it together with the loss ``anchor``, which compares the observation of the
true state with the measurement.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from ..errors import ConfigError
from ..types import Statistics
from .gaussian import matvec
from .layout import Layout
from .networks import JacobianNetwork
from .system import System

ObservationKind = Literal["given_matrix", "given_function", "learned_matrix", "learned_network"]


class MatrixObservation(nn.Module):
    """``y = H τ(x)``, fixed or learned: ``τ(x) = x``, with the entries of its rotation matrix for a quaternion."""

    def __init__(self, layout: Layout, H: Tensor, learn: bool) -> None:
        super().__init__()
        self.inputs = layout.linear()
        if learn:
            self.H = nn.Parameter(H.clone())
        else:
            self.register_buffer("H", H.clone())

    def observe(self, x: Tensor) -> Tensor:
        return matvec(self.H, self.inputs.features(x))

    def linearize(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.observe(x), self.H if self.inputs.flat else self.H @ self.inputs.features_jacobian(x)


class SystemObservation(nn.Module):
    """The observation function of a given system, linearised at the prior."""

    def __init__(self, system: System) -> None:
        super().__init__()
        # a tuple, so that the system is not registered (and saved) a second time under this module
        self._system = (system,)

    def observe(self, x: Tensor) -> Tensor:
        return self._system[0].observe(x)

    def linearize(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self._system[0].linearize_observation(x)


class NetworkObservation(nn.Module):
    """``y = H₀ x + g(x)`` with a learned matrix and a network that is zero before training: the paper's ``H(·)``."""

    def __init__(self, layout: Layout, H: Tensor, width: int) -> None:
        super().__init__()
        self.layout = layout
        self.H = nn.Parameter(H.clone())
        self.network = JacobianNetwork(layout.feature_size, 0, width, H.shape[-2])

    def normalize(self, statistics: Statistics) -> None:
        """Set the scales of training data."""
        self.network.normalize(statistics.feature_mean, statistics.feature_std, statistics.observation_std)

    def observe(self, x: Tensor) -> Tensor:
        features = self.layout.features(x)
        return matvec(self.H, features) + self.network(features)

    def linearize(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.layout.features(x)
        value, slope = self.network.with_jacobian(features)
        H = self.H + slope
        return matvec(self.H, features) + value, H if self.layout.flat else H @ self.layout.features_jacobian(x)


ObservationModel = MatrixObservation | SystemObservation | NetworkObservation


def make_observation(
    kind: ObservationKind, layout: Layout, channels: int, H: Tensor | None, system: System | None, width: int
) -> ObservationModel:
    """The observation model of a config. Raises ConfigError if an argument is missing or has the wrong shape."""
    if kind == "given_function":
        if system is None:
            raise ConfigError("observation='given_function' needs system=…, of which it uses observe()")
        return SystemObservation(system)
    columns = layout.feature_size if kind == "learned_network" else layout.linear().feature_size
    start = torch.eye(channels, columns) if H is None else H
    if start.shape != (channels, columns):
        raise ConfigError(
            f"H has shape {tuple(start.shape)}, wanted {(channels, columns)}: a row for each channel, a column for "
            "each number of the state" + ("" if layout.flat else f" as {kind!r} reads it (nine for a quaternion)")
        )
    if kind == "learned_network":
        return NetworkObservation(layout, start, width)
    return MatrixObservation(layout, start, learn=kind == "learned_matrix")
