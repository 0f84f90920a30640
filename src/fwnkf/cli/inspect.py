"""``fwnkf inspect``: the learned frequency response and noise of a filter."""

from __future__ import annotations

import argparse
from typing import Any

from .output import add_folder, add_html, add_json, add_plots, command_line, read_folder, say, table


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "inspect",
        help="show what a filter has learned: poles and zeros, spectra, noise over time",
        description="For a run folder, Q_t and R_t over its test records are shown too.",
    )
    add_folder(parser)
    add_plots(parser, "Bode magnitude, group delay, poles, Q_t and R_t")
    add_html(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the facts, and draw plots with ``--plots``."""
    folder, run_info = read_folder(options)
    from .. import load
    from ..report import plots
    from ..report.inspect import inspect

    model = load(folder)
    facts = inspect(model)
    figures: dict[str, Any] = {}
    draws = options.plots is not None or options.html is not None
    if run_info is not None:
        facts["noise_over_time"], figures["noise"] = _noise(model, run_info.experiment, str(options.folder), draws)
    if draws:
        figures["shaper"] = plots.shaper(model)
    if options.html is not None:
        from ..report.run_pages import filter_page

        filter_page(options.folder.name, facts, figures, command_line(options)).save(options.html)
    if options.plots is not None:
        drawn = [str(path) for path in plots.save_all(options.plots, figures)]
        facts["plots"] = (
            drawn or "none: the filter has neither lines nor phi, and a saved filter has no records for noise over time"
        )
    say(options, facts, "\n".join(_lines(facts)))
    return 0


def _noise(model: Any, experiment: dict[str, Any], where: str, draw: bool) -> tuple[dict[str, Any] | None, Any]:
    """Median, minimum and maximum standard deviation of Q_t and R_t over the run's test records."""
    from ..errors import ConfigError
    from ..evaluation.evaluate import inputs_for
    from ..filters.diagnostics import noise_over_time
    from ..report import plots
    from ..training.experiments import parse_experiment
    from ..training.setup import load_data

    records = load_data(parse_experiment(experiment, where)).split.test
    records = records.take(range(min(len(records), 200)))
    try:
        Q, R = noise_over_time(model, **inputs_for(model, records))
    except ConfigError:
        return None, None
    ranges = {}
    for name, values in (("Q", Q.sqrt()), ("R", R.sqrt())):
        flat = values.flatten(0, 1)
        ranges[name] = {
            "median": flat.median(0).values.tolist(),
            "min": flat.amin(0).tolist(),
            "max": flat.amax(0).tolist(),
        }
    return ranges, plots.noise_over_time(Q, R, records) if draw else None


def _lines(facts: dict[str, Any]) -> list[str]:
    """The facts as text: short values on one line, lists of mappings as tables, curves left out."""
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
