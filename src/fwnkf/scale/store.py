"""A folder on a local disk or in an object store, to which whole files are written exactly once."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import ConfigError, DataError
from ..extras import need

ATTEMPTS = "_attempts"
"""Folder of files that are being written; what lies there belongs to no result."""


class Store:
    """Files below a folder, named by their path from there. A file appears whole or not at all.

    Args:
        uri: a path, or a URI that pyarrow's file systems know: ``s3://bucket/folder``. Your own S3 server is
            named in the query, ``s3://bucket/folder?endpoint_override=localhost:9000&scheme=http``.

    >>> import tempfile
    >>> store = Store(tempfile.mkdtemp())
    >>> store.write("a/b.txt", b"text")
    >>> store.read("a/b.txt"), store.exists("a/c.txt"), [name for name, _ in store.files()]
    (b'text', False, ['a/b.txt'])
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._fs = need("pyarrow.fs", "scale")
        if "://" in uri:
            try:
                self.system, path = self._fs.FileSystem.from_uri(uri)
            except (ValueError, OSError) as error:
                raise ConfigError(f"{uri}: {error}; give a path, or a URI such as s3://bucket/folder") from error
        else:
            self.system, path = self._fs.LocalFileSystem(), str(Path(uri).absolute())
        self.root = path.rstrip("/")
        self.local = isinstance(self.system, self._fs.LocalFileSystem)

    def path(self, name: str) -> str:
        """The path in the file system; raises DataError for a name that leads outside the folder."""
        if name and not is_inside(name):
            raise DataError(f"{self.uri}: {ascii(name)[:80]} is not the name of a file inside this folder")
        return f"{self.root}/{name}" if name else self.root

    def files(self, below: str = "") -> list[tuple[str, int]]:
        """Names and sizes of all files, sorted; a root that is a file is that file, with an empty name."""
        info = self.system.get_file_info(self.path(below))
        if info.type == self._fs.FileType.File:
            return [(below, info.size)]
        selector = self._fs.FileSelector(self.path(below), allow_not_found=True, recursive=True)
        try:
            found = self.system.get_file_info(selector)
        except OSError as error:
            raise DataError(f"{self.uri} cannot be listed: {error}") from error
        start = len(self.root) + 1
        return sorted((item.path[start:], item.size) for item in found if item.type == self._fs.FileType.File)

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        return bool(self.system.get_file_info(self.path(name)).type == self._fs.FileType.File)

    def open(self, name: str) -> Any:
        """A file for reading at any place."""
        return self.system.open_input_file(self.path(name))

    def read(self, name: str) -> bytes:
        """A whole file."""
        with self.system.open_input_stream(self.path(name)) as file:
            data: bytes = file.read()
        return data

    def write(self, name: str, data: Any) -> None:
        """Write a whole file, replacing one of that name.

        On a disk the bytes go to a file of this attempt first, which is then renamed; an object store shows an object
        when it is complete.
        """
        if not self.local:
            with self.system.open_output_stream(self.path(name)) as stream:
                stream.write(data)
            return
        target = Path(self.path(name))
        attempt = Path(self.path(ATTEMPTS)) / f"{target.name}.{uuid.uuid4().hex}"
        try:
            for folder in (attempt.parent, target.parent):
                folder.mkdir(parents=True, exist_ok=True)
            with attempt.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            attempt.replace(target)
        except OSError:
            with suppress(OSError):
                attempt.unlink(missing_ok=True)  # on a full disk half a file would take the room that is left
            raise
        _sync_folder(target.parent)

    @staticmethod
    def json_bytes(value: Any) -> bytes:
        """Values as JSON: the same bytes for the same values."""
        return (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()

    def parse_json(self, name: str, data: bytes) -> Any:
        """The values in the bytes of the file ``name``."""
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{self.uri}: {name} is not JSON: {error}") from error

    def delete(self, name: str) -> None:
        """Delete a file if it is there."""
        if self.exists(name):
            self.system.delete_file(self.path(name))

    def delete_folder(self, name: str) -> None:
        """Delete a folder with all that is in it, if it is there."""
        if self.local:
            shutil.rmtree(self.path(name), ignore_errors=True)  # what another run writes meanwhile may stay
            return
        if self.system.get_file_info(self.path(name)).type == self._fs.FileType.Directory:
            self.system.delete_dir(self.path(name))


def is_inside(name: str) -> bool:
    """Whether a name leads to a file inside a folder, whatever the file system.

    >>> is_inside("day=1/a.parquet"), is_inside("../a.parquet"), is_inside("/etc/passwd"), is_inside("a//b")
    (True, False, False, False)
    """
    if os.name == "nt" and ("\\" in name or ":" in name):
        return False
    return "\0" not in name and not {"", ".", ".."} & set(name.split("/"))


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut, where folders can be opened."""
    if os.name == "nt":
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
