"""Encoders of several sizes: accuracy on Lorenz and DIDO, time of a step in C, memory, flash and instructions.

    python benchmarks/sizes.py --rows FILE [--data lorenz dido] [--seeds 0 1 2] [--markdown docs/results/sizes.md]

``none`` has no encoder, ``micro`` a GRU of 16 units, ``small`` one of 64, ``paper`` two layers of 256. All are trained
alike. One row for each data set and size is appended to a file of JSON lines as soon as it is there; rows that are
there already are kept, so that a run can be continued. DIDO needs the recordings (``FWNKF_DATA``).
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from export import Compiled, Generated, instructions
from tables import store, stored, write

import fwnkf
from fwnkf.evaluation.evaluate import evaluate
from fwnkf.evaluation.timing import interleave
from fwnkf.export.c import flash
from fwnkf.export.rounding import rounded
from fwnkf.training.experiments import parse_experiment
from tasks.paper.stacked import fit_together

SIZES: dict[str, dict[str, int] | None] = {
    "none": None,
    "micro": {"units": 16},
    "small": {"units": 64},
    "paper": {"units": 256, "layers": 2},
}
EXPERIMENTS: dict[str, dict[str, Any]] = {
    "lorenz": {
        "data": {"name": "lorenz", "protocol": "strict", "train": 2000, "val": 100, "test": 1000},
        "filter": {"options": {"residual": {"width": 64, "order": 2}}},
        "trainer": {"pretrain": 2000, "steps": 150, "batch_size": 16},
    },
    "dido": {
        "data": {"name": "dido", "window": 100},
        "filter": {"options": {"noise": {"part": "lines", "shared": True, "pole_radius": 0.999}}},
        "trainer": {"steps": 150, "batch_size": 16},
    },
}
"""As the rows of the paper's tables: squared error of the state, filters of all seeds trained together. DIDO in windows
of 0.25 s, with an oscillator in each channel."""
NOTE = """
`none`: no encoder, `micro`: GRU of 16 units, `small`: 64, `paper`: two layers of 256. Every size is trained alike,
from the same linear model of the data, by the squared error of the state: Lorenz `strict` (initial state unknown, 150
steps of 16 records), DIDO in windows of 0.25 s (150 steps of 16). MSE on the test records, mean and standard
deviation over seeds, and relative to the smallest error of the data set. Change by integer weights (`fwnkf export
--to c --weights`): mean over seeds. The step was timed in C on this machine (`gcc -O3 -march=native`, single
precision), sizes of a data set in turn. Flash: code and constants for a Cortex-M4F, `-Os`; instructions: `-O2`,
counted by QEMU.
"""


def train(data: str, size: str, seeds: Sequence[int]) -> tuple[dict[str, object], fwnkf.Filter]:
    """The errors over seeds, and the filter of the first."""
    values = copy.deepcopy(EXPERIMENTS[data])
    values["filter"] |= {"name": "fwnkf", "equations": False}
    values["filter"]["options"]["encoder"] = SIZES[size]
    values["optimizer"] = {"learning_rate": 2e-3, "schedule": "one_cycle"}
    values["trainer"] |= {"threads": 1, "validate_every": 50, "loggers": []}
    named = {**values, "name": f"{data}-{size}"}
    members = fit_together([parse_experiment({**named, "seed": seed}) for seed in seeds], say=print)
    errors = [float(evaluate(member.model, member.data, size)["mse"]) for member in members]
    found: dict[str, object] = {
        "seeds": len(seeds),
        "MSE": statistics.mean(errors),
        "of the least": None,  # when all sizes are there
        "± MSE": statistics.stdev(errors) if len(errors) > 1 else None,
        "CPU s of training": statistics.mean(one.preparation_seconds + one.training_seconds for one in members),
    }
    for weights in ("int16", "int8") if SIZES[size] else ():
        changed = [
            float(evaluate(rounded(member.model, weights)[0], member.data, weights)["mse"]) / error - 1
            for member, error in zip(members, errors, strict=True)
        ]
        found[f"{weights} (%)"] = 100 * statistics.mean(changed)
    return found, members[0].model


@torch.no_grad()
def on_device(model: fwnkf.Filter, folder: Path, name: str) -> dict[str, object]:
    code = Generated(name, model, folder)
    return {
        "state (bytes)": code.source.state_bytes,
        "scratch (bytes)": code.source.scratch_bytes,
        "flash (bytes)": flash(folder / f"{name}.c").get("Cortex-M4F"),
        "instructions": instructions(code),
    }


@torch.no_grad()
def time_steps(models: dict[str, fwnkf.Filter], folder: Path) -> dict[str, float]:
    """Microseconds of a step in C."""
    calls = 50
    compiled = {name: Compiled(f"timed_{name}", model, folder) for name, model in models.items()}
    loops = {name: (lambda one=one: one.loop(calls)) for name, one in compiled.items()}
    return {name: 1e6 * value / calls for name, value in interleave(loops, 31, clock=time.process_time).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, required=True, help="file of JSON lines, continued if it is there")
    parser.add_argument("--data", nargs="+", choices=tuple(EXPERIMENTS), default=list(EXPERIMENTS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--markdown", type=Path, help="write the table as a page of the documentation")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if "dido" in options.data:
        sys.path.insert(0, str(Path(__file__).parents[1]))  # tasks is not installed with the package
        import tasks.dido  # noqa: F401  registers the data set
    rows = {(row["data"], row["size"]): row for row in stored(options.rows)}
    for data in options.data:
        for size in SIZES:
            if (data, size) in rows:
                continue
            found, model = train(data, size, options.seeds)
            with tempfile.TemporaryDirectory() as made:
                row = {"data": data, "size": size, **found, **on_device(model, Path(made), "filter")}
            fwnkf.save(model, options.rows.parent / f"{data}-{size}")
            rows[data, size] = row
            store(options.rows, row)
    if options.markdown:
        for data in options.data:
            models = {size: fwnkf.load(options.rows.parent / f"{data}-{size}") for size in SIZES}
            with tempfile.TemporaryDirectory() as made:
                times = time_steps(models, Path(made))
            least = min(rows[data, size]["MSE"] for size in SIZES)
            for size in SIZES:
                row = rows[data, size]
                row |= {"of the least": row["MSE"] / least, "µs in C": times[size]}
        write(options.markdown, "Sizes of the encoder", " ".join(NOTE.split()), list(rows.values()))


if __name__ == "__main__":
    main()
