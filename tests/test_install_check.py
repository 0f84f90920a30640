"""The check of the distributions finds missing and unexpected files."""

from __future__ import annotations

import importlib.util
import io
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("install_check", ROOT / "benchmarks" / "install.py")
check = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = check
spec.loader.exec_module(check)


def wheel(path: Path, *, without: str = "", more: str = "") -> Path:
    names = [f"fwnkf/{name}" for name in check.own_files(check.SOURCE)]
    names += [f"fwnkf-1.dist-info/{name}" for name in ("METADATA", "entry_points.txt", "licenses/LICENSE")]
    with zipfile.ZipFile(path, "w") as archive:
        for name in {*names, more} - {without, ""}:
            archive.writestr(name, "")
    return path


def sdist(path: Path, *, without: str = "", more: str = "", size: int = 1) -> Path:
    models = [f"models/{folder.name}/config.json" for folder in (ROOT / "models").iterdir() if folder.is_dir()]
    folders = [f"{name}/file.py" for name in check.FOLDERS - {"models"}]
    with tarfile.open(path, "w:gz") as archive:
        for name in {*check.PAGES, *models, *folders, more} - {without, ""}:
            entry = tarfile.TarInfo(f"fwnkf-1/{name}")
            entry.size = size if name == more else 1
            archive.addfile(entry, io.BytesIO(bytes(entry.size)))
    return path


def test_complete_distributions_pass(tmp_path):
    check.check_wheel(wheel(tmp_path / "a.whl"))
    check.check_sdist(sdist(tmp_path / "a.tar.gz"))


@pytest.mark.parametrize(
    "name", ["fwnkf/py.typed", "fwnkf/experiments/lorenz.yaml", "fwnkf-1.dist-info/licenses/LICENSE"]
)
def test_a_wheel_with_a_missing_file_fails(tmp_path, name):
    with pytest.raises(check.FaultError, match=name.split("/")[-1]):
        check.check_wheel(wheel(tmp_path / "a.whl", without=name))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tasks/interface.py", "tasks"),
        ("fwnkf/tasks/__init__.py", "tasks"),
        ("fwnkf/experiments/lorenz-paper.yaml", "experiments of the tasks"),
    ],
)
def test_a_wheel_with_tasks_fails(tmp_path, name, message):
    with pytest.raises(check.FaultError, match=message):
        check.check_wheel(wheel(tmp_path / "a.whl", more=name))


def test_unexpected_files_fail(tmp_path):
    with pytest.raises(check.FaultError, match=r"tests/test_a\.py"):
        check.check_wheel(wheel(tmp_path / "a.whl", more="tests/test_a.py"))
    with pytest.raises(check.FaultError, match=r"\.data"):
        check.check_sdist(sdist(tmp_path / "a.tar.gz", more=".data/x"))
    with pytest.raises(check.FaultError, match=r"flight\.csv"):
        check.check_sdist(sdist(tmp_path / "b.tar.gz", more="tests/flight.csv"))
    with pytest.raises(check.FaultError, match=r"model\.safetensors"):
        check.check_sdist(sdist(tmp_path / "c.tar.gz", more="models/lorenz/model.safetensors", size=2_000_000))
    with pytest.raises(check.FaultError, match="lorenz"):
        check.check_sdist(sdist(tmp_path / "d.tar.gz", without="models/lorenz/config.json"))


def test_the_page_has_a_row_for_each_extra_and_a_column_for_each_python():
    row = check.Row
    rows = [row("Python 3.13.0", "wheel", "", True), row("Python 3.9.1", "wheel", "", True)]
    rows.append(row("Python 3.13.0", "wheel", "logs", False))
    table = check.page(rows).splitlines()
    assert table[-4] == "| | Python 3.9.1 | Python 3.13.0 |"
    assert table[-2:] == ["| wheel | yes | yes |", "| wheel `[logs]` | not tried | no |"]
