"""The benchmark of engines: programs by hand compute what the loop computes, and the page says what was measured."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import engine
import engine_cases
import engine_page
import engine_rivals

needs_c = pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc")
needs_eigen = pytest.mark.skipif(
    not (shutil.which("g++") and Path("/usr/include/eigen3").is_dir()), reason="no g++ or no Eigen"
)


@needs_c
@pytest.mark.parametrize("make", [engine_cases.turn, engine_cases.tracker, lambda steps: engine_cases.chain(6, steps)])
def test_the_kalman_filter_in_c_is_that_of_the_loop(make):
    case = make(60)
    assert engine.difference(engine_rivals.c_by_hand(case)(), engine.ours(case, "loop")()) < 1e-9


@needs_eigen
@pytest.mark.slow  # Eigen takes its compiler half a minute
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("attitude", engine_cases.attitude),
        ("strapdown", engine_cases.strapdown),
        ("strapdown", lambda steps: engine_cases.strapdown(steps, own_rates=True)),
    ],
)
def test_the_extended_filters_in_eigen_are_those_of_the_loop(name, make):
    case = make(50)
    assert engine.difference(engine_rivals.eigen_by_hand(name, case)(), engine.ours(case, "loop")()) < 1e-8


def test_a_difference_is_that_of_any_output():
    result = engine.ours(engine_cases.turn(5), "loop")()
    assert engine.difference(result, result) == 0
    for name, value in result._asdict().items():
        changed = value.clone()
        changed.flatten()[-1] += 1e-3 * float(value.abs().max())
        assert engine.difference(result._replace(**{name: changed}), result) > 1e-4, name
    assert engine.difference(result._replace(mean=result.mean * float("nan")), result) == float("inf")


def test_a_candidate_that_disagrees_is_not_timed():
    right = engine.ours(engine_cases.turn(5), "loop")
    item = engine.Measurement("filter", "case", 5, lambda: {"auto": right, "wrong": wrong, "broken": broken})

    def wrong():
        result = right()
        return result._replace(mean=result.mean + 1.0)

    def broken():
        raise RuntimeError("out of order")

    row = engine.measured(item, rounds=2)
    assert list(row["taken"]) == ["auto"]
    assert row["failed"].keys() == {"wrong", "broken"}
    assert row["failed"]["broken"] == "RuntimeError: out of order"


def test_the_page_says_which_limits_hold(tmp_path):
    pytest.importorskip("matplotlib", reason="plots come with the extra 'plot'")
    taken = {"auto": [1.0, 2.0, 4.0], "dynamax": [2.0, 4.0, 8.0], "statsmodels": [0.25, 0.5, 1.0]}
    base = {"part": "filter", "case": engine_page.REGULAR, "steps": 20_000, "failed": {"cuthbert": "differs by 1"}}
    old = base | {"taken": {"auto": [100.0], "dynamax": [1.0]}}
    sizes = [
        {"part": "sizes", "case": f"n = {n}", "steps": 100, "taken": {"native": [1.0 * n], "dynamax": [2.0]}}
        for n in (2, 4)
    ]
    lengths = [
        {"part": "lengths", "case": "native", "steps": steps, "seconds": 1.0, "bytes": 10.0} for steps in (100, 1000)
    ]
    rows = [old, base | {"taken": taken, "difference": {"dynamax": 2e-8}}, *sizes, *lengths]
    (tmp_path / "results").mkdir()
    engine_page.write_page(rows, tmp_path / "results" / "engine.md")
    lines = (tmp_path / "results" / "engine.md").read_text().splitlines()
    dynamax, statsmodels = (
        next(line for line in lines if line.startswith(f"| KF: {engine_page.REGULAR} ") and f"| {name} |" in line)
        for name in ("dynamax", "statsmodels")
    )
    assert "| 0.5 | 0.5 to 0.5 | 3 | 1 | yes | 2e-08 |" in dynamax  # the last row counts
    assert "| 4 | 4 to 4 | 3 | 2 | **no** |" in statsmodels
    assert any("not measured" in line and line.startswith("| smoother") for line in lines)
    assert any("cuthbert: differs by 1" in line for line in lines)
    for name in ("engine-sizes", "engine-lengths"):
        assert (tmp_path / "images" / f"{name}.png").stat().st_size > 1000
