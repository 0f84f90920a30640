"""The transcript of the guide to tools for an assistant is what its program prints."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fwnkf.cli import main

from .test_pages import DOCS

PAGE = DOCS / "howto" / "agents.md"


@pytest.mark.process
def test_the_transcript_is_what_the_program_prints(tmp_path, capsys):
    pytest.importorskip("mcp")
    pytest.importorskip("matplotlib")
    assert main(["data", "example", str(tmp_path / "flight.csv")]) == 0
    done = subprocess.run(
        [sys.executable, str(DOCS / "howto" / "agents.py"), str(tmp_path)],
        capture_output=True, text=True, timeout=120, check=False, encoding="utf-8",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"```\n{done.stdout}```" in PAGE.read_text(encoding="utf-8"), done.stdout
    assert (tmp_path / "report.html").is_file()
