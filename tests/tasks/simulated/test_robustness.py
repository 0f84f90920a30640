"""Filters away from what they learned: the conditions are what they say, the ratio is that of two runs."""

from __future__ import annotations

import pytest
import torch
from tasks.simulated.robustness import LIMIT, conditions, harm

import fwnkf
from fwnkf.cli import main
from fwnkf.data import protocols
from fwnkf.filters.hypotheses import with_fallback
from fwnkf.systems import noise
from fwnkf.training.noise_start import start_noise


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder with one filter that has measured drift."""
    folder = tmp_path_factory.mktemp("models")
    made = protocols.simulated("lorenz", "strict", scenario="drift", train=200, val=1, test=1)
    model = fwnkf.build("fwnkf", system=made.split.train.system, shaping="noise", hidden=0, pole_radius=0.9999)
    start_noise(model, made.split.train)
    fwnkf.save(model, folder / "lorenz-drift")
    return folder


def test_conditions_are_what_they_say():
    clean = {said: make(300) for said, make in conditions("tone").items() if make is not None}
    variance = {said: float((made.y - made.clean).square().mean()) for said, made in clean.items()}
    assert variance["as trained"] == pytest.approx(0.26, rel=0.05)
    assert variance["twice the variance"] == pytest.approx(0.52, rel=0.05)
    assert variance["disturbance absent, floor alone"] == pytest.approx(0.1 * 0.26, rel=0.05)
    longer = clean["steps 1.2 times as long"]
    assert float(longer.dt[0, 1]) == pytest.approx(1.2 / 99)

    def peak(made) -> float:
        power = torch.fft.rfft(made.y - made.clean, dim=1).abs().square().mean((0, 2))
        middle = (power * torch.linspace(0, 1, len(power))).sum() / power.sum()
        return float(middle)

    # a tenth of the power is white, whose middle is one half
    shift = peak(clean["frequency 10 % higher"]) - peak(clean["as trained"])
    assert shift == pytest.approx(0.9 * 0.1 * 0.3, rel=0.2)
    assert conditions("pink")["frequency 10 % higher"] is None
    assert noise.FLOOR == 0.1


def test_a_filter_that_measured_drift_does_no_harm_elsewhere(models, capsys):
    rows = {row["condition"]: row for row in harm(models, records=150)}
    assert len(rows) == 6
    assert rows["as trained"]["ratio"] < 0.8
    for row in rows.values():
        assert row["ratio"] == pytest.approx(row["mse"] / row["mse_ekf"])
        assert row["harmless"] == (row["ratio"] <= LIMIT)
    page = models / "page.md"
    code = main(["bench", "harm", "--models", str(models), "--records", "20", "--markdown", str(page)])
    assert code in (0, 1)
    assert "lorenz-drift" in capsys.readouterr().out
    assert (code == 1) == ("**no**" in page.read_text(encoding="utf-8"))


def test_with_its_fallback_it_is_harmless_in_white_noise_too(models, tmp_path):
    plain = fwnkf.load(models / "lorenz-drift")
    fwnkf.save(with_fallback(plain), tmp_path / "lorenz-drift")
    alone, guarded = ({row["condition"]: row for row in harm(folder, records=300)} for folder in (models, tmp_path))
    white = "white noise of the same variance"
    assert alone[white]["ratio"] > 1.5
    assert all(row["harmless"] for row in guarded.values())
    assert guarded["as trained"]["mse"] == pytest.approx(alone["as trained"]["mse"], rel=0.02)
