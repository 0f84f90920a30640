"""``fwnkf train``: an experiment by name, from a file, or on your own tables; ends in a table, plots and a folder."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..extras import need
from .output import UsageError, add_json, say_table, store, to_json

if TYPE_CHECKING:
    from ..training.config import Experiment
    from ..training.fit import Fitted

NEWEST = "newest"
PLOTTED = 200
"""Test records behind the plots; the table counts all of them."""
COLUMNS = ("method", "mse", "mse_from_10", "rmse", "nees", "nis", "coverage95", "failures", "seconds")


def add(commands: Any) -> None:
    """The command and its options."""
    parser = commands.add_parser(
        "train",
        help="train a filter: a shipped experiment, one of your own, or your own tables",
        description="`fwnkf train lorenz` runs a shipped experiment (see `fwnkf list experiments`), "
        "`fwnkf train my.yaml` one of your own; "
        "`fwnkf train --data FOLDER --state px,py,vx,vy --observe gps_x,gps_y --time t` trains on CSV or "
        "Parquet files. Ctrl-C stops after the step; --resume goes on, to the same weights as if it had never stopped.",
    )
    parser.add_argument("experiment", nargs="?", help="the name of a shipped experiment, or a .yaml file")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="override a field; may be repeated")
    parser.add_argument("--seed", type=int, help="instead of the experiment's")
    parser.add_argument(
        "--run", dest="place", type=Path, metavar="FOLDER", help="where the run is kept (default: runs/NAME-SEED)"
    )
    parser.add_argument(
        "--resume",
        nargs="?",
        const=NEWEST,
        metavar="RUN",
        help="go on with a run; the newest unfinished one if not named",
    )
    own = parser.add_argument_group("your own data")
    own.add_argument("--data", metavar="FOLDER", help="a folder of .csv or .parquet files, or one such file")
    own.add_argument("--state", metavar="COLUMNS", help="columns that hold the true state, with commas between them")
    own.add_argument("--observe", metavar="COLUMNS", help="columns that hold the measurements")
    own.add_argument("--control", metavar="COLUMNS", help="columns that hold known inputs")
    own.add_argument("--angles", metavar="COLUMNS", help="which of the state columns are angles, in radians")
    own.add_argument("--time", metavar="COLUMN", help="the column of time stamps")
    parser.add_argument("--no-references", action="store_true", help="do not run the baselines afterwards")
    parser.add_argument("--no-plots", action="store_true", help="draw nothing")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Train, score, draw; the last line says where everything is."""
    experiment, folder = _experiment(options)
    need("lightning", extra="train")  # after the checks: it takes seconds to import
    from ..training.fit import StoppedError, fit

    first = os.environ.get("LOCAL_RANK", "0") == "0"  # the helpers of a run over several devices are silent
    tell = _tell if first else (lambda text: None)
    data = _survey(experiment, tell)
    draws = not options.no_plots and _can_draw(tell)
    tell(f"run folder: {folder}")
    command = shlex.join(["fwnkf", *options.words])
    try:
        fitted = fit(experiment, folder, resume=options.resume is not None, command=command, say=tell, data=data)
    except StoppedError:
        tell(f"stopped; the state is saved. Go on with: fwnkf train --resume {shlex.quote(str(folder))}")
        return 130
    if fitted is None:
        return 0
    rows = _score(fitted, references=not options.no_references)
    plots = _draw(fitted) if draws else []
    if options.json:
        print(to_json({"run": str(folder), "record": fitted.record, "rows": rows, "plots": [str(p) for p in plots]}))
    else:
        title = f"{fitted.data.data}, {fitted.data.name}, {rows[0]['records']} records, seed {experiment.seed}"
        say_table(options, rows, {name: name for name in COLUMNS if any(name in row for row in rows)}, title)
        if plots:
            print(f"plots: {', '.join(path.name for path in plots)} in {plots[0].parent}")
        record = fitted.record
        print(f"best filter: {folder / 'best'} (step {record['best_step']}, {record['cpu_seconds']:.0f} CPU seconds)")
    return int(rows[0]["failures"] > 0)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _can_draw(tell: Callable[[str], None]) -> bool:
    """Said before the training: a run should not be lost for want of pictures."""
    try:
        need("matplotlib.figure", extra="plot")
    except ConfigError as missing:
        tell(f"no plots: {missing}")
        return False
    return True


# ---- what to train --------------------------------------------------------------------------------------------------


def _experiment(options: argparse.Namespace) -> tuple[Experiment, Path]:
    """The checked experiment and its folder, from whatever words the call used."""
    from ..training.experiments import read_experiment

    columns = {name: getattr(options, name) for name in ("state", "observe", "control", "angles", "time")}
    if options.resume is not None and options.experiment is None and options.data is None:
        need("lightning", extra="train")
        from ..training.fit import resume_experiment

        if options.set or options.seed is not None:
            raise UsageError("--resume goes on with a run as it is: --set and --seed would make it another")
        folder = _newest(options.place) if options.resume == NEWEST else Path(options.resume)
        return resume_experiment(folder), folder
    overrides = list(options.set) + ([] if options.seed is None else [f"seed={options.seed}"])
    if options.data is not None:
        experiment = read_experiment(_own_data(options, columns), overrides)
    else:
        stray = [f"--{name}" for name, value in columns.items() if value]
        if stray:
            raise UsageError(f"{', '.join(stray)} without --data: name the folder of your tables too")
        if options.experiment is None:
            raise UsageError(
                "what to train? an experiment (see `fwnkf list experiments`), a .yaml file, or --data FOLDER"
            )
        experiment = read_experiment(options.experiment, overrides)
    named = None if options.resume in (None, NEWEST) else Path(options.resume)
    return experiment, options.place or named or Path("runs") / f"{experiment.name}-{experiment.seed}"


