"""How a comparison of an exported filter is judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from fwnkf.cli.export import _lines
from fwnkf.export import reference
from fwnkf.export.parity import ROUNDINGS, Eager, compare, compare_double, compare_eager, write_report
from fwnkf.export.trace import trace

from ..conformance.cases import CASES

pytestmark = pytest.mark.export


class Wrong(Eager):
    """The filter with a mean that is off by a thousandth."""

    def values(self) -> dict[str, Any]:
        found = super().values()
        return found | {"mean": 1.001 * found["mean"]}


def test_single_precision_is_no_excuse_for_a_wrong_export():
    program = trace(CASES["kf"].build(torch.float32))
    assert compare_eager(Eager(program), 20)["largest"] == 0.0
    parity = compare_eager(Wrong(program), 20)
    assert not parity["ok"]
    assert parity["limit"] == 1e-5
    assert 0 < parity["rounding"] < 1e-6
    assert parity["largest"] == pytest.approx(1e-3, rel=0.01)


def test_the_limit_is_what_single_precision_loses_a_few_times():
    program = trace(CASES["fwnkf-levels"].build(torch.float32))  # ill-conditioned with its random parameters
    rounding = compare(Eager(program), reference.run(program, 60))["largest"]
    assert rounding > 1e-5
    parity = compare_eager(Wrong(program), 60)
    assert (parity["rounding"], parity["limit"]) == (rounding, ROUNDINGS * rounding)
    assert parity["ok"] == (parity["largest"] <= ROUNDINGS * rounding)


def test_an_export_that_misses_says_how_far_single_precision_is():
    program = trace(CASES["fwnkf-levels"].build(torch.float32))
    parity = compare_double(Eager(program), 60)
    assert not parity["ok"]
    assert (parity["rounding"], parity["limit"]) == (parity["largest"], 1e-4)  # it is the filter itself
    assert "rounding" not in compare_double(Eager(trace(CASES["kf"].build(torch.float32))), 20)


def test_the_report_is_strict_json_beside_the_files(tmp_path: Path):
    parity = {"largest": float("inf"), "ok": False}
    facts = write_report(tmp_path, {"filter": "kf", "files": [str(tmp_path / "a.c")], "parity": parity})
    assert facts["files"] == [str(tmp_path / "a.c"), str(tmp_path / "report.json")]

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    found = json.loads((tmp_path / "report.json").read_text(), parse_constant=refuse)
    assert found["parity"]["ok"] is False
    assert str(tmp_path) not in str(found)


def test_the_command_says_how_far_single_precision_is():
    parity = {"ok": True, "steps": 10, "largest": 2e-5, "relative_error": {"mean": 2e-5}, "limit": 6e-5}
    parity |= {"reference": "float32", "statuses_that_differ": 0}
    facts: dict[str, Any] = {"files": [], "bytes": {}, "parity": parity}
    assert len(_lines(facts, Path())) == 3
    lines = _lines(facts | {"parity": parity | {"rounding": 3e-5}}, Path())
    assert "3.0e-05 from float64" in lines[-1]
    assert "--precision double" in lines[-1]
    assert "--solve square_root" in lines[-1]
