"""ONNX files of a filter against the filter in the same precision, in ONNX Runtime."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.linalg import expm
from torch.fx.experimental.proxy_tensor import make_fx

from fwnkf.errors import ConfigError
from fwnkf.export import decompositions
from fwnkf.export.onnx import _write, export_onnx
from fwnkf.native.graph import Field, Graph

from ..conformance.cases import CASES
from .test_c import OUT_OF_RANGE, STEPS

pytestmark = pytest.mark.export
QUICK = ("kf-full-noise",)
"""Compared in every run of the tests; the exporter of torch takes many seconds."""


@pytest.mark.parametrize("size", [1, 2, 5])
def test_written_out_factorisations_equal_those_of_torch(size: int):
    root = torch.randn(3, size, size + 2, dtype=torch.float64)
    A, b = root @ root.mT, torch.randn(3, size, 2, dtype=torch.float64)
    factor, failed = decompositions.cholesky_ex(A)
    assert not failed.any()
    torch.testing.assert_close(factor, torch.linalg.cholesky(A))
    torch.testing.assert_close(decompositions.cholesky_solve(b, factor), torch.cholesky_solve(b, factor))
    torch.testing.assert_close(decompositions.matrix_exp(A), torch.linalg.matrix_exp(A))
    broken = A.clone()
    broken[1, size - 1, size - 1] = -1.0
    assert decompositions.cholesky_ex(broken)[1].tolist() == [0, 1, 0]


@pytest.mark.parametrize("dim", [0, 1])
def test_written_out_largest_so_far_is_that_of_torch(dim: int):
    x = torch.randint(0, 5, (6, 7))  # with ties
    values, places = decompositions.cummax(x, dim)
    assert torch.equal(values, x.cummax(dim).values)
    assert torch.equal(places, x.cummax(dim).indices)


def test_written_out_angle_has_the_digits_of_double_precision():
    """All quadrants, axes, zeros, and sizes beyond the range of single precision."""
    around = torch.linspace(-torch.pi, torch.pi, 1000, dtype=torch.float64)
    y = torch.cat((around.sin(), 1e-60 * around.sin(), 1e200 * around.sin(), torch.tensor([0.0, 0.0, 1.0, -1.0])))
    x = torch.cat((around.cos(), 1e-60 * around.cos(), 1e200 * around.cos(), torch.tensor([0.0, 1.0, 0.0, 0.0])))
    torch.testing.assert_close(decompositions.atan2(y, x), torch.atan2(y, x), rtol=1e-15, atol=1e-15)


@pytest.mark.parametrize("scale", [0.01, 1.0, 5.0])
def test_matrix_exponential_keeps_its_digits_in_single_precision(scale: float, generator: torch.Generator):
    """The identity added before squaring would cost 2⁸ roundings, 3e-5 of the largest value."""
    A = scale * torch.randn(50, 4, 4, dtype=torch.float64, generator=generator)
    exact = torch.from_numpy(expm(A.numpy()))
    error = (decompositions.matrix_exp(A.float()).double() - exact).norm(dim=(-2, -1)) / exact.norm(dim=(-2, -1))
    assert float(error.max()) < 4 * max(1.0, 4 * scale) * torch.finfo(torch.float32).eps


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in CASES])
def test_every_filter_equals_itself_in_the_same_precision(name: str, tmp_path: Path):
    for package in ("onnx", "onnxruntime", "onnxscript"):
        pytest.importorskip(package)
    import onnx

    precision = "double" if name in OUT_OF_RANGE else "float"
    steps = 50 if name in QUICK else STEPS.get(name, 10_000)
    parity = export_onnx(CASES[name].build(torch.float32), tmp_path, precision=precision, steps=steps)["parity"]
    assert parity["ok"], parity
    for path in tmp_path.glob("*.onnx"):
        assert {node.domain for node in onnx.load(str(path)).graph.node} <= {"", "ai.onnx"}  # standard operators only


def test_the_example_filters_the_golden_vectors_and_can_fail(tmp_path: Path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    facts = export_onnx(CASES["kf-continuous"].build(torch.float32), tmp_path, "device", steps=0)
    assert {Path(path).name for path in facts["files"]} == {path.name for path in tmp_path.iterdir()}
    call = [sys.executable, str(tmp_path / "device_example.py")]
    done = subprocess.run(call, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "50 steps: OK\n"), done.stderr
    with np.load(tmp_path / "device_golden.npz") as stored:
        golden = dict(stored)
    golden["result_mean"][7] += 1e-3 * np.abs(golden["result_mean"]).max()
    np.savez(tmp_path / "device_golden.npz", **golden)
    done = subprocess.run(call, capture_output=True, text=True)
    assert done.returncode == 1
    assert "mean: differs by 1.0" in done.stdout


def test_a_value_inside_may_have_the_name_of_an_output(tmp_path: Path):
    """The exporter names values by their operators; two with one name are no valid file."""
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    module = make_fx(lambda y: (y.mean(-1) * 2,))(torch.ones(1, 3))
    graph = Graph(module, (Field("y", (3,), torch.float32),), (Field("mean", (), torch.float32),))
    _write(graph, ["y"], ["mean"], tmp_path / "mean.onnx")
    session = runtime.InferenceSession(str(tmp_path / "mean.onnx"), providers=["CPUExecutionProvider"])
    (mean,) = session.run(["mean"], {"y": np.array([[1.0, 2.0, 6.0]], np.float32)})
    assert mean == pytest.approx(6.0)


def test_numbers_have_the_digits_of_double_precision(tmp_path: Path):
    """The exporter of torch writes a factor of 0.1 as that of single precision, 1.5e-8 away."""
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")

    def scaled(y):
        added = torch.full_like(y, 0.2) + y.new_full((3,), 0.1)
        least = torch.where(y > 0, 1e-300, y)  # zero in single precision
        return ((0.1 * y + added * (least / least)).clamp(0.45, 0.7),)

    module = make_fx(scaled)(torch.ones(1, 3, dtype=torch.float64))
    field = Field("y", (3,), torch.float64)
    _write(Graph(module, (field,), (field,)), ["y"], ["out"], tmp_path / "scaled.onnx")
    session = runtime.InferenceSession(str(tmp_path / "scaled.onnx"), providers=["CPUExecutionProvider"])
    (out,) = session.run(["out"], {"y": np.array([[1.0, 2.0, 6.0]])})
    np.testing.assert_allclose(out, [[0.45, 0.5, 0.7]], rtol=1e-15)


def test_an_operator_without_onnx_is_named(tmp_path: Path):
    pytest.importorskip("onnxscript")
    module = make_fx(lambda y: (torch.linalg.eigvalsh(y),))(torch.eye(3).unsqueeze(0))
    graph = Graph(module, (Field("y", (3, 3), torch.float32),), (Field("mean", (3,), torch.float32),))
    with pytest.raises(ConfigError, match=r"cannot be written as mean\.onnx; export it with --to c: .*eigh"):
        _write(graph, ["y"], ["mean"], tmp_path / "mean.onnx")


def test_options_are_those_of_all_formats(tmp_path: Path):
    pytest.importorskip("onnxscript")
    model = CASES["kf"].build(torch.float32)
    with pytest.raises(ConfigError, match="steps = -1"):
        export_onnx(model, tmp_path, steps=-1)
    with pytest.raises(ConfigError, match=r"name '\.\./up'"):
        export_onnx(model, tmp_path, name="../up")
