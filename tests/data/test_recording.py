"""Recordings: validation, slices and windows, and the check that splits are disjoint."""

from __future__ import annotations

import pytest
import torch

from fwnkf.core.layout import Layout
from fwnkf.data.recording import Channel, Recording, assert_disjoint
from fwnkf.errors import DataError

from ..tolerances import assert_close, assert_same_bits

LAYOUT = Layout.parse([("p", "euclidean", 3), ("q", "quaternion", 4)])


def make(samples: int = 20, name: str = "walk", **changes: object) -> Recording:
    time = torch.arange(samples, dtype=torch.float64) / 50
    truth = torch.zeros(samples, 7, dtype=torch.float64)
    truth[:, 3] = 1.0
    observations = torch.arange(samples * 2, dtype=torch.float64).reshape(samples, 2)
    values: dict = {
        "name": name,
        "time": time,
        "observations": observations,
        "channels": (Channel("a", "m"), Channel("b", "m/s")),
        "mask": torch.ones(samples, 2, dtype=torch.bool),
        "truth": truth,
        "layout": LAYOUT,
        "digest": "0" * 64,
        "extras": {"flag": torch.zeros(samples, dtype=torch.bool)},
    }
    return Recording(**{**values, **changes})


def test_properties():
    recording = make()
    assert len(recording) == 20
    assert_close(torch.tensor(recording.rate), torch.tensor(50.0), "rounding")
    assert_close(recording.dt, torch.tensor([0.0] + [0.02] * 19, dtype=torch.float64), "rounding")
    assert_same_bits(recording.column("b"), recording.observations[:, 1])
    assert recording.truth_mask is not None
    assert bool(recording.truth_mask.all())
    assert "p+q" in repr(recording)
    with pytest.raises(DataError, match="'c'; there are: a, b"):
        recording.column("c")
    with pytest.raises(DataError, match="no rate"):
        _ = recording.slice(0, 1).rate
    with pytest.raises(TypeError):
        recording.extras["flag"] = torch.zeros(20)  # type: ignore[index]


NAN = torch.full((20, 2), torch.nan, dtype=torch.float64)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"time": torch.zeros(20, dtype=torch.float64)}, "increase strictly, but sample 1 at"),
        ({"time": torch.arange(20, dtype=torch.float32)}, "time is torch.float32"),
        ({"time": torch.arange(20, dtype=torch.float64).reshape(20, 1)}, "time has shape"),
        ({"time": torch.full((20,), torch.nan, dtype=torch.float64)}, "NaN or infinity"),
        ({"observations": NAN}, "channel a is not finite at sample 0, .*40 such"),
        ({"observations": NAN[:, :1]}, "observations is"),
        ({"mask": torch.ones(20, 2)}, "mask is torch.float32"),
        ({"channels": (Channel("a", "m"), Channel("a", "m"))}, "names repeat"),
        ({"truth": None}, "without truth"),
        ({"layout": None}, "needs a layout"),
        ({"layout": Layout.euclidean(6)}, "truth is"),
        ({"truth": torch.full((20, 7), torch.nan, dtype=torch.float64)}, "not finite at sample 0"),
        ({"truth": torch.full((20, 7), 0.9, dtype=torch.float64)}, "quaternion q has length 1.8"),
        ({"truth_mask": torch.ones(19, dtype=torch.bool)}, "truth_mask is"),
        ({"extras": {"flag": torch.zeros(3)}}, "extra 'flag'"),
    ],
)
def test_invalid_recordings_raise_a_data_error(changes, message):
    with pytest.raises(DataError, match=f"'walk': .*{message}"):
        make(**changes)


def test_masked_values_may_be_nan():
    recording = make(observations=NAN, mask=torch.zeros(20, 2, dtype=torch.bool))
    assert not bool(recording.mask.any())


def test_windows_are_views_with_their_span():
    whole = make(20)
    windows = whole.windows(8, 5)
    assert [window.name for window in windows] == ["walk[0:8]", "walk[5:13]", "walk[10:18]"]
    for start, window in zip((0, 5, 10), windows, strict=True):
        assert window.span == ("walk", "0" * 64, start, start + 8)
        assert_same_bits(window.observations, whole.observations[start : start + 8])
        assert_same_bits(window.time, whole.time[start : start + 8])
        assert window.observations.data_ptr() == whole.observations[start:].data_ptr()
        assert len(window.extras["flag"]) == 8
        assert float(window.dt[0]) == 0.0
    part = whole.slice(4, 16).slice(2, 6)
    assert part.span == ("walk", "0" * 64, 6, 10)
    assert part.name == "walk[6:10]"
    assert whole.windows(21, 1) == []
    for start, stop in ((-1, 4), (3, 3), (0, 21)):
        with pytest.raises(DataError, match="does not lie within"):
            whole.slice(start, stop)
    with pytest.raises(DataError, match="at least 1"):
        whole.windows(5, 0)


def test_assert_disjoint_finds_common_samples():
    first, second = make(name="one"), make(name="two")
    assert_disjoint([first], [second])
    assert_disjoint(first.windows(8, 4)[:1], first.windows(8, 4)[2:], [second])
    assert_disjoint([first.slice(0, 9), first.slice(0, 12)], [first.slice(12, 20)])
    with pytest.raises(DataError, match=r"one\[0:12\] and one\[8:20\]"):
        assert_disjoint([first.slice(0, 12)], [second, first.slice(8, 20)])
    with pytest.raises(DataError, match="share samples"):  # the shorter part starts later but ends within the longer
        assert_disjoint([first.slice(0, 20), first.slice(1, 3)], [second], [first.slice(6, 8)])
    windows = first.windows(8, 4)
    assert any(a.span.overlaps(b.span) for a in windows[:2] for b in windows[2:])
    with pytest.raises(DataError, match="share samples"):
        assert_disjoint(windows[:2], windows[2:])
