"""``fwnkf evaluate``: score a trained filter on test records, optionally with the baselines."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .bench import add_data_flags
from .output import UsageError, add_folder, add_json, add_store, read_folder, say_table, store

if TYPE_CHECKING:
    from ..data.protocols import Protocol
    from ..training.config import Experiment

COLUMNS = ("method", "mse", "mse_from_10", "rmse", "nees", "nis", "coverage95", "failures", "flagged_steps", "seconds")


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "evaluate",
        help="score a trained filter on test records",
        description="A run is scored on its own test records, or on other records with --data. A filter saved with "
        "fwnkf.save has no records of its own and needs --data.",
    )
    add_folder(parser)
    add_data_flags(parser, files=True)
    parser.add_argument("--seed", type=int, help="seed of the data, with --data only (default: 0)")
    parser.add_argument("--smooth", action="store_true", help="add the filter with all measurements of each record")
    parser.add_argument("--references", action="store_true", help="add the baselines")
    add_store(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Score the filter; the exit code is 1 if an estimate or covariance is not finite."""
    from .. import load
    from ..evaluation.baselines import baselines
    from ..evaluation.evaluate import evaluate

    flags = ("protocol", "scenario", "seed")
    unused = [f"--{name}" for name in flags if getattr(options, name) is not None]
    if unused and options.data is None:
        raise UsageError(f"{', '.join(unused)} needs --data")
    folder, run_info = read_folder(options)
    if run_info is not None:
        experiment = run_info.experiment
        method = str(experiment.get("name", run_info.name))
    else:
        if options.data is None:
            raise UsageError(f"{options.folder} is a saved filter without data of its own; select records with --data")
        method, experiment = options.folder.resolve().name, {}
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
