"""The README's code and commands run as written and show what it says; what it points at is there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import torch

import fwnkf
from fwnkf.cli import main

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")
LOG = "What is wrong with my log?"


def section(title: str) -> str:
    return TEXT[TEXT.index(f"## {title}\n") :].split("\n## ")[0]


def block(title: str, language: str) -> str:
    return re.findall(rf"```{language}\n(.*?)```", section(title), re.S)[0]


@pytest.mark.export  # two thousand steps through the shape checker would take minutes
def test_the_first_filter_runs_and_shows_the_gain(tmp_path, monkeypatch, capsys):
    torch.manual_seed(0)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", section("A first filter"), re.S)
    assert len(blocks) == 1
    exec(compile("\n".join(blocks), str(README), "exec"), {})
    shown = r"^(\w+): error ([\d.]+) stated ([\d.]+)$"
    rows = {name: (float(e), float(s)) for name, e, s in re.findall(shown, capsys.readouterr().out, re.M)}
    assert rows["fwnkf"][0] < 0.75 * rows["kf"][0]
    assert rows["kf"][0] > 1.2 * rows["kf"][1]  # the filter that assumes white noise is overconfident
    assert rows["fwnkf"][0] < rows["fwnkf"][1]  # a pure tone is easier than the oscillator of the model
    printed = re.findall(r"`(\w+): error ([\d.]+) stated ([\d.]+)`", section("A first filter"))
    assert {name for name, *_ in printed} == set(rows) == {"kf", "fwnkf"}
    for name, error, stated in printed:
        assert rows[name] == (pytest.approx(float(error), rel=0.1), pytest.approx(float(stated), rel=0.05))
    assert (tmp_path / "my-filter" / "model.safetensors").exists()


@pytest.mark.process
@pytest.mark.parametrize("seconds", [5, pytest.param(20, marks=pytest.mark.slow)])
def test_the_way_from_a_log_to_a_filter(tmp_path, monkeypatch, capsys, seconds):
    """The commands as written; in the quick run the flight is shorter."""
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    example, diagnose, fix = [shlex.split(line, comments=True)[1:] for line in block(LOG, "sh").splitlines()]
    assert main([*example, "--seconds", str(seconds)]) == 0
    assert "rotor 6" in capsys.readouterr().out
    assert main(diagnose) == 0
    assert "rotor 6" in capsys.readouterr().out
    assert (tmp_path / "report.html").stat().st_size > 50_000
    assert main(fix) == 0
    assert "kept: noise states" in capsys.readouterr().out
    assert fwnkf.load(tmp_path / "my-filter").observation_dim == 6


def test_the_readme_is_short():
    assert len(TEXT.encode()) < 6000


def test_what_the_readme_points_at_is_there():
    targets = {target.split("#")[0] for target in re.findall(r"\]\(([^)]+)\)", TEXT) if "://" not in target} - {""}
    assert [target for target in sorted(targets) if not (ROOT / target).is_file()] == []
    assert (ROOT / "docs" / "images" / "dido.png").stat().st_size < 150_000
    results = (ROOT / "docs" / "results" / "index.md").read_text(encoding="utf-8")
    scripts = set(re.findall(r"python (benchmarks/\w+\.py)", TEXT + results))
    assert len(scripts) > 5
    assert [script for script in sorted(scripts) if not (ROOT / script).is_file()] == []
