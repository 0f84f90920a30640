"""Time of a filter of the paper's size (GRU 2 x 256, 3 states, 2 observations), as a ratio to a bare ``nn.GRU``.

The bare GRU is called step by step, as a filter must be, because its inputs depend on its outputs. Both are measured in
the same run, interleaved, in processor time of one thread; ratios of medians.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from ..filters.base import Filter
from ..filters.fwnkf import FrequencyWeightedNeuralKalmanFilter
from ..filters.parts import GRU, LocallyLinear, Phi
from ..runtime.stream import Stream
from ..systems.learned import LearnedSystem
from .timing import interleave

STATES, CHANNELS, HIDDEN, LAYERS = 3, 2, 256, 2
STREAM_LIMITS = {1: 1.0, 32: 1.3, 128: 1.1, 1024: 1.0}
CALLS = {1: 100, 32: 40, 128: 20, 1024: 4}
"""Calls per round; rounds are timed and interleaved."""
TRAINING_LIMIT = 1.15
CHECKPOINT_LIMIT = 2.0
"""A second forward pass, and a call in Python for each tensor that is saved."""
COMPILED = ", compile: true"
MEMORY_LIMIT = 2.0
"""Gigabytes for the gradient of 2,000 steps of 32 records."""


class SpeedRow(NamedTuple):
    """One case: its ratio, the largest that is wanted, and the time or size behind it."""

    case: str
    ratio: float
    limit: float
    value: float
    """Seconds of the filter, or gigabytes."""
    bare: float
    """Seconds of the bare GRU, or the gigabytes that are allowed."""


def paper_size() -> Filter:
    """An untrained FW-NKF of the paper's size."""
    system = LearnedSystem.of(H=torch.eye(CHANNELS, STATES))
    encoder, transition = GRU(HIDDEN, LAYERS), LocallyLinear(1)
    return FrequencyWeightedNeuralKalmanFilter(system, encoder=encoder, transition=transition, phi=Phi())


def stepped_gru(batch: int) -> Callable[[], object]:
    """A step of a bare GRU of this size."""
    bare = torch.nn.GRU(STATES + CHANNELS, HIDDEN, LAYERS)
    inputs, hidden = torch.randn(1, batch, STATES + CHANNELS), torch.zeros(LAYERS, batch, HIDDEN)

    def step() -> object:
        with torch.no_grad():
            return bare(inputs, hidden)

    return step


def _compiled_advance(model: Filter) -> Any:
    return torch.compile(model.advance, fullgraph=True, dynamic=False)


def stream_row(batch: int, rounds: int) -> SpeedRow:
    """``Stream.step`` from NumPy to NumPy, with its health check, compiled."""
    stream = Stream(paper_size(), streams=None if batch == 1 else batch, compiled=True)
    y = np.random.default_rng(0).standard_normal(CHANNELS if batch == 1 else (batch, CHANNELS))
    taken = interleave(
        {"bare": stepped_gru(batch), "ours": lambda: stream.step(y).mean}, rounds, CALLS[batch], time.process_time
    )
    limit = STREAM_LIMITS[batch]
    return SpeedRow(f"Stream.step, batch {batch}", taken["ours"] / taken["bare"], limit, taken["ours"], taken["bare"])


def training_row(rounds: int, batch: int = 128, steps: int = 100, compiled: bool = False) -> SpeedRow:
    """Forward and backward pass of a training step: in eager mode, which is the default, or with ``compile: true``."""
    model, bare = paper_size(), torch.nn.GRU(STATES + CHANNELS, HIDDEN, LAYERS)
    readout = torch.nn.Linear(HIDDEN, STATES)
    inputs, y = torch.randn(steps, batch, STATES + CHANNELS), torch.randn(batch, steps, CHANNELS)
    truth = torch.randn(batch, steps, STATES)
    advance = _compiled_advance(model) if compiled else None

    def stepped() -> None:
        bare.zero_grad()
        hidden, outputs = torch.zeros(LAYERS, batch, HIDDEN), []
        for row in inputs:
            out, hidden = bare(row.unsqueeze(0), hidden)
            outputs.append(out[0])
        (readout(torch.stack(outputs, 1)) - truth).square().mean().backward()

    def filtered() -> None:
        model.zero_grad()
        (model.run(y, advance=advance).mean - truth).square().mean().backward()

    taken = interleave({"bare": stepped, "ours": filtered}, rounds, clock=time.process_time)
    ratio = taken["ours"] / taken["bare"]
    case = f"training, batch {batch}, T={steps}" + COMPILED * compiled
    return SpeedRow(case, ratio, TRAINING_LIMIT, taken["ours"], taken["bare"])


def memory_row(batch: int = 32, steps: int = 2000, checkpoint: int = 50) -> SpeedRow:
    """Largest memory of the process after the gradient of long records with checkpointing."""
    import resource  # not on Windows

    model, y = paper_size(), torch.randn(batch, steps, CHANNELS)
    model.run(y, checkpoint=checkpoint).mean.square().mean().backward()
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kilobytes elsewhere
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
    case = f"memory of training in GB, batch {batch}, T={steps}, checkpoint={checkpoint}"
    return SpeedRow(case, used / MEMORY_LIMIT, 1.0, used, MEMORY_LIMIT)


def checkpoint_row(
    rounds: int, batch: int = 32, steps: int = 100, checkpoint: int = 50, compiled: bool = False
) -> SpeedRow:
    """What checkpointing costs in time: a forward and a backward pass with it, relative to those without."""
    model, y = paper_size(), torch.randn(batch, steps, CHANNELS)
    advance = _compiled_advance(model) if compiled else None

    def gradient(every: int | None) -> None:
        model.zero_grad()
        model.run(y, checkpoint=every, advance=advance).mean.square().mean().backward()

    candidates = {"bare": lambda: gradient(None), "ours": lambda: gradient(checkpoint)}
    taken = interleave(candidates, rounds, clock=time.process_time)
    case = f"training with checkpoint={checkpoint} / without, batch {batch}, T={steps}" + COMPILED * compiled
    return SpeedRow(case, taken["ours"] / taken["bare"], CHECKPOINT_LIMIT, taken["ours"], taken["bare"])


def speed_rows(rounds: int = 30) -> Iterator[SpeedRow]:
    """All cases; the step is compiled for each batch size, which takes about a minute each."""
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield memory_row()  # first, before compilation takes memory
        for batch in STREAM_LIMITS:
            yield stream_row(batch, rounds)
        yield training_row(rounds)
        yield training_row(rounds, compiled=True)
        yield checkpoint_row(rounds)
        yield checkpoint_row(rounds, compiled=True)
    finally:
        torch.set_num_threads(threads)
