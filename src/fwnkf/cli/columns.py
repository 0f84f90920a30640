"""Options that choose columns, the same for all commands; their grammar is that of :mod:`fwnkf.logs.choice`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConfigError
from .output import UsageError

if TYPE_CHECKING:
    from ..logs.choice import Choice
    from ..logs.log import Log


def add_columns(
    parser: argparse.ArgumentParser,
    *,
    channels: bool = True,
    controls: bool = True,
    state: bool = False,
    topics: bool = True,
) -> None:
    """Add ``--time`` and ``--field``; others where a command has a use for them."""
    group = parser.add_argument_group("columns", "a column is NAME, or NAME=COLUMN*FACTOR; see docs/howto/logs.md")
    if channels:
        group.add_argument(
            "--channels", "--observe", metavar="NAMES", help="signals or columns of the measurements, with commas"
        )
    if controls:
        group.add_argument("--controls", "--control", metavar="NAMES", help="those of known control inputs")
    if state:
        group.add_argument("--state", metavar="NAMES", help="columns of the true state, where it is known")
    group.add_argument(
        "--time", metavar="COLUMN", help="column of the time, as stamp or ticks*1e-4 (default: found by its name)"
    )
    if topics:
        group.add_argument(
            "--topic", action="append", default=[], metavar="ROLE=TOPIC", help="topic of a signal: imu=/my/imu"
        )
    group.add_argument(
        "--field", action="append", default=[], metavar="NAME=COLUMN[*FACTOR]",
        help="a column under a name: gyro_x=wx*0.0174533, load=/adc.values[3]; may be repeated",
    )  # fmt: skip


def chosen(options: argparse.Namespace, folder: Path | None = None) -> Choice:
    """The columns that the options choose; where they say nothing, those that are saved with the filter in ``folder``.

    Raises:
        UsageError: an item does not follow the grammar.
    """
    from ..logs.choice import Choice, Pick

    given = vars(options)
    choice = Choice.parse(
        given.get("channels"), given.get("controls"), given.get("state"), given["field"], given.get("topic", ()),
        given.get("time"),
    )  # fmt: skip
    try:
        for text in choice.fields:
            Pick.parse(text)
    except ConfigError as error:
        raise UsageError(str(error)) from error
    return choice if folder is None else choice.completed(Choice.load(folder))


def open_chosen(path: Path, choice: Choice, *, only: bool = False) -> Log:
    """The log at a path with the chosen columns; with ``only``, its signals are those of ``--channels``.

    Raises:
        UsageError: a column was chosen that the log does not have.
    """
    from ..logs import choose, open_log

    try:
        return choose(open_log(path, time=choice.time), choice.topics, choice.fields, choice.channels if only else ())
    except ConfigError as error:
        raise UsageError(str(error)) from error
