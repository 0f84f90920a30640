"""Training in two processes over gloo equals training in one process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from fwnkf.cli import main
from fwnkf.training.checkpointing import read_history

pytestmark = pytest.mark.process


def arguments(folder: Path, devices: int) -> list[str]:
    small = {
        "trainer.devices": devices,
        "trainer.steps": 4,
        "trainer.validate_every": 2,
        "trainer.batch_size": 6,
        "trainer.compile": "false",
        "trainer.pretrain": 0,
        "trainer.loggers": "[]",
        "trainer.accelerator": "cpu",
        "system": "{name: lorenz}",
        "data": "{name: simulated, steps: 20, train: 16, val: 4, test: 4, dtype: float64}",
        "filter.options.encoder.units": 8,
    }
    sets = [word for name, value in small.items() for word in ("--set", f"{name}={value}")]
    return ["train", "lorenz", "--no-references", "--no-plots", "--run", str(folder), *sets]


def test_two_processes_agree_with_one(tmp_path):
    assert main(arguments(tmp_path / "one", 1)) == 0
    # Lightning starts the second process by running the same command again, so it must be a real command
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
    call = [sys.executable, "-m", "fwnkf.cli", *arguments(tmp_path / "two", 2)]
    process = subprocess.run(call, capture_output=True, text=True, timeout=300, env=environment)
    assert process.returncode == 0, process.stderr
    single, double = read_history(tmp_path / "one"), read_history(tmp_path / "two")
    assert [row["step"] for row in single] == [row["step"] for row in double] == [0, 2, 4]
    for name in ("loss", "loss_state", "val_mse", "val_nees"):
        np.testing.assert_allclose([row[name] for row in double[1:]], [row[name] for row in single[1:]], rtol=1e-5)
    weights = [load_file(tmp_path / which / "last" / "model.safetensors") for which in ("one", "two")]
    for name, tensor in weights[0].items():
        np.testing.assert_allclose(weights[1][name], tensor, rtol=1e-4, atol=1e-6)
