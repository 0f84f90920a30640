"""``python -m tasks when`` on a tiny grid: it measures, goes on where it stopped, and writes the page."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.__main__ import main
from tasks.when import cells, nonlinear, recordings, store
from tasks.when.cells import Cell, simulated
from tasks.when.problem import Disturbance
from tasks.when.recorded import Channel, Pair

BAND = Disturbance("band", 5.0, 0.3, 1.0)


def channel() -> Channel:
    parts = [[Pair(y, s) for s, y in zip(*simulated(BAND, 2, 9000, seed), strict=True)] for seed in (0, 1)]
    return Channel(100.0, *parts, lowest_hz=3.0)


@pytest.fixture
def call(tmp_path, monkeypatch):
    monkeypatch.setattr(cells, "cells", lambda: iter([Cell(BAND)]))
    monkeypatch.setattr(cells, "SEEDS", (0,))
    monkeypatch.setattr(cells, "MISMATCHED", ())
    monkeypatch.setattr("tasks.when.summary.cells", lambda: iter([Cell(BAND)]))
    monkeypatch.setattr(nonlinear, "cells", lambda: iter([nonlinear.Cell(BAND, 1.0, 0)]))
    monkeypatch.setattr(nonlinear, "ESTIMATORS", {n: nonlinear.ESTIMATORS[n] for n in ("states told", "best R")})
    monkeypatch.setattr(nonlinear.Workbench.__init__, "__defaults__", (2, 2))
    monkeypatch.setattr(recordings, "channels", lambda: iter([("dido", "gyro x", channel)]))

    def run(*words: str) -> list[store.Row]:
        options = {"--store": tmp_path / "rows.jsonl", "--page": tmp_path / "when.md", "--images": tmp_path}
        assert main(["when", *words, *(str(word) for pair in options.items() for word in pair)]) == 0
        return store.read(tmp_path / "rows.jsonl")

    return run


def test_it_measures_every_part_draws_and_writes(call, tmp_path, capsys):
    rows = call()
    assert {row["part"] for row in rows} == {"linear", "pendulum", "recordings"}
    text = (tmp_path / "when.md").read_text(encoding="utf-8")
    assert text.startswith("# When frequency weighting helps\n\n**")
    assert "Not measured yet" not in text
    assert (tmp_path / "when-decision.png").exists()
    told, phi = (next(row["rmse"] for row in rows if row["part"] == "linear" and row["estimator"] == name)
                 for name in ("states told", "Φ"))  # fmt: skip
    assert phi == pytest.approx(told, rel=2e-3)  # one biquad is enough for one band
    assert "min left" in capsys.readouterr().err


def test_it_goes_on_where_it_was_stopped(call, tmp_path, monkeypatch):
    measured = []
    appended = store.append

    def stopped(path, row):
        if len(measured) == 3:
            raise KeyboardInterrupt
        measured.append(row)
        appended(path, row)

    monkeypatch.setattr(store, "append", stopped)
    with pytest.raises(AssertionError):  # the code of a command that was stopped
        call("linear")
    monkeypatch.setattr(store, "append", appended)
    before = store.read(tmp_path / "rows.jsonl")
    assert len(before) == 3
    rows = call("linear")
    assert [row["rmse"] for row in rows[:3]] == [row["rmse"] for row in before]
    names = [row["estimator"] for row in rows]
    assert len(names) == len(set(names)) > 3
    written = (tmp_path / "rows.jsonl").read_bytes()
    call("linear")
    assert (tmp_path / "rows.jsonl").read_bytes() == written


def test_a_part_that_there_is_not_is_a_usage_error(tmp_path, capsys):
    assert main(["when", "nothing", "--store", str(tmp_path / "rows.jsonl")]) == 2
    assert "there are: linear, pendulum, recordings" in capsys.readouterr().err


def test_numbers_that_json_lacks_survive_the_store(tmp_path):
    row = {"part": "linear", "rmse": float("inf"), "nees": float("nan")}
    store.append(tmp_path / "rows.jsonl", row)
    (found,) = store.read(tmp_path / "rows.jsonl")
    assert found["rmse"] == float("inf")
    assert np.isnan(found["nees"])
