"""A few hundred cases of each target of the fuzzer; thousands by hand with ``-m slow``, and more with its command."""

from __future__ import annotations

import pytest

from .fuzz_config import TARGETS, fuzz, main, place_of
from .rows import read


@pytest.mark.unchecked("a hostile case must be refused by the package itself, not by the shape checks of the tests")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("count", [200, pytest.param(5000, marks=pytest.mark.slow)])
def test_every_case_is_used_or_refused_with_a_named_error(target, count):
    pytest.importorskip("lightning")
    row, reports = fuzz(target, count, seed=1)
    assert reports == []
    assert sum(row.outcomes.values()) == count
    assert row.outcomes["named error"] > 0.3 * count
    assert row.outcomes["used"] > 0  # or nothing beyond the first check would be tried


def test_a_fault_is_found_and_kept(tmp_path, monkeypatch):
    """The fuzzer itself: an exception that is not of the package is a failure with its files."""
    monkeypatch.setattr("tests.hardening.fuzz_config.read_run", lambda folder: 1 / len(list(folder.glob("*_"))))
    monkeypatch.setattr("tests.hardening.fuzz_config.RunFolder.sources", lambda self: [{"run.json_": b'{"format": 1}'}])
    monkeypatch.setattr(
        "tests.hardening.fuzz_config.RunFolder.mutated", lambda self, case, other, rng, folder: {"run.json": b"{}"}
    )
    rows = tmp_path / "rows.jsonl"
    assert main(["run", "3", "--seed", "4", "--rows", str(rows), "--failures", str(tmp_path / "kept")]) == 1
    (row,) = read([rows])
    assert (row.cases, row.failures, row.outcomes, row.seed) == (3, 3, {"failed": 3}, 4)
    assert row.command == "python -m tests.hardening.fuzz_config run 3 --seed 4"
    assert (tmp_path / "kept" / "run-4-0" / "run.json").read_bytes() == b"{}"


def test_the_place_of_an_error_has_no_names_and_numbers():
    first, second = (place_of(ValueError(f"/tmp/{k}/a.json: option x.y = {k} is above 'b{k}'")) for k in (1, 22))
    assert first == second
    assert "is above" in first
