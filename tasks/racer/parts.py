"""Trained filters of the task, one folder each, so that a stopped command goes on where it was.

A part is used again only if options, plan and flights are those it was trained with; delete ``.results/racer`` after a
change of the code.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fwnkf import Filter, load, save
from tasks.interface import Say
from tasks.racer.filter import Options, linear_model, on_frames
from tasks.racer.protocol import Flight, windows
from tasks.racer.training import Plan, set_level, train
from tasks.results import Score

FOLDER = Path(".results/racer")
NOTE = "part.json"
LEVEL_STRIDE = 400
"""Frames between the windows on which the level of the covariances is set."""


@dataclass(frozen=True, eq=False)
class Part:
    """A trained filter, the CPU seconds it took, and the level that its covariances were scaled with."""

    model: Filter
    seconds: float
    level: float


def part(
    name: str,
    group: Sequence[Flight],
    validation: Sequence[Flight],
    say: Say,
    *,
    options: Options | None = None,
    seed: int = 0,
    folder: Path = FOLDER,
) -> Part:
    """The filter of this name, trained now or before."""
    options, plan, place = options or Options(), Plan(), folder / name
    description: dict[str, Any] = {
        "options": dataclasses.asdict(options), "plan": dataclasses.asdict(plan), "seed": seed,
        "flights": [one.name for one in group],
    }  # fmt: skip
    note = place / NOTE
    if note.is_file():
        kept = json.loads(note.read_text(encoding="utf-8"))
        if kept["description"] == description:
            return Part(load(place), kept["seconds"], kept["level"])
    begin = time.process_time()
    model = on_frames(train(group, options, plan, seed, say, linear_model(group)))
    # the level of one flight differs from that of others more than training from new flights
    level = set_level(model, windows([*group, *validation], 96, stride=LEVEL_STRIDE))
    spent = time.process_time() - begin
    save(model, place)
    note.write_text(json.dumps({"description": description, "seconds": spent, "level": level}), encoding="utf-8")
    say(f"racer, {name}: {spent:.0f} CPU s, level {level:.3f}")
    return Part(model, spent, level)


class Scores(NamedTuple):
    """Scores by method, and the CPU seconds they took."""

    by_method: dict[str, Score]
    seconds: float


def scores(name: str, compute: Callable[[], Iterable[tuple[str, Score]]], folder: Path = FOLDER) -> Scores:
    """Scores by method, computed now or kept from before."""
    path = folder / f"{name}.json"
    if not path.is_file():
        begin = time.process_time()
        found = {method: dataclasses.asdict(score) for method, score in compute()}
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {"seconds": time.process_time() - begin, "scores": found}
        path.write_text(json.dumps(content, indent=1), encoding="utf-8")
    kept = json.loads(path.read_text(encoding="utf-8"))
    return Scores({method: Score(**values) for method, values in kept["scores"].items()}, kept["seconds"])
