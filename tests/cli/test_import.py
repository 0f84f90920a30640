"""``--import``: modules of the user, and errors that name the fault and its place."""

from __future__ import annotations

import json
import sys

import pytest
import torch

import fwnkf
from fwnkf import cli
from fwnkf.registry import DATA, SYSTEMS

MODULE = """
import fwnkf

fwnkf.System.of(lambda x: x, lambda x: x[:1], Q=[1.0, 1.0], R=[1.0], name="test_import_cart")

@fwnkf.register_data("test_import_logs")
def logs(*, side: str = "left"):
    '''Logs of a test.'''
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for known in (sys.modules, DATA._classes, SYSTEMS._classes):
        for name in [name for name in known if name.startswith("test_import_")]:
            del known[name]


@pytest.mark.parametrize("name", ["test_import_mine", "test_import_mine.py", "inner/test_import_mine.py"])
def test_systems_and_data_of_a_module_are_listed(folder, capsys, name):
    path = folder / (name if name.endswith(".py") else f"{name}.py")
    path.parent.mkdir(exist_ok=True)
    path.write_text(MODULE, encoding="utf-8")
    assert cli.main(["list", "systems", "--json", "--import", name]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert {"Q", "R", "learn"} <= set(rows["test_import_cart"]["options"])
    assert "length" in rows["pendulum"]["options"]
    assert cli.main(["list", "data", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["test_import_logs"] == {
        "name": "test_import_logs",
        "description": "Logs of a test.",
        "options": ["side"],
    }
    assert cli.main(["list", "options", "test_import_logs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["default"] == "left"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no module 'test_import_bad': there is no test_import_bad.py in "),
        ("import no_such_package_at_all", "imports 'no_such_package_at_all', which is not installed"),
        ("x = 1\ny = x / 0", "test_import_bad.py, line 2: ZeroDivisionError"),
        ("x = = 1", "SyntaxError"),
        ("import fwnkf\nfwnkf.build('no_filter')", "no filter is called 'no_filter'"),
    ],
)
def test_a_module_that_fails_is_one_message(folder, capsys, text, message):
    if text is not None:
        (folder / "test_import_bad.py").write_text(text, encoding="utf-8")
    assert cli.main(["list", "--import", "test_import_bad"]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


@pytest.mark.parametrize("value", ["[test_import_touch.py]", "test_import_touch.py", "[test_import_touch]", "{a: 1}"])
@pytest.mark.parametrize(
    "words",
    [
        "train own.yaml",
        "train own.yaml --data x --state a --observe b",
        "fit own.yaml",
        "evaluate model --data own.yaml",
    ],
)
def test_an_experiment_file_imports_nothing(folder, capsys, words, value):
    """A file from outside must not run code; the message says what to type."""
    pytest.importorskip("lightning")
    eye = torch.eye(1)
    fwnkf.save(fwnkf.KF(F=eye, H=eye, Q=eye, R=eye), folder / "model")
    (folder / "test_import_touch.py").write_text("open('touched', 'w').close()", encoding="utf-8")
    (folder / "x").mkdir()
    (folder / "x" / "table.csv").write_text("t,a,b\n0,1,2\n1,2,3\n", encoding="utf-8")
    # with a fault of its own, so that nothing is trained where the key is read
    (folder / "own.yaml").write_text(f"import: {value}\ndata: {{name: no_such_data}}\n", encoding="utf-8")
    words = words.split() + (["-o", "out"] if words.startswith("fit") else [])
    assert cli.main(words) == 1
    assert not (folder / "touched").exists()
    expected = "--import MODULE" if value == "{a: 1}" else f"--import {value.strip('[]')}"
    assert f"name the module on the command line: {expected}\n" in capsys.readouterr().err
