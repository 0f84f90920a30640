"""The structure of the repository: who imports whom, what is public, and what a file may know."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
LIBRARY, TASKS = ROOT / "src" / "fwnkf", ROOT / "tasks"
STUDIES = {"paper", "encoder", "when"}
FOLDERS = {path.parent.name for path in TASKS.glob("*/__init__.py")}
DATA_SETS = FOLDERS - STUDIES - {"simulated"}
READERS = {*(f"{name}.py" for name in DATA_SETS), "catalogue.py"}
"""Files of ``fwnkf.data`` that may name a data set: its reader, and the table of where data sets come from."""


def python_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """Imports inside functions count too: they hide a circle, they do not open it."""
    return grimp.build_graph("fwnkf", "tasks", cache_dir=None)


def test_no_imports_go_round_in_a_circle(graph: grimp.ImportGraph):
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    # Kahn's algorithm: what cannot be taken away is on a circle, or above one
    remaining = {module: set(targets) for module, targets in imported.items()}
    while True:
        free = {module for module, targets in remaining.items() if not targets & set(remaining)}
        if not free:
            break
        remaining = {module: targets for module, targets in remaining.items() if module not in free}
    on_circle = {
        module
        for module, targets in remaining.items()
        if any(module in _reached(remaining, target) for target in targets)
    }
    assert on_circle == set()


def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        module = waiting.pop()
        if module in seen or module not in graph:
            continue
        seen.add(module)
        waiting += graph[module]
    return seen


def test_the_library_names_no_data_set_outside_its_reader():
    pattern = re.compile(rf"\b({'|'.join(sorted(DATA_SETS))})\b", re.IGNORECASE)
    named = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in python_files(LIBRARY)
        if not (path.parent.name == "sets" and path.name in READERS)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for match in pattern.finditer(line)
        if match[0].lower() != "broad" or match[0] == "BROAD"  # a broad oscillator is no data set
    ]
    assert named == [], "only data/sets/<set>.py names a data set; a task folder of a common word gets another name"


@pytest.mark.parametrize("path", python_files(TASKS), ids=lambda path: str(path.relative_to(ROOT)))
def test_tasks_use_public_names_only(path: Path):
    """Neither modules nor names nor attributes that begin with an underscore, but for what is their own."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    private = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fwnkf"):
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            private += [name for name in names if name.startswith("_")]
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            owner = node.value
            own = isinstance(owner, ast.Name) and owner.id in ("self", "cls")
            if not own and node.attr not in ("_asdict", "_replace", "_fields", "_make"):  # of named tuples, public
                private.append(node.attr)
    assert private == []


def test_every_task_folder_has_tests():
    """A file ``test_<folder>.py`` to begin with, or a package of that name."""
    tests = ROOT / "tests" / "tasks"
    without = [name for name in FOLDERS if not (tests / name / "__init__.py").is_file()]
    assert [name for name in without if not (tests / f"test_{name}.py").is_file()] == []


@pytest.mark.parametrize("folder", sorted(FOLDERS - STUDIES))
def test_task_folders_import_neither_each_other_nor_the_runner(graph: grimp.ImportGraph, folder: str):
    """By way of other modules neither: they share the interface, the results and helpers beside them."""
    others = [f"tasks.{name}" for name in (FOLDERS | {"__main__", "cards"}) - {folder}]
    chains = [graph.find_shortest_chain(f"tasks.{folder}", other, as_packages=True) for other in others]
    assert [" -> ".join(chain) for chain in chains if chain] == []


def test_nothing_in_the_repository_is_a_build_product_or_a_recording():
    try:
        listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    files = [ROOT / name for name in listing.splitlines()]
    assert [str(path) for path in files if path.exists() and path.stat().st_size > 1 << 20] == []
    assert [
        str(path) for path in files if path.suffix in (".pyc", ".whl", ".bag", ".ulg", ".mcap", ".bin", ".pkl")
    ] == []
