"""``fwnkf train``: train a filter on a shipped experiment, an experiment file or your own tables."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..extras import need
from . import environment
from .columns import add_columns, chosen
from .output import (
    UsageError,
    add_json,
    check_readable,
    command_line,
    is_quiet,
    print_json,
    print_status,
    print_text,
    say_table,
    split_names,
    store,
)

if TYPE_CHECKING:
    from ..training.config import Experiment
    from ..training.fit import Fitted

NEWEST = "newest"
REPORT = "report.html"
PLOTTED = 200
"""Number of test records shown in plots; the table uses all of them."""
UNTRAINED = (
    "training did not help: on the validation records the filter before training is the best one, and it is the one "
    "that was saved. More recordings, or ones with more of what is to be learned, may change that; fwnkf fit needs "
    "no true states and fewer of them."
)
TRAINED = "trained"
SIMPLER = (
    "training did not help: on the validation records the filter '{kept}' is as good as the trained one or better, so "
    "it is the one that was saved; what training reached is in 'trained' beside it. More recordings, or ones with more "
    "of what is to be learned, may change that; fwnkf fit needs no true states and fewer of them."
)
RUNGS = ("name", "learned", "mse", "worse", "worse_error", "nees", "coverage95", "kept")
COLUMNS = ("method", "mse", "mse_from_10", "rmse", "nees", "nis", "coverage95", "failures", "seconds")


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "train",
        help="train a filter on a shipped experiment, an experiment file or your own tables",
        description="`fwnkf train lorenz` runs a shipped experiment (see `fwnkf list experiments`), "
        "`fwnkf train my.yaml` one from a file; "
        "`fwnkf train --data FOLDER --state px,py,vx,vy --observe gps_x,gps_y --time t` trains on CSV or "
        "Parquet files. Ctrl-C stops after the current step; --resume continues the run, with bit-identical results.",
    )
    parser.add_argument("experiment", nargs="?", help="name of a shipped experiment, or a .yaml file")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="A.B=C",
        help="override a field of the experiment; may be repeated",
    )
    parser.add_argument("--seed", type=int, help="override the seed of the experiment")
    parser.add_argument(
        "--run",
        dest="run_folder",
        type=Path,
        metavar="FOLDER",
        help="run folder (default: NAME-SEED in $FWNKF_RUNS or runs)",
    )
    parser.add_argument(
        "--resume",
        nargs="?",
        const=NEWEST,
        metavar="RUN",
        help="resume a run (default: the newest unfinished run in $FWNKF_RUNS or runs)",
    )
    tables = parser.add_argument_group("your own data")
    tables.add_argument("--data", metavar="FOLDER", help="a folder of .csv or .parquet files, or one such file")
    tables.add_argument("--angles", metavar="COLUMNS", help="state columns that are angles, in radians")
    tables.add_argument("--system", metavar="NAME", help="equations of motion; options: --set system.OPTION=VALUE")
    add_columns(parser, state=True, topics=False)
    parser.add_argument("--no-references", action="store_true", help="do not run the baselines after training")
    parser.add_argument(
        "--no-ladder",
        action="store_true",
        help="keep the trained filter without comparing it with simpler ones on the validation records",
    )
    parser.add_argument("--no-plots", action="store_true", help="do not draw plots")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Train the filter, score it with the baselines, and draw plots."""
    if options.data is not None:
        check_readable(options.data, "; give a folder of .csv or .parquet files, or one such file")
    if str(options.experiment).endswith((".yaml", ".yml")):
        check_readable(options.experiment)
    experiment, folder = _experiment(options)
    need("lightning", extra="train")  # imported after the checks, because it takes seconds
    from ..training.fit import StoppedError, fit

    rank_zero = os.environ.get("LOCAL_RANK", "0") == "0"  # only rank 0 of a distributed run prints
    report = print_status if rank_zero else (lambda text: None)
    data = _survey(experiment, report)
    draws = not options.no_plots and _can_draw(report)
    report(f"run folder: {folder}")
    command = command_line(options)
    try:
        fitted = fit(
            experiment, folder, resume=options.resume is not None, command=command, say=report, data=data,
            progress=not is_quiet(),
        )  # fmt: skip
    except StoppedError:
        report(f"stopped; the state is saved. Resume with: fwnkf train --resume {shlex.quote(str(folder))}")
        return 130
    if fitted is None:
        return 0
    ladder = None
    if not options.no_ladder:
        from ..training.ladder import climb

        fitted, ladder = climb(fitted, report)
    _save_columns(fitted)
    rows = _score(fitted, references=not options.no_references)
    plots = _draw(fitted, rows, command) if draws else []
    if options.json:
        print_json({"run": str(folder), "record": fitted.record, "rows": rows, "plots": [str(p) for p in plots]})
    else:
        title = f"{fitted.data.data}, {fitted.data.name}, {rows[0]['records']} records, seed {experiment.seed}"
        if ladder is not None:
            tried = [{**row, "kept": "yes" if row["chosen"] else ""} for row in ladder.as_rows()]
            say_table(options, tried, {name: name for name in RUNGS}, "what was tried, on the validation records")
        say_table(options, rows, {name: name for name in COLUMNS if any(name in row for row in rows)}, title)
        if plots:
            print_text(f"plots: {', '.join(path.name for path in plots)} in {plots[0].parent}")
            print_text(f"report: {fitted.folder / REPORT}")
        record = fitted.record
        print_text(f"best filter: {folder / 'best'} (step {record['best_step']} of {record['steps']}, {_cost(record)})")
        if record["best_step"] == 0 and (ladder is None or ladder.chosen == "untrained"):
            print_text(UNTRAINED)
        elif ladder is not None and ladder.chosen != TRAINED:
            print_text(SIMPLER.format(kept=ladder.chosen))
    return int(rows[0]["failures"] > 0)


