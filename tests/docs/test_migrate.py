"""What the page on moving from 0.2 says of 0.3 is so."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest

import fwnkf
from fwnkf.cli import main
from fwnkf.diagnosis import Finding
from fwnkf.filters.outputs import step_output
from fwnkf.runtime.health import Reason

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "migrate.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| (.+?) \| (.+?) \|$", PAGE.split("## Names that have moved")[1], re.M))


def names(cell: str) -> list[str]:
    """Dotted names of a cell; one without a package is beside the one before it."""
    found: list[str] = []
    for name in re.findall(r"`([\w.]+)`", cell):
        found.append(name if "." in name else f"{found[-1].rpartition('.')[0]}.{name}")
    return found


def exists(name: str) -> bool:
    owner, _, last = name.rpartition(".")
    try:
        return hasattr(importlib.import_module(owner), last) or importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def test_old_names_are_gone_and_new_ones_are_there():
    old = [name for cell in list(ROWS)[1:5] for name in names(cell)]
    assert len(old) > 12
    assert [name for name in old if exists(name)] == []
    assert all(exists(f"fwnkf.{part}") for part in ("Level", "Hypotheses", "Orders", "runtime.recordings"))
    sets = next(names(cell) for cell in ROWS if "fwnkf.data.broad" in cell)
    assert all(exists(name.replace("fwnkf.data.", "fwnkf.data.sets.")) for name in sets)


def test_the_new_signatures_are_those_of_the_page():
    assert list(inspect.signature(step_output).parameters)[-2:] == ["precise", "shaped"]
    assert list(inspect.signature(fwnkf.EKF.update).parameters)[1:5] == ["state", "y", "mask", "sensor"]
    assert {"score", "confidence"} <= set(Finding.__dataclass_fields__)
    assert Reason.NOT_FINITE > Reason.REJECTED
    assert fwnkf.errors.ConcurrencyError.__mro__


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("train", ["--no-ladder", "--observe", "--channels", "--control", "--controls", "--import"]),
        ("fit", ["--observe", "--channels", "--control", "--controls"]),
        ("diagnose", ["--all"]),
    ],
)
def test_options_of_the_page_are_there(command, options, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    shown = capsys.readouterr().out
    assert [option for option in options if option not in shown] == []
    assert all(option in PAGE for option in options)
