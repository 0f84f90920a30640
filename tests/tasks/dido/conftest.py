"""DIDO's flights for tests that need the recordings."""

from __future__ import annotations

import os

import pytest

from fwnkf.data.sets import catalogue, dido


@pytest.fixture(scope="session")
def dido_recordings():
    """Folders of the flights by name; skips where the data set is not there."""
    if not os.environ.get("FWNKF_DATA") or not (folders := dido.find(catalogue.folder_of("dido"))):
        pytest.skip("FWNKF_DATA names no folder with DIDO")
    return folders


@pytest.fixture(scope="session")
def vibrating_imu(dido_recordings):
    """The quick test records of ``dido``: what the protocol gives every method, and the truth."""
    from tasks.dido.denoise import Denoise

    data = Denoise().load(quick=True)
    return data.y, data.truth


@pytest.fixture(scope="session")
def drone_imu(dido_recordings):
    """The quick test flight of ``dido-attitude``: raw IMU samples, and the true orientation at each."""
    from tasks.dido.attitude import Attitude

    (flight,) = Attitude().load(quick=True)
    return flight.imu, flight.orientation
