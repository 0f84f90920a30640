"""``fwnkf export`` over the samples of a log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import fwnkf
from fwnkf.cli import main
from fwnkf.native.compilers import c_compiler

pytestmark = [
    pytest.mark.export,
    pytest.mark.skipif(c_compiler() is None, reason="there is no C compiler"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A filter of height and speed at 10 Hz, and a log of the height with a gap and another name."""
    step = torch.tensor([[1.0, 0.1], [0.0, 1.0]])
    model = fwnkf.KF(F=step, H=torch.eye(1, 2), Q=0.01 * torch.eye(2), R=torch.eye(1), dt=0.1, channels=("position_z",))
    fwnkf.save(model, tmp_path / "model")
    times = [0.1 * i for i in range(30) if i not in (7, 8)]
    lines = ["time,altitude", *(f"{t:.2f},{3 + t}" for t in times)]
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_the_samples_of_a_log_are_compared(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["export", str(folder / "model"), "--out", str(folder / "out"), "--log", str(folder / "log.csv"), "--json"]
    field = ["--field", "position_z=log.altitude"]
    assert main([*call, *field]) == 0
    parity = json.loads(capsys.readouterr().out)["parity"]
    assert parity["ok"]
    assert parity["steps"] == 30  # the gap is two steps without measurement
    assert main([*call, *field, "--steps", "12"]) == 0
    assert json.loads(capsys.readouterr().out)["parity"]["steps"] == 12


def test_flags_of_a_log_need_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["export", str(folder / "model"), "--out", str(folder / "out")]
    assert main([*call, "--stamps"]) == 2
    assert "they need --log" in capsys.readouterr().err
    assert main([*call, "--channels", "altitude"]) == 2
    assert "use --to ros2 or --log" in capsys.readouterr().err


def test_without_a_comparison_the_log_is_not_opened(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "broken.ulg").write_bytes(b"not a log")
    call = ["export", str(folder / "model"), "--out", str(folder / "out"), "--log", str(folder / "broken.ulg")]
    assert main([*call, "--steps", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parity"] is None
    assert main([*call, "--steps", "12"]) == 1  # the file is broken where it is read
    assert "broken.ulg" in capsys.readouterr().err
