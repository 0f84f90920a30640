"""What a snapshot of a stream states beside its tensors, checked before anything is made of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, get_type_hints

from torch import Tensor

from ..errors import CheckpointError, shown
from ..registry import fits
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
    times = [item[0] for item in facts["samples"][: len(facts["samples"]) - facts.get("held", 0)]]
    if not all(isinstance(time, float) and math.isfinite(time) for time in times) or times != sorted(times):
        raise CheckpointError("the snapshot: the times of its samples are not in order")


def _check_types(values: Any, hints: Mapping[str, Any]) -> None:
    if not isinstance(values, dict):
        raise CheckpointError(f"the snapshot: {shown(values)} is no mapping")
    for name, hint in hints.items():
        if name not in values or not fits(values[name], hint):
            raise CheckpointError(f"the snapshot: {name} = {shown(values.get(name))} is missing or of a wrong type")
