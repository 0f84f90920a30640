"""Heading from a magnetometer: automatic Jacobians, a magnet and a drift that are known, side by side as alone."""

import math

import pytest
import torch
from tasks.broad.model import filter_of, heading, headings_of, with_heading
from tasks.broad.orientation import error_quaternion, heading_error, inclination_error
from tasks.broad.protocol import Blocks, headed, in_blocks, turned_on
from tasks.broad.search import calibrations, with_magnet
from torch import Tensor

from fwnkf.core import rotation
from fwnkf.core.system import System
from fwnkf.systems.heading import Heading, HeadingConfig

from .test_accuracy_broad import RATE, turning

FIELD = torch.tensor([-0.5, 15.0, -41.0], dtype=torch.float64)


def felt(seconds: float = 40.0, delay: float = 0.0) -> Blocks:
    """A trial whose magnetometer reads the earth's field as it was some time ago."""
    blocks = in_blocks(turning(seconds))
    assert blocks.trial.truth is not None
    then = turned_on(blocks.trial.truth, blocks.trial, -delay)
    blocks.trial.observations[:, 6:] = (rotation.to_matrix(then).mT @ FIELD.unsqueeze(-1)).squeeze(-1)
    return blocks


def drifting(blocks: Blocks, rate: float = 2e-3, start: float = 0.5) -> Tensor:
    """The truth turned away about the vertical, ever further."""
    truth = blocks.trial.truth
    assert truth is not None
    angle = start + rate * blocks.trial.time
    zero = torch.zeros_like(angle)
    return rotation.multiply(rotation.exp(torch.stack((zero, zero, angle), -1)), truth)


def test_jacobians_are_those_of_automatic_differentiation() -> None:
    system = Heading(HeadingConfig()).double()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 13, generator=generator, dtype=torch.float64)
    x = torch.cat((x[:, :9], rotation.normalize(x[:, 9:])), -1)
    q = rotation.normalize(torch.randn(3, 4, generator=generator, dtype=torch.float64))
    controls = (None, torch.cat((torch.tensor([[0.0], [1.0], [5.0]]).double(), q), -1))
    for u in controls:
        for dt in (None, torch.tensor([0.02, 0.05, 0.1]).double()):
            mean, F = system.linearize_transition(x, u, dt)
            expected, slope = System.linearize_transition(system, x, u, dt)
            torch.testing.assert_close(mean, expected)
            torch.testing.assert_close(F.expand_as(slope), slope, atol=1e-12, rtol=1e-12)
            assert system.process_noise(dt).shape[-2:] == (12, 12)
    seen, H = system.linearize_observation(x)
    expected, slope = System.linearize_observation(system, x)
    torch.testing.assert_close(seen, expected)
    torch.testing.assert_close(H, slope, atol=1e-10, rtol=1e-10)


def test_drift_and_magnet_are_found() -> None:
    blocks = with_magnet(felt(60.0), torch.tensor([3.0, -2.0, 1.0], dtype=torch.float64))
    truth = blocks.trial.truth
    assert truth is not None
    worst = {}
    for magnet_std in (3.0, 1e-3):
        numbers = {"field": tuple(FIELD.tolist()), "local_std": 0.1, "magnet_std": magnet_std}
        (path,) = with_heading(filter_of(heading(numbers, RATE)), [blocks], [drifting(blocks)])
        error = error_quaternion(path, truth)
        assert float(inclination_error(error).max()) < 1e-6  # the tilt is not touched
        worst[magnet_std] = math.degrees(float(heading_error(error)[int(50 * RATE) :].max()))
    assert worst[3.0] < 1.0  # the drift alone is 6 degrees by then, and 29 at the start
    assert worst[1e-3] > 3.0  # a filter that knows no magnets believes it


def test_the_heading_does_not_see_the_future() -> None:
    whole = felt(20.0)
    part = whole.part(100)
    model, path = filter_of(heading({}, RATE)), drifting(whole)
    (long,) = with_heading(model, [whole], [path])
    (short,) = with_heading(model, [part], [path[: len(part.trial.time)]])
    torch.testing.assert_close(long[: len(short)], short, atol=1e-12, rtol=0)


def test_candidates_side_by_side_are_single_runs() -> None:
    blocks = [felt(12.0), felt(10.0)]
    paths = [drifting(one) for one in blocks]
    numbers = [
        {"field": (1.0, 14.0, -40.0), "rate_seconds": 3.0},
        {"magnet_std": 0.2, "local_seconds": 1.0, "magnetometer_delay": 0.01},
    ]
    for one, together in zip(numbers, headings_of(numbers, blocks, paths), strict=True):
        alone = with_heading(filter_of(heading(one, RATE)), blocks, paths)
        for a, b in zip(together, alone, strict=True):
            torch.testing.assert_close(a, b, atol=1e-9, rtol=0)


def test_field_and_delay_are_those_of_the_recording() -> None:
    blocks = [felt(40.0, delay=0.015), felt(30.0, delay=0.015)]
    found = calibrations(blocks, [drifting(one, rate=0.0) for one in blocks], {})
    assert set(found) == {(0, 1), (1,), (0,)}
    for fit in found.values():
        assert fit["magnetometer_delay"] == pytest.approx(0.015, rel=0.02)
        assert fit["field"] == pytest.approx(FIELD.tolist(), abs=0.1)


def test_each_block_is_turned_by_the_heading_known_before_it() -> None:
    path = torch.tensor([1.0, 0, 0, 0]).double().expand(60, 4)
    turned = rotation.log(headed(path, torch.tensor([0.1, 0.2, 0.3]).double()))
    torch.testing.assert_close(turned[:, 2], torch.tensor([0.1] * 24 + [0.2] * 24 + [0.3] * 12).double())
