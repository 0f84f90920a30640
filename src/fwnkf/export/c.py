"""``export_c``: a filter as a C project in a folder, compared with the filter itself."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch

from ..errors import ConfigError
from ..filters.base import Filter
from . import c_parity, c_project, reference
from .c_source import generate
from .parity import compare
from .trace import DEFAULT_OUTPUTS, trace

GOLDEN_STEPS = 50
CORTEX: tuple[str, ...] = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")
PRECISIONS = {"float": torch.float32, "double": torch.float64}


def export_c(
    model: Filter,
    folder: str | Path,
    name: str = "filter",
    precision: str = "float",
    outputs: tuple[str, ...] = DEFAULT_OUTPUTS,
    steps: int = 1000,
    measure: bool = True,
) -> dict[str, Any]:
    """Write ``name.c``, ``name.h`` and the files beside them; returns sizes and the parity report.

    ``steps`` steps with masks and irregular ``dt`` are compared with the filter in float64, if this machine has a C
    compiler; 0 leaves the comparison out. ``measure`` compiles the file once more for the size of its code. Raises
    ConfigError for an operator of which there is no C.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ConfigError(f"name {name!r}: wanted a C identifier in lower case, such as my_filter")
    if name in c_project.RESERVED.split():
        raise ConfigError(f"name {name!r} has a meaning in C++, CMake or the generated files: give another one")
    if steps < 0:
        raise ConfigError(f"steps = {steps} must not be negative")
    if precision not in PRECISIONS:
        raise ConfigError(f"precision {precision!r}: wanted one of {', '.join(PRECISIONS)}")
    program = trace(model, PRECISIONS[precision], outputs)
    source = generate(program, name)
    samples = list(itertools.islice(reference.run(program, GOLDEN_STEPS), GOLDEN_STEPS))
    files = c_project.write(Path(folder), program, source, samples)
    facts: dict[str, Any] = {
        "filter": model.name,
        "name": name,
        "precision": precision,
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
    if steps and c_parity.compiler() is not None:
        with tempfile.TemporaryDirectory() as built:
            for path in files:
                shutil.copy(path, built)
            library = c_parity.Library(program, Path(built), name)
            facts["parity"] = compare(library, reference.run(program, steps))
    return facts


def flash(source: Path) -> dict[str, int]:
    """Bytes of compiled code and constants, for a Cortex-M4F if its compiler is there, else for this machine."""
    command, size, flags, target = shutil.which("arm-none-eabi-gcc"), "arm-none-eabi-size", CORTEX, "Cortex-M4F"
    if command is None or shutil.which(size) is None:
        command, size, flags, target = c_parity.compiler(), "size", (), "this machine"
    if command is None or shutil.which(size) is None:
        return {}
    with tempfile.TemporaryDirectory() as built:
        compiled = Path(built) / "filter.o"
        call = [command, "-std=c99", "-Os", *flags, "-c", "-o", str(compiled), str(source)]
        subprocess.run(call, capture_output=True, check=True)
        lines = subprocess.run([size, str(compiled)], capture_output=True, text=True, check=True).stdout.splitlines()
    return {target: int(lines[1].split()[0])}
