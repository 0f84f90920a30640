"""The shipped filter alone gives the figures of its card."""

import json
from pathlib import Path

import pytest
import torch

import fwnkf

FOLDER = Path(__file__).parents[3] / "models" / "uipdb"


def test_uipdb_predicts_hidden_ranges_by_itself(hidden_ranges):
    y, shown, sessions = hidden_ranges
    model = fwnkf.load(FOLDER)
    track = model.run(torch.where(shown, y, torch.nan).to(model.dtype), mask=shown)
    error = (track.mean[..., :15] - y).double()
    quick = json.loads((FOLDER / "results.json").read_text(encoding="utf-8"))["quick"]
    for masking, rows in (("random", slice(sessions)), ("block", slice(sessions, None))):
        rmse = 1e3 * error[rows][~shown[rows]].square().mean().sqrt()
        assert float(rmse) == pytest.approx(quick[f"{masking}_mm"], rel=1e-4)
