"""The arithmetic of the diagnosis benchmark on cases made by hand, and the labels of real logs."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import diagnosis
import diagnosis_page
import diagnosis_score as scores
import log_labels

from fwnkf.data.labelled import labelled_flight
from fwnkf.diagnosis import diagnose


def line(frequency: float, amplitude: float = 1.0, spread: float = 0.1, order: float = 1.0) -> dict[str, Any]:
    return {
        "order": order, "frequency": frequency, "spread": spread, "amplitude": {"gyro_x": amplitude}, "folded": False,
    }  # fmt: skip


def label(cause: str, *lines: dict[str, Any], **others: Any) -> dict[str, Any]:
    plain = {"kind": cause, "also": [], "channels": [], "rotor": None, "required": True, "figures": {}}
    return {"cause": cause, "lines": list(lines), **plain, **others}


def finding(cause: str, score: float = 0.95, severity: str = "warning", **figures: float) -> dict[str, Any]:
    confidence = "high" if score >= 0.9 else "medium" if score >= 0.7 else "low"
    return {
        "cause": cause, "score": score, "severity": severity, "confidence": confidence, "what": cause,
        "channels": ["gyro_x"], "figures": figures,
    }  # fmt: skip


def row(labels: list[dict[str, Any]], findings: list[dict[str, Any]], seed: int = 0) -> dict[str, Any]:
    faults = [one["kind"] for one in labels if one["required"]]
    return {
        "seed": seed,
        "faults": faults,
        "labels": labels,
        "findings": findings,
        "log": {"speeds": 20.0},
        "error": "",
    }


def verdicts(labels: list[dict[str, Any]], findings: list[dict[str, Any]]) -> list[str]:
    return [one.verdict for one in scores.score(row(labels, findings)).judged]


# ---- one log --------------------------------------------------------------------------------------------------------


def test_a_finding_has_to_name_cause_and_frequency():
    truth = [label("vibration", line(50.0))]
    assert verdicts(truth, [finding("vibration", frequency_hz=51.0)]) == ["right"]
    assert verdicts(truth, [finding("vibration", frequency_hz=60.0)]) == ["wrong"]
    assert verdicts(truth, [finding("resonance", frequency_hz=50.0)]) == ["wrong"]
    assert verdicts(truth, [finding("vibration", severity="info", frequency_hz=50.0)]) == []


def test_any_line_of_a_label_that_can_be_heard_counts():
    truth = [label("rotor_vibration", line(50.0), line(100.0, 0.2), line(150.0, 0.01))]
    assert verdicts(truth, [finding("rotor_vibration", frequency_hz=100.0)]) == ["right"]
    assert verdicts(truth, [finding("rotor_vibration", frequency_hz=150.0)]) == ["wrong"]


def test_a_line_that_sweeps_is_found_within_its_spread():
    truth = [label("rotor_vibration", line(50.0, spread=10.0))]
    assert verdicts(truth, [finding("rotor_vibration", frequency_hz=64.0)]) == ["right"]
    assert verdicts(truth, [finding("rotor_vibration", frequency_hz=66.0)]) == ["wrong"]


def test_causes_that_cannot_be_separated_are_right():
    assert verdicts([label("bias_step", also=["drift"])], [finding("drift")]) == ["right"]


def test_a_second_finding_for_a_label_is_a_duplicate_and_another_label_is_not():
    truth = [label("vibration", line(50.0)), label("vibration", line(90.0))]
    said = [finding("vibration", frequency_hz=hz) for hz in (50.0, 49.5, 90.0)]
    assert verdicts(truth, said) == ["right", "duplicate", "right"]


def test_what_need_not_be_found_is_neutral():
    assert verdicts([label("clipping", required=False)], [finding("clipping")]) == ["neutral"]


def test_causes_about_channels_need_a_common_channel():
    assert verdicts([label("axis_sign", channels=["gyro_x"])], [finding("axis_sign")]) == ["right"]
    assert verdicts([label("axis_sign", channels=["gyro_z"])], [finding("axis_sign")]) == ["wrong"]


def test_only_the_first_three_warnings_are_stated():
    truth = [label("gaps")]
    said = [finding("drift"), finding("drift"), finding("drift"), finding("gaps")]
    result = scores.score(row(truth, said))
    assert [one.verdict for one in result.judged] == ["wrong"] * 3
    assert [one["cause"] for one in result.missed] == ["gaps"]


# ---- many logs ------------------------------------------------------------------------------------------------------


def test_precision_and_recall_by_hand():
    rows = [
        row([label("gaps")], [finding("gaps")]),
        row([label("gaps")], [finding("drift")]),
        row([label("gaps")], []),
        row([], [finding("gaps")]),
        row([label("gaps", required=False)], [finding("gaps")]),
    ]
    table = {one.cause: one for one in scores.by_cause(map(scores.score, rows))}
    assert (table["gaps"].precision.hits, table["gaps"].precision.count) == (1, 2)
    assert (table["gaps"].recall.hits, table["gaps"].recall.count) == (1, 3)
    assert table["gaps"].instead == {"drift": 1, "nothing": 1}
    assert (table["drift"].precision.hits, table["drift"].precision.count) == (0, 1)


def test_false_warnings_count_all_and_healthy_logs_alone():
    rows = [row([], [finding("gaps")] * 4), row([], []), row([label("gaps")], [finding("drift")])]
    share, rate = scores.false_warnings(map(scores.score, rows))
    assert (share.hits, share.count, rate) == (1, 2, 2.0)


def test_errors_of_frequency_amplitude_and_rotor():
    truth = [label("rotor_vibration", line(100.0, amplitude=2.0), rotor=3)]
    rows = [
        row(truth, [finding("rotor_vibration", frequency_hz=100.5, amplitude=1.0, rotor=3.0)]),
        row(truth, [finding("rotor_vibration", frequency_hz=98.0, rotor=1.0)]),
        row([label("rotor_vibration", line(100.0, spread=20.0))], [finding("rotor_vibration", frequency_hz=90.0)]),
    ]
    result = scores.errors(map(scores.score, rows))
    assert result.frequency == pytest.approx([0.005, -0.02])
    assert result.close == [True, False]
    assert result.amplitude == pytest.approx([math.log(0.5)])
    assert result.rotor == [True, False]


def test_the_centre_of_a_resonance_may_be_off_by_a_quarter_of_its_width():
    truth = [label("resonance", line(100.0), figures={"width_hz": 10.0})]
    said = [finding("resonance", frequency_hz=hz) for hz in (102.4, 102.6)]
    close = [scores.errors([scores.score(row(truth, [one]))]).close for one in said]
    assert close == [[True], [False]]


def test_calibration_compares_scores_with_shares():
    rows = [
        row([label("gaps")], [finding("gaps", 0.95)]),
        row([], [finding("gaps", 0.91)]),
        row([], [finding("gaps", 0.5)]),
    ]
    table = {one.name: one for one in scores.calibration(map(scores.score, rows))}
    assert table["high"].stated == pytest.approx(0.93)
    assert table["high"].right.value == 0.5
    assert table["low"].right.value == 0.0
    assert table["medium"].right.count == 0
    names = [one.name for one in scores.calibration(map(scores.score, rows), deciles=True)]
    assert names == ["90–100 %", "50–60 %"]


def test_targets_are_held_or_not():
    good = [scores.score(row([label("gaps")], [finding("gaps", 0.97)])) for _ in range(30)]
    assert all(holds for what, _, holds in diagnosis_page.targets(good) if "frequency" not in what)
    bad = [*good, *(scores.score(row([], [finding("gaps", 0.97)])) for _ in range(10))]
    missed = {
        what.split()[0] for what, _, holds in diagnosis_page.targets(bad) if not holds and "frequency" not in what
    }
    assert missed == {"precision", "false", "high"}


def test_a_page_without_held_out_logs_says_so():
    rows = [row([label("gaps")], [finding("gaps")], seed=seed) for seed in (3, scores.HELD_OUT)]
    assert diagnosis_page.MISSING in diagnosis_page.page(rows[:1])
    assert diagnosis_page.MISSING not in diagnosis_page.page(rows)


def test_wilson_intervals():
    """Against scipy."""
    for hits, count in ((0, 10), (9, 10), (95, 100)):
        share = scores.Share.of(hits, count)
        expected = stats.binomtest(hits, count).proportion_ci(method="wilson")
        assert (share.low, share.high) == pytest.approx((expected.low, expected.high), abs=1e-7)


def test_rows_are_split_by_seed():
    rows = [row([], [], seed=scores.HELD_OUT - 1), row([], [], seed=scores.HELD_OUT)]
    halves = scores.halves(rows)
    assert [one["seed"] for one in halves["choosing"]] == [scores.HELD_OUT - 1]
    assert [one["seed"] for one in halves["held out"]] == [scores.HELD_OUT]


def test_a_diagnosis_that_raises_is_a_row(monkeypatch):
    def broken(log: object) -> None:
        raise ArithmeticError("no rows")

    monkeypatch.setattr(diagnosis, "examined", broken)
    result = diagnosis.measure(4)
    assert result["error"] == "ArithmeticError: no rows"
    assert "no rows" in diagnosis.shown(result)


def test_findings_are_those_of_the_diagnosis():
    log = labelled_flight(7, ("unbalance",), {"rate": 200.0, "seconds": 12.0}).log
    assert diagnosis.examined(log)[1] == diagnose(log).findings != ()


def test_a_log_goes_through_the_benchmark_and_onto_the_page(tmp_path, monkeypatch):
    file, page = tmp_path / "rows.jsonl", tmp_path / "page.md"
    argv = ["diagnosis.py", "--logs", "2", "--seed", "4", "--rows", str(file), "--markdown", str(page)]
    monkeypatch.setattr(sys, "argv", argv)
    assert diagnosis.main() == 0
    first = file.read_text()
    assert [json.loads(text)["seed"] for text in first.splitlines()] == [4, 5]
    assert "--logs 2 --seed 4" in page.read_text()
    file.write_text(first + '{"seed": 6, "faul')  # a run that was stopped
    assert [one["seed"] for one in diagnosis.stored(file)] == [4, 5]
    assert diagnosis_page.summary(diagnosis.stored(file))


# ---- real logs ------------------------------------------------------------------------------------------------------


def real(
    first: tuple[str, ...] = (), also: tuple[str, ...] = (), wrong: tuple[str, ...] = (), must: tuple[str, ...] = ()
):
    return log_labels.LogLabel.of(
        {"file": "a.ulg", "first": first, "also": also, "wrong": wrong, "must": must, "why": "seen"}
    )


def test_the_first_finding_has_to_be_one_of_the_label():
    claim = real(("impact",), ("gaps",))
    assert log_labels.compare(claim, [finding("impact"), finding("gaps")]).agrees
    assert log_labels.compare(claim, [finding("gaps")]).first == "gaps"
    assert log_labels.compare(claim, []).first == "nothing"
    assert log_labels.compare(real(), []).agrees
    assert log_labels.compare(claim, [finding("impact"), finding("drift")]).wrong == ("drift",)


def test_bands_limit_claims_and_hold_against_what_is_wrong_elsewhere():
    claim = real(("rotor_vibration 235-300",), (), ("rotor_vibration 150-230", "vibration"))
    assert log_labels.compare(claim, [finding("rotor_vibration", frequency_hz=250.0)]).agrees
    assert log_labels.compare(claim, [finding("rotor_vibration", frequency_hz=203.4)]).first
    mixed = real(("gaps",), ("vibration 20-30",), ("vibration",))
    assert log_labels.compare(mixed, [finding("gaps"), finding("vibration", frequency_hz=25.0)]).agrees
    assert log_labels.compare(mixed, [finding("gaps"), finding("vibration", frequency_hz=80.0)]).wrong


def test_what_must_be_found_may_be_a_note():
    claim = real((), (), (), ("gaps",))
    assert log_labels.compare(claim, [finding("gaps", severity="info")]).agrees
    assert log_labels.compare(claim, []).missing == ("gaps",)


def test_labels_are_complete_and_well_formed():
    labels = log_labels.read_labels()
    assert len(labels) == 39
    for one in labels.values():
        assert len(one.why) > 40
        assert {claim.cause for claim in one.must} <= {claim.cause for claim in (*one.first, *one.also)}
        for claim in (*one.first, *one.also, *one.wrong, *one.must):
            assert claim.low < claim.high
        unlimited = {claim.cause for claim in (*one.first, *one.also) if claim.high == math.inf}
        assert not unlimited & {claim.cause for claim in one.wrong if claim.high == math.inf}


@pytest.mark.skipif("FWNKF_DATA" not in os.environ, reason="the logs are not in $FWNKF_DATA/logs")
def test_every_log_has_a_label():
    folder = Path(os.environ["FWNKF_DATA"]) / "logs"
    if not folder.is_dir():
        pytest.skip("the logs are not in $FWNKF_DATA/logs")
    files = {path.relative_to(folder).as_posix() for path in folder.glob("*/*") if path.is_file()}
    assert set(log_labels.read_labels()) == files


def test_a_label_with_a_mistake_is_refused():
    with pytest.raises(ValueError, match="write a claim as a cause"):
        real(("resonance at 100 Hz",))
    with pytest.raises(ValueError, match="fields are"):
        log_labels.LogLabel.of({"file": "a.ulg"})
