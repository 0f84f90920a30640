"""The study of encoders on a small simulated case: what is kept, what is measured once, and the figures of the page."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import fwnkf
from tasks.encoder import cases, study
from tasks.encoder.page import page

NAMES = ("a", "a", "b")


def small(models: Path) -> cases.Case:
    """Walks in noise; two test recordings, one of them in two pieces of different length."""
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(7, 30, 1, generator=generator, dtype=torch.float64).cumsum(1)
    y = y + torch.randn(7, 30, 1, generator=generator, dtype=torch.float64)
    mask = torch.ones(7, 30, 1, dtype=torch.bool)
    mask[4, 10:] = False
    one = torch.ones(1, 1, dtype=torch.float64)
    model = fwnkf.build("kf", F=one, H=one, Q=one, R=one)
    prior = fwnkf.Gaussian(torch.zeros(7, 1).double(), torch.ones(7, 1, 1).double())
    return cases.Case(model, y, mask, None, None, prior, NAMES, lambda given: {"a": 1.0, "b": 2.0}, "m", 1)


def test_a_case_is_measured_once_and_a_seed_is_added(tmp_path, monkeypatch):
    calls = []

    def counted(models: Path) -> cases.Case:
        calls.append(models)
        return small(models)

    monkeypatch.setitem(cases.CASES, "small", counted)
    store = tmp_path / "rows.json"
    for seeds in ((0,), (0,), (0, 1)):
        study.measure("small", seeds, tmp_path, store, lambda text: None)
    assert len(calls) == 2
    rows = json.loads(store.read_text())
    assert list(rows) == ["small/0", "small/1"]
    assert set(rows["small/0"]["gain"]) == {"a", "b"}


def test_gains_of_a_recording_are_weighted_by_its_values(tmp_path):
    found = study.by_recording(NAMES, (0.3, 0.6, 0.5), small(tmp_path))
    assert found == {"a": pytest.approx((0.3 * 10 + 0.6 * 30) / 40), "b": 0.5}


def test_the_page_has_means_over_recordings_and_seeds():
    row = {
        "case": "small",
        "unit": "m",
        "steps": 5,
        "rate": 0.01,
        "nis": [2.0, 1.0],
        "error": {"a": 1.0, "b": 3.0},
        "cpu_seconds": 7.0,
    }
    rows = {
        f"small/{seed}": row
        | {"seed": seed, "gain": {"a": gain, "b": gain}, "error_with_encoder": {"a": 0.5, "b": 1.5}}
        for seed, gain in enumerate((0.1, 0.3))
    }
    cells = [cell.strip() for cell in page(rows).splitlines()[-1].split("|")[1:-1]]
    assert cells[0] == "small (m)"
    assert cells[1:3] == ["2", "2"]
    assert cells[4] == f"0.2 [0.2, 0.2], ± {np.std([0.1, 0.3]):.2g}"
    assert cells[9] == "0.5 [0.5, 0.5]"
    assert (
        "- small: log-likelihood per value +0.2 [0.2, 0.2], error 0.5 [0.5, 0.5] times that without it, smaller"
        in page(rows)
    )
