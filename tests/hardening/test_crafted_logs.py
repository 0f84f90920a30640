"""Small files that describe much work are refused, or read, in a few seconds and a few hundred megabytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .crafted_logs import CRAFTED

ROOT = Path(__file__).parents[2]
SECONDS = 10.0
"""Of the processor; a few seconds on a machine that does nothing else."""
MEGABYTES = 500
NEEDS = {".mcap": "zstandard", ".parquet": "pyarrow"}
REFUSED = {
    "mcap_messages": "messages in a file of",
    "mcap_zeros": "bytes of unpacked messages",
    "sqlite_loop": "steps of the database",
    "ulog_formats": "fields of definitions",
    "parquet_rows": "numbers in a table",
    "sqlite_view": "messages is not a table",
    "sqlite_view_of_topics": "topics is not a table",
    "sqlite_generated": "computed",
    "parquet_columns": "numbers in a table",
    "csv_spaces": "column 2",
    "mcap_digits": "length of x",
    "sqlite_digits": "length of x",
}
"""Files that no reader could read within the limits, and words of their errors."""


@pytest.mark.parametrize("name", CRAFTED)
def test_work_is_bounded(name: str, tmp_path: Path) -> None:
    suffix, _ = CRAFTED[name]
    if suffix in NEEDS:
        pytest.importorskip(NEEDS[suffix])
    command = [sys.executable, "-m", "tests.hardening.crafted_logs", name]
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    row = json.loads(done.stdout.splitlines()[-1])
    assert row["bytes"] < 4e6  # small beside the work it describes
    assert row["outcome"] in ("read", "named"), row
    assert row["seconds"] < SECONDS, row
    assert row["growth_mb"] < MEGABYTES, row
    if name in REFUSED:
        assert row["outcome"] == "named", row
        assert REFUSED[name] in row["text"], row
        assert tmp_path.name in row["text"] or row["file"] in row["text"], row
