"""BROAD in an experiment: its records, and a training step by the command."""

from __future__ import annotations

import json
import os

import pytest

from fwnkf import cli
from tasks.broad.experiment import broad

pytestmark = pytest.mark.skipif("FWNKF_DATA" not in os.environ, reason="needs the recordings: set FWNKF_DATA")
FEW = {"window": 1200, "train": 8, "val": 4, "test": 4}


def test_a_filter_is_trained_on_windows_of_the_trials(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    whole = broad(window=1200).split
    assert whole.train.y.shape[1:] == (50, 6)
    assert whole.train.u.shape[1:] == (50, 3)
    error = whole.train.layout.boxminus(whole.train.start.mean, whole.train.truth[:, 0])
    ratio = error.square().mean() / whole.train.start.cov.diagonal().mean()
    assert abs(float(ratio) - 1) < 0.3  # the error of the initial attitude has the stated size
    experiment = {
        "name": "broad",
        "data": {"name": "broad", **FEW},
        "filter": {
            "name": "fwnkf",
            "equations": False,
            "options": {"encoder": {"units": 8}, "transition": {"rank": 1}, "phi": {"sections": 1}},
            "learned_system": {"observation": "learned_matrix"},
        },
        "trainer": {"steps": 1, "batch_size": 4, "loggers": []},
    }
    (tmp_path / "broad.yaml").write_text(json.dumps(experiment), encoding="utf-8")
    cli.main(["train", "broad.yaml", "--import", "tasks.broad", "--no-plots", "--json"])
    rows = {row["method"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert rows["broad"]["failures"] == 0
