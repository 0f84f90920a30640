"""Without an optional extra, commands name the missing extra before any work is done."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from fwnkf.cli import main

TINY = (
    "data.train=8",
    "data.val=2",
    "data.test=3",
    "trainer.steps=2",
    "trainer.validate_every=2",
    "trainer.pretrain=0",
)
SETS = [word for item in (*TINY, "trainer.compile=false", "trainer.loggers=[]") for word in ("--set", item)]


@pytest.fixture
def without(monkeypatch):
    """Pretend that a package is not installed."""

    def hide(package: str) -> None:
        for name in [name for name in sys.modules if name.split(".")[0] == package]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, package, None)

    return hide


def test_training_without_lightning_names_the_extra(without, tmp_path, capsys):
    pytest.importorskip("yaml")
    without("lightning")
    table = tmp_path / "one.csv"
    numbers = np.arange(600.0).reshape(-1, 3)
    np.savetxt(table, numbers, delimiter=",", header="t,a,b", comments="")
    runs = ["--run", str(tmp_path / "run")]
    calls = (
        ["train", "lorenz", *runs],
        ["train", "--data", str(tmp_path), "--state", "a", "--observe", "b", "--time", "t", *runs],
        ["train", "--resume", str(tmp_path / "run")],
    )
    for call in calls:
        assert main(call) == 1, call
        assert "pip install 'fwnkf[train]'" in capsys.readouterr().err, call
    assert not (tmp_path / "run").exists()


@pytest.mark.process
def test_training_without_matplotlib_draws_no_plots(without, tmp_path, capsys):
    pytest.importorskip("lightning")
    without("matplotlib")
    assert main(["train", "lorenz", "--run", str(tmp_path / "run"), "--no-references", *SETS]) == 0
    output = capsys.readouterr()
    assert output.err.index("pip install 'fwnkf[plot]'") < output.err.index("run folder")
    assert "best filter" in output.out
    assert "plots" not in output.out
    assert not (tmp_path / "run" / "plots").exists()


def test_a_server_without_mcp_names_the_extra(without, tmp_path, capsys):
    without("mcp")
    assert main(["mcp", "--root", str(tmp_path)]) == 1
    assert "pip install 'fwnkf[agents]'" in capsys.readouterr().err
    assert main(["mcp", "--root", str(tmp_path / "nothing")]) == 2
    assert main(["mcp", "--time-limit", "nan"]) == 2
    assert main(["mcp", "--import", "json"]) == 2