def _own_data(options: argparse.Namespace, columns: dict[str, str | None]) -> dict[str, Any]:
    """An experiment on tables: a file's, with these records in the place of its own, or one that does for most."""
    from ..training.experiments import read_values

    if options.experiment is not None and not str(options.experiment).endswith((".yaml", ".yml")):
        raise UsageError(f"--data and the experiment {options.experiment!r} name two sets of records: give one")
    missing = [f"--{name}" for name in ("state", "observe") if not columns[name]]
    if missing:
        raise UsageError(f"--data without {' and '.join(missing)}: name columns. {_columns_of(options.data)}")
    given: dict[str, Any] = {name: _split(value) for name, value in columns.items() if value and name != "time"}
    records = {"name": "tables", "folder": str(Path(options.data).resolve()), "time": options.time, **given}
    if options.experiment is not None:
        return {**read_values(options.experiment), "data": records}
    stem = re.sub(r"[^\w.+-]", "_", Path(options.data).resolve().stem).lstrip("._+-")
    return {
        "name": stem or "tables",
        "data": records,
        "filter": {"equations": not options.angles, "options": {} if options.angles else {"shaping": "noise"}},
        "loss": [
            {"kind": "state", "reduction": "mean"},
            {"kind": "posterior_nll", "weight": 0.1},
            {"kind": "innovation_nll", "weight": 0.1},
        ],
        "trainer": {"steps": 400, "batch_size": 32, "validate_every": 25},
    }


def _columns_of(place: str) -> str:
    """What there is to choose from, where it can be read."""
    from ..errors import DataError
    from ..logs.table import find_tables, read_table

    try:
        first = find_tables(place)[0]
        return f"{first.name} has: {', '.join(read_table(first).header)}"
    except DataError as error:
        return str(error)


def _split(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _newest(folder: Path | None) -> Path:
    """The unfinished run that was written to last."""
    from ..training.fit import RUN_FILE, read_record

    if folder is not None:
        return folder
    runs = sorted(Path("runs").glob(f"*/{RUN_FILE}"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in runs:
        if read_record(path.parent).get("status") != "done":
            return path.parent
    raise UsageError("no unfinished run in ./runs; name the folder: --resume FOLDER")


def _survey(experiment: Experiment, tell: Any) -> Any:
    """Own tables: loaded here, so that what was found in them is told before anything is trained."""
    if experiment.data.name != "tables":
        return None
    from ..training.setup import load_tables

    made, survey = load_tables(experiment)
    for line in dict.fromkeys((*survey.lines(), *made.notes)):
        tell(line)
    return made


# ---- what came of it ------------------------------------------------------------------------------------------------


def _score(fitted: Fitted, references: bool) -> list[dict[str, Any]]:
    """The trained filter and the baselines on the same test records, kept beside the run."""
    from ..evaluation.baselines import baselines
    from ..evaluation.evaluate import evaluate

    data = fitted.experiment.data
    labels: dict[str, Any] = {} if data.name == "tables" else {"scenario": data.scenario}
    rows = [evaluate(fitted.model, fitted.data, fitted.experiment.name, **labels)]
    store(fitted.folder / "rows.json", rows)
    if references:
        for row in baselines(fitted.data, scenario=data.scenario):
            rows.append(row)
            store(fitted.folder / "rows.json", rows)
    return rows


def _draw(fitted: Fitted) -> list[Path]:
    """Trajectory, error over time, NEES, what was learned about frequencies, noise levels, and the history."""
    import torch

    from ..evaluation.evaluate import inputs_for
    from ..filters.base import Filter, build
    from ..filters.diagnostics import noise_over_time
    from ..report import plots
    from ..training.checkpointing import read_history

    task = fitted.data.split.test
    task = task.take(range(min(len(task), PLOTTED)))
    filters: dict[str, Filter] = {fitted.experiment.name: fitted.model}
    if task.system is not None:
        filters["ekf with the equations" if fitted.data.data != "tables" else "linear kf"] = build(
            "ekf", system=task.system
        )
    with torch.no_grad():
        tracks = {name: model.eval().run(**inputs_for(model, task)) for name, model in filters.items()}
    pairs = {name: (track.mean, track.cov) for name, track in tracks.items()}
    figures = {
        "trajectory": plots.trajectory(task, pairs),
        "error": plots.error_over_time(task, pairs),
        "nees": plots.nees_over_time(task, pairs),
        "shaper": plots.shaper(fitted.model),
        "history": plots.history(read_history(fitted.folder)),
    }
    try:
        Q, R = noise_over_time(fitted.model, **inputs_for(fitted.model, task))
        figures["noise"] = plots.noise_over_time(Q, R, task)
    except ConfigError:  # a filter that does not condition its noise
        pass
    return plots.save_all(fitted.folder / "plots", figures)
