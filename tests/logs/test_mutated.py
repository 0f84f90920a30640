"""Mutated logs give a named error or a read, in bounded time and memory, and nothing of them is executed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .writers import FORMATS

ROOT = Path(__file__).parents[2]
SECONDS = 10.0
"""For one log of at most 150 kB."""
MEGABYTES = 64
"""Growth of the peak memory by one log."""
NEEDS = {"mcap": "mcap", "ros1": "rosbags", "ros2": "rosbags", "parquet": "pyarrow"}
"""Packages that write the logs."""


def check(name: str, count: int, scratch: Path) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    command = [sys.executable, "-m", "tests.logs.mutated", name, str(count), str(scratch)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    last = rows[-1] if rows else {}
    assert done.returncode == 0, f"the process ended behind {last}: {done.stderr[-2000:]}"
    head, rows = rows[0], rows[1:]
    assert len(rows) == count
    assert [row for row in rows if row["outcome"] not in ("read", "named")] == []
    assert [row for row in rows if row["events"]] == []
    assert [row for row in rows if row["seconds"] > SECONDS or row["growth_mb"] > MEGABYTES] == []
    # errors name the file; and mutations were neither all harmless nor all fatal
    assert all(str(scratch) in row["text"] for row in rows if row["outcome"] == "named")
    assert 0 < sum(row["same"] for row in rows) < count, head
    assert any(row["outcome"] == "read" for row in rows)


@pytest.mark.parametrize("name", FORMATS)
def test_a_hundred_mutated_logs(name: str, tmp_path: Path) -> None:
    check(name, 100, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_ten_thousand_mutated_logs(name: str, tmp_path: Path) -> None:
    check(name, 10_000, tmp_path)
