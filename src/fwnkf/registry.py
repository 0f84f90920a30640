"""One registry of names: filters and systems are built, saved and loaded by what they are called here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin, get_type_hints

from .errors import ConfigError, UnknownNameError

T = TypeVar("T")
C = TypeVar("C")


class Registry(Generic[T]):
    """Names to classes of one kind; a duplicate is an error, an unknown name lists what there is."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._classes: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """A decorator that gives a class its name: what ``build`` and ``load`` look it up by."""

        def add(cls: T) -> T:
            if name in self._classes:
                raise ConfigError(f"{self.kind} {name!r} is registered twice: {self._classes[name]} and {cls}")
            self._classes[name] = cls
            return cls

        return add

    def __getitem__(self, name: str) -> T:
        if name not in self._classes:
            raise UnknownNameError(
                f"no {self.kind} is called {name!r}; there are: {', '.join(sorted(self))}. "
                "One of your own must be imported (and so registered) before it is built or loaded."
            )
        return self._classes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def name_of(self, cls: type) -> str | None:
        """The name under which exactly this class is registered, or None."""
        return next((name for name, known in self._classes.items() if known is cls), None)


# classes of fwnkf.filters and of fwnkf.core.system, which lie above this module: it cannot name their types
FILTERS: Registry[Any] = Registry("filter")
SYSTEMS: Registry[Any] = Registry("system")


def _fits(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if hint is Any:
        return True
    if origin is Literal:
        return value in get_args(hint)
    if origin is tuple:
        inner = get_args(hint)[0]
        return isinstance(value, tuple) and all(_fits(item, inner) for item in value)
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return not isinstance(hint, type) or isinstance(value, hint)


def parse_config(cls: type[C], values: Mapping[str, Any], owner: str) -> C:
    """Build a frozen dataclass from plain values; a wrong name, type or choice is one readable line each.

    Lists become tuples, so that values read from JSON parse as those given in code.
    """
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    hints = get_type_hints(cls)
    faults = []
    clean: dict[str, Any] = {}
    for name, value in values.items():
        if name not in fields:
            faults.append(f"{owner}: no option {name!r}; there are: {', '.join(fields)}")
            continue
        clean[name] = _as_tuple(value)
        if not _fits(clean[name], hints[name]):
            wanted = get_args(hints[name]) if get_origin(hints[name]) is Literal else hints[name]
            faults.append(f"{owner}: option {name} = {value!r} does not fit; wanted {wanted}")
        minimum = fields[name].metadata.get("min")
        if minimum is not None and isinstance(value, (int, float)) and value < minimum:
            faults.append(f"{owner}: option {name} = {value!r} is below {minimum}")
    if faults:
        raise ConfigError("\n".join(faults))
    missing = [
        name
        for name, field in fields.items()
        if name not in clean and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise ConfigError(f"{owner}: missing option(s) {', '.join(missing)}")
    return cls(**clean)


def at_least(minimum: float | int, default: Any) -> Any:
    """A dataclass field whose value may not lie below ``minimum``."""
    return dataclasses.field(default=default, metadata={"min": minimum})


def _as_tuple(value: Any) -> Any:
    return tuple(_as_tuple(item) for item in value) if isinstance(value, (list, tuple)) else value
