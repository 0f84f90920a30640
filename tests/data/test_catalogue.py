"""The catalogue: descriptions, folders, download from a local server, verification, and reading of miniatures."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from pathlib import Path

import pytest

from fwnkf.data.sets import catalogue
from fwnkf.data.sets.catalogue import RemoteFile
from fwnkf.errors import DataError, UnknownNameError

from . import miniatures
from .test_archives import zipped
from .test_sources import no_proxy_and_no_pauses, serve, server  # noqa: F401  (fixtures)


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("FWNKF_DATA", str(tmp_path))
    return tmp_path


def test_every_set_is_described():
    for name in catalogue.list_sets():
        data_set = catalogue.info(name)
        assert data_set.name == name
        for text in (data_set.title, data_set.description, data_set.licence, data_set.citation, data_set.manual):
            assert len(text) > 5
        assert data_set.homepage.startswith("https://")
        assert data_set.homepage in data_set.manual
        assert len({file.path for file in data_set.files}) == len(data_set.files)
        for file in data_set.files:
            assert re.fullmatch(r"|[0-9a-f]{8}|[0-9a-f]{64}", file.sha256)
            assert all(url.startswith("https://") for url in file.urls)
    assert len(catalogue.info("broad").files) == 39
    assert len(catalogue.info("euroc").files) == 22
    with pytest.raises(UnknownNameError, match="'kitti'; available: broad, dido, euroc, uipdb"):
        catalogue.info("kitti")


def test_where_data_live(home, monkeypatch):
    assert catalogue.data_folder() == home
    assert catalogue.folder_of("dido") == home / "dido"
    (home / "dido_test").mkdir()
    assert catalogue.folder_of("dido") == home / "dido_test"
    monkeypatch.delenv("FWNKF_DATA")
    monkeypatch.setenv("HOME", str(home))
    assert catalogue.data_folder() == home / ".cache" / "fwnkf"


def test_load_reads_what_is_there(home):
    with pytest.raises(DataError, match=r"contains no recording of EuRoC.*\n.*ETH Research Collection"):
        catalogue.load("euroc")
    miniatures.euroc(home / "euroc" / "MH_02_easy")
    miniatures.euroc(home / "euroc" / "vicon_room1" / "V1_01_easy")
    miniatures.broad(home / "broad" / "24_disturbed_tapping_A.mat")
    miniatures.dido(home / "dido" / "circle")
    miniatures.session(home / "uipdb" / "processed_04_session1_1.npz")
    miniatures.processed(home / "uipdb" / "test.pt")
    assert [recording.name for recording in catalogue.load("euroc")] == ["MH_02_easy", "V1_01_easy"]
    (bare,) = catalogue.load("euroc", sequences=["V1_01_easy"], truth="none")
    assert bare.truth is None
    assert [recording.name for recording in catalogue.load("broad")] == ["24_disturbed_tapping_A"]
    assert [recording.name for recording in catalogue.load("dido")] == ["circle"]
    assert [recording.name for recording in catalogue.load("uipdb")] == [
        "04_session1_1",
        "00_session1_0",
        "01_session1_1",
    ]
    with pytest.raises(DataError, match="no recording V1_02; available: MH_02_easy, V1_01_easy"):
        catalogue.load("euroc", sequences=["V1_02"])
    digests = {recording.digest for name in catalogue.list_sets() for recording in catalogue.load(name)}
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in digests)


@pytest.mark.parametrize("name", ["euroc", "dido", "uipdb"])
def test_data_sets_without_urls_have_instructions(home, name):
    with pytest.raises(DataError, match=r"(?s)cannot be downloaded automatically.*Manual download: .*Folder: "):
        catalogue.fetch(name)


def test_fetch_and_verify(home, server, monkeypatch):  # noqa: F811
    good, other = b"trial one", b"trial two"
    files = (
        RemoteFile("01_a.mat", hashlib.sha256(good).hexdigest(), None, (f"{server.url}/gone", f"{server.url}/one")),
        RemoteFile("02_b.mat", "", None, (f"{server.url}/two",)),
    )
    monkeypatch.setitem(catalogue._SETS, "broad", dataclasses.replace(catalogue.info("broad"), files=files))
    server.paths.update({"/one": serve(good), "/two": serve(other)})
    assert [report.status for report in catalogue.verify("broad")] == ["missing", "missing"]
    seen = []
    paths = catalogue.fetch("broad", progress=lambda *args: seen.append(args))
    assert paths == [home / "broad" / "01_a.mat", home / "broad" / "02_b.mat"]
    assert seen == [("01_a.mat", 9, 9), ("02_b.mat", 9, 9)]
    assert [report.status for report in catalogue.verify("broad")] == ["ok", "unchecked"]
    (home / "broad" / "01_a.mat").write_bytes(b"changed")
    assert catalogue.verify("broad")[0].status == "differs"
    server.paths.clear()
    with pytest.raises(DataError, match=r"(?s)01_a.mat could not be downloaded.*404.*Manual download: clone"):
        catalogue.fetch("broad")


def test_verify_accepts_the_first_digits_of_checksums_and_sizes(home, monkeypatch):
    data = b"x" * 10
    digest = hashlib.sha256(data).hexdigest()
    files = (RemoteFile("a", digest[:8], 10), RemoteFile("b", digest[:8], 11), RemoteFile("c", "0" * 8, 10))
    monkeypatch.setitem(catalogue._SETS, "uipdb", dataclasses.replace(catalogue.info("uipdb"), files=files))
    for name in "abc":
        (home / "uipdb").mkdir(exist_ok=True)
        (home / "uipdb" / name).write_bytes(data)
    assert [report.status for report in catalogue.verify("uipdb")] == ["ok", "differs", "differs"]


def test_the_archives_of_euroc_are_extracted_without_images(home):
    miniatures.euroc(home / "source" / "MH_09_easy")
    base = home / "source" / "MH_09_easy"
    inner = {str(p.relative_to(base)): p.read_bytes() for p in base.rglob("*.csv")}
    inner |= {"mav0/imu0/sensor.yaml": b"rate_hz: 200", "mav0/cam0/data/1.png": b"p", "mav0/cam0/data.csv": b"c"}
    archive = home / "machine_hall.zip"
    archive.write_bytes(zipped({"machine_hall/MH_09_easy/MH_09_easy.zip": zipped(inner), "machine_hall/x.bag": b"b"}))
    written = catalogue.unpack("euroc", archive)
    assert sorted(p.parent.name + "/" + p.name for p in written) == [
        "imu0/data.csv",
        "state_groundtruth_estimate0/data.csv",
    ]
    (recording,) = catalogue.load("euroc")
    assert recording.name == "MH_09_easy"
    assert len(recording) == 100
    archive.write_bytes(zipped({"readme": b"nothing"}))
    with pytest.raises(DataError, match="contains no recording"):
        catalogue.unpack("euroc", archive)
