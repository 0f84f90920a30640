"""``fwnkf fit``: learn noise, constants and coloured noise of a system from tables without true states."""

from __future__ import annotations

import argparse
import json
import math
import signal
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..extras import need
from .columns import add_columns, chosen
from .output import UsageError, add_json, check_readable, print_status, say, split_names, to_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..core.system import System
    from ..data.files import WholeFiles
    from ..filters.base import Filter
    from ..identify.parts import Parts

HELD_OUT = 0.2


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "fit",
        help="learn Q, R, constants and coloured noise of a system from tables without true states",
        description="`fwnkf fit FOLDER --system constant_velocity --set dims=1 --observe gps_x --time t -o my_filter` "
        "maximises the likelihood of the innovations, writes a filter (for `fwnkf.load` and `fwnkf inspect`) and "
        "report.json, and names parameters that the data do not determine. `fwnkf fit my.yaml -o my_filter` fits the "
        "system of an experiment to its training records. Ctrl-C ends the fit and keeps the best parameters so far.",
    )
    parser.add_argument("data", help="a folder of .csv or .parquet files, one such file, or an experiment (.yaml)")
    parser.add_argument("--system", help="name of the system (see `fwnkf list systems`)")
    parser.add_argument(
        "--motion",
        choices=["polynomial"],
        help="instead of --system: fit the equations of motion too, by regression on the states that --state names, or "
        "without --state on the measurements, each of which is then a coordinate with a velocity",
    )
    parser.add_argument(
        "--degree",
        default="auto",
        metavar="N",
        help="with --motion: degree of the polynomials, several with commas, or auto (default: the one with the least "
        "error on held-out files)",
    )
    parser.add_argument(
        "--threshold",
        metavar="SHARE",
        help="with --motion and --state: leave out terms that contribute less than this share of a step, or auto",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="A=B",
        help="an option of the system, or of the experiment; may be repeated",
    )
    parser.add_argument(
        "--learn",
        metavar="NAMES",
        default="Q,R,oscillators",
        help="Q, R, oscillators, constants, or constants of the system by name (default: %(default)s)",
    )
    parser.add_argument(
        "--oscillators",
        default="auto",
        metavar="N",
        help="oscillators per channel, or auto (default: as many as held-out records support)",
    )
    parser.add_argument(
        "--held-out",
        type=float,
        default=HELD_OUT,
        metavar="SHARE",
        help="share of the files that are held out to test the fit (default: %(default)s)",
    )
    parser.add_argument(
        "--encoder",
        type=int,
        nargs="?",
        const=16,
        metavar="HIDDEN",
        help="after the fit, train an encoder of HIDDEN units (default: %(const)s) that varies Q and R over time; it "
        "is used if the held-out files gain (extra: train)",
    )
    parser.add_argument(
        "--encoder-steps",
        type=int,
        default=400,
        metavar="N",
        help="training steps of the encoder (default: %(default)s)",
    )
    parser.add_argument(
        "--fleet",
        type=int,
        nargs="?",
        const=64,
        metavar="RECORDS",
        help="evaluate the likelihood in parts of RECORDS files (default: %(const)s), for those of many devices",
    )
    parser.add_argument(
        "--workers", type=int, metavar="N", help="with --fleet: parts side by side by N processes of Ray (extra: scale)"
    )
    parser.add_argument("--address", metavar="ADDRESS", help="with --fleet: parts on a Ray cluster")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="folder of the filter")
    add_columns(parser, state=True, topics=False)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Read the tables, fit, and write filter and report."""
    check_readable(options.data, "; give a folder of .csv or .parquet files, one such file, or an experiment (.yaml)")
    from ..checkpoint import check_writable
    from ..identify import fit

    check_writable(options.output)
    if options.motion is not None:
        return _motion(options)
    if options.degree != "auto" or options.threshold is not None:
        raise UsageError("--degree and --threshold need --motion")
    system, inputs, about = (_experiment if options.data.endswith((".yaml", ".yml")) else _tables)(options)
    if options.encoder is not None:  # what it lacks is reported before the fit
        need("lightning", extra="train")
        from ..training.likelihood_fit import check, fit_encoder

        tested = len(inputs["held_out"])
        check(options.encoder, options.encoder_steps, len(inputs["y"]) - tested, tested)
    with _interruptible() as stop, _parts(options) as parts:
        result = fit(
            system.double(),
            **inputs,
            learn=split_names(options.learn),
            oscillators=_oscillators(options.oscillators),
            progress=print_status,
            stop=stop,
            parts=parts,
        )
    summary = {"data": str(Path(options.data).resolve()), **about, **result.report.as_dict()}
    lines, stopped = result.report.lines(), result.report.stopped
    _write(options.output, result.filter, summary)
    if options.encoder is not None and not stopped:
        encoder = fit_encoder(result, hidden=options.encoder, steps=options.encoder_steps, progress=print_status)
        stopped = encoder.report.stopped
        lines += encoder.report.lines()
        summary["encoder"] = encoder.report.as_dict()
        _write(options.output, encoder.filter, summary)
    say(options, summary, "\n".join((*lines, f"filter and report.json: {options.output}")))
    return 130 if stopped else 0


@contextmanager
def _parts(options: argparse.Namespace) -> Iterator[Parts | None]:
    """How the likelihood is evaluated: at once, in parts, or in parts on Ray."""
    from ..identify.parts import Parts

    distributed = options.workers is not None or options.address is not None
    if options.fleet is None:
        if distributed:
            raise UsageError("--workers and --address need --fleet")
        yield None
        return
    if options.fleet < 1 or (options.workers is not None and options.workers < 1):
        raise UsageError("--fleet and --workers: expected integers of at least 1")
    if not distributed:
        yield Parts(options.fleet)
        return
    from ..scale.fitting import RayParts

    engine = RayParts(options.workers or 1, options.address)
    try:
        yield Parts(options.fleet, engine)
    finally:
        engine.close()


def _write(folder: Path, model: Filter, summary: dict[str, Any]) -> None:
    """Save filter and report."""
    from ..checkpoint import save
    from ..logs.choice import FILE, Choice

    (save(model, folder) / "report.json").write_text(to_json(summary) + "\n", encoding="utf-8")
    if "columns" in summary:
        Choice(**summary["columns"]).save(folder)
    else:  # those of an earlier fit are others
        (folder / FILE).unlink(missing_ok=True)


DEGREES_OF_MEASUREMENTS = (1, 2, 3)
"""Degrees that ``--degree auto`` tries without states, where each takes a fit by likelihood."""


def _motion(options: argparse.Namespace) -> int:
    """Fit a motion by regression, to states or to measurements, and write filter and report."""
    from ..data._survey import Columns
    from ..data.files import read_files

    faults = {"--system": options.system, "--encoder": options.encoder is not None, "--fleet": options.fleet}
    if given := [name for name, value in faults.items() if value]:
        raise UsageError(f"{', '.join(given)}: not with --motion")
    if not options.channels:
        raise UsageError("--motion needs --observe, the columns that are measured")
    if options.threshold is not None and not options.state:
        raise UsageError("--threshold needs --state: without states no term is left out")
    choice = chosen(options)
    files = read_files(options.data, Columns.of(options.data, choice))
    for line in dict.fromkeys((*files.survey.lines(), *files.notes)):
        print_status(line)
    count = len(files.names)
    tested = min(count - 1, math.ceil(options.held_out * count))
    held_out: Any = range(count - tested, count) if tested else options.held_out
    fit_one = _from_measurements if files.truth is None else _from_states
    with _interruptible() as stop:
        model, report, lines = fit_one(options, files, held_out, stop)
    about = {"files": files.names, "held_out_files": files.names[count - tested :], "columns": asdict(choice)}
    summary = {"data": str(Path(options.data).resolve()), **about, **report}
    _write(options.output, model, summary)
    say(options, summary, "\n".join((*lines, f"filter and report.json: {options.output}")))
    return 130 if report.get("stopped") else 0


def _from_states(
    options: argparse.Namespace, files: WholeFiles, held_out: Any, stop: Callable[[], bool]
) -> tuple[Filter, dict[str, Any], list[str]]:
    from ..core.composed import ComposedSystem
    from ..filters.extended import ExtendedKalmanFilter
    from ..identify import fit_observation, fit_regression

    assert files.truth is not None
    degree: Any = "auto" if options.degree == "auto" else _numbers(options.degree, "--degree", int)
    threshold: Any = 0.0
    if options.threshold is not None:
        threshold = "auto" if options.threshold == "auto" else _numbers(options.threshold, "--threshold", float)
    found = fit_regression(files.truth, files.u, files.dt, degree=degree, threshold=threshold, held_out=held_out)
    sensor = fit_observation(files.truth, files.y, files.mask, correlated=False)
    model = ExtendedKalmanFilter(ComposedSystem(found.motion, {"measured": sensor}).double())
    return model, found.as_dict(), found.lines()


def _from_measurements(
    options: argparse.Namespace, files: WholeFiles, held_out: Any, stop: Callable[[], bool]
) -> tuple[Filter, dict[str, Any], list[str]]:
    from ..identify import constant_velocity_start, fit_regression_em

    degree = DEGREES_OF_MEASUREMENTS if options.degree == "auto" else _numbers(options.degree, "--degree", int)
    start, sensors = constant_velocity_start(files.y, files.step)
    found = fit_regression_em(
        start, sensors, files.y, files.u, files.mask, files.dt,
        known=["position"], degree=degree, held_out=held_out, progress=print_status, stop=stop,
    )  # fmt: skip
    equations = found.filter.system.motion.equations()  # type: ignore[operator,union-attr]
    report = {**found.report.as_dict(), "equations": equations}
    return found.filter, report, [*equations, *found.report.lines()]


def _numbers(text: str, option: str, kind: type[int] | type[float]) -> list[Any]:
    try:
        numbers = [kind(item) for item in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < (1 if kind is int else 0):
        raise UsageError(f"{option} {text}: expected numbers with commas, or auto")
    return numbers


def _tables(options: argparse.Namespace) -> tuple[System, dict[str, Any], dict[str, Any]]:
    """The system, the arguments of the fit, and what the report says of the data: one record for each file."""
    from ..data._survey import Columns
    from ..data.files import read_files

    given = {"--system": options.system, "--observe": options.channels}
    missing = [name for name, value in given.items() if not value]
    if missing:
        raise UsageError(f"tables need {' and '.join(missing)}; an experiment (.yaml) names its system and columns")
    choice = chosen(options)
    files = read_files(options.data, Columns.of(options.data, choice))
    for line in dict.fromkeys((*files.survey.lines(), *files.notes)):
        print_status(line)
    system = _system(options, files)
    _check(system, files)
    count = len(files.names)
    tested = min(count - 1, math.ceil(options.held_out * count))
    inputs = {
        "y": files.y,
        "u": files.u,
        "mask": files.mask,
        "dt": files.dt if system.takes_dt else None,
        "truth": files.truth,
        "held_out": range(count - tested, count),
    }
    about = {"files": files.names, "held_out_files": files.names[count - tested :], "columns": asdict(choice)}
    return system, inputs, about


def _experiment(options: argparse.Namespace) -> tuple[System, dict[str, Any], dict[str, Any]]:
    """As :func:`_tables`, from an experiment: its training records to fit, its test records held out, no truth."""
    import torch

    from ..training.experiments import read_experiment
    from ..training.setup import build_own_system, load_data
    from ..types import Gaussian

    given = [f"--{name}" for name in ("system", "channels", "controls", "time", "state") if getattr(options, name)]
    if given:
        raise UsageError(f"{', '.join(given)}: the experiment names its system and columns; use --set to change it")
    experiment = read_experiment(options.data, options.set)
    split = load_data(experiment).split
    system = build_own_system(experiment) or split.train.system
    if system is None:
        raise UsageError(f"{options.data}: the data have no system; name one in the section system")
    pair = (split.train, split.test)
    parts: dict[str, Any] = {name: torch.cat([getattr(one, name) for one in pair]) for name in ("y", "mask", "dt")}
    controls = [one.u for one in pair if one.u is not None]
    beliefs = [[item.expand(len(one), *item.shape[-k:]) for k, item in enumerate(one.start, 1)] for one in pair]
    inputs = {
        **parts,
        "dt": parts["dt"] if system.takes_dt else None,
        "u": torch.cat(controls) if controls else None,
        "prior": Gaussian(*(torch.cat(items) for items in zip(*beliefs, strict=True))),
        "held_out": range(len(split.train), len(parts["y"])),
    }
    return system, inputs, {"experiment": experiment.as_dict()}


def _oscillators(text: str) -> int | Any:
    if text == "auto":
        return text
    if not text.isdecimal():
        raise UsageError(f"--oscillators {text}: expected a number from 0 on, or auto")
    return int(text)


def _system(options: argparse.Namespace, files: WholeFiles) -> System:
    """The system by name, with its options and the step of the data unless it is given."""
    from .. import systems  # noqa: F401  declares their names
    from ..core.system import build_system
    from ..registry import SYSTEMS

    values: dict[str, Any] = {}
    for item in options.set:
        name, equals, value = item.partition("=")
        if not equals:
            raise UsageError(f"--set {item}: expected NAME=VALUE, an option of system {options.system}")
        try:
            values[name] = json.loads(value)
        except ValueError:  # text
            values[name] = value
    known = {field.name for field in fields(SYSTEMS[options.system].Config)}
    if "dt" in known:
        values.setdefault("dt", files.step)
    return build_system(options.system, values)


def _check(system: System, files: WholeFiles) -> None:
    """The sizes of system and columns, in words of the command line."""
    m, controls = system.observation_layout.size, 0 if files.u is None else files.u.shape[-1]
    if files.y.shape[-1] != m:
        raise UsageError(
            f"--observe names {files.y.shape[-1]} column(s), but the system measures {m}: "
            + ", ".join(part.name for part in system.observation_layout.parts)
        )
    if controls not in (0, system.control_dim):
        raise UsageError(f"--control names {controls} column(s), but the system takes {system.control_dim}")
    if files.truth is not None and files.truth.shape[-1] != system.layout.size:
        raise UsageError(
            f"--state names {files.truth.shape[-1]} column(s), but the state of the system has {system.layout.size}: "
            + ", ".join(f"{part.name} ({part.size})" for part in system.layout.parts)
        )


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C sets a flag that the fit asks for between iterations; the second one interrupts."""
    asked = False

    def ask(number: int, frame: Any) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        print_status("stopping after this iteration; Ctrl-C again stops at once")

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)
