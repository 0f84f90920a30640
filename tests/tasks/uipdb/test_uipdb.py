"""Held-out ranges: baselines against filterpy, the joint filter against single ones, scores by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tasks.uipdb import baselines, ranges
from tasks.uipdb.model import NUGGET, Adaptation, RangeModel, best_adaptation, fit, innovations
from tasks.uipdb.protocol import BLOCK, MASKINGS, SHARE, STEP, Record, visible


def walk(steps: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 1 + 0.01 * torch.randn(2, steps, 15, generator=generator).cumsum(1)


def masks(steps: int) -> torch.Tensor:
    return torch.stack([visible(steps, "random", torch.Generator().manual_seed(i)) for i in (1, 2)])


def model(coupled: bool = True) -> RangeModel:
    """Autoregressions of order 3, stable, of a different slow pole for each range."""
    slow = torch.linspace(0.95, 0.995, 15).double()
    a = torch.stack((slow + 0.8, -0.8 * slow - 0.2, 0.2 * slow, 1.2 * (1 - slow) * 0.4), -1)  # (1-sz)(1-0.8z+0.2z²)
    root = torch.randn(15, 15, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    innovation = 1e-5 * (root @ root.mT / 15 + torch.eye(15))
    innovation = innovation if coupled else innovation.diagonal().diag()
    return RangeModel(a, innovation, Adaptation(1.0, 0.2), level=2.0)


@pytest.mark.parametrize("kind", ["random_walk", "constant_velocity"])
def test_baselines_agree_with_filterpy(kind: str) -> None:
    kalman = pytest.importorskip("filterpy.kalman")
    y, shown = walk(60), masks(60)
    q, R = torch.linspace(0.5e-4, 2e-4, 15).double(), torch.linspace(1e-5, 1e-4, 15).double()
    single = getattr(baselines, kind)(q, R)
    innovations = baselines.channel_filter(single, y, shown)[0]
    n = single.F.shape[-1]
    for channel in (0, 7, 14):
        theirs = kalman.KalmanFilter(dim_x=n, dim_z=1)
        theirs.F, theirs.Q = single.F[channel].numpy(), single.Q[channel].numpy()
        theirs.H, theirs.R = np.eye(1, n), np.array([[float(R[channel])]])
        theirs.x, theirs.P = np.eye(n, 1) * float(y[0, 0, channel]), np.eye(n)
        for t in range(1, 60):
            theirs.predict()
            expected = float(y[0, t, channel]) - float(theirs.x[0, 0])
            assert float(innovations[t, 0, channel]) == pytest.approx(expected, abs=1e-9)
            if bool(shown[0, t, channel]):
                theirs.update(float(y[0, t, channel]))


def test_hold_keeps_the_last_measured_value() -> None:
    y = torch.arange(5.0).view(1, 5, 1).expand(1, 5, 15)
    shown = torch.tensor([True, False, False, True, False]).view(1, 5, 1).expand(1, 5, 15)
    assert baselines.hold(y, shown)[0, :, 0].tolist() == [0, 0, 0, 3, 3]


def test_the_autoregression_is_numpys_least_squares() -> None:
    y = walk(400)[0]
    coefficients, _ = baselines.fit_autoregression([Record("one", y)], order=3)
    series = y[:, 4].double().numpy()
    rows = np.stack([series[2:-1], series[1:-2], series[:-3], np.ones(len(series) - 3)], -1)
    expected = np.linalg.lstsq(rows, series[3:], rcond=None)[0]
    np.testing.assert_allclose(coefficients[4].numpy(), expected, atol=1e-7)


@pytest.mark.parametrize("masking", MASKINGS)
def test_masks_hide_a_fifth_and_never_the_first_second(masking: str) -> None:
    shown = visible(20_000, masking, torch.Generator().manual_seed(0))  # type: ignore[arg-type]
    assert bool(shown[:BLOCK].all())
    assert float((~shown).double().mean()) == pytest.approx(SHARE, abs=0.03)
    if masking == "block":
        whole = shown.view(-1, BLOCK * 15)
        assert bool((whole.all(-1) | ~whole.any(-1)).all())


def test_without_coupling_the_joint_filter_is_fifteen_filters() -> None:
    uncoupled = model(coupled=False)
    variance = uncoupled.innovation.diagonal()
    single = baselines.autoregression(uncoupled.coefficients, variance)._replace(R=NUGGET * variance)
    y, shown = walk(200).double(), masks(200)
    expected = baselines.channel_filter(single, y, shown)[0].transpose(0, 1)
    ours = y - uncoupled.filter(adaptive=False).run(y, mask=shown).mean[..., :15]
    late = ~shown
    late[:, :100] = False  # they start from different beliefs
    torch.testing.assert_close(ours[late], expected[late], atol=2e-5, rtol=0)  # of errors of 1e-2


def test_innovations_are_those_of_an_autoregression_that_was_simulated() -> None:
    a = model().coefficients
    e = torch.randn(500, 15, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    r = [torch.full((15,), 1.2).double()] * 3
    for step in e:
        r.append(sum(a[:, k] * r[-1 - k] for k in range(3)) + a[:, -1] + step)
    found = innovations(a, Record("simulated", torch.stack(r)))
    torch.testing.assert_close(found, e[-len(found) :])


def test_the_order_is_chosen_on_the_sessions_held_back() -> None:
    """A process of order 2 with an undamped swing, which order 1 cannot have."""
    generator = torch.Generator().manual_seed(1)
    y = [torch.ones(15), torch.ones(15)]
    for _ in range(1500):
        y.append(1.9 * (y[-1] - 1) - 0.98 * (y[-2] - 1) + 1 + 0.01 * torch.randn(15, generator=generator))
    records = [Record(str(part), torch.stack(y)[500 * part : 500 * (part + 1)]) for part in range(3)]
    chosen = fit(records[:2], records[2:], 0, orders=(1, 2))
    assert chosen.coefficients.shape == (15, 3)
    torch.testing.assert_close(chosen.coefficients[:, 0].mean(), torch.tensor(1.9).double(), atol=0.02, rtol=0)


def test_predictions_use_neither_the_future_nor_what_is_hidden() -> None:
    y, shown = walk(80).double(), masks(80)
    changed = torch.where(shown, y, 7.0)
    changed[:, 60:] = 5.0
    filter_ = model().filter()
    first, second = (filter_.run(x, mask=shown).mean for x in (y, changed))
    assert torch.equal(first[:, :60], second[:, :60])
    assert not torch.equal(first[:, 60:], second[:, 60:])


def test_a_model_is_kept_as_plain_values() -> None:
    before = model()
    after = RangeModel.parse(before.plain())
    for name, value in before.filter().state_dict().items():
        assert torch.equal(value, after.filter().state_dict()[name]), name
    assert after.filter().config == before.filter().config
    assert after.filter().config.half_life == pytest.approx(1.0 / STEP)


def test_the_adaptation_that_fits_the_data_is_chosen() -> None:
    """Correlations of changing sign want a short memory, constant ones a long one with little shrinkage."""
    generator = torch.Generator().manual_seed(0)
    common = torch.randn(1200, 1, generator=generator, dtype=torch.float64)
    own = 0.3 * torch.randn(1200, 4, generator=generator, dtype=torch.float64)
    constant = common.expand(-1, 4) + own
    signs = torch.ones(1200, 4).double()
    signs[:, ::2] = torch.where(torch.arange(1200) // 100 % 2 == 0, 1.0, -1.0).double().unsqueeze(-1)
    before = constant.mT @ constant / len(constant)
    steady, changing = (best_adaptation(before, [series]) for series in (constant, constant * signs))
    assert steady.half_life > changing.half_life


def test_errors_are_scored_over_hidden_ranges_of_each_session() -> None:
    records = [Record("a", torch.zeros(60, 15)), Record("b", torch.zeros(45, 15))]
    data = ranges.TestData(records)
    assert data.y.shape == (4, 60, 15)
    assert bool(data.shown[1, 45:].all())  # padding is not scored
    predicted = torch.full_like(data.y, 1e-3)
    predicted[1::2] = 3e-3  # session b
    errors = data.errors(predicted, torch.full_like(predicted, 1e-6))
    for i, masking in enumerate(MASKINGS):
        hidden = [int((~data.shown[2 * i + j]).sum()) for j in range(2)]
        pooled = math.sqrt((hidden[0] + 9 * hidden[1]) / sum(hidden)) if sum(hidden) else math.nan
        assert errors.rmse(masking) == pytest.approx(pooled, rel=1e-6)
        if hidden[1]:
            assert errors.rmse(masking, "b") == pytest.approx(3.0, rel=1e-6)
        nis, covered = errors.consistency(masking)
        assert nis == pytest.approx(pooled**2, rel=1e-5)
        assert covered == pytest.approx(hidden[0] / sum(hidden), rel=1e-6)
