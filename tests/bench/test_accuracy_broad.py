"""Attitude of a hand-held sensor: closed forms, automatic Jacobians, VQF's own figures, the shipped filter on its."""

import json
import math
import os
from pathlib import Path

import pytest
import torch

from fwnkf.bench.accuracy import broad
from fwnkf.bench.accuracy.broad_model import Candidates, estimate, filter_of, handheld
from fwnkf.bench.orientation import error_quaternion, inclination_error
from fwnkf.core import rotation
from fwnkf.core.system import System
from fwnkf.data.broad import CHANNELS, LAYOUT
from fwnkf.data.broad_tasks import SAMPLES, Blocks, at_samples, in_blocks
from fwnkf.data.sequence import Sequence
from fwnkf.filters.base import build
from fwnkf.systems.attitude import Handheld, HandheldConfig

MODELS = Path(__file__).parents[2] / "models"
needs_data = pytest.mark.skipif("FWNKF_DATA" not in os.environ, reason="the recordings are not here")
RATE = 285.714


def turning(seconds: float = 20.0) -> Sequence:
    """A sensor that rests, then turns and sways as a hand does; its readings are exact but for sampling."""
    t = torch.arange(int(seconds * RATE)).double() / RATE
    moving = (t > 4).double()
    gyro = torch.stack((0.8 * (1.3 * t).sin(), 0.6 * (0.9 * t).cos(), 0.3 * torch.ones_like(t)), -1) * moving[:, None]
    q = [torch.tensor([1.0, 0, 0, 0]).double()]
    for rate in gyro[1:]:
        q.append(rotation.multiply(q[-1], rotation.exp(rate / RATE)))
    truth = torch.stack(q)
    omega = 2 * math.pi * 0.7
    sway = 0.1 * omega**2 * (omega * (t - 4)).cos() * moving  # of a hand that starts at rest
    world = torch.stack((sway, 0.5 * sway, torch.full_like(t, 9.81)), -1)
    force = (rotation.to_matrix(truth).mT @ world.unsqueeze(-1)).squeeze(-1)
    observations = torch.cat((gyro, force, torch.ones_like(gyro)), -1)
    known = torch.ones(len(t), dtype=torch.bool)
    return Sequence(
        "made",
        t,
        observations,
        CHANNELS,
        observations.isfinite(),
        truth,
        LAYOUT,
        known,
        extras={"movement": moving > 0},
    )


def test_jacobians_are_those_of_automatic_differentiation() -> None:
    system = Handheld(HandheldConfig()).double()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 28, generator=generator, dtype=torch.float64)
    x = torch.cat((x[:, :6], x[:, 6:10] / x[:, 6:10].norm(dim=-1, keepdim=True), x[:, 10:]), -1)
    u = torch.randn(3, 6, generator=generator, dtype=torch.float64)
    for dt in (None, torch.tensor([0.02, 0.05, 0.1]).double()):
        mean, F = system.linearize_transition(x, u, dt)
        expected, slope = System.linearize_transition(system, x, u, dt)
        torch.testing.assert_close(mean, expected)
        torch.testing.assert_close(F.expand_as(slope), slope, atol=1e-12, rtol=1e-12)
        assert system.process_noise(dt).shape[-2:] == (27, 27)
    torch.testing.assert_close(system.H.expand(3, 9, 27), System.linearize_observation(system, x)[1], atol=1e-7, rtol=0)


def test_the_wander_keeps_its_variance() -> None:
    system = Handheld(HandheldConfig()).double()
    F, Q = system._outer(torch.zeros(28).double(), None), system.process_noise(None)[15:, 15:]
    P = torch.diag(system.start_variances()[15:])
    torch.testing.assert_close(F @ P @ F.mT + Q, P)


def test_blocks_turn_as_their_samples() -> None:
    blocks = in_blocks(turning())
    assert blocks.trial.truth is not None
    start = blocks.trial.truth[SAMPLES * 100 - 1]
    end = rotation.multiply(start, rotation.exp(blocks.rate[100] * blocks.dt))
    torch.testing.assert_close(end, blocks.trial.truth[SAMPLES * 101 - 1], atol=1e-9, rtol=0)
    assert bool(blocks.resting[40])
    assert not bool(blocks.resting[100:].any())


def test_between_estimates_the_gyroscope_carries_on() -> None:
    blocks = in_blocks(turning(8.0))
    truth = blocks.trial.truth
    assert truth is not None
    ends = truth[SAMPLES - 1 :: SAMPLES][: len(blocks.rate)]
    first = truth[0]
    found = at_samples(blocks, first, ends, torch.zeros(len(ends), 3).double())
    torch.testing.assert_close(found, truth, atol=1e-9, rtol=0)


def test_a_swaying_hand_hides_gravity_from_the_accelerometer_only() -> None:
    blocks = in_blocks(turning())
    (path,) = estimate(filter_of({}, RATE), [blocks])
    assert blocks.trial.truth is not None
    error = inclination_error(error_quaternion(path, blocks.trial.truth))[int(5 * RATE) :]
    assert math.degrees(float(error.square().mean().sqrt())) < 0.5  # the force itself is up to 11 degrees off


def test_candidates_side_by_side_are_single_runs() -> None:
    trials = [in_blocks(turning(6.0)), in_blocks(turning(6.0))]
    numbers: list[dict[str, float]] = [{"cycle_std": 0.3}, {"gyro_density": 1e-3}]
    many = Candidates([handheld(one, RATE) for one in numbers], 2).double()
    together = estimate(build("ekf", system=many), trials * 2)
    for i, one in enumerate(numbers):
        alone = estimate(filter_of(one, RATE), trials)
        torch.testing.assert_close(torch.stack(together[2 * i : 2 * i + 2]), torch.stack(alone), atol=1e-9, rtol=0)


def test_the_estimate_does_not_see_the_future() -> None:
    whole = in_blocks(turning(8.0))
    part: Blocks = whole.part(60)
    long, short = (estimate(filter_of({}, RATE), [blocks])[0] for blocks in (whole, part))
    torch.testing.assert_close(long[: len(short)], short, atol=1e-12, rtol=0)


@needs_data
def test_shipped_filter_gives_its_figures_and_vqf_its_own() -> None:
    pytest.importorskip("vqf")
    kept = json.loads((MODELS / "broad" / "figures.json").read_text())
    rows = list(broad.measure(MODELS, quick=True))
    ours = {row["row"]: row["value"] for row in rows if row["method"] == "fwnkf"}
    assert ours["disturbed trials, mean"] == pytest.approx(kept["quick"]["mean"], rel=0.01)
    published = {"24": 0.61, "25": 0.38, "26": 0.56, "27": 0.37}  # measured independently of this code
    for trial, value in published.items():
        assert kept["rungs"]["vqf_6d"][trial] == pytest.approx(value, abs=0.006)
    assert sum(path.stat().st_size for path in (MODELS / "broad").iterdir()) < 1 << 20