def _save_columns(fitted: Fitted) -> None:
    """The columns of tables beside the filters, so that `fwnkf run` and `fwnkf evaluate` find them."""
    from ..logs.choice import Choice

    data = fitted.experiment.data
    for name in ("best", "last") if data.name == "tables" else ():
        if (fitted.folder / name).is_dir():
            lists = {"channels": data.observe, "controls": data.control, "state": data.state}
            time = (data.time or "").partition("=")[2] or data.time
            Choice.parse(**{role: ",".join(names) for role, names in lists.items()}, time=time).save(
                fitted.folder / name
            )


def _cost(record: dict[str, Any]) -> str:
    """The CPU seconds of a run, and which of them went into what precedes its steps."""
    parts = {"pretraining": "preparation_seconds", "compilation": "compilation_seconds"}
    spent = [f"{record[name]:.0f} for {what}" for what, name in parts.items() if record.get(name, 0.0) >= 0.5]
    return f"{record['cpu_seconds']:.0f} CPU seconds" + (f", of which {' and '.join(spent)}" if spent else "")


def _can_draw(report: Callable[[str], None]) -> bool:
    """Whether matplotlib is installed; checked before training, so that a missing extra is reported early."""
    try:
        need("matplotlib.figure", extra="plot")
    except ConfigError as missing:
        report(f"no plots: {missing}")
        return False
    return True


# ---- the experiment -------------------------------------------------------------------------------------------------


def _experiment(options: argparse.Namespace) -> tuple[Experiment, Path]:
    """The checked experiment and its run folder, from the command-line options."""
    from ..training.experiments import read_experiment

    if options.resume is not None and options.experiment is None and options.data is None:
        need("lightning", extra="train")
        from ..training.fit import resume_experiment

        if options.set or options.seed is not None:
            raise UsageError("--resume continues a run unchanged; --set and --seed cannot be combined with it")
        folder = _newest(options.run_folder) if options.resume == NEWEST else Path(options.resume)
        return resume_experiment(folder), folder
    overrides = list(options.set) + ([] if options.seed is None else [f"seed={options.seed}"])
    if options.data is not None:
        experiment = read_experiment(_own_data(options), overrides)
    else:
        given = ("state", "channels", "controls", "angles", "time", "field", "system")
        unused = [f"--{name}" for name in given if getattr(options, name)]
        if unused:
            raise UsageError(f"{', '.join(unused)} needs --data, the folder of your tables")
        if options.experiment is None:
            raise UsageError(
                "nothing to train: give an experiment (see `fwnkf list experiments`), a .yaml file or --data FOLDER"
            )
        experiment = read_experiment(options.experiment, overrides)
    resumed = None if options.resume in (None, NEWEST) else Path(options.resume)
    return experiment, options.run_folder or resumed or environment.runs() / f"{experiment.name}-{experiment.seed}"


def _own_data(options: argparse.Namespace) -> dict[str, Any]:
    """The values of an experiment on tables: from a file, with its data section replaced, or the default one."""
    from ..data._survey import Columns
    from ..training.experiments import read_values

    if options.experiment is not None and not str(options.experiment).endswith((".yaml", ".yml")):
        raise UsageError(
            f"--data cannot be combined with the shipped experiment {options.experiment!r}; use a .yaml file"
        )
    missing = [name for name, value in (("--state", options.state), ("--observe", options.channels)) if not value]
    if missing:
        raise UsageError(f"--data needs {' and '.join(missing)}. {_columns_of(options.data)}")
    values = {} if options.experiment is None else read_values(options.experiment)
    columns = Columns.of(options.data, chosen(options))
    defined = {name: str(pick) for name, pick in columns.picks.items()}
    records: dict[str, Any] = {"name": "tables", "folder": str(Path(options.data).resolve())}
    records |= {"time": columns.time and defined.get(columns.time, columns.time)}
    for name in ("state", "observe", "control"):
        listed = tuple(defined.get(column, column) for column in getattr(columns, name))
        records |= {name: listed} if listed else {}
    records |= {"angles": split_names(options.angles)} if options.angles else {}
    system = {} if options.system is None else {"system": {"name": options.system}}
    if options.experiment is not None:
        return {**values, "data": records, **system}
    from ..native.compilers import compiler_available

    # a system of the user's own, or a linear model of the data; the noise around it has a spectrum
    equations = options.system is not None or not options.angles
    coloured = {"residual": {"width": 64}, "noise": {"part": "lines", "shared": True, "pole_radius": 0.999}}
    learned = {"transition": {"rank": 1}, "phi": {"sections": 1}}
    stem = re.sub(r"[^\w.+-]", "_", Path(options.data).resolve().stem).lstrip("._+-")
    return {
        "name": stem or "tables",
        "data": records,
        **system,
        "filter": {
            "equations": equations,
            "noise_from_spectrum": equations,
            "options": {"encoder": {"units": 64}, **(coloured if equations else learned)},
        },
        "loss": [
            {"kind": "state", "reduction": "mean"},
            {"kind": "posterior_nll", "weight": 0.1},
            {"kind": "innovation_nll", "weight": 0.1},
        ],
        "trainer": {
            "steps": 120,
            "batch_size": 32,
            "validate_every": 20,
            "patience": 4,
            "compile": options.system is None and compiler_available(),  # of own equations nothing is known
        },
    }


