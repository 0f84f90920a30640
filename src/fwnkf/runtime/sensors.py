"""What a stream takes: numbers of channels and controls, and which channels belong to which sensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import ConfigError
from ..filters.base import Filter
from ..types import numpy_dtype


class StreamSizes:
    """Numbers of raw channels and controls, samples per step, dtype and device."""

    def __init__(self, model: Filter) -> None:
        self.dtype, self.device = model.dtype, model.device  # a filter looks for them among its tensors in every call
        self.channels, self.controls, self.block = model.input_sizes
        on_cpu = self.device.type == "cpu" and self.dtype in (torch.float32, torch.float64)
        self._number = numpy_dtype(self.dtype) if on_cpu else None

    def tensor(self, values: NDArray[Any]) -> Tensor:
        """Numbers in the precision of the filter, or flags."""
        flags = values.dtype == np.bool_
        if self._number is not None:  # NumPy converts a few numbers in a fraction of the time
            return torch.from_numpy(values if flags else values.astype(self._number))
        return torch.from_numpy(values).to(self.device, torch.bool if flags else self.dtype)


def sensor_channels(model: Filter, channels: int, given: Mapping[str, Sequence[int]] | None) -> dict[str, list[int]]:
    """Channels of each sensor; by default of each part of the measurement."""
    if given is not None:
        sensors = {name: [int(channel) for channel in numbers] for name, numbers in given.items()}
        if sorted(channel for numbers in sensors.values() for channel in numbers) != list(range(channels)):
            raise ConfigError(f"sensors = {sensors}: each of the {channels} channels belongs to exactly one sensor")
        return sensors
    if model.preprocess is not None:
        return {"y": list(range(channels))}
    sensors, start = {}, 0
    for part in model.observation_layout.parts:
        sensors[part.name] = list(range(start, start + part.size))
        start += part.size
    return sensors
