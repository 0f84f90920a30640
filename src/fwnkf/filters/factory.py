"""Building filters by name, as files and commands do."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from ..core.system import System
from ..registry import FILTERS, parse_config
from .base import Filter


def build(name: str, **options: Any) -> Filter:
    """Build a filter by name from options of its config, tensors by name, and ``system=…``.

    >>> import torch, fwnkf
    >>> eye = torch.eye(2)
    >>> kf = fwnkf.build("kf", F=eye, H=eye, Q=0.1 * eye, R=eye)
    >>> kf.run(torch.zeros(1, 5, 2)).mean.shape
    torch.Size([1, 5, 2])
    """
    cls = FILTERS[name]
    system = options.pop("system", None)
    arrays = {key: torch.as_tensor(options.pop(key)) for key in cls.arrays if options.get(key) is not None}
    options = {key: value for key, value in options.items() if not (key in cls.arrays and value is None)}
    config = parse_config(cls.Config, cls.infer_options(options, arrays, system), f"filter {name}")
    return make(cls, config, system, arrays)


def make(cls: Any, config: Any, system: System | None, arrays: dict[str, Tensor]) -> Filter:
    """Construct a filter with the dtype and device of its system or arrays."""
    built: Filter = cls(config, system=system, **arrays)
    source = list(arrays.values()) if system is None else [*system.parameters(), *system.buffers()]
    reference = next((tensor for tensor in source if tensor.is_floating_point()), None)
    return built if reference is None else built.to(dtype=reference.dtype, device=reference.device)


def available() -> list[str]:
    """The names of all registered filters."""
    return sorted(FILTERS)


def options_of(config: Any) -> dict[str, Any]:
    """A config as plain values, ready for JSON."""
    return dataclasses.asdict(config)
