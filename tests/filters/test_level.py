"""The level of all covariances: against the filter without it, the recursion in numpy, and changing noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import fwnkf
from fwnkf import Level, Lines
from fwnkf.core.linear import LinearSystem
from fwnkf.core.tree import named_leaves
from fwnkf.errors import ConfigError
from fwnkf.native.compilers import c_compiler

from ..systems import continuous_matrices
from ..tolerances import assert_close, assert_same_bits

STEP, SECONDS = 0.1, 1.0


def build(seconds: float | None = None) -> fwnkf.FWNKF:
    matrices = {name: value for name, value in continuous_matrices().items() if name != "B"}
    level = None if seconds is None else Level(seconds, of="all")
    system = LinearSystem.of(**matrices, continuous=True, dt=STEP)
    model = fwnkf.FWNKF(system, noise=Lines(hz=2.0, bandwidth_hz=0.5, std=0.7), level=level)
    return model.requires_grad_(False)


def record(generator, steps: int = 60) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.randn(2, steps, 2, generator=generator, dtype=torch.float64)
    mask = torch.rand(2, steps, 2, generator=generator) < 0.7
    mask[:, 20:25] = False
    return y, mask


@pytest.mark.parametrize("irregular", [False, True])
def test_the_estimates_are_those_of_the_plain_filter_and_the_level_is_a_running_mean_of_its_nis(generator, irregular):
    """In seconds, so that steps of any length count as long as they are; a gap forgets, and measures nothing."""
    y, mask = record(generator)
    dt = 2 * STEP * torch.rand(2, 60, generator=generator).double() if irregular else None
    plain, ours = (model.run(y, mask=mask, dt=dt) for model in (build(), build(SECONDS)))
    for name in ("mean", "prior_mean", "innovation"):
        assert torch.equal(getattr(plain, name), getattr(ours, name)), name
    nominal = math.exp(-STEP / SECONDS)
    freedom = 2 * (1 + nominal) / (1 - nominal)
    for row in range(2):
        level = 1.0
        for t in range(y.shape[1]):
            seen = mask[row, t].numpy()
            S = plain.innovation_cov[row, t].numpy()
            assert_close(ours.innovation_cov[row, t], level * S)
            assert_close(ours.prior_cov[row, t], level * plain.prior_cov[row, t])
            if seen.any():
                residual = plain.innovation[row, t].numpy()[seen]
                nis = residual @ np.linalg.solve(S[np.ix_(seen, seen)], residual) / seen.sum()
                length = STEP if dt is None else float(dt[row, t])
                kept = math.exp(-seen.sum() / 2 * length / SECONDS)
                level = kept * level + (1 - kept) * nis * freedom / (freedom - 2)
            assert_close(ours.cov[row, t], level * plain.cov[row, t])


@pytest.mark.skipif(c_compiler() is None, reason="no C compiler")
@pytest.mark.parametrize("irregular", [False, True])
def test_a_run_by_compiled_code_follows_the_level_as_the_loop_does(generator, irregular):
    """In two parts, of which the second goes on from the first."""
    y, mask = record(generator, 300)
    y[:, 100:140] *= 30
    dt = 2 * STEP * torch.rand(2, 300, generator=generator).double() if irregular else None
    model, outputs = build(SECONDS), ("cov", "prior_cov", "innovation_cov", "mean")
    tracks = {}
    for engine in ("loop", "native"):
        first = model.run(y[:, :120], mask=mask[:, :120], dt=None if dt is None else dt[:, :120], engine=engine)
        rest = None if dt is None else dt[:, 120:]
        tracks[engine] = model.run(y[:, 120:], mask=mask[:, 120:], dt=rest, state=first.state, engine=engine)
        assert tracks[engine].engine == engine
    assert torch.equal(tracks["native"].status, tracks["loop"].status)
    for name in outputs:
        assert_close(getattr(tracks["native"], name), getattr(tracks["loop"], name), "joint")
    for (name, found), (_, wanted) in zip(
        *(named_leaves(tracks[key].state) for key in ("native", "loop")), strict=True
    ):
        torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-10, msg=name)
    assert model.run(y, mask=mask, dt=dt).engine == "native"


def test_time_without_an_update_counts_at_the_next_one():
    """Two predictions of half a step, then a measurement: the level moves as after one step of their length."""
    model, y = build(SECONDS), torch.ones(1, 2).double()
    half = torch.full((1,), STEP / 2, dtype=torch.float64)
    twice, _ = model.update(model.predict(model.predict(model.init(1), dt=half), dt=half), y)
    once, _ = model.step(model.init(1), y)
    assert_close(twice.levels[0], once.levels[0])
    assert float(once.levels[0]) != 1
    assert float(twice.levels[1]) == 0.0


def test_smoothing_at_a_level_that_stays_is_exact(generator):
    """The stated covariances of a level that hardly moves are those of a Kalman gain."""
    y, mask = record(generator)
    plain, ours = build(), build(1e12)
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
    walk = LinearSystem.of(F=one, H=one, Q=0.09 * one, R=one)
    half_life = 40.0
    for level, levels in ((None, (1.0, 9.0, 1.0)), (Level(half_life / math.log(2), of="all"), (1.0, 1.0, 1.0))):
        track = fwnkf.FWNKF(walk, level=level).run(y)
        nis = (track.innovation.square() / track.innovation_cov[..., 0])[..., 0]
        # four half-lives after each change
        found = [float(nis[:, start + 160 : start + 400].mean()) for start in (0, 400, 800)]
        np.testing.assert_allclose(found, levels, rtol=0.1, err_msg=str(level))


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
@torch.no_grad()
@pytest.mark.parametrize("steps", [3, 10])
def test_a_short_memory_states_a_nis_of_one_on_average(generator, steps):
    """Without the factor of its degrees of freedom the mean of ``nis / level`` would be ``d / (d - 2)``."""
    one = torch.eye(1, dtype=torch.float64)
    level = Level(float(steps), of="all")
    model = fwnkf.FWNKF(LinearSystem.of(F=0 * one, H=one, Q=0 * one, R=one), level=level)
    y = torch.randn(400, 200, 1, generator=generator, dtype=torch.float64)
    track = model.run(y)
    nis = (track.innovation.square() / track.innovation_cov[..., 0])[:, 50:]
    biased = (2 * steps) / (2 * steps - 2)  # d is about twice the time constant in steps
    assert abs(float(nis.mean()) - 1) < 0.35 * (biased - 1)


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_a_sensor_that_repeats_a_value_does_not_make_the_filter_certain():
    model = build(0.3).float()
    track = model.run(torch.zeros(1, 400, 2))
    assert float(track.cov.diagonal(dim1=-2, dim2=-1).min()) > 0
    shock = model.run(torch.full((1, 3, 2), 1e18), state=track.state)
    assert bool(shock.cov.isfinite().all())


def test_the_level_follows_where_only_precision_was_lost():
    """Such an update was made, and its innovation is as good as any."""
    eye = torch.eye(2)
    walk = LinearSystem.of(F=eye, H=torch.ones(1, 2), Q=eye, R=1e-8 * torch.eye(1))
    model = fwnkf.FWNKF(walk, level=Level(seconds=3.0, of="all"))
    state = model.init(1, fwnkf.Gaussian(torch.zeros(2), 1e6 * eye))
    state = state._replace(levels=(state.levels[0], torch.ones(1)))  # a second since the last measurement
    state, out = model.update(state, torch.zeros(1, 1))
    assert out.status.item() == fwnkf.Status.PRECISION_LOST
    assert state.levels[0].item() == pytest.approx(math.exp(-1 / 3))  # the rest is that of a NIS of zero


def test_the_elapsed_time_is_in_the_saved_state(tmp_path):
    model, y = build(SECONDS), torch.ones(1, 2).double()
    ahead = model.predict(model.init(1))
    loaded = fwnkf.load_state(model, fwnkf.dump_state(model, ahead))
    mine, theirs = model.update(ahead, y)[0], model.update(loaded, y)[0]
    for (name, left), (_, right) in zip(named_leaves(mine), named_leaves(theirs), strict=True):
        assert_same_bits(left, right, name)


def test_a_time_constant_of_a_step_or_two_is_refused():
    with pytest.raises(ConfigError, match=r"seconds = 0\.05 is too short for steps of 0\.1 s and 2 channel"):
        build(0.05)
