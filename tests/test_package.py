"""The package as a whole: silent and light import, no pickle, docstrings that run."""

from __future__ import annotations

import ast
import doctest
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fwnkf

SOURCE = Path(fwnkf.__file__).parent
# From the files, not by importing: a module that cannot be imported must fail its own test only.
MODULES = sorted(
    ".".join(("fwnkf", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
    for path in SOURCE.rglob("*.py")
    if path.stem != "__main__"
)
# Packages that `import fwnkf` must not import.
HEAVY = ("scipy", "jaxtyping", "beartype", "lightning", "pytorch_lightning", "matplotlib", "ray", "onnx", "pandas")


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a new interpreter that imports the same package."""
    environment = {"PYTHONPATH": str(SOURCE.parent), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [sys.executable, "-W", "error::UserWarning:fwnkf", "-c", code],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=False,
    )


def test_import_prints_nothing():
    done = python("import fwnkf")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert done.stderr == ""


def test_import_loads_no_heavy_package():
    """Compared with torch alone, because packages that torch imports do not count."""
    code = "import sys, {}; print(' '.join(sorted({{name.split('.')[0] for name in sys.modules}})))"
    ours, torchs = (set(python(code.format(name)).stdout.split()) for name in ("fwnkf", "torch"))
    assert "fwnkf" in ours
    assert not (ours - torchs) & set(HEAVY)
    ours_alone = ours - torchs - set(sys.stdlib_module_names)
    assert ours_alone <= {"fwnkf", "safetensors", "numpy"}


def test_import_does_not_change_the_settings_of_torch():
    """Default dtype, seed and thread count stay the same."""
    code = (
        "import torch; torch.manual_seed(3); before = torch.get_rng_state(), torch.get_num_threads(); import fwnkf; "
        "assert torch.equal(before[0], torch.get_rng_state()); assert before[1] == torch.get_num_threads(); "
        "assert torch.get_default_dtype() == torch.float32"
    )
    done = python(code)
    assert done.returncode == 0, done.stderr


def test_all_pages_state_the_same_version():
    """Read as text, because the installed package may be older than the files."""
    root = SOURCE.parents[1]
    project, citation, changes = (
        (root / name).read_text(encoding="utf-8") for name in ("pyproject.toml", "CITATION.cff", "CHANGELOG.md")
    )
    (version,) = re.findall(r'^version = "(.+)"$', project, re.M)
    assert version == fwnkf.__version__
    assert re.findall(r"^version: (.+)$", citation, re.M) == [version]
    (released,) = re.findall(r"^date-released: (.+)$", citation, re.M)
    sections = re.findall(r"^## (.+)$", changes, re.M)
    assert sections[:2] == ["[Unreleased]", f"[{version}] - {released}"]


def test_every_dependency_is_explained():
    root = SOURCE.parents[1]
    project = (root / "pyproject.toml").read_text(encoding="utf-8")
    listed = project[project.index("dependencies = [") : project.index("[project.scripts]")]
    names = set(re.findall(r'"([a-z-]+)(?:>=|==)', listed))
    assert len(names) > 15
    page = (root / "docs" / "design" / "dependencies.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"[a-z-]+", " ".join(re.findall(r"^\| ([^|]+) \|", page, re.M))))
    assert names - explained == set()


def test_nothing_is_pickled():
    """Loading a file must never run code: no pickle, and nothing that uses it.

    ``torch.load`` is allowed with ``weights_only=True`` on the same line, which restricts it to tensors.
    """
    forbidden = re.compile(
        r"^\s*(import|from)\s+(pickle|dill|cloudpickle|joblib|shelve)\b"
        r"|torch\.save\(|torch\.load\((?!.*weights_only=True)|allow_pickle=True"
    )
    violations = [
        f"{path.relative_to(SOURCE)}:{number}: {line.strip()}"
        for path in sorted(SOURCE.rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if forbidden.search(line)
    ]
    assert violations == []


@pytest.mark.parametrize("name", MODULES)
def test_docstrings_run(name: str):
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name and missing.name.split(".")[0] != "fwnkf":
            pytest.skip(f"{name} needs the extra that brings {missing.name}")
        raise
    failed, _ = doctest.testmod(module, raise_on_error=False)
    assert failed == 0


def test_there_are_docstrings_that_run():
    """The test above must not pass because there are no examples."""
    finder = doctest.DocTestFinder()
    examples = sum(
        len(test.examples)
        for name in ("fwnkf.filters.factory", "fwnkf.core.layout", "fwnkf.types")
        for test in finder.find(importlib.import_module(name))
    )
    assert examples >= 6


def test_public_names_and_modules_are_documented():
    for name in fwnkf.__all__:
        assert getattr(fwnkf, name).__doc__, name
    for name in MODULES:
        text = (SOURCE / Path(*name.split(".")[1:])).with_suffix(".py")
        text = text if text.exists() else SOURCE / Path(*name.split(".")[1:]) / "__init__.py"
        assert ast.get_docstring(ast.parse(text.read_text(encoding="utf-8"))), name
