"""Every filter of the conformance suite and every trained one, exported to C or ONNX and compared with itself.

    python benchmarks/export_table.py --rows FILE [--to c] [--steps 1000] [--only NAME ...] [--markdown PAGE]
    python benchmarks/export_table.py --recorded --rows FILE ...

One row for each filter is appended to a file of JSON lines as soon as it is there; rows that are there already are
kept, so that a run can be continued. A filter that cannot be exported has the reason in its row. With ``--recorded``
the trained filters are compared over the test records of their tasks (FWNKF_DATA), by default over drawn inputs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from tables import store, stored, write

import fwnkf
from fwnkf.errors import ConfigError, FwnkfError
from fwnkf.export.c import export_c
from fwnkf.export.onnx import export_onnx
from fwnkf.export.parity import ROUNDINGS
from fwnkf.export.reference import MASKED, Record
from fwnkf.filters.factory import with_solve

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))


def candidates() -> Iterator[tuple[str, Callable[[], fwnkf.Filter]]]:
    """Trained filters by folder, then the small ones of the conformance suite, which has every registered filter."""
    from tests.conformance.cases import CASES

    for path in sorted((ROOT / "models").glob("*/config.json")):
        yield f"models/{path.parent.name}", lambda path=path: fwnkf.load(path.parent)
    for name, case in CASES.items():
        yield name, lambda case=case: case.build(torch.float32)


class EnoughError(Exception):
    """The inputs of enough steps have been taken."""


def task_records(name: str, model: fwnkf.Filter, steps: int) -> list[Record]:
    """The records that a task evaluates its filter on, enough for ``steps`` steps, with more channels missing."""
    from tasks.interface import all_tasks

    records: list[Record] = []
    generator = torch.Generator().manual_seed(0)
    run, task = fwnkf.Filter.run, all_tasks()[name.removeprefix("models/")]

    def row(item: Any, i: int, axes: int) -> Any:
        """One of a batch, or what all have in common."""
        return item[i] if item.ndim > axes else item

    def take(self: fwnkf.Filter, y: Any, u: Any = None, mask: Any = None, dt: Any = None, **more: Any) -> Any:
        if self.input_sizes != model.input_sizes:  # a filter that the trained one is compared with, or built upon
            return run(self, y, u, mask, dt, **more)
        shown = torch.rand(y.shape, generator=generator) >= MASKED
        shown &= torch.ones_like(shown) if mask is None else mask.bool()
        prior = more.get("prior")
        for i in range(len(y)):
            begin = None if prior is None else fwnkf.Gaussian(row(prior.mean, i, 1), row(prior.cov, i, 2))
            records.append(Record(y[i], shown[i], *(None if item is None else item[i] for item in (u, dt)), begin))
            if sum(len(record.y) for record in records) >= steps * model.input_sizes.block:
                raise EnoughError
        return run(self, y, u, mask, dt, **more)

    data = task.load()
    fwnkf.Filter.run = take  # type: ignore[method-assign]
    try:
        task.evaluate(model, data)
    except EnoughError:
        pass
    finally:
        fwnkf.Filter.run = run  # type: ignore[method-assign]
    return records


def to_c(name: str, model: fwnkf.Filter, steps: int, records: Sequence[Record]) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        facts = export_c(model, folder, steps=steps, measure=name.startswith("models/"), records=records)
    parity = facts["parity"]
    row = {"steps": parity["steps"], "relative error": parity["largest"], "within 1e-4": parity["ok"]}
    row["state"] = parity["largest_of_state"]
    if "rounding" in parity:
        row["rounding"] = parity["rounding"]
        row["square root"] = square_root(model, steps, records)
    row |= {f"{part} (bytes)": size for part, size in facts["ram"].items()}
    return row | {f"flash, {target} (bytes)": size for target, size in facts["flash"].items()}


def square_root(model: fwnkf.Filter, steps: int, records: Sequence[Record]) -> float | None:
    """The error with the covariance in that form; None for a filter that has it already or cannot have it."""
    if getattr(model.config, "solve", "square_root") == "square_root":
        return None
    with tempfile.TemporaryDirectory() as folder:
        try:
            other = with_solve(model, "square_root")
            return float(export_c(other, folder, steps=steps, measure=False, records=records)["parity"]["largest"])
        except ConfigError:
            return None


def to_onnx(name: str, model: fwnkf.Filter, steps: int, records: Sequence[Record]) -> dict[str, object]:
    """In single precision, and in double where the two differ by more than 1e-5."""
    with tempfile.TemporaryDirectory() as folder:
        parity = export_onnx(model, folder, steps=steps, records=records)["parity"]
        row = {"steps": parity["steps"], "float32": parity["largest"], "within 1e-5": "rounding" not in parity}
        if "rounding" in parity:
            double = export_onnx(model, folder, precision="double", steps=steps, records=records)["parity"]
            row |= {"rounding": parity["rounding"], "of the order of rounding": parity["ok"]}
            row |= {"float64": double["largest"], "within 1e-9": double["ok"]}
    return row


FORMATS: dict[str, tuple[Callable[..., dict[str, object]], str, str]] = {
    "c": (
        to_c,
        "Export to C",
        "Each filter exported with `fwnkf export --to c` in single precision, compiled by gcc and compared "
        "with the filter in float64. {inputs}The error is the largest difference of any output, relative to its "
        "largest value; `state` is that of the state, in which hypotheses that have no weight any more may be "
        "anywhere; where it is blank, the error is that of both. Where the error is above 1e-4, `rounding`, if "
        "measured, is how far the filter in float32 in PyTorch is from itself in float64 on the same inputs, and "
        "`square root` is the error with `--solve square_root`, for filters that have that form. Memory in "
        "bytes; flash is code and constants with `-Os`, for trained filters only.",
    ),
    "onnx": (
        to_onnx,
        "Export to ONNX",
        "Each filter exported with `fwnkf export --to onnx`, run in ONNX Runtime and compared with the filter "
        "in PyTorch in the same precision. {inputs}`float32` and "
        "`float64` are the largest differences of any output, relative to its largest value. Where "
        "single precision differs by more than 1e-5, `rounding` is how far the filter in float32 in PyTorch "
        f"is from itself in float64 on the same inputs ({ROUNDINGS} times that is of its order), and double "
        "precision is compared too.",
    ),
}
"""Of each format: how a filter is compared, and the title and note of the page."""
DRAWN = (
    "Measurements are drawn around the predictions of the filter, with missing channels, NaN in them and irregular dt. "
)
RECORDED = (
    "Inputs are the test records of the task of each filter, with a fifth of the channels missing; the filter starts "
    "anew with each record, from the prior that the task gives, if any. "
)


def export(
    to: str, name: str, build: Callable[[], fwnkf.Filter], steps: int, recorded: bool = False
) -> dict[str, object]:
    model = build()
    row: dict[str, object] = {"which": name, "filter": model.name, "states": model.layout.size}
    try:
        records = task_records(name, model, steps) if recorded else ()
        return {**row, "exported": True, **FORMATS[to][0](name, model, steps, records)}
    except FwnkfError as error:
        return {**row, "exported": False, "reason": str(error)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, required=True, help="file of JSON lines, continued if it is there")
    parser.add_argument("--to", choices=FORMATS, default="c", help="the format")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--only", nargs="*", default=[], help="names of the filters; all by default")
    parser.add_argument("--skip", nargs="*", default=[], help="names of filters to leave out")
    parser.add_argument("--missing", choices=("export", "skip"), default="export", help="filters without a row")
    parser.add_argument("--recorded", action="store_true", help="trained filters over the test records of their tasks")
    parser.add_argument("--markdown", type=Path, help="write the rows as a page of the documentation")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = {row["which"]: row for row in stored(options.rows)}
    wanted = {name: build for name, build in candidates() if not options.recorded or name.startswith("models/")}
    for name, build in wanted.items():
        if (
            options.missing == "skip"
            or name in rows
            or name in options.skip
            or (options.only and name not in options.only)
        ):
            continue
        rows[name] = export(options.to, name, build, options.steps, options.recorded)
        store(options.rows, rows[name])
    if options.markdown:
        order = [name for name in wanted if name in rows]
        _, title, note = FORMATS[options.to]
        note = note.format(inputs=RECORDED if options.recorded else DRAWN)
        title += ", on recordings" if options.recorded else ""
        if len(order) < len(wanted):
            note += f"\n\nNot measured: {', '.join(name for name in wanted if name not in rows)}."
        write(options.markdown, title, note, [rows[name] for name in order])


if __name__ == "__main__":
    main()
