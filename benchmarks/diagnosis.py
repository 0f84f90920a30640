"""Simulated logs with labelled faults through the diagnosis: is the right cause named, and is its confidence true?

    python benchmarks/diagnosis.py --logs 2000 --seed 0 --rows rows.jsonl [--processes 2] [--markdown FILE]

Every log has a seed of its own, counted from that of the command. Seeds below 2,000,000 are for choosing thresholds;
those from 2,000,000 on are not looked at before the rules are final. Rows are appended as they come, so that a run that
was stopped goes on where it was. ``diagnosis_score.py`` says what is counted as right.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
from diagnosis_page import page, summary
from diagnosis_score import HELD_OUT, score

from fwnkf.data.labelled import Label, labelled_flight
from fwnkf.diagnosis import Finding
from fwnkf.diagnosis.evidence import Evidence, gather
from fwnkf.diagnosis.rules import judge
from fwnkf.diagnosis.thresholds import THRESHOLDS
from fwnkf.logs.excerpt import excerpt
from fwnkf.logs.log import Log
from fwnkf.remaining import Remaining


def label_values(label: Label) -> dict[str, Any]:
    """A label as plain values."""
    return {
        **{entry.name: getattr(label, entry.name) for entry in dataclasses.fields(label)},
        "lines": [line._asdict() for line in label.lines],
    }


def finding_values(finding: Finding) -> dict[str, Any]:
    """A finding as plain values."""
    return {entry.name: getattr(finding, entry.name) for entry in dataclasses.fields(finding)}


def examined(log: Log) -> tuple[Evidence, tuple[Finding, ...]]:
    """Evidence and findings of :func:`fwnkf.diagnosis.diagnose`, without the curves of its report, which take long."""
    evidence = gather(excerpt(log), THRESHOLDS)
    return evidence, judge(evidence)


def measure(seed: int) -> dict[str, Any]:
    """Simulate and diagnose one log."""
    torch.set_num_threads(1)
    began = time.process_time()
    flown = labelled_flight(seed)
    simulated = time.process_time() - began
    failed, findings = "", tuple[Finding, ...]()
    try:
        _, findings = examined(flown.log)
    except Exception as error:  # a log that cannot be diagnosed is a result as well
        failed = f"{type(error).__name__}: {error}"
    return {
        "seed": seed,
        "faults": flown.faults,
        "log": dataclasses.asdict(flown.craft),
        "labels": [label_values(label) for label in flown.labels],
        "findings": [finding_values(finding) for finding in findings],
        "error": failed,
        "simulation_s": simulated,
        "diagnosis_s": time.process_time() - began - simulated,
    }


def stored(file: Path) -> list[dict[str, Any]]:
    """Rows of a file; a last line that was cut off is left out."""
    rows = []
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def measured(seeds: Iterable[int], processes: int) -> Iterator[dict[str, Any]]:
    """Rows of logs, in one process or several."""
    if processes == 1:
        yield from map(measure, seeds)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(measure, seeds, chunksize=4)


def shown(row: dict[str, Any]) -> str:
    """One line for a log that was not judged as labelled; empty otherwise."""
    if row["error"]:
        return f"{row['seed']} {'+'.join(row['faults']) or 'healthy'}: {row['error']}"
    result = score(row)
    wrong = [one for one in result.judged if one.verdict in ("wrong", "duplicate")]
    if not wrong and not result.missed:
        return ""
    missed = ", ".join(f"{label['cause']} ({label['kind']})" for label in result.missed)
    extra = "; ".join(f"{one.verdict} {one.finding['score']:.2f}: {one.finding['what'][:110]}" for one in wrong)
    return f"{row['seed']} {'+'.join(row['faults']) or 'healthy'}: missed [{missed}] stated [{extra}]"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help=f"of the first log; {HELD_OUT:,} and more are held out")
    parser.add_argument("--rows", type=Path, required=True, help="JSON lines, one for each log")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--quiet", action="store_true", help="do not print logs that are judged wrongly")
    options = parser.parse_args()
    done = {row["seed"] for row in stored(options.rows)}
    seeds = [seed for seed in range(options.seed, options.seed + options.logs) if seed not in done]
    options.rows.parent.mkdir(parents=True, exist_ok=True)
    remaining = Remaining(len(seeds))
    with options.rows.open("a", encoding="utf-8") as file:
        for number, row in enumerate(measured(seeds, options.processes), 1):
            text = json.dumps(row, default=float)
            file.write(text + "\n")
            file.flush()
            words = "" if options.quiet else shown(json.loads(text))
            if words:
                print(words, flush=True)
            if number % 50 == 0:
                print(f"{number} of {len(seeds)}{remaining.added(number)}", file=sys.stderr, flush=True)
    rows = stored(options.rows)
    print("\n".join(summary(rows)))
    if options.markdown:
        options.markdown.write_text(page(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
