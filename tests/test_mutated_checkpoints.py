"""A thousand mutated checkpoints: each is refused by an error of the package, within a second and 200 MB."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import fwnkf
from fwnkf.core.budget import Budget, BudgetExceededError

from .conformance.cases import CASES

ROOT = Path(__file__).parents[1]
COUNT = 1100
"""Some mutations are harmless (an option without effect, the tensors of a filter of the same form); 1,000 are not."""


@pytest.mark.process
def test_mutated_checkpoints_are_refused_within_a_second_and_200_megabytes(tmp_path):
    for name, case in CASES.items():
        fwnkf.save(case.build(torch.float64), tmp_path / "sources" / name)
    sources = [*sorted((tmp_path / "sources").iterdir()), *sorted(path for path in (ROOT / "models").iterdir())]
    command = [sys.executable, "-m", "tests.mutated_checkpoints", str(COUNT), str(tmp_path), *map(str, sources)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-2000:]  # any other exception than those of the package
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(reports) == COUNT
    assert max(report["seconds"] for report in reports) < 1
    assert max(report["megabytes"] for report in reports) < 200
    assert sum(report["outcome"] != "loaded" for report in reports) >= 1000


def test_the_budget_counts_what_a_constructor_allocates():
    with Budget(10**9, 10**4) as budget:
        network = torch.nn.GRU(64, 256, 3)
    allocated = sum(tensor.numel() for tensor in network.state_dict().values()) * 4
    assert allocated <= budget.bytes < 10 * allocated


@pytest.mark.parametrize(
    "allocate",
    [
        lambda: torch.eye(10**9),
        lambda: torch.zeros(10**6, 10**6),
        lambda: torch.full((10**5, 10**5), 1.0),
        lambda: torch.zeros(2).new_zeros(10**12),
        lambda: torch.arange(10**15),
        lambda: torch.ones(10**5).diag(),
        lambda: torch.zeros(1).expand(10**12).clone(),
        lambda: torch.ones(10, 10).repeat(10**6, 10**6),
        lambda: torch.nn.Linear(10**6, 10**6),
        lambda: [torch.nn.Linear(2, 2) for _ in range(10**9)],
    ],
)
def test_the_budget_stops_before_memory_is_allocated(allocate):
    with pytest.raises(BudgetExceededError), Budget(10**8, 1000):
        allocate()
