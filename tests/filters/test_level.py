"""The level that follows the innovations: against the filter without it, the recursion in numpy, and changing noise."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fwnkf
from fwnkf.core.linear import LinearSystem

from ..systems import continuous_matrices
from ..tolerances import assert_close

OPTIONS = {"shaping": "noise", "hidden": 0, "residual_width": 0, "sections": 1, "shared_shaper": False}


def build(name: str, **options) -> fwnkf.Filter:
    matrices = {name: value for name, value in continuous_matrices().items() if name != "B"}
    model = fwnkf.build(name, system=LinearSystem.of(**matrices, continuous=True, dt=0.1), **OPTIONS, **options)
    model.noise_states.set(hz=2.0, bandwidth_hz=0.5, std=0.7)
    return model.requires_grad_(False)


def record(generator, steps: int = 60) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.randn(2, steps, 2, generator=generator, dtype=torch.float64)
    mask = torch.rand(2, steps, 2, generator=generator) < 0.7
    mask[:, 20:25] = False
    return y, mask


def test_the_estimates_are_those_of_the_plain_filter_and_the_level_is_a_running_mean_of_its_nis(generator):
    y, mask = record(generator)
    plain, ours = (model.run(y, mask=mask) for model in (build("fwnkf"), build("fwnkf_adaptive", half_life=7.0)))
    for name in ("mean", "prior_mean", "innovation"):
        assert torch.equal(getattr(plain, name), getattr(ours, name)), name
    for record_number in range(2):
        level = 1.0
        for t in range(y.shape[1]):
            seen = mask[record_number, t].numpy()
            S = plain.innovation_cov[record_number, t].numpy()
            assert_close(ours.innovation_cov[record_number, t], level * S)
            assert_close(ours.prior_cov[record_number, t], level * plain.prior_cov[record_number, t])
            if seen.any():
                residual = plain.innovation[record_number, t].numpy()[seen]
                nis = residual @ np.linalg.solve(S[np.ix_(seen, seen)], residual) / seen.sum()
                kept = 0.5 ** (seen.sum() / 2 / 7)
                level = kept * level + (1 - kept) * nis
            assert_close(ours.cov[record_number, t], level * plain.cov[record_number, t])


def test_without_a_half_life_it_is_the_plain_filter(generator):
    y, mask = record(generator)
    plain, ours = (model.run(y, mask=mask) for model in (build("fwnkf"), build("fwnkf_adaptive")))
    assert torch.equal(plain.cov, ours.cov)
    assert torch.equal(plain.innovation_cov, ours.innovation_cov)


def test_smoothing_at_a_level_that_stays_is_exact(generator):
    """The stated covariances of a level that hardly moves are those of a Kalman gain."""
    y, mask = record(generator)
    plain, ours = build("fwnkf"), build("fwnkf_adaptive", half_life=1e12)
    expected, found = (fwnkf.smooth(model, model.run(y, mask=mask, smoothing=True)) for model in (plain, ours))
    assert_close(found.mean, expected.mean, "joint")
    assert_close(found.cov, expected.cov, "joint")


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
@torch.no_grad()
def test_noise_that_grows_and_falls_is_stated_as_it_is(generator):
    """Random walk in white noise, all variances nine times as large for a while: closed form, no fit."""
    steps, one = 1200, torch.eye(1, dtype=torch.float64)
    factor = torch.ones(steps, dtype=torch.float64)
    factor[400:800] = 3.0
    noise = torch.randn(2, 16, steps, 1, generator=generator, dtype=torch.float64) * factor[:, None]
    y = (0.3 * noise[0]).cumsum(1) + noise[1]
    options = {"H": one, "Q": 0.09 * one, "R": one, "shaping": "none", "transition": "residual", "residual_width": 0}
    for name, more, levels in (
        ("fwnkf", {}, (1.0, 9.0, 1.0)),
        ("fwnkf_adaptive", {"half_life": 40.0}, (1.0, 1.0, 1.0)),
    ):
        track = fwnkf.build(name, **options, **more, hidden=0).run(y)
        nis = (track.innovation.square() / track.innovation_cov[..., 0])[..., 0]
        # four half-lives after each change
        found = [float(nis[:, start + 160 : start + 400].mean()) for start in (0, 400, 800)]
        np.testing.assert_allclose(found, levels, rtol=0.1, err_msg=name)


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_a_sensor_that_repeats_a_value_does_not_make_the_filter_certain():
    model = build("fwnkf_adaptive", half_life=2.0).float()
    track = model.run(torch.zeros(1, 400, 2))
    assert float(track.cov.diagonal(dim1=-2, dim2=-1).min()) > 0
    shock = model.run(torch.full((1, 3, 2), 1e18), state=track.state)
    assert bool(shock.cov.isfinite().all())


def test_the_level_follows_where_only_precision_was_lost():
    """Such an update was made, and its innovation is as good as any."""
    eye = torch.eye(2)
    options = {"H": torch.ones(1, 2), "Q": eye, "R": 1e-8 * torch.eye(1), "shaping": "none", "hidden": 0}
    model = fwnkf.build("fwnkf_adaptive", **options, half_life=1.0)
    state = model.init(1, fwnkf.Gaussian(torch.zeros(2), 1e6 * eye))
    state, out = model.update(state, torch.zeros(1, 1))
    assert out.status.item() == fwnkf.Status.PRECISION_LOST
    assert state.level.item() == 0.5  # half of one, and half of a NIS of zero
