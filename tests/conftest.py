"""Before anything else: the shape checks, if they are wanted, and one thread."""

from __future__ import annotations

import os
from pathlib import Path

if os.environ.get("FWNKF_CHECK_SHAPES"):  # must come before the first import of fwnkf
    from jaxtyping import install_import_hook

    from . import checker  # the hook looks it up by name and does not import it

    assert checker.check
    install_import_hook("fwnkf", "tests.checker.check")

import numpy as np
import pytest
import torch

torch.set_num_threads(1)


CHECKED = {
    *("conformance", "core", "dynamics", "evaluation", "filters", "frames", "identify"),
    *("metrics", "oracles", "preprocess", "runtime", "training"),
}
"""Folders of what has shapes, whose tests run with the checks; those of files and commands run without."""
UNCHECKED = ("export", "process", "unchecked")
"""Markers of tests in these folders that cannot, or need not."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--others", action="store_true", help="the tests that a run with FWNKF_CHECK_SHAPES=1 leaves out")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """With the checks, other folders are not even imported: beartype cannot read all of their annotations."""
    below = collection_path.relative_to(Path(__file__).parent).parts
    return True if os.environ.get("FWNKF_CHECK_SHAPES") and below and below[0] not in CHECKED else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Two runs, one with shape checks and one without, have every test once: checks are no reason to run it twice.

    Of a parametrised test the first case has the checks, which make a filter two to three times as slow: shapes do not
    depend on values. Where they do, the marker ``every_case`` says so.
    """
    with_checks = bool(os.environ.get("FWNKF_CHECK_SHAPES"))
    if not with_checks and not config.getoption("--others"):
        return
    here, seen = Path(__file__).parent, set()

    def has_checks(item: pytest.Item) -> bool:
        if item.path.relative_to(here).parts[0] not in CHECKED or any(map(item.get_closest_marker, UNCHECKED)):
            return False
        test = item.nodeid.partition("[")[0]
        first = test not in seen
        seen.add(test)
        return first or item.get_closest_marker("every_case") is not None

    chosen = [has_checks(item) == with_checks for item in items]
    config.hook.pytest_deselected(items=[item for item, kept in zip(items, chosen, strict=True) if not kept])
    items[:] = [item for item, kept in zip(items, chosen, strict=True) if kept]


@pytest.fixture
def generator() -> torch.Generator:
    """Randomness for tensors, the same in every run and on every worker."""
    return torch.Generator().manual_seed(20240229)


@pytest.fixture
def rng() -> np.random.Generator:
    """Randomness for numpy, the same in every run and on every worker."""
    return np.random.default_rng(20240229)
