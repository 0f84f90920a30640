"""Unpacking: what is good comes out, and nothing gets outside, grows without bound or hangs."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from fwnkf.data.archives import extract
from fwnkf.errors import DataError

FILES = {"a/one.txt": b"one", "a/b/two.txt": b"two" * 1000, "three.txt": b""}


def zipped(files: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def tarred(files: dict[str, bytes], form: int = tarfile.PAX_FORMAT, *more: tarfile.TarInfo) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for info in more:
            archive.addfile(info)
    return out.getvalue()


def everything_below(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture
def room(tmp_path):
    """A folder to unpack into, with something beside it that must stay as it is."""
    (tmp_path / "room").mkdir()
    (tmp_path / "beside.txt").write_text("mine")
    return tmp_path / "room" / "target"


def unpack(data: bytes, room: Path, **options) -> dict[str, bytes]:
    source = room.parent.parent / "archive"
    source.write_bytes(data)
    try:
        written = extract(source, room, **options)
    finally:  # whatever happens, nothing outside the target changes and nothing is left over
        assert {p.name for p in room.parent.parent.iterdir()} == {"room", "beside.txt", "archive"}
        assert {p.name for p in room.parent.iterdir()} <= {"target"}
        assert not any(p.name.startswith(".unpacking") for p in room.rglob("*"))
    assert sorted(str(p.relative_to(room)) for p in written) == sorted(everything_below(room))
    return everything_below(room)


@pytest.mark.parametrize(
    "data",
    [
        zipped(FILES),
        zipped(FILES, zipfile.ZIP_STORED),
        zipped(FILES, zipfile.ZIP_LZMA),
        tarred(FILES),
        tarred(FILES, tarfile.GNU_FORMAT),
        tarred(FILES, tarfile.USTAR_FORMAT),
        gzip.compress(tarred(FILES)),
        bz2.compress(tarred(FILES)),
        lzma.compress(tarred(FILES)),
    ],
    ids=["zip", "stored", "lzma", "pax", "gnu", "ustar", "gz", "bz2", "xz"],
)
def test_every_kind_comes_out(room, data):
    assert unpack(data, room) == FILES


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_long_names_in_tar(room, form):
    files = {"/".join(["folder" * 10] * 3) + "/ä long name.csv": b"x", "short": b"y"}
    assert unpack(tarred(files, form), room) == files


def test_only_what_is_wanted(room):
    assert unpack(zipped(FILES), room, wanted=lambda path: path.endswith("two.txt")) == {
        "a/b/two.txt": FILES["a/b/two.txt"]
    }


def test_archives_inside_archives(room):
    inner = zipped({"mav0/imu0/data.csv": b"1,2", "mav0/cam0/image.png": b"x"})
    outer = zipped({"machine_hall/MH_09/MH_09.zip": inner, "machine_hall/MH_09/MH_09.bag": b"bag", "notes.txt": b"n"})
    got = unpack(outer, room, nested=1, wanted=lambda path: path.endswith("data.csv"))
    assert got == {"machine_hall/MH_09/mav0/imu0/data.csv": b"1,2"}


def test_deeper_archives_stay_files(room):
    innermost = zipped({"x.txt": b"x"})
    middle = gzip.compress(tarred({"deep/c.zip": innermost}))
    outer = zipped({"b.tar.gz": middle})
    assert unpack(outer, room, nested=1) == {"deep/c.zip": innermost}


def test_two_levels(room):
    outer = zipped({"b.tar.gz": gzip.compress(tarred({"deep/c.zip": zipped({"x.txt": b"x"})}))})
    assert unpack(outer, room, nested=2) == {"deep/x.txt": b"x"}


ESCAPES = ["../out.txt", "a/../../out.txt", "/tmp/fwnkf-out.txt", "..\\out.txt", "C:\\out.txt", "C:out.txt"]


@pytest.mark.parametrize("name", [*ESCAPES, "x" * 300, "y/" * 600 + "z", ".."])
@pytest.mark.parametrize("make", [zipped, tarred])
def test_no_path_leads_outside(room, name, make):
    with pytest.raises(DataError, match="may lead outside"):
        unpack(make({"good.txt": b"g", name: b"bad"}), room)
    assert everything_below(room) == {}
    assert not Path("/tmp/fwnkf-out.txt").exists()


def special(name: str, kind: bytes, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE])
def test_links_and_devices_in_tar_are_refused(room, kind):
    data = tarred({"good.txt": b"g"}, tarfile.PAX_FORMAT, special("link", kind, "../../beside.txt"))
    with pytest.raises(DataError, match="'link', a link or a device"):
        unpack(data, room)
    assert everything_below(room) == {}


def test_links_in_zip_are_refused(room):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        info = zipfile.ZipInfo("link")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "../../beside.txt")
    with pytest.raises(DataError, match="'link', a link"):
        unpack(out.getvalue(), room)


def test_a_link_in_the_target_is_not_followed(room):
    room.mkdir()
    elsewhere = room.parent.parent / "beside.txt"
    elsewhere.unlink()
    elsewhere.mkdir()
    os.symlink(elsewhere, room / "a")
    source = room.parent.parent / "archive"
    source.write_bytes(zipped(FILES))
    with pytest.raises(DataError, match="leads out"):
        extract(source, room)
    assert list(elsewhere.iterdir()) == []


def test_nothing_is_overwritten(room):
    room.mkdir()
    (room / "three.txt").write_text("mine")
    with pytest.raises(DataError, match="exists already"):
        unpack(zipped(FILES), room)
    assert everything_below(room) == {"three.txt": b"mine"}


def test_one_path_twice_is_refused(room):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("x", b"1")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("x", b"2")
    with pytest.raises(DataError, match="twice"):
        unpack(out.getvalue(), room)


def test_limits_on_files_and_bytes(room, monkeypatch):
    with pytest.raises(DataError, match="too many files"):
        unpack(zipped({str(i): b"" for i in range(50)}), room, max_files=49)
    with pytest.raises(DataError, match="far more"):
        unpack(zipped({"x": bytes(2000)}), room, max_bytes=1999)
    monkeypatch.setattr("fwnkf.data.archives._SMALL", 1 << 20)
    with pytest.raises(DataError, match="a bomb"):
        unpack(zipped({"x": bytes(4 << 20)}), room)
    inner = zipped({"x": bytes(900)})
    with pytest.raises(DataError, match="far more"):
        unpack(zipped({f"{i}/a.zip": inner for i in range(4)}), room, nested=1, max_bytes=3000)


def test_an_archive_that_contains_itself_is_refused(room, monkeypatch):
    # a real one takes a fixed point of deflate; to the code it is an archive whose digest was met on the way down
    monkeypatch.setattr("fwnkf.data.archives.file_digest", lambda path: "the same")
    with pytest.raises(DataError, match="contains itself"):
        unpack(zipped({"self.zip": zipped({"x": b"x"})}), room, nested=5)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no archive at all",
        bytes(100),
        zipped(FILES)[:-30],
        zipped(FILES)[30:],
        tarred(FILES)[:700],
        tarred(FILES)[:512],
        gzip.compress(tarred(FILES))[:-40],
        lzma.compress(tarred(FILES))[:-40],
        bz2.compress(tarred(FILES))[:-10],
        gzip.compress(b"only text"),
    ],
    ids=["empty", "text", "zeros", "zip-tail", "zip-head", "tar", "tar-header", "gz", "xz", "bz2", "no-tar"],
)
def test_damaged_archives_are_refused(room, data):
    with pytest.raises(DataError, match=r"damaged|cut short"):
        unpack(data, room)
    assert everything_below(room) == {}


def test_a_negative_size_in_tar_does_not_hang(room):
    info = tarfile.TarInfo("x")
    block = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    block[124:136] = b"\xff" * 12  # minus one, in base 256
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    with pytest.raises(DataError, match="-1 bytes"):
        unpack(bytes(block) + bytes(1024), room)


def test_an_encrypted_file_is_named(room):
    data = bytearray(zipped({"x": b"secret"}, zipfile.ZIP_STORED))
    for at in (6, data.rindex(b"PK\x01\x02") + 8):
        data[at] |= 1
    with pytest.raises(DataError, match="encrypted"):
        unpack(bytes(data), room)


def test_a_missing_archive_and_an_impossible_target(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        extract(tmp_path / "nowhere.zip", tmp_path / "target")
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "a.zip").write_bytes(zipped(FILES))
    with pytest.raises(DataError, match="cannot unpack into"):
        extract(tmp_path / "a.zip", tmp_path / "file")
