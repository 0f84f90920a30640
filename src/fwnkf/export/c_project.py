"""What stands beside the C of a filter: a C++ wrapper, golden vectors, a test program and a CMake project."""

from __future__ import annotations

from pathlib import Path

from .c_source import REJECTED, Source
from .parity import TOLERANCE
from .reference import Sample
from .trace import Field, StepProgram
from .values import KINDS

RESERVED = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char class co_await co_return co_yield compl
concept const const_cast consteval constexpr constinit continue decltype default delete do double dynamic_cast else
enum explicit export extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq
nullptr operator or or_eq private protected public register reinterpret_cast requires return short signed sizeof
static static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename
union unsigned using virtual void volatile wchar_t while xor xor_eq
std advance
all clean edit_cache help install list_install_components package package_source rebuild_cache test
"""
"""Names that no filter can have: keywords of C++, where the name is a namespace, other names there and in the generated
file, and targets of CMake."""


def write(folder: Path, program: StepProgram, source: Source, golden: list[Sample]) -> list[Path]:
    """Write all files of the project; returns their paths."""
    name = source.name
    files = {
        f"{name}.c": source.source,
        f"{name}.h": source.header,
        f"{name}.hpp": wrapper(program, name),
        f"{name}_golden.h": golden_header(program, name, golden),
        f"test_{name}.c": test_program(program, name),
        "CMakeLists.txt": cmake(name),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        (folder / path).write_text(text, encoding="utf-8")
    return [folder / path for path in files]


def cmake(name: str) -> str:
    """A library and its test."""
    return f"""\
cmake_minimum_required(VERSION 3.13)
project({name} C)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_C_STANDARD 99)
set(CMAKE_C_EXTENSIONS OFF)

add_library({name} STATIC {name}.c)
target_include_directories({name} PUBLIC ${{CMAKE_CURRENT_SOURCE_DIR}})
target_compile_options({name} PRIVATE -O3 -Wall -Wextra -Wpedantic)
target_link_libraries({name} PUBLIC m)

add_executable(test_{name} test_{name}.c)
target_link_libraries(test_{name} PRIVATE {name})

enable_testing()
add_test(NAME golden COMMAND test_{name})
add_test(NAME fuzz COMMAND test_{name} 100000)
"""


def _inputs(program: StepProgram) -> dict[str, Field]:
    return {field.name: field for field in program.step.inputs[len(program.state) :]}


def _results(program: StepProgram) -> list[Field]:
    return [field for field in program.step.outputs[len(program.state) : -1] if field.size]


def golden_header(program: StepProgram, name: str, golden: list[Sample]) -> str:
    """Inputs of a few steps and the results of the filter in float64."""
    lines = [
        f"/* Inputs, and results of the filter in float64. Generated with {name}.c. */",
        f"enum {{ STEPS = {len(golden)} }};",
    ]
    for field in _inputs(program).values():
        rows = [sample.inputs[field.name].flatten().tolist() for sample in golden]
        lines.append(_table(f"golden_{field.name}", field, rows, name))
    for field in _results(program):
        rows = [getattr(sample.out, field.name).flatten().tolist() for sample in golden]
        lines.append(_table(f"golden_{field.name}", field, rows, name))
    rows = [[int(sample.out.status)] for sample in golden]
    lines.append(_table("golden_status", program.step.outputs[-1], rows, name))
    return "\n".join(lines) + "\n"


def _table(title: str, field: Field, rows: list[list[float]], name: str) -> str:
    kind = KINDS[field.dtype]
    ctype = {"real": f"{name}_real", "int": "int", "bool": "unsigned char"}[kind]

    def number(item: float) -> str:
        if kind != "real":
            return str(int(item))
        return "NAN" if item != item else f"({name}_real){item!r}"

    text = ",\n".join("    {" + ", ".join(number(item) for item in row) + "}" for row in rows)
    return f"static const {ctype} {title}[STEPS][{max(1, field.size)}] = {{\n{text}\n}};"


def _call(program: StepProgram, name: str, method: str, index: str) -> str:
    arguments = ["&state", f"golden_y[{index}]", f"golden_mask[{index}]"]
    if program.takes_control:
        arguments.append(f"golden_u[{index}]")
    if program.takes_dt:
        arguments.append(f"golden_dt[{index}]" + ("[0]" if _inputs(program)["dt"].size == 1 else ""))
    return f"{name}_{method}({', '.join([*arguments, '&out'])})"


def test_program(program: StepProgram, name: str) -> str:
    """A program that compares with the golden vectors and, given a number, runs that many steps of hostile inputs."""
    tolerance = TOLERANCE[program.model.dtype]
    results = _results(program)
    compares = "\n".join(
        f"        compare(out.{field.name}, golden_{field.name}[t], {field.size}, &error[{i}], &size[{i}]);"
        for i, field in enumerate(results)
    )
    reals = [field for field in program.state if field.size and KINDS[field.dtype] == "real"]
    finite = "\n".join(
        f"    for (int i = 0; i < {field.size}; ++i) {{ bad |= !isfinite(state->{field.name}[i]); }}" for field in reals
    )
    inputs = _inputs(program)
    draws, arguments = [], ["&state", "y", "mask"]
    draws.append(f"        {name}_real y[{inputs['y'].size}];")
    draws.append(f"        unsigned char mask[{inputs['y'].size}];")
    draws.append(
        f"        for (int i = 0; i < {inputs['y'].size}; ++i) {{ y[i] = hostile(); mask[i] = draw() % 4 != 0; }}"
    )
    if program.takes_control:
        draws.append(f"        {name}_real u[{inputs['u'].size}];")
        draws.append(f"        for (int i = 0; i < {inputs['u'].size}; ++i) {{ u[i] = hostile(); }}")
        arguments.append("u")
    if program.takes_dt:
        size = inputs["dt"].size
        draws.append(f"        {name}_real dt[{size}];")
        draws.append(
            f"        for (int i = 0; i < {size}; ++i) {{ dt[i] = draw() % 4 ? ({name}_real)0.01 : hostile(); }}"
        )
        arguments.append("dt[0]" if size == 1 else "dt")
    drawn = "\n".join(draws)
    return f"""\
