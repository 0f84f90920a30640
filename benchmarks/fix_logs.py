"""What ``fwnkf diagnose --fix`` gains on real logs below ``$FWNKF_DATA/logs``, as a page of the documentation.

    python benchmarks/fix_logs.py --store results -o docs/results/fix_logs.md

Results are stored log by log, so that a run that was stopped goes on where it was. Figures only: no part of a log.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from verdicts import logs

from fwnkf.diagnosis.evidence import gather, stream_series, within
from fwnkf.diagnosis.fix import fix
from fwnkf.diagnosis.series import Series
from fwnkf.diagnosis.thresholds import THRESHOLDS
from fwnkf.errors import DataError
from fwnkf.logs import open_log
from fwnkf.remaining import Remaining

FRESH_FOLDER = "blackbox_racer"
FRESH_EVERY, FRESH_SECONDS = 3, 60.0
"""Of the fresh logs every third flight, and their first minute."""
METHODS = ("white", "notch", "noise")


def fresh_logs(data: Path) -> list[Path]:
    return sorted((data / "logs" / FRESH_FOLDER).glob("*.BFL"))[::FRESH_EVERY]


def whole(path: Path) -> dict[str, Any]:
    """Before and after, of the first stream that a filter runs on; empty where the log is too short."""
    evidence = gather(open_log(path), THRESHOLDS)
    return fixed(path, evidence.analysed[0].series) if evidence.analysed else {}


def minute(path: Path) -> dict[str, Any]:
    """Before and after on the first minute of the IMU of a log."""
    stream = open_log(path).signal("imu")
    start = float(stream.time[0])
    return fixed(path, stream_series(within(stream, [(start, start + FRESH_SECONDS)])))


def fixed(path: Path, series: Series) -> dict[str, Any]:
    try:
        result = fix(series)
    except DataError as error:
        print(f"{path.name}: {error}", flush=True)
        return {}
    names = ("kept", "outcome", "gain", "gain_error")
    rows = {_method(row["method"]): dict(row) for row in result.rows}
    return {"rows": rows, "parameters": dict(result.parameters), **{name: getattr(result, name) for name in names}}


def page(fresh: list[dict[str, Any]], known: list[dict[str, Any]], command: str, missing: int = 0) -> str:
    """Both tables as Markdown; ``missing`` logs are not measured yet."""
    unmeasured = [
        "",
        f"The other {missing} logs have not been measured with this version. The ones listed hold those on which noise",
        "states used to predict worst, and are no fair sample.",
    ]
    lines = [
        "# What `--fix` gains on real logs",
        "",
        "Fitted to the first 60 % of the time, measured on the last 40 % (at most 10,000 samples): the log-density of",
        "a raw sample of all channels given the samples before it (larger is better), NIS (1 is consistent), and the",
        "largest autocorrelation of the innovations (0 is white). All three methods are calibrated alike, on the first",
        "60 %: each channel has its level, up or down, and the level of all follows the innovations.",
        "",
        "- *White*: every channel a signal with a slope in white noise.",
        "- *Notch*: up to three notches at the strongest lines of the first 60 %, then the same filter, scored by the",
        "  density of the raw sample; none where there is no line.",
        "- *Noise states*: up to three oscillators for each channel.",
        "- *Kept*: what `--fix` chose on the first 60 %.",
        "- *Gain*: of what was kept over white noise on the last 40 %, with its standard error over 20 blocks. Where",
        "  it is negative, no filter is saved.",
        "",
        "## Logs that were never looked at",
        "",
        "Flights of one racing quadrotor (Betaflight 3.4, gyro low-passed on board, accelerometer nearly raw, about",
        f"1 kHz), the first {FRESH_SECONDS:.0f} s of each. No part of them was used while `--fix` was written; the",
        "code was frozen before, and they were measured once.",
        "",
        *table(fresh),
        "",
        "## The logs of the verdicts",
        "",
        "The last 40 % of these logs had been looked at three times while earlier versions of `--fix` were written, so",
        "this table is no test of the method. What is new since (levels that follow the innovations, the choice of the",
        "filter) was chosen on the first 60 % alone, and the last 40 % were measured once afterwards. Logs that are",
        "not listed are too short, have no signal that a filter runs on, or were not measured.",
        "",
        *table(known),
        *(unmeasured if missing else []),
        "",
        f"Command: `{command}`; one flight each, so the spread is that over flights.",
        "",
    ]
    return "\n".join(lines)


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Before and after, as lines of Markdown."""
    lines = [
        "| log | white | notch | noise states | NIS white | NIS notch | NIS noise states "
        "| autocorrelation white → notch → noise states | kept | gain |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    done = [row for row in rows if row["fix"]]
    if not done:
        return ["None was measured yet."]
    for row in done:
        methods = [row["fix"]["rows"].get(name) for name in METHODS]

        def cells(name: str, methods: list[Any] = methods) -> list[str]:
            return ["–" if item is None else f"{item[name]:.2f}" for item in methods]

        values = [*cells("log_likelihood"), *cells("nis"), " → ".join(cells("autocorrelation")), row["fix"]["kept"]]
        gain = f"{row['fix']['gain']:.2f} ± {row['fix']['gain_error']:.2f}"
        lines.append(f"| {' | '.join([row['name'], *values, gain])} |")
    better = sum(row["fix"]["outcome"] == "better" for row in done)
    worse = [row["name"] for row in done if row["fix"]["outcome"] == "worse"]
    tables = [row["fix"]["rows"] for row in done if "notch" in row["fix"]["rows"]]
    beats = sum(table["noise"]["log_likelihood"] > table["notch"]["log_likelihood"] for table in tables)
    levels = [row["fix"]["rows"][_method(row["fix"]["kept"])]["nis"] for row in done]
    return [
        *lines,
        "",
        f"What was kept predicts better than white noise in {better} of {len(done)} logs, worse in {len(worse)}"
        f"{': ' if worse else ''}{', '.join(worse)}; noise states predict better than notches in {beats} of the "
        f"{len(tables)} logs that have a line to notch. NIS of what was kept is from {min(levels):.2f} to "
        f"{max(levels):.2f}, and between 0.9 and 1.1 in {sum(0.9 <= level <= 1.1 for level in levels)}.",
    ]


def _method(name: str) -> str:
    return "notch" if "notch" in name else name.split()[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("FWNKF_DATA", ".data")))
    parser.add_argument("--store", type=Path, required=True, help="folder with the results so far, a file for each log")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    options.store.mkdir(parents=True, exist_ok=True)
    rows: list[list[dict[str, Any]]] = [[], []]
    jobs: list[tuple[int, Callable[[Path], dict[str, Any]], Path]] = [
        *((0, minute, path) for path in fresh_logs(options.data)),
        *((1, whole, path) for path in logs(options.data)),
    ]
    wanted = [path for _, _, path in jobs if not (options.store / f"{path.name}.fix.json").is_file()]
    remaining = Remaining(len(wanted))
    for group, function, path in jobs:
        file = options.store / f"{path.name}.fix.json"
        if not file.is_file():
            began = time.process_time()
            file.write_text(json.dumps(function(path), indent=1, default=float))
            left = remaining.added(wanted.index(path) + 1)
            print(f"{path.name}: {time.process_time() - began:.0f} s{left}", flush=True)
        rows[group].append({"name": path.name, "fix": json.loads(file.read_text())})
        if options.output is not None:
            command = f"python benchmarks/fix_logs.py --store results -o {options.output}"
            missing = len(jobs) - sum(map(len, rows))
            options.output.write_text(page(*rows, command, missing), encoding="utf-8")


if __name__ == "__main__":
    main()
