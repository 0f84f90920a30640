"""The C of a loop over time: a function for each kind of step, and one that calls them for all steps of all records."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .bodies import body
from .builder import Builder, Pool, entries
from .c_helpers import preamble
from .graph import Field, Graph
from .lowering import Lowered, lower
from .values import KINDS, Array, Scalars

CTYPES = {
    torch.float32: "real",
    torch.float64: "real",
    torch.int64: "int64_t",
    torch.int32: "int32_t",
    torch.bool: "unsigned char",
}
PARAMETERS = (
    "const struct state *restrict s, struct state *restrict next, const void *const *in, const void *const *known, "
    "void *const *out, int64_t i"
)


class Result(NamedTuple):
    """An output of the steps, with its value if that is the same in all of them."""

    field: Field
    value: Tensor | None

    @property
    def stored(self) -> bool:
        return self.value is None and self.field.size > 0


class LoopSource(NamedTuple):
    """The text, the arrays that it reads as ``known``, and the outputs."""

    text: str
    known: list[np.ndarray]
    results: list[Result]


def loop_source(graph: Graph, states: int, constants: int, dtype: torch.dtype) -> LoopSource:
    """``run(records, steps, begin, end, state, in, known, out)``: the steps from ``begin`` to ``end`` of all records.

    The first ``states`` arguments of the graph are the state, as are its first results; the last ``constants``
    arguments are the same in all steps.
    """
    pool, state, inputs = Pool(), graph.inputs[:states], graph.inputs[states:]
    names = {field.name: field.name for field in inputs} | {field.name: f"s->{field.name}" for field in state}
    lowered = lower(graph, names, Builder(dtype, pool))
    results = [Result(field, _constant(value, field)) for field, value in lowered.results[states:]]
    stored = [result.field for result in results if result.stored]
    targets = [f"next->{field.name}" if field.size else "" for field in state]
    targets += [result.field.name if result.stored else "" for result in results]
    body = _step(lowered, targets)
    known = [entry for entry in pool.entries.values() if re.search(rf"\b{entry[0]}\b", body)]
    heads = []
    for place, field in enumerate(inputs):
        moves = f" + i * {field.size}" if place < len(inputs) - constants else ""
        heads.append(_pointer(f"const {CTYPES[field.dtype]}", field.name, f"in[{place}]", moves))
    heads += [_pointer(f"const {_item(data)}", name, f"known[{i}]") for i, (name, data, _) in enumerate(known)]
    heads += [
        _pointer(CTYPES[field.dtype], field.name, f"out[{i}]", f" + i * {field.size}") for i, field in enumerate(stored)
    ]
    members = "".join(f"    {CTYPES[field.dtype]} {field.name}[{field.size}];\n" for field in state if field.size)
    text = "\n".join(
        (
            "#include <math.h>\n#include <stdint.h>\n#include <string.h>\n",
            f"typedef {'double' if dtype == torch.float64 else 'float'} real;\n",
            preamble(body, dtype == torch.float64),
            f"struct state {{\n{members}    char end;\n}};\n",
            f"static __attribute__((noinline)) void step({PARAMETERS})\n{{\n{''.join(heads)}{body[2:]}",
            _run(state),
        )
    )
    return LoopSource(text, [data.copy() for _, data, _ in known], results)


def _pointer(ctype: str, name: str, base: str, moves: str = "") -> str:
    return f"    {ctype} *restrict {name} = ({ctype} *){base}{moves};\n    (void){name};\n"


def _item(data: np.ndarray) -> str:
    return {"f": "real", "b": "unsigned char"}.get(data.dtype.kind, f"{data.dtype}_t")


def _constant(value: Scalars | Array, field: Field) -> Tensor | None:
    """The value of a result that does not depend on the arguments."""
    if isinstance(value, Array):
        if value.buffer.data is None or value.buffer.scale is not None:
            return None
        known = value.buffer.data[value.index]
    elif any(isinstance(item, str) for item in value.items.flat):
        return None
    else:
        known = value.items.astype({"real": np.float64, "int": np.int64, "bool": np.bool_}[value.kind])
    return torch.from_numpy(known).to(field.dtype).reshape(field.shape)


def _step(lowered: Lowered, targets: Sequence[str]) -> str:
    """The body of a step that writes its results to the targets; an empty one is not wanted."""
    build, written = lowered.build, []
    for (field, value), target in zip(lowered.results, targets, strict=True):
        if not target:
            continue
        kind = KINDS[field.dtype]
        if isinstance(value, Array) and _whole(value) and not build.buffers[value.buffer.key].name:
            # computed in its place
            build.buffers[value.buffer.key] = replace(value.buffer, name=target)
            written.append(value.buffer.key)
            continue
        made = build.buffer(field.size, kind, target)
        written.append(made.key)
        if isinstance(value, Array):
            build.realize(value, made.whole(value.shape))
        else:
            build.block(entries(made, Scalars(value.items, kind)), made)
    return body(lowered, [], written).text


def _whole(value: Array) -> bool:
    return value.contiguous and value.index.size == value.buffer.size and value.buffer.data is None


def _run(state: Sequence[Field]) -> str:
    load, save = [], []
    for place, field in enumerate(state):
        if field.size:
            size = f"sizeof a.{field.name}"
            outside = f"(unsigned char *)state[{place}] + r * (int64_t){size}"
            load.append(f"        memcpy(a.{field.name}, {outside}, {size});\n")
            save.append(f"        memcpy({outside}, a.{field.name}, {size});\n")
    return (
        "void run(\n    int64_t records, int64_t steps, int64_t begin, int64_t end, void *const *state,\n"
        "    const void *const *in, const void *const *known, void *const *out)\n{\n"
        "    struct state a, b;\n    a.end = b.end = 0;\n"
        "    for (int64_t r = 0; r < records; ++r) {\n"
        "        int64_t i = r * steps + begin;\n        const int64_t last = r * steps + end - 1;\n"
        f"{''.join(load)}"
        "        for (; i < last; i += 2) {\n"
        "            step(&a, &b, in, known, out, i);\n            step(&b, &a, in, known, out, i + 1);\n        }\n"
        "        if (i == last) {\n            step(&a, &b, in, known, out, i);\n            a = b;\n        }\n"
        f"{''.join(save)}    }}\n}}\n"
    )
