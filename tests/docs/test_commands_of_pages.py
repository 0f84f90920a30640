"""Pages whose commands or files are run with more than their text: training, and the first system of one's own."""

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

HOWTO = Path(__file__).parents[2] / "docs" / "howto"
TRAIN = (HOWTO / "train.md").read_text(encoding="utf-8").split("## A minute of training\n")[1].split("\n## ")[0]
OWN = (HOWTO / "own_system.md").read_text(encoding="utf-8")


@pytest.mark.export
def test_the_system_of_two_functions_is_fitted_without_truth(tmp_path, monkeypatch, capsys):
    """As its last line says: the module beside tables without true states."""
    (tmp_path / "cart.py").write_text(re.findall(r"```python\n(.*?)```", OWN, re.S)[0], encoding="utf-8")
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
    command = re.findall(r"from a shell: fwnkf (.*)", OWN)[0].split()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main([*command, "--time", "t", "--oscillators", "0"]) == 0
    printed = capsys.readouterr().out
    fitted = fwnkf.load(tmp_path / "my-filter")
    assert fitted.system.measurement_covariance()[0, 0].item() == pytest.approx(0.04, rel=0.2), printed
    assert "NIS" in printed


def mse(printed: str, method: str) -> float:
    """The first figure of a method in a printed table."""
    return float(re.findall(rf"^{method} +([\d.]+)", printed, re.M)[0])


@pytest.mark.slow
@pytest.mark.process
def test_the_commands_run_and_training_takes_less_than_a_minute(tmp_path):
    """As a user's shell runs them, with `fwnkf` on the path."""
    pytest.importorskip("lightning")
    pytest.importorskip("matplotlib")
    lines = re.findall(r"```sh\n(.*?)```", TRAIN, re.S)[0].splitlines()
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
    # CPU seconds of the training with its baselines
    assert spent[0] < 60

    trained, _, elsewhere = printed
    stated = [float(number) for number in re.findall(r"\b0\.\d+", TRAIN.split("```")[2])]
    methods = ("lorenz-coloured", "ekf", "oracle")
    measured = [*(mse(trained, method) for method in methods), mse(elsewhere, "lorenz-coloured")]
    assert stated[:4] == [pytest.approx(value, rel=0.02) for value in measured]
    assert "oscillators:" in printed[1]
    assert (tmp_path / "runs" / "lorenz-coloured-0" / "plots" / "shaper.png").is_file()
