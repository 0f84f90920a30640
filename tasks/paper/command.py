"""``python -m tasks paper``: train what is missing, keep one store of results, write the page."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fwnkf.cli.output import UsageError, print_status, say_table

if TYPE_CHECKING:
    from tasks.paper.matrix import Group, Matrix
    from tasks.paper.store import Row, Store

PAGE = Path("docs/results/paper.md")
STORE = Path("docs/results/paper")
RUNS = Path("runs/paper")
LIST_COLUMNS = ("group", "done", "failed", "changed", "open", "reason")


def add_commands(commands: Any) -> None:
    """Add the command to the runner's parser, which gives it ``--models`` and ``--json``."""
    from tasks.paper.matrix import RECIPES

    command = commands.add_parser(
        "paper",
        help="the tables of the paper: train every filter on equal terms, and write docs/results/paper.md",
        description="Trains the runs that the store does not have, and writes the page from it after every group. "
        "Can be stopped at any time, by any means, and called again.",
    )
    command.add_argument("--data", nargs="+", default=[], metavar="NAME", help="these data sets only")
    command.add_argument(
        "--only", nargs="+", default=[], metavar="PATTERN", help="recipes, or data/protocol/recipe, in order"
    )
    command.add_argument("--list", action="store_true", help="show which runs are done, failed and open")
    command.add_argument("--resume", action="store_true", help="try failed runs again too")
    command.add_argument("--page-only", action="store_true", help="write the page from the store and train nothing")
    command.add_argument("--workers", type=int, default=1, metavar="N", help="groups at a time, in processes (1)")
    command.add_argument("--ray", nargs="?", const="local", metavar="ADDRESS", help="groups as Ray tasks instead")
    command.add_argument("--runtime", action="store_true", help="time a step of each filter instead (a quiet machine)")
    command.add_argument("--recipes", type=Path, default=RECIPES, metavar="FILE", help="recipes, budget and tables")
    command.add_argument(
        "--import", dest="modules", action="append", default=[], metavar="MODULE", help="a module that registers data"
    )
    command.add_argument("--store", type=Path, default=STORE, metavar="FOLDER", help=f"rows of results ({STORE})")
    command.add_argument("--runs", type=Path, default=RUNS, help=f"folder of trained filters, for drawings ({RUNS})")
    command.add_argument("--page", type=Path, default=PAGE, metavar="FILE", help=f"where the page goes ({PAGE})")
    command.add_argument("--images", action=argparse.BooleanOptionalAction, default=True, help="draw the images too")
    command.set_defaults(run=run_paper)


def run_paper(options: argparse.Namespace) -> int:
    """Exit code 1 if a run failed."""
    from tasks.paper import matrix
    from tasks.paper.measure import runtime_rows
    from tasks.paper.store import Store

    if options.workers < 1:
        raise UsageError(f"--workers {options.workers}: at least one")
    if options.store.is_file():
        raise UsageError(f"--store {options.store} is a file: give the folder that has a file of rows for each table")
    matrix_of_runs, store = matrix.read(options.recipes, options.modules), Store(options.store)
    groups = matrix_of_runs.groups(options.data, options.only)
    if options.list:
        rows = store.rows()
        say_table(options, [_state(matrix_of_runs, rows, group) for group in groups], {n: n for n in LIST_COLUMNS})
        return 0
    code = 0
    if options.runtime:
        store.add(runtime_rows())
    elif not options.page_only:
        code = _train(options, matrix_of_runs, store, groups)
    _write_page(options, matrix_of_runs, store, images=options.images)
    return code


def _train(options: argparse.Namespace, matrix_of_runs: Matrix, store: Store, groups: Sequence[Group]) -> int:
    rows = store.rows()
    missing = [part for group in groups if (part := _missing(options, matrix_of_runs, rows, group)) is not None]
    begin, code = time.monotonic(), 0
    for number, (group, new) in enumerate(_results(options, matrix_of_runs, missing), 1):
        store.add(new)
        reasons = {row["reason"] for row in new if row["status"] == "failed"}
        code = code or int(bool(reasons))
        left = (time.monotonic() - begin) / number * (len(missing) - number)
        words = f"; failed: {'; '.join(sorted(reasons))}" if reasons else ""
        print_status(f"[{number}/{len(missing)}] {group.name}: {len(new)} rows{words}; about {_duration(left)} left")
        _write_page(options, matrix_of_runs, store, images=False)
    return code


