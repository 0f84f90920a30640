"""What a stream takes: measurements, controls and priors as tensors, and which channels belong to which sensor."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import ConfigError, DataError, ShapeError, shown
from ..filters.base import Filter
from ..types import Gaussian, numpy_dtype


def relative(values: NDArray[Any], origin: Sequence[float]) -> NDArray[Any]:
    """Absolute numbers as those of a filter; in double precision if there is an origin, which single would lose.

    ``origin`` is :attr:`Filter.input_origin` for measurements and ``layout.origins`` for states, or for the first of
    their numbers; :meth:`Layout.relative` does the same for tensors.

    >>> relative(np.array([5_400_000.25, 3.0]), (5_400_000.0, 0.0)).tolist()
    [0.25, 3.0]
    """
    return values - np.asarray(origin, np.float64)[: values.shape[-1]] if len(origin) else values


def absolute(values: NDArray[Any], origin: Sequence[float]) -> NDArray[Any]:
    """Numbers of a filter as absolute ones, in double precision if there is an origin; see :func:`relative`.

    >>> absolute(np.float32([0.25]), (5_400_000.0,)).tolist()
    [5400000.25]
    """
    return values + np.asarray(origin, np.float64) if len(origin) else values


class StreamInputs:
    """Numbers and arrays of the user as tensors with a batch axis, checked; in the precision of the filter."""

    def __init__(self, model: Filter, streams: int | None, sensors: Mapping[str, Sequence[int]] | None) -> None:
        self.model, self.streams = model, streams
        self.dtype, self.device = model.dtype, model.device  # a filter looks for them among its tensors in every call
        self.channels, self.controls, self.block = model.input_sizes
        self.sensors = sensor_channels(model, self.channels, sensors)
        self._origin = model.input_origin
        on_cpu = self.device.type == "cpu" and self.dtype in (torch.float32, torch.float64)
        self._number = numpy_dtype(self.dtype) if on_cpu else None

    def measurement(self, y: Any, mask: Any) -> tuple[Tensor, Tensor]:
        """Values of all channels, and which of them were measured: those that are not NaN, or those of the mask."""
        named = isinstance(y, Mapping)
        values = self._named(y) if named else self._rows("y", y, self.channels, np.nan)
        present = ~np.isnan(values)
        if mask is not None:
            allowed = self._rows("mask", mask, self.channels, True).astype(bool)
            # sensors that are not named have no value, whatever the mask says
            present = allowed & present if named else allowed
        return self._tensor(relative(values, self._origin)), self._tensor(present)

    def control(self, u: Any) -> Tensor | None:
        return None if u is None else self._tensor(self._rows("u", u, self.controls, 0.0))

    def prior(self, prior: Any) -> Gaussian | None:
        """A pair of mean and covariance as tensors, relative to the origins of the state; numbers are absolute."""
        if prior is None:
            return None
        like = torch.zeros((), dtype=self.dtype, device=self.device)
        if not isinstance(prior, (tuple, list)) or len(prior) != 2:
            raise ConfigError("prior must be a pair (mean, covariance)")
        mean, cov = prior
        if not isinstance(mean, Tensor):
            mean = torch.as_tensor(relative(np.asarray(mean, np.float64), self.model.layout.origins))
        return Gaussian(mean.to(like), torch.as_tensor(cov).to(like))

    def groups(self) -> Tensor:
        """One where an innovation belongs to a sensor; with a preprocessing all of them are one sensor."""
        model, m = self.model, self.model.observation_dim
        if model.preprocess is not None:
            return torch.ones(1, m, dtype=model.dtype, device=model.device)
        groups = torch.zeros(len(self.sensors), m, dtype=model.dtype, device=model.device)
        for row, channels in zip(groups, self.sensors.values(), strict=True):
            row[list(channels)] = 1
        return groups

    def _rows(self, name: str, value: Any, width: int, missing: float) -> NDArray[np.float64]:
        """Values as an array of all streams."""
        lead = (self.streams or 1,) if self.block == 1 else (self.streams or 1, self.block)
        if value is None:
            return np.full((*lead, width), missing)
        try:
            array = np.array(value, dtype=np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise DataError(f"filter {self.model.name!r}: {name} = {shown(value)} is no array of numbers") from error
        wanted = (*lead, width) if self.streams is not None else (*lead[1:], width)
        if array.ndim == 0 and wanted == (1,):
            array = array.reshape(1)
        if array.shape != wanted:
            raise ShapeError(f"filter {self.model.name!r}: {name} has shape {array.shape}, wanted {wanted}")
        return array.reshape(*lead, width)

    def _named(self, values: Mapping[str, Any]) -> NDArray[np.float64]:
        """Values of some sensors as a measurement of all channels, NaN elsewhere."""
        whole = self._rows("y", None, self.channels, np.nan)
        for name, value in values.items():
            if name not in self.sensors:
                raise ConfigError(f"there is no sensor {name!r}; this stream has {', '.join(self.sensors)}")
            channels = self.sensors[name]
            whole[..., channels] = self._rows(name, value, len(channels), np.nan)
        return whole

    def _tensor(self, values: NDArray[Any]) -> Tensor:
        """Numbers in the precision of the filter, or flags."""
        flags = values.dtype == np.bool_
        if self._number is not None:  # NumPy converts a few numbers in a fraction of the time
            return torch.from_numpy(values if flags else values.astype(self._number))
        return torch.from_numpy(values).to(self.device, torch.bool if flags else self.dtype)


def sensor_channels(model: Filter, channels: int, given: Mapping[str, Sequence[int]] | None) -> dict[str, list[int]]:
    """Channels of each sensor; by default of each part of the measurement."""
    if given is not None:
        try:
            sensors = {name: [operator.index(channel) for channel in numbers] for name, numbers in given.items()}
        except TypeError as error:
            raise ConfigError(f"sensors = {shown(given)}: wanted numbers of channels by name") from error
        if sorted(channel for numbers in sensors.values() for channel in numbers) != list(range(channels)):
            raise ConfigError(
                f"sensors = {shown(sensors)}: each of the {channels} channels belongs to exactly one sensor"
            )
        return sensors
    if model.preprocess is not None:
        return {"y": list(range(channels))}
    sensors, start = {}, 0
    for part in model.observation_layout.parts:
        sensors[part.name] = list(range(start, start + part.size))
        start += part.size
    return sensors
