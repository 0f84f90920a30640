"""Recordings of the public data sets, converted to MCAP; tests that use them are skipped without the data."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fwnkf.data.log_writing import write_mcap
from fwnkf.data.recording import Recording
from fwnkf.data.sets import broad, catalogue, dido

READERS = {"broad": broad.read, "dido": dido.read}


def read(data_set: str, start: str) -> Recording:
    """The first recording of a data set whose name begins with ``start``."""
    if not os.environ.get("FWNKF_DATA"):
        pytest.skip("FWNKF_DATA is not set")
    paths = catalogue.info(data_set).find(catalogue.folder_of(data_set))
    names = [name for name in paths if name.startswith(start)]
    if not names:
        pytest.skip(f"no recording {start} of {data_set}")
    return READERS[data_set](paths[names[0]])


def converted(recording: Recording, folder: Path) -> Path:
    """The recording as an MCAP file in a folder."""
    return write_mcap(recording, folder / f"{recording.source}.mcap")
