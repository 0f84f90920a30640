"""Verdicts on the real logs below ``$FWNKF_DATA/logs``, with the cure beside a notch, as a page of the documentation.

    python benchmarks/verdicts.py --store results -o docs/results/verdicts.md

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
from fwnkf.diagnosis.evidence import gather
from fwnkf.diagnosis.fix import fix
from fwnkf.diagnosis.thresholds import THRESHOLDS
from fwnkf.errors import DataError
from fwnkf.logs import open_log

FOLDERS = ("ulog", "dataflash", "blackbox", "rosbag1", "mcap")


def logs(data: Path) -> list[Path]:
    return [path for folder in FOLDERS for path in sorted((data / "logs" / folder).iterdir()) if path.is_file()]


def verdict(path: Path) -> dict[str, Any]:
    """The verdict on one log, as plain values."""
    result: Diagnosis = diagnose(open_log(path))
    rates = [float(value) for name, value in result.facts.items() if name.endswith("rate_hz")]
    return {
        "format": result.format,
        "seconds": result.seconds,
        "rate_hz": max(rates, default=None),
        "findings": [
            {"cause": item.cause, "severity": item.severity, "what": item.what, "channels": list(item.channels)}
            for item in result.findings
        ],
        "lines": [[peak.channel, peak.frequency, peak.amplitude, peak.label] for peak in result.peaks[:5]],
    }


def cure(path: Path) -> list[dict[str, Any]]:
    """Before and after, of the first stream that a filter runs on; empty where the log is too short."""
    evidence = gather(open_log(path), THRESHOLDS)
    try:
        return [dict(row) for row in fix(evidence.analysed[0].series).rows] if evidence.analysed else []
    except DataError as error:
        print(f"{path.name}: {error}", flush=True)
        return []


def page(rows: list[dict[str, Any]], command: str) -> str:
    """Two tables as Markdown: verdicts, and before and after."""
    lines = [
        "# Verdicts on nineteen real logs",
        "",
        "What `fwnkf diagnose` says of public flight logs. *Verdict* is the first finding; *further* are the causes of",
        "the other warnings and failures. *Line* is the line that stands highest above its floor.",
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
        "Fitted to the first 60 % of each log, measured on the last 40 %: the log-density of a raw sample of all",
        "channels given the samples before it (larger is better), NIS (1 is consistent), and the largest",
        "autocorrelation of the innovations (0 is white; before → after). *White*: every channel a signal with a slope",
        "in white noise. *Notch*: up to three notches at the strongest lines of the first 60 %, then the same filter,",
        "scored by the density of the raw sample. *Noise states*: `--fix`, up to three oscillators for each channel.",
        "",
        "| log | white | notch | noise states | NIS white | NIS notch | NIS noise states | autocorrelation |",
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
    shocks = [row["name"] for row in rows if row["fix"] and any(item["cause"] == "impact" for item in row["findings"])]
    lines += [
        "",
        f"Noise states predict better than white noise in {better} of {len(pairs)} logs, and better than notches in "
        f"{beats} of the {len(than_notch)} logs that have a line to notch.",
        f"A shock is in {', '.join(shocks) or 'none of them'}: no model of the time before predicts it, and the one "
        "that is surest loses most. Logs that are not listed are too short, or were not measured.",
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
    parser.add_argument(
        "--store", type=Path, required=True, help="folder with the results so far, one file for each log"
    )
    parser.add_argument("--only", choices=("verdict", "fix"), help="measure only this")
    parser.add_argument("--part", default="0/1", help="measure only every n-th log: 0/3, 1/3, 2/3 side by side")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    options.store.mkdir(parents=True, exist_ok=True)
    part, parts = (int(number) for number in options.part.split("/"))
    rows = []
    for number, path in enumerate(logs(options.data)):
        row: dict[str, Any] = {"name": path.name}
        for name, function in (("verdict", verdict), ("fix", cure)):
            file = options.store / f"{path.name}.{name}.json"
            wanted = options.only in (None, name) and number % parts == part
            if wanted and not file.is_file():
                began = time.process_time()
                file.write_text(json.dumps({name: function(path)}, indent=1, default=float))
                print(f"{path.name}: {name}, {time.process_time() - began:.0f} s", flush=True)
            if file.is_file():
                known = json.loads(file.read_text())[name]
                row |= known if name == "verdict" else {"fix": known}
        if "findings" in row:
            rows.append({"fix": [], **row})
        if options.output is not None:
            command = "python benchmarks/verdicts.py --store results -o docs/results/verdicts.md"
            options.output.write_text(page(rows, command), encoding="utf-8")


if __name__ == "__main__":
    main()
