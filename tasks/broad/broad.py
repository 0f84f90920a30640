"""BROAD's disturbed trials: inclination without magnetometer, orientation with it; beside VQF, Madgwick and Mahony."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tasks.broad.card import heading_card, tilt_card
from tasks.broad.model import errors, estimate, filter_of, handheld, heading, with_heading
from tasks.broad.orientation import METHODS, score
from tasks.broad.protocol import TEST, TRAIN, Blocks, trials, turned_on
from tasks.broad.search import Found, heading_search, tilt_search
from tasks.results import keep

from fwnkf import checkpoint
from fwnkf.evaluation.rows import Row
from fwnkf.filters.base import Filter

TASK, HEADING_TASK = "broad", "broad-magnetometer"
TASKS = (TASK, HEADING_TASK)
METRICS = {TASK: "inclination_deg", HEADING_TASK: "orientation_deg"}
"""Without magnetometer there is no heading to score."""
ON_TIME = "_on_time"
"""VQF turned on by the delay this package has learned: what is left of the difference is the filter's."""
RIVALS = {
    TASK: ("vqf_6d", f"vqf_6d{ON_TIME}", "madgwick_6d", "mahony_6d", "tilt_6d", "gyro_6d"),
    HEADING_TASK: ("vqf_9d", f"vqf_9d{ON_TIME}", "madgwick_9d", "mahony_9d", "tilt_9d", "gyro_9d"),
}
"""The first of each is the one to beat."""
QUICK_BLOCKS = 700
SEARCH_BLOCKS = 1500
"""Of each training trial, the first two minutes: rest, then movement."""


def measure(models: Path, *, quick: bool = False, tasks: Sequence[str] = TASKS) -> Iterator[Row]:
    """Rows of the rivals and of the shipped filters: each test trial and their mean."""
    records = test_trials(quick)
    tilts = checkpoint.load(models / TASK)
    delay = _delay(tilts)
    for task in tasks:
        kept = json.loads((models / task / "figures.json").read_text(encoding="utf-8"))
        target = None
        for name in RIVALS[task][:1] if quick else RIVALS[task]:
            begin = time.process_time()
            values = rival(name, records, delay)
            yield from _rows(task, name, values, None, 0, None, begin, records)
            if name == RIVALS[task][0]:
                target = sum(values) / len(values)
        begin = time.process_time()
        values = errors(records, paths_of(task, models, tilts, records), METRICS[task])
        for row in _rows(task, "fwnkf", values, kept["std"], len(kept["seeds"]), target, begin, records):
            yield row if quick else row | {"seed_mean": kept["mean"][row["row"].split()[-1]]}


def test_trials(quick: bool) -> list[Blocks]:
    """The four test trials; quick takes the first minute of each, most of it rest."""
    records = trials(TEST)
    return [record.part(QUICK_BLOCKS) for record in records] if quick else records


def paths_of(task: str, models: Path, tilts: Filter, records: Sequence[Blocks]) -> list[Any]:
    """What the shipped filters of a task estimate; the heading stands on the tilt."""
    paths = estimate(tilts, records)
    return paths if task == TASK else with_heading(checkpoint.load(models / task), records, paths)


def rival(name: str, records: Sequence[Blocks], delay: float) -> list[float]:
    """A published filter's error on each trial: inclination, or orientation for those with magnetometer."""
    method, metric = METHODS[name.removesuffix(ON_TIME)], METRICS[HEADING_TASK if "9d" in name else TASK]
    seconds = delay if name.endswith(ON_TIME) else 0.0
    return [
        float(score(record.trial, turned_on(method(record.trial).double(), record.trial, seconds))[metric])
        for record in records
    ]


def _delay(tilts: Filter) -> float:
    return float(tilts.system.config.delay) if tilts.system is not None else 0.0


def _rows(
    task: str, method: str, values: list[float], spread: dict[str, float] | None, seeds: int, target: float | None,
    begin: float, records: list[Blocks],
) -> Iterator[Row]:  # fmt: skip
    spent = round(time.process_time() - begin, 2)
    for name, value in _named(values).items():
        whole = name == "mean"
        yield {
            "task": task,
            "row": "disturbed trials, mean" if whole else f"trial {name}",
            "method": method,
            "protocol": "strict",
            "metric": METRICS[task],
            "value": value,
            "spread": None if spread is None else spread[name],
            "seeds": seeds,
            "target": target if whole else None,
            "reached": value < target if whole and target is not None else None,
            "cpu_seconds": spent,
            "records": len(records) if whole else 1,
            "command": command(task),
        }


def command(task: str) -> str:
    return f"fwnkf bench accuracy --task {task}"


# ---- training -------------------------------------------------------------------------------------------------------


def train(
    models: Path, *, seeds: Sequence[int] = (0, 1, 2, 3, 4), say: Callable[[str], Any] = print,
    tasks: Sequence[str] = TASKS,
) -> None:  # fmt: skip
    """Search the numbers of every seed on the training trials; keep the first seed's filter, all figures, the card.

    The heading is searched on the tilt of the shipped filter, whichever seed.
    """
    practice = [record.part(SEARCH_BLOCKS) for record in trials(TRAIN)]
    if TASK in tasks:
        _train(TASK, models, practice, seeds, say)
    if HEADING_TASK in tasks:
        _train(HEADING_TASK, models, practice, seeds, say)


def _train(task: str, models: Path, practice: list[Blocks], seeds: Sequence[int], say: Callable[[str], Any]) -> None:
    folder, rate = models / task, practice[0].trial.rate
    folder.mkdir(parents=True, exist_ok=True)
    paths = estimate(checkpoint.load(models / TASK), practice) if task == HEADING_TASK else []
    kept: dict[str, Any] = {"task": task, "command": command(task), "seeds": {}}
    found: dict[int, tuple[Found, float]] = {}
    for seed in seeds:
        begin = time.process_time()
        result = heading_search(practice, paths, seed, say) if paths else tilt_search(practice, seed, say)
        found[seed] = result, round(time.process_time() - begin, 1)
        say(f"{task} seed {seed}: left out {result.left_out}")
    # the test trials are opened only now
    first = found[seeds[0]][0].numbers
    shipped = filter_of(heading(first, rate) if paths else handheld(first, rate))
    checkpoint.save(shipped, folder)
    tilts = checkpoint.load(models / TASK)
    records, quick, delay = test_trials(False), test_trials(True), _delay(tilts)
    kept["rungs"] = {name: _named(rival(name, records, delay)) for name in RIVALS[task]}
    kept["validation"] = {
        name: dict(zip(TRAIN, rival(name, practice, delay), strict=True)) for name in RIVALS[task][:2]
    }
    kept["quick"] = _named(errors(quick, paths_of(task, models, tilts, quick), METRICS[task]))
    under = estimate(tilts, records) if paths else []
    for seed, (result, spent) in found.items():
        if paths:
            path = with_heading(filter_of(heading(result.numbers, rate)), records, under)
        else:
            path = estimate(filter_of(handheld(result.numbers, rate)), records)
        kept["seeds"][str(seed)] = {
            **_named(errors(records, path, METRICS[task])),
            "left_out": dict(zip(TRAIN, result.left_out, strict=True)),
            "numbers": result.numbers,
            "cpu_seconds": spent,
        }
        say(f"{task} seed {seed}: {kept['seeds'][str(seed)]}")
    keep(folder, kept, (*TEST, "mean"), heading_card if paths else tilt_card)


def _named(values: list[float]) -> dict[str, float]:
    return {**dict(zip(TEST, values, strict=True)), "mean": sum(values) / len(values)}
