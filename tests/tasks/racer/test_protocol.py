"""The flights as they are in the logs: splits, the time in the air, and no skipped frame."""

from __future__ import annotations

import os

import pytest
import torch

from fwnkf.errors import DataError
from fwnkf.logs import open_log
from tasks.racer import protocol


@pytest.fixture(scope="module")
def shortest():
    if not os.environ.get("FWNKF_DATA") or len(protocol.find()) != protocol.FLIGHTS:
        pytest.skip("FWNKF_DATA names no folder with the racing quadrotor")
    return min(protocol.find(), key=lambda path: path.stat().st_size)


def test_splits_share_no_flight() -> None:
    groups = protocol.TRAIN, protocol.VALIDATION, protocol.TEST
    assert sorted(number for group in groups for number in group) == list(range(protocol.FLIGHTS))


def test_no_frame_is_skipped_and_the_craft_flies_at_both_ends(shortest) -> None:
    counter = open_log(shortest).read("frames", ["loopIteration"]).columns["loopIteration"]
    assert len(set((counter[1:] - counter[:-1]).tolist())) == 1
    flight = protocol.read(shortest)
    # the log is 80 s long
    assert 60 < len(flight) * protocol.STEP < 80
    assert flight.rate.isfinite().all()
    assert flight.motors.min() >= 0
    assert flight.motors.max() <= 1


def test_skipped_frames_are_samples_that_were_not_measured() -> None:
    """A log on its own stamps, some frames left out: the places of those are NaN, the rest keeps its own."""
    generator = torch.Generator().manual_seed(0)
    time = protocol.STEP * (torch.arange(400) + 0.3 * torch.rand(400, generator=generator)).double()
    values, motors = torch.randn(400, 6, generator=generator), torch.rand(400, 4, generator=generator)
    kept = torch.ones(400, dtype=torch.bool)
    kept[[50, 51, 52, 120, 377]] = False
    grid, commands = protocol.on_grid(time[kept], values[kept], motors[kept])
    assert grid.shape == values.shape
    assert torch.equal(grid[kept], values[kept])
    assert grid[~kept].isnan().all()
    assert torch.equal(commands[[49, 50, 51, 52, 53]], motors[[49, 49, 49, 49, 53]])
    flight = protocol.Flight("skips", grid[:, :3], grid[:, 3:], commands)
    # windows of 120 frames that begin at 150, 200 and 250; those before and behind have a skipped frame
    whole = protocol.windows([flight], 20, stride=50, context=100)
    assert torch.equal(whole.y[:, 0], values[[150, 200, 250], :3])


def test_commands_beyond_the_context_are_withheld() -> None:
    motors = torch.rand(2, 300, 4)
    u = protocol.held(motors)
    assert torch.equal(u[:, :256], protocol.control(motors)[:, :256])
    assert torch.equal(u[:, -1, :4], motors[:, 255] - protocol.HOVER)
    assert not bool(u[:, 256:, 4].any())


def test_a_folder_without_the_logs_is_named(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("FWNKF_DATA", str(tmp_path))
    protocol._paths.cache_clear()
    with pytest.raises(DataError, match="0 logs of the racing quadrotor"):
        protocol.flight.__wrapped__(0)
    protocol._paths.cache_clear()
