"""Filters trained on calm trials of BROAD run on shaken ones, and the reverse.

Calm are the undisturbed trials, shaken those in which the sensor is tapped on or a vibrating phone lies beside it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from fwnkf.cli.output import print_status
from fwnkf.data.recording import Recording
from fwnkf.evaluation.rows import Row
from tasks.bootstrap import paired_ratio
from tasks.interface import Say, parse_seeds
from tasks.results import mean_by_name, over_seeds

HIGH_BAND = 20.0
"""Hz, from which the force of a trial counts as shaking."""
PAGE = Path("docs/results/robustness_recordings.md")
ERROR, COVERAGE, NEES = 1.1, (0.9, 0.99), 2.0
"""The bands of ``python -m tasks robustness``; task folders do not import each other."""


def add_commands(commands: Any) -> None:
    """Add the command to the runner's parser."""
    command = commands.add_parser(
        "shaken",
        help="filters of calm trials of BROAD on shaken ones, and the reverse",
    )
    command.add_argument("--seeds", default="0,1,2", help="default: 0,1,2")
    command.add_argument("--store", type=Path, required=True, metavar="FILE", help="rows so far; seeds in it are kept")
    command.add_argument("--page", type=Path, default=PAGE, metavar="FILE", help=f"where the page goes ({PAGE})")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure the seeds that the store does not have and write the page."""
    rows: list[Row] = json.loads(options.store.read_text()) if options.store.exists() else []
    for seed in parse_seeds(options.seeds):
        if all(row["seed"] != seed for row in rows):
            rows += measure(seed, print_status)
            options.store.write_text(json.dumps(rows), encoding="utf-8")
    options.page.write_text(page(rows), encoding="utf-8")
    print(options.page)
    return 0


def groups() -> dict[str, list[Recording]]:
    """The first two minutes of all trials."""
    from tasks.broad.trials import SEARCH_BLOCKS, TEST, TRAIN, trials

    return {"calm": trials(TRAIN, SEARCH_BLOCKS), "shaken": trials(TEST, SEARCH_BLOCKS)}


def shaking(trial: Recording) -> float:
    """Root mean square of the measured force above ``HIGH_BAND``, m/s²."""
    force = trial.observations[:, 3:6].double()
    spectrum = torch.fft.rfft(force - force.mean(0), dim=0)
    hz = torch.fft.rfftfreq(len(force), 1 / trial.rate)
    left = torch.fft.irfft(torch.where((hz > HIGH_BAND)[:, None], spectrum, 0.0), len(force), dim=0)
    return float(left.square().sum(-1).mean().sqrt())


def measure(seed: int, say: Say) -> list[Row]:
    """Train on each group and run on both."""
    from tasks.broad.inclination import Inclination
    from tasks.broad.search import Practice, tilt_search

    task, data = Inclination(), groups()
    practice = {name: Practice.of(recordings) for name, recordings in data.items()}
    rows: list[Row] = []
    for name in data:
        learned = tilt_search(practice[name], seed, say)
        for other, recordings in data.items():
            (estimate,) = task.estimates([learned.numbers], practice[other])
            score = task.score_estimate(recordings, estimate, 0.0)
            rows.append(
                {
                    "seed": seed, "trained": name, "run": other, "by_recording": dict(score.by_recording),
                    "nees": score.metrics["nees_tilt"], "coverage": score.metrics["coverage_tilt"],
                    "shaking": fmean(map(shaking, recordings)),
                }
            )  # fmt: skip
            say(f"trained {name}, run {other}: {score.metrics}")
    return rows


def page(rows: Sequence[Row]) -> str:
    """The rows as a page; every figure is theirs."""
    seeds = sorted({int(row["seed"]) for row in rows})
    columns = ("trained on", "run on", f"force above {HIGH_BAND:g} Hz, m/s²", "inclination, degrees",
               "over the filter trained there", "NEES", "coverage", "verdict")  # fmt: skip
    lines = [
        "# Robustness on recordings",
        "",
        f"Written by `python -m tasks shaken --seeds {','.join(map(str, seeds))} --store FILE`: mean ± standard "
        "deviation over seeds of the search.",
        "",
        "The inclination filter of BROAD, trained with truth on one kind of trial and run on the other. Calm: the "
        "undisturbed trials, slow and fast. Shaken: the sensor is tapped on, or a vibrating phone lies beside it. The "
        "first two minutes of each. What is trained: constants of the hand and the sensor, the delay of the gyroscope, "
        "and the factor of the covariance. The ratio of errors has a 95 % interval over trials, which are few. A "
        "filter run on the trials it was trained on is the reference, not a test.",
        "",
        f"Criteria, as for [simulated records](robustness.md): error at most {ERROR:g} times that of the filter "
        f"trained there, coverage {COVERAGE[0]:g} to {COVERAGE[1]:g}, NEES per dimension at most {NEES:g}.",
        "",
        _line(columns),
        _line(["---"] * len(columns)),
    ]
    for other in dict.fromkeys(row["run"] for row in rows):
        for name in dict.fromkeys(row["trained"] for row in rows):
            lines.append(_line(_cells(rows, name, other)))
    return "\n".join(lines) + "\n"


def _cells(rows: Sequence[Row], name: str, other: str) -> tuple[str, ...]:
    mine = [row for row in rows if (row["trained"], row["run"]) == (name, other)]
    there = [row for row in rows if (row["trained"], row["run"]) == (other, other)]
    ratio = paired_ratio(*(mean_by_name([row["by_recording"] for row in part]) for part in (mine, there)))
    nees, coverage = (fmean(float(row[figure]) for row in mine) for figure in ("nees", "coverage"))
    met = {
        "error": ratio.value <= ERROR,
        "coverage": COVERAGE[0] <= coverage <= COVERAGE[1],
        "NEES": nees <= NEES,
    }
    missed = [figure for figure, ok in met.items() if not ok]
    return (
        name,
        other,
        f"{mine[0]['shaking']:.2f}",
        over_seeds([fmean(row["by_recording"].values()) for row in mine]),
        "1" if name == other else str(ratio),
        over_seeds([row["nees"] for row in mine]),
        over_seeds([row["coverage"] for row in mine]),
        "reference" if name == other else f"**fails: {', '.join(missed)}**" if missed else "robust",
    )


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
