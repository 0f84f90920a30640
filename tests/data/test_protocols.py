"""Protocols: what they hand out, what they refuse, and that the same seed gives the same bits."""

from __future__ import annotations

import os

import pytest
import torch

from fwnkf.core.tree import named_leaves
from fwnkf.data import protocols
from fwnkf.data.protocols import Protocol, Split
from fwnkf.errors import ConfigError, DataError

SMALL = {"train": 12, "val": 5, "test": 7}


def assert_same_task(a: protocols.Records, b: protocols.Records) -> None:
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
        assert_same_task(mine, theirs)
    assert not torch.equal(first.split.train.y, other.split.train.y)


def test_the_strict_test_set_is_the_same_for_every_seed():
    assert_same_task(*(protocols.simulated("lorenz", "strict", seed=s, **SMALL).split.test for s in (0, 1)))


def test_no_strict_split_shares_a_record():
    split = protocols.simulated("pendulum", "strict", **SMALL).split
    spans = [span for task in split for span in task.spans]
    assert len(spans) == sum(SMALL.values())
    assert not any(a.overlaps(b) for i, a in enumerate(spans) for b in spans[:i])


def test_strict_refuses_to_be_built_with_overlap():
    made = protocols.simulated("lorenz", "strict", **SMALL)
    leaky = Split(made.split.train, made.split.val, made.split.train.take([3]))
    with pytest.raises(DataError, match="share samples"):
        Protocol("strict", "lorenz", 0, leaky)
    Protocol("paper", "lorenz", 0, leaky)  # which the paper does


def test_paper_gives_the_initial_state_and_strict_does_not():
    given = protocols.simulated("lorenz", "paper", **SMALL).split.test
    assert torch.equal(given.start.mean, given.truth[:, 0])
    assert not given.start.cov.any()
    unknown = protocols.simulated("lorenz", "strict", **SMALL).split.test
    assert torch.equal(unknown.start.cov, 25 * torch.eye(3, dtype=torch.float64))
    assert not bool(unknown.dt[:, 0].any())


def test_the_tone_is_told_as_it_was_drawn():
    """The strongest line of the disturbance itself lies where the protocol says."""
    made = protocols.simulated("pendulum", "strict", scenario="tone", **SMALL)
    task = made.split.test
    disturbance = task.y - task.system.observe(task.truth)
    power = torch.fft.rfft(disturbance, dim=1).abs().square().sum(-1)
    found = power[:, 1:].argmax(-1) + 1
    assert float((found / (task.y.shape[1] / 2) - task.tone).abs().max()) <= 1 / (task.y.shape[1] / 2)
    taken = task.take([2, 0])
    assert torch.equal(taken.tone, task.tone[[2, 0]])


def test_unknown_names_say_what_there_is():
    with pytest.raises(ConfigError, match="lorenz, pendulum"):
        protocols.load("kitti", "strict")
    if not os.environ.get("FWNKF_CHECK_SHAPES"):  # the type checker refuses it first
        with pytest.raises(ConfigError, match="'paper' and 'strict'"):
            protocols.load("lorenz", "honest")
