"""The page of hardening results sums what the rows hold."""

from __future__ import annotations

from pathlib import Path

from .rows import Row, append, page, read


def test_the_page_sums_blocks_of_one_target(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    for seed, failures in ((0, 0), (1, 2)):
        append(
            file, Row("fuzz", "csv", "run it", seed, 1000, failures, 30.0, 0.5, 3.0, {"read": 600, "named error": 398})
        )
    append(file, Row("faults", "kill", "kill it", 3, 7, 0, 1.0))
    text = page(read([file]))
    assert "2,007 cases in 3 runs by hand, 2 failures." in text
    assert "| csv | 2,000 | 2 | named error 796, read 1,200 | 0, 1 | 0.50 | 3.0 | 1.0 |" in text
    assert "| kill | 7 | 0 |" in text
    assert "Drawn estimation problems" not in text
