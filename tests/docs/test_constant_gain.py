"""The filter of the how-to that is written from its first line."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest
import torch
from scipy.linalg import solve_discrete_are

import fwnkf
from fwnkf.registry import FILTERS
from fwnkf.systems import ConstantVelocity, ConstantVelocityConfig

EXAMPLE = Path(__file__).parents[2] / "docs" / "howto" / "constant_gain.py"


@pytest.fixture(autouse=True)
def example():
    spec = importlib.util.spec_from_file_location("constant_gain", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name], FILTERS._classes["constant_gain"]


def test_with_the_gain_of_the_riccati_equation_it_ends_as_the_kalman_filter(generator, tmp_path):
    system = ConstantVelocity(ConstantVelocityConfig(dims=1, density=0.5, dt=0.2)).double()
    F = system.linearize_transition(torch.zeros(1, 2).double(), None, None)[1]
    H, R = torch.tensor([[1.0, 0.0]]).double(), system.measurement_covariance()
    P = torch.from_numpy(solve_discrete_are(F.mT.numpy(), H.mT.numpy(), system.process_noise(None).numpy(), R.numpy()))
    model = fwnkf.build("constant_gain", system=system, K=P @ H.mT / (H @ P @ H.mT + R))
    y = torch.randn(2, 400, 1, generator=generator, dtype=torch.float64)
    y[0, 350, 0] = torch.nan
    track, kalman = (filter.run(y, mask=y.isfinite()) for filter in (model, fwnkf.EKF(system)))
    torch.testing.assert_close(track.prior_cov[:, 300], P.expand(2, 2, 2))
    torch.testing.assert_close(track.mean[:, 300:351], kalman.mean[:, 300:351])
    loaded = fwnkf.load(fwnkf.save(model, tmp_path / "model"))
    assert torch.equal(loaded.run(y, mask=y.isfinite()).mean, track.mean)


def test_the_page_uses_it_as_written():
    (block,) = re.findall(r"```python\n(.*?)```", EXAMPLE.with_name("own_filter.md").read_text("utf-8"), re.S)
    names = {}
    exec(compile(block, "own_filter.md", "exec"), names)
    assert names["track"].mean.shape == (1, 10, 2)
