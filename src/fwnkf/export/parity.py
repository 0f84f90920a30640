"""How far an exported filter is from the filter in float64."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
import torch

from ..types import Status
from .reference import Sample
from .trace import StepProgram

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}
"""Largest difference from the filter in float64, relative to the largest value of each output."""


class Exported(Protocol):
    """An exported filter that can be called here."""

    program: StepProgram

    def advance(self, method: str, inputs: dict[str, torch.Tensor]) -> int:
        """Call ``update`` or ``step``; returns the status."""

    def values(self) -> dict[str, Any]:
        """The state after the call, as ``state.NAME``, and its outputs by name."""


def compare(exported: Exported, samples: Iterable[Sample]) -> dict[str, Any]:
    """Largest differences in state and outputs, relative to the largest value of each, and the statuses that differ."""
    program = exported.program
    outputs = [field.name for field in program.step.outputs[len(program.state) : -1] if field.size]
    error: dict[str, float] = {}
    size: dict[str, float] = {}
    count = statuses = 0
    for sample in samples:
        status = exported.advance("step" if count else "update", sample.inputs)
        count += 1
        # float32 loses precision where the reference in float64 does not, and says so
        statuses += (status ^ int(sample.out.status)) & ~int(Status.PRECISION_LOST) != 0
        found = exported.values()
        wanted = {f"state.{name}": leaf for name, leaf in sample.state if leaf.numel()}
        for name, leaf in [*wanted.items(), *((name, getattr(sample.out, name)) for name in outputs)]:
            expected = leaf.double().numpy().reshape(-1)
            difference = float(np.abs(np.array(found[name], np.float64).reshape(-1) - expected).max())
            error[name] = max(error.get(name, 0.0), difference if difference == difference else float("inf"))
            size[name] = max(size.get(name, 0.0), float(np.abs(expected).max()))
    relative = {name: error[name] / (size[name] or 1.0) for name in error}
    worst, limit = max(relative.values()), TOLERANCE[program.model.dtype]
    return {
        "steps": count,
        "relative_error": relative,
        "largest": worst,
        "limit": limit,
        "statuses_that_differ": statuses,
        "ok": worst <= limit and statuses == 0,
    }
