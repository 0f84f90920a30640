"""Filters that follow noise beside those that are told: the references, the criteria, and the page."""

from __future__ import annotations

import pytest
import scipy.signal
import torch

import fwnkf
from fwnkf.systems.lorenz import Lorenz, LorenzConfig
from tasks.__main__ import main
from tasks.simulated import changing_noise
from tasks.simulated.changing_noise import LEVELS, at_levels, autopilot, switched, told_levels, told_switches, verdict
from tasks.simulated.fallback import with_fallback

RATE = 1 / LorenzConfig().dt
STEPS = 6


@pytest.fixture(scope="module")
def model():
    """Drift with its exact noise states, and the hypotheses of the shipped filters."""
    system = Lorenz(LorenzConfig(variance=0.026))
    alone = fwnkf.FWNKF(system, noise=fwnkf.Lines(hz=0.0, bandwidth_hz=0.3, std=0.48, shared=True))
    return with_fallback(alone).to(changing_noise.DTYPE)


def shortened(records):
    return records._replace(y=records.y[:, :STEPS], truth=records.truth[:, :STEPS], dt=records.dt[:, :STEPS])


def test_the_told_filter_has_the_level_of_each_record(model):
    records = shortened(at_levels("drift", 2, 1))
    told = told_levels(model, records)
    for k in (0, 4):
        part = slice(2 * k, 2 * k + 2)
        alone = with_fallback(model, levels=(LEVELS[k],))
        track = alone.run(records.y[part], dt=records.dt[part], prior=records.start)
        torch.testing.assert_close(told.mean[part], track.mean)
        torch.testing.assert_close(told.cov[part], track.cov)


def test_the_filter_told_the_switches_is_the_disturbed_one_while_the_disturbance_is_on(model):
    records, active = switched("drift", 1, 2)
    assert active.float().mean() == pytest.approx(2 / 3)
    always = told_switches(with_fallback(model, dwell=5.0), shortened(records), torch.ones(STEPS, dtype=torch.bool))
    with torch.no_grad():
        track = with_fallback(model, levels=(1.0,)).run(
            records.y[:, :STEPS], dt=records.dt[:, :STEPS], prior=records.start
        )
    member = track.state.members.mean[:, 0]
    torch.testing.assert_close(always.mean[:, -1], member, rtol=1e-3, atol=1e-3)


def test_the_disturbance_switches_and_the_floor_stays():
    records, active = switched("high_band", 1, 200)
    noise = (records.y - records.truth[..., :2]).square().mean((0, 2))
    assert float(noise[active].mean()) == pytest.approx(0.26, rel=0.1)
    assert float(noise[~active].mean()) == pytest.approx(0.026, rel=0.1)


def test_the_low_pass_is_that_of_scipy():
    records = at_levels("high_band", 1, 2)
    b, a = scipy.signal.butter(2, 20, fs=RATE)
    y = records.y.numpy()
    steady = scipy.signal.lfilter_zi(b, a)[None, :, None] * y[:, :1]
    expected, _ = scipy.signal.lfilter(b, a, y, axis=1, zi=steady)
    torch.testing.assert_close(autopilot("high_band", records), torch.from_numpy(expected), rtol=0, atol=1e-9)


def test_the_notch_takes_the_tone_of_each_record_and_leaves_what_is_constant():
    records = at_levels("tone", 1, 3)
    time = torch.arange(100)
    tone = torch.sin(torch.pi * records.frequency.unsqueeze(-1) * time).unsqueeze(-1).expand(-1, -1, 2)
    left = autopilot("tone", records._replace(y=5 + tone.to(changing_noise.DTYPE)))
    torch.testing.assert_close(left[:, 50:], torch.full_like(left[:, 50:], 5.0), rtol=0, atol=0.01)
    assert autopilot("drift", records) is None


@pytest.mark.parametrize(
    ("changes", "met"),
    [
        ({}, True),
        ({"pooled": 1.04}, False),
        ({"pooled": 1.04, "condition": "switches"}, True),
        ({"coverage95": 0.98}, False),
        ({"nees": 0.85}, False),
    ],
)
def test_every_criterion_counts(changes, met):
    row = {"condition": "x2", "pooled": 1.01, "coverage95": 0.95, "nees": 1.0, **changes}
    assert verdict(row)["ok"] == met


def test_the_command_writes_the_page_of_its_rows(monkeypatch, tmp_path, model, capsys):
    """With estimates that are the truth but for a shift, whose figures are known."""

    def shifted(records, by):
        return changing_noise.Estimate(records.truth + by, torch.eye(3).expand(*records.truth.shape, 3) * 0.01)

    def levels(model, name, records):
        yield "told", shifted(records, 0.1)
        yield "bank", shifted(records, 0.2)

    def switches(model, name, records, active):
        yield "told", shifted(records, 0.1)
        yield "switching", shifted(records, 0.1)

    monkeypatch.setattr(changing_noise, "LEVELS", (0.25,))
    monkeypatch.setattr(changing_noise, "PERIOD", 20)
    monkeypatch.setattr(changing_noise, "RECOVERY", 0.1)
    monkeypatch.setattr(changing_noise, "estimates", levels)
    monkeypatch.setattr(changing_noise, "switching_estimates", switches)
    fwnkf.save(model, tmp_path / "lorenz-drift")
    page, figure = tmp_path / "page.md", tmp_path / "figure.png"
    words = ["changing_noise", "--models", str(tmp_path), "--records", "2", "--seeds", "2"]
    assert main([*words, "--markdown", str(page), "--figure", str(figure)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "| lorenz-drift | ×0.25 | bank of levels | 4.000 [4.000, 4.000] |" in text
    assert "of 1 conditions 0 meet the criterion of error" in text
    assert "| lorenz-drift | hypotheses with dwell | 1.000 [1.000, 1.000] |" in text
    assert "| 0.00 s | 0.00 s | 1.000 [1.000, 1.000] | 1.000 [1.000, 1.000] | meets all |" in text
    assert "Not measured in this run: levels of lorenz-tone" in text
    assert figure.stat().st_size > 1000
    assert main([*words[:-1], "0"]) == 2
    capsys.readouterr()
