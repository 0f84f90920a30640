"""A key of a filter changes with everything that its steps compute with."""

from __future__ import annotations

import copy

import pytest
import torch

from fwnkf.native.identity import key_of

from ..conformance.cases import CASES


@pytest.mark.parametrize("name", ["kf", "ekf-calibrated", "orders", "everything"])
def test_keys_are_stable_and_see_changes(name: str):
    model = CASES[name].build(torch.float64)
    before = key_of(model)
    assert hash(before) == hash(key_of(model))
    assert before == key_of(model)
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.numel() and tensor.is_floating_point():
            kept = tensor.detach().clone()
            with torch.no_grad():
                tensor.view(-1)[-1] += 1e-9
            assert key_of(model) != before
            with torch.no_grad():
                tensor.copy_(kept)
    assert key_of(model) == before


def test_keys_see_attributes_modes_and_preprocessing():
    model = CASES["ekf-calibrated"].build(torch.float64)
    keys = [key_of(model)]
    model.train()
    keys.append(key_of(model))
    model.preprocess = None
    keys.append(key_of(model))
    model.covariance_scale = None
    keys.append(key_of(model))
    model.system.dt = 0.5
    keys.append(key_of(model))
    model.float()
    keys.append(key_of(model))
    assert len(set(keys)) == len(keys)
    # a copy computes the same, unless it holds objects of which nothing is known
    assert key_of(copy.deepcopy(model)) == keys[-1]
