"""What the study of the racing quadrotor is made of: tables of seeds and flights, forecasts, tails, kept scores."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from tasks.racer import foresight, page, parts, protocol, regression, scoring
from tasks.racer.filter import linear_filter, linear_model
from tasks.racer.gaps import GapErrors
from tasks.racer.protocol import CONTEXT
from tasks.results import Results, Score, SeedScore

from .test_filter import simulated

FLIGHT_NAMES = ("a", "b", "c")


@pytest.fixture(scope="module")
def group():
    return [simulated(0), simulated(1)]


def row(*seeds: float) -> page.Seeds:
    """A row whose metrics are the seed's number, and that times 1, 2, 3 in the flights."""
    return {
        str(number): {
            "": {"gap_50": value},
            **{name: {"gap_50": value * (k + 1)} for k, name in enumerate(FLIGHT_NAMES)},
        }
        for number, value in enumerate(seeds)
    }


def test_cells_have_the_spread_over_seeds_and_an_interval_over_flights() -> None:
    values = (0.20, 0.23, 0.26)
    mean, std = (float(text) for text in page.spread(row(*values), "gap_50").split(" ± "))
    assert mean == pytest.approx(np.mean(values))
    assert std == pytest.approx(np.std(values, ddof=1), abs=0.001)
    assert page.spread(row(0.2), "gap_50") == "0.2"
    assert page.spread(row(0.2), "gap_20") == page.interval(row(0.2), "gap_20") == ""
    text = page.interval(row(*values), "gap_50")
    low, high = (float(word) for word in text[text.index("[") + 1 : -1].split(", "))
    assert float(text.split()[0]) == pytest.approx(2 * np.mean(values))
    assert (low, high) == pytest.approx((np.mean(values), 3 * np.mean(values)))  # 3 ** -3 draw one flight alone


def test_a_page_puts_variants_beside_the_filter_and_names_what_was_not_measured() -> None:
    seeds = tuple(SeedScore({"gap_50": value}, {"a": value, "b": value}, seed=k) for k, value in enumerate((0.2, 0.3)))
    hold = Score({"gap_50": 0.5}, {"a": 0.5, "b": 0.5})
    details = {
        "windows": 10, "quiet_windows": 9, "cpu_seconds": 90.0, "multiply_adds": 31_000.0,
        "by_flight": {"ours": row(0.2, 0.3), "hold": row(0.5)}
        | {name: row(0.4) for name in ("ridge", "network", "linear_kf", "ekf_rigid_body")},
        "variants": {"without_gru": row(0.5)},
    }  # fmt: skip
    names = ("hold", "ridge", "network", "linear_kf", "ekf_rigid_body")
    kept = Results("racer", "p", "gap_50", seeds, dict.fromkeys(names, hold), {}, {}, 2, {}, details)
    text = page.page(kept)
    assert "| the filter | 2 | 0.250 ± 0.071 |" in text
    assert "| without_gru | 1 | 0.5 |" in text
    assert "Not measured yet: `without_control`, `with_q_t`, `with_noise_states`." in text
    assert "| 2 [2, 2] |" in text  # 0.5 over 0.25 in every flight
    assert "Not measured yet: `python -m tasks racer sizes`" in text
    assert "1.5 CPU minutes" in text


def test_scores_are_kept_with_the_seconds_they_took(tmp_path) -> None:
    found = [("ridge", 0, {"": Score({"gap_50": 1.0}, {"a": 2.0}), "a": Score({"gap_50": 2.0})})]
    first = parts.scores("some", lambda: scoring.joined(found), tmp_path)
    again = parts.scores("some", lambda: pytest.fail("computed again"), tmp_path)
    assert again == first
    assert scoring.parted(again.by_method) == {"ridge": {"0": found[0][2]}}
    mean = scoring.mean([Score({"gap_50": 1.0}, {"a": 2.0}, 3.0), Score({"gap_50": 2.0}, {"a": 4.0}, 5.0)])
    assert mean == Score({"gap_50": 1.5}, {"a": 3.0}, 8.0)


def test_forecast_commands_are_nearer_than_the_last_ones_repeated(group) -> None:
    data = protocol.windows([simulated(5)], foresight.LONGEST)
    ridge = regression.fit_commands(group, foresight.LONGEST)
    commands = regression.forecast(ridge, data)
    assert torch.equal(commands[:, :CONTEXT], data.motors[:, :CONTEXT])
    later = data.motors[:, CONTEXT:]
    repeated = (data.motors[:, CONTEXT - 1 : CONTEXT] - later).square().mean()
    assert (commands[:, CONTEXT:] - later).square().mean() < 0.5 * repeated


def test_a_filter_ahead_is_given_repeated_forecast_and_true_commands(group, monkeypatch) -> None:
    monkeypatch.setattr(foresight, "ridge_of_commands", lambda: regression.fit_commands(group, foresight.LONGEST))
    model, data = linear_filter(linear_model(group)), protocol.windows([simulated(5)])
    found = [foresight.ahead(model, data, title)[""] for title in foresight.COMMANDS]
    repeated, guessed, true = (one["commands"] for one in found)
    assert repeated > guessed > true == 0.0
    expected = (
        scoring.rmse(scoring.gaps(model, data)["20"].error),
        scoring.evaluate(model, data)[""].metrics["ahead_20"],
    )
    assert (found[2]["ahead_20"], found[0]["ahead_20"]) == pytest.approx(expected, rel=1e-4)


def test_the_tail_of_normal_errors_is_that_of_the_chi_square_distribution(monkeypatch) -> None:
    count = 40_000
    error = torch.randn(count, 3, generator=torch.Generator().manual_seed(0))
    errors = GapErrors(error, torch.eye(3).expand(count, 3, 3))
    monkeypatch.setattr(scoring, "gaps", lambda *_: dict.fromkeys(foresight.LENGTHS, errors))
    empty = torch.zeros(count, 1, 3)
    data = protocol.Windows(empty, empty, torch.zeros(count, 1, 4), torch.zeros(count).long(), ("a",))
    found = foresight.tail(SimpleNamespace(), data)
    # E[X; X > q] of three degrees of freedom is 3 P(X > q) of five
    share = chi2.sf(chi2.isf(foresight.TAIL, 3), 5)
    assert found["a"]["tail_20"] == pytest.approx(share, rel=0.03)
    assert found[""]["nees_20"] == pytest.approx(1.0, rel=0.02)
    assert found[""]["rest_20"] == pytest.approx((1 - share) / (1 - foresight.TAIL), rel=0.02)
    assert found[""]["coverage_20"] == pytest.approx(0.95, abs=0.005)
