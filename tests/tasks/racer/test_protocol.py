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
