"""Every shipped filter gives its figure with ``fwnkf.load(folder).run(...)`` alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import fwnkf
from fwnkf.data.protocols import simulated

MODELS = Path(__file__).parents[3] / "models"
STRICT = {"protocol": "strict", "train": 1, "val": 1, "test": 1000}
RECORDS = {
    "lorenz-algorithm3-from-scratch": {"protocol": "paper", "dtype": torch.float32},
    "lorenz-algorithm3-pretrained": {"protocol": "paper", "dtype": torch.float32},
    "lorenz": {"protocol": "paper"},
    "lorenz-strict": STRICT | {"train": 4000},
    "lorenz-tone": {**STRICT, "scenario": "tone"},
    "lorenz-high-band": {**STRICT, "scenario": "high_band"},
    "lorenz-drift": {**STRICT, "scenario": "drift"},
    "lorenz-pink": {**STRICT, "scenario": "pink"},
    "pendulum": {"protocol": "paper", "train": 4000, "val": 500, "test": 3000},
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_loaded_filter_gives_the_quick_figure(name: str):
    records = simulated(name.split("-")[0], **RECORDS[name]).split.test.take(range(100))
    model = fwnkf.load(MODELS / name)
    with torch.no_grad():  # the prior is that of the first sample and steps have the nominal length: nothing to say
        track = model.run(records.y, u=records.u, prior=records.start).raise_for_status()
    error = model.layout.boxminus(track.mean, records.truth).double()
    quick = json.loads((MODELS / name / "results.json").read_text(encoding="utf-8"))["quick"]
    assert float(error.square().mean()) == pytest.approx(quick["mse"], rel=1e-4)
