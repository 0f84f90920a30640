"""``docs/results/rotor.md`` and its drawing, from the results of ``benchmarks/rotor.py``."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
from rotor_logs import DELAY, LEVEL_STEPS, LEVEL_TIME, LOGS, SLOW, TRAIN
from rotor_sweep import FLOOR, SIGNAL_HZ, STEP, STEPS, TELEMETRY, TELEMETRY_STD

LOOKED_AT = Path(LOGS[0].path).name
"""The log on which the structure of the filter was chosen."""
SECOND = Path(LOGS[1].path).name
SHOWN = (
    ("gyro", "gyro", "#9aa0a6"),
    ("board", "flight controller (gyroADC)", "#d9822b"),
    ("ours", "FW-NKF with Orders", "#1f5fbf"),
)


ABOUT = (
    "Unfiltered gyro of two Betaflight logs with rotor speeds in every sample, and the gyro of two PX4 logs "
    "with speeds four times a second. From the first to the last moment in which the rotors turn; fitted "
    f"without truth to the first {100 * TRAIN:g} %, scored on the rest. What is fitted, by the likelihood of "
    "each axis: power and width of three orders over the white noise, and the band of the motion. What is set: "
    f"three orders, the time constant of the level ({1e3 * LEVEL_TIME:g} ms, at least {LEVEL_STEPS} samples), "
    f"and the age of the sample that is estimated ({1e3 * DELAY:g} ms, at least one sample). All of that was "
    f"chosen with a look at {LOOKED_AT}, the part that is scored included, so that its figures are no test of "
    f"the choice. Whether the band is set or fitted was decided after both had been run on {SECOND} too, so "
    "that it is a test of the rest alone; the PX4 logs were run once, with the same settings. Units: standard "
    "deviations of the part used to "
    "fit. NLL is the negative log-likelihood of a sample, lower is better. *White noise*: the same equations "
    "without lines. *Fixed lines*: as many lines, at the mean speeds of the part used to fit, fitted in the "
    "same way. *Peak over median*: of the spectrum of the normalised innovations."
)
LIMITS = (
    f"On {LOOKED_AT} NLL at most 0.2 and 0.1 on y and z and peaks below 3 were wanted and are not reached, nor "
    "NIS of 0.9 to 1.1 on z. What limits it, by the spectrogram of the innovations: on x a band of 246 to 268 "
    "Hz that stays where it is while the rotors go from 225 to 300 Hz, also at moments in which no rotor is "
    "within 10 Hz of it, so no order of theirs; and the third order, folded (171 Hz for a rotor at 282 Hz), "
    "whose amplitude changes faster than its width. Tried, judged on the part used to fit, where none gained "
    "more than 0.04: an oscillator of fixed frequency in that band, a second, wider first order, a fourth "
    "order, speeds 3 to 12 ms earlier or later, time constants of the level from 6 to 50 ms. The largest NIS of "
    "a second falls in the end of the log, where the gyro shows a shock."
)


COMPARED = (
    f"Against the zero-phase gyro below {SLOW:g} Hz, RMSE as late as it fits best (delay). *Over it*: our RMSE "
    "at a delay no longer than that of `gyroADC`, over the RMSE of `gyroADC`. Compared exactly as late as "
    f"`gyroADC`, an estimate that is earlier loses where the motion is fast: y of {SECOND} is then worse than it."
)


def page(store: Path) -> str:
    """The page as Markdown, of the parts that were measured."""
    lines = [
        "# Lines that follow rotors",
        "",
        "An FW-NKF with `Orders` ([how to](../howto/rotors.md)) beside a Kalman filter with white noise, the same",
        "filter told all, and the filters of autopilots with their shipped settings.",
        "",
    ]
    if (store / "sweep.json").exists():
        lines += _sweep_page(json.loads((store / "sweep.json").read_text()))
    logs = read_logs(store)
    if logs:
        lines += _logs_page(logs)
    command = "python benchmarks/rotor.py"
    lines += [
        f"Command: `{command} sweep --store results`, `{command} logs --store results`, then `page` and `draw`.",
        "",
    ]
    return "\n".join(lines)


def read_logs(store: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted(store.glob("rotor_*.json"))]


def draw(store: Path, target: Path) -> None:
    """Spectra of gyro, flight controller and estimate of the first log, one panel an axis."""
    from matplotlib.figure import Figure

    log = read_logs(store)[0]
    figure = Figure(figsize=(9.0, 3.2), dpi=110, layout="constrained", facecolor="white")
    panels = figure.subplots(1, 3, sharey=True)
    for panel, row in zip(panels, log["axes"], strict=True):
        for name, label, colour in SHOWN:
            if name in row["spectra"]:
                panel.semilogy(row["spectra"]["hz"][1:], row["spectra"][name][1:], color=colour, lw=1.1, label=label)
        panel.set_title(f"axis {row['axis']}", fontsize=10)
        panel.set_xlabel("Hz")
        panel.grid(True, which="major", color="#e6e6e6", lw=0.6)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("power per Hz")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=9, loc="outside upper center", ncols=len(SHOWN))
    figure.savefig(target)


def _sweep_page(stored: dict[str, Any]) -> list[str]:
    errors = {name: np.array(values) for name, values in stored["errors"].items()}
    names = list(errors)
    white, told = errors[names[0]], errors[names[1]]
    lines = [
        "## A simulated sweep",
        "",
        f"Four motors a few per cent apart sweep from 40 to 120 Hz and back in {STEPS * STEP:g} s, each with",
        f"orders 1 to 4, at {1 / STEP:g} samples per second; the motion is below {SIGNAL_HZ:g} Hz, the white floor "
        f"{FLOOR:g}.",
        f"Telemetry comes at {1 / STEP / TELEMETRY:g} Hz with an error of {100 * TELEMETRY_STD:g} %. Seeds "
        f"{', '.join(map(str, stored['seeds']))}; the options of",
        "tracking were chosen on seeds 10 to 14. *Gap closed*: the part of the gap between white noise and told. Wrong",
        "speeds are those of one motor.",
        "",
        "| filter | MSE, mean ± spread over seeds | gap closed, mean (least) | error over white noise, largest |",
        "|---|---|---|---|",
    ]
    for name, values in errors.items():
        closed = (white - values) / (white - told)
        lines.append(
            f"| {name} | {values.mean():.4f} ± {values.std(ddof=1):.4f} | {100 * closed.mean():.1f} % "
            f"({100 * closed.min():.1f} %) | {(values / white).max():.2f} |"
        )
    lines += ["", "Notches are told the speeds exactly; those of Betaflight begin at 100 Hz, above most of this sweep."]
    return [*lines, ""]


def _logs_page(logs: list[dict[str, Any]]) -> list[str]:
    lines = [
        "## Flight logs",
        "",
        *_wrapped(ABOUT),
        "",
        "| log | axis | NLL white noise | NLL fixed lines | NLL following | NIS white noise | NIS following | "
        "NIS in a second | peak over median (at) |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for log, row in _rows(logs):
        lines.append(
            f"| {log['log']} | {row['axis']} | {row['white'][0]:.2f} | {row['fixed'][0]:.2f} | "
            f"{row['rotors'][0]:.2f} | {row['white'][1]:.2f} | {row['rotors'][1]:.2f} | "
            f"{row['nis_low']:.2f} to {row['nis_high']:.2f} | {row['peak']:.1f} ({row['peak_hz']:.0f} Hz) |"
        )
    lines += [
        "",
        *_wrapped(LIMITS),
        "",
        *_wrapped(_slow_speeds(logs)),
        "",
        *_wrapped(COMPARED),
        "",
        "| log | axis | FW-NKF with `Orders` | `gyroADC` | over it |",
        "|---|---|---|---|---|",
    ]
    for log, row in _rows(logs):
        board = ("–", "–")
        if "board" in row:
            board = (
                f"{row['board']:.4f} ({row['board_delay_ms']:.1f} ms)",
                f"{row['rmse_no_later'] / row['board']:.2f}",
            )
        lines.append(
            f"| {log['log']} | {row['axis']} | {row['rmse']:.4f} ({row['delay_ms']:.1f} ms) | {board[0]} | {board[1]} |"
        )
    lines += ["", f"![Spectra of the scored part of {LOOKED_AT}](../images/rotor.png)", ""]
    lines += ["What autopilots ship, on the same samples, RMSE (delay):", ""]
    others = list(logs[0]["axes"][0]["others"])
    lines += ["| log | axis | " + " | ".join(others) + " |", "|---|---|" + "---|" * len(others)]
    for log, row in _rows(logs):
        cells = [f"{error:.4f} ({delay:.1f} ms)" for error, delay in row["others"].values()]
        lines.append(f"| {log['log']} | {row['axis']} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def _slow_speeds(logs: list[dict[str, Any]]) -> str:
    """What speeds at a few hertz are worth, from the logs that have no more; an empty string without any."""
    slow = [row for log, row in _rows(logs) if log["log"].endswith(".ulg")]
    if not slow:
        return ""
    gains = [row["fixed"][0] - row["rotors"][0] for row in slow]
    better = f"{sum(gain > 0 for gain in gains)} of {len(gains)} axes"
    return (
        f"With speeds four times a second, lines that follow are better than fixed ones on {better}; they lower NLL by "
        f"{min(gains):.2f} to {max(gains):.2f}. Fixed lines as wide as the speeds wander do nearly as well, or better. "
        "Between two speeds the filter holds the last one, or what the vibration says, and a quarter of a second is "
        "long for both."
    )


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 118, break_on_hyphens=False)


def _rows(logs: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return [(log, row) for log in logs for row in log["axes"]]
