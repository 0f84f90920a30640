"""Text tables on terminals and in pipes."""

from __future__ import annotations

import argparse
import builtins
import io
import os
import subprocess
import sys

import pytest

from fwnkf.cli import output

ROWS = [{"name": "kf", "mse": 0.123456789, "n": 3}, {"name": "[bold]x", "mse": float("nan"), "seeds": [1, 2]}]
COLUMNS = {"name": "method", "mse": "MSE", "n": "n", "seeds": "seeds"}


def test_columns_are_aligned():
    lines = output.table(ROWS, COLUMNS)
    assert [line.split() for line in lines] == [
        ["method", "MSE", "n", "seeds"],
        ["kf", "0.12346", "3"],
        ["[bold]x", "1,", "2"],
    ]
    assert lines[0].index("MSE") + 3 == lines[1].index("0.12346") + 7  # numbers are right-aligned
    assert lines[0].index("seeds") == lines[2].index("1, 2")
    assert output.table([], {"a": "A"}) == ["A"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("installed", [True, False])
def test_a_terminal_gets_a_rich_table_if_rich_is_installed(monkeypatch, installed: bool):
    if installed:
        pytest.importorskip("rich")
    real = builtins.__import__

    def without_rich(name, *rest, **more):
        if name.startswith("rich"):
            raise ModuleNotFoundError(name)
        return real(name, *rest, **more)

    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("COLUMNS", "100")
    if not installed:
        monkeypatch.setattr(builtins, "__import__", without_rich)
    output.say_table(argparse.Namespace(json=False), ROWS, COLUMNS, "a title")
    text = screen.getvalue()
    assert "[bold]x" in text  # names from a file are not read as markup
    assert "a title" in text
    assert any(line in text for line in "─━") == installed


def test_a_narrow_terminal_gets_plain_text(monkeypatch):
    pytest.importorskip("rich")
    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("COLUMNS", "20")
    output.say_table(argparse.Namespace(json=False), ROWS, COLUMNS)
    assert screen.getvalue().splitlines() == output.table(ROWS, COLUMNS)


def test_a_pipe_gets_plain_text(capsys):
    output.say_table(argparse.Namespace(json=False), ROWS, COLUMNS)
    assert capsys.readouterr().out.splitlines() == output.table(ROWS, COLUMNS)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_an_output_of_few_characters_shows_the_others_by_number(encoding, tmp_path):
    """Texts of the package have Φ, χ² and ⁺; a pipe, a container or an old terminal may have ASCII only."""
    commands = ["list filters", "list options fwnkf", "list experiments", "--help", "export --help", "list nothing"]
    for words in commands:
        done = subprocess.run(
            [sys.executable, "-m", "fwnkf.cli", *words.split()], capture_output=True, cwd=tmp_path,
            env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0", "LC_ALL": "C"},
        )  # fmt: skip
        assert b"Traceback" not in done.stderr, done.stderr.decode(encoding)
        assert done.stdout or done.returncode == 2
