"""The README's code and commands run as written and show what it says; what it points at is there."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import fwnkf
from fwnkf.cli import main

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")


def section(title: str) -> str:
    return TEXT[TEXT.index(f"## {title}\n") :].split("\n## ")[0]


def block(title: str, language: str) -> str:
    return re.findall(rf"```{language}\n(.*?)```", section(title), re.S)[0]


@pytest.mark.export  # two thousand steps through the shape checker would take minutes
def test_the_first_filter_runs_and_shows_the_gain(tmp_path, monkeypatch, capsys):
    torch.manual_seed(0)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", section("A first filter"), re.S)
    assert len(blocks) == 2
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


@pytest.mark.export
def test_the_system_of_two_functions_is_fitted_without_truth(tmp_path, monkeypatch, capsys):
    """As its last line says: the module beside tables without true states."""
    (tmp_path / "cart.py").write_text(block("Your own system, your own data", "python"), encoding="utf-8")
    generator = torch.Generator().manual_seed(0)
    (tmp_path / "my_folder").mkdir()
    for number in range(3):
        velocity = torch.zeros(600, dtype=torch.float64)
        for step in range(1, 600):
            velocity[step] = 0.99 * velocity[step - 1] + 0.1 * torch.randn((), generator=generator)
        gps = 0.1 * velocity.cumsum(0) + 0.2 * torch.randn(600, generator=generator)
        lines = [f"{0.1 * step:.1f},{value}" for step, value in enumerate(gps.tolist())]
        (tmp_path / "my_folder" / f"{number}.csv").write_text("\n".join(["t [s],gps", *lines]), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    command = re.findall(r"from a shell: fwnkf (.*)", TEXT)[0].split()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main([*command, "--time", "t", "--oscillators", "0"]) == 0
    printed = capsys.readouterr().out
    fitted = fwnkf.load(tmp_path / "my-filter")
    assert fitted.system.measurement_covariance()[0, 0].item() == pytest.approx(0.04, rel=0.2), printed
    assert "NIS" in printed


def mse(printed: str, method: str) -> float:
    """The first figure of a method in a printed table."""
    return float(re.findall(rf"^{method} +([\d.]+)", printed, re.M)[0])


@pytest.mark.process
def test_the_commands_run_and_training_takes_less_than_a_minute(tmp_path):
    """As a user's shell runs them, with `fwnkf` on the path."""
    pytest.importorskip("lightning")
    pytest.importorskip("matplotlib")
    lines = block("From the command line", "sh").splitlines()
    command = tmp_path / "bin" / "fwnkf"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fwnkf.cli "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(Path(fwnkf.__file__).parents[1]),
        "OMP_NUM_THREADS": "1",
    }
    environment.pop("FWNKF_CHECK_SHAPES", None)
    printed, spent = [], []
    for line in lines:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            ["sh", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    # CPU seconds of the training with its baselines; half as many again where other processes share caches and cores
    assert spent[0] < 60

    text = section("From the command line")
    trained, _, elsewhere = printed
    stated = [float(number) for number in re.findall(r"\b0\.\d+", text.split("```")[2])]
    methods = ("lorenz-coloured", "ekf", "oracle")
    measured = [*(mse(trained, method) for method in methods), mse(elsewhere, "lorenz-coloured")]
    assert stated[:4] == [pytest.approx(value, rel=0.02) for value in measured]
    assert "oscillators:" in printed[1]
    assert (tmp_path / "runs" / "lorenz-coloured-0" / "plots" / "shaper.png").is_file()


def test_what_the_readme_points_at_is_there():
    targets = {target.split("#")[0] for target in re.findall(r"\]\(([^)]+)\)", TEXT) if "://" not in target} - {""}
    assert [target for target in sorted(targets) if not (ROOT / target).is_file()] == []
    assert (ROOT / "docs" / "images" / "dido.png").stat().st_size < 150_000
    results = (ROOT / "docs" / "results" / "index.md").read_text(encoding="utf-8")
    scripts = set(re.findall(r"python (benchmarks/\w+\.py)", TEXT + results))
    assert len(scripts) > 5
    assert [script for script in sorted(scripts) if not (ROOT / script).is_file()] == []
