"""Filters by axis as C: the code once, and a table of numbers for each axis.

The C of two filters that differ in their numbers alone is the same text but for its numbers. Those that differ become
entries of a table, which every axis has for itself; filters that differ in more have code of their own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from . import c_project, reference
from .c_source import Source, generate, header, signature
from .names import check_name
from .trace import StepProgram

_NUMBER = re.compile(r"\(-R\([^()]*\)\)|R\([^()]*\)")
_TABLE = re.compile(r"^static const real (c\d+)\[(\d+)\] = \{\n(.*?)\n\};\n", re.M | re.S)


@dataclass(frozen=True)
class Axis:
    """The filter of one axis."""

    name: str
    """In C, such as ``imu_gyro_x``."""
    label: str
    """In the structure of all axes, such as ``gyro_x``."""
    channels: tuple[int, ...]
    program: StepProgram


@dataclass(frozen=True)
class Shared:
    """Code that several axes have in common, and their numbers."""

    name: str
    program: StepProgram
    source: Source
    """Of its first axis, with numbers of a table ``axis`` instead of its own."""
    tables: dict[str, list[str]]
    """Numbers by the name of the axis."""


def share(axes: Sequence[Axis], name: str) -> list[Shared]:
    """Generate the C of all axes, with equal code written once."""
    groups: dict[str, list[tuple[Axis, Source, list[str]]]] = {}
    for axis in axes:
        source = generate(axis.program, f"{name}_axis")
        numbers = _NUMBER.findall(source.source)
        groups.setdefault(_NUMBER.sub("R()", source.source), []).append((axis, source, numbers))
    found = []
    for number, members in enumerate(groups.values()):
        own = f"{name}_axis" if len(groups) == 1 else f"{name}_axis_{number + 1}"
        columns = list(zip(*(numbers for _, _, numbers in members), strict=True))
        differ = [place for place, column in enumerate(columns) if len(set(column)) > 1]
        text = _with_table(members[0][1].source, set(differ), f"{name}_axis", own)
        tables = {axis.name: [numbers[place] for place in differ] for axis, _, numbers in members}
        found.append(Shared(own, members[0][0].program, _replaced(members[0][1], own, text), tables))
    return found


def _replaced(source: Source, name: str, text: str) -> Source:
    return Source(name, text, "", source.state_bytes, source.output_bytes, source.scratch_bytes, source.constant_bytes)


def _with_table(text: str, differ: set[int], old: str, new: str) -> str:
    """The code with ``axis[i]`` for numbers that differ, and ``axis`` as the first argument of its functions."""
    entries = {place: number for number, place in enumerate(sorted(differ))}
    count = -1

    def entry(match: re.Match[str]) -> str:
        nonlocal count
        count += 1
        return f"axis[{entries[count]}]" if count in entries else match[0]

    text = _NUMBER.sub(entry, text)
    for table in list(_TABLE.finditer(text)):
        if "axis[" in table[3]:  # an array of numbers that differ is put together where it is used
            text = text.replace(table[0], "")
            items = " ".join(table[3].split())
            text = re.sub(rf"\b{table[1]}\b", f"((const real[]){{{items}}})", text)
    text = re.sub(r"\badvance_(update|step)\((?=\w+_state \*s)", r"advance_\1(const real *axis, ", text)
    text = re.sub(r"\badvance_(update|step)\((?=state,)", r"advance_\1(axis, ", text)
    public = rf"\b({old}_(?:init|init_prior|update|step))\((?=\w+_state \*)"
    text = re.sub(public, rf"\1(const {old}_real *axis, ", text)
    text = re.sub(rf"\b({old}_init_prior)\((?=s, mean)", r"\1(axis, ", text)
    body = r"^((?:static int advance_\w+|void \w+_init\w*|int \w+_(?:update|step))\([^{;]*\)\n\{\n)"
    text = re.sub(body, r"\1    (void)axis;\n", text, flags=re.M)
    return re.sub(rf"\b{old}(?=_(?:real|state|output|init|update|step)|\.h)", new, text)


def write(folder: Path, axes: Sequence[Axis], groups: Sequence[Shared], name: str, double: bool) -> list[Path]:
    """Write all files; returns their paths."""
    check_name(name)
    files: dict[str, str] = {}
    code = {axis: group for group in groups for axis in group.tables}
    for group in groups:
        text = header(group.program, group.name, double)
        text = re.sub(r"\((?=\w+_state \*state)", f"(const {group.name}_real *axis, ", text)
        note = "/* axis: the numbers in which the filters of several axes differ. */\n/* The belief"
        files[f"{group.name}.h"] = text.replace("/* The belief", note, 1)
        files[f"{group.name}.c"] = group.source.source
    for axis in axes:
        group = code[axis.name]
        files[f"{axis.name}.h"] = _axis_header(axis, group)
        files[f"{axis.name}.c"] = _axis_source(axis, group, double)
        files[f"{axis.name}.hpp"] = c_project.wrapper(axis.program, axis.name)
        files[f"{axis.name}_golden.h"] = c_project.golden_header(
            axis.program, axis.name, reference.golden(axis.program)
        )
        files[f"test_{axis.name}.c"] = c_project.test_program(axis.program, axis.name)
    files[f"{name}.h"] = _all_axes(axes, name, double)
    files["CMakeLists.txt"] = _cmake(name, [*(group.name for group in groups), *(axis.name for axis in axes)], axes)
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        (folder / path).write_text(text, encoding="utf-8")
    return [folder / path for path in files]


def sources(axis: Axis, groups: Sequence[Shared]) -> tuple[str, ...]:
    """The files that the filter of an axis is compiled from."""
    group = next(group for group in groups if axis.name in group.tables)
    return f"{axis.name}.c", f"{group.name}.c"


def _arguments(program: StepProgram) -> str:
    names = ["state", "y", "mask", *(["u"] if program.takes_control else []), *(["dt"] if program.takes_dt else [])]
    return ", ".join([*names, "out"])


def _axis_header(axis: Axis, group: Shared) -> str:
    upper, shared = axis.name.upper(), group.name
    bits = ("FACTORIZATION_FAILED", "NON_FINITE_OBSERVATION", "PRECISION_LOST", "REJECTED")
    marks = ",\n".join(f"    {upper}_{bit} = {shared.upper()}_{bit}" for bit in bits)
    prototypes = "\n".join(f"{signature(axis.program, axis.name, method)};" for method in ("update", "step"))
    return f"""\
