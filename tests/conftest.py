"""Before anything else: the shape checks, if they are wanted, and one thread."""

from __future__ import annotations

import os

if os.environ.get("FWNKF_CHECK_SHAPES"):  # must come before the first import of fwnkf
    from jaxtyping import install_import_hook

    from . import checker  # the hook looks it up by name and does not import it

    assert checker.check
    install_import_hook("fwnkf", "tests.checker.check")

import numpy as np
import pytest
import torch

torch.set_num_threads(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--first-case", action="store_true", help="of a parametrised test, run the first case alone")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """For runs that ask whether code runs at all, such as those with shape checks, and not what it computes."""
    if not config.getoption("--first-case"):
        return
    seen: set[str] = set()
    first, others = [], []
    for item in items:
        test = item.nodeid.partition("[")[0]
        (others if test in seen else first).append(item)
        seen.add(test)
    items[:] = first
    config.hook.pytest_deselected(items=others)


@pytest.fixture
def generator() -> torch.Generator:
    """Randomness for tensors, the same in every run and on every worker."""
    return torch.Generator().manual_seed(20240229)


@pytest.fixture
def rng() -> np.random.Generator:
    """Randomness for numpy, the same in every run and on every worker."""
    return np.random.default_rng(20240229)
