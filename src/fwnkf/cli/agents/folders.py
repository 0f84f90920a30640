"""The folders that a user named: every path of a call is looked up here, and results are written through here.

A path is first compared as text, so that nothing outside is even looked at. Links are then followed one by one, and
each target is compared again. Results are created below an open folder, without following links and without replacing
anything, so that a link that appears in between changes nothing.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from ...errors import DataError, shown
from ...plain import is_text
from ..output import UsageError

LONGEST_PATH = 4096
"""Characters of a path."""
MOST_LINKS = 40
"""Links that one path may lead through, as in Linux."""
MOST_ENTRIES = 500
"""Entries of a folder that are listed."""

# Windows opens no file relative to an open folder; there, what is between the check and the writing is not watched.
ANCHORED = os.open in os.supports_dir_fd and os.mkdir in os.supports_dir_fd
NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
BINARY = getattr(os, "O_BINARY", 0)
FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | NO_LINK


class Folders:
    """Folders below which calls may read and write; relative paths are those of the first one."""

    def __init__(self, roots: Sequence[Path]) -> None:
        for root in roots:
            if not root.is_dir():
                raise UsageError(f"--root {root} is not a folder")
        self.roots = tuple(dict.fromkeys(Path(os.path.realpath(root)) for root in roots))

    def existing(self, text: str) -> Path:
        """The file or folder that a call names, without links. Raises DataError where it is none, or is outside."""
        path = self._resolved(text)
        try:
            mode = path.lstat().st_mode
        except OSError as error:
            raise DataError(f"{shown(text)} cannot be read: {error.strerror or error}") from error
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise DataError(f"{shown(text)} is neither a file nor a folder")
        return path

    def new(self, text: str) -> Path:
        """The path for a result, which must not exist. Raises DataError where it does, or is outside."""
        path = self._resolved(text)
        if path in self.roots or os.path.lexists(path):
            raise DataError(f"{shown(text)} exists, and nothing is overwritten; name another file")
        return path

    def listed(self, text: str) -> dict[str, Any]:
        """The entries of a folder: names, sizes, and which are folders. Links and devices are left out."""
        path = self.existing(text)
        entries: list[dict[str, Any]] = []
        count = 0
        with self._opened(path) as folder, os.scandir(folder) as found:
            for entry in found:
                kind = entry.stat(follow_symlinks=False)
                if not (stat.S_ISREG(kind.st_mode) or stat.S_ISDIR(kind.st_mode)) or not is_text(entry.name):
                    continue
                count += 1
                if len(entries) < MOST_ENTRIES:
                    is_folder = stat.S_ISDIR(kind.st_mode)
                    entries.append(
                        {"name": entry.name, "folder": is_folder, "bytes": None if is_folder else kind.st_size}
                    )
        entries.sort(key=lambda row: str(row["name"]))
        return {"folder": str(path), "folders_of_the_server": [str(root) for root in self.roots],
                "entries": entries, "left_out": count - len(entries)}  # fmt: skip

    def place(self, made: Path, path: Path) -> list[Path]:
        """Copy a result that a worker made to its path; returns the files. Raises DataError where something exists."""
        with self._opened(path.parent, create=True) as folder:
            try:
                return _copy(made, folder, path)
            except FileExistsError as error:
                raise DataError(f"{path} exists, and nothing is overwritten; name another file") from error
            except OSError as error:
                raise DataError(f"{path} cannot be written: {error.strerror or error}") from error

    def _resolved(self, text: str) -> Path:
        """The path without links, each of which must lead to a place below the folders."""
        if not text or "\0" in text or not is_text(text) or len(text) > LONGEST_PATH:
            raise DataError(f"{shown(text)} is not the name of a file")
        path = Path(os.path.normpath(self.roots[0] / text))
        for _ in range(MOST_LINKS):
            root = self._root_of(path)
            if root is None:
                raise DataError(
                    f"{shown(text)} is not below the folders of this server: {', '.join(map(str, self.roots))}; the "
                    "user can name others with --root"
                )
            following = _first_link(root, path)
            if following is None:
                return path
            path = following
        raise DataError(f"{shown(text)} leads through too many links")

    def _root_of(self, path: Path) -> Path | None:
        return next((root for root in self.roots if path.is_relative_to(root)), None)

    @contextmanager
    def _opened(self, path: Path, create: bool = False) -> Iterator[Any]:
        """An open folder, reached from one of the user's without following a link; missing ones are made."""
        root = self._root_of(path)
        assert root is not None, path
        if not ANCHORED:
            if create:
                path.mkdir(parents=True, exist_ok=True)
            yield path
            return
        try:
            here = os.open(root, FOLDER & ~getattr(os, "O_NOFOLLOW", 0))
        except OSError as error:
            raise DataError(f"{root} cannot be read: {error.strerror or error}") from error
        try:
            for name in path.relative_to(root).parts:
                try:
                    if create and not _exists(name, here):
                        os.mkdir(name, dir_fd=here)
                    below = os.open(name, FOLDER, dir_fd=here)
                except OSError as error:
                    raise DataError(f"{path} is not a folder: {error.strerror or error}") from error
                os.close(here)
                here = below
            yield here
        finally:
            os.close(here)


def _first_link(root: Path, path: Path) -> Path | None:
    """Where a path leads if the first link in it, below ``root``, is followed; None if there is no link."""
    here, names = root, path.relative_to(root).parts
    try:
        for index, name in enumerate(names):
            here = here / name
            if here.is_symlink():
                return Path(os.path.normpath(here.parent.joinpath(os.readlink(here), *names[index + 1 :])))
    except OSError as error:  # a name that is too long, a folder that may not be searched
        raise DataError(f"{shown(str(path))} cannot be read: {error.strerror or error}") from error
    return None


def _exists(name: str, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def opened(made: Path) -> BinaryIO:
    """A file that a worker made, to read. Raises OSError if it is a link, which would lead out of its bounds."""
    file = os.fdopen(os.open(made, os.O_RDONLY | NO_LINK | getattr(os, "O_NONBLOCK", 0) | BINARY), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(f"{made.name} is no file")
    return file


def _copy(made: Path, folder: Any, path: Path) -> list[Path]:
    """Copy a file or a folder of files into an open folder, under the name of ``path``; returns the files."""
    target, where = (path.name, {"dir_fd": folder}) if ANCHORED else (path, {})
    if made.is_dir() and not made.is_symlink():
        os.mkdir(target, **where)
        below: Any = os.open(target, FOLDER, **where) if ANCHORED else path
        try:
            return [file for item in sorted(made.iterdir()) for file in _copy(item, below, path / item.name)]
        finally:
            if ANCHORED:
                os.close(below)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK | BINARY
    with opened(made) as source, os.fdopen(os.open(target, flags, 0o666, **where), "wb") as copy:
        shutil.copyfileobj(source, copy)
    return [path]
