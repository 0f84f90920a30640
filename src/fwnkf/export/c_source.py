"""The C of a filter: one source file and one header."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import torch

from ..native.bodies import Function, body, flat, store
from ..native.builder import REFERENCE, Builder, Pool
from ..native.c_helpers import preamble
from ..native.graph import Field
from ..native.lowering import Lowered, lower
from ..native.values import KINDS, Array, Scalars, literal
from ..native.weights import Grid
from ..types import Status
from .trace import StepProgram

FIELD_TYPES = {"real": "{name}_real", "int": "int64_t", "bool": "unsigned char"}
REJECTED = int(Status.REJECTED)


@dataclass(frozen=True)
class Source:
    """Generated code, with the memory it takes in bytes; ``scratch`` is that of arrays on the stack."""

    name: str
    source: str
    header: str
    state_bytes: int
    output_bytes: int
    scratch_bytes: int
    constant_bytes: int


def generate(program: StepProgram, name: str, grid: Grid | None = None) -> Source:
    """The C of a traced filter, in the precision in which it was traced; ``grid`` is that of rounded weights."""
    dtype = program.model.dtype
    double = dtype == torch.float64
    pool = Pool(grid=grid)
    step = _advancing(lower(program.step, _arguments(program), Builder(dtype, pool)), program, moves=True)
    update = _advancing(lower(program.update, _arguments(program), Builder(dtype, pool)), program, moves=False)
    start = _starting(lower(program.start, {"mean": "mean", "cov": "cov"}, Builder(dtype, pool)))
    functions = [
        _start_function(name, start),
        _default_start(program, name),
        _advance(program, name, "update", update),
        _advance(program, name, "step", step),
        _entry_point(program, name, "update"),
        _entry_point(program, name, "step"),
    ]
    code = "\n".join(functions)
    used = [entry for entry in pool.entries.values() if re.search(rf"\b{entry[0]}\b", code)]
    source = "\n".join(
        (
            f'#include "{name}.h"\n\n#include <math.h>\n',
            "#ifdef __FAST_MATH__",
            '#error "compile without -ffast-math: checks for numbers that are not finite need IEEE arithmetic"',
            "#endif\n",
            f"typedef {name}_real real;\n",
            preamble(code, double),
            "".join(_constant(*entry) for entry in used),
            code,
        )
    )
    unit = 8 if double else 4
    scratch = max(8 * f.ints + unit * f.reals for f in (step, update, start))
    outputs = program.step.outputs[len(program.state) :]
    return Source(
        name,
        source,
        header(program, name, double),
        _bytes(program.state, unit),
        _bytes(outputs, unit),
        scratch,
        sum(data.size * (data.itemsize if kind == "real" else 8) for _, data, kind in used),
    )


def _bytes(fields: tuple[Field, ...], unit: int) -> int:
    sizes = {"real": unit, "int": 8, "bool": 1}
    return sum(field.size * sizes[KINDS[field.dtype]] for field in fields)


def _constant(name: str, data: np.ndarray, kind: str) -> str:
    whole = data.dtype.kind == "i"
    ctype = f"{data.dtype}_t" if whole else "real" if kind == "real" else "int64_t"
    items = [literal(item, "int" if whole else kind) for item in data.tolist()]  # type: ignore[arg-type]
    rows = [", ".join(items[i : i + 8]) for i in range(0, len(items), 8)]
    return f"static const {ctype} {name}[{len(items)}] = {{\n    " + ",\n    ".join(rows) + "\n};\n"


# ---- function bodies ---------------------------------------------------------------------------------------------


def _arguments(program: StepProgram) -> dict[str, str]:
    names = {field.name: f"s->{field.name}" for field in program.state}
    return {**names, "y": "y", "mask": "mask", "u": "u", "dt": "dt"}


def _advancing(lowered: Lowered, program: StepProgram, moves: bool) -> Function:
    """Everything is computed first; the state is written only if every result is finite and no step was negative."""
    count = len(program.state)
    build = lowered.build
    inputs = {buffer.name: key for key, buffer in build.buffers.items() if buffer.name}
    results: list[tuple[str, Field, Scalars | Array]] = []
    for place, (field, value) in enumerate(lowered.results):
        if field.size == 0:
            continue
        target = f"s->{field.name}" if place < count else f"out->{field.name}"
        own = inputs.get(target)
        if isinstance(value, Array) and value.buffer.key == own and value.contiguous and value.index.size == field.size:
            continue  # unchanged
        if field.name == "status" and place >= count:
            status = literal(build.scalars(value).items.reshape(-1)[0], "int")
            continue
        results.append((target, field, _apart(build, value)))
    checks = [_check(value) for _, field, value in results if KINDS[field.dtype] == "real"]
    stores = [store(target, value) for target, _, value in results]
    tail = [
        f"const int status = (int)({status});",
        "int bad = 0;",
        *(_signs_of_dt(program) if moves else ()),
        *checks,
        "if (bad) {",
        f"    return status | {REJECTED};",
        "}",
        *stores,
        "return status;",
    ]
    return body(lowered, tail)


def _signs_of_dt(program: StepProgram) -> list[str]:
    """Checks of ``dt``, one number for each sample of a block."""
    sizes = [field.size for field in program.step.inputs if field.name == "dt"]
    return [f"for (int i = 0; i < {size}; ++i) {{ bad |= !(dt[i] >= R(0.0)); }}" for size in sizes]


def _apart(build: Builder, value: Scalars | Array) -> Scalars | Array:
    """A result that does not read the state, which is being overwritten when results are stored."""
    if isinstance(value, Array):
        return build.realize(value) if value.buffer.name.startswith("s->") else value
    items = value.items.copy()
    for place in np.ndindex(*items.shape):
        found = REFERENCE.match(str(items[place]))
        if found and build.buffers[int(found[1])].name.startswith("s->"):
            items[place] = build.define(found.string, value.kind)
    return Scalars(items, value.kind)


def _starting(lowered: Lowered) -> Function:
    tail = [store(f"s->{field.name}", value) for field, value in lowered.results if field.size]
    return body(lowered, tail)


def _check(value: Scalars | Array) -> str:
    if isinstance(value, Array):
        return f"for (int i = 0; i < {value.index.size}; ++i) {{ bad |= ({flat(value)} - {flat(value)}) != R(0.0); }}"
    named = sorted({str(item) for item in value.items.flat if isinstance(item, str)})
    return "\n".join(f"bad |= ({item} - {item}) != R(0.0);" for item in named)


# ---- entry points and header -------------------------------------------------------------------------------------


def _parameters(program: StepProgram, name: str) -> str:
    parts = [f"{name}_state *s", "const real *y", "const unsigned char *mask"]
    parts += ["const real *u"] if program.takes_control else []
    parts += ["const real *dt"] if program.takes_dt else []
    return ", ".join([*parts, f"{name}_output *out"])


def _advance(program: StepProgram, name: str, method: str, function: Function) -> str:
    """The static function that computes; arguments that this filter does not read are marked so."""
    unused = [item for item in ("y", "mask", "u", "dt") if not re.search(rf"\b{item}\[", function.text)]
    present = {field.name for field in program.step.inputs}
    marks = "".join(f"    (void){item};\n" for item in unused if item in present)
    return f"static int advance_{method}({_parameters(program, name)})\n{{\n{marks}{function.text[2:]}"


def _start_function(name: str, function: Function) -> str:
    unused = [item for item in ("mean", "cov") if not re.search(rf"(?<!>)\b{item}\[", function.text)]
    marks = "".join(f"    (void){item};\n" for item in unused)
    return f"void {name}_init_prior({name}_state *s, const real *mean, const real *cov)\n{{\n{marks}{function.text[2:]}"


def _default_start(program: StepProgram, name: str) -> str:
    mean, cov = (", ".join(literal(item, "real") for item in part.flatten().tolist()) for part in program.prior)
    n, d = program.prior.mean.numel(), program.prior.cov.numel()
    return (
        f"void {name}_init({name}_state *s)\n{{\n    static const real mean[{n}] = {{{mean}}};\n"
        f"    static const real cov[{d}] = {{{cov}}};\n    {name}_init_prior(s, mean, cov);\n}}\n"
    )


def signature(program: StepProgram, name: str, method: str) -> str:
    """The prototype of ``step`` or ``update``."""
    inputs = {field.name: field for field in program.step.inputs}
    real = f"{name}_real"
    parts = [
        f"{name}_state *state",
        f"const {real} y[{inputs['y'].size}]",
        f"const unsigned char mask[{inputs['y'].size}]",
    ]
    parts += [f"const {real} u[{inputs['u'].size}]"] if program.takes_control else []
    if program.takes_dt:
        parts.append(f"{real} dt" if inputs["dt"].size == 1 else f"const {real} dt[{inputs['dt'].size}]")
    return f"int {name}_{method}({', '.join([*parts, f'{name}_output *out'])})"


def _entry_point(program: StepProgram, name: str, method: str) -> str:
    inputs = {field.name: field for field in program.step.inputs}
    channels = inputs["y"].size
    lines = [f"{signature(program, name, method)}\n{{"]
    arguments = ["state", "y", "flags"]
    # the step computes with flags that are 0 or 1; callers give any nonzero value
    lines.append(f"    unsigned char flags[{channels}];")
    lines.append(f"    for (int i = 0; i < {channels}; ++i) {{ flags[i] = !mask || mask[i]; }}")
    if program.takes_control:
        zeros = ", ".join(["0"] * inputs["u"].size)
        lines.append(f"    static const real none[{inputs['u'].size}] = {{{zeros}}};")
        arguments.append("u ? u : none")
    if program.takes_dt:
        if inputs["dt"].size == 1:
            lines.append("    const real seconds[1] = {dt};")
            arguments.append("seconds")
        else:
            arguments.append("dt")
    arguments.append("out")
    lines.append(f"    const int status = advance_{method}({', '.join(arguments)});")
    lines.append("    out->status = status;\n    return status;\n}\n")
    return "\n".join(lines)


def header(program: StepProgram, name: str, double: bool) -> str:
    """Types and prototypes."""
    guard = f"{name.upper()}_H"
    state = "\n".join(_member(field, name) for field in program.state if field.size)
    outputs = program.step.outputs[len(program.state) : -1]
    members = "\n".join(_member(field, name) for field in outputs if field.size)
    model = program.model
    parts = ", ".join(f"{_comment(part.name)} ({part.size})" for part in model.layout.parts)
    n, d = program.prior.mean.numel(), program.prior.cov.shape[0]
    notes = " dt is in seconds." if program.takes_dt else ""
    notes += " u NULL: zero." if program.takes_control else ""
    return f"""\
