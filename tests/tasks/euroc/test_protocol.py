"""The two protocols of EuRoC: shared windows, disjoint flights, errors of the initial state, the corrected truth."""

from __future__ import annotations

import math
import os
from dataclasses import replace

import pytest
import torch

from fwnkf.core import rotation
from fwnkf.data.protocols import Protocol, Split
from fwnkf.errors import DataError
from tasks.euroc import protocol
from tasks.euroc.protocol import STRICT, TILTED, euroc

pytestmark = pytest.mark.skipif(not os.environ.get("FWNKF_DATA"), reason="needs the recordings: set FWNKF_DATA")


@pytest.fixture(scope="module")
def sequences():
    return protocol.recordings(name for group in STRICT.values() for name in group)


def test_paper_shares_nearly_every_test_window_with_training(sequences):
    """Which is why there is a strict protocol."""
    split = euroc("paper", sequences=sequences).split
    assert sum(len(records) for records in split) == 4628
    train = {}
    for span in split.train.spans:
        train.setdefault(span.source, []).append(span)
    shared = sum(any(span.overlaps(other) for other in train[span.source]) for span in split.test.spans)
    assert shared > 0.95 * len(split.test)


@pytest.mark.parametrize("horizon", [1.0, 5.0])
def test_strict_shares_none(sequences, horizon):
    split = euroc("strict", horizon=horizon, sequences=sequences).split
    train, val, test = ({span.source for span in records.spans} for records in split)
    assert not train & test
    assert not val & (train | test)
    assert abs(float(split.test.dt.sum(1).median()) - horizon) < 0.01
    error = split.test.layout.boxminus(split.test.start.mean, split.test.truth[:, 0])
    ratio = error.square().mean(0).sqrt() / split.test.start.cov.diagonal().sqrt()
    assert float((ratio - 1).abs().max()) < 0.35  # the error of the initial state has the stated size
    with pytest.raises(DataError, match="share samples"):
        Protocol("strict", "euroc", 0, Split(split.train, split.val, replace(split.train)))


def test_the_corrected_truth_has_another_vertical_and_the_same_initial_errors(sequences):
    corrected = protocol.corrected_truth(sequences[TILTED])
    if corrected is None:
        pytest.skip("the corrected pose of V1_01 is not there")
    test = euroc("strict", horizon=5.0, sequences=sequences).split.test
    official = test.take(protocol.by_source(test)[TILTED])
    records = protocol.with_corrected_truth(test, corrected)
    assert torch.equal(records.y, official.y)
    angle = protocol.vertical_difference(sequences[TILTED], corrected)
    assert 2.0 < angle["mean"] < 2.8
    up = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    vertical = [rotation.to_matrix(one.truth[..., 6:]).mT @ up for one in (official, records)]
    cosine = (vertical[0] * vertical[1]).sum(-1).mean()  # over the windows, which leave out the last seconds
    assert math.degrees(math.acos(float(cosine))) == pytest.approx(angle["mean"], abs=0.1)
    assert float((official.truth[..., 3:6].norm(dim=-1) - records.truth[..., 3:6].norm(dim=-1)).abs().median()) < 0.02
    errors = [one.layout.boxminus(one.start.mean, one.truth[:, 0]) for one in (official, records)]
    assert float((errors[0] - errors[1]).abs().max()) < 1e-9
