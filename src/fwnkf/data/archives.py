"""Unpacking zip and tar archives from outside: nothing leaves the target, nothing grows without bound.

Refused, by name and before anything is moved into place: absolute paths and paths that climb out, links, devices, one
path twice, too many files, too many bytes, an expansion no recording reaches, and an archive that contains itself.
Files are unpacked into a folder beside the target's content and moved in by renaming, so a failure leaves nothing.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from ..errors import DataError
from ._files import brief, file_digest

MAX_FILES = 200_000
MAX_BYTES = 64 << 30
MAX_RATIO = 300
"""Text compresses a hundredfold at best; an archive that unpacks to more than this is a bomb."""
_SMALL = 64 << 20
"""Below this the ratio does not matter."""
_OPENERS: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
_NESTED = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")

Stream = Any
"""Whatever has ``read(size)``; the streams of zipfile, gzip and our own have no type in common."""
Entry = tuple[str, bool, Callable[[], Stream]]
"""Name, whether it is a folder, and how to open its content."""


@dataclass
class _Budget:
    """What may still be unpacked, shared by an archive and those inside it."""

    files: int
    bytes: int
    wanted: Callable[[str], bool]
    ancestors: list[str] = field(default_factory=list)


def extract(
    archive: str | Path,
    target: str | Path,
    *,
    wanted: Callable[[str], bool] | None = None,
    nested: int = 0,
    max_files: int = MAX_FILES,
    max_bytes: int = MAX_BYTES,
) -> list[Path]:
    """Unpack an archive into a folder, made if it is missing; returns the files written, sorted.

    Args:
        wanted: which files to unpack, by their path in the archive (that of an archive inside counts as a folder).
        nested: how many levels of archives inside archives are unpacked too, beside where they lie; deeper ones stay
            files.
    """
    archive, target = Path(archive), Path(target)
    if not archive.is_file():
        raise DataError(f"{archive} does not exist, or is no file")
    try:
        target.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=target))
    except OSError as error:
        raise DataError(f"cannot unpack into {target}: {error}") from error
    try:
        budget = _Budget(max_files, max_bytes, wanted or (lambda _: True))
        _unpack(archive, staging, PurePosixPath(), nested, budget)
        return _move_in(staging, target)
    except OSError as error:
        raise DataError(f"{archive} cannot be unpacked into {target}: {error}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def is_archive(path: Path) -> bool:
    """Whether the first bytes are those of a zip, tar, or compressed file."""
    with path.open("rb") as file:
        head = file.read(512)
    return head.startswith((b"PK\x03\x04", b"PK\x05\x06", *_OPENERS)) or head[257:262] == b"ustar"


def _unpack(archive: Path, staging: Path, prefix: PurePosixPath, nested: int, budget: _Budget) -> None:
    digest = file_digest(archive)
    if digest in budget.ancestors:
        raise DataError(f"{archive.name} contains itself; refused")
    budget.ancestors.append(digest)
    room = max(_SMALL, MAX_RATIO * archive.stat().st_size)
    inner: list[tuple[Path, PurePosixPath]] = []
    seen: set[str] = set()
    with contextlib.ExitStack() as stack:
        for name, folder, content in _entries(archive, stack):
            path = safe_path(name, archive)
            budget.files -= 1
            if budget.files < 0:
                raise DataError(f"{archive.name} holds too many files; refused")
            if folder:
                continue
            if str(path).casefold() in seen:
                raise DataError(f"{archive.name} holds {name[:200]!r} twice; refused")
            seen.add(str(path).casefold())
            within = prefix / path
            opened = nested > 0 and path.name.lower().endswith(_NESTED)
            if not opened and not budget.wanted(str(within)):
                continue
            written = staging / within
            written.parent.mkdir(parents=True, exist_ok=True)
            with _reading(archive, name), content() as source, written.open("xb") as sink:
                room = _copy(source, sink, room, budget, archive)
            if opened and is_archive(written):
                inner.append((written, within.parent))
            elif not budget.wanted(str(within)):
                written.unlink()
    for file, place in inner:
        _unpack(file, staging, place, nested - 1, budget)
        file.unlink()
    budget.ancestors.pop()


def _copy(source: Stream, sink: Stream, room: int, budget: _Budget, archive: Path) -> int:
    while piece := source.read(1 << 20):
        room -= len(piece)
        budget.bytes -= len(piece)
        if room < 0 or budget.bytes < 0:
            raise DataError(f"{archive.name} unpacks to far more than it should (a bomb, or the limit is low); refused")
        sink.write(piece)
    return room


@contextlib.contextmanager
def _reading(archive: Path, name: str) -> Iterator[None]:
    """A damaged archive makes the decoders raise almost anything: one error, with the place."""
    try:
        yield
    except (DataError, OSError) as error:
        if isinstance(error, DataError) or error.errno is not None:  # a full disk is no damage
            raise
        raise DataError(
            f"{archive}, {name[:200]!r}: damaged or cut short ({brief(error)}); get the archive again"
        ) from error
    except Exception as error:
        raise DataError(
            f"{archive}, {name[:200]!r}: damaged or cut short ({brief(error)}); get the archive again"
        ) from error


def safe_path(name: str, archive: Path) -> PurePosixPath:
    """A path from an archive, if it stays below the folder it is unpacked into."""
    plain = name.replace("\\", "/")
    path = PurePosixPath(plain)
    bad = plain.startswith("/") or ".." in path.parts or "\0" in plain or ":" in plain or not path.parts
    if bad or len(plain) > 1024 or any(len(part.encode("utf-8", "replace")) > 240 for part in path.parts):
        raise DataError(f"{archive.name} holds the path {name[:200]!r}, which may lead outside; refused")
    return path


def _entries(archive: Path, stack: contextlib.ExitStack) -> Iterator[Entry]:
    with archive.open("rb") as file:
        head = file.read(512)
    with _reading(archive, "(its directory)"):
        if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
            zipped = stack.enter_context(zipfile.ZipFile(archive))
            entries = _zip_entries(zipped, archive)
        else:
            opener = next((opener for magic, opener in _OPENERS.items() if head.startswith(magic)), open)
            stream: Stream = stack.enter_context(opener(archive, "rb"))
            entries = _tar_entries(stream, archive)
    while True:
        with _reading(archive, "(its directory)"):
            entry = next(entries, None)
        if entry is None:
            return
        yield entry


def _zip_entries(zipped: zipfile.ZipFile, archive: Path) -> Iterator[Entry]:
    for info in zipped.infolist():
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise DataError(f"{archive.name} holds {info.filename[:200]!r}, a link or a device; refused")
        if info.flag_bits & 1:
            raise DataError(f"{archive.name}: {info.filename[:200]!r} is encrypted; unpack it by hand")
        yield info.filename, info.is_dir(), lambda info=info: zipped.open(info)  # type: ignore[misc]


class _Limited(io.RawIOBase):
    """The next ``size`` bytes of a stream."""

    def __init__(self, stream: Stream, size: int) -> None:
        self.stream, self.left = stream, size

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        wanted = self.left if size < 0 else min(size, self.left)
        piece = self.stream.read(wanted)
        if len(piece) < wanted:
            raise EOFError("the archive ends within a file")
        self.left -= len(piece)
        return piece

    def skip(self) -> None:
        while self.left:
            self.read(1 << 20)


def _tar_entries(stream: Stream, archive: Path) -> Iterator[Entry]:
    """Members in order, straight from the stream: no seeking, so no offset can lead it round in circles."""
    long_name, long_size = None, None
    while (block := stream.read(512)) != bytes(512):
        info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        size = info.size if long_size is None or info.type in _EXTENSIONS else long_size
        if size < 0 or size > MAX_BYTES:
            raise DataError(f"{archive.name} holds a file of {size} bytes; refused")
        padding = (-size) % 512
        if info.type in _EXTENSIONS:
            if size > 1 << 16:
                raise DataError(f"{archive.name} holds a name of {size} bytes; refused")
            text = _Limited(stream, size).read()
            if info.type == tarfile.GNUTYPE_LONGNAME:
                long_name = text.rstrip(b"\0").decode("utf-8", "surrogateescape")
            elif info.type == tarfile.XHDTYPE:
                records = _pax(text)
                long_name = records.get("path", long_name)
                long_size = int(records["size"]) if "size" in records else None
        elif info.isreg() or info.isdir():
            content = _Limited(stream, size)
            yield long_name or info.name, info.isdir(), lambda content=content: content  # type: ignore[misc]
            content.skip()
            long_name = long_size = None
        else:
            raise DataError(f"{archive.name} holds {(long_name or info.name)[:200]!r}, a link or a device; refused")
        stream.read(padding)
    rest = _SMALL
    while piece := stream.read(1 << 16):  # padding; a compressed stream is checked only where it ends
        rest -= len(piece)
        if rest < 0:
            raise DataError(f"{archive.name} goes on long after its end; refused")


_EXTENSIONS = (tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE)


def _pax(text: bytes) -> dict[str, str]:
    """The records ``length key=value`` of an extended header."""
    records, at = {}, 0
    while at < len(text) and text[at : at + 1] != b"\0":
        length = int(text[at : text.index(b" ", at, at + 20)])
        record = text[at : at + length]
        if length <= 0 or len(record) < length:
            raise ValueError("an extended header is damaged")
        key, _, value = record[record.index(b" ") + 1 : -1].partition(b"=")
        records[key.decode("utf-8", "replace")] = value.decode("utf-8", "surrogateescape")
        at += length
    return records


def _move_in(staging: Path, target: Path) -> list[Path]:
    """Rename every unpacked file into place; nothing is overwritten, and no link in the target is followed out."""
    root = target.resolve()
    moves = [(path, target / path.relative_to(staging)) for path in sorted(staging.rglob("*")) if path.is_file()]
    for _, place in moves:
        if os.path.lexists(place):
            raise DataError(f"{place} exists already; move it away, or unpack into an empty folder")
        if not place.parent.resolve().is_relative_to(root):
            raise DataError(f"{place.parent} leads out of {target} by a link; refused")
    for path, place in moves:
        place.parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, place)
    return [place for _, place in moves]
