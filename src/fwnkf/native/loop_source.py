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


def loop_source(graphs: Sequence[Graph], states: int, constants: int, dtype: torch.dtype) -> LoopSource:
    """``run(records, steps, state, in, known, out)`` for the graph of a step and, if there is a second, the first step.

    The first ``states`` arguments of a graph are the state, as are its first results; the last ``constants`` arguments
    are the same in all steps.
    """
    pool, state = Pool(), graphs[0].inputs[:states]
    names = {field.name: field.name for field in graphs[0].inputs} | {field.name: f"s->{field.name}" for field in state}
    lowered = [lower(graph, names, Builder(dtype, pool)) for graph in graphs]
    results = [
        Result(field, _shared([_constant(item.results[place][1]) for item in lowered], field))
        for place, field in enumerate(graphs[0].outputs[states:], states)
    ]
    stored = [result.field for result in results if result.stored]
    targets = [f"next->{field.name}" if field.size else "" for field in state]
    targets += [result.field.name if result.stored else "" for result in results]
    bodies = [_step(item, targets) for item in lowered]
    whole = "".join(bodies)
    known = [entry for entry in pool.entries.values() if re.search(rf"\b{entry[0]}\b", whole)]
    heads = []
    for place, field in enumerate(graphs[0].inputs[states:]):
        moves = "" if place >= len(graphs[0].inputs) - states - constants else f" + i * {field.size}"
        heads.append(_pointer(f"const {CTYPES[field.dtype]}", field.name, f"in[{place}]", moves))
    heads += [_pointer(f"const {_item(data)}", name, f"known[{i}]") for i, (name, data, _) in enumerate(known)]
    heads += [
        _pointer(CTYPES[field.dtype], field.name, f"out[{i}]", f" + i * {field.size}") for i, field in enumerate(stored)
    ]
    functions = [
        f"static __attribute__((noinline)) void {name}({PARAMETERS})\n{{\n{''.join(heads)}{text[2:]}"
        for name, text in zip(("step", "first_step"), bodies, strict=False)
    ]
    members = "".join(f"    {CTYPES[field.dtype]} {field.name}[{field.size}];\n" for field in state if field.size)
    text = "\n".join(
        (
            "#include <math.h>\n#include <stdint.h>\n#include <string.h>\n",
            f"typedef {'double' if dtype == torch.float64 else 'float'} real;\n",
            preamble(whole, dtype == torch.float64),
            f"struct state {{\n{members}    char end;\n}};\n",
            *functions,
            _run(state, has_first=len(graphs) > 1),
        )
    )
    return LoopSource(text, [data.copy() for _, data, _ in known], results)


def _pointer(ctype: str, name: str, base: str, moves: str = "") -> str:
    return f"    {ctype} *restrict {name} = ({ctype} *){base}{moves};\n    (void){name};\n"


def _item(data: np.ndarray) -> str:
    return {"f": "real", "b": "unsigned char"}.get(data.dtype.kind, f"{data.dtype}_t")


def _constant(value: Scalars | Array) -> np.ndarray | None:
    """The value of a result that does not depend on the arguments."""
    if isinstance(value, Array):
        known = value.buffer.data
        return None if known is None or value.buffer.scale is not None else known[value.index]
    if any(isinstance(item, str) for item in value.items.flat):
        return None
    kinds = {"real": np.float64, "int": np.int64, "bool": np.bool_}
    return value.items.astype(kinds[value.kind])


def _shared(values: list[np.ndarray | None], field: Field) -> Tensor | None:
    """The value of an output in all kinds of steps."""
    first = values[0]
    if first is None or any(item is None or not np.array_equal(first, item) for item in values):
        return None
    return torch.from_numpy(first).to(field.dtype).reshape(field.shape)


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


def _run(state: Sequence[Field], has_first: bool) -> str:
    load, save = (
        "".join(
            f"        memcpy({to}, {source}, sizeof a.{field.name});\n"
            for place, field in enumerate(state)
            if field.size
            for place_of in [f"(unsigned char *)state[{place}] + r * (int64_t)sizeof a.{field.name}"]
            for to, source in [(f"a.{field.name}", place_of)[::order]]
        )
        for order in (1, -1)
    )
    begin = "        first_step(&a, &b, in, known, out, i++);\n        a = b;\n" if has_first else ""
    return (
        "void run(\n    int64_t records, int64_t steps, void *const *state, const void *const *in,\n"
        "    const void *const *known, void *const *out)\n{\n"
        "    struct state a, b;\n    a.end = b.end = 0;\n"
        "    for (int64_t r = 0; r < records; ++r) {\n"
        "        int64_t i = r * steps;\n        const int64_t end = i + steps;\n"
        f"{load}{begin}"
        "        for (; i + 1 < end; i += 2) {\n"
        "            step(&a, &b, in, known, out, i);\n            step(&b, &a, in, known, out, i + 1);\n        }\n"
        "        if (i < end) {\n            step(&a, &b, in, known, out, i);\n            a = b;\n        }\n"
        f"{save}    }}\n}}\n"
    )
