"""``python -m tasks``: list, run and train the tasks, and write their cards and tables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fwnkf import load
from fwnkf.cli.main import run_command
from fwnkf.cli.output import UsageError, add_json, add_store, be_quiet, print_status, say_table, store, to_json
from fwnkf.hub.index import INDEX, models_folder
from tasks import cards, results
from tasks.encoder import command as encoder
from tasks.ins_gnss import command as navigation
from tasks.interface import SEEDS, Task, all_tasks, chosen, data_sets, parse_seeds
from tasks.paper import command as paper
from tasks.results import Results, Score, reached
from tasks.when import command as when

MODELS = Path("models")
COLUMNS = ("task", "method", "metric", "value", "mean", "spread", "target", "reached")
Row = dict[str, Any]


def parser() -> argparse.ArgumentParser:
    """Every command with its options."""
    top = argparse.ArgumentParser(prog="python -m tasks", description="Benchmarks of the fwnkf filters.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    listing = commands.add_parser("list", help="tasks by name")
    listing.set_defaults(run=list_tasks)
    for name, function, text in (
        ("references", references, "baselines on the test records; no trained filter is needed"),
        ("run", run, "the shipped filters and their baselines on the test records"),
        ("train", train, "train from scratch: minutes for each seed"),
        ("fit", fit_without_truth, "fit to training recordings without their truth, beside the filter trained with it"),
        ("card", write_cards, "write the cards again from results.json, and the index of fwnkf list models"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("tasks", nargs="*", metavar="TASK", help="tasks or data sets by name; all if not given")
        command.set_defaults(run=function)
        if name == "fit":
            command.add_argument("--markdown", type=Path, metavar="FILE", help="write the table as a page too")
            add_store(command)
        if name in ("references", "run"):
            command.add_argument("--quick", action="store_true", help="a small fixed part of the test records")
            command.add_argument("--markdown", type=Path, metavar="FILE", help="write the table as a page too")
            add_store(command)
        if name == "references":
            command.add_argument("--stored", action="store_true", help="the figures kept in results.json, not measured")
        if name == "train":
            command.add_argument("--seeds", default=",".join(map(str, SEEDS)), help="default: 0,1,2,3,4")
    accuracy = commands.add_parser("accuracy", help="write the table of docs/results/accuracy.md")
    accuracy.add_argument("--page", type=Path, default=Path("docs/results/accuracy.md"))
    accuracy.set_defaults(run=write_table)
    for package in data_sets().values():
        if hasattr(package, "add_commands"):
            package.add_commands(commands)
    paper.add_commands(commands)
    encoder.add_commands(commands)
    when.add_commands(commands)
    for command in commands.choices.values():
        command.add_argument("--models", type=Path, default=MODELS, help="where trained filters are kept (models)")
        add_json(command)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; exit codes are those of ``fwnkf``."""

    def command() -> int:
        options = parser().parse_args(arguments)
        be_quiet(options.quiet)
        code: int = options.run(options)
        return code

    return run_command("tasks", command)


def say(text: str) -> None:
    """Progress goes to standard error, so that standard output holds the result alone."""
    print_status(text)


# ---- commands -------------------------------------------------------------------------------------------------------


def list_tasks(options: argparse.Namespace) -> int:
    rows = [
        {"task": task.name, "data": name, "title": task.title, "metric": task.metric}
        for name, package in data_sets().items()
        for task in package.TASKS
    ]
    say_table(options, rows, {name: name for name in ("task", "data", "title", "metric")})
    return 0


def references(options: argparse.Namespace) -> int:
    """Rows of the baselines alone."""
    rows: list[Row] = []
    for task in chosen(options.tasks):
        kept = results.read(options.models / task.name) if (options.models / task.name).is_dir() else None
        if options.stored and kept is not None:
            rows += [row for name, score in kept.baselines.items() for row in rows_of(task, name, score)]
            continue
        for name, score in task.baselines(task.load(quick=options.quick), kept):
            rows += rows_of(task, name, score)
            say(f"{task.name}, {name}: {task.metric} {score.metrics.get(task.metric, float('nan')):.4g}")
            store(options.store, rows)
    return finish(options, rows, "references")


def run(options: argparse.Namespace) -> int:
    """Rows of baselines and shipped filters; fails if a filter misses one of its targets."""
    rows: list[Row] = []
    if options.tasks == [navigation.NAME]:  # a study of its own: no trained filter, and rows of many kinds
        return navigation.run()
    for task in chosen(options.tasks):
        for row in measure(task, options.models, quick=options.quick):
            rows.append(row)
            store(options.store, rows)
    return finish(options, rows, "run")


def measure(task: Task, models: Path, *, quick: bool = False) -> list[Row]:
    """The rows of one task: baselines first, then the shipped filter, with spread and targets where they apply."""
    folder = models / task.name
    if not folder.is_dir():
        raise UsageError(f"{folder} does not exist; trained filters come with the source, or name their --models")
    kept, data = results.read(folder), task.load(quick=quick)
    baselines: dict[str, Score] = {}
    rows: list[Row] = []
    for name, score in task.baselines(data, kept):
        baselines[name] = score
        rows += rows_of(task, name, score)
        say(f"{task.name}, {name}: {task.metric} {score.metrics.get(task.metric, float('nan')):.4g}")
    score = task.evaluate(load(folder), data)
    score.metrics.update(task.compare(score, baselines))
    say(f"{task.name}, ours: {task.metric} {score.metrics.get(task.metric, float('nan')):.4g}")
    return rows + rows_of(task, "ours", score, None if quick else kept)


