"""The time of ``import fwnkf`` with its first use, and of commands that need no filter, compared with ``import torch``.

New interpreters, interleaved, the least processor time of each: other work on the machine only adds to it.
Names are imported on first use, so the statement uses two. Help, version and a missing file need neither torch nor
numpy.

    python benchmarks/import_time.py [--repeats 9]

It stops after three repeats if the limits of 1.15 and 0.1 hold. The exit code is 1 if they do not hold after all
repeats, or if the import prints anything.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import subprocess
import sys

LIMITS = {
    "import fwnkf; fwnkf.build; fwnkf.filters.fwnkf": 1.15,
    **{
        f"import io, sys; sys.stdout = sys.stderr = io.StringIO(); from fwnkf.cli import main; main({words})": 0.1
        for words in (["--version"], ["--help"], ["diagnose", "missing.csv"])
    },
}
ENOUGH = 3
"""Repeats after which limits that hold are believed."""
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
    options = parser.parse_args()
    statements = ("import torch", *LIMITS)
    for statement in statements:  # compile bytecode and fill the file cache
        seconds(statement)
    least = dict.fromkeys(statements, math.inf)
    for repeat in range(1, options.repeats + 1):
        least = {statement: min(least[statement], seconds(statement)) for statement in statements}
        ratios = {statement: least[statement] / least["import torch"] for statement in LIMITS}
        slow = any(ratios[statement] > limit for statement, limit in LIMITS.items())
        if repeat >= ENOUGH and not slow:
            break
    print(f"import torch {least['import torch']:.3f} s, the least of {repeat}")
    for statement, limit in LIMITS.items():
        print(f"{statement} {least[statement]:.3f} s, ratio {ratios[statement]:.3f} (limit {limit})")
    if slow:
        sys.exit(1)


if __name__ == "__main__":
    main()
