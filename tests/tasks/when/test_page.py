"""The page from rows made up for it: what it concludes follows from them."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.when import cells, drawings, nonlinear, page, recordings, summary
from tasks.when.problem import Disturbance
from tasks.when.store import Row

TONE, SWEEP = Disturbance("tone", 10.0, 0.0, 1.0), Disturbance("sweep", 10.0, 0.5, 1.0)
USUAL = {"states told": 0.1, "as assumed": 0.9, "best R": 0.3, "low-pass": 0.3, "notch": 0.11, "states fitted": 0.1,
         "Φ": 0.1, "Φ, spectral loss": 0.13, "FIR": 0.1}  # fmt: skip
SWEPT = USUAL | {"states fitted": 0.28, "Φ": 0.25, "Φ, spectral loss": 0.26, "FIR": 0.22, "Φ of two": 0.23,
                 "states trained": 0.25, "notch": 0.29, "notch told": 0.12}  # fmt: skip


CHANNEL = {"raw": 5.0, "best R": 2.0, "low-pass": 2.0, "notch": 1.5, "states fitted": 1.0, "states trained": 1.0,
           "Φ": 0.9, "Φ, spectral loss": 1.2, "FIR": 1.1}  # fmt: skip


def rows(errors: dict[str, float], one: Disturbance = TONE, part: str = "linear", **more: Any) -> list[Row]:
    key = {"kind": one.kind, "hz": one.hz, "width": one.width, "std": one.std, "q": 1.0, "r": 1.0, "seed": 0} | more
    return [
        {"part": part, **key, "estimator": name, "rmse": error, "nees": 1.0, "cpu_seconds": 1.0}
        for name, error in errors.items()
    ]


def channel_rows(errors: dict[str, float], data: str = "dido", axis: str = "gyro x") -> list[Row]:
    key = {"part": recordings.PART, "data": data, "axis": axis, "seed": 0}
    return [{**key, "estimator": name, "rmse": error, "cpu_seconds": 1.0} for name, error in errors.items()]


def conclusion(*parts: list[Row]) -> str:
    found = page.places([row for part in parts for row in part])
    return f"{page.conclusion(found)} {page.terms(found)}".strip()


def test_phi_that_others_reach_never_wins():
    found = conclusion(rows(USUAL), rows(USUAL, part=nonlinear.PART))
    assert found.startswith("Neither Φ nor the spectral loss wins in any of 2 places: filtering the innovation adds no")
    assert "within 5 % of Φ or better in 2 of 2 places" in found
    assert "places are 1 cells of a linear system and 1 cells of a pendulum" in found
    assert "Against what needs no truth Φ is ahead by that much in 0 places" in found


def test_phi_that_nothing_else_reaches_wins_and_its_places_are_named():
    better = rows(USUAL | {"Φ": 0.08}, part=nonlinear.PART)
    found = conclusion(rows(USUAL), better)
    start = (
        "Φ wins in 1 of 2 places, by 1.25 times (pendulum, tone, 10 Hz, RMS 1), the spectral loss in none of 2 places: "
    )
    assert found.startswith(start)
    assert "within 5 % of Φ or better in 1 of 2 places" in found
    assert "Φ is ahead by that much in 1 places (tone 1)" in found


def test_the_spectral_loss_can_win():
    found = conclusion(rows(USUAL | {"Φ, spectral loss": 0.09}), rows(SWEPT, SWEEP))
    assert found.startswith("Φ in none of 2 places, the spectral loss wins in 1 of 2 places, by 1.11 times (linear")


def test_noise_states_that_are_told_a_sweep_are_no_rival_and_those_told_a_line_are():
    ahead = SWEPT | {"Φ": 0.15}
    assert conclusion(rows(ahead, SWEEP)).startswith(
        "Φ wins in 1 of 1 places, by 1.47 times (linear system, sweep, 10 Hz, RMS 1)"
    )
    assert conclusion(rows(ahead, TONE)).startswith("Neither Φ nor the spectral loss wins in any of 1 places")


def test_places_that_are_not_measured_completely_do_not_count():
    fewer = {name: error for name, error in SWEPT.items() if name != "states trained"}
    assert conclusion(rows(fewer | {"Φ": 0.15}, SWEEP)) == "Nothing is measured yet."


def test_phi_may_be_ahead_of_all_that_needs_no_truth_without_winning():
    found = conclusion(rows(SWEPT, SWEEP))
    assert found.startswith("Neither Φ nor the spectral loss wins in any of 1 places")
    assert "Φ is ahead by that much in 1 places (sweep 1), the spectral loss in 1 places (sweep 1)" in found
    assert (
        "a notch that follows it has 1.20 times the oracle's error (median), the best estimator that is not told 2.20"
        in found
    )


def test_recorded_channels_are_over_the_best_r_and_count_too():
    found = conclusion(channel_rows(CHANNEL))
    assert found.startswith("Φ wins in 1 of 1 places, by 1.11 times (dido, gyro x)")
    ratios = summary.recordings(channel_rows({"best R": 2.0, "Φ": 0.9}))["dido"]["gyro x"]
    assert ratios["Φ"].ratio == pytest.approx(0.45)


def test_ratios_of_the_pendulum_are_those_of_equal_seeds():
    mine = [
        *rows({"states told": 0.1, "Φ": 0.2}, part=nonlinear.PART),
        *rows({"states told": 0.2, "Φ": 0.2}, part=nonlinear.PART, seed=1),
        *rows({"states told": 0.5, "Φ": 0.4}, part=nonlinear.PART, q=10.0),
    ]
    found = {cell.q: ratios["Φ"] for cell, ratios in summary.pendulum(mine).items()}
    assert (found[1.0].ratio, found[1.0].low, found[1.0].high) == pytest.approx((1.5, 1.0, 2.0))
    assert found[10.0].ratio == pytest.approx(4.0)  # over the filter that is told with the right Q


def test_the_cheapest_within_five_per_cent_is_recommended():
    lines = page.page([*rows(USUAL), *rows(SWEPT, SWEEP)]).splitlines()
    tone, sweep, told = (next(line for line in lines if line.startswith(f"| {name}")) for name in (
        "a tone", "a line that sweeps, frequency not known", "a line that sweeps, frequency told"))  # fmt: skip
    assert "**noise states, fitted**" in tone  # the notch is a tenth worse
    assert "3.00 (3.00) | 1.00 (1.00) | 1.30 (1.30)" in tone
    assert "**Φ, two biquads**" in sweep
    assert "**noise states, told**" in told


def test_what_is_not_measured_is_said():
    text = page.page(rows(USUAL))
    jobs = {tuple(job.key.values()) for job in cells.jobs()}  # a cell of the map can be one of wrong Q and R too
    assert f"Not measured yet: {len(jobs) - len(USUAL)} rows of the linear map" in text
    assert "## Recordings" not in text
    assert "- Not measured: raw accelerometer of the racer" in page.page(channel_rows({"best R": 2.0, "Φ": 0.9}))
    assert page.conclusion([]) == "Nothing is measured yet."


def test_every_picture_of_the_page_is_drawn(tmp_path):
    wrong = [
        row | {"estimator": f"Q, R assumed; {row['estimator']}"} for row in rows({"as assumed": 0.9, "Φ": 0.2}, r=10.0)
    ]
    everything = [
        *rows(USUAL), *rows(SWEPT, SWEEP), *wrong, *rows(USUAL, part=nonlinear.PART),
        *channel_rows({"raw": 3.0, "best R": 2.0, "Φ": 0.9}),
    ]  # fmt: skip
    drawn = {path.name for path in drawings.draw(tmp_path, everything)}
    text = page.page(everything)
    shown = {part.split(")")[0] for part in text.split("../images/")[1:]}
    assert shown == drawn
    assert all((tmp_path / name).stat().st_size > 5000 for name in drawn)
