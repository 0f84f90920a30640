"""The C of a filter, built with the compiler of this machine and called from Python."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import FwnkfError
from ..native.compilers import c_compiler
from ..native.graph import Field
from ..native.values import KINDS
from ..types import Gaussian, numpy_dtype
from .trace import StepProgram

FLAGS = ("-std=c99", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror")


class Library:
    """The generated functions, compiled and called from Python."""

    def __init__(
        self,
        program: StepProgram,
        folder: Path,
        name: str,
        command: str | None = None,
        sources: Sequence[str] = (),
    ) -> None:
        command = command or c_compiler()
        if command is None:
            raise FwnkfError("no C compiler found (cc, gcc, clang): the C was written and not compared with the filter")
        path = folder / f"lib{name}.so"
        files = [str(folder / file) for file in sources or (f"{name}.c",)]
        call = [command, *FLAGS, "-shared", "-fPIC", "-o", str(path), *files, "-lm"]
        done = subprocess.run(call, capture_output=True, text=True)
        if done.returncode:
            raise FwnkfError(f"{' '.join(call)} failed:\n{done.stderr[:2000]}")
        self.program, self.name = program, name
        self.functions: Any = ctypes.CDLL(str(path.resolve()))
        self.real: Any = ctypes.c_double if program.model.dtype == torch.float64 else ctypes.c_float
        self.number = numpy_dtype(program.model.dtype)
        count = len(program.state)
        self.state = self._structure(program.state)()
        self.out = self._structure(program.step.outputs[count:-1], status=True)()
        self.restart()

    def restart(self, prior: Gaussian | None = None) -> None:
        """Call ``init``, or ``init_prior``."""
        if prior is None:
            getattr(self.functions, f"{self.name}_init")(ctypes.byref(self.state))
            return
        parts = [np.ascontiguousarray(part.numpy().astype(self.number)).reshape(-1) for part in prior]
        function = getattr(self.functions, f"{self.name}_init_prior")
        function(ctypes.byref(self.state), *(np.ctypeslib.as_ctypes(part) for part in parts))

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

    def values(self) -> dict[str, Any]:
        """The state, as ``state.NAME``, and the outputs of the last call."""
        found = {f"state.{field.name}": getattr(self.state, field.name) for field in self.program.state if field.size}
        outputs = self.program.step.outputs[len(self.program.state) : -1]
        return {**found, **{field.name: getattr(self.out, field.name) for field in outputs if field.size}}
