"""A step and a training step of an FW-NKF of the paper's size, compared with a bare nn.GRU of that size.

    python benchmarks/speed.py [--quick] [--markdown FILE]

The paper's size is a GRU of 2 x 256, 3 states, 2 observations. One thread, interleaved in one process, medians; the
figure is the ratio to the bare GRU measured in the same run. Rows:

- step at batch 1, 128, 1,024: ``filter.step`` in eager mode and compiled by ``fwnkf.runtime.compiled``, against
  ``nn.GRU`` called step by step;
- training: forward and backward pass of batch 128, T = 100, in eager mode, against the bare GRU called step by step (as
  a filter must be, because its inputs depend on its outputs) and against the bare GRU on the complete sequence.

``fwnkf bench speed`` measures a stream and training as a user gets them.

The exit code is 1 if a limit is exceeded: 2.0, 1.3, 1.15 for the compiled steps, 1.3 for training. ``--quick`` measures
the eager rows only, with few rounds, and checks no limit.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from tables import write

from fwnkf.evaluation.speed import CHANNELS, HIDDEN, LAYERS, STATES, paper_size
from fwnkf.evaluation.timing import interleave
from fwnkf.runtime.compiled import compile_step

STEP_LIMITS = {1: 2.0, 128: 1.3, 1024: 1.15}
TRAINING_LIMIT = 1.3
CALLS = {1: 100, 128: 20, 1024: 4}
"""Calls per round; rounds are timed and interleaved."""


def measure_step(batch: int, rounds: int, compiled: bool) -> dict[str, float]:
    model, bare = paper_size(), torch.nn.GRU(STATES + CHANNELS, HIDDEN, LAYERS)
    inputs, hidden = torch.randn(1, batch, STATES + CHANNELS), torch.zeros(LAYERS, batch, HIDDEN)
    y, state = torch.randn(batch, CHANNELS), model.init(batch)
    with torch.no_grad():
        prepared = model.prepare()
        candidates: dict[str, Callable[[], object]] = {
            "bare": lambda: bare(inputs, hidden),
            "eager": lambda: model.step(state, y, prepared=prepared),
        }
        if compiled:
            quick_step = compile_step(model)
            candidates["compiled"] = lambda: quick_step(state, y)
        return interleave(candidates, rounds, CALLS[batch])


def measure_training(rounds: int, batch: int = 128, steps: int = 100) -> dict[str, float]:
    model, bare = paper_size(), torch.nn.GRU(STATES + CHANNELS, HIDDEN, LAYERS, batch_first=True)
    readout = torch.nn.Linear(HIDDEN, STATES)
    inputs, y = torch.randn(batch, steps, STATES + CHANNELS), torch.randn(batch, steps, CHANNELS)
    truth = torch.randn(batch, steps, STATES)

    def whole() -> None:
        bare.zero_grad()
        (readout(bare(inputs)[0]) - truth).square().mean().backward()

    def stepped() -> None:
        bare.zero_grad()
        hidden = torch.zeros(LAYERS, batch, HIDDEN)
        outputs = []
        for t in range(steps):
            out, hidden = bare(inputs[:, t : t + 1], hidden)
            outputs.append(out[:, 0])
        (readout(torch.stack(outputs, 1)) - truth).square().mean().backward()

    def filtered() -> None:
        model.zero_grad()
        (model.run(y).mean - truth).square().mean().backward()

    return interleave({"bare": stepped, "bare, one call": whole, "eager": filtered}, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--markdown", type=Path, help="write the table as a page of the documentation")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rounds = 3 if options.quick else options.rounds
    rows, held = [], True
    print(f"one thread, {rounds} interleaved rounds, medians; ratio to a bare nn.GRU({HIDDEN}) x {LAYERS}")
    for batch, limit in STEP_LIMITS.items():
        taken = measure_step(batch, rounds, compiled=not options.quick)
        ratios = {name: value / taken["bare"] for name, value in taken.items() if name != "bare"}
        row = {"what": f"step, batch {batch}", "bare_ms": 1e3 * taken["bare"], "limit": limit, **ratios}
        good = "compiled" not in ratios or ratios["compiled"] <= limit
        held, _ = held and good, rows.append(row)
        shown = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
        print(f"step, batch {batch:5}: bare {row['bare_ms']:8.3f} ms, {shown} (limit {limit})", flush=True)
    taken = measure_training(max(3, rounds // 3))
    ratio, whole = taken["eager"] / taken["bare"], taken["eager"] / taken["bare, one call"]
    held = held and (options.quick or ratio <= TRAINING_LIMIT)
    rows.append(
        {
            "what": "training step, batch 128, T = 100",
            "bare_ms": 1e3 * taken["bare"],
            "limit": TRAINING_LIMIT,
            "eager": ratio,
            "eager, against the GRU in one call": whole,
        }
    )
    print(
        f"training step, batch 128, T = 100: bare {1e3 * taken['bare']:.0f} ms, eager {ratio:.2f} "
        f"(limit {TRAINING_LIMIT}); against the bare GRU in one call {whole:.2f}"
    )
    if options.markdown:
        note = (
            "Ratios to a bare nn.GRU of the same size (2 x 256) measured in the same run, interleaved, medians. A step "
            "is compared with `nn.GRU` called step by step; training with the bare GRU stepped and in one call."
        )
        write(options.markdown, "Speed", note, rows)
    sys.exit(not (held or options.quick))


if __name__ == "__main__":
    main()