/* {axis.name}: the filter of one axis; see {shared}.h. */
#ifndef {upper}_H
#define {upper}_H

#include "{shared}.h"

#ifdef __cplusplus
extern "C" {{
#endif

typedef {shared}_real {axis.name}_real;
typedef {shared}_state {axis.name}_state;
typedef {shared}_output {axis.name}_output;

enum {{
{marks}
}};

void {axis.name}_init({axis.name}_state *state);
void {axis.name}_init_prior({axis.name}_state *state, const {axis.name}_real *mean, const {axis.name}_real *cov);
{prototypes}

#ifdef __cplusplus
}}
#endif

#endif
"""


def _axis_source(axis: Axis, group: Shared, double: bool) -> str:
    shared = group.name
    items = [_literal(number, "" if double else "f") for number in group.tables[axis.name]] or ["0"]
    rows = ",\n    ".join(", ".join(items[i : i + 6]) for i in range(0, len(items), 6))
    call = _arguments(axis.program)
    steps = "\n".join(
        f"{signature(axis.program, axis.name, method)}\n{{\n    return {shared}_{method}(axis, {call});\n}}\n"
        for method in ("update", "step")
    )
    return f"""\
#include "{axis.name}.h"

static const {axis.name}_real axis[{len(items)}] = {{
    {rows}
}};

void {axis.name}_init({axis.name}_state *state)
{{
    {shared}_init(axis, state);
}}

void {axis.name}_init_prior({axis.name}_state *state, const {axis.name}_real *mean, const {axis.name}_real *cov)
{{
    {shared}_init_prior(axis, state, mean, cov);
}}

