"""Run folders made by hand, as `fwnkf train` writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

EXPERIMENT: dict[str, Any] = {
    "name": "tiny",
    "seed": 0,
    "data": {"name": "lorenz", "scenario": "drift", "train": 4, "val": 2, "test": 6},
    "filter": {"name": "fwnkf", "options": {"encoder": {"units": 4}}},
    "loss": [{"kind": "state", "weight": 1.0}],
    "optimizer": {"learning_rate": 0.001},
    "trainer": {"steps": 10},
}


def description(seed: int = 0) -> dict[str, Any]:
    """``run.json``."""
    return {
        "format": 1,
        "name": f"tiny-{seed}",
        "seed": seed,
        "status": "done",
        "experiment": {**EXPERIMENT, "seed": seed, "name": f"tiny-{seed}"},
        "versions": {"torch": "2.6.0"},
        "commit": None,
        "data_digest": "abc123",
        "command": f"fwnkf train tiny --seed {seed}",
        "started": "2026-06-01T12:00:00+00:00",
        "cpu_seconds": 10.0 + seed,
        "steps": 10,
        "parameters": 1234,
    }


def row(method: str, seed: int = 0, **figures: Any) -> dict[str, Any]:
    """One row of ``rows.json``."""
    named = {"method": method, "data": "lorenz", "protocol": "strict", "seed": seed, "records": 6, "scenario": "drift"}
    return {**named, "mse": 1.0, "mse_from_10": 0.5, "nees": 1.1, "coverage95": 0.94, "failures": 0, **figures}


def make_run(folder: Path, rows: list[dict[str, Any]] | None = None, *, seed: int = 0, **changed: Any) -> Path:
    """A folder with ``run.json`` and, if there are rows, ``rows.json``."""
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({**description(seed), **changed}))
    if rows is not None:
        (folder / "rows.json").write_text(json.dumps(rows))
    return folder
