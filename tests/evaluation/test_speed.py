"""The rows of ``fwnkf bench speed``, without what takes minutes."""

from __future__ import annotations

import json

import torch

from fwnkf.cli.main import main
from fwnkf.evaluation import speed


def test_training_is_compared_with_a_gru_of_the_same_size(monkeypatch):
    monkeypatch.setattr(speed, "HIDDEN", 8)
    row = speed.training_row(rounds=1, batch=2, steps=3)
    assert row.ratio == row.value / row.bare
    assert row.limit == speed.TRAINING_LIMIT


def test_the_paper_has_two_layers_of_256():
    shapes = [tuple(cell.weight_hh.shape) for cell in speed.paper_size().encoder.cells]
    assert shapes == [(3 * 256, 256)] * 2


def test_rows_are_printed_as_json_and_a_limit_sets_the_exit_code(monkeypatch, capsys):
    threads = torch.get_num_threads()
    for name in ("memory_row", "training_row", "checkpoint_row"):
        monkeypatch.setattr(speed, name, lambda *_, name=name, **__: speed.SpeedRow(name, 0.5, 1.0, 1.0, 2.0))
    monkeypatch.setattr(speed, "stream_row", lambda batch, rounds: speed.SpeedRow(f"{batch}", rounds, 2.0, 1.0, 1.0))
    assert main(["bench", "speed", "--json", "--rounds", "3"]) == 1
    rows = json.loads(capsys.readouterr().out)
    assert [(row["case"], row["ratio"]) for row in rows[1:3]] == [("1", 3), ("32", 3)]
    assert main(["bench", "speed", "--rounds", "1"]) == 0
    assert torch.get_num_threads() == threads