{steps}"""


def _literal(number: str, suffix: str) -> str:
    """A number of the generated code outside of it, where the macro R is not known."""
    sign = "-" if number.startswith("(-") else ""
    return f"{sign}{number.strip('(-)').removeprefix('R(')}{suffix}"


def _all_axes(axes: Sequence[Axis], name: str, double: bool) -> str:
    """A header that runs all axes with one call."""
    total = sum(len(axis.channels) for axis in axes)
    takes_dt = any(axis.program.takes_dt for axis in axes)
    includes = "\n".join(f'#include "{axis.name}.h"' for axis in axes)
    states = "\n".join(f"    {axis.name}_state {axis.label};" for axis in axes)
    outputs = "\n".join(f"    {axis.name}_output {axis.label};" for axis in axes)
    inits = "\n".join(f"    {axis.name}_init(&state->{axis.label});" for axis in axes)
    dt = f", {name}_real dt" if takes_dt else ""

    def calls(method: str) -> str:
        lines = []
        for axis in axes:
            values = ", ".join(f"y[{place}]" for place in axis.channels)
            flags = ", ".join(f"(unsigned char)(!mask || mask[{place}])" for place in axis.channels)
            given = ", dt" if axis.program.takes_dt else ""
            lines.append(
                f"    {{\n        const {name}_real own[] = {{{values}}};\n"
                f"        const unsigned char there[] = {{{flags}}};\n"
                f"        status |= {axis.name}_{method}(\n"
                f"            &state->{axis.label}, own, there{given}, &out->{axis.label});\n    }}"
            )
        return "\n".join(lines)

    methods = "\n".join(
        f"""
static inline int {name}_{method}(
    {name}_state *state, const {name}_real y[{total}], const unsigned char mask[{total}]{dt}, {name}_output *out)
{{
    int status = 0;
{calls(method)}
    out->status = status;
    return status;
}}
"""
        for method in ("update", "step")
    )
    upper = name.upper()
    return f"""\
/* {name}: {len(axes)} filters, one for each axis, exported by fwnkf. They are independent: an axis can also be run
   alone, by the functions of its own header, at its own rate. Channels: {", ".join(axis.label for axis in axes)}.
   Call {name}_init, then {name}_step for every sample. No heap, no global variables. */
#ifndef {upper}_H
#define {upper}_H

{includes}

typedef {"double" if double else "float"} {name}_real;

typedef struct {{
{states}
}} {name}_state;

typedef struct {{
{outputs}
    int status; /* bits of all axes */
}} {name}_output;

static inline void {name}_init({name}_state *state)
{{
{inits}
}}
{methods}
#endif
"""


def _cmake(name: str, parts: Sequence[str], axes: Sequence[Axis]) -> str:
    tests = "\n".join(
        f"add_executable(test_{axis.name} test_{axis.name}.c)\n"
        f"target_link_libraries(test_{axis.name} PRIVATE {name})\n"
        f"add_test(NAME golden_{axis.label} COMMAND test_{axis.name})\n"
        for axis in axes
    )
    files = " ".join(f"{part}.c" for part in parts)
    head, _, _ = c_project.cmake(name).partition("add_executable")
    return head.replace(f"add_library({name} STATIC {name}.c)", f"add_library({name} STATIC {files})") + (
        f"enable_testing()\n{tests}"
    )


def labels(names: Sequence[str]) -> list[str]:
    """Names of axes that C can have, each once.

    >>> labels(["angular_velocity.x", "Gyro X", "gyro x"])
    ['angular_velocity_x', 'gyro_x', 'gyro_x_2']
    """
    found: list[str] = []
    for name in names:
        label = re.sub(r"\W", "_", name.lower(), flags=re.ASCII).strip("_") or "axis"
        label = label if label[0].isalpha() else f"axis_{label}"
        again = sum(other == label or (other.startswith(f"{label}_") and other[len(label) + 1 :].isdigit())
                    for other in found)  # fmt: skip
        found.append(label if not again else f"{label}_{again + 1}")
    return found
