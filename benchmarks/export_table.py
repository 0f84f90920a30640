"""Every filter of the conformance suite and every trained one, exported to C or ONNX and compared with itself.

    python benchmarks/export_table.py --rows FILE [--to c] [--steps 1000] [--only NAME ...] [--markdown PAGE]

One row for each filter is appended to a file of JSON lines as soon as it is there; rows that are there already are
kept, so that a run can be continued. A filter that cannot be exported has the reason in its row.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from tables import store, stored, write

import fwnkf
from fwnkf.errors import FwnkfError
from fwnkf.export.c import export_c
from fwnkf.export.onnx import export_onnx
from fwnkf.export.parity import ROUNDINGS

ROOT = Path(__file__).resolve().parents[1]


def candidates() -> Iterator[tuple[str, Callable[[], fwnkf.Filter]]]:
    """Trained filters by folder, then the small ones of the conformance suite, which has every registered filter."""
    sys.path.insert(0, str(ROOT))
    from tests.conformance.cases import CASES

    for path in sorted((ROOT / "models").glob("*/config.json")):
        yield f"models/{path.parent.name}", lambda path=path: fwnkf.load(path.parent)
    for name, case in CASES.items():
        yield name, lambda case=case: case.build(torch.float32)


def to_c(name: str, model: fwnkf.Filter, steps: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        facts = export_c(model, folder, steps=steps, measure=name.startswith("models/"))
    parity = facts["parity"]
    row = {"steps": parity["steps"], "relative error": parity["largest"], "within 1e-4": parity["ok"]}
    if "rounding" in parity:
        row["rounding"] = parity["rounding"]
    row |= {f"{part} (bytes)": size for part, size in facts["ram"].items()}
    return row | {f"flash, {target} (bytes)": size for target, size in facts["flash"].items()}


def to_onnx(name: str, model: fwnkf.Filter, steps: int) -> dict[str, object]:
    """In single precision, and in double where the two differ by more than 1e-5."""
    with tempfile.TemporaryDirectory() as folder:
        parity = export_onnx(model, folder, steps=steps)["parity"]
        row = {"steps": parity["steps"], "float32": parity["largest"], "within 1e-5": "rounding" not in parity}
        if "rounding" in parity:
            double = export_onnx(model, folder, precision="double", steps=steps)["parity"]
            row |= {"rounding": parity["rounding"], "of the order of rounding": parity["ok"]}
            row |= {"float64": double["largest"], "within 1e-9": double["ok"]}
    return row


FORMATS: dict[str, tuple[Callable[[str, fwnkf.Filter, int], dict[str, object]], str, str]] = {
    "c": (
        to_c,
        "Export to C",
        "Each filter exported with `fwnkf export --to c` in single precision, compiled by gcc and compared "
        "with the filter in float64: missing channels, NaN in them, irregular dt. The error is the largest "
        "difference of any state or output, relative to its largest value. Where it is above 1e-4, `rounding`, if "
        "measured, is how far the filter in float32 in PyTorch is from itself in float64 on the same inputs. Memory in "
        "bytes; flash is code and constants with `-Os`, for trained filters only.",
    ),
    "onnx": (
        to_onnx,
        "Export to ONNX",
        "Each filter exported with `fwnkf export --to onnx`, run in ONNX Runtime and compared with the filter "
        "in PyTorch in the same precision: missing channels, NaN in them, irregular dt. `float32` and "
        "`float64` are the largest differences of any state or output, relative to its largest value. Where "
        "single precision differs by more than 1e-5, `rounding` is how far the filter in float32 in PyTorch "
        f"is from itself in float64 on the same inputs ({ROUNDINGS} times that is of its order), and double "
        "precision is compared too.",
    ),
}
"""Of each format: how a filter is compared, and the title and note of the page."""


def export(to: str, name: str, build: Callable[[], fwnkf.Filter], steps: int) -> dict[str, object]:
    model = build()
    row: dict[str, object] = {"which": name, "filter": model.name, "states": model.layout.size}
    try:
        return {**row, "exported": True, **FORMATS[to][0](name, model, steps)}
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
    parser.add_argument("--markdown", type=Path, help="write the rows as a page of the documentation")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = {row["which"]: row for row in stored(options.rows)}
    for name, build in candidates():
        if (
            options.missing == "skip"
            or name in rows
            or name in options.skip
            or (options.only and name not in options.only)
        ):
            continue
        rows[name] = export(options.to, name, build, options.steps)
        store(options.rows, rows[name])
    if options.markdown:
        names = [name for name, _ in candidates()]
        order = [name for name in names if name in rows]
        _, title, note = FORMATS[options.to]
        if len(order) < len(names):
            note += f"\n\nNot measured: {', '.join(name for name in names if name not in rows)}."
        write(options.markdown, title, note, [rows[name] for name in order])


if __name__ == "__main__":
    main()
