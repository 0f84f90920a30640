"""Verdicts on the real logs below ``$FWNKF_DATA/logs``, as a page of the documentation.

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


def page(rows: list[dict[str, Any]], command: str) -> str:
    """The table as Markdown."""
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
        "What `--fix` gains on them is on a [page of its own](fix_logs.md).",
        "",
        f"Command: `{command}`; one flight each, so there is no spread over seeds.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("FWNKF_DATA", ".data")))
    parser.add_argument(
        "--store", type=Path, required=True, help="folder with the results so far, one file for each log"
    )
    parser.add_argument("--part", default="0/1", help="measure only every n-th log: 0/3, 1/3, 2/3 side by side")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    options.store.mkdir(parents=True, exist_ok=True)
    part, parts = (int(number) for number in options.part.split("/"))
    rows = []
    for number, path in enumerate(logs(options.data)):
        file = options.store / f"{path.name}.verdict.json"
        if number % parts == part and not file.is_file():
            began = time.process_time()
            file.write_text(json.dumps({"verdict": verdict(path)}, indent=1, default=float))
            print(f"{path.name}: {time.process_time() - began:.0f} s", flush=True)
        if file.is_file():
            rows.append({"name": path.name, **json.loads(file.read_text())["verdict"]})
        if options.output is not None:
            command = "python benchmarks/verdicts.py --store results -o docs/results/verdicts.md"
            options.output.write_text(page(rows, command), encoding="utf-8")


if __name__ == "__main__":
    main()
