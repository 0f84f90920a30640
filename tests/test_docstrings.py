"""Docstrings of public names: Google style, complete, each with an example that ``test_package`` runs.

Public is what an ``__all__`` lists, and the methods of the classes in it. There is no list of exceptions.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Set
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import fwnkf

SOURCE = Path(fwnkf.__file__).parent
SECTIONS = ("Args", "Attributes", "Returns", "Yields", "Raises", "Example")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def assigned(node: ast.stmt) -> list[str]:
    """The names that an assignment binds."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def declares_public_names(path: Path) -> bool:
    return any("__all__" in assigned(node) for node in tree_of(path).body)


def module_name(path: Path) -> str:
    return ".".join(("fwnkf", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")


MODULES = sorted(module_name(path) for path in SOURCE.rglob("*.py") if declares_public_names(path))
"""From the files: every module that says what is public."""


def imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name and missing.name.split(".")[0] != "fwnkf":
            pytest.skip(f"{name} needs the extra that brings {missing.name}")
        raise


def documented_values(body: list[ast.stmt]) -> set[str]:
    """Names that are assigned or annotated in a body, each followed by a string that describes it."""
    return {
        name
        for node, after in pairwise(body)
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str)
        for name in assigned(node)
    }


# ---- reading a docstring ------------------------------------------------------------------------------------------


def sections(doc: str) -> dict[str, str]:
    """The text of each section of a Google-style docstring; the part before the first one is called ""."""
    parts = re.split(rf"^({'|'.join(SECTIONS)}):[ ]*$", doc, flags=re.M)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def entries(text: str) -> dict[str, str]:
    """The entries ``name: description`` of a section, which ends where the indentation does."""
    block = re.match(r"(?:[ ]{4}.*\n?|[ ]*\n)*", text.lstrip("\n"))
    found = re.findall(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*): *(.*)$", textwrap.dedent(block[0] if block else ""), re.M)
    return {name: text for names, text in found for name in names.split(", ")}


def summary_faults(doc: str) -> Iterator[str]:
    first, *rest = doc.splitlines()
    if not first.strip() or first.startswith(">>>"):
        yield "no summary line"
    elif first.rstrip()[-1] not in ".:?":
        yield f"the summary {first!r} is not a sentence on one line"
    if rest and rest[0].strip():
        yield "no empty line after the summary"


def parameters_of(call: Callable[..., Any], skip_first: bool) -> list[str]:
    listed = list(inspect.signature(call).parameters.values())[1 if skip_first else 0 :]
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return [stars.get(item.kind, "") + item.name for item in listed if not item.name.startswith("_")]


def entry_faults(given: dict[str, str], wanted: list[str], elsewhere: Set[str] = frozenset()) -> Iterator[str]:
    missing = [name for name in wanted if name not in given and name not in elsewhere]
    unknown = [name for name in given if name not in wanted]
    empty = [name for name, text in given.items() if not text]
    for names, fault in ((missing, "not described"), (unknown, "unknown"), (empty, "described by nothing")):
        if names:
            yield f"arguments {fault}: {', '.join(names)}"


def function_faults(call: Callable[..., Any], doc: str | None, skip_first: bool) -> Iterator[str]:
    if not doc:
        yield "no docstring"
        return
    yield from summary_faults(doc)
    yield from entry_faults(entries(sections(doc).get("Args", "")), parameters_of(call, skip_first))
    returned = inspect.signature(call).return_annotation
    gives = returned not in (None, "None", "Never", "NoReturn", inspect.Signature.empty)
    said = {"Returns", "Yields"} & set(sections(doc))
    if gives and not said:
        yield "no Returns:"
    if said and not gives:
        yield "Returns: of a function that returns nothing"


# ---- classes ------------------------------------------------------------------------------------------------------


def class_node(cls: type) -> ast.ClassDef | None:
    """The definition of a class in its file; None if it was made in another way."""
    module = sys.modules[cls.__module__]
    body: list[ast.stmt] = tree_of(Path(str(module.__file__))).body
    for part in cls.__qualname__.split("."):
        node = next((item for item in body if isinstance(item, ast.ClassDef) and item.name == part), None)
        if node is None:
            return None
        body = node.body
    return node


def ours(cls: type) -> list[type]:
    """The class and its bases that this package defines."""
    return [base for base in cls.__mro__ if base.__module__.split(".")[0] == "fwnkf"]


def field_faults(cls: type, names: list[str]) -> Iterator[str]:
    """Fields are described by a string after each, or under ``Attributes:`` or ``Args:`` of the class or of a base."""
    described: set[str] = set()
    for base in ours(cls):
        node = class_node(base)
        described |= documented_values(node.body) if node else set()
        found = sections(inspect.cleandoc(base.__doc__ or ""))
        described |= {name for section in ("Attributes", "Args") for name in entries(found.get(section, ""))}
    missing = [name for name in names if name not in described]
    if missing:
        yield f"fields without a description: {', '.join(missing)}"


def constructor_faults(cls: type) -> Iterator[str]:
    if issubclass(cls, enum.Enum):
        yield from field_faults(cls, [item.name for item in cls])
    elif dataclasses.is_dataclass(cls):
        yield from field_faults(cls, [item.name for item in dataclasses.fields(cls) if not item.name.startswith("_")])
    elif hasattr(cls, "_fields"):
        yield from field_faults(cls, list(cls._fields))
    elif getattr(cls, "_is_protocol", False):
        return  # nobody constructs one
    else:
        owner = next((base for base in ours(cls) if "__init__" in vars(base)), None)
        wanted = parameters_of(owner.__init__, skip_first=True) if owner else []
        own, *inherited = [constructor_entries(base) for base in ours(cls)]
        # an option that a base class describes need not be repeated
        yield from entry_faults(own, wanted, {name for given in inherited for name in given})


def constructor_entries(cls: type) -> dict[str, str]:
    """What a class says of the arguments of its constructor, in its docstring or that of ``__init__``."""
    docs = (cls.__doc__, getattr(vars(cls).get("__init__"), "__doc__", None))
    return {
        name: text
        for doc in docs
        if doc
        for name, text in entries(sections(inspect.cleandoc(doc)).get("Args", "")).items()
    }


def members(cls: type) -> Iterator[tuple[str, Any, type]]:
    """Public methods and properties that the package defines for a class: name, object, class that defines it."""
    seen: set[str] = set()
    for base in ours(cls):
        for name, item in vars(base).items():
            if name.startswith("_") or name in seen or isinstance(item, type):
                continue
            seen.add(name)
            inner = inspect.unwrap(item) if inspect.isfunction(item) else item
            if isinstance(inner, (staticmethod, classmethod, property)) or inspect.isfunction(inner):
                yield name, inner, base


def class_faults(cls: type, doc: str | None) -> Iterator[str]:
    if not doc or not vars(cls).get("__doc__"):
        yield "no docstring"
        return
    yield from summary_faults(doc)
    yield from constructor_faults(cls)


def with_inherited_sections(name: str, base: type) -> str | None:
    """The docstring of a method as help() shows it; what it does not say about arguments, the method it overrides does.

    An override that adds a remark need not repeat the arguments, if they have the same names.
    """
    docs = [inspect.cleandoc(vars(cls)[name].__doc__ or "") for cls in ours(base) if name in vars(cls)]
    docs = [doc for doc in docs if doc]
    if not docs:
        return None
    own, *others = docs
    for section in ("Args", "Returns"):
        source = next((sections(doc)[section] for doc in others if section in sections(doc)), None)
        if section not in sections(own) and source is not None:
            own += f"\n\n{section}:\n{source}"
    return own


def member_faults(name: str, item: Any, base: type) -> Iterator[str]:
    doc = with_inherited_sections(name, base)
    if isinstance(item, property):
        yield from summary_faults(doc) if doc else ["no docstring"]
        return
    call = inspect.unwrap(item.__func__) if isinstance(item, (staticmethod, classmethod)) else item
    yield from function_faults(call, doc, not isinstance(item, staticmethod))


# ---- all public names ---------------------------------------------------------------------------------------------


def faults_of(module: ModuleType, name: str) -> Iterator[str]:
    value = getattr(module, name)
    label = f"{module.__name__}.{name}"
    if inspect.ismodule(value):
        if value.__name__ not in MODULES:
            yield f"{label}: a public module without __all__"
        return
    if callable(value) and getattr(value, "__module__", "").split(".")[0] != "fwnkf":
        return  # of another package, whose documentation is there
    doc = inspect.getdoc(value)
    if inspect.isclass(value):
        found = list(class_faults(value, doc))
        # a method is reported once, at the class that defines it
        for method, item, base in members(value):
            where = f"{base.__module__}.{base.__qualname__}.{method}"
            yield from (f"{where}: {fault}" for fault in member_faults(method, item, base))
    elif callable(value):
        call = value.__func__ if inspect.ismethod(value) else inspect.unwrap(value)
        found = list(function_faults(call, doc, inspect.ismethod(value)))
    else:
        path = Path(str(module.__file__))
        described = documented_values(tree_of(path).body) | {
            item for origin in origins(path, name) for item in documented_values(tree_of(origin).body)
        }
        yield from () if name in described else [f"{label}: a value without a description"]
        return
    if doc and ">>>" not in doc:
        found.append("no example")
    yield from (f"{label}: {fault}" for fault in found)


def origins(path: Path, name: str) -> Iterator[Path]:
    """The files from which a module imports a name of the package."""
    for node in ast.walk(tree_of(path)):
        if (
            isinstance(node, ast.ImportFrom)
            and node.level
            and name in [alias.asname or alias.name for alias in node.names]
        ):
            folder = path.parents[node.level - 1]
            place = folder.joinpath(*(node.module or "").split("."))
            yield place.with_suffix(".py") if place.with_suffix(".py").exists() else place / "__init__.py"


@pytest.mark.parametrize("name", MODULES)
def test_public_names_are_documented(name: str):
    module = imported(name)
    faults = {fault: None for item in module.__all__ for fault in faults_of(module, item)}
    assert not faults, "\n".join(faults)


def test_every_package_says_what_is_public():
    packages = [path for path in SOURCE.glob("*/__init__.py") if not path.parent.name.startswith("_")]
    assert len(packages) > 10
    assert [path.parent.name for path in packages if not declares_public_names(path)] == []


def test_the_checker_finds_what_is_missing():
    def f(a: int, *rest: int, b: int = 0) -> int:
        """Do something.

        Args:
            a: a number.
            c: no argument.

        >>> 1
        1
        """
        return a

    assert list(function_faults(f, inspect.getdoc(f), skip_first=False)) == [
        "arguments not described: *rest, b",
        "arguments unknown: c",
        "no Returns:",
    ]
