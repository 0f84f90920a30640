"""Filters by axis in C, and what a step costs."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest
import torch

import fwnkf
from fwnkf.cli import main
from fwnkf.export.c import export_c
from fwnkf.export.c_axes import labels
from fwnkf.export.cost import cost, warnings
from fwnkf.identify.channels import ChannelModel, Line, channels_filter

pytestmark = [pytest.mark.export]
COMPILER = shutil.which("cc") or shutil.which("gcc")


@pytest.fixture(scope="module")
def model() -> fwnkf.Filter:
    models = [ChannelModel(500.0, 3.0, 0.4, 0.01 * (k + 1), (Line(40.0 + 20 * k, 1.0, 0.2),)) for k in range(2)]
    return channels_filter(models, ["gyro.x", "gyro.y"])


PROGRAM = """
#include <stdio.h>
#include "imu.h"
int main(void)
{
    static imu_state state;
    static imu_output out;
    imu_init(&state);
    for (int t = 0; t < 40; ++t) {
        const float y[2] = {0.1f * (t % 5), -0.2f * (t % 3)};
        if (imu_step(&state, y, 0, &out)) { return 1; }
    }
    printf("%.9g %.9g\\n", out.gyro_x.mean[0], out.gyro_y.mean[0]);
    return 0;
}
"""


@pytest.mark.skipif(COMPILER is None, reason="no C compiler")
def test_axes_share_code_and_compute_what_the_filter_does(model, tmp_path):
    facts = export_c(model, tmp_path, "imu", steps=100, fixed_step=True)
    assert facts["axes"] == ["gyro_x", "gyro_y"]
    assert facts["parity"]["ok"]
    assert (tmp_path / "imu_axis.c").exists()
    assert not (tmp_path / "imu_axis_1.c").exists()
    (tmp_path / "main.c").write_text(PROGRAM, encoding="utf-8")
    files = [str(tmp_path / f"{name}.c") for name in ("main", "imu_axis", "imu_gyro_x", "imu_gyro_y")]
    flags = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1"]
    subprocess.run([COMPILER, *flags, "-o", str(tmp_path / "main"), *files, "-lm"], check=True)
    printed = subprocess.run([str(tmp_path / "main")], capture_output=True, text=True, check=True).stdout
    time = torch.arange(40)
    y = torch.stack((0.1 * (time % 5), -0.2 * (time % 3)), -1).double().unsqueeze(0)
    expected = model.run(y).mean[0, -1, :2]
    assert [float(item) for item in printed.split()] == pytest.approx(expected.tolist(), abs=1e-5)


@pytest.mark.skipif(COMPILER is None, reason="no C compiler")
def test_axes_take_less_than_one_filter(model, tmp_path):
    one = export_c(model, tmp_path / "one", "imu", steps=0, measure=False, by_axis=False)
    axes = export_c(model, tmp_path / "axes", "imu", steps=0, measure=False)
    fixed = export_c(model, tmp_path / "fixed", "imu", steps=0, measure=False, fixed_step=True)
    assert not one["axes"]
    assert one["takes_dt"]
    assert not fixed["takes_dt"]
    assert axes["cycles"] < 0.6 * one["cycles"]
    assert fixed["cycles"] < 0.6 * axes["cycles"]
    for name in ("state", "scratch on the stack"):
        assert axes["ram"][name] < 0.7 * one["ram"][name]


def test_a_filter_that_a_cortex_cannot_take_is_a_warning(model, tmp_path, capsys):
    fwnkf.save(model, tmp_path / "filter")
    words = ["export", str(tmp_path / "filter"), "--out", str(tmp_path / "c"), "--precision", "double", "--steps", "0"]
    assert main([*words, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["rate_hz"] == pytest.approx(500)
    assert any("a Cortex-M4 at 168 MHz cannot take it at 500 Hz" in text for text in facts["warnings"])
    assert "--precision float" in facts["warnings"][0]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "2 filters by axis, which are independent: gyro_x, gyro_y" in printed
    assert "warning: a Cortex-M4" in printed
    assert warnings(facts | {"cycles": 100, "ram": {"state": 10, "scratch on the stack": 10}}, 500.0) == []


def test_operations_are_those_of_the_loops():
    """Counted in the text, against a product of matrices that is counted by hand."""
    code = """
static void product(real *C, const real *A, const real *B, int n, int m)
{
    for (int i = 0; i < n; ++i) {
        for (int j = 0; j < m; ++j) {
            real sum = R(0.0);
            for (int k = 0; k < n; ++k) {
                sum += A[i * n + k] * B[k * m + j];
            }
            C[i * m + j] = sum;
        }
    }
}

static int advance_step(real *x)
{
    product(x, x, x, 4, 5);
    const real t0 = SQRT(x[0]) / x[1];
    for (int i = 0; i < 7; ++i) { x[i] = x[i] * t0; }
    return 0;
}
"""
    counted = cost(code, "advance_step", "float").operations
    assert counted["multiply"] == 4 * 5 * 4 + 7
    assert counted["add"] == 4 * 5 * 4
    assert (counted["divide"], counted["root"]) == (1, 1)


def test_names_of_axes_are_names_of_c():
    assert labels(["linear acceleration [m/s²]", "3d", "ü"]) == ["linear_acceleration__m_s", "axis_3d", "axis"]
