"""A compiled step computes what the step computes."""

from __future__ import annotations

import pytest
import torch

import fwnkf
from fwnkf.runtime.compiled import compile_step

from ..conformance.cases import shake
from ..tolerances import assert_close


@pytest.mark.export
@pytest.mark.parametrize("shaping", ["innovation", "noise"])
def test_compiled_step_equals_the_step(shaping, generator):
    model = shake(fwnkf.build("fwnkf", state_dim=3, observation_dim=2, shaping=shaping, hidden=8), 0.1)
    step = compile_step(model)
    state = ours = model.init(2)
    for _ in range(4):
        y = torch.randn(2, 2, generator=generator)
        mask = torch.rand(2, 2, generator=generator) > 0.3
        y = torch.where(mask, y, torch.nan)
        state, expected = model.step(state, y, mask=mask)
        ours, found = step(ours, y, mask=mask)
        for name in ("mean", "cov", "prior_mean", "prior_cov", "innovation", "innovation_cov"):
            assert_close(getattr(found, name), getattr(expected, name), "export")
        assert not found.mean.requires_grad
