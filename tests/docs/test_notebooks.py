"""The notebooks are the tutorials, they run, and the badges of the pages lead to them."""

from __future__ import annotations

import importlib.util
import json
import re
import sys

import pytest

from .test_pages import DOCS, ROOT

pytest.importorskip("sphinx_gallery")

QUICK = "03_diagnose_a_drone"
"""The notebook that is run in CI; all of them are run with ``-m slow``, as the site runs all tutorials."""


@pytest.fixture(scope="module")
def extension():
    """The extension of the site."""
    spec = importlib.util.spec_from_file_location("notebooks", DOCS / "_ext" / "notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NAMES = sorted(path.stem for path in (DOCS / "tutorials").glob("[0-9]*.py"))


def read(name: str) -> dict:
    return json.loads((DOCS / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))


def cells(notebook: dict) -> list[tuple[str, object]]:
    """Kinds and contents: code as it is; of prose the words, whose markup the next sphinx-gallery may change."""
    texts = [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]
    return [(kind, text if kind == "code" else re.findall(r"\w+", text)) for kind, text in texts]


def test_every_tutorial_has_its_notebook(extension):
    assert sorted(path.stem for path in (DOCS / "notebooks").iterdir()) == NAMES
    for name in NAMES:
        made = extension.notebook(DOCS / "tutorials" / f"{name}.py")
        assert cells(read(name)) == cells(made), f"{name}: python docs/_ext/notebooks.py writes the notebooks anew"
        assert cells(read(name))[0] == ("code", extension.FIRST_CELL)


def test_a_notebook_has_the_code_of_its_tutorial_and_no_results():
    for name in NAMES:
        code = [text for kind, text in cells(read(name))[1:] if kind == "code"]
        statements = [
            line for line in (DOCS / "tutorials" / f"{name}.py").read_text(encoding="utf-8").splitlines()
            if line.strip() and not line.startswith("# ")
        ]  # fmt: skip
        written = "\n".join(code).splitlines()
        assert set(written) - {""} <= {*statements, *(line for line in written if line.startswith("# "))}
        assert statements[-1] in written
        assert all(cell.get("outputs", []) == [] for cell in read(name)["cells"])


def test_the_first_cell_names_extras_that_exist(extension):
    tomllib = pytest.importorskip("tomllib")
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    there = (ROOT / ".binder" / "requirements.txt").read_text(encoding="utf-8")
    for text in (extension.FIRST_CELL, there):
        named = re.findall(r"(?:fwnkf|^\.)\[([\w,]+)\]", text, re.M)
        assert len(named) == 1
        assert set(named[0].split(",")) <= set(known)


def test_badges_stand_below_the_title_and_lead_to_files(extension, monkeypatch):
    page = ".. _label:\n\n\nA first filter\n==============\n\nA position is measured.\n\nNext\n====\n"
    monkeypatch.setenv("GITHUB_REPOSITORY", "someone/fwnkf")
    source = [page]
    extension.add_badges(None, f"_tutorials/{NAMES[0]}", source)
    before, after = source[0].split("==============\n")
    assert before == page.split("==============\n")[0]
    targets = re.findall(r'href="([^"]+)"', after.split("A position")[0])
    assert targets == [
        f"https://colab.research.google.com/github/someone/fwnkf/blob/main/docs/notebooks/{NAMES[0]}.ipynb",
        f"https://mybinder.org/v2/gh/someone/fwnkf/main?labpath=docs/notebooks/{NAMES[0]}.ipynb",
    ]
    for other in ("_tutorials/index", "howto/fit"):
        source = [page]
        extension.add_badges(None, other, source)
        assert source == [page]


def test_the_repository_of_the_badges_is_that_of_the_build(extension, monkeypatch, tmp_path):
    monkeypatch.setattr(extension, "DOCS", tmp_path / "docs")
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    assert extension.repository() is None
    (tmp_path / "pyproject.toml").write_text('[project.urls]\nRepository = "https://github.com/me/fwnkf"\n')
    assert extension.repository() == "me/fwnkf"
    monkeypatch.setenv("GITHUB_REPOSITORY", "you/fork")
    assert extension.repository() == "you/fork"


@pytest.mark.process
@pytest.mark.parametrize(
    "name", [name if name == QUICK else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
)
def test_a_notebook_runs(name, tmp_path, monkeypatch):
    for package in ("matplotlib", "lightning", "pyarrow", "ipykernel"):
        pytest.importorskip(package)
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    monkeypatch.setenv("PYTHONPATH", ":".join(path for path in sys.path if path))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.reads(json.dumps(read(name)), as_version=4)
    nbformat.validate(notebook)
    where = {"metadata": {"path": str(tmp_path)}}
    done = nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where).execute()
    outputs = [output for cell in done.cells if cell.cell_type == "code" for output in cell.outputs]
    assert done.cells[0].outputs == []  # fwnkf is there, nothing is installed
    draws = any("plt." in text for kind, text in cells(read(name)) if kind == "code")
    assert any("image/png" in output.get("data", {}) for output in outputs) == draws
