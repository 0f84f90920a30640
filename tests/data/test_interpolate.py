"""Truth onto other stamps, against scipy's slerp and numpy's interpolation."""

from __future__ import annotations

import numpy as np
import torch
from scipy.spatial.transform import Rotation, Slerp

from fwnkf.core import rotation
from fwnkf.core.layout import Layout
from fwnkf.data._interpolate import continuous_signs, resample, slerp

from ..tolerances import assert_close, assert_same_bits

LAYOUT = Layout.parse([("p", "euclidean", 2), ("q", "quaternion", 4)])


def walk(rng: np.random.Generator, count: int) -> tuple[np.ndarray, torch.Tensor]:
    stamps = np.cumsum(rng.integers(1_000, 9_000, count))
    turns = Rotation.from_rotvec(np.cumsum(rng.normal(size=(count, 3)) * 0.4, 0))
    values = np.concatenate((rng.normal(size=(count, 2)), turns.as_quat()[:, [3, 0, 1, 2]]), -1)
    return stamps, torch.from_numpy(values)


def test_resample_agrees_with_scipy(rng):
    stamps, values = walk(rng, 50)
    wanted = np.unique(rng.integers(stamps[0], stamps[-1], 300))
    got, known = resample(stamps, values, LAYOUT, wanted, 10_000)
    assert bool(known.all())
    for column in range(2):
        assert_close(got[:, column], torch.from_numpy(np.interp(wanted, stamps, values[:, column])), "rounding")
    oracle = Slerp(stamps, Rotation.from_quat(values[:, [3, 4, 5, 2]].numpy()))(wanted).as_quat()[:, [3, 0, 1, 2]]
    apart = rotation.distance(got[:, 2:], torch.from_numpy(oracle))
    assert_close(apart, torch.zeros_like(apart), "algebra")


def test_stamps_that_agree_keep_every_bit(rng):
    stamps, values = walk(rng, 30)
    got, known = resample(stamps, values, LAYOUT, stamps.copy(), 1)
    assert bool(known.all())
    assert_same_bits(got, values)
    near, known = resample(stamps, values, LAYOUT, stamps + 3, 1, tolerance_ns=3)
    assert bool(known.all())  # the last lies outside, but within the tolerance
    assert_same_bits(near, values)


def test_nothing_is_made_up_across_gaps_or_beyond_the_ends(rng):
    stamps, values = walk(rng, 6)
    stamps = np.array([0, 10, 20, 100, 110, 120])
    values[4, 0] = torch.nan
    wanted = np.array([-1, 5, 50, 100, 105, 110, 115, 121])
    got, known = resample(stamps, values, LAYOUT, wanted, 20)
    assert known.tolist() == [False, True, False, True, False, False, False, False]
    assert bool(got[~known].isnan().all())


def test_signs_are_made_continuous_past_unknown_rows(rng):
    _, values = walk(rng, 40)
    q = continuous_signs(values[:, 2:], torch.ones(40, dtype=torch.bool))[0]
    flips = torch.ones(40, dtype=torch.float64)
    flips[[3, 4, 5, 11, 30]] = -1.0
    broken = q * flips[:, None]
    known = torch.ones(40, dtype=torch.bool)
    known[[8, 9, 10]] = False
    broken = torch.where(known[:, None], broken, torch.nan)
    mended, count = continuous_signs(broken, known)
    assert count == 6
    assert_same_bits(mended[known], q[known])


def test_slerp_takes_the_short_way():
    one = torch.tensor([[1.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    other = -rotation.exp(torch.tensor([[0.0, 0.0, 0.5]], dtype=torch.float64))
    half = slerp(one, other, torch.tensor([0.5], dtype=torch.float64))
    assert_close(half, rotation.exp(torch.tensor([[0.0, 0.0, 0.25]], dtype=torch.float64)), "rounding")
