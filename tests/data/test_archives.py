"""Extraction of archives: valid ones completely, and nothing outside the target, beyond the limits, or without end."""

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

from fwnkf.data.sets.archives import extract
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


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture
def room(tmp_path):
    """A target folder, with a file next to it that must not change."""
    (tmp_path / "room").mkdir()
    (tmp_path / "beside.txt").write_text("mine")
    return tmp_path / "room" / "target"


def unpack(data: bytes, room: Path, **options) -> dict[str, bytes]:
    source = room.parent.parent / "archive"
    source.write_bytes(data)
    try:
        written = extract(source, room, **options)
    finally:  # nothing outside the target changes, and no temporary file remains
        assert {p.name for p in room.parent.parent.iterdir()} == {"room", "beside.txt", "archive"}
        assert {p.name for p in room.parent.iterdir()} <= {"target"}
        assert not any(p.name.startswith(".extracting") for p in room.rglob("*"))
    assert sorted(str(p.relative_to(room)) for p in written) == sorted(contents(room))
    return contents(room)


@pytest.mark.parametrize(
    "data",
    [
        zipped(FILES),
        zipped(FILES, zipfile.ZIP_STORED),
        tarred(FILES),
        tarred(FILES, tarfile.GNU_FORMAT),
        tarred(FILES, tarfile.USTAR_FORMAT),
        gzip.compress(tarred(FILES)),
        bz2.compress(tarred(FILES)),
        lzma.compress(tarred(FILES)),
    ],
    ids=["zip", "stored", "pax", "gnu", "ustar", "gz", "bz2", "xz"],
)
def test_every_format_is_extracted(room, data):
    assert unpack(data, room) == FILES


def test_a_tar_that_begins_like_a_zip(room):
    files = {"PK.csv": b"1"}
    assert unpack(tarred(files, tarfile.USTAR_FORMAT), room) == files


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_long_names_in_tar(room, form):
    files = {"/".join(["folder" * 10] * 3) + "/ä long name.csv": b"x", "short": b"y"}
    assert unpack(tarred(files, form), room) == files


def test_only_what_is_wanted(room):
    assert unpack(zipped(FILES), room, select=lambda path: path.endswith("two.txt")) == {
        "a/b/two.txt": FILES["a/b/two.txt"]
    }


def test_archives_inside_archives(room):
    inner = zipped({"mav0/imu0/data.csv": b"1,2", "mav0/cam0/image.png": b"x"})
    outer = zipped({"machine_hall/MH_09/MH_09.zip": inner, "machine_hall/MH_09/MH_09.bag": b"bag", "notes.txt": b"n"})
    got = unpack(outer, room, nested=1, select=lambda path: path.endswith("data.csv"))
    assert got == {"machine_hall/MH_09/mav0/imu0/data.csv": b"1,2"}


def test_deeper_archives_stay_files(room):
    innermost = zipped({"x.txt": b"x"})
    middle = gzip.compress(tarred({"deep/c.zip": innermost}))
    outer = zipped({"b.tar.gz": middle})
    assert unpack(outer, room, nested=1) == {"deep/c.zip": innermost}


def test_two_levels(room):
    outer = zipped({"b.tar.gz": gzip.compress(tarred({"deep/c.zip": zipped({"x.txt": b"x"})}))})
    assert unpack(outer, room, nested=2) == {"deep/x.txt": b"x"}


@pytest.mark.parametrize("name", ["../out.txt", "a/../../out.txt", "..", "x" * 300, "y/" * 3000 + "z"])
@pytest.mark.parametrize("make", [zipped, tarred])
def test_paths_outside_the_target_are_refused(room, name, make):
    with pytest.raises(DataError, match=r"OutsideDestinationError|IsADirectory|FileExists|OSError|too long"):
        unpack(make({"good.txt": b"g", name: b"bad"}), room)
    assert contents(room) == {}


@pytest.mark.skipif(os.name == "nt", reason="separators of Windows")
@pytest.mark.parametrize("name", ["/tmp/fwnkf-out.txt", "..\\out.txt", "C:\\out.txt", "C:out.txt"])
@pytest.mark.parametrize("make", [zipped, tarred])
def test_absolute_paths_are_extracted_inside_the_target(room, name, make):
    files = unpack(make({"good.txt": b"g", name: b"inside"}), room)
    assert sorted(files.values()) == [b"g", b"inside"]
    assert not Path("/tmp/fwnkf-out.txt").exists()


def special(name: str, kind: bytes, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE])
def test_links_and_special_files_in_tar_are_refused(room, kind):
    data = tarred({"good.txt": b"g"}, tarfile.PAX_FORMAT, special("link", kind, "../../beside.txt"))
    with pytest.raises(DataError, match="'link', a link or special file"):
        unpack(data, room)
    assert contents(room) == {}


def test_a_link_in_zip_becomes_a_plain_file(room):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        info = zipfile.ZipInfo("link")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "../../beside.txt")
    assert unpack(out.getvalue(), room) == {"link": b"../../beside.txt"}
    assert not (room / "link").is_symlink()


def test_a_link_in_the_target_is_not_followed(room):
    room.mkdir()
    elsewhere = room.parent.parent / "beside.txt"
    elsewhere.unlink()
    elsewhere.mkdir()
    os.symlink(elsewhere, room / "a")
    source = room.parent.parent / "archive"
    source.write_bytes(zipped(FILES))
    with pytest.raises(DataError, match="leads outside"):
        extract(source, room)
    assert list(elsewhere.iterdir()) == []


