"""``export_pt2``: ``start``, ``update`` and ``step`` of a filter, compiled ahead of time for PyTorch without Python."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import FwnkfError
from ..filters.base import Filter
from ..native.compilers import compiler_available
from ..native.graph import Graph
from ..types import Gaussian
from . import reference
from .c_project import golden_header, results
from .decompositions import WHOLE
from .parity import compare_eager, limit_of, write_report
from .reference import Record
from .trace import DEFAULT_OUTPUTS, METHODS, StepProgram, program_of

__all__ = ["export_pt2"]


def export_pt2(
    model: Filter,
    folder: str | Path,
    name: str = "filter",
    precision: str = "float",
    outputs: tuple[str, ...] = DEFAULT_OUTPUTS,
    steps: int = 1000,
    records: Sequence[Record] = (),
) -> dict[str, Any]:
    """Write ``name.pt2``, a program in C++ that runs it, golden vectors and a CMake project.

    The package has the models ``start`` (from mean and covariance of a prior to the leaves of the state), ``update``
    and ``step`` (the leaves of the state, ``y``, ``mask`` and, where the filter reads them, ``u`` and ``dt``; results
    are the next state, the outputs and the status), for a batch of one. It is made of native code: it runs on machines
    like this one, with the same version of libtorch. Compiling takes minutes and needs a C++ compiler.

    Args:
        model: the filter.
        folder: where to; it is created.
        name: of the files.
        precision: ``"float"`` or ``"double"``.
        outputs: what the step returns.
        steps: steps that are compared with the filter in the same precision; 0 leaves it out.
        records: recordings that are compared on, the first ``steps`` steps of them; by default inputs are drawn.

    Returns:
        Facts and the parity report.

    Raises:
        FwnkfError: there is no C++ compiler.

    >>> import tempfile, torch, fwnkf
    >>> one = torch.eye(1)
    >>> export_pt2(fwnkf.KF(F=one, H=one, Q=one, R=one), tempfile.mkdtemp())["filter"]  # doctest: +SKIP
    'kf'
    """
    program = program_of(model, name, precision, outputs, steps, WHOLE)
    if not compiler_available():
        raise FwnkfError("no C++ compiler found (g++, c++, clang++), which an AOTInductor package is compiled with")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    package = folder / f"{name}.pt2"
    _compile({method: exported(getattr(program, method)) for method in METHODS}, package)
    parity = compare_eager(Package(program, _load(package)), steps, records) if steps else None
    files = {
        f"{name}_golden.h": golden_header(program, name, reference.golden(program, program.model.dtype)),
        f"{name}_example.cpp": example(program, name, limit_of(program, parity)),
        "CMakeLists.txt": cmake(name),
    }
    for path, text in files.items():
        (folder / path).write_text(text, encoding="utf-8")
    facts = {
        "filter": model.name,
        "name": name,
        "precision": precision,
        "files": [str(package), *(str(folder / path) for path in files)],
        "bytes": {package.name: package.stat().st_size},
        "parity": parity,
    }
    return write_report(folder, facts)


def exported(graph: Graph) -> torch.export.ExportedProgram:
    """A traced function as a program of ``torch.export``."""
    examples = tuple(torch.zeros((1, *field.shape), dtype=field.dtype) for field in graph.inputs)

    class Contiguous(torch.nn.Module):
        """The next call and the caller's buffers have the strides of contiguous tensors."""

        def forward(self, *arguments: Tensor) -> tuple[Tensor, ...]:
            return tuple(item.contiguous() for item in graph.module(*arguments))

    with torch.no_grad():
        return torch.export.export(Contiguous(), examples)


def _compile(programs: dict[str, torch.export.ExportedProgram], path: Path) -> None:
    from torch._inductor import aot_compile
    from torch._inductor.package.package import package_aoti

    options = {"aot_inductor.package": True}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore", FutureWarning)
        files: Any = {}
        for method, program in programs.items():
            arguments: Any = program.example_inputs
            files[method] = aot_compile(program.module(), arguments[0], options=options)
        package_aoti(str(path), files)


def _load(path: Path) -> dict[str, Any]:
    from torch._inductor.package.package import load_package

    return {method: load_package(str(path), method) for method in METHODS}


class Package:
    """The functions ``start``, ``update`` and ``step`` in PyTorch, with the state between calls."""

    def __init__(self, program: StepProgram, functions: dict[str, Any]) -> None:
        self.program, self.functions = program, functions
        self.results: list[Tensor] = []

    def restart(self, prior: Gaussian | None = None) -> None:
        """Call ``start`` with a prior, or the default one."""
        parts = self.program.prior if prior is None else prior
        given = (part.to(self.program.model.dtype).unsqueeze(0) for part in parts)
        self.results = list(self.functions["start"](*given))

    @torch.no_grad()
    def advance(self, method: str, inputs: dict[str, Tensor]) -> int:
        """Call ``update`` or ``step``; returns the status."""
        count = len(self.program.state)
        given = [inputs[field.name] for field in self.program.step.inputs[count:]]
        self.results = list(self.functions[method](*self.results[:count], *given))
        return int(self.results[-1])

    def values(self) -> dict[str, Any]:
        """The state, as ``state.NAME``, and the outputs of the last call."""
        fields, count = self.program.step.outputs, len(self.program.state)
        names = [f"state.{field.name}" if place < count else field.name for place, field in enumerate(fields)]
        return {name: value.numpy() for name, value in zip(names, self.results, strict=True)}


