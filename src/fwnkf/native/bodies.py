"""The body of a generated function: its statements with scratch memory, and stores of its results."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from .builder import REFERENCE, VARIABLE
from .lowering import Lowered, allocate, live
from .values import Array, Buffer, Scalars, literal


@dataclass
class Function:
    """The body of a generated function and its scratch memory."""

    text: str
    reals: int
    ints: int


def store(target: str, value: Scalars | Array) -> str:
    if isinstance(value, Array):
        return f"for (int i = 0; i < {value.index.size}; ++i) {{ {target}[i] = {flat(value)}; }}"
    return "\n".join(f"{target}[{i}] = {literal(item, value.kind)};" for i, item in enumerate(value.items.flat))


def flat(value: Array) -> str:
    """The entry ``i`` of an array in row-major order."""
    if value.contiguous:
        return value.buffer.entry(f"{value.offset} + i" if value.offset else "i")
    terms, step = [], value.index.size
    for size, stride in zip(value.shape, value.strides, strict=True):
        step //= size
        if stride:
            terms.append(f"{stride} * (i / {step} % {size})")
    return value.buffer.entry(" + ".join([*terms, str(value.offset)]))


def body(lowered: Lowered, tail: list[str], written: Collection[int] = ()) -> Function:
    """What the lines of ``tail`` need, then these lines; ``written`` are buffers of the caller's to be filled."""
    text = "\n".join(line for line in tail if line)
    used, read = set(VARIABLE.findall(text)), {int(key) for key in REFERENCE.findall(text)} | {*written}
    statements = live(lowered.build.statements, used, set(read))
    buffers = lowered.build.buffers
    scratch = {key: buffer for key, buffer in buffers.items() if not buffer.name}
    reals, real_size = allocate(statements, {k: b.size for k, b in scratch.items() if b.kind == "real"}, read)
    ints, int_size = allocate(statements, {k: b.size for k, b in scratch.items() if b.kind != "real"}, read)
    places = {**reals, **ints}

    def direct(text: str) -> str:
        def replace(match: re.Match[str]) -> str:
            buffer = buffers[int(match[1])]
            if buffer.name:
                return f"{buffer.name}["
            return f"{'w' if buffer.kind == 'real' else 'n'}[{places[buffer.key]} + "

        return REFERENCE.sub(replace, text)

    lines = [f"    real w[{real_size}];"] if real_size else []
    lines += [f"    int64_t n[{int_size}];"] if int_size else []
    for statement in statements:
        if statement.defines:
            lines.append(f"    {direct(statement.text)}")
        else:
            lines += _block(statement.text, statement.writes, buffers, places)
    lines += [f"    {line}" for line in direct(text).split("\n")]
    return Function("{\n" + "\n".join(lines) + "\n}\n", real_size, int_size)


def _block(text: str, writes: tuple[int, ...], buffers: dict[int, Buffer], places: dict[int, int]) -> list[str]:
    """A block with a pointer for each scratch buffer; ``restrict`` holds, because live buffers do not overlap."""
    keys = dict.fromkeys(int(key) for key in REFERENCE.findall(text))
    lines = ["    {"]
    for key in keys:
        buffer = buffers[key]
        if buffer.name:
            continue
        ctype, home = ("real", "w") if buffer.kind == "real" else ("int64_t", "n")
        constant = "" if key in writes else "const "
        lines.append(f"        {constant}{ctype} *restrict b{key} = {home} + {places[key]};")
    replaced = REFERENCE.sub(lambda m: f"{buffers[int(m[1])].name or 'b' + m[1]}[", text)
    return [*lines, *(f"        {line}" for line in replaced.split("\n")), "    }"]
