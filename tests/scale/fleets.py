"""Simulated fleets in Parquet files, and a filter for them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

import fwnkf
from fwnkf.core.system import build_system

STEP = 0.01
CHANNELS = ("position_0", "position_1")


def save_filter(folder: Path, units: int = 8) -> Path:
    """A small FW-NKF of several parts, with weights that are not zero."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        system = build_system("constant_velocity", {"dims": 2, "dt": STEP})
        parts = {"level": fwnkf.Level(seconds=1.0), "encoder": fwnkf.GRU(units)}
        model = fwnkf.FWNKF(system, noise=fwnkf.Lines(hz=12.0, std=0.5), **parts)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.02 * torch.randn(parameter.shape))
    return fwnkf.save(model.eval(), folder)


def walks(devices: int, steps: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Noisy walks of devices, one after the other, as columns of a table; lengths differ by up to a fifth."""
    generator = np.random.default_rng(seed)
    lengths = steps - generator.integers(0, steps // 5 + 1, devices)
    names = np.repeat([f"device-{k:05}" for k in range(devices)], lengths)
    time = np.concatenate([1000.0 + STEP * np.arange(length) for length in lengths])
    values = 0.1 * generator.normal(size=(len(time), 2)).cumsum(0) + generator.normal(size=(len(time), 2))
    return {"device": names, "time": time, CHANNELS[0]: values[:, 0], CHANNELS[1]: values[:, 1]}


def write(path: Path, columns: dict[str, np.ndarray]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def rows(columns: dict[str, np.ndarray], where: np.ndarray) -> dict[str, np.ndarray]:
    return {name: values[where] for name, values in columns.items()}


def estimates(output: Path) -> dict[str, bytes]:
    """All estimates of each device in the order of time, as bytes."""
    parts = [pq.read_table(path) for path in sorted(output.rglob("*.parquet")) if "/_" not in str(path)]
    table = pa.concat_tables([part.set_column(0, "device", part.column("device").cast(pa.string())) for part in parts])
    table = table.sort_by([("device", "ascending"), ("time", "ascending")])
    names = np.array(table.column("device").to_pylist())
    values = np.stack([table.column(name).to_numpy().astype(np.float64) for name in table.column_names[1:]], 1)
    return {str(name): values[names == name].tobytes() for name in np.unique(names)}


def digest(folder: Path) -> dict[str, str]:
    """A digest of every file of an output."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
