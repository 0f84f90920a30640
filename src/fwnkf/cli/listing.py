"""``fwnkf list``: filters, their parts, systems, losses, experiments, data, logs, shipped filters and options."""

from __future__ import annotations

import argparse
import dataclasses
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from ..summary import about
from .output import UsageError, add_json, print_json, print_text, say_table, table

if TYPE_CHECKING:
    from ..airframes import Airframe

KINDS = ("filters", "parts", "systems", "losses", "experiments", "data", "logs", "models", "airframes")


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "list",
        help="list filters, parts, systems, losses, experiments, data, logs, trained filters, airframes, and options",
    )
    parser.add_argument(
        "what", nargs="?", choices=(*KINDS, "options"), help="what to list (default: everything except options)"
    )
    parser.add_argument("named", nargs="?", metavar="NAME", help="a filter, part, system or data, with `options` only")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print one list, or all of them."""
    if (options.what == "options") != (options.named is not None):
        raise UsageError(
            "use `fwnkf list options NAME` or `fwnkf list KIND`; `fwnkf list filters` shows the names of filters"
        )
    if options.what == "options":
        rows = options_of(options.named)
        if not options.json:
            rows = [{**row, "default": "required" if row["required"] else row["default"]} for row in rows]
        names = ("option", "type", "default", "choices", "limits")
        say_table(options, rows, {name: name for name in names if any(row[name] for row in rows)})
    elif options.what:
        rows = named(options.what)
        columns = ("name", "description", "options")
        say_table(options, rows, {name: name for name in columns if any(row.get(name) for row in rows)})
    else:
        lists = {kind: named(kind) for kind in KINDS}
        if options.json:
            print_json(lists)
        else:
            shown = {"name": "", "description": ""}
            blocks = [[kind, *("  " + line for line in table(rows, shown)[1:])] for kind, rows in lists.items()]
            print_text("\n\n".join("\n".join(block) for block in blocks))
    return 0


def named(kind: str) -> list[dict[str, Any]]:
    """Names of one kind, with the first line of their description; what has options of its own, with their names."""
    if kind == "experiments":
        from ..training.experiments import shipped

        return [{"name": name, "description": line} for name, line in shipped().items()]
    if kind == "data":
        from ..data.sets import catalogue

        registry = _registry("data")
        loaded = [{**_described(name, registry[name]), "options": _names(name, registry[name])} for name in registry]
        recorded = {name: f"{catalogue.info(name).title} (`fwnkf data`)" for name in catalogue.list_sets()}
        return [*loaded, *({"name": name, "description": text, "options": []} for name, text in recorded.items())]
    if kind == "logs":
        from ..logs.open import formats

        return [{"name": row.name, "description": f"{', '.join(row.suffixes)} ({row.package})"} for row in formats()]
    if kind == "models":
        from ..hub import index

        return [
            {"name": name, "description": f"{row['title'].replace('`', '')}: {row['measured']} {row['figure']}", **row}
            for name, row in index.shipped().items()
        ]
    if kind == "airframes":
        from .. import airframes

        return [
            {"name": one.name, "description": f"{one.frame}; {one.imu}; {_measured(one)}; {one.licence}"}
            for one in map(airframes.shipped, airframes.list_airframes())
        ]
    registry = _registry(kind)
    rows = [_described(name, registry[name]) for name in sorted(registry)]
    return (
        [{**row, "options": _names(row["name"], registry[row["name"]])} for row in rows]
        if kind in ("parts", "systems")
        else rows
    )


def _measured(airframe: Airframe) -> str:
    """The sensors of an airframe with their rates and strongest lines."""
    return ", ".join(
        f"{one.sensor} {one.rate_hz:.0f} Hz" + (f" with a line at {one.lines[0].hz:.0f} Hz" if one.lines else "")
        for one in airframe.spectra
    )


def _described(name: str, item: Any) -> dict[str, Any]:
    return {"name": name, "description": about(item)}


def _names(name: str, item: Any) -> list[str]:
    """The names of the options of a part, a system or of data."""
    return [field.name for field in dataclasses.fields(_config(name, item))]


def _config(name: str, item: Any) -> Any:
    """The dataclass of the options of a filter, part, system or loader of data."""
    if hasattr(item, "Config"):
        return item.Config
    if dataclasses.is_dataclass(item):
        return item
    from ..data.loaders import options_class

    return options_class(item, name)


def _registry(kind: str) -> Any:
    """The registry of one kind; importing the package fills it."""
    if kind == "losses":
        from ..training.losses import LOSSES

        return LOSSES
    for package in ("filters", "filters.parts", "systems", "data"):
        import_module(f"fwnkf.{package}")
    from ..registry import DATA, FILTERS, PARTS, SYSTEMS

    return {"filters": FILTERS, "parts": PARTS, "systems": SYSTEMS, "data": DATA}[kind]


def options_of(name: str) -> list[dict[str, Any]]:
    """The options of a filter, part, system or data: type, default, choices and limits."""
    registries = [_registry(kind) for kind in ("filters", "parts", "systems", "data")]
    registry = next((registry for registry in registries if name in list(registry)), registries[0])
    config = _config(name, registry[name])
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
    parts = _part_names(hint)
    if parts:
        return f"{'parts' if get_origin(hint) is tuple else 'part'} {', '.join(parts)}"
    if get_origin(hint) is Literal:
        return " or ".join(sorted({type(choice).__name__ for choice in get_args(hint)}))
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint).replace("typing.", "")


def _part_names(hint: Any) -> list[str]:
    """The names of the parts that an option takes; none for other options."""
    registry = _registry("parts")
    kinds = [item for item in (hint, *get_args(hint)) if isinstance(item, type) and hasattr(item, "kind")]
    return sorted(name for name in registry for kind in kinds if issubclass(registry[name], kind))


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory if field.default_factory is dataclasses.MISSING else field.default_factory()
