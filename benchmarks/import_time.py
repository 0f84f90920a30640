"""The time of ``import fwnkf`` with its first use, and of ``fwnkf --help``, compared with ``import torch``.

New interpreters, interleaved, the least processor time of each: other work on the machine only adds to it.
Names are imported on first use, so the statement uses two. The help must not import torch.

    python benchmarks/import_time.py [--quick] [--repeats 9]

The exit code is 1 above the limits of 1.15 and 0.3, or if the import prints anything.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys

LIMITS = {
    "import fwnkf; fwnkf.build; fwnkf.filters.fwnkf": 1.15,
    "import io, sys; sys.stdout = io.StringIO(); from fwnkf.cli import main; main(['--help'])": 0.3,
}
# as a user's interpreter: with the bytecode that the first import of a module leaves behind
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def seconds(statement: str) -> float:
    begin = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", statement], capture_output=True, check=True, env=ENVIRONMENT)
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    taken = end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime
    if done.stdout or done.stderr:
        sys.exit(f"'{statement}' printed {done.stdout!r} {done.stderr!r}")
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="three repeats")
    options = parser.parse_args()
    repeats = 3 if options.quick else options.repeats
    statements = ("import torch", *LIMITS)
    for statement in statements:  # compile bytecode and fill the file cache
        seconds(statement)
    taken: dict[str, list[float]] = {statement: [] for statement in statements}
    for _ in range(repeats):
        for statement in statements:
            taken[statement].append(seconds(statement))
    torch_time, *times = (min(taken[statement]) for statement in statements)
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