def train(options: argparse.Namespace) -> int:
    for task in chosen(options.tasks):
        folder = options.models / task.name
        kept = task.train(folder, seeds=parse_seeds(options.seeds), say=say)
        results.write(folder, kept)
        write_card(task, folder, kept)
        say(f"{task.name}: {task.metric} {cards.headline(kept)}; {folder}")
    write_index(options.models)
    return 0


def fit_without_truth(options: argparse.Namespace) -> int:
    """Rows of filters fitted without truth, each beside the mean over seeds of the filter trained with it."""
    rows: list[Row] = []
    for task in chosen(options.tasks):
        if not task.fits_without_truth:
            continue
        kept, data = results.read(options.models / task.name), task.load()
        mean = {metric: kept.mean(metric) for metric in kept.seeds[0].metrics}
        mean |= task.innovation_metrics(load(options.models / task.name), data)
        rows += rows_of(task, "trained with truth", Score(mean, {}, kept.seeds[0].cpu_seconds))
        for name in task.fit_baselines:
            rows += rows_of(task, name, kept.baselines[name])
        rows += rows_of(task, "fitted without truth", task.fit_without_truth(data, kept, say=say))
        store(options.store, rows)
    return finish(options, rows, "fit")


def write_cards(options: argparse.Namespace) -> int:
    for task in chosen(options.tasks):
        folder = options.models / task.name
        write_card(task, folder, results.read(folder))
        say(f"{folder / 'README.md'}")
    write_index(options.models)
    return 0


def write_table(options: argparse.Namespace) -> int:
    """All tasks with every metric on the results page."""
    known = all_tasks()
    kept = {name: results.read(options.models / name) for name in known}
    cards.insert(options.page, cards.accuracy_table(list(known.values()), kept, options.models, options.page.parent))
    if options.json:
        print(to_json([{"task": name, "mean": one.mean(one.metric)} for name, one in kept.items()]))
    return 0


# ---- rows -----------------------------------------------------------------------------------------------------------


def write_card(task: Task, folder: Path, kept: Results) -> None:
    (folder / "README.md").write_text(cards.card(task, kept), encoding="utf-8")


def write_index(models: Path) -> None:
    """Write the index in the package, for the filters that are shipped: other folders have none."""
    if models.resolve() == models_folder():
        INDEX.write_text(cards.index(list(all_tasks().values()), models), encoding="utf-8")


def rows_of(task: Task, method: str, score: Score, kept: Results | None = None) -> list[Row]:
    """One row for each metric of a method; ``kept`` adds mean and spread over seeds, targets and verdicts."""
    rows = []
    for metric, value in score.metrics.items():
        row: Row = {
            "task": task.name, "protocol": task.protocol, "method": method, "metric": metric, "value": value,
            "cpu_seconds": round(score.cpu_seconds, 2), "command": task.command,
        }  # fmt: skip
        if kept is not None:
            target = kept.targets.get(metric)
            better = task.better if metric == task.metric else "lower"
            known = bool(kept.values(metric))
            row |= {
                "mean": kept.mean(metric) if known else None,
                "spread": kept.std(metric) if known else None,
                "seeds": [seed.seed for seed in kept.seeds],
                "target": target,
                "reached": None if target is None else reached(value, target, better),
                "learned": kept.learned,
                "records": kept.records,
            }
        rows.append(row)
    return rows


def finish(options: argparse.Namespace, rows: list[Row], name: str) -> int:
    """Print the rows, write the page, and fail if a target was missed."""
    if options.markdown is not None:
        options.markdown.parent.mkdir(parents=True, exist_ok=True)
        options.markdown.write_text(page(rows, name, options), encoding="utf-8")
    say_table(options, rows, {column: column for column in COLUMNS})
    return int(any(row.get("reached") is False for row in rows))


def page(rows: Sequence[Row], name: str, options: argparse.Namespace) -> str:
    """The rows as Markdown, one table for each task: methods down, metrics across.

    A page of fits keeps the sections of tasks that were not run: each takes minutes.
    """
    flags = [f"--{flag}" for flag in ("quick", "stored") if getattr(options, flag, False)]
    words = " ".join(["python -m tasks", name, *([] if name == "fit" else options.tasks), *flags])
    title = {"references": "Baselines", "fit": "Recordings fitted without truth"}.get(name, "Accuracy, measured anew")
    written = f"Written by `{words}`." if name != "fit" else f"Written by `{words} [TASK]`, one section for each task."
    sections = sections_of(options.markdown) if name == "fit" else {}
    for task in dict.fromkeys(row["task"] for row in rows):
        note = all_tasks()[task].fit_note if name == "fit" else ""
        sections[task] = section([row for row in rows if row["task"] == task], note)
    return "\n".join([f"# {title}", "", written, "", *sections.values()])


def section(rows: Sequence[Row], note: str = "") -> str:
    """The table of one task, with its protocol."""
    metrics = list(dict.fromkeys(row["metric"] for row in rows))
    lines = [f"## {rows[0]['task']}", "", f"Protocol: {rows[0]['protocol']}.", ""]
    if note:
        lines += [note, ""]
    lines += [cards.table_row(("method", *metrics)), "|---" * (1 + len(metrics)) + "|"]
    for method in dict.fromkeys(row["method"] for row in rows):
        values = {row["metric"]: row["value"] for row in rows if row["method"] == method}
        shown = (f"{values[metric]:.4g}" if metric in values else "" for metric in metrics)
        lines.append(cards.table_row((method, *shown)))
    return "\n".join([*lines, ""])


def sections_of(path: Path) -> dict[str, str]:
    """The sections of a page by task; none if there is no page yet."""
    if not path.is_file():
        return {}
    parts = path.read_text(encoding="utf-8").split("\n## ")[1:]
    return {part.split("\n", 1)[0]: f"## {part.rstrip()}\n" for part in parts}


if __name__ == "__main__":
    sys.exit(main())
