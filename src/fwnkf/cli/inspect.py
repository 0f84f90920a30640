"""``fwnkf inspect``: what a filter has learned about frequencies and noise."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .output import UsageError, add_json, say, table


def add(commands: Any) -> None:
    """The command and its options."""
    parser = commands.add_parser(
        "inspect",
        help="what a filter has learned: poles and zeros, spectra, noise over time",
        description="Of a run folder also Q_t and R_t over its test records.",
    )
    parser.add_argument("folder", type=Path, metavar="RUN_OR_MODEL", help="a run folder, or a folder of a saved filter")
    parser.add_argument("--which", choices=("best", "last"), help="which filter of a run (default: best)")
    parser.add_argument(
        "--plots", type=Path, metavar="FOLDER", help="draw Bode magnitude, group delay, poles, Q_t and R_t"
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Facts first; plots if asked for."""
    from .. import load
    from ..evaluation.runs import is_run, read_run
    from ..report import plots
    from ..report.inspect import inspect

    if not options.folder.is_dir():
        raise UsageError(f"{options.folder} is no folder")
    found = read_run(options.folder) if is_run(options.folder) else None
    if found is None and options.which:
        raise UsageError(f"--which is for run folders; {options.folder} has no run.json")
    model = load(options.folder if found is None else found.model_folder(options.which or "best"))
    facts = inspect(model)
    figures: dict[str, Any] = {}
    if found is not None:
        facts["noise_over_time"], figure = _noise(
            model, found.experiment, str(options.folder), options.plots is not None
        )
        figures["noise"] = figure
    if options.plots is not None:
        figures["shaper"] = plots.shaper(model)
        drawn = [str(path) for path in plots.save_all(options.plots, figures)]
        facts["plots"] = drawn or "nothing to draw: no shaping was learned, and a bare filter has no records to run on"
    say(options, facts, "\n".join(_lines(facts)))
    return 0


def _noise(model: Any, experiment: dict[str, Any], where: str, draw: bool) -> tuple[dict[str, Any] | None, Any]:
    """Standard deviations of Q_t and R_t over the run's test records: median, least and greatest of each coordinate."""
    from ..errors import ConfigError
    from ..evaluation.evaluate import inputs_for
    from ..filters.diagnostics import noise_over_time
    from ..report import plots
    from ..training.experiments import parse_experiment
    from ..training.setup import load_data

    task = load_data(parse_experiment(experiment, where)).split.test
    task = task.take(range(min(len(task), 200)))
    try:
        Q, R = noise_over_time(model, **inputs_for(model, task))
    except ConfigError:
        return None, None
    told = {}
    for name, values in (("Q", Q.sqrt()), ("R", R.sqrt())):
        flat = values.flatten(0, 1)
        told[name] = {
            "median": flat.median(0).values.tolist(),
            "min": flat.amin(0).tolist(),
            "max": flat.amax(0).tolist(),
        }
    return told, plots.noise_over_time(Q, R, task) if draw else None


def _lines(facts: dict[str, Any]) -> list[str]:
    """The facts as a person reads them: short ones as they are, lists of mappings as tables, curves left out."""
    lines = []
    for name, value in facts.items():
        if isinstance(value, dict):
            lines += [f"{name}:", *(f"  {line}" for line in _lines(value))]
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            simple = [key for key, item in value[0].items() if not isinstance(item, list | dict)]
            lines += (
                [f"{name}:", *(f"  {line}" for line in table(value, {key: key for key in simple}))] if simple else []
            )
            for item in value:
                nested = {key: inner for key, inner in item.items() if isinstance(inner, list | dict)}
                lines += [f"  {line}" for line in _lines(nested)]
        elif isinstance(value, list) and len(value) > 12:
            lines.append(f"{name}: {len(value)} values (--json)")
        else:
            lines.append(f"{name}: {value}")
    return lines
