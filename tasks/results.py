"""What is kept beside a trained filter: one versioned schema for every task, ``results.json``."""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fwnkf.errors import CheckpointError
from fwnkf.plain import number, plain
from tasks.bootstrap import Interval, paired_ratio

FORMAT = 1
FILE = "results.json"
SIZE_LIMIT = 1 << 22
Target = float | tuple[float, float]


@dataclass(frozen=True)
class Score:
    """What one method reaches on the test records."""

    metrics: dict[str, float]
    by_recording: dict[str, float] = field(default_factory=dict)
    """The headline metric of each recording alone, for intervals over recordings."""
    cpu_seconds: float = 0.0


@dataclass(frozen=True)
class SeedScore(Score):
    """What one training run reaches, and what it took: ``cpu_seconds`` includes those of pretraining."""

    seed: int = 0
    steps: int = 0
    """Optimiser steps through the filter."""
    pretraining_steps: int = 0
    pretraining_seconds: float = 0.0


@dataclass(frozen=True)
class Results:
    """Everything that cards and tables are written from.

    ``quick`` holds the metrics of the shipped filter on the small fixed part of the test records, ``learned`` how many
    numbers were learned by kind, ``details`` whatever else a task keeps: tuned baselines, choices, tables by recording.
    """

    task: str
    protocol: str
    metric: str
    seeds: tuple[SeedScore, ...]
    baselines: dict[str, Score]
    targets: dict[str, Target]
    learned: dict[str, int]
    records: int
    quick: dict[str, float] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)

    def values(self, metric: str) -> list[float]:
        """A metric of every seed that has it."""
        return [seed.metrics[metric] for seed in self.seeds if metric in seed.metrics]

    def mean(self, metric: str) -> float:
        """Mean over seeds; a failure (NaN or infinity) is never averaged away."""
        return statistics.fmean(self.values(metric))

    def std(self, metric: str) -> float:
        """Sample standard deviation over seeds, zero for a single one."""
        values = self.values(metric)
        return statistics.stdev(values) if len(values) > 1 and all(map(math.isfinite, values)) else 0.0

    def metrics(self) -> list[str]:
        """The names of all metrics of the seeds, in order."""
        return list(dict.fromkeys(name for seed in self.seeds for name in seed.metrics))

    def by_recording(self) -> dict[str, float]:
        """The headline metric of each recording, mean over the seeds that have it."""
        values: dict[str, list[float]] = {}
        for seed in self.seeds:
            for name, value in seed.by_recording.items():
                values.setdefault(name, []).append(value)
        return {name: statistics.fmean(several) for name, several in values.items()}

    def against(self, baseline: str) -> Interval | None:
        """Our error over a baseline's on the same recordings, with a bootstrap interval; None if it is not known."""
        ours, theirs = self.by_recording(), self.baselines[baseline].by_recording
        shared = [name for name in ours if name in theirs]
        return paired_ratio(ours, theirs) if len(shared) > 1 else None


def rmse(errors: Mapping[str, Tensor], cpu_seconds: float = 0.0) -> Score:
    """The root mean square of the errors of all recordings, and of each alone.

    >>> import torch
    >>> rmse({"a": torch.tensor([3.0]), "b": torch.tensor([4.0, 5.0, 5.0])})
    Score(metrics={'rmse': 4.330127018922194}, by_recording={'a': 3.0, 'b': 4.690415759823429}, cpu_seconds=0.0)
    """
    squares = {name: error.double().square() for name, error in errors.items()}
    together = torch.cat([square.flatten() for square in squares.values()])
    each = {name: float(square.mean().sqrt()) for name, square in squares.items()}
    return Score({"rmse": float(together.mean().sqrt())}, each, cpu_seconds)


def reached(value: float, target: Target, better: str = "lower") -> bool:
    """Whether a metric meets its target: a band, or a limit from above (or below, where higher is better).

    >>> reached(0.95, (0.93, 0.97)), reached(2.0, 1.0), reached(2.0, 1.0, "higher")
    (True, False, True)
    """
    if isinstance(target, tuple):
        return target[0] <= value <= target[1]
    return value <= target if better == "lower" else value >= target


def write(folder: Path, results: Results) -> Path:
    """Write ``results.json``; NaN becomes null and infinity a word, as strict JSON has neither."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    text = json.dumps(plain({"format": FORMAT, **dataclasses.asdict(results)}), indent=1)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def read(folder: Path) -> Results:
    """The results kept beside a filter, checked field by field."""
    path = folder / FILE
    try:
        if path.stat().st_size > SIZE_LIMIT:
            raise CheckpointError(f"{path} is larger than {SIZE_LIMIT:,} bytes; no task writes that much")
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}); `python -m tasks train` writes it") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        version = content.get("format") if isinstance(content, dict) else None
        raise CheckpointError(f"{path}: format {version!r}, this version reads {FORMAT}")
    try:
        values = {field.name: content[field.name] for field in dataclasses.fields(Results)}
        values["seeds"] = tuple(SeedScore(**_score(seed)) for seed in values["seeds"])
        values["baselines"] = {name: Score(**_score(one)) for name, one in values["baselines"].items()}
        values["targets"] = {
            name: tuple(target) if isinstance(target, list) else target for name, target in values["targets"].items()
        }
        values["quick"] = _numbers(values["quick"])
        return Results(**values)
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} does not have the form this version writes ({error!r})") from error


def _score(content: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **content,
        "metrics": _numbers(content["metrics"]),
        "by_recording": _numbers(content["by_recording"]),
    }


def _numbers(content: Mapping[str, Any]) -> dict[str, float]:
    return {name: math.nan if value is None else number(value) for name, value in content.items()}


def mean_by_name(items: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of figures with the same names, such as those of each recording over seeds.

    >>> mean_by_name([{"a": 1.0}, {"a": 2.0}])
    {'a': 1.5}
    """
    return {name: statistics.fmean(item[name] for item in items) for name in items[0]}


def over_seeds(values: Sequence[float]) -> str:
    """Mean and standard deviation of a figure over seeds.

    >>> over_seeds([1.0, 2.0])
    '1.50 ± 0.50'
    """
    return plus_minus(statistics.fmean(values), statistics.pstdev(values))


SMALL = 1e-6
"""Figures below are written with an exponent."""


def plus_minus(mean: float, std: float) -> str:
    """A mean to two digits of its standard deviation, unless that is rounding.

    >>> plus_minus(0.53025, 0.00075), plus_minus(0.5, 0.0), plus_minus(1.0, 1e-16)
    ('0.53025 ± 0.00075', '0.5', '1')
    >>> plus_minus(6.2e-13, 8.6e-13)
    '6.2e-13 ± 8.6e-13'
    """
    if std <= 1e-12 * abs(mean) or not math.isfinite(std) or not math.isfinite(mean):
        return f"{mean:.4g}"
    if abs(mean) < SMALL:
        return f"{mean:.2g} ± {std:.2g}"
    digits = max(0, 1 - math.floor(math.log10(std)))
    return f"{mean:.{digits}f} ± {std:.{digits}f}"
