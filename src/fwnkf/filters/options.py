"""From the arguments of a constructor to the config of a filter and its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..core.system import System
from ..errors import ConfigError
from ..registry import FILTERS, parse_config


def arguments(names: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a constructor from its ``locals()``, so that they are written down once."""
    return {name: value for name, value in names.items() if name not in ("self", "__class__")}


def parse_options(cls: Any, system: System | None, options: Mapping[str, Any]) -> tuple[Any, dict[str, Tensor]]:
    """The config and the tensors of a filter of class ``cls``; None stands for an option that was not given."""
    check_system(cls, system)
    given = {name: value for name, value in options.items() if value is not None}
    arrays = {name: torch.as_tensor(given.pop(name)) for name in cls.arrays if name in given}
    owner = f"filter {FILTERS.name_of(cls) or cls.__name__}"
    config: Any = parse_config(cls.Config, cls.infer_options(given, arrays, system), owner)
    faults = cls.unused_options(config, given)
    if faults:
        raise ConfigError("\n".join(f"{owner}: {fault}" for fault in faults))
    return config, arrays


def check_system(cls: Any, system: System | None) -> None:
    """Raise ConfigError if a filter that takes no system is given one."""
    if system is not None and not cls.takes_system:
        name = FILTERS.name_of(cls) or cls.__name__
        raise ConfigError(f"filter {name!r} takes {cls.instead_of_system}, not a system")
