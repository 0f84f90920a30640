"""Peak memory of a process that reads a large log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mcap")
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))


def peak_above_imports(tmp_path: Path, gigabytes: float) -> tuple[float, float, float]:
    """Megabytes of the file, of the process at its peak, and of these beyond its imports."""
    reading = pytest.importorskip("reading")
    path = tmp_path / "large.mcap"
    try:
        samples = reading.write_large(path, gigabytes)
        size = path.stat().st_size / 1e6
        printed = subprocess.run(
            [sys.executable, "-c", reading.MEMORY, str(path)], capture_output=True, text=True, check=True
        )
    finally:
        path.unlink(missing_ok=True)
    count, before, peak = map(int, printed.stdout.split())
    assert count == samples
    return size, peak / 1024, (peak - before) / 1024


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """The blocks of a longer file are no larger, so that both peaks are the same but for a few megabytes."""
    small = peak_above_imports(tmp_path, 0.05)
    large = peak_above_imports(tmp_path, 0.12)
    assert large[0] > 110
    assert large[2] < small[2] + 40


@pytest.mark.slow
def test_two_gigabytes_in_less_than_500_megabytes(tmp_path: Path) -> None:
    size, peak, _ = peak_above_imports(tmp_path, 2.0)
    assert size > 2000
    assert peak < 500
