"""The runtime table: its rows, what it counts and times, and where the published numbers of parameters come from."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import nn

import fwnkf
from fwnkf.systems import LearnedSystem
from tasks.paper import published, runtime


def size(*modules):
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


def network(*widths):
    return nn.Sequential(*(nn.Linear(a, b) for a, b in pairwise(widths)))


def test_published_parameters_are_those_of_the_layers_in_the_papers_public_code():
    """Counted from the defaults of its constructors (``models/*.py``) for three states and two measurements."""
    n, m = runtime.STATES, runtime.CHANNELS
    transition, emission = network(n, 32, 32, n), network(n, 32, 32, m)  # given to KalmanNet and its Bayesian form
    heads = network(256, 2 * 4 * n + n + n + 2 * n + m + m)  # U, V, b, and diagonal and factor of Q and of R
    kalmannet = (
        *(nn.GRU(5 * n, n * n), nn.GRU(n * n + 5 * n, n * n), nn.GRU(m * m + 10 * m, m * m)),
        *(network(n * n, m * m), network(n * n + m * m, 40 * (n * n + m * m), n * m), network(m * m + n * m, n * n)),
        *(network(2 * n * n, n * n), network(n, 5 * n), network(n, 5 * n), network(2 * m, 10 * m)),
    )
    gain = (network(13, 26, 26), nn.GRU(26, 12), network(12, 24, n * m))
    factor = (network(19, 38, 38), nn.GRU(38, 6), network(6, 6, 3))
    latent = (network(m, 128, 64, 20), network(15, 60, 15), network(15, 10), network(15, 64, 128, n))
    counts = {
        "fwnkf": size(nn.GRU(n + m, 256, 2), heads) + 4 + 3,
        "kalmannet": size(transition, emission, *kalmannet),
        "bayesian_kalmannet": size(transition, emission, network(n + m, 130), nn.GRU(130, 130), network(130, n * m)),
        "recursive_kalmannet": size(emission, *gain, *factor),
        "rkn": size(*latent) + 15 * 15 * 15 + 15 * 3 + 15 + 10 * 3 + 10 + 15 + 15 * 15,
        "kf": n * n + m * n + n * n + m * m,
        "arkf": size(network(n, n), network(n, m)) + n * n + m * m + 3 * n * n + 1,
    }
    assert counts == {row["recipe"]: row["parameters"].value for row in published.rows("runtime")}
    assert size(fwnkf.FWNKF.paper(LearnedSystem.of(torch.eye(m, n)), variant="public_code")) == counts["fwnkf"]


def test_rows_have_counts_times_and_ratios_of_the_same_run(monkeypatch):
    steps, before = 3, torch.get_num_threads()
    monkeypatch.setattr(runtime, "STEPS", steps)
    calls, ran = [], {}
    forward = nn.GRUCell.forward
    monkeypatch.setattr(nn.GRUCell, "forward", lambda cell, *inputs: calls.append(cell) or forward(cell, *inputs))

    def timed(candidates, rounds):
        """Runs each candidate once; the seconds are made up, a different number for each."""
        for name, candidate in candidates.items():
            calls.clear()
            candidate()
            ran[name] = (torch.get_num_threads(), [cell.hidden_size for cell in calls])
        return {name: 1e-3 * steps * rounds * (3 + 2 * place) for place, name in enumerate(candidates)}

    monkeypatch.setattr(runtime, "interleave", timed)
    torch.set_num_threads(before + 1)
    try:
        rows = runtime.measure_runtime(rounds=1, compiled=False)
        assert torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)
    assert [row.filter for row in rows] == [name for name in ran if not name.endswith(" gru")]
    for place, row in enumerate(rows):
        gru, ours = 3 + 4 * place, 5 + 4 * place
        assert (row.gru_ms, row.ms, row.ratio) == pytest.approx((gru, ours, ours / gru))
        assert (row.compiled_ms, row.compiled_ratio) == (None, None)
        assert ran[f"{row.filter} gru"] == (1, [row.width] * row.layers * steps)
        assert ran[row.filter][0] == 1
    by_name = {row.filter: row for row in rows}
    assert set(by_name) == {row["recipe"] for row in published.rows("runtime")}
    assert ran["fwnkf gru"][1] == [256, 256] * steps
    # F, H, and the free entries of symmetric Q and R, where the paper counts full matrices
    assert by_name["kf"].parameters == 9 + 6 + 6 + 3
    assert by_name["arkf"].parameters == 3 * 9 + 6 + 6 + 3
