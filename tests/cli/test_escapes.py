"""Names in files from others do not control the terminal that a command prints them to."""

from __future__ import annotations

import ast
import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from fwnkf import cli
from fwnkf.plain import printable

from ..shell import Done, shell

EVIL = "\x1b]0;evil\x07\x1b[2J"
"""Sets the title of the terminal, and clears it."""
HIDDEN = "\u202e\u2066\u200b\x9b31m\x7f\r\x08"
"""Turns the direction of writing, and the control characters that a terminal takes for an escape, or to overwrite."""


def write(folder: Path, time: str = "t [s]", name: str = "log.csv") -> None:
    stamps = 0.01 * np.arange(400)
    gyro = np.random.default_rng(0).normal(size=(400, 4))
    names = [
        time,
        "gyro_x",
        "gyro_y",
        f"gyro_z [{EVIL}]",
        EVIL + HIDDEN.replace("\r", ""),
    ]  # a return would end the line
    rows = [",".join(map(str, row)) for row in np.column_stack([stamps, gyro]).tolist()]
    (folder / name).write_text("\n".join([",".join(names), *rows]) + "\n", encoding="utf-8", newline="")


def assert_harmless(done: Done) -> None:
    text = done.out + done.err
    assert "evil" in text  # the name is shown
    assert "\\x1b[2J" in text or "\\u001b[2J" in text
    assert all(line.isprintable() for line in text.split("\n"))


def test_errors_are_escaped(tmp_path: Path) -> None:
    write(tmp_path, time="when")
    done = shell("fwnkf diagnose log.csv", tmp_path)
    assert done.code == 1
    assert "no column is the time" in done.err
    assert_harmless(done)


def test_usage_errors_are_escaped(tmp_path: Path) -> None:
    write(tmp_path)
    done = shell("fwnkf train --data . --state nothing --observe gyro_x", tmp_path)
    assert done.code in (1, 2)
    assert_harmless(done)


def test_results_are_escaped(tmp_path: Path) -> None:
    write(tmp_path, name=f"{EVIL}.csv")
    done = shell(f"fwnkf diagnose {shlex.quote(EVIL)}.csv", tmp_path)
    assert done.code == 0, done.err
    assert_harmless(done)


def test_json_stays_json(tmp_path: Path) -> None:
    write(tmp_path, name=f"{EVIL}.csv")
    done = shell(f"fwnkf diagnose {shlex.quote(EVIL)}.csv --json", tmp_path)
    assert done.code == 0, done.err
    assert json.loads(done.out)["name"] == f"{EVIL}.csv"
    assert_harmless(done)


def test_what_is_escaped() -> None:
    text = printable(EVIL + HIDDEN)
    assert text.isprintable()
    assert text.encode("ascii").decode("unicode_escape") == EVIL + HIDDEN  # nothing is lost
    assert printable("Gyro ω [°/s] – 陀螺") == "Gyro ω [°/s] – 陀螺"
    assert printable("\udcff") == "\\udcff"  # a name of a file that is not UTF-8


@pytest.mark.parametrize("path", sorted(Path(cli.__file__).parent.glob("*.py")), ids=lambda path: path.stem)
def test_commands_print_through_one_module(path: Path) -> None:
    """What is not printed by it would not be escaped."""
    calls = [node.func for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)]
    prints = [call for call in calls if isinstance(call, ast.Name) and call.id == "print"]
    assert bool(prints) == (path.stem == "output")
