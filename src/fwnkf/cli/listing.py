"""``fwnkf list``: available filters, systems, losses, experiments, data and options."""

from __future__ import annotations

import argparse
import dataclasses
from importlib import import_module
from typing import Any, Literal, get_args, get_origin, get_type_hints

from .output import UsageError, add_json, say_table, table, to_json

KINDS = ("filters", "systems", "losses", "experiments", "data")


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "list", help="list filters, systems, losses, experiments, data and options of a filter"
    )
    parser.add_argument(
        "what", nargs="?", choices=(*KINDS, "options"), help="what to list (default: everything except options)"
    )
    parser.add_argument("filter", nargs="?", metavar="FILTER", help="the filter, with `options` only")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print one list, or all of them."""
    if (options.what == "options") != (options.filter is not None):
        raise UsageError(
            "use `fwnkf list options FILTER` or `fwnkf list KIND`; `fwnkf list filters` shows the names of filters"
        )
    if options.what == "options":
        rows = options_of_filter(options.filter)
        if not options.json:
            rows = [{**row, "default": "required" if row["required"] else row["default"]} for row in rows]
        names = ("option", "type", "default", "choices", "limits")
        say_table(options, rows, {name: name for name in names if any(row[name] for row in rows)})
    elif options.what:
        say_table(options, named(options.what), {"name": "name", "description": "description"})
    else:
        lists = {kind: named(kind) for kind in KINDS}
        if options.json:
            print(to_json(lists))
        else:
            shown = {"name": "", "description": ""}
            blocks = [[kind, *("  " + line for line in table(rows, shown)[1:])] for kind, rows in lists.items()]
            print("\n\n".join("\n".join(block) for block in blocks))
    return 0


def named(kind: str) -> list[dict[str, str]]:
    """Names of one kind, with the first line of their description."""
    if kind == "experiments":
        from ..training.experiments import shipped

        return [{"name": name, "description": line} for name, line in shipped().items()]
    if kind == "data":
        from ..data import catalogue, protocols

        simulated = {name: f"simulated, {count:,} trajectories" for name, count in protocols.SIMULATED_SIZES.items()}
        recorded = {name: catalogue.info(name).title for name in catalogue.list_sets()}
        tables = {"tables": "your own recordings: CSV or Parquet files in a folder"}
        return [{"name": name, "description": text} for name, text in {**simulated, **recorded, **tables}.items()]
    registry = _registry(kind)
    return [{"name": name, "description": first_line(registry[name])} for name in sorted(registry)]


def _registry(kind: str) -> Any:
    """The registry of one kind; importing the package fills it."""
    if kind == "losses":
        from ..training.losses import LOSSES

        return LOSSES
    import_module("fwnkf.filters")
    import_module("fwnkf.systems")
    from ..registry import FILTERS, SYSTEMS

    return {"filters": FILTERS, "systems": SYSTEMS}[kind]


def first_line(cls: type) -> str:
    """The first line of a docstring, without markup.

    >>> first_line(type("A", (), {"__doc__": "Moves by ``F x``.\\n\\nMore."}))
    'Moves by F x.'
    """
    lines = (cls.__doc__ or "").strip().splitlines()
    return lines[0].replace("``", "") if lines else ""


def options_of_filter(name: str) -> list[dict[str, Any]]:
    """The fields of a filter's config: type, default, choices and limits."""
    config = _registry("filters")[name].Config
    hints = get_type_hints(config)
    return [
        {
            "option": field.name,
            "type": _type_name(hints[field.name]),
            "required": _default(field) is dataclasses.MISSING,
            "default": None if _default(field) is dataclasses.MISSING else _default(field),
            "choices": list(get_args(hints[field.name])) if get_origin(hints[field.name]) is Literal else [],
            "limits": ", ".join(f"{word} {value:g}" for word, value in field.metadata.items()),
        }
        for field in dataclasses.fields(config)
    ]


def _type_name(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(sorted({type(choice).__name__ for choice in get_args(hint)}))
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint).replace("typing.", "")


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory if field.default_factory is dataclasses.MISSING else field.default_factory()