def _missing(options: argparse.Namespace, matrix_of_runs: Matrix, rows: dict[str, Row], group: Group) -> Group | None:
    """The runs of a group that are still to be trained."""
    states = [_run_state(stored, config) for stored, config in _wanted(matrix_of_runs, rows, group)]
    wanted = {"open", "changed", *(["failed"] if options.resume else [])}
    if not wanted & set(states):
        return None
    if not group.cells:
        return group
    open_cells = tuple(cell for cell, state in zip(group.cells, states, strict=True) if state in wanted)
    tried = [
        (stored, state)
        for (stored, config), state in zip(_wanted(matrix_of_runs, rows, group), states, strict=True)
        if stored is not None and "trials" in stored and _same_grid(stored["config"], config)
    ]
    trials = tuple(tried[0][0]["trials"]) if tried else ()
    joined = next((stored["patience"] for stored, state in tried if state == "done"), None)
    return replace(group, cells=open_cells, trials=trials, patience=joined)


def _results(
    options: argparse.Namespace, matrix_of_runs: Matrix, groups: Sequence[Group]
) -> Iterator[tuple[Group, list[Row]]]:
    from tasks.paper import workers

    runs = options.runs
    if options.ray is not None:
        address = None if options.ray == "local" else options.ray
        return workers.run_ray(matrix_of_runs, groups, runs, address, print_status)
    if options.workers == 1:
        return workers.run_here(matrix_of_runs, groups, runs, print_status)
    return workers.run_local(matrix_of_runs, groups, runs, options.workers, print_status)


def _state(matrix_of_runs: Matrix, rows: dict[str, Row], group: Group) -> dict[str, Any]:
    """How many runs of a group are done, failed, done with another recipe, and open."""
    state: dict[str, Any] = {"group": group.name, "done": 0, "failed": 0, "changed": 0, "open": 0, "reason": ""}
    for stored, config in _wanted(matrix_of_runs, rows, group):
        state[_run_state(stored, config)] += 1
        if stored is not None and stored["status"] == "failed":
            state["reason"] = stored["reason"]
    return state


def _run_state(stored: Row | None, config: dict[str, Any]) -> str:
    if stored is None:
        return "open"
    if stored["status"] == "failed":
        return "failed"
    return "done" if stored["config"] == config else "changed"


def _same_grid(stored: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """Whether two configs of a run differ in nothing but the length of its training, which the grid does not see."""
    length = {"doublings": None, "change": None}

    def without_length(values: Mapping[str, Any]) -> Any:
        search = values.get("search", {})
        return {
            **values,
            "trainer": {**values["trainer"], "steps": None},
            "search": {**search, **length, "rule": {**search.get("rule", {}), "patience": None}},
        }

    return bool(without_length(stored) == without_length(config))


def _wanted(matrix_of_runs: Matrix, rows: dict[str, Row], group: Group) -> Iterator[tuple[Row | None, dict[str, Any]]]:
    """For each run of a group, or each seed of the references: its row if there is one, and its config of today."""
    if group.cells:
        for cell in group.cells:
            yield rows.get(cell.key), matrix_of_runs.row_config(cell)
        return
    stored = [row for key, row in rows.items() if key.startswith(f"{group.name}/")]
    for seed in group.seeds:
        failed = [row for row in stored if row["status"] == "failed"]
        of_seed = [row for row in stored if row.get("seed") == seed]
        yield next(iter([*of_seed, *failed]), None), matrix_of_runs.reference_config(group, seed)


def _write_page(options: argparse.Namespace, matrix_of_runs: Matrix, store: Store, *, images: bool) -> None:
    from tasks.paper.page import write

    write(options.page, matrix_of_runs, store.rows(), options.runs, images=images)


def _duration(seconds: float) -> str:
    """
    >>> _duration(40), _duration(7300)
    ('1 min', '2 h 2 min')
    """
    minutes = max(1, round(seconds / 60))
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
