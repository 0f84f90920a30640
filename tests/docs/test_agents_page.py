"""The transcript of the guide to tools for an assistant is what its program prints."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fwnkf.cli import main
from fwnkf.cli.main import parser

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


def test_the_limits_are_those_of_the_program():
    pytest.importorskip("mcp")
    from fwnkf.cli.agents import folders, server, tools, worker

    table = PAGE.read_text(encoding="utf-8").partition("| limit |")[2].partition("\n\n")[0]
    stated = [
        f"{server.SECONDS:g} s", f"{worker.MEMORY >> 30} GB", f"| {server.AT_ONCE}, {server.WAITING} with",
        f"{server.LARGEST_ANSWER >> 20} MB of JSON; {server.MOST_PICTURES} pictures of "
        f"{server.LARGEST_PICTURE // 1000} kB; {server.MOST_LINKS} links",
        f"{folders.LONGEST_PATH:,} characters, {tools.MOST_ITEMS} items", f"| {folders.MOST_ENTRIES} |",
    ]  # fmt: skip
    assert [text for text in stated if text not in table] == []
    assert parser("mcp").parse_args(["mcp"]).time_limit == server.SECONDS
