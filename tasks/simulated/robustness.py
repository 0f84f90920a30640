"""Filters trained in one coloured noise, on records with another: their error and error bars beside the EKF's.

Conditions: the disturbance absent, white noise instead of it, its frequency moved, a quarter to four times the
variance, another sampling rate. The reference is the EKF with the true equations that assumes white noise of the
nominal variance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fwnkf import build, load
from fwnkf.core.system import System
from fwnkf.data.protocols import Protocol, Records, Split
from fwnkf.data.recording import Span
from fwnkf.data.simulated import Simulated, generate
from fwnkf.errors import ConfigError
from fwnkf.evaluation.evaluate import evaluate
from fwnkf.evaluation.rows import Row
from fwnkf.systems import noise
from fwnkf.systems.lorenz import Lorenz, LorenzConfig
from fwnkf.systems.noise import Scenario

SEED = 999_998
"""Of the records; no filter is trained or selected on them."""
ERROR_LIMIT = 1.1
"""Largest mean squared error relative to the EKF's."""
COVERAGE_LIMITS = (0.90, 0.99)
"""Share of true states within their 95 % intervals."""
NEES_LIMIT = 2.0
"""Largest NEES per dimension; where the EKF's is larger, the EKF's."""
CRITERIA = ("error_ok", "coverage_ok", "nees_ok")
FILTERS = {"lorenz-tone": "tone", "lorenz-high-band": "high_band", "lorenz-drift": "drift", "lorenz-pink": "pink"}
"""Trained filters and the scenario each was trained in."""
STEP_RATIO = 1.2
LEVELS = {
    "a quarter of the variance": 0.25,
    "half the variance": 0.5,
    "twice the variance": 2,
    "four times the variance": 4,
}


def moved(scenario: Scenario) -> Scenario | None:
    """The scenario with its frequency 10 % higher; None where it has no single frequency."""
    part = scenario.parts[0]
    if isinstance(part, noise.Tone | noise.Band):
        high = min(1.1 * part.high, 1.0)
        return replace(scenario, parts=(replace(part, low=min(1.1 * part.low, high), high=high), *scenario.parts[1:]))
    if isinstance(part, noise.Drift):
        return replace(scenario, parts=(replace(part, pole=1 - 1.1 * (1 - part.pole)), *scenario.parts[1:]))
    return None


def conditions(name: str) -> dict[str, Callable[[int], Simulated]]:
    """A generator of records for each condition, by its name; ``name`` is the scenario of training."""
    config = LorenzConfig()
    trained = noise.scenario(name, config.variance)
    shifted = moved(trained)

    def records(scenario: Scenario, **options: Any) -> Callable[[int], Simulated]:
        return lambda count: generate("lorenz", count, scenario=scenario, seed=SEED, **options)

    generators = {
        "as trained": records(trained),
        "disturbance absent, floor alone": records(Scenario((noise.White(noise.FLOOR * config.variance),))),
        "white noise of the same variance": records(noise.scenario("white", config.variance)),
    }
    if shifted is not None:
        generators["frequency 10 % higher"] = records(shifted)
    levels = {words: replace(trained, variance=level * config.variance) for words, level in LEVELS.items()}
    return generators | {
        **{words: records(scenario) for words, scenario in levels.items()},
        f"steps {STEP_RATIO:g} times as long": records(trained, dt=STEP_RATIO * config.dt),
    }


def robustness(models: Path, *, records: int = 1000) -> Iterator[Row]:
    """One row for each filter and condition: error, NEES and coverage of the filter and of the EKF, and the verdict."""
    present = {task: name for task, name in FILTERS.items() if (models / task / "config.json").is_file()}
    if not present:
        raise ConfigError(
            f"{models} holds none of {', '.join(FILTERS)}; trained filters come with the source, or give their --models"
        )
    for task, scenario in present.items():
        model = load(models / task)
        for condition, make in conditions(scenario).items():
            protocol = _protocol(make(records), condition)
            ekf = build("ekf", system=nominal_system(protocol.split.test))
            ours, theirs = evaluate(model, protocol, task), evaluate(ekf, protocol, "ekf")
            row = {
                "task": task,
                "condition": condition,
                "mse": ours["mse"],
                "mse_ekf": theirs["mse"],
                "ratio": ours["mse"] / theirs["mse"],
                "nees": ours["nees"],
                "nees_ekf": theirs["nees"],
                "coverage95": ours["coverage95"],
                "coverage95_ekf": theirs["coverage95"],
            }
            yield {**row, **verdict(row), "records": records, "command": "python -m tasks robustness"}