def test_nothing_is_overwritten(room):
    room.mkdir()
    (room / "three.txt").write_text("mine")
    with pytest.raises(DataError, match="already exists"):
        unpack(zipped(FILES), room)
    assert contents(room) == {"three.txt": b"mine"}


def test_one_path_twice_is_refused(room):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("x", b"1")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("x", b"2")
    with pytest.raises(DataError, match="File exists"):
        unpack(out.getvalue(), room)


@pytest.mark.parametrize("make", [zipped, tarred])
def test_limits_on_files_and_bytes(room, monkeypatch, make):
    with pytest.raises(DataError, match="too many files"):
        unpack(make({str(i): b"" for i in range(50)}), room, max_files=49)
    with pytest.raises(DataError, match="too many bytes"):
        unpack(make({"x": bytes(2000)}), room, max_bytes=1999)
    inner = make({"x": bytes(900)})
    with pytest.raises(DataError, match="too many bytes"):
        unpack(zipped({f"{i}/a.zip": inner for i in range(4)}), room, nested=1, max_bytes=len(inner) * 4 + 3000)
    monkeypatch.setattr("fwnkf.data.sets.archives.RATIO_FREE", 1 << 20)
    with pytest.raises(DataError, match="too many bytes"):
        unpack(gzip.compress(tarred({"x": bytes(4 << 20)})) if make is tarred else zipped({"x": bytes(4 << 20)}), room)


def test_a_file_that_is_not_extracted_counts_too(room):
    with pytest.raises(DataError, match="too many bytes"):
        unpack(gzip.compress(tarred({"x": bytes(2000)})), room, select=lambda _: False, max_bytes=1999)


def test_an_archive_in_an_archive_is_opened_to_the_given_depth_only(room):
    data = zipped({"x": b"x"})
    for depth in range(5):
        data = zipped({f"{depth}.zip": data})
    assert list(unpack(data, room, nested=2)) == ["2.zip"]


def test_an_archive_that_contains_itself_is_refused(room):
    with pytest.raises(DataError, match="File exists"):
        unpack(zipped({"self.zip": zipped({"self.zip": b"PK"})}), room, nested=2)


def test_headers_of_tar_are_limited(room):
    """A name of 40 MB, compressed to some kilobytes; tarfile would read it into memory."""
    info = tarfile.TarInfo("x" * (40 << 20))
    with pytest.raises(DataError, match="headers or padding"):
        unpack(gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + bytes(1024)), room)
    with pytest.raises(DataError, match="headers or padding"):
        unpack(gzip.compress(tarred(FILES) + bytes(40 << 20)), room)


def sparse(size: bytes) -> bytes:
    """A file in the sparse format 1.0, whose map tarfile reads block by block until it finds a number."""
    info = tarfile.TarInfo("x")
    info.size = 1 << 25
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": size.decode()}
    return info.tobuf(tarfile.PAX_FORMAT)


def test_sparse_files_are_refused(room):
    with pytest.raises(DataError, match=r"headers or padding|special file|damaged"):
        unpack(gzip.compress(sparse(b"9") + bytes(1 << 25)), room)


def test_compression_methods_without_a_memory_limit_are_refused(room):
    with pytest.raises(DataError, match="compression method 14"):
        unpack(zipped(FILES, zipfile.ZIP_LZMA), room)


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
    with pytest.raises(DataError, match="damaged"):
        unpack(data, room)
    assert contents(room) == {}


def test_a_negative_size_in_tar_does_not_hang(room):
    info = tarfile.TarInfo("x")
    block = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    block[124:136] = b"\xff" * 12  # minus one, in base 256
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    with pytest.raises(DataError, match="too many bytes"):
        unpack(bytes(block) + bytes(1024), room)


def test_an_encrypted_file_is_named(room):
    data = bytearray(zipped({"x": b"secret"}, zipfile.ZIP_STORED))
    for at in (6, data.rindex(b"PK\x01\x02") + 8):
        data[at] |= 1
    with pytest.raises(DataError, match="encrypted"):
        unpack(bytes(data), room)


def test_a_damaged_header_in_the_middle_of_tar_is_not_its_end(room):
    data = bytearray(tarred(FILES, tarfile.USTAR_FORMAT))
    data[1024] ^= 1  # the second header; tarfile would return the first file only
    with pytest.raises(DataError, match="invalid tar header"):
        unpack(bytes(data), room)
    with pytest.raises(DataError, match="invalid tar header"):
        unpack(bytes(data[:1024]), room)


def test_the_checksum_of_gzip_is_verified(room):
    data = bytearray(gzip.compress(tarred(FILES), 0))
    data[data.index(b"twotwo")] ^= 1
    with pytest.raises(DataError, match="CRC"):
        unpack(bytes(data), room)


def test_a_missing_archive_and_an_impossible_target(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        extract(tmp_path / "nowhere.zip", tmp_path / "target")
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "a.zip").write_bytes(zipped(FILES))
    with pytest.raises(DataError, match="cannot be extracted into"):
        extract(tmp_path / "a.zip", tmp_path / "file")
