"""The study of calm and shaken trials: how shaking is measured, and the figures of its page."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from tasks.broad.shaken import HIGH_BAND, page, shaking


def test_shaking_counts_what_is_above_the_band_alone():
    time = torch.arange(1000, dtype=torch.float64) / 250.0
    slow, fast = (torch.sin(2 * math.pi * hz * time) for hz in (HIGH_BAND / 2, 2 * HIGH_BAND))
    force = torch.stack((9.8 + 3 * slow, 0.5 * fast, torch.zeros_like(time)), 1)
    trial = SimpleNamespace(observations=torch.cat((torch.ones(1000, 3), force), 1), rate=250.0)
    assert shaking(trial) == pytest.approx(0.5 / math.sqrt(2), rel=1e-6)


def test_the_page_compares_with_the_filter_trained_on_the_same_kind():
    def row(trained: str, run: str, error: float, nees: float, coverage: float) -> dict:
        return {
            "seed": 0, "trained": trained, "run": run, "by_recording": {"a": error, "b": 3 * error},
            "nees": nees, "coverage": coverage, "shaking": 1.0,
        }  # fmt: skip

    rows = [
        row("calm", "calm", 1.0, 1.0, 0.95), row("calm", "shaken", 3.0, 2.5, 0.95),
        row("shaken", "shaken", 2.0, 1.0, 0.95), row("shaken", "calm", 1.05, 1.0, 0.95),
    ]  # fmt: skip
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page(rows).splitlines() if line[:1] == "|"][
        2:
    ]
    found = {(cells[0], cells[1]): cells for cells in lines}
    assert found["calm", "shaken"][4] == "1.5 [1.5, 1.5]"
    assert found["calm", "shaken"][-1] == "**fails: error, NEES**"
    assert found["shaken", "calm"][-1] == "robust"
    assert found["calm", "calm"][-1] == "reference"
