"""Names that are imported on first use: those of a package (PEP 562), so that importing it stays fast, and what a
method of a lower layer hands on to an upper one."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def attach(package: str, homes: Mapping[str, Sequence[str] | Mapping[str, str]]) -> Callable[[str], Any]:
    """A module-level ``__getattr__`` for a package.

    ``homes`` maps submodules to the names they define, or to a mapping of names of the package to theirs; a submodule
    is itself a name.

    >>> attach("json", {"decoder": ["JSONDecoder"]})("JSONDecoder").__name__
    'JSONDecoder'
    """
    places = {
        name: (module, names[name] if isinstance(names, Mapping) else name)
        for module, names in homes.items()
        for name in names
    }

    def getattribute(name: str) -> Any:
        if name in places:
            module, attribute = places[name]
            value = getattr(importlib.import_module(f"{package}.{module}"), attribute)
        elif name in homes:
            value = importlib.import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)
        return value

    return getattribute


def upper(place: str) -> Callable[..., Any]:
    """A function of a layer above the caller's, by its full name, for methods that only hand themselves on to it.

    The lower layer does not depend on the upper one: without a call it is not imported.

    >>> upper("math.sqrt")(4.0)
    2.0
    """
    module, _, name = place.rpartition(".")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function
