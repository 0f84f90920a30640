"""DIDO in an experiment: its records, and a training step by the command."""

from __future__ import annotations

import functools
import json
import os

import pytest
import torch

from fwnkf import cli
from tasks.dido import protocol
from tasks.dido.experiment import dido

pytestmark = pytest.mark.skipif("FWNKF_DATA" not in os.environ, reason="needs the recordings: set FWNKF_DATA")
FEW = {"window": 100, "train": 8, "val": 4, "test": 4}


def test_a_filter_is_trained_on_windows_of_the_flights(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(protocol, "flights", functools.cache(protocol.flights))  # the command reads them again
    split = dido(**FEW).split
    assert split.train.y.shape == (8, 100, 6)
    assert {span.source for span in split.train.spans}.isdisjoint(span.source for span in split.test.spans)
    spread = split.train.start.cov.diagonal().sqrt()
    assert torch.allclose(split.train.truth.flatten(0, 1).std(0), spread, rtol=1.0)  # of the size of what is known
    experiment = {
        "name": "dido",
        "data": {"name": "dido", **FEW},
        "filter": {
            "name": "fwnkf",
            "equations": False,
            "options": {"noise": {"part": "lines"}, "encoder": {"units": 8}, "transition": {"rank": 1}},
        },
        "trainer": {"steps": 1, "batch_size": 4, "loggers": []},
    }
    (tmp_path / "dido.yaml").write_text(json.dumps(experiment), encoding="utf-8")
    cli.main(["train", "dido.yaml", "--import", "tasks.dido", "--no-plots", "--json"])
    rows = {row["method"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert rows["dido"]["failures"] == 0
