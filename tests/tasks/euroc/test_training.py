"""Training from scratch on a few short windows: everything a card needs comes out of it."""

from __future__ import annotations

import os

import pytest
import torch

import fwnkf
from tasks import cards, results
from tasks.euroc import fitting, strict
from tasks.euroc.protocol import STRICT, TILTED, corrected_truth, euroc, recordings, with_corrected_truth
from tasks.euroc.strict import EurocStrict, StrictData

pytestmark = pytest.mark.skipif("FWNKF_DATA" not in os.environ, reason="needs the recordings: set FWNKF_DATA")


SECONDS = {1: 0.1, 5: 0.25, 10: 0.4}
"""Lengths of the windows that stand for those of the horizons: the time is that of their steps."""


class ShortWindows(EurocStrict):
    """Short windows, and few of them, from a part of each sequence in which it moves."""

    def __init__(self) -> None:
        whole = recordings(name for group in STRICT.values() for name in group)
        self.sequences = {name: sequence.slice(8000, 14_000) for name, sequence in whole.items()}
        self.corrected = corrected_truth(whole[TILTED])

    def load(self, *, quick: bool = False) -> StrictData:
        sequences, corrected = self.sequences, self.corrected
        data = StrictData(sequences, {}, {}, {}, {})
        for horizon in strict.HORIZONS[:1] if quick else strict.HORIZONS:
            split = euroc("strict", horizon=SECONDS[horizon], sequences=sequences).split
            parts = [records.take(torch.arange(0, len(records), round(12 / SECONDS[horizon]))) for records in split]
            data.train[horizon], data.val[horizon], data.test[horizon] = parts
            if corrected is not None and not quick:
                data.corrected[horizon] = with_corrected_truth(parts[2], corrected)
        return data


def test_training_gives_a_filter_and_all_results(tmp_path, monkeypatch):
    monkeypatch.setattr(strict, "RPE_FRAMES", 20)  # a window must hold a segment
    monkeypatch.setattr(fitting, "TILT_FACTORS", (1.0,))
    monkeypatch.setattr(fitting, "NOISE_FACTORS", (1.0,))
    task, messages = ShortWindows(), []
    folder = tmp_path / "euroc-strict"
    trained = task.train(folder, seeds=(3,), say=messages.append)
    results.write(folder, trained)
    read = results.read(folder)
    assert [seed.seed for seed in read.seeds] == [3]
    assert set(read.seeds[0].by_recording) == set(STRICT["test"])
    assert set(read.targets) <= set(read.metrics())
    assert "## Limits" in cards.card(task, read)
    data = task.load(quick=True)
    score = task.evaluate(fwnkf.load(folder), data)
    assert score.metrics == pytest.approx(read.quick, rel=1e-9)
    assert messages
    # the baselines built from the results are those of the training
    names = [name for name, _ in task.baselines(data, read)]
    assert names == list(read.baselines)