/* {name}: filter "{_comment(model.name)}" exported by fwnkf.

   State: {parts}.
   Call {name}_init or {name}_init_prior, then {name}_update with a measurement at the time of the prior or
   {name}_step with one that is a step later, then {name}_step for every sample. No heap, no global variables: several
   filters can run side by side, each with a {name}_state of its own. Matrices are in row-major order. */
#ifndef {guard}
#define {guard}

#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

typedef {"double" if double else "float"} {name}_real;

/* Bits of the status; zero is success. */
enum {{
    {name.upper()}_FACTORIZATION_FAILED = 1, /* S was not positive definite: the update was skipped */
    {name.upper()}_NON_FINITE_OBSERVATION = 2, /* a channel was not finite or too large: it was treated as missing */
    {name.upper()}_PRECISION_LOST = 4, /* rounding may have changed the update by more than a percent */
    {name.upper()}_REJECTED = {REJECTED} /* not finite, or dt < 0: state and outputs are those before the call */
}};

typedef struct {{
{state}
}} {name}_state;

typedef struct {{
{members}
    int status;
}} {name}_output;

/* The belief that fwnkf's init starts from without a prior. */
void {name}_init({name}_state *state);

/* A belief of mean and covariance, {n} and {d} x {d} numbers. */
void {name}_init_prior({name}_state *state, const {name}_real *mean, const {name}_real *cov);

/* Condition on a measurement without predicting. mask is nonzero where a channel was measured; NULL: all channels. */
{signature(program, name, "update")};

/* Predict, then condition on a measurement.{notes} Returns the status. */
{signature(program, name, "step")};

#ifdef __cplusplus
}}
#endif

#endif
"""


def _comment(text: str) -> str:
    """A name of the user's own in a comment, which it must not end."""
    return re.sub(r"[^\w .-]", "_", text)


def _member(field: Field, name: str) -> str:
    ctype = FIELD_TYPES[KINDS[field.dtype]].format(name=name)
    shape = " x ".join(str(size) for size in field.shape) or "1"
    return f"    {ctype} {field.name}[{field.size}]; /* {shape} */"
