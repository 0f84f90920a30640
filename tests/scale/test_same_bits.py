"""In batches of one size, an item's bits depend neither on its place nor on its companions, for every filter."""

from __future__ import annotations

import pytest
import torch

from ..conformance.cases import CASES
from ..conformance.test_conformance import make_inputs
from ..tolerances import assert_same_bits

SIZE = 16


@pytest.mark.parametrize("label", list(CASES))
def test_place_and_companions_change_no_bit(label):
    case = CASES[label]
    model = case.build(torch.float32)
    mine, others = (make_inputs(case, torch.float32, batch=SIZE, steps=5, seed=seed) for seed in (0, 1))
    order = torch.randperm(SIZE, generator=torch.Generator().manual_seed(2))

    def mixed(item, other):
        if item is None:
            return None
        whole = 3 * other if other.is_floating_point() else other.clone()
        whole[order[: SIZE // 2]] = item[: SIZE // 2]  # half of the items, at other places, among strangers
        return whole

    with torch.no_grad():
        alone = model.run(mine.y, mine.u, mine.mask, mine.dt)
        pairs = [mixed(item, other) for item, other in zip(mine, others, strict=True)]
        y, u, mask, dt = pairs
        among = model.run(y, u, mask, None if dt is None else dt.abs())
    chosen = order[: SIZE // 2]
    for name in ("mean", "cov", "innovation"):
        assert_same_bits(getattr(among, name)[chosen], getattr(alone, name)[: SIZE // 2])
