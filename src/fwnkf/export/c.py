"""``export_c``: a filter as a C project in a folder, compared with the filter itself."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..filters.base import Filter
from ..native.compilers import c_compiler
from . import c_parity, c_project, reference
from .c_source import generate
from .parity import compare_double, write_report
from .reference import Record
from .rounding import rounded
from .trace import DEFAULT_OUTPUTS, program_of

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
) -> dict[str, Any]:
    """Write a filter as C: ``name.c``, ``name.h`` and the files beside them.

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

    Returns:
        Files, sizes and the parity report.

    Raises:
        ConfigError: there is no C for an operator of the filter, or the options do not fit together.

    >>> import tempfile, torch, fwnkf
    >>> one = torch.eye(1)
    >>> facts = export_c(fwnkf.KF(F=one, H=one, Q=one, R=one), tempfile.mkdtemp(), steps=0, measure=False)
    >>> facts["filter"]
    'kf'
    """
    model, grid = rounded(model, weights, precision)
    program = program_of(model, name, precision, outputs, steps, rejects=False)
    source = generate(program, name, grid)
    files = c_project.write(Path(folder), program, source, reference.golden(program))
    facts: dict[str, Any] = {
        "filter": model.name,
        "name": name,
        "precision": precision,
        "weights": weights,
        "files": [str(path) for path in files],
        "ram": {
            "state": source.state_bytes,
            "output": source.output_bytes,
            "scratch on the stack": source.scratch_bytes,
        },
        "constants": source.constant_bytes,
        "flash": flash(Path(folder) / f"{name}.c") if measure else {},
        "parity": None,
    }
    if steps and c_compiler() is not None:
        with tempfile.TemporaryDirectory() as built:
            for path in files:
                shutil.copy(path, built)
            library = c_parity.Library(program, Path(built), name)
            facts["parity"] = compare_double(library, steps, records)
    return write_report(Path(folder), facts)


def flash(source: Path) -> dict[str, int]:
    """Bytes of compiled code and constants, for a Cortex-M4F if its compiler is there, else for this machine."""
    command, size, flags, target = shutil.which("arm-none-eabi-gcc"), "arm-none-eabi-size", CORTEX, "Cortex-M4F"
    if command is None or shutil.which(size) is None:
        command, size, flags, target = c_compiler(), "size", (), "this machine"
    if command is None or shutil.which(size) is None:
        return {}
    with tempfile.TemporaryDirectory() as built:
        compiled = Path(built) / "filter.o"
        call = [command, "-std=c99", "-Os", *flags, "-c", "-o", str(compiled), str(source)]
        subprocess.run(call, capture_output=True, check=True)
        lines = subprocess.run([size, str(compiled)], capture_output=True, text=True, check=True).stdout.splitlines()
    return {target: int(lines[1].split()[0])}
