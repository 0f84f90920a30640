"""The search on a known valley, closed forms on simulated trials, and a small training from start to end."""

from __future__ import annotations

import math

import pytest
import torch

import fwnkf
from fwnkf.core import rotation
from tasks.broad import base
from tasks.broad.filters import tilt_filter
from tasks.broad.inclination import Inclination
from tasks.broad.orientation import Orientation, numbers_of
from tasks.broad.search import Budget, Practice, Space, calibrations, path_delay, search
from tasks.broad.trials import TEST, TRAIN
from tests.hand import FIELD


def quiet(text: str) -> None:
    pass


def test_the_search_finds_a_valley_and_leaves_out_what_it_says():
    asked: list[list[float]] = []

    def evaluate(candidates: list[dict[str, float]]) -> torch.Tensor:
        asked.append([numbers["known"] for numbers in candidates])
        off = torch.tensor([math.log(numbers["a"] / 2) ** 2 for numbers in candidates])
        return torch.stack((1 + off, 2 + off, 3 + off), -1)

    space = Space({"a": 1.5}, lambda some: {"known": float(len(some))}, evaluate, [[0], [1], [2]])
    learned = search(space, 0, quiet, Budget(20, (0.5, 0.2)))
    assert learned.numbers["a"] == pytest.approx(2, rel=0.1)
    assert asked[-1] == [2.0, 2.0, 2.0]  # each without one of the three
    assert learned.left_out == pytest.approx([1, 2, 3], rel=0.02)


def test_a_late_path_has_its_delay(simulated_trial):
    trial = simulated_trial(seconds=20.0)
    late = rotation.extrapolate(trial.truth, trial.observations[:, :3], -0.01)
    assert path_delay(late, trial) == pytest.approx(0.01, rel=0.01)


def test_field_and_delay_are_those_of_the_recording(simulated_trial):
    trials = [simulated_trial(seconds=seconds, magnetometer_delay=0.015) for seconds in (40.0, 30.0)]
    practice = Practice.of(trials)
    turn = rotation.exp(torch.tensor([0.0, 0.0, 0.5]).double())
    length = practice.samples.shape[1]
    paths = [torch.cat((trial.truth, trial.truth[-1:].expand(length - len(trial), -1))) for trial in trials]
    fits = calibrations(practice, rotation.multiply(turn, torch.stack(paths)), {})
    assert set(fits) == {(0, 1), (1,), (0,)}
    for fit in fits.values():
        assert fit["delay"] == pytest.approx(0.015, rel=0.02)
        assert fit["field"] == pytest.approx(FIELD.tolist(), abs=0.1)


def test_a_small_training_from_start_to_end(simulated_trial, monkeypatch, tmp_path):
    """Search, save, evaluate: the saved filter alone gives the figures that all seeds got in one batch."""
    pytest.importorskip("vqf")
    pytest.importorskip("ahrs")

    def short(names, blocks=None, folder=None):
        seconds = {TRAIN: 5.0, TEST: 5.5}[tuple(names)]
        return [simulated_trial(f"{name}_simulated", seconds, magnetometer_delay=0.01) for name in names]

    monkeypatch.setattr(base, "trials", short)
    for task in (Inclination(), Orientation()):
        monkeypatch.setattr(type(task), "budget", Budget(2, (0.1,), best=1))
        folder = tmp_path / task.name
        results = task.train(folder, seeds=(3, 4), say=quiet)
        assert [seed.seed for seed in results.seeds] == [3, 4]
        assert results.targets == {task.metric: results.baselines["VQF"].metrics[task.metric]}
        assert set(results.by_recording()) == set(TEST)
        score = task.evaluate(fwnkf.load(folder), task.load())
        assert score.metrics == pytest.approx(results.seeds[0].metrics, rel=1e-5)
        assert score.metrics[task.metric] < 2.0
        assert task.about(results)
        ours = [name for name in results.baselines if name.startswith("ours")]
        assert not set(ours) & set(task.report_baselines(results))


def test_the_numbers_of_a_tilt_filter_make_it_again():
    numbers = {"delay": 0.002, "drift_std": 0.3}
    again = numbers_of(tilt_filter(numbers, 100.0))
    assert numbers.items() <= again.items()
    assert numbers_of(tilt_filter(again, 100.0)) == again
