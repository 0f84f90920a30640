"""Attitude of a hand-held sensor: closed forms, automatic Jacobians, VQF's own figures, the shipped filter on its."""

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tasks.broad.card import heading_card, tilt_card
from tasks.broad.model import estimate, filter_of, handheld, tilts_of
from tasks.broad.orientation import error_quaternion, inclination_error
from tasks.broad.protocol import SAMPLES, Blocks, at_samples, in_blocks, speeds, turned_on
from tasks.broad.search import Space, delay, search

from fwnkf.core import rotation
from fwnkf.core.system import System
from fwnkf.data.broad import CHANNELS, LAYOUT
from fwnkf.data.recording import Recording
from fwnkf.systems.attitude import Handheld, HandheldConfig
from tasks.broad import broad

MODELS = Path(__file__).parents[2] / "models"
needs_data = pytest.mark.skipif("FWNKF_DATA" not in os.environ, reason="the recordings are not here")
RATE = 285.714


def turning(seconds: float = 20.0) -> Recording:
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
    return Recording(
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
    x = torch.randn(3, 29, generator=generator, dtype=torch.float64)
    x = torch.cat((x[:, :6], x[:, 6:10] / x[:, 6:10].norm(dim=-1, keepdim=True), x[:, 10:]), -1)
    u = torch.randn(3, 7, generator=generator, dtype=torch.float64).abs()
    for dt in (None, torch.tensor([0.02, 0.05, 0.1]).double()):
        mean, F = system.linearize_transition(x, u, dt)
        expected, slope = System.linearize_transition(system, x, u, dt)
        torch.testing.assert_close(mean, expected)
        torch.testing.assert_close(F.expand_as(slope), slope, atol=1e-12, rtol=1e-12)
        assert system.process_noise(dt).shape[-2:] == (28, 28)
    seen, H = system.linearize_observation(x)
    expected, slope = System.linearize_observation(system, x)
    torch.testing.assert_close(seen, expected)
    torch.testing.assert_close(H, slope, atol=1e-7, rtol=0)  # the numbers of the config are of single precision


def test_the_wander_keeps_its_variance() -> None:
    system = Handheld(HandheldConfig()).double()
    F, Q = system._outer(torch.zeros(29).double(), None), system.process_noise(None)[15:27, 15:27]
    P = torch.diag(system.start_variances()[15:27])
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
    (path,) = estimate(filter_of(handheld({}, RATE)), [blocks])
    assert blocks.trial.truth is not None
    error = inclination_error(error_quaternion(path, blocks.trial.truth))[int(5 * RATE) :]
    assert math.degrees(float(error.square().mean().sqrt())) < 0.5  # the force itself is up to 11 degrees off


def test_candidates_side_by_side_are_single_runs() -> None:
    trials = [in_blocks(turning(6.0)), in_blocks(turning(6.0))]
    numbers: list[dict[str, float]] = [{"cycle_std": 0.3, "reach_power": 1.0}, {"gyro_density": 1e-3, "delay": 0.01}]
    for one, together in zip(numbers, tilts_of(numbers, trials), strict=True):
        alone = estimate(filter_of(handheld(one, RATE)), trials)
        torch.testing.assert_close(torch.stack(together), torch.stack(alone), atol=1e-9, rtol=0)


def test_the_speed_is_that_of_the_sway() -> None:
    blocks = in_blocks(turning(40.0))
    speed = speeds(blocks.rate, blocks.force, blocks.dt)
    omega = 2 * math.pi * 0.7
    expected = 0.1 * omega * math.sqrt((1 + 0.25) / 3 / 2)  # of an axis: 0.1 m along x, half of it along y
    assert float(speed[:40].max()) < 0.01
    # two high-passes and a leaky sum take off some per cent
    assert float(speed[-100:].mean()) == pytest.approx(expected, rel=0.1)


def test_a_faster_hand_reaches_further() -> None:
    system = Handheld(HandheldConfig(reach_power=0.5)).double()
    x = system.layout.origin(torch.zeros(()).double())[None]
    for speed, reach in ((0.3, 1.0), (1.2, 2.0), (0.0, 0.05**0.5)):
        u = torch.tensor([[0, 0, 0, 0, 0, 9.81, speed]]).double()
        assert float(system.transition(x, u, None)[0, 28]) == pytest.approx(reach)


def test_late_readings_are_found_and_made_up_for() -> None:
    trial = turning()
    late = in_blocks(trial)
    assert trial.truth is not None
    behind = turned_on(trial.truth, trial, -0.01)  # the truth of ten milliseconds ago
    assert delay(behind, late) == pytest.approx(0.01, rel=0.01)
    torch.testing.assert_close(turned_on(behind, trial, 0.01), trial.truth)
    ends = behind[SAMPLES - 1 :: SAMPLES][: len(late.rate)]
    path = at_samples(late, behind[0], ends, torch.zeros(len(ends), 3).double(), 0.01)
    assert delay(path, late) == pytest.approx(0.0, abs=1e-4)


def test_the_search_finds_a_valley_and_leaves_out_what_it_says() -> None:
    asked: list[list[float]] = []

    def judge(tried: list[dict[str, float]]) -> torch.Tensor:
        asked.append([one["known"] for one in tried])
        off = torch.tensor([math.log(one["a"] / 2) ** 2 for one in tried])
        return torch.stack((1 + off, 2 + off, 3 + off), -1)

    def fit(some: object) -> dict[str, float]:
        return {"known": float(len(list(some)))}  # type: ignore[call-overload]

    found = search(Space({"a": 1.5}, 20, (0.5, 0.2), fit, judge, [[0], [1], [2]]), 0, lambda _: None)
    assert found.numbers["a"] == pytest.approx(2, rel=0.1)
    assert asked[-1] == [2.0, 2.0, 2.0]  # each without one of the three
    assert found.left_out == pytest.approx([1, 2, 3], rel=0.02)


def test_the_estimate_does_not_see_the_future() -> None:
    whole = in_blocks(turning(8.0))
    part: Blocks = whole.part(60)
    long, short = (estimate(filter_of(handheld({}, RATE)), [blocks])[0] for blocks in (whole, part))
    torch.testing.assert_close(long[: len(short)], short, atol=1e-12, rtol=0)


@pytest.mark.parametrize(("task", "card"), [("broad", tilt_card), ("broad-magnetometer", heading_card)])
def test_cards_say_what_the_figures_do(task: str, card: Callable[[dict[str, Any]], str]) -> None:
    kept = json.loads((MODELS / task / "figures.json").read_text())
    assert (MODELS / task / "README.md").read_text(encoding="utf-8") == card(kept)
    assert max(found["mean"] for found in kept["seeds"].values()) < kept["rungs"][broad.RIVALS[task][0]]["mean"]
    shipped = json.loads((MODELS / task / "config.json").read_text())["system"]["config"]
    for name, value in kept["seeds"]["0"]["numbers"].items():
        assert shipped[name] == pytest.approx(value)


@needs_data
@pytest.mark.parametrize("task", broad.TASKS)
def test_shipped_filter_gives_its_figures_and_vqf_its_own(task: str) -> None:
    pytest.importorskip("vqf")
    kept = json.loads((MODELS / task / "figures.json").read_text())
    rows = list(broad.measure(MODELS, quick=True, tasks=[task]))
    ours = {row["row"]: row["value"] for row in rows if row["method"] == "fwnkf"}
    assert ours["disturbed trials, mean"] == pytest.approx(kept["quick"]["mean"], rel=0.01)
    published = {  # measured independently of this code
        "broad": {"24": 0.61, "25": 0.38, "26": 0.56, "27": 0.37},
        "broad-magnetometer": {"24": 1.55, "25": 1.62, "26": 1.75, "27": 6.73},
    }
    for trial, value in published[task].items():
        assert kept["rungs"][broad.RIVALS[task][0]][trial] == pytest.approx(value, abs=0.006)
    assert sum(path.stat().st_size for path in (MODELS / task).iterdir()) < 1 << 20
