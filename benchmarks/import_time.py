"""How long ``import fwnkf`` and its first use take beside ``import torch``: fresh interpreters, interleaved, medians.

Names are imported on first use, so the statement measured touches one: all filters are registered after it.

    python benchmarks/import_time.py [--repeats 9]

Exits with 1 above the limit of 1.15, or if the import prints anything.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

LIMIT = 1.15


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
    statements = ("import torch", "import fwnkf; fwnkf.build")
    for statement in statements:  # compile bytecode and fill the file cache
        seconds(statement)
    taken: dict[str, list[float]] = {statement: [] for statement in statements}
    for _ in range(repeats):
        for statement in statements:
            taken[statement].append(seconds(statement))
    torch_time, fwnkf_time = (statistics.median(taken[statement]) for statement in statements)
    ratio = fwnkf_time / torch_time
    print(f"import torch {torch_time:.3f} s, import fwnkf {fwnkf_time:.3f} s, ratio {ratio:.3f} (limit {LIMIT})")
    if ratio > LIMIT:
        sys.exit(1)


if __name__ == "__main__":
    main()
