"""What a snapshot of a stream states beside its tensors, checked before anything is made of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, get_type_hints

import torch
from torch import Tensor

from ..errors import CheckpointError, shown
from ..registry import fits
from .health import Monitor
from .inputs import StreamInputs
from .stepper import Options

FACTS: dict[str, Any] = {
    "options": dict[str, Any],
    "streams": int | None,
    "history": float,
    "sensors": dict[str, Any],
    "prior_at": str,
    "timed": bool | None,
    "late": int,
    "samples": list,
}
"""Types of what every snapshot states ..."""
SOME_FACTS: dict[str, Any] = {"held": int, "base": list}
"""... and of what some do."""
WITHOUT_STREAMS = ("filter", "prior.mean", "prior.cov")
"""Tensors without one row for each stream."""


def check_facts(facts: Any, tensors: Mapping[str, Tensor]) -> None:
    """Raise CheckpointError for wrong types, times that are not in order, or tensors of another number of streams."""
    _check_types(facts, FACTS)
    _check_types(facts, {name: hint for name, hint in SOME_FACTS.items() if name in facts})
    options = facts["options"]
    _check_types(options, {name: hint for name, hint in get_type_hints(Options).items() if name in options})
    streams = facts["streams"] or 1
    for name, value in tensors.items():
        if name not in WITHOUT_STREAMS and (value.ndim == 0 or len(value) != streams):
            raise CheckpointError(f"the snapshot is of {streams} stream(s), but {shown(name)} is {list(value.shape)}")
    used = len(facts["samples"]) - facts.get("held", 0)
    if not 0 <= used <= len(facts["samples"]):
        raise CheckpointError(f"the snapshot: held = {shown(facts['held'])} of {len(facts['samples'])} samples")
    times = [item[0] for item in facts["samples"][:used]]
    if "base" in facts:
        time, stamp, heard = facts["base"]
        times = [stamp, *times]
        if not isinstance(heard, float) or not isinstance(time, float) or not math.isfinite(time):
            raise CheckpointError(f"the snapshot: base = {shown(facts['base'])} is no time")
    if not all(isinstance(time, float) and math.isfinite(time) for time in times) or times != sorted(times):
        raise CheckpointError("the snapshot: the times of its samples are not in order")
    if any(after - before > options.get("longest_gap", math.inf) for before, after in pairwise(times)):
        raise CheckpointError("the snapshot: a gap between its samples is longer than its longest_gap")


def check_tensors(tensors: Mapping[str, Tensor], monitor: Monitor, inputs: StreamInputs, samples: int) -> None:
    """Raise CheckpointError unless tensors have the shapes and types of the stream's memory and samples."""
    lead = (len(monitor.excess),) if inputs.block == 1 else (len(monitor.excess), inputs.block)
    kinds = {"y": (inputs.channels, inputs.dtype), "mask": (inputs.channels, torch.bool)}
    kinds["u"] = (inputs.controls, inputs.dtype)
    wanted = {f"monitor.{name}": (value.shape, value.dtype) for name, value in monitor._asdict().items()}
    wanted["control"] = (torch.Size((*lead, inputs.controls)), inputs.dtype)
    for number in range(samples):
        wanted |= {f"{number}.{name}": (torch.Size((*lead, size)), kind) for name, (size, kind) in kinds.items()}
    for name in wanted.keys() & tensors.keys():
        shape, kind = wanted[name]
        if tensors[name].shape != shape or tensors[name].dtype != kind:
            found = f"{tensors[name].dtype} {list(tensors[name].shape)}"
            raise CheckpointError(f"the snapshot: {name} is {found}, wanted {kind} {list(shape)}")


def _check_types(values: Any, hints: Mapping[str, Any]) -> None:
    if not isinstance(values, dict):
        raise CheckpointError(f"the snapshot: {shown(values)} is no mapping")
    for name, hint in hints.items():
        if name not in values or not fits(values[name], hint):
            raise CheckpointError(f"the snapshot: {name} = {shown(values.get(name))} is missing or of a wrong type")
