"""A compiled step gives the same numbers as the step of the filter."""

from __future__ import annotations

import pytest
import torch

import fwnkf
from fwnkf import GRU, Level, Lines, LocallyLinear, Phi
from fwnkf.systems import LearnedSystem

from ..conformance.cases import shake
from ..tolerances import assert_close


@pytest.mark.export
@pytest.mark.parametrize("part", ["noise", pytest.param("phi", marks=pytest.mark.slow)])
def test_compiled_step_equals_the_step(part, generator):
    parts = {"noise": {"noise": Lines(), "level": Level(seconds=5.0)}, "phi": {"phi": Phi()}}[part]
    system = LearnedSystem.of(state_dim=3, observation_dim=2)
    model = shake(fwnkf.FWNKF(system, encoder=GRU(8), transition=LocallyLinear(), **parts), 0.1)
    step = fwnkf.compile_step(model)
    state = compiled_state = model.init(2)
    for _ in range(4):
        y = torch.randn(2, 2, generator=generator)
        mask = torch.rand(2, 2, generator=generator) > 0.3
        y = torch.where(mask, y, torch.nan)
        state, expected = model.step(state, y, mask=mask)
        compiled_state, output = step(compiled_state, y, mask=mask)
        for name in ("mean", "cov", "prior_mean", "prior_cov", "innovation", "innovation_cov"):
            assert_close(getattr(output, name), getattr(expected, name), "export")
        assert not output.mean.requires_grad


@pytest.mark.slow
def test_more_filters_are_compiled_than_torch_keeps_versions_of_a_function():
    """Nine filters of different sizes in one process: torch refuses a ninth version of one function."""
    for size in range(1, 10):
        eye = torch.eye(size)
        model = fwnkf.build("kf", F=eye, H=eye, Q=eye, R=eye)
        _, output = fwnkf.compile_step(model)(model.init(1), torch.ones(1, size))
        assert_close(output.mean, model.step(model.init(1), torch.ones(1, size))[1].mean, "export")
