"""Gaps and steps that cannot be made, in exported code: as exact as in Python, and rejected as there."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

import fwnkf
from fwnkf import Status
from fwnkf.core.integrate import discretize
from fwnkf.export.c import export_c
from fwnkf.export.c_parity import Library
from fwnkf.export.onnx import export_onnx
from fwnkf.export.reference import Record
from fwnkf.export.trace import DEFAULT_OUTPUTS, program_of
from fwnkf.native.function import Native

from ..core.test_integrate import RATIOS, SYSTEMS, assert_exact, decaying
from ..filters.test_rejection import walk

pytestmark = pytest.mark.export


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", SYSTEMS)
def test_generated_c_is_as_exact(name: str, dtype: torch.dtype) -> None:
    A, S = (torch.tensor(item, dtype=dtype) for item in SYSTEMS[name])
    native = Native(lambda dt: [*discretize(A, S[:, :1], S, dt)], [torch.ones(1, dtype=dtype)])
    for dt in torch.tensor(RATIOS, dtype=dtype).split(1):
        block = native([dt.data_ptr()])
        F, Gamma, Q = (native.tensor(block, place) for place in range(3))
        assert_exact(name, float(dt), F[0], Q[0])
        if dt <= 1:
            torch.testing.assert_close(Gamma, discretize(A, S[:, :1], S, dt)[1], rtol=1e-5, atol=1e-6)


GAPS = [0.01, 0.01, 20.0, 0.01, 60.0, 0.02, 1000.0, 0.01, 0.01, 1e5, 0.01, 0.01]


@pytest.mark.parametrize("export", [export_c, pytest.param(export_onnx, marks=pytest.mark.slow)])
def test_exported_filters_cross_gaps_like_the_filter(export, tmp_path: Path) -> None:
    model = fwnkf.EKF(decaying(1.0, torch.float32))
    record = Record(torch.zeros(len(GAPS), 1), dt=torch.tensor(GAPS))
    facts = export(model, tmp_path, "gaps", steps=len(GAPS), records=[record])
    assert facts["parity"]["ok"], facts["parity"]


def test_exported_c_rejects_the_same_steps(tmp_path: Path) -> None:
    model = fwnkf.EKF(walk())
    export_c(model, tmp_path, "walk", steps=0, measure=False)
    library = Library(program_of(model, "walk", "float", DEFAULT_OUTPUTS, 0, rejects=False), tmp_path, "walk")
    mask = torch.ones(1, 1, dtype=torch.bool)
    good = {"y": torch.ones(1, 1), "mask": mask, "u": torch.zeros(1, 1), "dt": torch.tensor([0.1])}
    assert library.advance("step", good) == 0
    before = {name: list(value) for name, value in library.values().items()}
    for wrong in ({"dt": torch.tensor([-0.1])}, {"u": torch.tensor([[math.nan]])}, {"dt": torch.tensor([math.nan])}):
        assert library.advance("step", {**good, **wrong}) & int(Status.REJECTED)
        assert {name: list(value) for name, value in library.values().items()} == before
    assert library.advance("step", good) == 0