def verdict(row: Row) -> dict[str, bool]:
    """Each criterion, and whether all are met.

    >>> row = {"ratio": 0.55, "nees": 3.2, "nees_ekf": 5.0, "coverage95": 0.856}
    >>> verdict(row)
    {'error_ok': True, 'coverage_ok': False, 'nees_ok': True, 'robust': False}
    """
    met = {
        "error_ok": bool(row["ratio"] <= ERROR_LIMIT),
        "coverage_ok": bool(COVERAGE_LIMITS[0] <= row["coverage95"] <= COVERAGE_LIMITS[1]),
        "nees_ok": bool(row["nees"] <= max(NEES_LIMIT, row["nees_ekf"])),
    }
    return {**met, "robust": all(met.values())}


def nominal_system(records: Records) -> System:
    """The Lorenz equations with the nominal noise, step and dtype, whatever noise the records hold."""
    return Lorenz(LorenzConfig()).to(records.y.dtype)


def _protocol(data: Simulated, condition: str) -> Protocol:
    """Simulated records as a protocol of test records alone."""
    steps = data.y.shape[1]
    records = Records(
        f"lorenz {condition}",
        data.y,
        data.truth,
        data.mask,
        data.dt,
        data.u,
        data.start,
        data.system.layout,
        tuple(Span(f"lorenz, seed {SEED}", "", i * steps, (i + 1) * steps) for i in range(len(data))),
        data.system,
    )
    empty = records.take(torch.arange(0))
    return Protocol("strict", "lorenz", SEED, Split(empty, empty, records))


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a page; the counts above the table are taken from them."""
    counts = {name: sum(bool(row[name]) for row in rows) for name in (*CRITERIA, "robust")}
    worst = max(rows, key=lambda row: float(row["ratio"]))
    low, high = COVERAGE_LIMITS
    lines = [
        "# Robustness",
        "",
        f"Written by `python -m tasks robustness --markdown docs/results/robustness.md`, {rows[0]['records']} records "
        f"for each row, seed {SEED}. Filters trained in one coloured noise, on records of other conditions, beside the "
        "EKF with the true equations that assumes white noise of the nominal variance. The same question on "
        "recordings: [calm and shaken trials](robustness_recordings.md).",
        "",
        f"Criteria: mean squared error at most {ERROR_LIMIT:g} times the EKF's; coverage of the 95 % intervals between "
        f"{low:g} and {high:g}; NEES per dimension at most {NEES_LIMIT:g}, or no larger than the EKF's in the same "
        f"condition. Of {len(rows)} rows, {counts['error_ok']} meet the criterion of error, {counts['coverage_ok']} "
        f"that of coverage, {counts['nees_ok']} that of NEES, and {counts['robust']} all three. The largest error "
        f"relative to the EKF's is {worst['ratio']:.3f} ({worst['task']}, {worst['condition']}).",
        "",
        "| filter | condition | MSE | EKF | ratio | NEES | EKF | coverage | EKF | verdict |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    names = ("mse", "mse_ekf", "ratio", "nees", "nees_ekf", "coverage95", "coverage95_ekf")
    for row in rows:
        figures = " | ".join(f"{row[name]:.4g}" for name in names)
        missed = [name.removesuffix("_ok") for name in CRITERIA if not row[name]]
        words = f"**fails: {', '.join(missed)}**" if missed else "robust"
        lines.append(f"| {row['task']} | {row['condition']} | {figures} | {words} |")
    return "\n".join([*lines, ""])
