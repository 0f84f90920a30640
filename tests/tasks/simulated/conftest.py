"""Records of a few steps, for tests of what is done with the figures and not of the figures."""

from __future__ import annotations

import pytest

from fwnkf.data import loaders

from ..cut import cut


@pytest.fixture
def short_records(monkeypatch) -> None:
    """Experiments of the test load the first 30 of the 100 steps of all records: filters take their time by step."""
    load = loaders.load
    monkeypatch.setattr(loaders, "load", lambda *words, **options: cut(load(*words, **options), 30))
