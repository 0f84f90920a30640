"""How long ``import fwnkf``, its first use and ``fwnkf --help`` take beside ``import torch``.

Fresh interpreters, interleaved, medians. Names are imported on first use, so the statement measured touches one: all
filters are registered after it. The help imports neither torch nor anything like it.

    python benchmarks/import_time.py [--repeats 9]

Exits with 1 above the limits of 1.15 and 0.3, or if the import prints anything.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

LIMITS = {
    "import fwnkf; fwnkf.build": 1.15,
    "import io, sys; sys.stdout = io.StringIO(); from fwnkf.cli import main; main(['--help'])": 0.3,
}


def seconds(statement: str) -> float:
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", statement], capture_output=True, check=True)
    taken = time.perf_counter() - begin
    if done.stdout or done.stderr:
        sys.exit(f"'{statement}' printed {done.stdout!r} {done.stderr!r}")
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    repeats = parser.parse_args().repeats
    statements = ("import torch", *LIMITS)
    for statement in statements:  # compile bytecode and fill the file cache
        seconds(statement)
    taken: dict[str, list[float]] = {statement: [] for statement in statements}
    for _ in range(repeats):
        for statement in statements:
            taken[statement].append(seconds(statement))
    torch_time, *times = (statistics.median(taken[statement]) for statement in statements)
    print(f"import torch {torch_time:.3f} s")
    slow = False
    for (statement, limit), time_taken in zip(LIMITS.items(), times, strict=True):
        ratio = time_taken / torch_time
        slow |= ratio > limit
        print(f"{statement} {time_taken:.3f} s, ratio {ratio:.3f} (limit {limit})")
    if slow:
        sys.exit(1)


if __name__ == "__main__":
    main()
