"""What an output consists of: the manifest of all finished parts, and the records of parts that it does not name yet.

Both are read back as files that anybody may have written: names must lie inside the output, numbers must be possible,
and anything else is a named error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import DataError, InUseError
from .settings import FILTER, MOST_ROWS, Settings
from .store import ATTEMPTS, Store, is_inside

MANIFEST, FINISHED = "_manifest.json", "_finished"
"""What the output holds, and a file that is there once a run has finished, so that a lost manifest is noticed."""
FORMAT = 2
"""Format 2 added digests of states and statistics, and names the states that are needed only; 1 is read as well."""
PARTS, STATES, FLEET, LOCKS = "_parts", "_state", "_fleet", "_lock"
"""Folders of an output: records of finished parts, states of the devices, statistics of the sessions, locks of runs."""

Record = dict[str, Any]
"""What is known of a finished part: its input, its files with their digests, counts, and what was set aside."""

_COUNTS = ("size", "rows", "sessions", "steps")
_FOLDERS = {"output": "", "state": f"{STATES}/", "fleet": f"{FLEET}/"}
_DIGESTS = {"output": "sha256", "state": "state_sha256", "fleet": "fleet_sha256"}
_RESERVED = {MANIFEST, FINISHED, PARTS, STATES, FLEET, LOCKS, FILTER, ATTEMPTS}
_SHA256 = re.compile("[0-9a-f]{64}")
_MOST = 2**63


@dataclass(frozen=True)
class Manifest:
    """The finished parts of an output as they were read, and the bytes they were read from."""

    data: bytes | None = None
    """None where there is no manifest yet."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, Record] = field(default_factory=dict)
    """Records by input."""

    @staticmethod
    def read(store: Store) -> Manifest:
        """The manifest of an output; raises DataError where it is not one.

        >>> import tempfile
        >>> Manifest.read(Store(tempfile.mkdtemp())).parts
        {}
        """
        if not store.exists(MANIFEST):
            if store.exists(FINISHED):
                raise DataError(
                    f"{store.uri}: {MANIFEST} is missing, although a run into it has finished. Bring back a copy of "
                    "it, or filter everything again into another --output"
                )
            return Manifest()
        data = store.read(MANIFEST)
        value, where = store.parse_json(MANIFEST, data), f"{store.uri}: {MANIFEST}"
        if not isinstance(value, dict) or set(value) != {"format", "settings", "parts"}:
            raise _wrong(where, "wanted a mapping with format, settings and parts")
        if type(value["format"]) is not int or value["format"] not in (1, FORMAT):
            raise DataError(f"{where} has format {_shown(value['format'])}; this version reads 1 and {FORMAT}")
        settings = _check_settings(value["settings"], where)
        if not isinstance(value["parts"], list):
            raise _wrong(where, "parts is not a list")
        parts: dict[str, Record] = {}
        for number, item in enumerate(value["parts"]):
            record = check_record(item, f"{where}: part {number}")
            if record["input"] in parts:
                raise _wrong(where, f"the input {_shown(record['input'])} is there twice")
            parts[record["input"]] = record
        return Manifest(data, settings, parts)

    def replace(self, store: Store, settings: Settings, parts: Iterable[Record]) -> dict[str, Any]:
        """Write a new manifest, if the output still has the one that was read; returns its values."""
        value = {"format": FORMAT, "settings": settings.kept(), "parts": list(parts)}
        data = store.json_bytes(value)
        if data != self.data:
            there = store.read(MANIFEST) if store.exists(MANIFEST) else None
            if there != self.data:
                raise InUseError(
                    f"{store.uri}: another run has written {MANIFEST} since this one read it; nothing was replaced. "
                    "Run again with --resume"
                )
            store.write(MANIFEST, data)
        if not store.exists(FINISHED):
            store.write(FINISHED, f"{MANIFEST} says what this folder holds.\n".encode())
        return value


def read_record(store: Store, name: str) -> tuple[Record, dict[str, Any]]:
    """The record of a part that no manifest names, and the settings of its run; raises DataError for anything else."""
    value, where = store.parse_json(name, store.read(name)), f"{store.uri}: {name}"
    if not isinstance(value, dict):
        raise _wrong(where, "it is not a mapping")
    settings = _check_settings(value.pop("settings", None), where)
    return check_record(value, where), settings


def _check_settings(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict) or set(value) != Settings.KEPT:
        raise _wrong(where, f"settings is not a mapping with {', '.join(sorted(Settings.KEPT))}")
    size = value["batch_size"]
    if type(size) is not int or not 0 < size <= MOST_ROWS:
        raise _wrong(where, f"batch_size is {_shown(size)}, not a number from 1 to {MOST_ROWS:,}")
    return value


def check_record(value: Any, where: str) -> Record:
    """A record of the form that parts write; raises DataError for any other."""
    if not isinstance(value, dict):
        raise _wrong(where, "it is not a mapping")
    known = {"input", "faults", *_COUNTS, *_FOLDERS, *_DIGESTS.values()}
    missing, unknown = {"input", "faults", *_COUNTS} - set(value), set(value) - known
    if missing or unknown:
        raise _wrong(where, f"missing {sorted(missing) or 'nothing'}, unexpected {_shown(sorted(unknown))}")
    for name in _COUNTS:
        if type(value[name]) is not int or not 0 <= value[name] < _MOST:
            raise _wrong(where, f"{name} is {_shown(value[name])}, not a number from 0 on")
    for name in ("input", *_FOLDERS):
        if name in value and not (isinstance(value[name], str) and (is_inside(value[name]) or value[name] == "")):
            raise _wrong(where, f"{name} is {_shown(value[name])}, not the name of a file inside the folder")
    for name, folder in _FOLDERS.items():
        path = value.get(name)
        if path is None and name not in value:
            continue
        if not path or not path.startswith(folder) or (not folder and path.split("/")[0] in _RESERVED):
            raise _wrong(where, f"{name} is {_shown(path)}, which is no place of such a file")
    for name in _DIGESTS.values():
        if name in value and not (isinstance(value[name], str) and _SHA256.fullmatch(value[name])):
            raise _wrong(where, f"{name} is {_shown(value[name])}, not a SHA-256")
    faults = value["faults"]
    if not isinstance(faults, list) or not all(
        isinstance(item, dict) and set(item) == {"device", "reason"} and all(isinstance(v, str) for v in item.values())
        for item in faults
    ):
        raise _wrong(where, "faults is not a list of devices with a reason")
    return value


def files_of(record: Mapping[str, Any]) -> dict[str, str | None]:
    """The files of a part with their digests; None for a digest that an older version did not write."""
    return {record[name]: record.get(_DIGESTS[name]) for name in _FOLDERS if name in record}


def without_state(record: Mapping[str, Any]) -> Record:
    """The record of a part whose states are not needed any more."""
    return {name: value for name, value in record.items() if name not in ("state", _DIGESTS["state"])}


def _wrong(where: str, reason: str) -> DataError:
    return DataError(
        f"{where} is not as fwnkf batch writes it: {reason}. Bring back a copy of it, or filter everything again into "
        "another --output"
    )


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
