"""``fwnkf export``: a filter for a device."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .columns import add_columns, chosen, open_chosen
from .output import UsageError, add_folder, add_json, check_readable, read_folder, say, split_names
from .run import signal_names

if TYPE_CHECKING:
    from ..export.reference import Record
    from ..filters.base import Filter

FORMATS = ("c", "onnx", "pt2", "ros2")


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "export",
        help="write a filter as C, ONNX, pt2 or a ROS 2 package, and compare it with the filter",
        description="Writes one step of the filter, with its state as an argument, and reports its difference from the "
        "filter in PyTorch, on the samples of a log or on random ones with missing channels and irregular dt.",
    )
    add_folder(parser)
    parser.add_argument("--to", choices=FORMATS, default="c", help="format (default: c)")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where to write (default: NAME_FORMAT)")
    parser.add_argument("--name", help="name of the filter in the generated files (default: from the folder)")
    parser.add_argument(
        "--precision", choices=("float", "double"), default="float", help="arithmetic of the device (default: float)"
    )
    parser.add_argument(
        "--solve",
        metavar="FORM",
        help="form of the covariance; use square_root for float (default: that of the filter)",
    )
    parser.add_argument(
        "--outputs",
        metavar="NAMES",
        default="mean,cov,innovation,innovation_cov",
        help="results of a step, separated by commas, from mean, cov, prior_mean, prior_cov, innovation, "
        "shaped_innovation, innovation_cov (default: %(default)s)",
    )
    parser.add_argument("--steps", type=int, default=1000, help="steps of the comparison; 0 skips it (default: 1000)")
    parser.add_argument(
        "--weights",
        choices=("float", "int16", "int8"),
        default="float",
        help="--to c: store matrices of weights as integers, which takes less flash (default: float)",
    )
    parser.add_argument(
        "--joint", action="store_true", help="--to c: one filter, also where channels are independent of each other"
    )
    parser.add_argument(
        "--fixed-step",
        action="store_true",
        help="--to c: all steps have the filter's own length; the code takes no dt, and less time",
    )
    parser.add_argument("--log", type=Path, metavar="LOG", help="compare over the first samples of this log")
    parser.add_argument(
        "--stamps",
        action="store_true",
        help="--log: take the time steps from the time stamps instead of the rate of the filter",
    )
    add_columns(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Export; the exit code is 1 if the exported filter differs from the filter by more than the limit."""
    if options.steps < 0:
        raise UsageError(f"--steps {options.steps} is negative; 0 writes the files without a comparison")
    if options.log is not None:
        check_readable(options.log)
    folder, _ = read_folder(options)
    from .. import load
    from ..export.c import export_c
    from ..export.onnx import export_onnx
    from ..export.pt2 import export_pt2
    from ..export.ros2 import export_ros2
    from ..filters.factory import with_solve

    model = load(folder) if options.solve is None else with_solve(load(folder), options.solve)
    name = options.name or _identifier(options.folder.resolve().name)
    out = options.out or Path(f"{name}_{options.to}")
    outputs = split_names(options.outputs)
    signals = {item: split_names(getattr(options, item)) for item in ("channels", "controls")}
    if options.to != "ros2" and options.log is None and any(signals.values()):
        raise UsageError("--channels and --controls name signals of ROS messages or of a log: use --to ros2 or --log")
    if options.log is None and (options.stamps or options.topic or options.field or options.time):
        raise UsageError("--stamps, --time, --topic and --field are options for reading a log: they need --log")
    if options.to != "c" and options.weights != "float":
        raise UsageError(f"--weights {options.weights} needs --to c")
    formats: dict[str, Callable[..., dict[str, Any]]]
    formats = {"c": export_c, "onnx": export_onnx, "pt2": export_pt2, "ros2": export_ros2}
    more: dict[str, Any] = signals if options.to == "ros2" else {}
    if options.to == "c":
        more = {"weights": options.weights, "by_axis": not options.joint, "fixed_step": options.fixed_step}
    elif options.joint or options.fixed_step:
        raise UsageError("--joint and --fixed-step need --to c")
    more["records"] = () if options.log is None or options.steps == 0 else _records(model, options)
    facts = formats[options.to](model, out, name, options.precision, outputs, options.steps, **more)
    say(options, facts, "\n".join(_lines(facts, out)))
    return int(facts["parity"] is not None and not facts["parity"]["ok"])


def _records(model: Filter, options: argparse.Namespace) -> list[Record]:
    """The first steps of the log."""
    from ..data.log_blocks import SampleBlocks
    from ..runtime.log_records import log_records

    choice = chosen(options, options.folder)
    log = open_chosen(options.log, choice)
    blocks = SampleBlocks(log, signal_names(model, log, choice.channels, choice.controls))
    return log_records(model, blocks, options.steps, options.stamps)


def _identifier(name: str) -> str:
    cleaned = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name.lower()).strip("_")
    return cleaned if cleaned[:1].isalpha() else f"filter_{cleaned}"


def _lines(facts: dict[str, Any], out: Path) -> list[str]:
    lines = [f"{out}: {', '.join(Path(path).relative_to(out).as_posix() for path in facts['files'])}"]
    if "bytes" in facts:
        lines.append("bytes: " + ", ".join(f"{name} {size:,}" for name, size in facts["bytes"].items()))
    else:
        lines += _memory(facts)
    parity = facts["parity"]
    if parity is None:
        lines.append("not compared with the filter: --steps 0, or no C compiler found (--to c)")
        return lines
    errors = sorted(parity["relative_error"].items(), key=lambda item: -item[1])
    worst = next(name for name, _ in errors if not name.startswith("state."))
    lines.append(
        f"{'OK' if parity['ok'] else 'FAILED'}: {parity['steps']:,} steps, largest relative error of the outputs "
        f"{parity['largest']:.1e} ({worst}), limit {parity['limit']:.0e}, against {parity['reference']}; "
        f"{parity['statuses_that_differ']} statuses differ"
    )
    if parity["largest_of_state"] > parity["limit"]:
        place = next(name for name, _ in errors if name.startswith("state."))
        lines.append(
            f"the internal state differs by {parity['largest_of_state']:.1e} ({place}), which is not part of the check"
        )
    if "rounding" in parity:
        lines.append(
            f"the filter in float32 differs from float64 by {parity['rounding']:.1e}; if that is too much, use "
            "--precision double or --solve square_root"
        )
    return lines


def _memory(facts: dict[str, Any]) -> list[str]:
    ram = ", ".join(f"{name} {size:,}" for name, size in facts["ram"].items())
    flash = ", ".join(f"{size:,} ({target}, -Os)" for target, size in facts["flash"].items())
    constants = f"flash in bytes: constants {facts['constants']:,}"
    lines = [f"RAM in bytes: {ram}", constants + (f"; code and constants {flash}" if flash else "")]
    if facts.get("axes"):
        lines.insert(0, f"{len(facts['axes'])} filters by axis, which are independent: {', '.join(facts['axes'])}")
    if "cycles" in facts:
        rate = facts["rate_hz"]
        share = "" if rate is None else f", {100 * facts['cycles'] * rate / 168e6:.2g} % of 168 MHz at {rate:.4g} Hz"
        count = sum(facts["operations"].get(kind, 0) for kind in ("add", "multiply", "divide", "root"))
        lines.append(f"a step: {count:,} operations, about {facts['cycles']:,} cycles of a Cortex-M4F{share}")
    return lines + [f"warning: {warning}" for warning in facts.get("warnings", ())]
