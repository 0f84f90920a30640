"""Peak memory of a process that reads or diagnoses a large log."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("mcap")
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

DIAGNOSE = """
import resource, sys
from fwnkf.cli.main import main
assert main(["diagnose", sys.argv[1], "-o", sys.argv[1] + ".html"]) == 0
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@contextmanager
def large(folder: Path, gigabytes: float) -> Iterator[tuple[Path, int]]:
    """An MCAP file of about this size, and the number of its samples; it is removed afterwards."""
    path = folder / "large.mcap"
    try:
        yield path, pytest.importorskip("reading").write_large(path, gigabytes)
    finally:
        path.unlink(missing_ok=True)


def printed(program: str, path: Path) -> list[int]:
    """Numbers in the last line that a program in a process of its own prints."""
    command = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [int(word) for word in done.stdout.splitlines()[-1].split()]


def peak_above_imports(path: Path, samples: int) -> tuple[float, float]:
    """Megabytes of the process that reads a file at its peak, and of these beyond its imports."""
    count, before, peak = printed(pytest.importorskip("reading").MEMORY, path)
    assert count == samples
    return peak / 1024, (peak - before) / 1024


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """The blocks of a longer file are no larger, so that both peaks are the same but for a few megabytes."""
    with large(tmp_path, 0.05) as (path, samples):
        small = peak_above_imports(path, samples)
    with large(tmp_path, 0.12) as (path, samples):
        assert path.stat().st_size > 110e6
        assert peak_above_imports(path, samples)[1] < small[1] + 40


@pytest.mark.slow
def test_two_gigabytes_in_less_than_500_megabytes(tmp_path: Path) -> None:
    """Read as a whole in blocks; and diagnosed, with the report."""
    with large(tmp_path, 2.0) as (path, samples):
        assert path.stat().st_size > 2000e6
        assert peak_above_imports(path, samples)[0] < 500
        assert printed(DIAGNOSE, path)[0] / 1024 < 500
