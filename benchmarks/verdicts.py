"""Verdicts on the real logs below ``$FWNKF_DATA/logs``, with the cure beside a notch, as a page of the documentation.

    python benchmarks/verdicts.py --store verdicts.json -o docs/results/verdicts.md

Results are stored log by log, so that a run that was stopped goes on where it was. Figures only: no part of a log.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from fwnkf.diagnosis import Diagnosis, diagnose
from fwnkf.errors import FwnkfError
from fwnkf.logs import open_log

FOLDERS = ("ulog", "dataflash", "blackbox", "rosbag1", "mcap")


def logs(data: Path) -> list[Path]:
    return [path for folder in FOLDERS for path in sorted((data / "logs" / folder).iterdir()) if path.is_file()]


def measure(path: Path, fix: bool) -> dict[str, Any]:
    """The verdict on one log, as plain values."""
    began = time.process_time()
    result: Diagnosis = diagnose(open_log(path), fix=fix)
    rates = {name: value for name, value in result.facts.items() if name.endswith("rate_hz")}
    return {
        "name": path.name,
        "format": result.format,
        "seconds": result.seconds,
        "rate_hz": max((float(value) for value in rates.values()), default=None),
        "findings": [
            {"cause": item.cause, "severity": item.severity, "what": item.what, "channels": list(item.channels)}
            for item in result.findings
        ],
        "lines": [[peak.channel, peak.frequency, peak.amplitude, peak.label] for peak in result.peaks[:5]],
        "fix": None if result.fix is None else [dict(row) for row in result.fix.rows],
        "cpu_seconds": time.process_time() - began,
    }


def page(rows: list[dict[str, Any]], command: str) -> str:
    """Two tables as Markdown: verdicts, and before and after."""
    lines = [
        "# Verdicts on nineteen real logs",
        "",
        "What `fwnkf diagnose` says of public flight logs. *Verdict* is the first finding; *further* are the causes of the",
        "other warnings and failures. *Line* is the line that stands highest above its floor.",
        "",
        "| log | length | rate | verdict | further | line |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        found = row["findings"]
        first = f"**{found[0]['severity']}, {found[0]['cause']}:** {found[0]['what']}" if found else "nothing found"
        others = dict.fromkeys(
            item["cause"] for item in found[1:] if item["severity"] != "info" and item["cause"] != found[0]["cause"]
        )
        line = f"{row['lines'][0][1]:.4g} Hz in {row['lines'][0][0]}" if row["lines"] else "–"
        rate = f"{row['rate_hz']:.4g} Hz" if row["rate_hz"] else "–"
        lines.append(
            f"| {row['name']} | {row['seconds']:.0f} s | {rate} | {first} | {', '.join(others) or '–'} | {line} |"
        )
    lines += [
        "",
        "## Before and after",
        "",
        "Fitted to the first 60 % of each log, measured on the last 40 %: the log-density of a raw sample of all channels",
        "given the samples before it (larger is better), NIS (1 is consistent), and the largest autocorrelation of the",
        "innovations (0 is white). *White*: every channel a signal with a slope in white noise. *Notch*: up to three",
        "notches at the strongest lines of the first 60 %, then the same filter, with the density of the raw sample.",
        "*Noise states*: `--fix`, up to three oscillators for each channel.",
        "",
        "| log | white | notch | noise states | NIS white | NIS notch | NIS noise states | autocorrelation before → after |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if not row["fix"]:
            continue
        table = {_method(item["method"]): item for item in row["fix"]}
        white, notch, fixed = table["white"], table.get("notch"), table["noise"]
        middle = f"{notch['log_likelihood']:.2f}" if notch else "no line"
        lines.append(
            f"| {row['name']} | {white['log_likelihood']:.2f} | {middle} | {fixed['log_likelihood']:.2f} "
            f"| {white['nis']:.2f} | {format(notch['nis'], '.2f') if notch else '–'} | {fixed['nis']:.2f} "
            f"| {white['autocorrelation']:.2f} → {fixed['autocorrelation']:.2f} |"
        )
    pairs = [({_method(item["method"]): item for item in row["fix"]}) for row in rows if row["fix"]]
    better = sum(table["noise"]["log_likelihood"] > table["white"]["log_likelihood"] for table in pairs)
    than_notch = [table for table in pairs if "notch" in table]
    beats = sum(table["noise"]["log_likelihood"] > table["notch"]["log_likelihood"] for table in than_notch)
    lines += [
        "",
        f"Noise states predict better than white noise in {better} of {len(pairs)} logs, and better than notches in "
        f"{beats} of the {len(than_notch)} logs that have a line to notch. Logs that are missing are too slow or too short.",
        "",
        f"Command: `{command}`; one flight each, so there is no spread over seeds.",
        "",
    ]
    return "\n".join(lines)


def _method(name: str) -> str:
    return "notch" if "notch" in name else name.split()[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("FWNKF_DATA", ".data")))
    parser.add_argument("--store", type=Path, required=True, help="JSON file with the results so far")
    parser.add_argument("--no-fix", action="store_true")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    rows = {row["name"]: row for row in json.loads(options.store.read_text())} if options.store.is_file() else {}
    for path in logs(options.data):
        known = rows.get(path.name)
        if known is None or (known["fix"] is None and not options.no_fix and not known.get("tried")):
            try:
                rows[path.name] = measure(path, not options.no_fix) | {"tried": not options.no_fix}
            except FwnkfError as error:
                print(f"{path.name}: {error}", flush=True)
                continue
            print(path.name, [item["what"] for item in rows[path.name]["findings"][:1]], flush=True)
            options.store.write_text(json.dumps(list(rows.values()), indent=1, default=float))
        if options.output is not None:
            command = "python benchmarks/verdicts.py --store verdicts.json -o docs/results/verdicts.md"
            options.output.write_text(page(list(rows.values()), command), encoding="utf-8")


if __name__ == "__main__":
    main()
