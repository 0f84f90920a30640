"""The runtime table: its rows, what it counts and times, and where the published numbers of parameters come from."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import nn

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


def test_rows_have_counts_times_and_ratios_of_the_same_run(monkeypatch):
    monkeypatch.setattr(runtime, "STEPS", 3)
    threads = torch.get_num_threads()
    rows = {row.filter: row for row in runtime.measure_runtime(rounds=1, compiled=False)}
    assert torch.get_num_threads() == threads
    assert set(rows) == {row["recipe"] for row in published.rows("runtime")}
    for row in rows.values():
        assert row.ms > 0
        assert row.gru_ms > 0
        assert row.ratio == pytest.approx(row.ms / row.gru_ms)
        assert (row.compiled_ms, row.compiled_ratio) == (None, None)
    assert (rows["fwnkf"].width, rows["fwnkf"].layers) == (256, 2)
    # F, H, and the free entries of symmetric Q and R, where the paper counts full matrices
    assert rows["kf"].parameters == 9 + 6 + 6 + 3
    assert rows["arkf"].parameters == 3 * 9 + 6 + 6 + 3
