"""Filters away from the noise of their training: conditions, criteria, and what the fallback gives."""

from __future__ import annotations

import json

import pytest
import torch

import fwnkf
from fwnkf.data import protocols
from fwnkf.errors import ConfigError
from fwnkf.systems import noise
from fwnkf.training.noise_start import start_noise
from tasks.__main__ import main
from tasks.simulated.fallback import with_fallback
from tasks.simulated.robustness import COVERAGE_LIMITS, ERROR_LIMIT, LEVELS, NEES_LIMIT, conditions, robustness, verdict

WHITE = "white noise of the same variance"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder with one filter whose noise states were fitted to drift."""
    folder = tmp_path_factory.mktemp("models")
    protocol = protocols.simulated("lorenz", "strict", scenario="drift", train=200, val=1, test=1)
    model = fwnkf.FWNKF(protocol.split.train.system, noise=fwnkf.Lines(shared=True))
    start_noise(model, protocol.split.train)
    fwnkf.save(model, folder / "lorenz-drift")
    return folder


def test_conditions_have_the_stated_variance_frequency_and_step():
    data = {condition: make(300) for condition, make in conditions("tone").items()}
    variance = {condition: float((one.y - one.clean).square().mean()) for condition, one in data.items()}
    assert variance["as trained"] == pytest.approx(0.26, rel=0.05)
    assert variance[WHITE] == pytest.approx(0.26, rel=0.05)
    for words, level in LEVELS.items():
        assert variance[words] == pytest.approx(0.26 * level, rel=0.05)
    assert variance["disturbance absent, floor alone"] == pytest.approx(noise.FLOOR * 0.26, rel=0.05)
    assert float(data["steps 1.2 times as long"].dt[0, 1]) == pytest.approx(1.2 / 99)

    def mean_frequency(simulated) -> float:
        power = torch.fft.rfft(simulated.y - simulated.clean, dim=1).abs().square().mean((0, 2))
        return float((power * torch.linspace(0, 1, len(power))).sum() / power.sum())

    # a tenth of the power is white, whose mean frequency is one half
    shift = mean_frequency(data["frequency 10 % higher"]) - mean_frequency(data["as trained"])
    assert shift == pytest.approx(0.9 * 0.1 * 0.3, rel=0.2)
    assert "frequency 10 % higher" not in conditions("pink")


@pytest.mark.parametrize(
    ("changes", "missed"),
    [
        ({}, None),
        ({"ratio": ERROR_LIMIT + 0.01}, "error_ok"),
        ({"coverage95": COVERAGE_LIMITS[0] - 0.01}, "coverage_ok"),
        ({"coverage95": COVERAGE_LIMITS[1] + 0.005}, "coverage_ok"),
        ({"nees": NEES_LIMIT + 0.1}, "nees_ok"),
        ({"nees": float("nan")}, "nees_ok"),
        ({"nees": NEES_LIMIT + 0.1, "nees_ekf": NEES_LIMIT + 0.2}, None),
    ],
)
def test_every_criterion_counts(changes, missed):
    row = {"ratio": 1.0, "coverage95": 0.95, "nees": 1.0, "nees_ekf": 1.5, **changes}
    met = verdict(row)
    assert met["robust"] == (missed is None)
    assert [name for name, ok in met.items() if not ok] == ([] if missed is None else [missed, "robust"])


def test_the_fallback_limits_the_error_in_white_noise(models, tmp_path):
    """Fitted to drift alone the filter is much worse than the EKF in white noise; with its fallback it is not."""
    fwnkf.save(with_fallback(fwnkf.load(models / "lorenz-drift")), tmp_path / "lorenz-drift")
    alone, guarded = (
        {row["condition"]: row for row in robustness(folder, records=120)} for folder in (models, tmp_path)
    )
    assert len(alone) == 9
    assert alone["as trained"]["ratio"] < 0.8
    assert alone[WHITE]["ratio"] > 1.5
    assert not alone[WHITE]["error_ok"]
    assert all(row["error_ok"] for row in guarded.values())
    assert guarded["as trained"]["mse"] == pytest.approx(alone["as trained"]["mse"], rel=0.02)
    for row in (*alone.values(), *guarded.values()):
        assert row["ratio"] == pytest.approx(row["mse"] / row["mse_ekf"])
        assert {name: row[name] for name in verdict(row)} == verdict(row)


def test_the_command_writes_the_page_of_its_rows(models, tmp_path, capsys):
    page = tmp_path / "page.md"
    words = ["robustness", "--models", str(models), "--records", "20", "--markdown", str(page), "--json"]
    code = main(words)
    rows = json.loads(capsys.readouterr().out)
    text = page.read_text(encoding="utf-8")
    assert code == int(not all(row["robust"] for row in rows))
    for row in rows:
        line = next(line for line in text.splitlines() if row["condition"] in line.split(" | "))
        assert f"| {row['ratio']:.4g} |" in line
        assert line.endswith("| robust |") == row["robust"]
        assert ("coverage" in line.rsplit("|", 2)[1]) == (not row["coverage_ok"])
    assert main(["robustness", "--models", str(models), "--records", "0"]) == 2
    with pytest.raises(ConfigError, match="holds none of lorenz-tone"):
        next(robustness(tmp_path))
