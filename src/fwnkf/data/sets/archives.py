"""Extraction of zip and tar archives with ``zipfile`` and ``tarfile``, limited in the number of files and bytes.

Files are extracted into a temporary folder inside the target and renamed into place, so a failure leaves nothing
behind. Links and special files are refused, and paths outside the target by ``tarfile.data_filter``.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ...errors import DataError
from ._files import brief

MAX_FILES = 200_000
MAX_BYTES = 64 << 30
MAX_RATIO = 300
"""Largest ratio of extracted to archived bytes: text compresses a hundredfold at best."""
RATIO_FREE = 64 << 20
"""Bytes that may be extracted whatever the ratio."""
HEADER_LIMIT = 1 << 16
"""Bytes of tar headers per file."""
_OPENERS: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
_ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")

Member = tuple[tarfile.TarInfo, Callable[[], Any]]
"""Name, type and size of a file in an archive, and the function that opens its content."""


@dataclass
class _Budget:
    """What may still be extracted from an archive and the archives inside it."""

    files: int
    bytes: int

    def take(self, size: int, archive: Path) -> None:
        self.files -= 1
        self.bytes -= size
        if self.files < 0 or self.bytes < 0 or size < 0:
            raise DataError(f"{archive.name} contains too many files or expands to too many bytes; refused")


def extract(
    archive: str | Path,
    target: str | Path,
    *,
    select: Callable[[str], bool] = lambda _: True,
    nested: int = 0,
    max_files: int = MAX_FILES,
    max_bytes: int = MAX_BYTES,
) -> list[Path]:
    """Extract an archive into a folder, created if missing; returns the extracted files, sorted.

    Args:
        select: chooses files by their path; files of an archive inside the archive lie in that archive's folder.
        nested: number of levels of archives inside archives that are extracted too; deeper ones remain files.
    """
    archive, target = Path(archive), Path(target)
    try:
        budget = _Budget(max_files, min(max_bytes, max(RATIO_FREE, MAX_RATIO * archive.stat().st_size)))
        target.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".extracting-", dir=target))
    except OSError as error:
        raise DataError(f"{archive} cannot be extracted into {target}: {error}") from error
    try:
        _extract(archive, staging, PurePosixPath(), select, nested, budget)
        return _move(staging, target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _extract(
    archive: Path, staging: Path, folder: PurePosixPath, select: Callable[[str], bool], nested: int, budget: _Budget
) -> None:
    inner: list[tuple[Path, PurePosixPath]] = []
    try:
        with ExitStack() as stack:
            for info, content in _members(archive, stack):
                budget.take(info.size, archive)
                path = folder / _data_filter(info, str(staging)).name
                is_inner = nested > 0 and path.name.lower().endswith(_ARCHIVES)
                if info.isdir() or not (is_inner or select(str(path))):
                    continue
                output = staging / path
                output.parent.mkdir(parents=True, exist_ok=True)
                with content() as source, output.open("xb") as sink:
                    shutil.copyfileobj(source, sink)
                if is_inner:
                    inner.append((output, path.parent))
    except DataError:
        raise
    except Exception as error:  # a damaged archive raises almost any exception
        raise DataError(f"{archive} is damaged or cannot be extracted: {brief(error)}") from error
    for file, parent in inner:
        _extract(file, staging, parent, select, nested - 1, budget)
        file.unlink()


def _data_filter(info: tarfile.TarInfo, folder: str) -> tarfile.TarInfo:
    """``tarfile.data_filter``, which the first releases of Python 3.10 and 3.11 do not have."""
    if not hasattr(tarfile, "data_filter"):
        raise DataError("archives are extracted with Python 3.10.12, 3.11.4 or newer only; update Python")
    return tarfile.data_filter(info, folder)


def _members(archive: Path, stack: ExitStack) -> Iterator[Member]:
    with archive.open("rb") as file:
        head = file.read(8)
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        zipped = stack.enter_context(zipfile.ZipFile(archive))
        for info in zipped.infolist():
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                # zipfile bounds the memory of one read for these two methods only
                raise DataError(f"{archive.name} uses compression method {info.compress_type}; repack it with deflate")
            member = tarfile.TarInfo(info.filename)
            member.type, member.size = tarfile.DIRTYPE if info.is_dir() else tarfile.REGTYPE, info.file_size
            yield member, lambda info=info: zipped.open(info)  # type: ignore[misc]
        return
    opener = next((opener for magic, opener in _OPENERS.items() if head.startswith(magic)), open)
    stream: Any = _Metered(stack.enter_context(opener(archive, "rb")), archive)
    # "r|" never seeks; "r|gz" would not verify the checksum of gzip, which gzip.open does at the end of the file
    tar = stack.enter_context(tarfile.TarFile.open(fileobj=stream, mode="r|", tarinfo=_TarHeader))
    for member in tar:
        if not (member.isreg() or member.isdir()) or member.issparse():
            raise DataError(f"{archive.name} contains {member.name[:200]!r}, a link or special file; refused")
        stream.left += member.size + HEADER_LIMIT
        yield member, lambda member=member: tar.extractfile(member)  # type: ignore[misc]
    while stream.read(1 << 16):
        pass


@dataclass
class _Metered:
    """A stream of which only the announced bytes can be read: ``tarfile`` does not limit the size of its headers."""

    stream: Any
    archive: Path
    left: int = 1 << 20

    def read(self, size: int) -> bytes:
        data = self.stream.read(size)
        self.left -= len(data)
        if self.left < 0:
            raise DataError(f"{self.archive.name} has headers or padding of more than {HEADER_LIMIT:,} bytes; refused")
        return data


class _TarHeader(tarfile.TarInfo):
    """A header that must be valid: ``tarfile`` takes a damaged one for the end of the archive."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _TarHeader:
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if len(buf) == tarfile.BLOCKSIZE and not any(buf):  # a block of zeros is the regular end
                raise
            raise ValueError(f"invalid tar header ({error})") from error


def _move(staging: Path, target: Path) -> list[Path]:
    """Rename the extracted files into place; nothing is overwritten, and no link in the target is followed outside."""
    root = target.resolve()
    moves = [(path, target / path.relative_to(staging)) for path in sorted(staging.rglob("*")) if path.is_file()]
    for _, place in moves:
        if os.path.lexists(place):
            raise DataError(f"{place} already exists; move it away, or extract into an empty folder")
        if not place.parent.resolve().is_relative_to(root):
            raise DataError(f"{place.parent} is a link that leads outside {target}; refused")
    for path, place in moves:
        place.parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, place)
    return [place for _, place in moves]
