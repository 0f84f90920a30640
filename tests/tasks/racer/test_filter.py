"""The racing quadrotor's filter on simulated flights: the cheap rollout against the filter itself, and training."""

from __future__ import annotations

import pytest
import torch

import fwnkf
from fwnkf.core import linearize
from tasks.racer import protocol, regression, rigid_body, scoring, training
from tasks.racer.filter import Options, linear_model, new_filter, on_frames, steps
from tasks.racer.gaps import gap_errors
from tasks.racer.protocol import BLOCK, CONTEXT, STEP, Flight

from ...tolerances import assert_close

PLAN = training.Plan(batch=16, mean_steps=4, likelihood_batch=8, likelihood_steps=2)


def simulated(seed: int, seconds: float = 6.0) -> Flight:
    """Motors that follow smooth commands with a lag of 20 ms and turn the craft against some damping."""
    generator = torch.Generator().manual_seed(seed)
    count = int(seconds / STEP)
    smooth = torch.nn.functional.interpolate(
        0.2 * torch.randn(1, 4, count // 40, generator=generator), size=count, mode="linear"
    )
    motors = (0.4 + smooth[0].mT).clamp(0, 1)
    mix = torch.tensor([[-1.0, -1, 1, 1], [1, -1, 1, -1], [0.3, -0.3, -0.3, 0.3]])
    speed, rate, rates = motors[0], torch.zeros(3), []
    kicks = 0.002 * torch.randn(count, 3, generator=generator)
    for t in range(count):
        speed = speed + STEP / 0.02 * (motors[t] - speed)
        rate = rate + STEP * (20 * mix @ speed.square() - 5 * rate) + kicks[t]
        rates.append(rate)
    return Flight(f"simulated {seed}", torch.stack(rates), torch.zeros(count, 3), motors)


@pytest.fixture(scope="module")
def group() -> list[Flight]:
    return [simulated(0), simulated(1)]


@pytest.fixture(scope="module")
def linear(group):
    return linear_model(group)


def test_an_untrained_filter_is_the_kalman_filter_of_the_linear_model(group, linear) -> None:
    model = new_filter(linear, Options(hidden=8, width=8), group, seed=0)
    y, u = (item[:40].unsqueeze(0) for item in steps(group[0]))
    prior = training.start_belief(model, y[:, 0])
    expected = fwnkf.EKF(system=linear.float()).run(y, u, prior=prior)
    linear.double()
    assert_close(model.run(y, u, prior=prior).mean, expected.mean, "conditioned")


def test_the_rollout_of_the_means_is_the_filter_in_a_gap(group, linear) -> None:
    model = new_filter(linear, Options(hidden=8, width=8), group, seed=0)
    torch.nn.init.normal_(model.residual.out.weight, std=0.1)
    y, u = (item[:24].unsqueeze(0) for item in steps(group[0]))
    measured = model.run(y[:, :12], u[:, :12], prior=training.start_belief(model, y[:, 0]))
    state = measured.state
    gap = model.run(y[:, 12:], u[:, 12:], torch.zeros_like(y[:, 12:], dtype=torch.bool), state=state)
    mean = training.Mean(state.mean, state.encoder.seen, state.encoder.hidden[-1])
    predicted, _ = training.rollout(model, torch.zeros(6, 3), mean, y[:, 12:], u[:, 12:], measured=0)
    assert_close(predicted, gap.mean[..., :3], "batch")


def test_the_kalman_gain_is_the_constant_gain_of_the_means(group, linear) -> None:
    model = new_filter(linear, Options(hidden=8, width=8), group, seed=0)
    streams = training.Streams(group, 16, seed=0)
    gain = 0.3 * torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    training.set_gain(model, gain, streams)
    y, u = (item[:64].unsqueeze(0) for item in steps(group[0]))
    one, other = (model.run(y + shift, u).mean[0, -1, 3:] for shift in (0.0, torch.zeros_like(y)))
    assert torch.equal(one, other)
    bumped = y.clone()
    bump = torch.tensor([0.002, -0.004, 0.006])  # within the limit of a jump
    bumped[0, -1] += bump
    moved = model.run(bumped, u).mean[0, -1, 3:] - one
    expected = gain @ bump
    # the process noise has a small part beside the constant gain
    assert (moved - expected).norm() < 0.1 * expected.norm()


def test_training_starts_from_its_seed_and_the_saved_filter_reads_frames(group, tmp_path) -> None:
    models = [training.train(group, Options(hidden=4, width=4), PLAN, seed, lambda text: None) for seed in (0, 0, 1)]
    weights = [model.encoder.cells[0].weight_hh for model in models]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    data = protocol.windows(group, 48, stride=1000)
    before = gap_errors(on_frames(models[0]), data.y, protocol.control(data.motors), CONTEXT, (BLOCK, 20))
    level = training.set_level(models[0], protocol.windows(group, 96, stride=1000))
    fwnkf.save(models[0], tmp_path)
    after = gap_errors(fwnkf.load(tmp_path), data.y, protocol.control(data.motors), CONTEXT, (BLOCK, 20))
    assert_close(after.error, before.error, "batch")
    assert_close(after.cov, level * before.cov, "batch")


def test_skipped_frames_are_masked_for_the_filter_and_no_part_of_training(group, linear) -> None:
    one = group[0]
    rate = one.rate.clone()
    rate[[403, 1000, 1001]] = torch.nan  # the last frame of a step, and two within
    skips = Flight("skips", rate, one.force, one.motors)
    model = on_frames(new_filter(linear, Options(hidden=8, width=8), group, seed=0))
    y, u = rate[:1200].unsqueeze(0), protocol.control(one.motors[:1200]).unsqueeze(0)
    mask = torch.ones_like(y, dtype=torch.bool)
    mask[0, [403, 1000, 1001]] = False
    assert_close(model.run(y, u).mean, model.run(one.rate[:1200].unsqueeze(0), u, mask).mean)
    streams = training.Streams([skips], 4, seed=0)
    assert streams.y.isfinite().all()
    assert len(streams.y) < len(training.Streams([one], 4, seed=0).y)


def test_streams_follow_the_flight_and_withhold_commands(group) -> None:
    streams = training.Streams(group, 8, seed=0)
    first, second = list(streams.windows(2))
    on = ~second.fresh
    known = ~first.held & on
    assert torch.equal(first.y[on, training.MEASURED :][:, : training.MEASURED], second.y[on, : training.MEASURED])
    assert torch.equal(first.u[known, training.MEASURED :][:, :12], second.u[known, :12])
    flags = first.u.unflatten(-1, (BLOCK, 5))[..., -1]
    assert bool((flags[first.held, training.MEASURED :] == 0).all())
    assert bool((flags[first.held, : training.MEASURED] == 1).all())
    assert bool((flags[~first.held] == 1).all())


def test_jacobian_of_the_rigid_body_is_that_of_its_equations(generator) -> None:
    rows = torch.randn(3, 11, generator=generator).tolist()
    system = rigid_body.RigidBody(rigid_body.RigidBodyConfig(0.02, tuple(map(tuple, rows)))).double()
    x = torch.randn(5, 10, generator=generator, dtype=torch.float64)
    u = torch.randn(5, 20, generator=generator, dtype=torch.float64)
    mean, F = system.linearize_transition(x, u, None)
    by_hand = linearize.jacobian(lambda z: system.transition(z, u, None), x, system.layout, system.layout)
    assert_close(mean, by_hand[0])
    assert_close(F, by_hand[1])


def test_regressions_predict_a_simulated_craft(group) -> None:
    data = protocol.windows([simulated(5)], 48)
    ridge = regression.fit_ridge(group, 48)
    held, regressed = (scoring.rmse(method(data) - scoring.truth(data, 48)) for method in (regression.hold, ridge))
    assert regressed < 0.2 * held
    without = regression.fit_ridge(group, 48, future=False)
    assert scoring.rmse(without(data) - scoring.truth(data, 48)) > 2 * regressed
