"""Constants from innovations against closed forms, and the page that the fits are written to."""

from __future__ import annotations

import argparse

import numpy as np
import pytest
import torch

from fwnkf.identify.likelihood import Predictions
from tasks import __main__ as runner
from tasks.innovations import fit_constants, measured_nis
from tasks.interface import all_tasks


def test_the_likeliest_deviations_of_white_noise_are_those_of_the_samples():
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(2, 300, 2, generator=generator, dtype=torch.float64) * torch.tensor([0.2, 5.0]).double()
    weight = (torch.rand(2, 300, 2, generator=generator) < 0.7).double()

    def innovations(candidates: list[dict[str, float]]) -> Predictions:
        covs = [
            torch.tensor([item["a"], item["b"]]).double().square().diag().expand(2, 300, 2, 2) for item in candidates
        ]
        return Predictions(y.expand(len(candidates), -1, -1, -1), torch.stack(covs), weight)

    fitted = fit_constants({"a": 1.0, "b": 1.0}, innovations, iterations=30, say=lambda text: None)
    expected = [float(np.sqrt(np.mean(y[..., i].numpy()[weight[..., i].numpy() > 0] ** 2))) for i in range(2)]
    assert [fitted["a"], fitted["b"]] == pytest.approx(expected, rel=0.03)
    cov = torch.tensor([fitted["a"], fitted["b"]]).double().square().diag()
    assert measured_nis(y, cov.expand(2, 300, 2, 2), weight) == pytest.approx(1, abs=0.05)


def test_nis_counts_measured_channels_alone():
    generator = torch.Generator().manual_seed(1)
    root = torch.randn(40, 3, 3, generator=generator, dtype=torch.float64)
    cov, residual = root @ root.mT + torch.eye(3), torch.randn(40, 3, generator=generator, dtype=torch.float64)
    weight = (torch.rand(40, 3, generator=generator) < 0.5).double()
    total = 0.0
    for r, S, w in zip(residual.numpy(), cov.numpy(), weight.numpy() > 0, strict=True):
        total += r[w] @ np.linalg.solve(S[np.ix_(w, w)], r[w])
    assert measured_nis(residual, cov, weight) == pytest.approx(total / float(weight.sum()), rel=1e-12)


def test_a_page_of_fits_keeps_the_sections_of_other_tasks(tmp_path):
    path = tmp_path / "page.md"
    options = argparse.Namespace(markdown=path, tasks=["dido"])
    for name, value in (("dido", 1.0), ("broad", 2.0), ("dido", 3.0)):
        rows = runner.rows_of(all_tasks()[name], "fitted without truth", runner.Score({"nis": value}))
        path.write_text(runner.page(rows, "fit", options), encoding="utf-8")
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("## ")] == ["## dido", "## broad"]
    assert [line for line in lines if line.startswith("| fitted")] == [
        "| fitted without truth | 3 |",
        "| fitted without truth | 2 |",
    ]
