"""What the learned baselines have in common."""

import json

import pytest
import torch

import fwnkf
from fwnkf.core.tree import named_leaves
from fwnkf.errors import ConfigError
from fwnkf.filters.factory import options_of
from fwnkf.registry import FILTERS, parse_config

from ..tolerances import assert_close, assert_same_bits
from .vane import STEP, array, build, vane_step

ALL = ["kalmannet", "bayesian_kalmannet", "recursive_kalmannet", "rkn", "fwnkf_public_code"]


@pytest.mark.parametrize("name", ALL)
def test_config_survives_json(name):
    config = build(name).config
    again = parse_config(FILTERS[name].Config, json.loads(json.dumps(options_of(config))), name)
    assert again == config


@pytest.mark.parametrize("name", ALL)
def test_masked_values_have_no_effect(name, generator):
    net = build(name)
    y = torch.randn(2, 6, 2, generator=generator, dtype=torch.float64)
    mask = torch.rand(2, 6, 2, generator=generator) < 0.6
    mask[:, 2] = False
    plain = net.run(y, mask=mask)
    with_nan = net.run(torch.where(mask, y, torch.full_like(y, torch.nan)), mask=mask)
    plain, with_nan = (
        track._replace(linear=(), log_density=(), measured=())  # not recorded
        for track in (plain, with_nan)
    )
    for (leaf, a), (_, b) in zip(named_leaves(plain), named_leaves(with_nan), strict=True):
        assert_same_bits(b, a, leaf)
        assert a.isfinite().all(), leaf
    seen = net.run(y)
    assert (seen.mean - plain.mean).abs().max() > 1e-3  # the mask has an effect


@pytest.mark.parametrize("name", ALL)
def test_all_masked_is_the_prior(name, generator):
    net = build(name)
    y = torch.randn(3, 5, 2, generator=generator, dtype=torch.float64)
    mask = torch.ones(3, 5, 2, dtype=torch.bool)
    mask[1, 3] = False
    out = net.run(y, mask=mask)
    masked = ~mask.any(-1)
    assert_close(out.mean[masked], out.prior_mean[masked], "rounding")
    assert_same_bits(out.cov[masked], out.prior_cov[masked])
    assert not out.innovation[masked].any()
    assert (out.mean[~masked] - out.prior_mean[~masked]).abs().amax(-1).min() > 1e-6
    if name not in ("rkn", "fwnkf_public_code"):  # the prior is the system's prediction of the previous estimate
        moved = net.system.transition(out.mean[1, 2][None], None, None)
        if name != "bayesian_kalmannet":  # whose mean of predictions is not the prediction of the mean
            assert_close(out.prior_mean[1, 3], moved[0], "rounding")
            F = vane_step(array(out.mean[1, 2]), 0.0, STEP)[1]
            assert_close(out.cov[1, 3], F @ array(out.cov[1, 2]) @ F.T + array(net.system.Q), "rounding")


@pytest.mark.parametrize("name", [name for name in ALL if name != "rkn"])
def test_a_missing_system_raises(name):
    with pytest.raises(ConfigError, match="needs system"):
        fwnkf.build(name)
