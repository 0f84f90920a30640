"""The parameters of a filter that a fit learns, as one vector of raw numbers with named values.

Raw numbers are unbounded: logarithms of variances, bandwidths and amplitudes, logits of frequencies. Every vector is a
valid model, so that an optimiser needs no constraints.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..core import constrain
from ..core.covariance import Covariance
from ..core.gaussian import dense
from ..core.system import System
from ..errors import ConfigError
from ..filters.fwnkf import FrequencyWeightedNeuralKalmanFilter
from ..filters.parts.lines import LineStates
from ..shapes import Float


class Learned:
    """Some numbers of a model: ``start`` raw values, ``names`` of what :meth:`read` returns, one for each raw value."""

    start: Float[Tensor, " k"]
    names: tuple[str, ...]
    tensors = True
    """Whether :meth:`install` takes tensors of any kind; otherwise numbers."""

    def install(self, raw: Float[Tensor, " k"]) -> None:
        """Put values into the model, as tensors that follow ``raw``."""
        raise NotImplementedError

    def read(self) -> Float[Tensor, " k"]:
        """The values installed, in physical units."""
        raise NotImplementedError

    def finish(self, raw: Float[Tensor, " k"]) -> None:
        """Put values into the model for good, in the form in which it is saved."""
        self.install(raw)


class CovarianceScale(Learned):
    """The variances of a fixed covariance; its correlations, and variances of zero, stay as they are."""

    def __init__(self, name: str, covariance: Covariance) -> None:
        self.covariance, self.base = covariance, covariance.value.clone()
        self.places = self.base.diagonal().nonzero().squeeze(-1)
        self.start = self.base.new_zeros(len(self.places))
        self.names = tuple(f"{name}[{i},{i}]" for i in self.places.tolist())

    def install(self, raw: Tensor) -> None:
        half = torch.zeros_like(self.base[0]).index_add(0, self.places, 0.5 * raw)
        root = half.exp()
        self.covariance.value = self.base * (root.unsqueeze(-1) * root)

    def read(self) -> Tensor:
        return self.covariance.value.diagonal()[self.places]


class CovarianceFull(Learned):
    """Variances and correlations of a covariance that its system declares as learned."""

    def __init__(self, name: str, covariance: Covariance, diagonal: bool) -> None:
        self.covariance, self.diagonal = covariance, diagonal
        self.parts = [_Entries(covariance, part) for part in (("log_std",) if diagonal else ("log_std", "slopes"))]
        self.start = torch.cat([part.start for part in self.parts])
        n = len(covariance.log_std)
        self.rows, self.columns = torch.tril_indices(n, n, -1)
        pairs = (
            [] if diagonal else [f"correlation {name}[{i},{j}]" for i, j in zip(self.rows, self.columns, strict=True)]
        )
        self.names = (*(f"{name}[{i},{i}]" for i in range(n)), *pairs)

    def install(self, raw: Tensor) -> None:
        for part, values in zip(self.parts, raw.split([len(part.start) for part in self.parts]), strict=True):
            part.install(values)

    def read(self) -> Tensor:
        value = self.covariance()
        variance = value.diagonal()
        if self.diagonal:
            return variance
        std = variance.sqrt()
        return torch.cat((variance, (value / (std.unsqueeze(-1) * std))[self.rows, self.columns]))

    def finish(self, raw: Tensor) -> None:
        for part, values in zip(self.parts, raw.split([len(part.start) for part in self.parts]), strict=True):
            part.finish(values)


class _Entries:
    """A tensor of parameters of a module, replaced while a model is fitted."""

    def __init__(self, module: nn.Module, name: str) -> None:
        self.module, self.name = module, name
        self.parameter = module.get_parameter(name)
        self.start = self.parameter.detach().flatten().clone()

    def install(self, values: Tensor) -> None:
        # as torch.func.functional_call does it: the module reads a plain tensor in the place of its parameter
        self.module._parameters[self.name] = values.reshape(self.parameter.shape)  # type: ignore[assignment]

    def finish(self, values: Tensor) -> None:
        self.module._parameters[self.name] = self.parameter
        with torch.no_grad():
            self.parameter.copy_(values.reshape(self.parameter.shape))


class Constants(Learned):
    """A tensor of parameters of a system: a matrix, or constants of its own."""

    def __init__(self, name: str, module: nn.Module, attribute: str) -> None:
        self.name, self.entries = name, _Entries(module, attribute)
        value = self.entries.start
        self.scale = torch.where(value == 0, 1.0, value.abs())
        self.start = value / self.scale
        shape = self.entries.parameter.shape
        places = [f"[{','.join(map(str, index))}]" for index in torch.ones(shape).nonzero().tolist()] if shape else [""]
        self.names = tuple(name + place for place in places)

    def install(self, raw: Tensor) -> None:
        self.entries.install(raw * self.scale)

    def read(self) -> Tensor:
        value: Tensor = self.entries.module._parameters[self.entries.name]  # type: ignore[assignment]
        return value.reshape(-1)

    def finish(self, raw: Tensor) -> None:
        self.entries.finish(raw * self.scale)


class PositiveConstants(Constants):
    """Constants of a system that remain positive: the tensor stores what :func:`fwnkf.core.constrain.positive` maps."""

    def __init__(self, name: str, module: nn.Module, attribute: str) -> None:
        super().__init__(name, module, attribute)
        self.start = self.entries.start
        self.scale = torch.ones_like(self.start)

    def read(self) -> Tensor:
        return constrain.positive(super().read())


class Option(Learned):
    """A number, or a tuple of numbers, of the config of a system; positive ones are learned as logarithms."""

    def __init__(self, name: str, system: System, like: Tensor) -> None:
        self.name, self.system, self.config = name, system, system.config
        value = getattr(system.config, name)
        self.tuple = isinstance(value, tuple)
        values = like.new_tensor(value if self.tuple else [value])
        (limits,) = (field.metadata for field in dataclasses.fields(system.config) if field.name == name)
        least = limits.get("min", limits.get("above"))
        self.positive = bool((values > 0).all()) and (self.tuple or (least is not None and least >= 0))
        self.scale = torch.where(values == 0, 1.0, values.abs())
        self.start = values.log() if self.positive else values / self.scale
        self.names = tuple(f"{name}[{i}]" for i in range(len(values))) if self.tuple else (name,)

    def install(self, raw: Tensor) -> None:
        self._set(raw, self.tensors)

    def finish(self, raw: Tensor) -> None:
        self._set(raw, False)

    def read(self) -> Tensor:
        value = getattr(self.system.config, self.name)
        return torch.stack([torch.as_tensor(item).to(self.start) for item in (value if self.tuple else (value,))])

    def _set(self, raw: Tensor, tensors: bool) -> None:
        values = raw.exp() if self.positive else raw * self.scale
        parts: tuple[Any, ...] = values.unbind() if tensors else tuple(values.tolist())
        changed = copy.copy(self.system.config)
        # past the checks of the config, which know numbers only
        object.__setattr__(changed, self.name, parts if self.tuple else parts[0])
        self.system.config = changed


class OscillatorPoles(Learned):
    """Frequencies, bandwidths and standard deviations of the noise states of each channel.

    An oscillator that starts at frequency zero is first-order drift and stays there.
    """

    def __init__(self, model: FrequencyWeightedNeuralKalmanFilter, states: LineStates) -> None:
        self.model, self.states = model, states
        self.frequency, self.radius, self.amplitude = (
            _Entries(states, name) for name in ("raw_frequency", "raw_radius", "amplitude")
        )
        drift = torch.sigmoid(self.frequency.start) < torch.finfo(torch.float32).eps
        self.free = (~drift).nonzero().squeeze(-1)
        self.start = torch.cat((self.frequency.start[self.free], self.radius.start, self.amplitude.start.abs().log()))
        shape = states.raw_frequency.shape
        places = [str(j) if shape[0] == 1 else f"{c},{j}" for c in range(shape[0]) for j in range(shape[1])]
        self.names = (
            *(f"oscillators[{places[i]}].hz" for i in self.free.tolist()),
            *(f"oscillators[{place}].bandwidth_hz" for place in places),
            *(f"oscillators[{place}].std" for place in places),
        )

    def install(self, raw: Tensor) -> None:
        free, count = len(self.free), len(self.radius.start)
        frequency, radius, amplitude = raw.split((free, count, count))
        self.frequency.install(self.frequency.start.index_copy(0, self.free, frequency))
        self.radius.install(radius)
        self.amplitude.install(amplitude.exp())

    def read(self) -> Tensor:
        states = self.states
        rate = 1 / states.dt
        lead = self.frequency.parameter.shape[0]
        hertz = (states.frequency()[:lead] * rate / (2 * math.pi)).flatten()[self.free]
        bandwidth = (-states.radius()[:lead].log() * rate / math.pi).flatten()
        white = dense(self.model.system.measurement_noise()).diagonal().sqrt()[:lead].unsqueeze(-1)
        return torch.cat((hertz, bandwidth, (states.amplitude * white).flatten()))

    def finish(self, raw: Tensor) -> None:
        self.install(raw)
        for entries in (self.frequency, self.radius, self.amplitude):
            entries.finish(entries.module._parameters[entries.name].detach())  # type: ignore[union-attr]


class Parameters:
    """All that is learned, as one vector."""

    def __init__(self, parts: Sequence[Learned]) -> None:
        if not parts:
            raise ConfigError("nothing to learn: name Q, R, oscillators or constants of the system in learn")
        self.parts = list(parts)
        self.start = torch.cat([part.start for part in parts])
        self.names = [name for part in parts for name in part.names]
        self.sizes = [len(part.start) for part in parts]

    def install(self, raw: Float[Tensor, " p"]) -> None:
        for part, values in zip(self.parts, raw.split(self.sizes), strict=True):
            part.install(values)

    def finish(self, raw: Float[Tensor, " p"]) -> None:
        for part, values in zip(self.parts, raw.split(self.sizes), strict=True):
            part.finish(values)

    def values(self, raw: Float[Tensor, " p"]) -> Float[Tensor, " p"]:
        """In physical units, by :attr:`names`."""
        self.install(raw)
        return torch.cat([part.read() for part in self.parts])

    def as_numbers(self, numbers: bool = True) -> None:
        """Install plain numbers in configs, for systems that cannot take tensors there."""
        for part in self.parts:
            part.tensors = not numbers
