"""The pages of the site: their Python runs as written, their commands exist, and what they link to is there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import torch

from fwnkf.cli.main import parser

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path for folder in ("howto", "concepts", "design", ".") for path in (DOCS / folder).glob("*.md"))
ELSEWHERE = {
    "own_filter.md": "tests/docs/test_constant_gain.py",
    "own_system.md": "tests/test_own_system.py",
    "stream.md": "tests/runtime/test_stream_howto.py",
}
"""Pages whose code is run by a test of their own, which also looks at what it prints."""
GIVEN = {"logs.md", "diagnose.md", "fit.md", "report.md", "train.md"}
"""Pages whose Python needs a log, a run or a recording of the reader's own."""


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(encoding="utf-8"), re.S)


RUN = [path for path in PAGES if blocks(path, "python") and path.name not in GIVEN | set(ELSEWHERE)]


@pytest.mark.export  # through the shape checker, hundreds of steps would take minutes
@pytest.mark.parametrize("path", RUN, ids=lambda path: path.stem)
def test_python_runs_as_written(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    exec(compile("\n".join(blocks(path, "python")), str(path), "exec"), {"__name__": "page"})


def test_every_page_with_code_is_run_somewhere():
    assert len(RUN) >= 5
    assert all((ROOT / test).is_file() for test in ELSEWHERE.values())
    names = {path.name for path in PAGES}
    assert GIVEN | set(ELSEWHERE) <= names


def commands() -> list[tuple[str, str]]:
    """Every line of a page that calls the program, without its comment."""
    found = []
    for path in [*PAGES, ROOT / "README.md"]:
        for block in [*blocks(path, "sh"), *blocks(path, "bash")]:
            joined = block.replace("\\\n", " ")
            found += [(path.name, line) for line in joined.splitlines() if line.startswith("fwnkf ")]
    return found


def test_every_command_is_one_that_the_program_accepts(capsys):
    lines = commands()
    assert len(lines) > 50
    refused = []
    for page, line in lines:
        words = shlex.split(line, comments=True)[1:]
        try:
            parser().parse_args(words)
        except SystemExit as stop:
            if stop.code:
                refused.append((page, line, capsys.readouterr().err.splitlines()[-1:]))
    assert refused == []


def test_links_between_files_of_the_repository_lead_somewhere():
    pages = [*PAGES, *(DOCS / "results").glob("*.md"), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
    dead = []
    for path in pages:
        for target in re.findall(r"\]\((?!\w+:)([^)#\s]+)", path.read_text(encoding="utf-8")):
            built = "_pages" in target or "_tutorials" in target
            if not built and not (path.parent / target).exists():
                dead.append((path.name, target))
    assert dead == []
