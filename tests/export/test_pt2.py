"""Packages of AOTInductor against the filter in the same precision, in Python and in C++."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from fwnkf.errors import ConfigError
from fwnkf.export.parity import compare_eager
from fwnkf.export.pt2 import Package, example, export_pt2, exported
from fwnkf.export.trace import METHODS, StepProgram, trace

from ..conformance.cases import CASES

pytestmark = pytest.mark.export


@pytest.fixture(scope="module")
def small() -> StepProgram:
    return trace(CASES["kf"].build(torch.float32))


def test_the_exported_programs_equal_the_filter(small: StepProgram):
    """What is compiled; the compiler itself takes minutes."""
    functions = {method: exported(getattr(small, method)).module() for method in METHODS}
    parity = compare_eager(Package(small, functions), 30)
    assert parity is not None
    assert parity["ok"], parity
    assert (parity["reference"], parity["limit"]) == ("float32", 1e-5)


def test_the_example_reads_every_input_and_compares_every_output(small: StepProgram):
    text = example(small, "small", 1e-5)
    for name in ("y", "mask", "u"):
        assert text.count(f"golden_{name}[t]") == 1
    for name in ("mean", "cov", "innovation", "innovation_cov"):
        assert text.count(f'differs("{name}"') == text.count(f" {name}.compare(") == 1


def test_options_are_checked_before_anything_is_compiled(tmp_path: Path):
    with pytest.raises(ConfigError, match="precision 'half'"):
        export_pt2(CASES["kf"].build(torch.float32), tmp_path, precision="half")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "precision"),
    # the heading is not observed there, and its roundings add up: 1.9e-5 over 10,000 steps in single precision
    [("kf", "float"), ("ekf-attitude", "double"), ("lines", "float")],
)
def test_the_package_equals_the_filter_in_python_and_in_cpp(name: str, precision: str, tmp_path: Path):
    facts = export_pt2(CASES[name].build(torch.float32), tmp_path, "device", precision, steps=10_000)
    assert facts["parity"]["ok"], facts["parity"]
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    build = tmp_path / "build"
    prefix = f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"
    for call in (
        ["cmake", "-S", str(tmp_path), "-B", str(build), prefix],
        ["cmake", "--build", str(build)],
        [str(build / "device_example"), str(tmp_path / "device.pt2")],
    ):
        done = subprocess.run(call, capture_output=True, text=True)
        assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    assert "50 steps: OK" in done.stdout
