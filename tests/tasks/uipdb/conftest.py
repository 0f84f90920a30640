"""UIP-DB's test sessions for tests that need the recordings."""

from __future__ import annotations

import os

import pytest

from fwnkf.data.sets import catalogue, uipdb


@pytest.fixture(scope="session")
def hidden_ranges():
    """The quick test records of ``uipdb``: ranges, what is shown of them, and how many sessions there are."""
    if not os.environ.get("FWNKF_DATA") or not uipdb.find(catalogue.folder_of("uipdb")):
        pytest.skip("FWNKF_DATA names no folder with UIP-DB")
    from tasks.uipdb.ranges import HeldOutRanges

    data = HeldOutRanges().load(quick=True)
    return data.y, data.shown, len(data.names)
