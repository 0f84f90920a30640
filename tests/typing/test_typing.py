"""Type checkers accept the correct constructor calls and flag exactly the wrong ones."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fwnkf

CALLS = Path(__file__).parent / "constructors.py"
ROOT = Path(__file__).parents[2]


def marked() -> set[int]:
    lines = CALLS.read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines, 1) if "  # wrong: " in line}


def check(*command: str) -> str:
    """The output of a checker, which finds the package where this process has found it."""
    source = str(Path(fwnkf.__file__).parents[1])
    path = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
    result = subprocess.run(
        [sys.executable, "-m", *command, str(CALLS)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "MYPYPATH": source},
        check=False,
    )
    assert result.returncode == 1, result.stdout + result.stderr
    return result.stdout


@pytest.mark.slow  # a minute without a cache; the other checker takes seconds
def test_mypy_flags_exactly_the_wrong_calls():
    pytest.importorskip("mypy")
    output = check("mypy", "--strict", "--no-error-summary")
    flagged = re.findall(r"^(\S+?):(\d+): error", output, re.MULTILINE)
    assert {(Path(file).name, int(line)) for file, line in flagged} == {(CALLS.name, line) for line in marked()}, output


def test_pyright_flags_exactly_the_wrong_calls():
    pytest.importorskip("basedpyright")
    faults = json.loads(check("basedpyright", "--outputjson", "--pythonpath", sys.executable))["generalDiagnostics"]
    errors = [fault for fault in faults if fault["severity"] == "error"]
    assert {fault["range"]["start"]["line"] + 1 for fault in errors} == marked(), errors