/* Compares {name}.c with golden vectors; with a number, also runs that many steps of hostile inputs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "{name}.h"
#include "{name}_golden.h"

static void compare(const {name}_real *mine, const {name}_real *wanted, int n, double *error, double *size)
{{
    for (int i = 0; i < n; ++i) {{
        const double difference = fabs((double)mine[i] - (double)wanted[i]);
        if (!(difference <= *error)) {{
            *error = difference;
        }}
        if (fabs((double)wanted[i]) > *size) {{
            *size = fabs((double)wanted[i]);
        }}
    }}
}}

static int golden(void)
{{
    static const char *const names[] = {{{", ".join(f'"{field.name}"' for field in results)}}};
    double error[{len(results)}] = {{0}}, size[{len(results)}] = {{0}};
    static {name}_state state;
    static {name}_output out;
    int failures = 0;
    {name}_init(&state);
    for (int t = 0; t < STEPS; ++t) {{
        const int status = t == 0 ? {_call(program, name, "update", "t")} : {_call(program, name, "step", "t")};
        failures += ((status ^ golden_status[t][0]) & ~{name.upper()}_PRECISION_LOST) != 0;
{compares}
    }}
    if (failures) {{
        printf("status differs in %d of %d steps\\n", failures, (int)STEPS);
    }}
    for (int i = 0; i < {len(results)}; ++i) {{
        const double relative = size[i] > 0 ? error[i] / size[i] : error[i];
        printf("%-18s relative error %.2e\\n", names[i], relative);
        failures += !(relative <= {tolerance!r});
    }}
    return failures;
}}

static unsigned long long seed = 1;

static unsigned draw(void)
{{
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (unsigned)(seed >> 33);
}}

static {name}_real hostile(void)
{{
    const double uniform = draw() / 2147483648.0 - 0.5;
    switch (draw() % 16) {{
    case 0: return ({name}_real)NAN;
    case 1: return ({name}_real)INFINITY;
    case 2: return ({name}_real)-INFINITY;
    case 3: return ({name}_real)1e30;
    case 4: return ({name}_real)-1e30;
    case 5: return ({name}_real)1e-40;
    case 6: return ({name}_real)(1e6 * uniform);
    default: return ({name}_real)uniform;
    }}
}}

static int finite(const {name}_state *state)
{{
    int bad = 0;
{finite}
    return !bad;
}}

static int fuzz(long steps)
{{
    static {name}_state state;
    static {name}_output out;
    long flagged = 0, rejected = 0;
    {name}_init(&state);
    for (long t = 0; t < steps; ++t) {{
{drawn}
        const int status = {name}_step({", ".join([*arguments, "&out"])});
        flagged += status != 0;
        rejected += (status & {REJECTED}) != 0;
        if (!finite(&state)) {{
            printf("step %ld: the state is not finite, status %d\\n", t, status);
            return 1;
        }}
        if (t % 1000 == 999) {{
            {name}_init(&state);
        }}
    }}
    printf("%ld hostile steps: state finite, %ld flagged, %ld rejected\\n", steps, flagged, rejected);
    return 0;
}}

int main(int count, char **arguments)
{{
    int failures = golden();
    if (count > 1) {{
        failures += fuzz(strtol(arguments[1], NULL, 10));
    }}
    puts(failures ? "FAILED" : "OK");
    return failures != 0;
}}
"""


def wrapper(program: StepProgram, name: str) -> str:
    """A header-only C++11 class."""
    inputs = _inputs(program)
    real = f"{name}_real"
    parameters = [f"const std::array<{real}, {inputs['y'].size}> &y"]
    passed = ["y.data()", "mask ? mask->data() : nullptr"]
    if program.takes_control:
        parameters.append(f"const std::array<{real}, {inputs['u'].size}> &u")
        passed.append("u.data()")
    if program.takes_dt:
        single = inputs["dt"].size == 1
        parameters.append(f"{real} dt" if single else f"const std::array<{real}, {inputs['dt'].size}> &dt")
        passed.append("dt" if single else "dt.data()")
    signature = ", ".join([*parameters, "const Mask *mask = nullptr"])
    n, d = program.prior.mean.numel(), program.prior.cov.shape[0]
    methods = "\n".join(
        f"""
    const {name}_output &{method}({signature})
    {{
        {name}_{method}(&state_, {", ".join(passed)}, &out_);
        return out_;
    }}"""
        for method in ("update", "step")
    )
    return f"""\
// C++ wrapper of {name}.h: a filter with its state.
#ifndef {name.upper()}_HPP
#define {name.upper()}_HPP

#include <array>

#include "{name}.h"

namespace {name} {{

using Mask = std::array<unsigned char, {inputs["y"].size}>;

class Filter {{
public:
    Filter() {{ {name}_init(&state_); }}

    Filter(const std::array<{real}, {n}> &mean, const std::array<{real}, {d * d}> &cov)
    {{
        {name}_init_prior(&state_, mean.data(), cov.data());
    }}
{methods}

    const {name}_state &state() const {{ return state_; }}
    void restore(const {name}_state &state) {{ state_ = state; }}

private:
    {name}_state state_ = {{}};
    {name}_output out_ = {{}};
}};

}}  // namespace {name}

#endif
"""
