"""The catalogue: facts, folders, fetching from a server of our own, verifying and loading miniatures."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from pathlib import Path

import pytest

import fwnkf.data
from fwnkf.data import catalogue
from fwnkf.data.catalogue import RemoteFile
from fwnkf.errors import DataError, UnknownNameError

from . import miniatures
from .test_archives import zipped
from .test_sources import Server, no_proxy, serve, server  # noqa: F401  (fixtures)


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("FWNKF_DATA", str(tmp_path))
    return tmp_path


def test_every_set_is_described():
    for name in catalogue.list_sets():
        known = catalogue.info(name)
        assert known.name == name
        for text in (known.title, known.description, known.licence, known.citation, known.manual):
            assert len(text) > 5
        assert known.homepage.startswith("https://")
        assert known.homepage in known.manual
        assert len({file.path for file in known.files}) == len(known.files)
        for file in known.files:
            assert re.fullmatch(r"|[0-9a-f]{8}|[0-9a-f]{64}", file.sha256)
            assert all(url.startswith("https://") for url in file.urls)
    assert len(catalogue.info("broad").files) == 39
    assert len(catalogue.info("euroc").files) == 22
    with pytest.raises(UnknownNameError, match="'kitti'; there are: broad, dido, euroc, uipdb"):
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
    with pytest.raises(DataError, match=r"holds no sequence of EuRoC.*\n.*ETH Research Collection"):
        catalogue.load("euroc")
    miniatures.euroc(home / "euroc" / "MH_02_easy")
    miniatures.euroc(home / "euroc" / "vicon_room1" / "V1_01_easy")
    miniatures.broad(home / "broad" / "24_disturbed_tapping_A.mat")
    miniatures.dido(home / "dido" / "circle")
    miniatures.session(home / "uipdb" / "processed_04_session1_1.npz")
    miniatures.processed(home / "uipdb" / "test.pt")
    assert [sequence.name for sequence in catalogue.load("euroc")] == ["MH_02_easy", "V1_01_easy"]
    (bare,) = catalogue.load("euroc", sequences=["V1_01_easy"], truth="none")
    assert bare.truth is None
    assert [sequence.name for sequence in catalogue.load("broad")] == ["24_disturbed_tapping_A"]
    assert [sequence.name for sequence in catalogue.load("dido")] == ["circle"]
    assert [s.name for s in catalogue.load("uipdb")] == ["04_session1_1", "00_session1_0", "01_session1_1"]
    with pytest.raises(DataError, match="no sequence V1_02; there are: MH_02_easy, V1_01_easy"):
        catalogue.load("euroc", sequences=["V1_02"])
    digests = {sequence.digest for name in catalogue.list_sets() for sequence in catalogue.load(name)}
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in digests)


@pytest.mark.parametrize("name", ["euroc", "dido", "uipdb"])
def test_what_cannot_be_fetched_says_how_to_get_it(home, name):
    with pytest.raises(DataError, match=r"(?s)cannot be fetched automatically.*By hand: .*Folder: "):
        catalogue.fetch(name)


def test_fetch_and_verify(home, server, monkeypatch):  # noqa: F811
    good, other = b"trial one", b"trial two"
    files = (
        RemoteFile("01_a.mat", hashlib.sha256(good).hexdigest(), None, (f"{server.url}/gone", f"{server.url}/one")),
        RemoteFile("02_b.mat", "", None, (f"{server.url}/two",)),
    )
    known = dataclasses.replace(catalogue.info("broad"), files=files)
    monkeypatch.setitem(catalogue._SETS, "broad", known)
    server.paths.update({"/one": serve(good), "/two": serve(other)})
    assert [report.status for report in catalogue.verify("broad")] == ["missing", "missing"]
    seen = []
    paths = catalogue.fetch("broad", files=["01_a"], progress=lambda *args: seen.append(args))
    assert paths == [home / "broad" / "01_a.mat"]
    assert seen == [("01_a.mat", 9, 9)]
    catalogue.fetch("broad")
    assert [report.status for report in catalogue.verify("broad")] == ["ok", "unchecked"]
    (home / "broad" / "01_a.mat").write_bytes(b"changed")
    assert catalogue.verify("broad")[0].status == "differs"
    with pytest.raises(UnknownNameError, match="no file called 77_x"):
        catalogue.fetch("broad", files=["77_x.mat"])
    server.paths.clear()
    with pytest.raises(DataError, match=r"(?s)01_a.mat could not be fetched.*404.*clone or download"):
        catalogue.fetch("broad", pause=0)


def test_verify_knows_beginnings_of_checksums_and_sizes(home, monkeypatch):
    data = b"x" * 10
    digest = hashlib.sha256(data).hexdigest()
    files = (RemoteFile("a", digest[:8], 10), RemoteFile("b", digest[:8], 11), RemoteFile("c", "0" * 8, 10))
    monkeypatch.setitem(catalogue._SETS, "uipdb", dataclasses.replace(catalogue.info("uipdb"), files=files))
    for name in "abc":
        (home / "uipdb").mkdir(exist_ok=True)
        (home / "uipdb" / name).write_bytes(data)
    assert [report.status for report in catalogue.verify("uipdb")] == ["ok", "differs", "differs"]


def test_the_archives_of_euroc_are_unpacked_without_images(home):
    miniatures.euroc(home / "made" / "MH_09_easy")
    base = home / "made" / "MH_09_easy"
    inner = {str(p.relative_to(base)): p.read_bytes() for p in base.rglob("*.csv")}
    inner |= {"mav0/imu0/sensor.yaml": b"rate_hz: 200", "mav0/cam0/data/1.png": b"p", "mav0/cam0/data.csv": b"c"}
    archive = home / "machine_hall.zip"
    archive.write_bytes(zipped({"machine_hall/MH_09_easy/MH_09_easy.zip": zipped(inner), "machine_hall/x.bag": b"b"}))
    written = catalogue.unpack("euroc", archive)
    assert sorted(p.parent.name + "/" + p.name for p in written) == [
        "imu0/data.csv",
        "imu0/sensor.yaml",
        "state_groundtruth_estimate0/data.csv",
    ]
    (sequence,) = catalogue.load("euroc")
    assert sequence.name == "MH_09_easy"
    assert len(sequence) == 100
    archive.write_bytes(zipped({"readme": b"nothing"}))
    with pytest.raises(DataError, match="holds no recording"):
        catalogue.unpack("euroc", archive)


def test_no_pickle_is_ever_loaded_here():
    """The rule of the package, for this part of it: nothing that could run what a file contains."""
    folder = Path(fwnkf.data.__file__).parent
    forbidden = re.compile(r"\bimport pickle\b|\bpickle\.|torch\.load|allow_pickle=True|\beval\(|\bexec\(|\bmarshal\b")
    for path in folder.glob("*.py"):
        assert not forbidden.search(path.read_text()), path
