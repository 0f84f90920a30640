"""Tools: which options of which commands a call may use, their schemas from the parser, and a call as words.

A tool is a command of the program. What is not named here cannot be asked for: no module to import, no experiment
(which names files), no cluster.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from ...errors import ConfigError, listed, shown
from ...plain import is_text
from ..main import parser
from .folders import LONGEST_PATH, Folders

MOST_ITEMS = 100
"""Values of one argument."""
COLUMNS = ("channels", "time", "topic", "field")
PICTURES = "pictures"
"""The argument for which a command draws; the pictures are in the answer, and not in a folder."""


@dataclass(frozen=True)
class Tool:
    """A command as a tool: which of its options are files to read, files to write, or plain values."""

    command: str
    reads: tuple[str, ...]
    writes: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    needs: Mapping[str, str] = field(default_factory=dict)
    """Arguments that are needed beside others."""
    suffixes: tuple[str, ...] = ()
    """Of the first file to read, where it is no folder; none: any."""
    draws: bool = False
    required: tuple[str, ...] = ()
    """Arguments that are needed here, and not on the command line, which has other ways to show a result."""
    words: Mapping[str, str] = field(default_factory=dict)
    """Descriptions of arguments that can do less here than on the command line."""

    @property
    def description(self) -> str:
        """What the command says of itself, and where its files are."""
        command, summary = _parser(self.command)
        files = f" Reads: {', '.join(self.reads)}."
        if self.writes:
            files += f" Writes: {', '.join(self.writes)}, which must not exist; relative to the first folder."
        return f"{summary[:1].upper()}{summary[1:]}. {command.description}{files}"

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the arguments."""
        properties = {name: _property(action) for name, action in self._actions()}
        for name, text in self.words.items():
            properties[name]["description"] = text
        if self.draws:
            properties[PICTURES] = {"type": "boolean", "description": "draw the result, as small pictures"}
        required = [name for name, action in self._actions() if action.required or name in self.required]
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    def job(self, arguments: Mapping[str, Any], folders: Folders, scratch: Path) -> Job:
        """A call as the words of its command. Raises ConfigError or DataError where it asks for what it may not."""
        schema = self.schema["properties"]
        if unknown := [name for name in arguments if name not in schema]:
            raise ConfigError(f"{self.command} has no argument {listed(unknown)}; it has {listed(schema)}")
        given = {name: value for name, value in arguments.items() if value is not None}
        if missing := [name for name in self.schema["required"] if name not in given]:
            raise ConfigError(f"{self.command} needs {listed(missing)}")
        for name, value in given.items():
            _check(name, value, schema[name])
        for name, other in self.needs.items():
            if given.get(name) and other not in given:
                raise ConfigError(f"{self.command}: {name} needs {other}, the path of what it writes")
        job = Job([self.command, "--json"], [self.command, "--json"])
        for number, (name, action) in enumerate(self._actions()):
            if name not in given:
                continue
            value = given[name]
            if name in self.reads:
                path = folders.existing(value)
                if name == self.reads[0] and self.suffixes and path.is_file() and path.suffix not in self.suffixes:
                    raise ConfigError(
                        f"{shown(value)}: wanted a folder, or a file that ends in {listed(self.suffixes)}"
                    )
                job.add(action, str(path))
            elif name in self.writes:
                path = folders.new(value)
                made = scratch / f"made-{number}" / path.name  # the worker writes here, and never below the folders
                made.parent.mkdir()
                job.results[made] = path
                job.add(action, str(made), shown=str(path))
            else:
                job.add(action, value)
        if len(set(job.results.values())) < len(job.results):
            raise ConfigError(f"{self.command}: two results have the same path")
        if given.get(PICTURES):
            job.pictures = scratch / PICTURES
            job.words.append(f"--plots={job.pictures}")
        return job

    def _actions(self) -> Iterator[tuple[str, argparse.Action]]:
        allowed = {*self.reads, *self.writes, *self.takes}
        for action in _parser(self.command)[0]._actions:
            if action.dest in allowed:
                yield action.dest, action


