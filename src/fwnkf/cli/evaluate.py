"""``fwnkf evaluate``: score a trained filter on test records, optionally with the baselines."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .bench import SIMULATED, add_data_flags
from .columns import add_columns, chosen
from .output import UsageError, add_folder, add_json, add_store, read_folder, say_table, store

if TYPE_CHECKING:
    from ..data.protocols import Protocol
    from ..training.config import Experiment

REPORT_LIMIT = 1 << 24
"""Bytes of the report of a fit."""
COLUMNS = (
    "method", "mse", "mse_from_10", "rmse", "nees", "log_likelihood", "nis", "white", "coverage95", "failures",
    "flagged_steps", "seconds",
)  # fmt: skip


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "evaluate",
        help="score a trained filter on test records",
        description="A run is scored on its own test records, a filter that `fwnkf fit` wrote on the files that were "
        "held out; or on other records with --data: a folder of CSV or Parquet files, whose columns are those that the "
        "filter was fitted to unless they are named. A filter saved with fwnkf.save needs --data.",
    )
    add_folder(parser)
    add_data_flags(parser, files=True)
    parser.add_argument("--seed", type=int, help="seed of the data, with --data only (default: 0)")
    parser.add_argument("--smooth", action="store_true", help="add the filter with all measurements of each record")
    parser.add_argument("--references", action="store_true", help="add the baselines")
    add_columns(parser, state=True, topics=False)
    add_store(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Score the filter; the exit code is 1 if an estimate or covariance is not finite."""
    flags = ("protocol", "scenario", "seed")
    unused = [f"--{name}" for name in flags if getattr(options, name) is not None]
    if unused and options.data is None:
        raise UsageError(f"{', '.join(unused)} needs --data")
    if options.data is not None and not _named(options.data) and not Path(options.data).exists():
        raise UsageError(
            f"--data: invalid choice: {options.data!r} (choose from {', '.join(SIMULATED)}, FILE.yaml, or a folder of "
            "CSV or Parquet files that exists)"
        )
    folder, run_info = read_folder(options)
    from .. import load
    from ..evaluation.baselines import baselines
    from ..evaluation.evaluate import evaluate

    if run_info is not None:
        experiment = run_info.experiment
        method = str(experiment.get("name", run_info.name))
    else:
        tables = _own_tables(options)
        if tables is not None:
            return _score_tables(options, *tables)
        if options.data is None:
            raise UsageError(f"{options.folder} is a saved filter without data of its own; select records with --data")
        method, experiment = options.folder.resolve().name, {}
    if options.data is not None and not _named(options.data):
        return _score_tables(options, options.data, ())
    model = load(folder)
    protocol, labels = _from_flags(options) if options.data else _from_experiment(experiment, str(options.folder))
    if run_info is not None and options.data is None:
        check_digest(run_info.test_digest, protocol, options.folder)
    rows = [evaluate(model, protocol, method, **labels)]
    if options.smooth:  # smoothing stores matrices for each step, so fewer records at a time
        rows.append(evaluate(model, protocol, f"{method}, smoothed", batch=128, smoothed=True, **labels))
    if options.references:
        rows += baselines(protocol, scenario=labels.get("scenario", "white"))
    store(options.store, rows)
    columns = {name: name for name in COLUMNS if any(name in row for row in rows)}
    title = f"{protocol.data}, {protocol.name}, {rows[0]['records']} records, seed {protocol.seed}"
    say_table(options, rows, columns, title)
    return int(rows[0]["failures"] > 0)


def _named(data: str) -> bool:
    """Whether records are simulated, or those of an experiment file, not tables."""
    return data in SIMULATED or data.endswith((".yaml", ".yml"))


def _own_tables(options: argparse.Namespace) -> tuple[str, tuple[str, ...]] | None:
    """The folder or file of tables of a saved filter, and the files that are scored; none: all of them.

    Without ``--data`` they are those that :mod:`fwnkf.cli.fit` held out.
    """
    if options.data is not None:
        return None if _named(options.data) else (options.data, ())
    report = options.folder / "report.json"
    if not report.is_file() or report.stat().st_size > REPORT_LIMIT:
        return None
    try:
        known = json.loads(report.read_text(encoding="utf-8"))
        data, held_out, files = str(known["data"]), tuple(map(str, known["held_out_files"])), known["files"]
    except (ValueError, TypeError, KeyError, RecursionError):  # of another command
        return None
    if not Path(data).exists():
        raise UsageError(f"{data}, which the filter was fitted to, does not exist any more; name it with --data")
    return data, held_out or tuple(map(str, files))


def _score_tables(options: argparse.Namespace, data: str, only: tuple[str, ...]) -> int:
    """Score a filter on whole files."""
    from .. import load
    from ..data._survey import Columns
    from ..data.files import read_files
    from ..evaluation.files import evaluate_files
    from ..logs.results import component_names

    unused = [f"--{name}" for name in ("protocol", "scenario", "seed") if getattr(options, name) is not None]
    unused += [f"--{name}" for name in ("smooth", "references") if getattr(options, name)]
    if unused:
        raise UsageError(f"{', '.join(unused)}: not for tables, which are scored as whole files")
    folder, _ = read_folder(options)
    choice = chosen(options, folder)
    model = load(folder)
    if not choice.channels:
        names = component_names(model.observation_layout.describe())
        choice = choice.completed(type(choice)(channels=names))
    files = read_files(data, Columns.of(data, choice), only=only)
    row = evaluate_files(model, files, options.folder.resolve().name)
    store(options.store, [row])
    title = f"{data}, {row['records']} file(s)" + (" that the fit held out" if only else "")
    say_table(options, [row], {name: name for name in COLUMNS if name in row}, title)
    return int(row["failures"] > 0)


def check_digest(stored: str, protocol: Protocol, folder: Path) -> None:
    """Raise DataError if the data of a run have changed: its test records may contain former training records."""
    from ..data.protocols import digest
    from ..errors import DataError

    if stored not in (digest(protocol.split.test), digest(*protocol.split)):
        raise DataError(
            f"{folder}: the data have changed since this run was trained (their digests differ), so test records may "
            "have been used for training; restore the data, or train again"
        )


def _from_flags(options: argparse.Namespace) -> tuple[Protocol, dict[str, Any]]:
    """The records selected by the options, and the labels of a row."""
    from ..data import protocols

    labels = {"scenario": options.scenario or "white"}
    if options.data.endswith((".yaml", ".yml")):
        from ..training.experiments import read_experiment
        from ..training.setup import load_data

        overrides = [
            f"{field}={value}"
            for field, value in (("data.scenario", options.scenario), ("data.protocol", options.protocol))
            if value is not None
        ]
        overrides += [] if options.seed is None else [f"seed={options.seed}"]
        experiment = read_experiment(options.data, overrides)
        return load_data(experiment), _labels(experiment)
    return protocols.load(options.data, options.protocol or "strict", seed=options.seed or 0, **labels), labels


def _from_experiment(values: dict[str, Any], where: str) -> tuple[Protocol, dict[str, Any]]:
    """The records of a run, and the labels of a row."""
    from ..training.experiments import parse_experiment
    from ..training.setup import load_data

    experiment = parse_experiment(values, where)
    return load_data(experiment), _labels(experiment)


def _labels(experiment: Experiment) -> dict[str, Any]:
    """The noise scenario of simulated data."""
    simulated = experiment.data.name in ("lorenz", "pendulum", "simulated")
    return {"scenario": experiment.data.scenario} if simulated else {}
