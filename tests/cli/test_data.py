"""`fwnkf data`: list, info, fetch and verify, against a local server and small files."""

from __future__ import annotations

import dataclasses
import hashlib
import json

import numpy as np
import pytest

from fwnkf import cli
from fwnkf.data.sets import catalogue
from fwnkf.data.sets.catalogue import RemoteFile
from fwnkf.logs import open_log

from ..data import miniatures
from ..data.test_sources import no_proxy_and_no_pauses, serve, server  # noqa: F401  (fixtures)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("FWNKF_DATA", str(tmp_path))
    return tmp_path


def test_list_counts_the_local_recordings(home, capsys):
    miniatures.broad(home / "broad" / "24_disturbed_tapping_A.mat")
    assert cli.main(["data", "list", "--json"]) == 0
    rows = {row["name"]: row["recordings"] for row in json.loads(capsys.readouterr().out)}
    assert rows == {"broad": 1, "dido": 0, "euroc": 0, "uipdb": 0}
    assert cli.main(["data", "list"]) == 0
    assert "broad      1 local" in capsys.readouterr().out


def test_info_describes_a_data_set(capsys):
    assert cli.main(["data", "info", "broad"]) == 0
    assert "licence: CC BY 4.0" in capsys.readouterr().out
    assert cli.main(["data", "info", "kitti"]) == 1
    assert "unknown data set 'kitti'; available: broad" in capsys.readouterr().err


def test_fetch_downloads_and_verify_compares(home, server, monkeypatch, capsys):  # noqa: F811
    content = b"a trial"
    file = RemoteFile("01_a.mat", hashlib.sha256(content).hexdigest(), None, (f"{server.url}/a",))
    monkeypatch.setitem(catalogue._SETS, "broad", dataclasses.replace(catalogue.info("broad"), files=(file,)))
    assert cli.main(["data", "fetch", "broad"]) == 1
    assert "Manual download" in capsys.readouterr().err
    assert cli.main(["data", "verify", "broad"]) == 1
    assert capsys.readouterr().out.split() == ["missing", "01_a.mat"]
    server.paths["/a"] = serve(content)
    assert cli.main(["data", "fetch", "broad"]) == 0
    assert "100.0 % 01_a.mat" in capsys.readouterr().err
    assert cli.main(["data", "verify", "broad", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"path": "01_a.mat", "status": "ok"}]
    (home / "broad" / "01_a.mat").write_bytes(b"changed")
    assert cli.main(["data", "verify", "broad"]) == 1


def test_example_writes_a_flight_whose_line_is_where_it_says(tmp_path, capsys):
    path = tmp_path / "flight.csv"
    assert cli.main(["data", "example", str(path), "--seconds", "8", "--json"]) == 0
    (cause,) = json.loads(capsys.readouterr().out)["causes"]
    imu = open_log(path).signal("imu")
    spectrum = np.abs(np.fft.rfft(imu.columns["accel_z"] - imu.columns["accel_z"].mean())) ** 2
    frequencies = np.fft.rfftfreq(len(imu.time), np.diff(imu.time).mean())
    above = frequencies > 20  # the motion of the vehicle is slower
    assert frequencies[above][spectrum[above].argmax()] == pytest.approx(cause["frequency_hz"], rel=0.05)
    assert cli.main(["data", "example", str(path), "--cause", "gremlins"]) == 2
    assert "rotor_vibration" in capsys.readouterr().err
