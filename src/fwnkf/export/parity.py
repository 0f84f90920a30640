"""How far an exported filter is from the filter in PyTorch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from ..core.tree import named_leaves
from ..errors import DataError
from ..plain import plain
from ..types import Gaussian, Status
from . import reference
from .reference import Record, Sample
from .trace import StepProgram, state_names

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}
"""Largest difference from the filter in float64, relative to the largest value of each output."""
EAGER_TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-9}
"""The same for formats that compute with the kernels of a framework, from the filter in their own precision."""
ROUNDINGS = 4
"""Times the error of the filter in float32: that of another order of operations may be larger, and they may add up."""


@runtime_checkable
class Exported(Protocol):
    """An exported filter that can be called here."""

    program: StepProgram

    def restart(self, prior: Gaussian | None = None) -> None:
        """Start from a prior; by default from the default one."""

    def advance(self, method: str, inputs: dict[str, torch.Tensor]) -> int:
        """Call ``update`` or ``step``; returns the status."""

    def values(self) -> dict[str, Any]:
        """The state after the call, as ``state.NAME``, and its outputs by name."""


class Eager:
    """The filter itself, in the precision of its parameters."""

    def __init__(self, program: StepProgram) -> None:
        self.program = program
        self.prepared = program.model.prepare()

    def restart(self, prior: Gaussian | None = None) -> None:
        model = self.program.model
        self.state = model.init(1, None if prior is None else Gaussian(*(part.to(model.dtype) for part in prior)))

    @torch.no_grad()
    def advance(self, method: str, inputs: dict[str, torch.Tensor]) -> int:
        model = self.program.model
        given = {name: value if name == "mask" else value.to(model.dtype) for name, value in inputs.items()}
        self.state, self.out = getattr(model, method)(self.state, **given, prepared=self.prepared)
        return int(self.out.status)

    def values(self) -> dict[str, Any]:
        leaves = zip(state_names(self.state), named_leaves(self.state), strict=True)
        tensors = {f"state.{name}": leaf for name, (_, leaf) in leaves} | self.out._asdict()
        return {name: tensor.numpy() for name, tensor in tensors.items()}


def compare_eager(exported: Exported, steps: int, records: Sequence[Record] = ()) -> dict[str, Any]:
    """:func:`compare` with the filter in the precision of the export.

    Two ways to compute the same in single precision are no closer to each other than to the exact result. Where the
    limit is exceeded, the ``rounding`` of the filter itself is measured, its distance from itself in float64, and
    ``ROUNDINGS`` times that is the limit.
    """
    program, dtype = exported.program, exported.program.model.dtype
    parity = compare(exported, samples(program, steps, records, dtype), EAGER_TOLERANCE[dtype])
    parity |= {"reference": str(dtype).removeprefix("torch.")}
    if parity["ok"] or dtype == torch.float64:
        return parity
    rounding = _rounding(program, steps, records)
    limit = max(EAGER_TOLERANCE[dtype], ROUNDINGS * rounding)
    within = parity["largest"] <= limit and parity["statuses_that_differ"] == 0
    return parity | {"rounding": rounding, "limit": limit, "ok": within}


def limit_of(program: StepProgram, parity: dict[str, Any] | None) -> float:
    """The limit of a comparison with the filter in the precision of the export, for the examples beside it."""
    return EAGER_TOLERANCE[program.model.dtype] if parity is None else float(parity["limit"])


def compare_double(exported: Exported, steps: int, records: Sequence[Record] = ()) -> dict[str, Any]:
    """:func:`compare` with the filter in float64.

    Where single precision misses the limit, the ``rounding`` of the filter itself is measured. The limit stays: what
    runs on a device must be near the filter, whatever the reason is.
    """
    program = exported.program
    parity = compare(exported, samples(program, steps, records))
    if parity["ok"] or program.model.dtype == torch.float64:
        return parity
    return parity | {"rounding": _rounding(program, steps, records)}


def samples(
    program: StepProgram, steps: int, records: Sequence[Record], dtype: torch.dtype = torch.float64
) -> Iterable[Sample]:
    """The filter over recordings or, without any, over inputs that are drawn."""
    if records:
        return reference.replay(program, steps, records, dtype)
    return reference.run(program, steps, dtype=dtype)


def _rounding(program: StepProgram, steps: int, records: Sequence[Record]) -> float:
    """How far the filter in PyTorch in single precision is from itself in float64."""
    return float(compare(Eager(program), samples(program, steps, records))["largest"])


def write_report(folder: Path, facts: dict[str, Any]) -> dict[str, Any]:
    """Write what is known of an export beside it, as ``report.json``; returns the facts with that file among them."""
    path = folder / "report.json"
    known = {name: value for name, value in facts.items() if name != "files"}
    path.write_text(json.dumps(plain(known), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return facts | {"files": [*facts["files"], str(path)]}


def compare(exported: Exported, samples: Iterable[Sample], limit: float | None = None) -> dict[str, Any]:
    """Largest differences in outputs and state, relative to the largest value of each, and the statuses that differ.

    The outputs are judged. What differs in the state and matters shows in them; a hypothesis that has no weight any
    more may be anywhere. ``samples`` are those of the filter in float64, and ``limit`` is that of the precision, if
    nothing else is given.
    """
    program = exported.program
    outputs = [field.name for field in program.step.outputs[len(program.state) : -1] if field.size]
    error: dict[str, float] = {}
    size: dict[str, float] = {}
    count = statuses = 0
    for sample in samples:
        if sample.fresh:
            exported.restart(sample.prior)
        status = exported.advance(sample.method, sample.inputs)
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
    if not count:
        raise DataError("there is no step to compare: the recording has fewer samples than a step of the filter")
    limit = TOLERANCE[program.model.dtype] if limit is None else limit
    worst = max(relative[name] for name in outputs)
    return {
        "steps": count,
        "reference": "float64",
        "relative_error": relative,
        "largest": worst,
        "largest_of_state": max((relative[name] for name in relative if name not in outputs), default=0.0),
        "limit": limit,
        "statuses_that_differ": statuses,
        "ok": worst <= limit and statuses == 0,
    }
