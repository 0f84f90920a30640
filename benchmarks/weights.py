"""What rounded weights cost: accuracy on Lorenz, and memory, flash and instructions of the C.

    python benchmarks/weights.py models/lorenz-strict ... [--markdown docs/results/export_weights.md]

The folders are of filters for Lorenz, shipped or of ``fwnkf train lorenz``; with encoders of several sizes
(``--set filter.options.encoder.units=16``) the page shows them side by side.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from export import Generated, instructions
from tables import write

import fwnkf
from fwnkf.data import protocols
from fwnkf.evaluation.evaluate import evaluate
from fwnkf.export.c import flash
from fwnkf.export.rounding import WEIGHTS, rounded

NOTE = """
Matrices of weights as integers (`fwnkf export --to c --weights int16`), in single precision. MSE over the first test
records of Lorenz (protocol `strict`, white noise), all coordinates, and its change relative to the same filter with
float weights. Code and constants: C for a Cortex-M4F, `-Os`; instructions of a step: `-O2`, counted by QEMU.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--records", type=int, default=200, help="test records")
    parser.add_argument("--markdown", type=Path, help="write the table as a page of the documentation")
    options = parser.parse_args()
    torch.set_num_threads(1)
    protocol = protocols.simulated("lorenz", "strict", train=1, val=1, test=options.records)
    rows: list[dict[str, object]] = []
    for folder in options.folders:
        model, plain = fwnkf.load(folder), 0.0
        encoder = getattr(model.config, "encoder", None)
        for weights in WEIGHTS:
            chosen, grid = rounded(model, weights)
            error = float(evaluate(chosen, protocol, weights)["mse"])
            plain = plain or error
            with tempfile.TemporaryDirectory() as made, torch.no_grad():
                code = Generated("filter", chosen, Path(made), grid=grid)
                size, count = flash(Path(made) / "filter.c").get("Cortex-M4F"), instructions(code)
            rows.append(
                {
                    "filter": folder.as_posix(),
                    "GRU": None if encoder is None else encoder.units,
                    "weights": weights,
                    "records": options.records,
                    "MSE": error,
                    "change (%)": 100 * (error / plain - 1),
                    "constants (bytes)": code.source.constant_bytes,
                    "code and constants (bytes)": size,
                    "instructions": count,
                }
            )
            print(rows[-1], flush=True)
    if options.markdown:
        write(options.markdown, "Weights as integers", " ".join(NOTE.split()), rows)


if __name__ == "__main__":
    main()
