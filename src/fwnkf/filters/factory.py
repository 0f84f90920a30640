"""Building filters by name, as files and commands do."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any, TypeVar

from ..registry import FILTERS, parse_config
from .base import Filter
from .parts.part import Part

FilterType = TypeVar("FilterType", bound=Filter)


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


def with_solve(model: FilterType, solve: str) -> FilterType:
    """A copy of a filter that computes the same estimates in another way, for a precision the filter was not made for.

    Args:
        model: the filter, trained or not.
        solve: as the option of the constructor; ``"square_root"`` is the form for float32.

    Returns:
        The copy.

    Raises:
        ConfigError: the filter has no such form.

    >>> import torch, fwnkf
    >>> eye = torch.eye(2)
    >>> with_solve(fwnkf.KF(F=eye, H=eye, Q=eye, R=eye), "square_root").config.solve
    'square_root'
    """
    changed = copy.deepcopy(model)
    options = options_of(model.config) | {"solve": solve}
    changed.config = parse_config(type(model.config), options, f"filter {model.name}")
    changed.check_forms()
    return changed


def available() -> list[str]:
    """The names of all registered filters.

    Returns:
        The names, sorted.

    >>> from fwnkf.filters import available
    >>> "ekf" in available()
    True
    """
    return sorted(FILTERS)


def options_of(config: Any, saved: bool = False) -> dict[str, Any]:
    """A config as plain values, ready for JSON; a part has its name under ``"part"``.

    ``saved`` leaves out options that are where tensors start, for a file beside which the tensors are.
    """
    part = isinstance(config, Part)
    left_out = config.starts if saved and part else ()
    options = {
        field.name: _plain(getattr(config, field.name), saved)
        for field in dataclasses.fields(config)
        if field.name not in left_out
    }
    return {"part": config.kind} | options if part else options


def _plain(value: Any, saved: bool) -> Any:
    if dataclasses.is_dataclass(value):
        return options_of(value, saved)
    return tuple(_plain(item, saved) for item in value) if isinstance(value, tuple) else value
