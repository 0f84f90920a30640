"""Protocols: their records, invalid arguments, and the same bits for the same seed."""

from __future__ import annotations

import pytest
import torch

from fwnkf.core.tree import named_leaves
from fwnkf.data import protocols
from fwnkf.data.protocols import Protocol, Split
from fwnkf.errors import ConfigError, DataError

SMALL = {"train": 12, "val": 5, "test": 7}


def assert_same_records(a: protocols.Records, b: protocols.Records) -> None:
    for name in ("y", "truth", "mask", "dt", "u"):
        mine, theirs = getattr(a, name), getattr(b, name)
        assert (mine is None) == (theirs is None)
        if mine is not None:
            assert torch.equal(mine.nan_to_num(), theirs.nan_to_num())
    for (_, mine), (_, theirs) in zip(named_leaves(a.start), named_leaves(b.start), strict=True):
        assert torch.equal(mine, theirs)
    assert a.spans == b.spans


@pytest.mark.parametrize("protocol", ["paper", "strict"])
@pytest.mark.parametrize("system", ["lorenz", "pendulum"])
def test_two_builds_with_one_seed_are_bit_identical(system, protocol):
    first = protocols.simulated(system, protocol, seed=3, scenario="drift", **SMALL)
    second = protocols.simulated(system, protocol, seed=3, scenario="drift", **SMALL)
    other = protocols.simulated(system, protocol, seed=4, scenario="drift", **SMALL)
    for mine, theirs in zip(first.split, second.split, strict=True):
        assert_same_records(mine, theirs)
    assert not torch.equal(first.split.train.y, other.split.train.y)


def test_the_strict_test_set_is_the_same_for_every_seed():
    assert_same_records(*(protocols.simulated("lorenz", "strict", seed=s, **SMALL).split.test for s in (0, 1)))


def test_strict_splits_have_no_record_in_common():
    split = protocols.simulated("pendulum", "strict", **SMALL).split
    spans = [span for records in split for span in records.spans]
    assert len(spans) == sum(SMALL.values())
    assert not any(a.overlaps(b) for i, a in enumerate(spans) for b in spans[:i])


def test_strict_raises_if_splits_overlap():
    protocol = protocols.simulated("lorenz", "strict", **SMALL)
    leaky = Split(protocol.split.train, protocol.split.val, protocol.split.train.take([3]))
    with pytest.raises(DataError, match="share samples"):
        Protocol("strict", "lorenz", 0, leaky)
    Protocol("paper", "lorenz", 0, leaky)  # as the paper does


def test_paper_starts_from_the_true_state_and_strict_does_not():
    known = protocols.simulated("lorenz", "paper", **SMALL).split.test
    assert torch.equal(known.start.mean, known.truth[:, 0])
    assert not known.start.cov.any()
    unknown = protocols.simulated("lorenz", "strict", **SMALL).split.test
    assert torch.equal(unknown.start.cov, 25 * torch.eye(3, dtype=torch.float64))
    assert not bool(unknown.dt[:, 0].any())


def test_the_tone_frequency_is_that_of_the_disturbance():
    """The strongest spectral line of the disturbance is at the frequency of the protocol."""
    protocol = protocols.simulated("pendulum", "strict", scenario="tone", **SMALL)
    records = protocol.split.test
    disturbance = records.y - records.system.observe(records.truth)
    power = torch.fft.rfft(disturbance, dim=1).abs().square().sum(-1)
    peak = power[:, 1:].argmax(-1) + 1
    assert float((peak / (records.y.shape[1] / 2) - records.tone).abs().max()) <= 1 / (records.y.shape[1] / 2)
    taken = records.take([2, 0])
    assert torch.equal(taken.tone, records.tone[[2, 0]])


def test_unknown_names_list_the_known_ones():
    with pytest.raises(ConfigError, match="lorenz, pendulum"):
        protocols.load("kitti", "strict")
    with pytest.raises(ConfigError, match="'paper' and 'strict'"):
        protocols.load("lorenz", "fair")
