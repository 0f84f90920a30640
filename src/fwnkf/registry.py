"""Registries of filters, systems and preprocessing by name, and the parsing of their configurations."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import math
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Generic, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from .errors import MOST_NAMES, ConfigError, FwnkfError, UnknownNameError, listed, shown

T = TypeVar("T")
C = TypeVar("C")
MOST_LETTERS = 80
"""Of a name for which a similar one is looked for."""
MOST_PARTS = 64
"""Of one option, which may come from a file."""
MANY = 24
"""Options above which a fault names the nearest one alone: it is one readable line."""


class Registry(Generic[T]):
    """A mapping of names to classes of one kind. Duplicates raise; an unknown name raises with the names registered."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._classes: dict[str, T] = {}
        self._modules: dict[str, str] = {}

    def declare(self, package: str, **modules: str) -> None:
        """Name the modules of ``package`` that register a class, so that each is imported when its name is used."""
        self._modules.update({name: f"{package}.{module}" for name, module in modules.items()})

    def register(self, name: str, *, again: bool = False) -> Callable[[C], C]:
        """A decorator that registers a class, or a loader of data, under a name.

        ``build``, ``load``, experiments and commands refer to it by this name. What is decorated keeps its type.

        Args:
            name: the name.
            again: lets a module replace its own class, as when a cell of a notebook is run again.

        Returns:
            The decorator.

        Raises:
            ConfigError: the name is taken.

        >>> from fwnkf.registry import Registry
        >>> toys = Registry("toy")  # fwnkf.register_filter and its kin are this method of the package's registries
        >>> @toys.register("ball")
        ... class Ball:
        ...     pass
        >>> toys["ball"].__name__
        'Ball'
        """

        def add(cls: C) -> C:
            home = getattr(cls, "__module__", None)
            if again and name in self._classes and getattr(self._classes[name], "__module__", None) == home:
                del self._classes[name]
            if name in self._classes or self._modules.get(name, home) != home:
                other = self._classes.get(name) or self._modules[name]
                raise ConfigError(f"{self.kind} {name!r} is registered twice: {other} and {cls}; rename one of them")
            self._classes[name] = cast(T, cls)
            return cls

        return add

    def __getitem__(self, name: str) -> T:
        if name not in self._classes and name in self._modules:
            importlib.import_module(self._modules[name])
        if name not in self._classes:
            raise UnknownNameError(
                f"no {self.kind} is called {shown(name)}; there are: {', '.join(sorted(self))}. "
                f"Your own {self.kind} is known once the module that registers it is imported: import it before "
                "building or loading, in commands with --import MODULE."
            )
        return self._classes[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._modules, **self._classes})

    def name_of(self, cls: Any) -> str | None:
        """The name under which this class, or what makes instances, is registered; None if it is not."""
        return next((name for name, known in self._classes.items() if known is cls), None)


# typed Any because this module cannot import fwnkf.filters or fwnkf.core, which depend on it
FILTERS: Registry[Any] = Registry("filter")
SYSTEMS: Registry[Any] = Registry("system")
MOTIONS: Registry[Any] = Registry("motion")
SENSORS: Registry[Any] = Registry("sensor")
FEATURES: Registry[Any] = Registry("feature")
"""Functions of a state whose values are terms of a regressed motion, see :mod:`fwnkf.systems.regression`."""
PREPROCESS: Registry[Any] = Registry("preprocess")
PARTS: Registry[Any] = Registry("part")
"""Options of the parts of filters, see :mod:`fwnkf.filters.parts`."""
FIGURES: Registry[Any] = Registry("figure")
"""Functions that draw, which :mod:`fwnkf.report` has and objects below it call by name."""
DATA: Registry[Any] = Registry("data")
"""Functions with keyword options that return the records of an experiment, see :mod:`fwnkf.data.loaders`."""


