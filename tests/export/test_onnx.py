"""ONNX files of a filter against the filter in float64, in ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fwnkf.export import decompositions
from fwnkf.export.onnx import export_onnx

from ..conformance.cases import CASES

pytestmark = pytest.mark.export


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


@pytest.mark.slow  # the exporter of torch takes many seconds
@pytest.mark.parametrize("name", CASES)
def test_every_filter_equals_itself_in_float64(name: str, tmp_path: Path):
    for package in ("onnx", "onnxruntime", "onnxscript"):
        pytest.importorskip(package)
    import onnx

    parity = export_onnx(CASES[name].build(torch.float32), tmp_path, precision="double", steps=50)["parity"]
    assert parity["ok"], parity
    for path in tmp_path.glob("*.onnx"):
        assert {node.domain for node in onnx.load(str(path)).graph.node} <= {"", "ai.onnx"}  # standard operators only
