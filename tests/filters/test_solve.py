"""The form of the covariance of a filter that is there already."""

from __future__ import annotations

import pytest
import torch

from fwnkf.errors import ConfigError
from fwnkf.filters import with_solve

from ..conformance.cases import CASES


@pytest.mark.parametrize("name", ["kf", "ekf-attitude", "lines", "hypotheses"])
def test_another_form_gives_the_same_estimates(name: str):
    model = CASES[name].build(torch.float64)
    y = torch.randn(2, 12, model.observation_dim, dtype=torch.float64)
    mask = torch.rand(y.shape) < 0.8
    u = torch.randn(2, 12, model.control_dim, dtype=torch.float64) if model.control_dim else None
    changed = with_solve(model, "square_root")
    assert model.config.solve != changed.config.solve == "square_root"
    wanted, found = model.run(y, u=u, mask=mask), changed.run(y, u=u, mask=mask)
    torch.testing.assert_close(found.mean, wanted.mean, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(found.cov, wanted.cov, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("adaptive", "option solve = 'square_root' does not fit"),
        ("kalmannet", "no option 'solve'"),
        ("phi-augmented", "phi with its exact covariance has no form for solve='square_root'"),
    ],
)
def test_a_filter_without_that_form_says_so(name: str, reason: str):
    with pytest.raises(ConfigError, match=reason):
        with_solve(CASES[name].build(torch.float32), "square_root")