@dataclass
class Job:
    """The words of a command, those that a user would have typed, and what it makes."""

    words: list[str]
    shown: list[str]
    results: dict[Path, Path] = field(default_factory=dict)
    """Where the worker writes, and where the result belongs."""
    pictures: Path | None = None

    def add(self, action: argparse.Action, value: Any, shown: str | None = None) -> None:
        """Add an argument. A value is never a word of its own, so that none is taken for an option."""
        for words, one in ((self.words, value), (self.shown, value if shown is None else shown)):
            if not action.option_strings:  # a path, which is absolute
                words.append(one)
            elif isinstance(one, bool):
                words += [word for word in [_flag(action, one)] if word]
            else:
                words += [f"{_long(action)}={item}" for item in (one if isinstance(one, list) else [one])]


TOOLS = {
    tool.command: tool
    for tool in (
        Tool("diagnose", ("log", "filter"), ("output", "save", "params"), ("fix", "threshold", *COLUMNS),
             needs={"fix": "save"}, draws=True),
        Tool("navigate", ("log",), ("output", "save", "params"), ("imu", "fit", "begin", "end", *COLUMNS[1:]),
             draws=True),
        Tool("fit", ("data",), ("output",), ("system", "motion", "degree", "threshold", "set", "learn", "oscillators",
                                             "held_out", "channels", "controls", "state", "time", "field"),
             suffixes=(".csv", ".parquet"), words={"data": "a folder of .csv or .parquet files, or one such file"}),
        Tool("run", ("log", "filter"), ("output",), ("smooth", "lag", "stamps", "covariance", "engine", "controls",
                                                     *COLUMNS), required=("output",)),
        Tool("inspect", ("folder",), ("html",), ("which",), draws=True),
    )
}  # fmt: skip


@cache
def _parser(command: str) -> tuple[argparse.ArgumentParser, str]:
    """The parser of one command, and its line in the help."""
    (choices,) = (action for action in parser(command)._actions if isinstance(action, argparse._SubParsersAction))
    (line,) = choices._choices_actions
    return choices.choices[command], str(line.help)


NUMBERS = {"int": "integer", "float": "number", "_seconds": "number"}
"""Types of JSON for the functions that parse an option."""


def _property(action: argparse.Action) -> dict[str, Any]:
    """The schema of one argument."""
    kind: dict[str, Any] = {"type": NUMBERS.get(getattr(action.type, "__name__", ""), "string")}
    if action.nargs == 0:
        kind = {"type": "boolean"}
    elif isinstance(action, argparse._AppendAction):
        kind = {"type": "array", "items": kind}
    if action.choices is not None:
        kind["enum"] = list(action.choices)
    return {**kind, "description": (action.help or "") % {**vars(action), "prog": "fwnkf"}}


KINDS: dict[str, tuple[type, ...]] = {"string": (str,), "boolean": (bool,), "integer": (int,), "number": (int, float)}


def _check(name: str, value: Any, schema: Mapping[str, Any]) -> None:
    """Raise ConfigError where a value is not of its type, or is too long."""
    if schema["type"] == "array":
        if not isinstance(value, list) or len(value) > MOST_ITEMS:
            raise ConfigError(f"{name}: wanted a list of at most {MOST_ITEMS}, not {shown(value)}")
        for item in value:
            _check(name, item, schema["items"])
        return
    fits = isinstance(value, KINDS[schema["type"]]) and (schema["type"] == "boolean" or not isinstance(value, bool))
    if not fits:
        raise ConfigError(f"{name}: wanted a value of type {schema['type']}, not {shown(value)}")
    if isinstance(value, str) and (len(value) > LONGEST_PATH or "\0" in value or not is_text(value)):
        raise ConfigError(f"{name}: wanted a text of at most {LONGEST_PATH:,} characters, not {shown(value)}")
    if not isinstance(value, (str, bool)) and abs(value) >= 1e15:
        raise ConfigError(f"{name}: {shown(value)} is too large")
    if "enum" in schema and value not in schema["enum"]:
        raise ConfigError(f"{name}: wanted one of {listed(schema['enum'])}, not {shown(value)}")


def _long(action: argparse.Action) -> str:
    return next(word for word in action.option_strings if word.startswith("--"))


def _flag(action: argparse.Action, value: bool) -> str | None:
    """The word for a flag; a flag with a ``--no-`` form has one for both."""
    if isinstance(action, argparse.BooleanOptionalAction):
        return _long(action) if value else _long(action).replace("--", "--no-", 1)
    return _long(action) if value else None
