"""The page of ``fwnkf bench speed``: an FW-NKF of the paper's size, compared with a bare nn.GRU of that size.

    python benchmarks/speed.py [--quick] [--rounds 30] [--markdown docs/results/speed.md]

The exit code is 1 if a limit is exceeded. ``--quick`` measures a single stream and a training step in eager mode, with
few rounds, and checks no limit.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from tables import write

from fwnkf.evaluation.speed import HIDDEN, LAYERS, speed_rows, stream_row, training_row

NOTE = f"""\
Ratios to a bare nn.GRU of the same size ({LAYERS} x {HIDDEN}) stepped in PyTorch, in the same run, interleaved,
medians of processor time (`fwnkf bench speed`). `Stream.step` takes and gives NumPy arrays, health included, compiled:
as C at batch 1, by PyTorch elsewhere. A training step is a forward and a backward pass, in eager mode or with
`compile: true`, which the shipped experiments and `fwnkf train --data` have where there is a compiler; what a step in
eager mode takes beside the GRU are some 450 small operations. With checkpointing, `bare` is the same without it.
Values are milliseconds, and gigabytes for memory."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--markdown", type=Path, help="write the table as a page of the documentation")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for row in (stream_row(1, 3), training_row(3)) if options.quick else speed_rows(options.rounds):
        unit = 1.0 if row.case.startswith("memory") else 1e3
        rows.append(
            {
                "case": row.case,
                "ratio": row.ratio,
                "limit": row.limit,
                "held": row.ratio <= row.limit,
                "value": unit * row.value,
                "bare": unit * row.bare,
            }
        )
        print(f"{row.case:60} {row.ratio:8.3f}  (at most {row.limit})", flush=True)
    if options.markdown:
        write(options.markdown, "Speed", " ".join(NOTE.split()), rows)
    sys.exit(not (options.quick or all(row["held"] for row in rows)))


if __name__ == "__main__":
    main()
