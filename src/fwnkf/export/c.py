"""``export_c``: a filter as a C project in a folder, compared with the filter itself."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..filters.base import Filter
from ..filters.separate import Separated, separate
from ..native.compilers import c_compiler
from ..native.weights import Grid
from . import c_axes, c_parity, c_project, reference
from .c_source import generate
from .cost import cost, warnings
from .parity import compare_double, write_report
from .reference import Record
from .rounding import rounded
from .trace import DEFAULT_OUTPUTS, StepProgram, program_of

__all__ = ["export_c"]

CORTEX: tuple[str, ...] = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")


def export_c(
    model: Filter,
    folder: str | Path,
    name: str = "filter",
    precision: str = "float",
    outputs: tuple[str, ...] = DEFAULT_OUTPUTS,
    steps: int = 1000,
    measure: bool = True,
    weights: str = "float",
    records: Sequence[Record] = (),
    by_axis: bool = True,
    fixed_step: bool = False,
) -> dict[str, Any]:
    """Write a filter as C: ``name.c``, ``name.h`` and the files beside them.

    A filter whose channels are not correlated is written as one filter for each axis (:mod:`fwnkf.filters.separate`),
    with functions for every axis and, in ``name.h``, for all of them.

    Args:
        model: the filter.
        folder: where to; it is created.
        name: of the files and the functions.
        precision: ``"float"`` or ``"double"``.
        outputs: what the step returns.
        steps: steps with masks and irregular ``dt`` that are compared with the filter in float64, if this machine has a
            C compiler; 0 leaves the comparison out.
        measure: compile the file once more for the size of its code.
        weights: ``"int16"`` or ``"int8"`` stores matrices of weights as integers, a half or a quarter of their flash.
            The filter is rounded first: the comparison is with the rounded one.
        records: recordings that are compared on, the first ``steps`` steps of them; by default inputs are drawn.
        by_axis: False writes one filter in any case.
        fixed_step: every step has the length of the filter's nominal one; the C takes no ``dt`` and costs less.

    Returns:
        Files, sizes, operations and cycles of a step, and the parity report.

    Raises:
        ConfigError: there is no C for an operator of the filter, or the options do not fit together.

    >>> import tempfile, torch, fwnkf
    >>> one = torch.eye(1)
    >>> facts = export_c(fwnkf.KF(F=one, H=one, Q=one, R=one), tempfile.mkdtemp(), steps=0, measure=False)
    >>> facts["filter"]
    'kf'
    """
    model, grid = rounded(model, weights, precision)
    job = _Job(Path(folder), name, precision, outputs, steps, measure, records)
    parts = separate(model, fixed_step=fixed_step) if by_axis and grid is None else []
    facts = _axes(parts, job) if len(parts) > 1 else _whole(parts[0].filter if parts else model, job, grid)
    facts = {"filter": model.name, "name": name, "precision": precision, "weights": weights, **facts}
    rate = None if not model.nominal_step else 1 / model.nominal_step
    facts |= {"rate_hz": rate, "warnings": warnings(facts, rate)}
    return write_report(Path(folder), facts)


class _Job(NamedTuple):
    """Where a filter goes, and how; see :func:`export_c`."""

    folder: Path
    name: str
    precision: str
    outputs: tuple[str, ...]
    steps: int
    measure: bool
    records: Sequence[Record]

    def program(self, model: Filter, name: str) -> StepProgram:
        return program_of(model, name, self.precision, self.outputs, self.steps, rejects=False)

    def flash(self, files: Sequence[str]) -> dict[str, int]:
        return flash([self.folder / file for file in files]) if self.measure else {}

    @property
    def compares(self) -> bool:
        return self.steps > 0 and c_compiler() is not None


def _whole(model: Filter, job: _Job, grid: Grid | None) -> dict[str, Any]:
    """One filter."""
    name = job.name
    program = job.program(model, name)
    source = generate(program, name, grid)
    files = c_project.write(job.folder, program, source, reference.golden(program))
    counted = cost(source.source, "advance_step", job.precision)
    return {
        "files": [str(path) for path in files],
        "axes": [],
        "takes_dt": program.takes_dt,
        "ram": {
            "state": source.state_bytes,
            "output": source.output_bytes,
            "scratch on the stack": source.scratch_bytes,
        },
        "constants": source.constant_bytes,
        "flash": job.flash([f"{name}.c"]),
        "operations": counted.operations,
        "cycles": counted.cycles,
        "parity": _compared(program, files, name, job.steps, job.records) if job.compares else None,
    }


def _axes(parts: Sequence[Separated], job: _Job) -> dict[str, Any]:
    """A filter for each axis."""
    labels = c_axes.labels([part.name for part in parts])
    axes = [
        c_axes.Axis(
            f"{job.name}_{label}", label, part.channels, job.program(part.filter, f"{job.name}_{label}")
        )
        for label, part in zip(labels, parts, strict=True)
    ]  # fmt: skip
    groups = c_axes.share(axes, job.name)
    files = c_axes.write(job.folder, axes, groups, job.name, job.precision == "double")
    unit = 8 if job.precision == "double" else 4
    operations: Counter[str] = Counter()
    cycles = 0
    for group in groups:
        counted, count = cost(group.source.source, "advance_step", job.precision), len(group.tables)
        cycles += count * counted.cycles
        operations.update({kind: count * number for kind, number in counted.operations.items()})
    parity = None
    if job.compares:
        reports = []
        for axis in axes:
            records = [_of_channels(record, axis.channels) for record in job.records]
            needed = c_axes.sources(axis, groups)
            reports.append(_compared(axis.program, files, axis.name, job.steps, records, needed))
        worst = max(reports, key=lambda report: (not report["ok"], report["largest"]))
        parity = worst | {"ok": all(report["ok"] for report in reports)}
    return {
        "files": [str(path) for path in files],
        "axes": labels,
        "takes_dt": any(axis.program.takes_dt for axis in axes),
        "ram": {
            "state": sum(group.source.state_bytes * len(group.tables) for group in groups),
            "output": sum(group.source.output_bytes * len(group.tables) for group in groups),
            "scratch on the stack": max(group.source.scratch_bytes for group in groups),
        },
        "constants": sum(group.source.constant_bytes + unit * sum(map(len, group.tables.values())) for group in groups),
        "flash": job.flash([f"{group.name}.c" for group in groups] + [f"{axis.name}.c" for axis in axes]),
        "operations": dict(operations),
        "cycles": cycles,
        "parity": parity,
    }


def _compared(
    program: StepProgram,
    files: Sequence[Path],
    name: str,
    steps: int,
    records: Sequence[Record],
    sources: Sequence[str] = (),
) -> dict[str, Any]:
    """Differences of the C from the filter in float64."""
    with tempfile.TemporaryDirectory() as built:
        for path in files:
            shutil.copy(path, built)
        library = c_parity.Library(program, Path(built), name, sources=sources)
        return compare_double(library, steps, records)


def _of_channels(record: Record, channels: Sequence[int]) -> Record:
    """The samples of some channels; a belief about all of them is left out."""
    places = list(channels)
    mask = None if record.mask is None else record.mask[:, places]
    return record._replace(y=record.y[:, places], mask=mask, prior=None)


def flash(sources: Sequence[Path]) -> dict[str, int]:
    """Bytes of compiled code and constants, for a Cortex-M4F if its compiler is there, else for this machine."""
    command, size, flags, target = shutil.which("arm-none-eabi-gcc"), "arm-none-eabi-size", CORTEX, "Cortex-M4F"
    if command is None or shutil.which(size) is None:
        command, size, flags, target = c_compiler(), "size", (), "this machine"
    if command is None or shutil.which(size) is None:
        return {}
    total = 0
    with tempfile.TemporaryDirectory() as built:
        compiled = Path(built) / "filter.o"
        for source in sources:
            call = [command, "-std=c99", "-Os", *flags, "-c", "-o", str(compiled), str(source)]
            subprocess.run(call, capture_output=True, check=True)
            done = subprocess.run([size, str(compiled)], capture_output=True, text=True, check=True)
            total += int(done.stdout.splitlines()[1].split()[0])
    return {target: total}
