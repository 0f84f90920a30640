"""The pages of the site: their Python runs as written, and what they link to is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path for folder in ("howto", "concepts", "design", ".") for path in (DOCS / folder).glob("*.md"))
ELSEWHERE = {
    "diagnose.md": "tests/docs/test_commands_of_pages.py",
    "fit.md": "tests/docs/test_commands_of_pages.py",
    "hub.md": "tests/hub/test_hub.py",
    "logs.md": "tests/docs/test_commands_of_pages.py",
    "report.md": "tests/docs/test_commands_of_pages.py",
    "train.md": "tests/training/test_howto.py",
    "own_filter.md": "tests/docs/test_constant_gain.py",
    "own_system.md": "tests/test_own_system.py",
    "stream.md": "tests/runtime/test_stream_howto.py",
}
"""Pages whose code is run by a test of their own, which also looks at what it prints."""


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(encoding="utf-8"), re.S)


RUN = [path for path in PAGES if blocks(path, "python") and path.name not in ELSEWHERE]


@pytest.mark.export  # through the shape checker, hundreds of steps would take minutes
@pytest.mark.parametrize("path", RUN, ids=lambda path: path.stem)
def test_python_runs_as_written(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    exec(compile("\n".join(blocks(path, "python")), str(path), "exec"), {"__name__": "page"})


def test_every_page_with_code_is_run_somewhere():
    assert len(RUN) >= 5
    assert all((ROOT / test).is_file() for test in ELSEWHERE.values())
    assert set(ELSEWHERE) <= {path.name for path in PAGES}


def test_links_between_files_of_the_repository_lead_somewhere():
    pages = [*PAGES, *(DOCS / "results").glob("*.md"), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
    dead = []
    for path in pages:
        for target in re.findall(r"\]\((?!\w+:)([^)#\s]+)", path.read_text(encoding="utf-8")):
            built = "_pages" in target or "_tutorials" in target
            if not built and not (path.parent / target).exists():
                dead.append((path.name, target))
    assert dead == []
