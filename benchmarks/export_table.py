"""Every filter of the conformance suite and every trained one, exported to C and compared with itself in float64.

    python benchmarks/export_table.py --rows FILE [--steps 1000] [--only NAME ...] [--markdown docs/results/export.md]

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

ROOT = Path(__file__).resolve().parents[1]


def candidates() -> Iterator[tuple[str, Callable[[], fwnkf.Filter]]]:
    """Trained filters by folder, then the small ones of the conformance suite, which has every registered filter."""
    sys.path.insert(0, str(ROOT))
    from tests.conformance.cases import CASES

    for path in sorted((ROOT / "models").glob("*/config.json")):
        yield f"models/{path.parent.name}", lambda path=path: fwnkf.load(path.parent)
    for name, case in CASES.items():
        yield name, lambda case=case: case.build(torch.float32)


def export(name: str, build: Callable[[], fwnkf.Filter], steps: int) -> dict[str, object]:
    model = build()
    row: dict[str, object] = {"which": name, "filter": model.name, "states": model.layout.size}
    try:
        with tempfile.TemporaryDirectory() as folder:
            facts = export_c(model, folder, steps=steps, measure=name.startswith("models/"))
    except FwnkfError as error:
        return {**row, "exported": False, "reason": str(error)}
    parity = facts["parity"]
    row |= {
        "exported": True,
        "steps": parity["steps"],
        "relative error": parity["largest"],
        "within 1e-4": parity["ok"],
    }
    row |= {f"{part} (bytes)": size for part, size in facts["ram"].items()}
    return {**row, **{f"flash, {target} (bytes)": size for target, size in facts["flash"].items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, required=True, help="file of JSON lines, continued if it is there")
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
        rows[name] = export(name, build, options.steps)
        store(options.rows, rows[name])
    if options.markdown:
        order = [name for name, _ in candidates() if name in rows]
        note = (
            "Each filter exported with `fwnkf export --to c` in single precision, compiled by gcc and compared with "
            "the filter in float64: missing channels, NaN in them, irregular dt. The error is the largest difference "
            "of any state or output, relative to its largest value. Memory in bytes; flash is code and constants with "
            "`-Os`, for trained filters only."
        )
        write(options.markdown, "Export to C", note, [rows[name] for name in order])


if __name__ == "__main__":
    main()
