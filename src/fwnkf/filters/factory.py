"""Building filters by name, as files and commands do."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..registry import FILTERS
from .base import Filter


def build(name: str, **options: Any) -> Filter:
    """Build a filter by name, as files and commands do.

    Args:
        name: a registered name, see :func:`fwnkf.filters.available`.
        **options: options of the filter's config, its tensors by name, and ``system=…``.

    Returns:
        The filter.

    Raises:
        ConfigError: the name or an option is unknown, or an option has no effect with the others.

    >>> import torch, fwnkf
    >>> eye = torch.eye(2)
    >>> kf = fwnkf.build("kf", F=eye, H=eye, Q=0.1 * eye, R=eye)
    >>> kf.run(torch.zeros(1, 5, 2)).mean.shape
    torch.Size([1, 5, 2])
    """
    cls = FILTERS[name]
    system = options.pop("system", None)
    config, arrays = cls.parse(system, options)
    built: Filter = cls.from_config(config, system, **arrays)
    return built


def available() -> list[str]:
    """The names of all registered filters.

    Returns:
        The names, sorted.

    >>> from fwnkf.filters import available
    >>> "ekf" in available()
    True
    """
    return sorted(FILTERS)


def options_of(config: Any) -> dict[str, Any]:
    """A config as plain values, ready for JSON."""
    return dataclasses.asdict(config)
