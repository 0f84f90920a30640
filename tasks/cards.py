"""Model cards and result tables, all written from ``results.json``: no figure in them is typed in by hand."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fwnkf.data.sets import catalogue
from fwnkf.errors import DataError
from fwnkf.hub.card import metadata
from tasks.interface import Task
from tasks.results import Results, Score, Target, plus_minus, reached, read

BEGIN, END = "<!-- accuracy:begin -->", "<!-- accuracy:end -->"
HEAD = ("task", "figure", "published FW-NKF", "best baseline", "ours", "learned", "target")


def card(task: Task, results: Results) -> str:
    """The model card of a filter: ``README.md`` beside it."""
    first, wanted = results.seeds[0], _wanted(task, results)
    aim = f"; target {wanted}, {verdict(task, results)}" if wanted else ""
    lines = [
        hub_metadata(task, results),
        "",
        f"# {task.title}",
        "",
        task.about(results).strip(),
        "",
        f"- Protocol: {results.protocol}.",
        f"- Learned: {learned(results.learned)}.",
        f"- Test records: {results.records}. Seeds: {', '.join(str(seed.seed) for seed in results.seeds)}; the weights "
        f"here are those of seed {first.seed}. {cost(results)}",
        "",
        f"**{task.label}: {headline(results)}** (mean ± standard deviation over seeds{aim}).",
        "",
        *methods_table(task, results),
        "",
        *recordings_table(task, results),
        *extra_tables(results),
        "## Limits",
        "",
        task.limits(results).strip(),
        "",
        "## Reproduce",
        "",
        "```sh",
        f"{task.command}              # evaluate this filter and its baselines",
        f"{task.command.replace(' run ', ' train ')}            # train all seeds from scratch",
        "```",
        "",
        "`fwnkf.load` on this folder gives the whole filter, preprocessing included.",
        "",
    ]
    return "\n".join(lines)


def hub_metadata(task: Task, results: Results) -> str:
    """The head of the card: what a hub shows and searches. The headline metric is the mean over seeds."""
    package = type(task).__module__.split(".")[1]
    recorded = package in catalogue.list_sets()
    data = {"type": package, "name": catalogue.info(package).title if recorded else task.title}
    metric = {"type": results.metric, "name": task.label, "value": float(f"{results.mean(results.metric):.6g}")}
    measured = {"task": {"type": "state-estimation"}, "dataset": data, "metrics": [metric]}
    index = {"name": task.name, "results": [measured]}
    return metadata(licence="mit", datasets=[package] if recorded else [], index=index)


def index(tasks: Sequence[Task], models: Path) -> str:
    """The index of the shipped filters, which is part of the package: ``fwnkf list models``."""
    rows: dict[str, dict[str, Any]] = {}
    for task in tasks:
        results = read(models / task.name)
        description = json.loads((models / task.name / "config.json").read_text(encoding="utf-8"))
        rows[task.name] = {
            "title": task.title,
            "filter": description["filter"],
            "measured": task.label,
            "figure": headline(results),
        }
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"


def cost(results: Results) -> str:
    """Steps and CPU seconds of all seeds."""
    first, total = results.seeds[0], sum(seed.cpu_seconds for seed in results.seeds)
    sentence = f"Training took {total:.0f} CPU seconds for all seeds"
    if not first.steps:
        return f"{sentence}."
    sentence += f": {first.steps} optimiser steps each"
    if first.pretraining_steps:
        seconds = sum(seed.pretraining_seconds for seed in results.seeds)
        sentence += f" after {first.pretraining_steps} steps of regression"
        sentence += f", which took {seconds:.0f} of these seconds" if seconds else ""
    return f"{sentence}."


def methods_table(task: Task, results: Results) -> list[str]:
    """Baselines and ours, a column for each metric, with what was wanted of it in the last row."""
    columns = [name for name in task.columns or results.metrics() if results.values(name)]
    lines = [table_row(("method", *columns)), "|---" * (1 + len(columns)) + "|"]
    for name, score in results.baselines.items():
        lines.append(table_row((name, *(_value(score.metrics.get(column)) for column in columns))))
    ours = (plus_minus(results.mean(column), results.std(column)) for column in columns)
    lines.append(table_row((f"**ours**, {len(results.seeds)} seeds", *ours)))
    if results.targets:
        wanted = [
            target_text(results.targets[name], _direction(task, name)) if name in results.targets else ""
            for name in columns
        ]
        lines.append(table_row(("*target*", *wanted)))
    return lines


def recordings_table(task: Task, results: Results) -> list[str]:
    """The headline metric of each recording beside the baselines, and paired bootstrap intervals."""
    ours = results.by_recording()
    if len(ours) < 2 or len(ours) > 60:
        return []
    theirs = {name: score.by_recording for name, score in results.baselines.items() if score.by_recording}
    shown = ", ".join(f"{name} {interval}" for name in theirs if (interval := results.against(name)) is not None)
    lines = [f"By {task.recording} ({results.metric}):", ""]
    lines += [table_row((task.recording, "ours", *theirs)), "|---" * (2 + len(theirs)) + "|"]
    for name, value in ours.items():
        lines.append(table_row((name, _value(value), *(_value(one.get(name)) for one in theirs.values()))))
    if shown:
        lines += ["", f"Ours over each baseline, mean over {task.recording}s with a 95 % bootstrap interval: {shown}."]
    return [*lines, ""]


def extra_tables(results: Results) -> list[str]:
    """Tables a task keeps in ``details["tables"]``: title to rows to columns."""
    lines: list[str] = []
    for title, rows in results.details.get("tables", {}).items():
        columns = list(dict.fromkeys(name for one in rows.values() for name in one))
        lines += [f"{title}:", "", table_row(("", *columns)), "|---" * (1 + len(columns)) + "|"]
        lines += [table_row((name, *(_value(one.get(column)) for column in columns))) for name, one in rows.items()]
        lines.append("")
    return lines


# ---- one row for each task ------------------------------------------------------------------------------------------


def headline(results: Results) -> str:
    return plus_minus(results.mean(results.metric), results.std(results.metric))


def learned(counts: Mapping[str, int]) -> str:
    """What was learned, in words.

    >>> learned({"GRU": 1200, "constants": 3}), learned({})
    ('GRU 1,200, constants 3', 'nothing')
    """
    return ", ".join(f"{kind} {count:,}" for kind, count in counts.items() if count) or "nothing"


def target_text(target: Target, better: str) -> str:
    if isinstance(target, tuple):
        return f"{target[0]:g} to {target[1]:g}"
    return f"{'≤' if better == 'lower' else '≥'} {target:.3g}"


def _wanted(task: Task, results: Results) -> str:
    """The target of the headline metric; empty where there is none."""
    return target_text(results.targets[results.metric], task.better) if results.metric in results.targets else ""


def verdict(task: Task, results: Results) -> str:
    """Whether all targets are reached by the mean over seeds; how many are not."""
    met = [reached(results.mean(name), target, _direction(task, name)) for name, target in results.targets.items()]
    return "reached" if all(met) else f"{sum(met)} of {len(met)} targets reached"


def best_baseline(task: Task, results: Results) -> tuple[str, Score] | None:
    """The baseline with the best headline metric."""
    known = {
        name: score
        for name, score in task.report_baselines(results).items()
        if math.isfinite(score.metrics.get(results.metric, math.nan))
    }
    if not known:
        return None
    pick = min if task.better == "lower" else max
    return pick(known.items(), key=lambda item: item[1].metrics[results.metric])


def accuracy_row(task: Task, results: Results, card_path: str) -> str:
    best = best_baseline(task, results)
    wanted = _wanted(task, results)
    return table_row(
        (
            f"[`{task.name}`]({card_path})",
            f"{task.title}; {task.label}",
            task.published or "–",
            "–" if best is None else f"{best[0]} {_value(best[1].metrics[results.metric])}",
            f"**{headline(results)}**",
            learned(results.learned),
            f"{wanted}: {verdict(task, results)}" if wanted else "",
        )
    )


def accuracy_table(tasks: Sequence[Task], results: Mapping[str, Results], models: Path, beside: Path) -> str:
    """The table of some tasks; cards are linked as seen from the folder ``beside``."""
    lines = [table_row(HEAD), "|---" * len(HEAD) + "|"]
    for task in tasks:
        path = os.path.relpath(models / task.name / "README.md", beside).replace(os.sep, "/")
        lines.append(accuracy_row(task, results[task.name], path))
    return "\n".join(lines)


def insert(page: Path, text: str) -> None:
    """Put a table between the marks of a page."""
    content = page.read_text(encoding="utf-8")
    if content.count(BEGIN) != 1 or content.count(END) != 1 or content.index(BEGIN) > content.index(END):
        raise DataError(f"{page}: the table goes between the lines {BEGIN} and {END}, which must be there once each")
    head, rest = content.split(BEGIN)
    page.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{rest.split(END)[1]}", encoding="utf-8")


def table_row(cells: Sequence[object]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def _value(value: float | str | None) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return value if isinstance(value, str) else f"{value:.4g}"


def _direction(task: Task, metric: str) -> str:
    return task.better if metric == task.metric else "lower"
