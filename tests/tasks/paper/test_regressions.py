"""Regressions that filters with the same learned system share."""

from __future__ import annotations

import torch

from fwnkf.training.fit import prepare_filter
from fwnkf.training.setup import load_data
from tasks.paper import regressions
from tasks.paper.regressions import prepare
from tests.tasks.paper.test_stacked import LEARNED, experiment, parse_experiment

SYSTEM = {"equations": False, "learned_system": {"width": 4, "order": 2}}


def regressed(name: str, seed: int, **options):
    values = experiment(name, seed, 0.0, **options).as_dict()
    values["trainer"] |= {"pretrain": 6, "refine": 3}
    return parse_experiment(values, name)


def test_a_shared_regression_has_the_bits_of_an_own_one(tmp_path, monkeypatch):
    made = []

    def noted(one, records, say=lambda text: None, *, fresh=True):
        made.append(fresh)
        return prepare_filter(one, records, say, fresh=fresh)

    monkeypatch.setattr(regressions, "prepare_filter", noted)
    filters = [regressed("kalmannet", 3, **SYSTEM), regressed("recursive_kalmannet", 3, **SYSTEM)]
    other = regressed("kalmannet", 4, **SYSTEM)
    for one in (*filters, other):
        records = load_data(one).split.train
        own, shared = prepare_filter(one, records), prepare(one, records, tmp_path)
        assert all(torch.equal(value, shared.state_dict()[key]) for key, value in own.state_dict().items())
    assert made == [False, True, False, False, True], "the second filter regressed anew, or the other seed did not"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_filter_with_a_transition_of_its_own_is_regressed_by_itself(tmp_path):
    one = regressed("fwnkf", 3, **LEARNED)
    records = load_data(one).split.train
    own, found = prepare_filter(one, records), prepare(one, records, tmp_path)
    assert all(torch.equal(value, found.state_dict()[key]) for key, value in own.state_dict().items())
    assert not list(tmp_path.iterdir())
