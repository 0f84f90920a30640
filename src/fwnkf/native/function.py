"""A function of tensors with a batch of one as C, compiled for this machine and called from Python.

At this size PyTorch spends most of its time on making and passing tensors. Here one call computes everything: arguments
are read where they are, and all results are in one block of memory, of which tensors are made when they are asked for.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import ConfigError
from ..types import numpy_dtype
from .bodies import body, store
from .builder import Builder, Pool
from .c_helpers import preamble
from .compilers import library_compiler, shared_library
from .graph import Field, Graph
from .lowering import lower
from .recorder import record
from .values import KINDS, Kind

CTYPES: dict[Kind, str] = {"real": "real", "int": "int64_t", "bool": "unsigned char"}


class Native:
    """The function, called with the addresses of arguments like those it was made with.

    Args:
        function: of tensors, to a list of tensors; all have a first axis of one. Nothing in it may depend on values.
        examples: arguments. Constants are those at the time of this call.

    Raises:
        ConfigError: there is no C compiler, or no C for the function.

    >>> import torch
    >>> double = Native(lambda x: [2 * x], [torch.zeros(1, 3)])
    >>> ones = torch.ones(1, 3)
    >>> double.tensor(double([ones.data_ptr()]), 0)
    tensor([[2., 2., 2.]])
    """

    def __init__(self, function: Callable[..., list[Tensor]], examples: Sequence[Tensor]) -> None:
        library_compiler()  # before the work of tracing
        copies = [leaf.clone() for leaf in examples]  # two that are one tensor would be one argument of the graph
        results = function(*copies)
        known = [*copies, *results]
        reals = {leaf.dtype for leaf in known if leaf.is_floating_point()} or {torch.float32}
        allowed = {*reals, torch.int64, torch.bool}
        if len(reals) > 1 or any(leaf.dtype not in allowed or len(leaf) != 1 or leaf.is_cuda for leaf in known):
            raise ConfigError("C is for a batch of one on the CPU, in one precision, with integers of 64 bits")
        self._real = reals.pop()
        inputs, outputs = _fields(copies), _fields(results)
        code, self._constants = self._code(Graph(record(function, copies), inputs, outputs))
        self._known = struct.pack(f"{len(self._constants)}P", *[data.ctypes.data for data in self._constants])
        self._call: Any = shared_library(code).call
        self._call.argtypes, self._call.restype = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p], None
        self._pack = struct.Struct(f"{len(inputs)}P").pack
        self._forms = [((1, *field.shape), numpy_dtype(field.dtype)) for field in outputs]
        self.offsets, self._bytes = _places(outputs)

    def __call__(self, addresses: Sequence[int]) -> Block:
        """The results for arguments at these addresses; they must be contiguous."""
        block = Block(self._bytes)
        self._call(self._pack(*addresses), self._known, block.address)
        return block

    def tensor(self, block: Block, place: int) -> Tensor:
        """The result of this number, in the memory of the block."""
        shape, number = self._forms[place]
        return torch.from_numpy(np.ndarray(shape, number, block.memory, self.offsets[place]))

    def _code(self, graph: Graph) -> tuple[str, list[np.ndarray]]:
        """The text, and the constants that it reads."""
        pool, double = Pool(), self._real == torch.float64
        names = {field.name: f"x{place}" for place, field in enumerate(graph.inputs)}
        lowered = lower(graph, names, Builder(self._real, pool))
        text = body(lowered, [store(f"r{field.name}", value) for field, value in lowered.results if field.size]).text
        used = [entry for entry in pool.entries.values() if re.search(rf"\b{entry[0]}\b", text)]
        pointers = [(f"const {CTYPES[KINDS[f.dtype]]}", f"x{i}", f"x[{i}]") for i, f in enumerate(graph.inputs)]
        pointers += [(f"const {CTYPES[kind]}", name, f"known[{i}]") for i, (name, _, kind) in enumerate(used)]
        offsets, _ = _places(graph.outputs)
        pointers += [
            (CTYPES[KINDS[field.dtype]], f"r{i}", f"(void *)(block + {offsets[i]})")
            for i, field in enumerate(graph.outputs)
        ]
        lines = [f"    {ctype} *restrict {name} = {value};\n    (void){name};\n" for ctype, name, value in pointers]
        code = (
            "#include <math.h>\n#include <stdint.h>\n\n"
            f"typedef {'double' if double else 'float'} real;\n\n{preamble(text, double)}\n"
            "void call(const void *const *x, const void *const *known, unsigned char *block)\n{\n"
            f"{''.join(lines)}{text[2:]}"
        )
        return code, [data.copy() for _, data, _ in used]


class Block:
    """Memory that holds the results of one call."""

    __slots__ = ("address", "memory")

    def __init__(self, size: int) -> None:
        self.memory = np.empty(size, np.uint8)
        self.address: int = self.memory.ctypes.data


def _fields(leaves: Sequence[Tensor]) -> tuple[Field, ...]:
    return tuple(Field(str(place), tuple(leaf.shape[1:]), leaf.dtype) for place, leaf in enumerate(leaves))


def _places(outputs: Sequence[Field]) -> tuple[list[int], int]:
    """The first byte of each result in a block, and the size of the block."""
    offsets, end = [], 0
    for field in outputs:
        offsets.append(end)
        end += -(-field.size * numpy_dtype(field.dtype).itemsize // 8) * 8
    return offsets, max(end, 8)
