"""Build the C of a filter with the compiler of this machine and compare it with the filter in float64."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import FwnkfError
from ..types import Status
from .c_project import TOLERANCE
from .reference import Sample
from .trace import Field, StepProgram
from .values import KINDS

FLAGS = ("-std=c99", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror")


def compiler() -> str | None:
    """The first C compiler of this machine, if there is one."""
    return next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)


class Library:
    """The generated functions, compiled and called from Python."""

    def __init__(self, program: StepProgram, folder: Path, name: str, command: str | None = None) -> None:
        command = command or compiler()
        if command is None:
            raise FwnkfError("no C compiler found (cc, gcc, clang): the C was written and not compared with the filter")
        path = folder / f"lib{name}.so"
        call = [command, *FLAGS, "-shared", "-fPIC", "-o", str(path), str(folder / f"{name}.c"), "-lm"]
        done = subprocess.run(call, capture_output=True, text=True)
        if done.returncode:
            raise FwnkfError(f"{' '.join(call)} failed:\n{done.stderr[:2000]}")
        self.program, self.name = program, name
        self.functions: Any = ctypes.CDLL(str(path.resolve()))
        self.real: Any = ctypes.c_double if program.model.dtype == torch.float64 else ctypes.c_float
        self.number = np.float64 if program.model.dtype == torch.float64 else np.float32
        count = len(program.state)
        self.state = self._structure(program.state)()
        self.out = self._structure(program.step.outputs[count:-1], status=True)()
        getattr(self.functions, f"{name}_init")(ctypes.byref(self.state))

    def _structure(self, fields: Iterable[Field], status: bool = False) -> Any:
        types = {"real": self.real, "int": ctypes.c_int64, "bool": ctypes.c_ubyte}
        members = [(field.name, types[KINDS[field.dtype]] * field.size) for field in fields if field.size]
        return type("Structure", (ctypes.Structure,), {"_fields_": members + [("status", ctypes.c_int)] * status})

    def advance(self, method: str, inputs: dict[str, torch.Tensor]) -> int:
        """Call ``update`` or ``step``; returns the status."""
        arguments: list[Any] = []
        for name in ("y", "mask", "u", "dt"):
            if name not in inputs:
                continue
            value = np.ascontiguousarray(inputs[name].numpy().astype(np.uint8 if name == "mask" else self.number))
            scalar = name == "dt" and value.size == 1
            arguments.append(
                self.real(float(value.reshape(-1)[0])) if scalar else np.ctypeslib.as_ctypes(value.reshape(-1))
            )
        function = getattr(self.functions, f"{self.name}_{method}")
        return int(function(ctypes.byref(self.state), *arguments, ctypes.byref(self.out)))


def compare(library: Library, samples: Iterable[Sample]) -> dict[str, Any]:
    """Largest differences in state and outputs, relative to the largest value of each, and the statuses that differ."""
    program = library.program
    outputs = [field.name for field in program.step.outputs[len(program.state) : -1] if field.size]
    error: dict[str, float] = {}
    size: dict[str, float] = {}
    count = statuses = 0
    for sample in samples:
        status = library.advance("step" if count else "update", sample.inputs)
        count += 1
        # float32 loses precision where the reference in float64 does not, and says so
        statuses += (status ^ int(sample.out.status)) & ~int(Status.PRECISION_LOST) != 0
        pairs = [(f"state.{name}", getattr(library.state, name), leaf) for name, leaf in sample.state if leaf.numel()]
        pairs += [(name, getattr(library.out, name), getattr(sample.out, name)) for name in outputs]
        for name, mine, wanted in pairs:
            expected = wanted.double().numpy().reshape(-1)
            difference = float(np.abs(np.array(mine, np.float64) - expected).max())
            error[name] = max(error.get(name, 0.0), difference if difference == difference else float("inf"))
            size[name] = max(size.get(name, 0.0), float(np.abs(expected).max()))
    relative = {name: error[name] / (size[name] or 1.0) for name in error}
    worst = max(relative.values())
    limit = TOLERANCE[program.model.dtype]
    return {
        "steps": count,
        "relative_error": relative,
        "largest": worst,
        "limit": limit,
        "statuses_that_differ": statuses,
        "ok": worst <= limit and statuses == 0,
    }