def _columns_of(folder: str) -> str:
    """The columns of the first table, or the reason why it cannot be read."""
    from ..errors import DataError
    from ..logs.table import find_tables, read_table

    try:
        first = find_tables(folder)[0]
        return f"Columns of {first.name}: {', '.join(read_table(first).header)}"
    except DataError as error:
        return str(error)


def _newest(folder: Path | None) -> Path:
    """The unfinished run that was modified last."""
    from ..training.fit import RUN_FILE, read_record

    if folder is not None:
        return folder
    runs = sorted(environment.runs().glob(f"*/{RUN_FILE}"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in runs:
        if read_record(path.parent).get("status") != "done":
            return path.parent
    raise UsageError(f"no unfinished run in {environment.runs()}; give the folder: --resume FOLDER")


def _survey(experiment: Experiment, report: Any) -> Any:
    """Load tables and print their survey before training; None for simulated data."""
    if experiment.data.name != "tables":
        return None
    from ..training.setup import load_tables

    protocol, survey = load_tables(experiment)
    for line in dict.fromkeys((*survey.lines(), *protocol.notes)):
        report(line)
    return protocol


# ---- results --------------------------------------------------------------------------------------------------------


def _score(fitted: Fitted, references: bool) -> list[dict[str, Any]]:
    """Rows of the trained filter and the baselines on the same test records, written to ``rows.json`` of the run."""
    from ..evaluation.baselines import baselines
    from ..evaluation.evaluate import evaluate

    data = fitted.experiment.data
    simulated = data.name in ("lorenz", "pendulum", "simulated")
    labels: dict[str, Any] = {"scenario": data.scenario} if simulated else {}
    rows = [evaluate(fitted.model, fitted.data, fitted.experiment.name, **labels)]
    store(fitted.folder / "rows.json", rows)
    if references:
        for row in baselines(fitted.data, scenario=data.scenario):
            rows.append(row)
            store(fitted.folder / "rows.json", rows)
    return rows


def _draw(fitted: Fitted, rows: list[dict[str, Any]], command: str) -> list[Path]:
    """Draw trajectory, error, NEES, frequency response, noise over time and training history, and write the report."""
    import torch

    from ..evaluation.evaluate import inputs_for
    from ..filters.base import Filter
    from ..filters.diagnostics import noise_over_time
    from ..filters.factory import build
    from ..report import plots
    from ..report.run_pages import training_page
    from ..training.checkpointing import read_history

    records = fitted.data.split.test
    records = records.take(range(min(len(records), PLOTTED)))
    filters: dict[str, Filter] = {fitted.experiment.name: fitted.model}
    if records.system is not None:
        linear = fitted.data.data == "tables" and fitted.experiment.system is None
        filters["linear kf" if linear else "ekf with the equations"] = build("ekf", system=records.system)
    with torch.no_grad():
        tracks = {name: model.eval().run(**inputs_for(model, records)) for name, model in filters.items()}
    pairs = {name: (track.mean, track.cov) for name, track in tracks.items()}
    figures = {
        "trajectory": plots.trajectory(records, pairs),
        "error": plots.error_over_time(records, pairs),
        "nees": plots.nees_over_time(records, pairs),
        "shaper": plots.shaper(fitted.model),
        "history": plots.history(read_history(fitted.folder)),
    }
    try:
        Q, R = noise_over_time(fitted.model, **inputs_for(fitted.model, records))
        figures["noise"] = plots.noise_over_time(Q, R, records)
    except ConfigError:  # the filter does not condition its noise
        pass
    paths = plots.save_all(fitted.folder / "plots", figures)
    facts = {name: value for name, value in fitted.record.items() if isinstance(value, str | int | float)}
    training_page(fitted.experiment.name, rows, figures, facts, command).save(fitted.folder / REPORT)
    return paths