def cmake(name: str) -> str:
    """The example, linked with the libtorch of the Python package."""
    return f"""\
# cmake -S . -B build -DCMAKE_PREFIX_PATH="$(python -c 'import torch; print(torch.utils.cmake_prefix_path)')"
cmake_minimum_required(VERSION 3.18)
project({name}_example CXX)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
find_package(Torch REQUIRED)

add_executable({name}_example {name}_example.cpp)
target_link_libraries({name}_example PRIVATE ${{TORCH_LIBRARIES}})
set_property(TARGET {name}_example PROPERTY CXX_STANDARD 20)

enable_testing()
add_test(NAME golden COMMAND {name}_example ${{CMAKE_CURRENT_SOURCE_DIR}}/{name}.pt2)
"""


def example(program: StepProgram, name: str, limit: float) -> str:
    """A program that loads the package, filters the golden inputs and compares with the golden results.

    Differences are relative to the largest value of each output over all steps, as those of the parity report.
    """
    double = program.model.dtype == torch.float64
    count = len(program.state)
    kinds = {torch.bool: "torch::kBool"}
    inputs = "\n".join(
        f"        inputs.push_back(tensor(golden_{field.name}[t], {_sizes(field.shape)}, "
        f"{kinds.get(field.dtype, 'real_kind')}));"
        for field in program.step.inputs[count:]
    )
    places = {field.name: place for place, field in enumerate(program.step.outputs) if place >= count}
    compares = "\n".join(
        f"        {field.name}.compare(out[{places[field.name]}], golden_{field.name}[t]);"
        for field in results(program)
    )
    records = ", ".join(field.name for field in results(program))
    verdicts = " + ".join(f'{field.name}.differs("{field.name}")' for field in results(program))
    n, d = program.prior.mean.numel(), program.prior.cov.shape[0]
    mean = ", ".join(repr(item) for item in program.prior.mean.tolist())
    return f"""\
// Loads {name}.pt2, filters the golden inputs and compares with the filter in PyTorch.
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/torch.h>

using {name}_real = {"double" if double else "float"};
#include "{name}_golden.h"

static const auto real_kind = {"torch::kDouble" if double else "torch::kFloat"};

// A filter with its state: the first tensors that each function returns are the state after it.
class Filter {{
public:
    explicit Filter(const std::string &package)
        : start_(package, "start"), update_(package, "update"), step_(package, "step")
    {{
        const auto mean = torch::tensor({{{mean}}}, real_kind).reshape({{1, {n}}});
        start(mean, torch::eye({d}, real_kind).unsqueeze(0));
    }}

    // A belief of mean [1, {n}] and covariance [1, {d}, {d}].
    void start(const torch::Tensor &mean, const torch::Tensor &cov) {{ state_ = start_.run({{mean, cov}}); }}

    // Condition on a measurement without predicting.
    std::vector<torch::Tensor> update(const std::vector<torch::Tensor> &inputs) {{ return advance(update_, inputs); }}

    // Predict, then condition on a measurement.
    std::vector<torch::Tensor> step(const std::vector<torch::Tensor> &inputs) {{ return advance(step_, inputs); }}

private:
    std::vector<torch::Tensor> advance(
        torch::inductor::AOTIModelPackageLoader &function, const std::vector<torch::Tensor> &inputs)
    {{
        std::vector<torch::Tensor> arguments(state_);
        arguments.insert(arguments.end(), inputs.begin(), inputs.end());
        auto results = function.run(arguments);
        state_.assign(results.begin(), results.begin() + {count});
        return results;
    }}

    torch::inductor::AOTIModelPackageLoader start_, update_, step_;
    std::vector<torch::Tensor> state_;
}};

template <typename Number>
static torch::Tensor tensor(const Number *values, const std::vector<int64_t> &sizes, torch::ScalarType kind)
{{
    const auto from = torch::CppTypeToScalarType<Number>::value;
    return torch::from_blob(const_cast<Number *>(values), sizes, from).to(kind, false, true);
}}

// The largest difference of an output over all steps, and its largest value.
struct Record {{
    double error = 0, size = 0;

    void compare(const torch::Tensor &mine, const {name}_real *wanted)
    {{
        const auto values = mine.contiguous();
        for (int64_t i = 0; i < values.numel(); ++i) {{
            const double difference = double(values.data_ptr<{name}_real>()[i]) - double(wanted[i]);
            error = std::isnan(difference) ? INFINITY : std::fmax(error, std::fabs(difference));
            size = std::fmax(size, std::fabs(double(wanted[i])));
        }}
    }}

    int differs(const char *what) const
    {{
        if (error <= {limit!r} * (size > 0 ? size : 1)) {{
            return 0;
        }}
        std::printf("%s: differs by %.2e of its largest value\\n", what, error / (size > 0 ? size : 1));
        return 1;
    }}
}};

int main(int count, char **arguments)
{{
    if (count != 2) {{
        std::puts("usage: {name}_example PACKAGE.pt2");
        return 2;
    }}
    torch::InferenceMode guard;
    torch::set_num_threads(1);
    Filter filter(arguments[1]);
    Record {records};
    for (int t = 0; t < STEPS; ++t) {{
        std::vector<torch::Tensor> inputs;
{inputs}
        const auto out = t == 0 ? filter.update(inputs) : filter.step(inputs);
{compares}
    }}
    const int failures = {verdicts};
    std::printf("%d steps: %s\\n", int(STEPS), failures ? "FAILED" : "OK");
    return failures != 0;
}}
"""


def _sizes(shape: tuple[int, ...]) -> str:
    return "{" + ", ".join(str(size) for size in (1, *shape)) + "}"
