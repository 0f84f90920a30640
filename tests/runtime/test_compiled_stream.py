"""A compiled stream computes what the stream computes: in C for one stream, by PyTorch for several."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fwnkf
from fwnkf.errors import ConfigError
from fwnkf.native.compilers import c_compiler
from fwnkf.native.function import Native
from fwnkf.runtime.fast_step import PackedStep
from fwnkf.runtime.stream import Stream

from ..conformance.cases import CASES
from ..tolerances import assert_close
from .test_stream import assert_same_estimate, live, open_stream

pytestmark = [
    pytest.mark.export,
    pytest.mark.skipif(c_compiler() is None, reason="no C compiler (cc, gcc, clang) on this machine"),
]


def assert_close_estimate(mine: fwnkf.runtime.estimate.Estimate, theirs: fwnkf.runtime.estimate.Estimate) -> None:
    for name in ("mean", "cov", "innovation"):
        assert_close(getattr(mine, name), getattr(theirs, name), "export")
    assert np.float32(mine.nis) == pytest.approx(np.float32(theirs.nis), rel=1e-4, nan_ok=True)
    assert (mine.time, mine.health, mine.reason) == (theirs.time, theirs.health, theirs.reason)


def in_c(stream: Stream) -> bool:
    return isinstance(stream._done[-1].last, PackedStep)


@pytest.mark.parametrize("name", ["fwnkf-paper", "level-noise"])
def test_one_stream_in_c_equals_the_stream_with_gate_gaps_and_late_measurements(name: str):
    case = CASES[name]
    calls = live(case, 12)
    calls[5]["y"] = calls[5]["y"] + 50.0  # outside the gate
    calls[7]["y"], calls[8]["y"] = np.full_like(calls[7]["y"], np.nan), None
    calls[9], calls[10] = calls[10], calls[9]
    options = {"gate": 0.999, "history": 1.0, "recover_after": 2}
    plain, compiled = (open_stream(case, compiled=flag, **options) for flag in (False, True))
    reasons = set()
    for call in calls:
        expected, estimate = plain.step(**call), compiled.step(**call)
        assert_close_estimate(estimate, expected)
        reasons.add(expected.reason)
        estimate.mean[:] = 99.0  # a caller's own array: the stream must not read it
    assert any("rejected by the gate" in reason for reason in reasons)
    assert in_c(compiled)


def test_a_snapshot_of_a_stream_in_c_goes_on_with_the_same_bits():
    calls = live(CASES["kf-sequential"], 9)
    stream = open_stream(CASES["kf-sequential"], compiled=True)
    for call in calls[:4]:
        stream.step(**call)
    again = Stream.restore(CASES["kf-sequential"].build(torch.float32), stream.snapshot())
    for call in calls[4:]:
        assert_same_estimate(again.step(**call), stream.step(**call))
    assert in_c(stream)
    assert in_c(again)


@pytest.mark.slow  # up to a minute for each filter
@pytest.mark.parametrize("name", list(CASES))
def test_every_filter_in_c_equals_the_filter(name: str):
    """In double precision: two orders of operations in single precision differ by more than 1e-5 in some of them."""
    plain, compiled = (open_stream(CASES[name], dtype=torch.float64, compiled=flag) for flag in (False, True))
    for call in live(CASES[name], 20):
        assert_close_estimate(compiled.step(**call), plain.step(**call))


def test_a_filter_without_c_is_compiled_by_pytorch(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise ConfigError("no C for this")

    asked = []
    monkeypatch.setattr("fwnkf.runtime.fast_step.NativeStep", refuse)
    plain, compiled = (open_stream(CASES["kf"], compiled=flag) for flag in (False, True))
    fast = compiled._stepper.fast
    monkeypatch.setattr(fast, "trees", lambda *given: asked.append(1) or fast.function(*given))
    for call in live(CASES["kf"], 3):
        assert_same_estimate(compiled.step(**call), plain.step(**call))
    assert len(asked) == 3


def test_c_is_for_a_batch_of_one_in_one_precision():
    one, two = torch.zeros(1, 2), torch.zeros(2, 2)
    for given in ([two], [one, one.double()], [one.int()]):
        with pytest.raises(ConfigError, match="batch of one"):
            Native(lambda *x: list(x), given)
    with pytest.raises(ConfigError, match="no C here"):
        Native(lambda x: [torch.special.bessel_j0(x)], [one])


@pytest.mark.slow  # minutes of compilation
def test_a_batch_of_streams_compiled_by_pytorch_equals_the_streams():
    calls = live(CASES["locally-linear"], 6)
    plain, compiled = (
        open_stream(CASES["locally-linear"], streams=2, gate=0.99, compiled=flag) for flag in (False, True)
    )
    for call in calls:
        both = {**call, "y": np.stack([call["y"], call["y"] + 0.1])}
        expected, estimate = plain.step(**both), compiled.step(**both)
        assert_close(estimate.mean, expected.mean, "export")
        assert_close(estimate.cov, expected.cov, "export")
        assert estimate.health == expected.health
