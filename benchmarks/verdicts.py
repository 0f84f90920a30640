"""Verdicts on the real logs below ``$FWNKF_DATA/logs`` against their labels, as a page of the documentation.

    python benchmarks/verdicts.py --store results -o docs/results/verdicts.md

``log_labels.json`` says what is known of each log from evidence that is not that of the diagnosis. Results are stored
log by log, so that a run that was stopped goes on where it was. Figures only: no part of a log.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from diagnosis import examined, finding_values
from log_labels import LogLabel, compare, read_labels

from fwnkf.logs import open_log
from fwnkf.remaining import Remaining

MIXED = ("ulog", "dataflash", "blackbox", "rosbag1", "mcap")
"""Folders of logs of many vehicles; the labels also have the flights of one racing quadrotor."""


def logs(data: Path) -> list[Path]:
    """The logs of many vehicles."""
    return [path for folder in MIXED for path in sorted((data / "logs" / folder).iterdir()) if path.is_file()]


def verdict(path: Path) -> dict[str, Any]:
    """The verdict on one log, as plain values."""
    evidence, findings = examined(open_log(path))
    return {
        "seconds": evidence.seconds,
        "rate_hz": max((part.series.rate for part in evidence.analysed), default=None),
        "findings": [finding_values(finding) for finding in findings],
    }


def page(rows: list[dict[str, Any]], labels: dict[str, LogLabel], command: str) -> str:
    """The table as Markdown."""
    results = {row["name"]: compare(labels[row["name"]], row["findings"]) for row in rows}
    agree = sum(result.agrees for result in results.values())
    wrong = sum(bool(result.first or result.wrong) for result in results.values())
    lines = [
        f"# Verdicts on {len(rows)} real logs",
        "",
        "What `fwnkf diagnose` says of public logs, beside labels written down from evidence that is not its own:",
        "spectra and order tracking by other programs, stamps, messages and counters of the logs, and what their",
        "publishers say (`benchmarks/log_labels.json`, with the reason for each). *First* is the first warning or",
        "failure; *further* are the causes of the next two. *Against the label* names causes among these three that",
        "the evidence does not support, and causes that had to be found and were not.",
        "",
        "Labels were written before this version of the rules was run on the logs, except for entries that were",
        "widened after a verdict had been seen: `scale` for the 20 racers (then checked: 4 to 9 % below gravity at",
        "rest), `gaps` for xsens (then checked: 1 % of the odometry), an impact first for px4_corrupt (the",
        "touchdown was known), and the hump of ardrone, whose source nobody knows. Their agreement is weaker",
        "evidence than that of the others.",
        "",
        "Rules were made with an eye on these logs as well: bands that move by themselves count from 5 times the noise",
        "on, a limit that was set on simulated acrobatics, below the 6 and 7 of mengchaoheng and ardrone, and after a",
        "rotor had been named wrongly at 33 Hz in LOG00036. So this page shows that nothing known is wrong, and is no",
        "estimate for other logs.",
        "",
        f"{agree} of {len(rows)} logs agree with their labels; {wrong} have a wrong cause among their first findings.",
        "",
        "| log | length | rate | first | further | against the label |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        stated = [item for item in row["findings"] if item["severity"] != "info"][:3]
        first = f"**{stated[0]['severity']}, {stated[0]['cause']}:** {stated[0]['what']}" if stated else "no warning"
        result = results[row["name"]]
        against = [f"wrong: {name}" for name in (*filter(None, [result.first]), *result.wrong)]
        against += [f"missing: {name}" for name in result.missing]
        rate = f"{row['rate_hz']:.4g} Hz" if row["rate_hz"] else "–"
        further = ", ".join(item["cause"] for item in stated[1:]) or "–"
        lines.append(
            f"| {row['name']} | {row['seconds']:.0f} s | {rate} | {first} | {further} | {'; '.join(against) or '–'} |"
        )
    lines += [
        "",
        "What `--fix` gains on them is on a [page of its own](fix_logs.md).",
        "",
        f"Command: `{command}`; one flight each, so there is no spread over seeds.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("FWNKF_DATA", ".data")))
    parser.add_argument(
        "--store", type=Path, required=True, help="folder with the results so far, one file for each log"
    )
    parser.add_argument("--part", default="0/1", help="measure only every n-th log: 0/3, 1/3, 2/3 side by side")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    options.store.mkdir(parents=True, exist_ok=True)
    part, parts = (int(number) for number in options.part.split("/"))
    rows, labels = [], read_labels()
    files = {name: options.store / f"{name.replace('/', '_')}.verdict.json" for name in labels}
    wanted = [name for number, name in enumerate(labels) if number % parts == part and not files[name].is_file()]
    remaining = Remaining(len(wanted))
    for name, file in files.items():
        if name in wanted:
            began = time.process_time()
            found = verdict(options.data / "logs" / name)
            file.write_text(json.dumps({"verdict": found}, indent=1, default=float))
            result = compare(labels[name], json.loads(file.read_text())["verdict"]["findings"])
            words = f"{name}: {time.process_time() - began:.0f} s{remaining.added(wanted.index(name) + 1)}"
            print(f"{words} {'' if result.agrees else result}", flush=True)
        if file.is_file():
            rows.append({"name": name, **json.loads(file.read_text())["verdict"]})
    if options.output is not None:
        command = "python benchmarks/verdicts.py --store results -o docs/results/verdicts.md"
        options.output.write_text(page(rows, labels, command), encoding="utf-8")


if __name__ == "__main__":
    main()
