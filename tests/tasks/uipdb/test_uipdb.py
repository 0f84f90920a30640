"""Held-out ranges: references against filterpy, the model against scipy, the shipped filter against its figures."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from tasks.uipdb.model import (
    Adaptation,
    _factors,
    _process,
    channel_model,
    joint_system,
    monic,
    predict,
    residuals,
    start,
)
from tasks.uipdb.protocol import BLOCK, MASKINGS, SHARE, visible

from fwnkf.filters.base import build
from tasks.uipdb import baselines as uipdb_references
from tasks.uipdb import ranges as uipdb

MODELS = Path(__file__).parents[2] / "models"
needs_data = pytest.mark.skipif("FWNKF_DATA" not in os.environ, reason="the recordings are not here")


def walk(steps: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 1 + 0.01 * torch.randn(2, steps, 15, generator=generator).cumsum(1)


@pytest.mark.parametrize("kind", ["random_walk", "constant_velocity"])
def test_references_agree_with_filterpy(kind: str) -> None:
    kalman = pytest.importorskip("filterpy.kalman")
    y, shown = walk(60), torch.stack([visible(60, "random", torch.Generator().manual_seed(i)) for i in (1, 2)])
    q, R = torch.linspace(0.5e-4, 2e-4, 15).double(), torch.linspace(1e-5, 1e-4, 15).double()
    model = getattr(uipdb_references, kind)(q, R)
    found = uipdb_references.channel_filter(model, y, shown)[0]
    n = model.F.shape[-1]
    for channel in (0, 7, 14):
        rival = kalman.KalmanFilter(dim_x=n, dim_z=1)
        rival.F, rival.Q = model.F[channel].numpy(), model.Q[channel].numpy()
        rival.H, rival.R = np.eye(1, n), np.array([[float(R[channel])]])
        rival.x, rival.P = np.eye(n, 1) * float(y[0, 0, channel]), np.eye(n)
        for t in range(1, 60):
            rival.predict()
            expected = float(y[0, t, channel]) - float(rival.x[0, 0])
            assert float(found[t, 0, channel]) == pytest.approx(expected, abs=1e-9)
            if bool(shown[0, t, channel]):
                rival.update(float(y[0, t, channel]))


def test_hold_keeps_the_last_value_shown() -> None:
    y = torch.arange(5.0).view(1, 5, 1).expand(1, 5, 15)
    shown = torch.tensor([True, False, False, True, False]).view(1, 5, 1).expand(1, 5, 15)
    assert uipdb_references.hold(y, shown)[0, :, 0].tolist() == [0, 0, 0, 3, 3]


@pytest.mark.parametrize("masking", MASKINGS)
def test_masks_hide_a_fifth_and_never_the_first_second(masking: str) -> None:
    shown = visible(20_000, masking, torch.Generator().manual_seed(0))  # type: ignore[arg-type]
    assert bool(shown[:BLOCK].all())
    assert float((~shown).double().mean()) == pytest.approx(SHARE, abs=0.03)
    if masking == "block":
        whole = shown.view(-1, BLOCK * 15)
        assert bool((whole.all(-1) | ~whole.any(-1)).all())


def test_monic_polynomials_are_stable_whatever_the_numbers() -> None:
    raw = 3 * torch.randn(50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert max(np.abs(np.roots(row)).max() for row in monic(raw).numpy()) < 1


def test_residuals_are_those_of_scipy() -> None:
    signal = pytest.importorskip("scipy.signal")
    a, c = monic(torch.tensor([[[-1.5, 1.0, 0.1]], [[-1.0, 0.8, 0.2]]]).double()).expand(2, 15, 4)
    y = walk(80)[0]
    expected = signal.lfilter(a[0].numpy(), c[0].numpy(), np.diff(y.double().numpy(), axis=0), axis=0)
    np.testing.assert_allclose(residuals(y, a, c).numpy(), expected, atol=1e-12)


def joint() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    a, c = monic(torch.tensor([[[-1.5, 1.0]], [[-1.0, 0.8]]]).double()).expand(2, 15, 3)
    root = torch.randn(15, 15, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return a, c, 1e-5 * (root @ root.mT / 15 + torch.eye(15))


def test_without_coupling_the_joint_filter_is_fifteen_filters() -> None:
    a, c, innovation = joint()
    variance = innovation.diagonal()
    single = channel_model(a, c, variance, 0.004, torch.full((15,), 1.2))
    model = build("fwnkf", system=joint_system(single, a, c, variance.diag()), shaping="none", hidden=0)
    y, shown = walk(200), torch.stack([visible(200, "random", torch.Generator().manual_seed(i)) for i in (1, 2)])
    missed = uipdb_references.channel_filter(single, y, shown)[0].transpose(0, 1)
    found = y - predict(model, y, shown)
    late = ~shown
    late[:, :100] = False  # they start from different beliefs
    torch.testing.assert_close(found[late], missed[late].float(), atol=2e-4, rtol=0.02)


def test_process_noise_is_put_together_as_it_was_taken_apart() -> None:
    a, c, innovation = joint()
    Q = joint_system(channel_model(a, c, innovation.diagonal(), 0.0, torch.zeros(15)), a, c, innovation).Q()
    gains, base = _factors(Q)
    torch.testing.assert_close(_process(gains, base[None])[0], Q, rtol=1e-3, atol=1e-9)


def test_a_covariance_follows_by_half_in_its_life() -> None:
    before, now = torch.eye(2), 3 * torch.eye(2)
    torch.testing.assert_close(Adaptation(2.0, 0.0).follow(before, now, 40), 2 * torch.eye(2))


def test_predictions_do_not_see_the_future_or_what_is_hidden() -> None:
    a, c, innovation = joint()
    single = channel_model(a, c, innovation.diagonal(), 0.0, torch.zeros(15))
    model = build("fwnkf", system=joint_system(single, a, c, innovation), shaping="none", hidden=0)
    assert start(model, walk(1)[:, 0]).cov.shape == (2, 45, 45)
    y, shown = walk(80), torch.stack([visible(80, "random", torch.Generator().manual_seed(i)) for i in (1, 2)])
    changed = torch.where(shown, y, 7.0)
    changed[:, 60:] = 5.0
    first, second = (predict(model, x, shown, Adaptation(1.0, 0.2)) for x in (y, changed))
    assert torch.equal(first[:, :60], second[:, :60])


@needs_data
def test_shipped_filter_gives_its_figures() -> None:
    kept = json.loads((MODELS / "uipdb" / "figures.json").read_text())
    rows = list(uipdb.measure(MODELS, quick=True))
    ours = {row["protocol"]: row["value"] for row in rows if row["method"] == "fwnkf"}
    for masking in MASKINGS:
        assert ours[masking] == pytest.approx(kept["quick"][masking], rel=0.01)
        assert kept["mean"][masking] < 0.8 * min(kept["rungs"][masking][name] for name in uipdb.KALMAN)
    assert sum(path.stat().st_size for path in (MODELS / "uipdb").iterdir()) < 1 << 20
