"""Which file holds the last state of each device, and which states are lost.

The statistics of a part name the devices of its states with their last times, so that a file of states that is missing
or damaged is noticed, with the devices it was of.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import CheckpointError, DataError
from ..extras import need
from .manifest import Record, files_of, without_state
from .store import Store


def read_table(store: Store, name: str, digest: str | None, columns: list[str] | None = None) -> Any:
    """A Parquet file of an output; raises CheckpointError if it is missing or not the one that was written."""
    arrow, parquet = need("pyarrow", "scale"), need("pyarrow.parquet", "scale")
    where = f"{store.uri}: {name}"
    try:
        data = store.read(name)
    except FileNotFoundError as error:
        raise CheckpointError(f"{where} is missing") from error
    if digest is not None and hashlib.sha256(data).hexdigest() != digest:
        raise CheckpointError(f"{where} is damaged: its SHA-256 is not the one in the manifest")
    try:
        return parquet.read_table(arrow.BufferReader(data), columns=columns)
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise CheckpointError(f"{where} is damaged: {str(error).splitlines()[0]}") from error


class StateIndex:
    """The last state of each device among finished parts."""

    def __init__(self, store: Store, parts: Iterable[Record]) -> None:
        self.store = store
        self._last: dict[str, tuple[float, str]] = {}
        self.digests: dict[str, str | None] = {}
        """Of the files with states."""
        self.lost: dict[str, str] = {}
        """Why there is no state of a device, although it was filtered before."""
        self._lost_files: set[str] = set()
        broken = []
        for part in sorted(parts, key=lambda item: item.get("state", "")):
            try:
                self.add(part)
            except CheckpointError as error:
                broken.append((part, str(error)))
        for part, reason in broken:
            self._lose(part, reason)

    def add(self, part: Mapping[str, Any]) -> None:
        """Take the states of a finished part; raises CheckpointError if they cannot be read."""
        path = part.get("state")
        if path is None:
            return
        self.digests[path] = files_of(part)[path]
        for device, moment in self._rows(path, self.digests[path], "time"):
            if device not in self._last or moment >= self._last[device][0]:
                self._last[device] = moment, path

    def _rows(self, path: str, digest: str | None, column: str) -> list[tuple[str, float]]:
        table = read_table(self.store, path, digest, ["device", column])
        if table.column_names != ["device", column]:
            raise CheckpointError(f"{self.store.uri}: {path} is damaged: it has no columns device and {column}")
        return list(zip(table.column(0).to_pylist(), table.column(1).to_pylist(), strict=True))

    def _lose(self, part: Mapping[str, Any], reason: str) -> None:
        """Note the devices whose last state was in a file that cannot be read."""
        fleet = part.get("fleet")
        if fleet is None:
            return  # nothing was filtered: an older version put states of earlier parts there, which their parts name
        try:
            rows = self._rows(fleet, files_of(part)[fleet], "stop")
        except CheckpointError as error:
            raise DataError(
                f"{reason}, and which devices it was of is not known either: {error}. Bring both files back, or filter "
                "everything again into another --output"
            ) from error
        for device, moment in rows:
            if device not in self._last or self._last[device][0] < moment:
                self._last.pop(device, None)
                self._lost_files.add(part["state"])
                self.lost[device] = (
                    f"{reason}. It holds the state from which this device goes on; its samples are left for a later "
                    "run. Bring that file back and run again, or filter everything again into another --output"
                )

    def files_for(self, devices: Iterable[str]) -> list[tuple[str, str | None]]:
        """The files with the last states of some devices, with their digests."""
        paths = {self._last[device][1] for device in devices if device in self._last}
        return [(path, self.digests[path]) for path in sorted(paths)]

    def trimmed(self, parts: Iterable[Record]) -> list[Record]:
        """The records, without states that are not the last of any device."""
        needed = {path for _, path in self._last.values()} | self._lost_files
        return [part if part.get("state") in needed else without_state(part) for part in parts]
