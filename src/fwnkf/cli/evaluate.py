"""``fwnkf evaluate``: a trained filter on test records, beside the references if wanted."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .bench import add_data_flags
from .output import UsageError, add_json, add_store, say_table, store

if TYPE_CHECKING:
    from ..data.protocols import Protocol

COLUMNS = ("method", "mse", "mse_from_10", "rmse", "nees", "nis", "coverage95", "failures", "flagged_steps", "seconds")


def add(commands: Any) -> None:
    """The command and its options."""
    parser = commands.add_parser(
        "evaluate",
        help="score a trained filter on test records",
        description="A run folder knows its data; a folder written by fwnkf.save needs --data. With --data a run is "
        "scored on other records than its own.",
    )
    parser.add_argument("folder", type=Path, metavar="RUN_OR_MODEL", help="a run folder, or a folder of a saved filter")
    add_data_flags(parser)
    parser.add_argument("--seed", type=int, help="of the data, with --data only (default: 0)")
    parser.add_argument("--which", choices=("best", "last"), help="which filter of a run (default: best)")
    parser.add_argument("--references", action="store_true", help="add the baselines")
    add_store(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Load, filter, score; fails if the filter's estimate or covariance is not finite somewhere."""
    from .. import load
    from ..evaluation.baselines import baselines
    from ..evaluation.evaluate import evaluate
    from ..evaluation.runs import is_run, read_run

    flags = ("protocol", "scenario", "seed")
    stray = [f"--{name}" for name in flags if getattr(options, name) is not None]
    if stray and options.data is None:
        raise UsageError(f"{', '.join(stray)} without --data: name the data too")
    if not options.folder.is_dir():
        raise UsageError(f"{options.folder} is no folder")
    found = read_run(options.folder) if is_run(options.folder) else None
    if found is not None:
        place, experiment = found.model_folder(options.which or "best"), found.experiment
        method = str(experiment.get("name", found.name))
    else:
        if options.which:
            raise UsageError(f"--which is for run folders; {options.folder} has no run.json")
        if options.data is None:
            raise UsageError(f"{options.folder} is no run folder, so it does not know its data: give --data")
        place, method, experiment = options.folder, options.folder.resolve().name, {}
    model = load(place)
    made, labels = _from_flags(options) if options.data else _from_experiment(experiment, str(options.folder))
    if found is not None and options.data is None:
        check_digest(found.test_digest, made, options.folder)
    rows = [evaluate(model, made, method, **labels)]
    if options.references:
        rows += baselines(made, scenario=labels.get("scenario", "white"))
    store(options.store, rows)
    columns = {name: name for name in COLUMNS if any(name in row for row in rows)}
    say_table(options, rows, columns, f"{made.data}, {made.name}, {rows[0]['records']} records, seed {made.seed}")
    return int(rows[0]["failures"] > 0)


def check_digest(stored: str, made: Protocol, where: Path) -> None:
    """Refuse to score a run on other test records than it was made for: some may have been trained on."""
    from ..data.protocols import digest
    from ..errors import DataError

    if stored not in (digest(made.split.test), digest(*made.split)):
        raise DataError(
            f"{where}: the data have changed since this run was trained (their digests differ), so its test records "
            "may be among those it was trained on; bring the old data back, or train again"
        )


def _from_flags(options: argparse.Namespace) -> tuple[Protocol, dict[str, Any]]:
    """The records that were asked for, and what a row says of them besides."""
    from ..data import protocols

    labels = {"scenario": options.scenario or "white"}
    return protocols.load(options.data, options.protocol or "strict", seed=options.seed or 0, **labels), labels


def _from_experiment(values: dict[str, Any], where: str) -> tuple[Protocol, dict[str, Any]]:
    """The records a run was trained for."""
    from ..training.experiments import parse_experiment
    from ..training.setup import load_data

    experiment = parse_experiment(values, where)
    made = load_data(experiment)
    return made, {} if made.data == "tables" else {"scenario": experiment.data.scenario}