def import_modules(names: Iterable[str]) -> None:
    """Import modules of the user, which register systems, data or filters; the current directory is on the path.

    A name may also be the path of a ``.py`` file. Importing executes the module: only names that the user gave belong
    here, never names from a checkpoint or a run folder.
    """
    for name in names:
        path = Path(name) if name.endswith(".py") else Path(f"{name.split('.')[0]}.py")
        folder = str(path.resolve().parent)
        module = path.stem if name.endswith(".py") else name
        if folder not in sys.path:
            sys.path.insert(0, folder)
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
                raise ConfigError(
                    f"no module {module!r}: there is no {path.name} in {folder}, and no such package is installed"
                ) from error
            raise ConfigError(f"module {module!r} imports {error.name!r}, which is not installed") from error
        except FwnkfError as error:
            raise ConfigError(f"module {module!r}: {error}") from error
        except Exception as error:  # whatever the module may raise
            lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith(".py")]
            where = f"{lines[-1].filename}, line {lines[-1].lineno}: " if lines else ""
            raise ConfigError(f"module {module!r} fails: {where}{type(error).__name__}: {error}") from error


def fits(value: Any, hint: Any) -> bool:
    """Whether a plain value is of the annotated type; a ``bool`` is not a number, an ``int`` is also a float.

    Integers are those of 64 bits, as torch has them.
    """
    origin = get_origin(hint)
    if hint is Any:
        return True
    if origin is Literal:
        return value in get_args(hint) and not isinstance(value, bool)
    if origin in (Union, UnionType):
        return any(fits(value, choice) for choice in get_args(hint))
    if origin is tuple:
        inner = get_args(hint)[0]
        return isinstance(value, tuple) and all(fits(item, inner) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(isinstance(key, str) for key in value)
    if hint is float and isinstance(value, float):
        return True
    if hint in (int, float):
        return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    if dataclasses.is_dataclass(hint):
        return isinstance(value, Mapping) or (isinstance(hint, type) and isinstance(value, hint))
    return not isinstance(hint, type) or isinstance(value, hint)


def parse_config(cls: type[C], values: Mapping[str, Any], owner: str) -> C:
    """Build a frozen dataclass from plain values. Raises ConfigError with one line per wrong name, type or choice.

    Lists become tuples, so that values from JSON parse like values from code. A field that is itself a dataclass takes
    a mapping, and its faults are reported with its name as prefix.
    """
    parsed, faults = try_config(cls, values, owner)
    if faults or parsed is None:
        raise ConfigError("\n".join(faults))
    return parsed


def try_config(cls: type[C], values: Mapping[str, Any], owner: str, path: str = "") -> tuple[C | None, list[str]]:
    """As :func:`parse_config`, but return the faults as lines, so that a caller can report those of several configs."""
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    hints = get_type_hints(cls)
    faults: list[str] = []
    clean: dict[str, Any] = {}
    unknown = [name for name in values if name not in fields]
    for name in unknown[:MOST_NAMES]:
        near = difflib.get_close_matches(str(name)[:MOST_LETTERS], fields, 1)
        known = [] if near and len(fields) > MANY else [f"there are: {', '.join(fields)}"]
        hint = [f"did you mean {path}{near[0]}?"] if near else []
        faults.append(f"{owner}: no option {shown(f'{path}{name}')}; {'; '.join(known + hint)}")
    if len(unknown) > MOST_NAMES:
        faults.append(f"{owner}: no options {listed(unknown[MOST_NAMES:])} either")
    for name, value in values.items():
        if name not in fields:
            continue
        full = f"{path}{name}"
        clean[name] = as_tuples(value)
        if not fits(clean[name], hints[name]):
            faults.append(f"{owner}: option {full} = {shown(value)} does not fit; wanted {_wanted(hints[name])}")
        elif (nested := _nested(hints[name], clean[name])) is not None:
            clean[name], inner = _try_nested(nested, clean[name], owner, full)
            faults += inner
        else:
            faults += _outside(fields[name].metadata, value, f"{owner}: option {full} = {shown(value)}")
    missing = [
        name
        for name, field in fields.items()
        if name not in clean and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        faults.append(f"{owner}: missing option(s) {', '.join(path + name for name in missing)}")
    if faults:
        return None, faults
    try:
        return cls(**clean), []
    except ConfigError as error:  # from __post_init__: invalid combinations of fields
        return None, str(error).splitlines()


def _nested(hint: Any, value: Any) -> Any:
    """The dataclass that a mapping or an instance, or a sequence with some, is parsed as; None for other values."""
    if isinstance(value, tuple):
        if not any(map(_has_options, value)):
            return None
        hint = get_args(hint)[0]
    elif not _has_options(value):
        return None
    choices = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return next((choice for choice in choices if dataclasses.is_dataclass(choice)), None)


def _has_options(value: Any) -> bool:
    return isinstance(value, Mapping) or dataclasses.is_dataclass(value)


def _try_nested(cls: Any, value: Any, owner: str, path: str) -> tuple[Any, list[str]]:
    """A dataclass, or several, from plain values; ``part`` names which one it is where a field takes several kinds."""
    if isinstance(value, tuple):
        if len(value) > MOST_PARTS:
            return None, [f"{owner}: option {path} has {len(value):,} parts; wanted at most {MOST_PARTS}"]
        items = [_try_nested(cls, item, owner, f"{path}[{place}]") for place, item in enumerate(value)]
        return tuple(item for item, _ in items), [fault for _, faults in items for fault in faults]
    if dataclasses.is_dataclass(value):  # one made in code is checked as one from a file is
        own = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return try_config(type(value), own, owner, f"{path}.")
    if not isinstance(value, Mapping):
        return value, []
    options = dict(value)
    if hasattr(cls, "kind") or "part" in options:
        kinds = [name for name in PARTS if issubclass(PARTS[name], cls)]
        name = options.pop("part", kinds[0] if len(kinds) == 1 else None)
        if name not in kinds:
            return None, [f"{owner}: option {path} is of part {shown(name)}; wanted part: {', '.join(sorted(kinds))}"]
        parsed, faults = try_config(PARTS[name], options, owner, f"{path}.")
        # what a part says of its own options has no place yet
        return parsed, [line if line.startswith(owner) else f"{owner}: option {path}: {line}" for line in faults]
    return try_config(cls, options, owner, f"{path}.")


def _wanted(hint: Any) -> str:
    """A description of the values a field accepts."""
    origin = get_origin(hint)
    if origin is Literal:
        return str(get_args(hint))
    if origin in (Union, UnionType):
        return " or ".join("null" if choice is NoneType else _wanted(choice) for choice in get_args(hint))
    if dataclasses.is_dataclass(hint):
        kinds = [name for name in PARTS if issubclass(PARTS[name], cast(type, hint))]
        if len(kinds) > 1:
            return f"mappings with part: {', '.join(sorted(kinds))}"
        return f"options of its own: {', '.join(field.name for field in dataclasses.fields(hint))}"
    if origin is tuple:
        inner = get_args(hint)[0]
        return "a list" if inner is Any else f"a list of {_wanted(inner)}"
    if origin is dict:
        return "a mapping of names to values"
    return hint.__name__ if isinstance(hint, type) else str(hint)


def _outside(limits: Mapping[str, Any], value: Any, where: str) -> list[str]:
    """Check a number, or each number of a list, against the limits of its field; a list of at most one fault."""
    if isinstance(value, (list, tuple)):
        return [fault for item in value for fault in _outside(limits, item, where)][:1]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return []
    if isinstance(value, float) and not math.isfinite(value):
        return [f"{where} is no finite number"]
    if "min" in limits and value < limits["min"]:
        return [f"{where} is below {limits['min']}"]
    if "above" in limits and value <= limits["above"]:
        return [f"{where} must be above {limits['above']}"]
    if "max" in limits and value > limits["max"]:
        return [f"{where} is above {limits['max']}"]
    return []


def at_least(minimum: float | int, default: Any) -> Any:
    """A dataclass field whose value must not be below ``minimum``."""
    return limited(default, min=minimum)


def limited(default: Any, **limits: float) -> Any:
    """A dataclass field with limits: ``min``, ``above`` (exclusive minimum) and ``max``."""
    return dataclasses.field(default=default, metadata=limits)


def as_tuples(value: Any) -> Any:
    """Convert the lists within a plain value to tuples, so that frozen configs are immutable."""
    return tuple(as_tuples(item) for item in value) if isinstance(value, (list, tuple)) else value
