"""The rows of ``fwnkf bench speed``, without what takes minutes."""

from __future__ import annotations

import json
import time

import torch

from fwnkf.cli.main import main
from fwnkf.evaluation import speed


def test_training_is_compared_with_a_gru_of_the_same_size(monkeypatch):
    """Both passes run with the same number of layers, units and steps; the ratio is that of their times."""
    seen = {"bare": 0, "ours": 0}
    grus, model = [], speed.paper_size()
    plain = torch.nn.GRU

    class CountedGRU(plain):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            grus.append(self)

        def forward(self, *arguments):
            seen["bare"] += 1
            return super().forward(*arguments)

    def advance(*arguments, **options):
        seen["ours"] += 1
        return type(model).advance(model, *arguments, **options)

    def timed(candidates, rounds, clock):
        for candidate in candidates.values():
            candidate()
        assert clock is time.process_time
        return {"bare": 2.0 * rounds, "ours": 3.0 * rounds}

    monkeypatch.setattr(torch.nn, "GRU", CountedGRU)
    monkeypatch.setattr(speed, "paper_size", lambda: model)
    monkeypatch.setattr(speed, "_compiled_advance", lambda _: advance)
    monkeypatch.setattr(speed, "interleave", timed)
    row = speed.training_row(rounds=4, batch=2, steps=3, compiled=True)
    assert (row.ratio, row.value, row.bare) == (1.5, 12.0, 8.0)
    assert seen == {"bare": 3, "ours": 3}
    (gru,) = grus
    layers = [getattr(gru, f"weight_hh_l{layer}").shape for layer in range(gru.num_layers)]
    assert [cell.weight_hh.shape for cell in model.encoder.cells] == layers
    for trained in (gru, model):
        assert any(weight.grad is not None and weight.grad.any() for weight in trained.parameters())  # ran backward


def test_rows_are_printed_as_json_and_a_limit_sets_the_exit_code(monkeypatch, capsys):
    before, threads = torch.get_num_threads(), []

    def row(name, ratio):
        threads.append(torch.get_num_threads())
        return speed.SpeedRow(name, ratio, 2.0, 1.0, 2.0)

    for name in ("memory_row", "training_row", "checkpoint_row"):
        monkeypatch.setattr(speed, name, lambda *_, name=name, **__: row(name, 0.5))
    monkeypatch.setattr(speed, "stream_row", lambda batch, rounds: row(f"{batch}", rounds))
    torch.set_num_threads(before + 1)
    try:
        assert main(["bench", "speed", "--json", "--rounds", "3"]) == 1
        rows = json.loads(capsys.readouterr().out)
        streams = [(str(batch), 3) for batch in speed.STREAM_LIMITS]
        others = [("training_row", 0.5)] * 2 + [("checkpoint_row", 0.5)] * 2
        assert [(row["case"], row["ratio"]) for row in rows] == [("memory_row", 0.5), *streams, *others]
        assert set(threads) == {1}
        assert torch.get_num_threads() == before + 1
        assert main(["bench", "speed", "--rounds", "1"]) == 0
    finally:
        torch.set_num_threads(before)
