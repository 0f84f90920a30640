"""``export_onnx``: ``start``, ``update`` and ``step`` of a filter as ONNX files with standard operators only."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from ..errors import ConfigError
from ..extras import need
from ..filters.base import Filter
from ..native.graph import Graph
from ..types import Gaussian, numpy_dtype
from . import onnx_project, reference
from .decompositions import TABLE
from .parity import compare_eager, limit_of, write_report
from .reference import Record
from .trace import DEFAULT_OUTPUTS, METHODS, StepProgram, program_of

__all__ = ["export_onnx"]

_ATEN: Any = torch.ops.aten
_WITH_TENSORS = {
    _ATEN.clamp.default: _ATEN.clamp.Tensor,
    _ATEN.clamp_min.default: _ATEN.clamp_min.Tensor,
    _ATEN.clamp_max.default: _ATEN.clamp_max.Tensor,
}
"""Operators that take numbers, and their forms that take tensors."""
_ZEROS = {
    _ATEN.full.default: _ATEN.zeros.default,
    _ATEN.full_like.default: _ATEN.zeros_like.default,
    _ATEN.new_full.default: _ATEN.new_zeros.default,
    _ATEN.scalar_tensor.default: _ATEN.zeros.default,
}
"""Operators that fill a tensor with a number, which comes last, and those that fill it with zeros."""


def export_onnx(
    model: Filter,
    folder: str | Path,
    name: str = "filter",
    precision: str = "float",
    outputs: tuple[str, ...] = DEFAULT_OUTPUTS,
    steps: int = 1000,
    records: Sequence[Record] = (),
) -> dict[str, Any]:
    """Write ``name_start.onnx``, ``name_update.onnx`` and ``name_step.onnx``, golden vectors and an example that runs.

    ``start`` takes ``mean`` and ``cov`` of a prior. The others take the state (``state_…``), ``y``, ``mask`` and, where
    the filter reads them, ``u`` and ``dt``; they return the next state (``next_…``), the outputs and ``status``. All
    have a batch axis of one. Factorisations are written out, because ONNX has none.

    Args:
        model: the filter.
        folder: where to; it is created.
        name: of the files.
        precision: ``"float"`` or ``"double"``.
        outputs: what the step returns.
        steps: steps in ONNX Runtime that are compared with the filter in the same precision; 0 leaves it out.
        records: recordings that are compared on, the first ``steps`` steps of them; by default inputs are drawn.

    Returns:
        Facts and the parity report.

    Raises:
        ConfigError: there is no ONNX for an operator of the filter.

    >>> import tempfile, torch, fwnkf
    >>> one = torch.eye(1)
    >>> export_onnx(fwnkf.KF(F=one, H=one, Q=one, R=one), tempfile.mkdtemp(), steps=0)["filter"]
    'kf'
    """
    need("onnxscript", extra="onnx")
    program = program_of(model, name, precision, outputs, steps, TABLE)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    count = len(program.state)
    files = []
    for method in METHODS:
        graph: Graph = getattr(program, method)
        begin = method == "start"
        inputs = [f"state_{f.name}" if not begin and i < count else f.name for i, f in enumerate(graph.inputs)]
        results = [f"next_{field.name}" if i < count else field.name for i, field in enumerate(graph.outputs)]
        path = folder / f"{name}_{method}.onnx"
        _write(graph, inputs, results, path)
        files.append(path)
    parity = compare_eager(Session(program, files), steps, records) if steps else None
    golden = reference.golden(program, program.model.dtype)
    beside = onnx_project.write(folder, program, name, golden, limit_of(program, parity))
    facts = {
        "filter": model.name,
        "name": name,
        "precision": precision,
        "files": [str(path) for path in (*files, *beside)],
        "bytes": {path.name: path.stat().st_size for path in files},
        "parity": parity,
    }
    return write_report(folder, facts)


def _write(graph: Graph, inputs: list[str], results: list[str], path: Path) -> None:
    """Copies of the results: an output that is an input, or another output, would have no name of its own."""
    module = _exact(graph.module) if any(field.dtype == torch.float64 for field in graph.outputs) else graph.module

    class Copied(torch.nn.Module):
        def forward(self, *arguments: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(item.clone() for item in module(*arguments))

    examples = tuple(torch.zeros((1, *field.shape), dtype=field.dtype) for field in graph.inputs)
    noisy = logging.getLogger("torch.onnx")
    level = noisy.level
    noisy.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program: Any = torch.onnx.export(
                Copied(), examples, dynamo=True, input_names=inputs, output_names=results, verbose=False
            )
    except torch.onnx.OnnxExporterError as error:
        first: BaseException = error
        while first.__cause__ is not None:  # the others are advice for developers of torch
            first = first.__cause__
        raise ConfigError(f"the filter cannot be written as {path.name}; export it with --to c: {first}") from error
    finally:
        noisy.setLevel(level)
    # the exporter names values by their operators, and one of them is `mean`
    ends = set(program.model.graph.outputs)
    for node in program.model.graph:
        for value in node.outputs:
            if value.name in results and value not in ends:
                value.name = f"inner_{value.name}"
    program.save(str(path))


def _exact(module: GraphModule) -> GraphModule:
    """A copy whose numbers are tensors of double precision; the exporter rounds ``0.1 * x`` to single precision."""
    module = copy.deepcopy(module)
    for node in list(module.graph.nodes):
        if node.target in _WITH_TENSORS and any(isinstance(value, float) for value in node.args):
            node.target = _WITH_TENSORS[node.target]
            node.args = tuple(float(value) if isinstance(value, int) else value for value in node.args)
        if node.target in _ZEROS and isinstance(node.args[-1], float):
            with module.graph.inserting_before(node):
                shape: Any = node.args[:-1] or ([],)  # a scalar has none before its number
                zeros = module.graph.call_function(_ZEROS[node.target], shape, node.kwargs)
            node.target, node.args, node.kwargs = _ATEN.add.Tensor, (zeros, node.args[-1]), {}
        if node.op != "call_function" or not hasattr(node.target, "_schema"):
            continue
        for place, (declared, value) in enumerate(zip(node.target._schema.arguments, node.args, strict=False)):
            if isinstance(value, float) and "Tensor" in str(declared.type):
                name = f"number_{len(list(module.buffers()))}"
                module.register_buffer(name, torch.tensor(value, dtype=torch.float64))
                with module.graph.inserting_before(node):
                    node.update_arg(place, module.graph.get_attr(name))
    module.recompile()
    return module


class Session:
    """The files in ONNX Runtime, with the state between calls."""

    def __init__(self, program: StepProgram, files: list[Path]) -> None:
        runtime: Any = need("onnxruntime", extra="onnx")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.program = program
        self.number = numpy_dtype(program.model.dtype)
        try:
            self.methods = {
                method: runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
                for method, path in zip(METHODS, files, strict=True)
            }
        except runtime.capi.onnxruntime_pybind11_state.NotImplemented as error:
            raise ConfigError(
                f"ONNX Runtime cannot run {files[0].parent} in this precision; try the other one, or --to c: {error}"
            ) from error
        self.results: dict[str, Any] = {}

    def restart(self, prior: Gaussian | None = None) -> None:
        parts = (self.program.prior if prior is None else prior)._asdict()
        given = {name: part.unsqueeze(0).numpy().astype(self.number) for name, part in parts.items()}
        self.results = self._call(self.methods["start"], given)

    def _call(self, session: Any, arguments: dict[str, Any]) -> dict[str, Any]:
        names = [item.name for item in session.get_outputs()]
        wanted = {item.name for item in session.get_inputs()}
        found = session.run(names, {name: value for name, value in arguments.items() if name in wanted})
        return dict(zip(names, found, strict=True))

    def advance(self, method: str, inputs: dict[str, torch.Tensor]) -> int:
        arguments = {f"state_{field.name}": self.results[f"next_{field.name}"] for field in self.program.state}
        for name, value in inputs.items():
            arguments[name] = value.numpy() if name == "mask" else value.numpy().astype(self.number)
        self.results = self._call(self.methods[method], arguments)
        return int(self.results["status"].reshape(-1)[0])

    def values(self) -> dict[str, Any]:
        return {name.replace("next_", "state.", 1): value for name, value in self.results.items()}
