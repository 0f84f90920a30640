"""Injected faults: batch runs, streams and the keyed consumer that are disturbed must end in the bytes of a calm run.

    python -m tests.hardening.faults TARGET COUNT --seed S --rows FILE

A case draws a fault and its moment from its number and the seed. It fails if the bytes in the end are not those of an
undisturbed run, unless an error or a fault in the results said so; ``TARGET`` is one of those listed by ``--help``.
"""

from __future__ import annotations

import argparse
import random
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from . import faults_batch, faults_keyed, faults_stream
from .rows import Row, append

BLOCK = 50
"""Cases of a row."""

Case = Callable[[random.Random, Path], str]
TARGETS: dict[str, Case] = {**faults_batch.CASES, **faults_stream.CASES, **faults_keyed.CASES}
"""A case returns how it ended, and raises an error if it failed."""


def run(target: str, count: int, seed: int, rows: Path | None = None, command: str = "") -> Counter[str]:
    """Run cases of a target; returns how many ended how, failures under "failed"."""
    total: Counter[str] = Counter()
    for first in range(0, count, BLOCK):
        numbers = range(first, min(first + BLOCK, count))
        outcomes: Counter[str] = Counter()
        longest, before = 0.0, _processor()
        for number in numbers:
            began = time.perf_counter()
            outcomes[_one(target, seed, number)] += 1
            longest = max(longest, time.perf_counter() - began)
        total += outcomes
        if rows is not None:
            seconds = _processor() - before
            failed = outcomes["failed"]
            row = Row("faults", target, command, seed, len(numbers), failed, seconds, longest, outcomes=dict(outcomes))
            append(rows, row)
    return total


def _one(target: str, seed: int, number: int) -> str:
    folder = Path(tempfile.mkdtemp(prefix="fwnkf-faults-"))
    try:
        return TARGETS[target](random.Random(f"{target} {seed} {number}"), folder)
    except Exception as error:  # an error without a name is a failure as well
        print(f"{target}: case {number} of seed {seed} failed: {type(error).__name__}: {error}", file=sys.stderr)
        return "failed"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _processor() -> float:
    """Seconds of the processor, of this process and of children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=("all", *TARGETS))
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=Path)
    options = parser.parse_args()
    failed = 0
    for target in TARGETS if options.target == "all" else (options.target,):
        command = f"python -m tests.hardening.faults {target} {options.count} --seed {options.seed}"
        outcomes = run(target, options.count, options.seed, options.rows, command)
        failed += outcomes["failed"]
        print(target, dict(outcomes), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
