"""Samples from the files of a fleet: Parquet files with many devices, or logs of any format, one for each device."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..data.log_blocks import SampleBlocks
from ..errors import DataError
from ..extras import need
from ..logs import choose, open_log
from ..logs.choice import Pick
from ..logs.open import log_suffixes
from .rows import Array, Index, Samples, group
from .settings import TIME, Settings
from .store import Store

MOST_DROPPED = 0.01
"""Share of samples with a time stamp not later than the one before from which a log is set aside."""


class Survey(NamedTuple):
    """What a file holds: its devices, and from when to when; NaN for logs, which are in the order of their names."""

    device: NDArray[np.object_]
    first: Array
    last: Array
    rows: int


def input_files(store: Store) -> list[tuple[str, int]]:
    """Names and sizes of the files to filter; names that begin with a dot or an underscore are left out."""
    files = [
        (name, size, PurePosixPath(name or store.root).suffix.lower())
        for name, size in store.files()
        if not any(part.startswith((".", "_")) for part in PurePosixPath(name).parts)
    ]
    known = log_suffixes({suffix for *_, suffix in files})
    return [(name, size) for name, size, suffix in files if suffix in known]


def is_table(store: Store, name: str) -> bool:
    """Whether a file is a Parquet file."""
    return PurePosixPath(name or store.root).suffix.lower() == ".parquet"


def path_device(name: str, store: Store) -> str:
    """The device by the path of a file: ``device=NAME``, else the folder below the input, else the name."""
    path = PurePosixPath(name or PurePosixPath(store.root).name)
    for part in path.parts:
        if part.startswith("device="):
            return part.removeprefix("device=")
    return path.parts[0] if len(path.parts) > 1 else path.stem


def survey(store: Store, name: str, settings: Settings) -> Survey | None:
    """Devices and times of a file, without its channels; None if it cannot be read, which its part will report."""
    if not is_table(store, name):
        return Survey(np.array([path_device(name, store)], object), np.array([np.nan]), np.array([np.nan]), 0)
    try:
        names, codes, time, _ = _table(store, name, settings, ())
    except DataError:
        return None
    order = np.argsort(codes, kind="stable")
    first = np.flatnonzero(np.diff(codes[order], prepend=-1))
    if not len(first):
        return Survey(np.empty(0, object), np.empty(0), np.empty(0), 0)
    known = np.where(np.isfinite(time), time, np.nan)[order]
    low, high = (function.reduceat(known, first) for function in (np.fmin, np.fmax))
    return Survey(names[codes[order][first]], low, high, len(time))


def read_samples(store: Store, name: str, settings: Settings, dtype: Any) -> Samples:
    """All samples of a file; raises DataError where it cannot be read, or columns are missing."""
    if not is_table(store, name):
        return _log(store, name, settings, dtype)
    names, codes, time, columns = _table(store, name, settings, settings.names)
    values = np.stack([column.astype(dtype) for column in columns], 1) if columns else np.empty((len(time), 0), dtype)
    return group(names, codes, time, values)


def _table(
    store: Store, name: str, settings: Settings, wanted: tuple[str, ...]
) -> tuple[NDArray[np.object_], Index, Array, list[Array]]:
    """Names of devices, the device of each row, its time and its values."""
    arrow, parquet = need("pyarrow", "scale"), need("pyarrow.parquet", "scale")
    where = name or store.root
    try:
        with store.open(name) as source:
            metadata = parquet.read_metadata(source)
            there = metadata.schema.to_arrow_schema().names
            keyed = settings.device in there
            encoded = [settings.device] if keyed else None
            file = parquet.ParquetFile(source, metadata=metadata, read_dictionary=encoded)
            picks = {pick.name: pick for pick in map(Pick.parse, settings.fields)}
            places = [picks.get(column, Pick(column, column)) for column in wanted]
            needed = [settings.time, *dict.fromkeys(pick.place for pick in places)]
            missing = [column for column in needed if column not in there]
            if missing:
                raise DataError(
                    f"{where}: no column {', '.join(missing)}; there are: {', '.join(there)}; name the columns of the "
                    "filter's channels (--channels, --controls, --time)"
                )
            table = file.read([*([settings.device] if keyed else []), *needed])
        time = _seconds(arrow, table.column(settings.time), where, settings.time)
        columns = [_numbers(arrow, table.column(pick.place), where, pick.place) * pick.factor for pick in places]
        if keyed:
            names, codes = _devices(arrow, table.column(settings.device))
        else:
            names, codes = np.array([path_device(name, store)], object), np.zeros(len(time), np.int64)
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"{where} cannot be read: {str(error).splitlines()[0]}") from error
    return names, codes, time, columns


def _devices(arrow: Any, column: Any) -> tuple[NDArray[np.object_], Index]:
    """Names in alphabetical order, and which of them each row has; a row without a device has an empty name."""
    if not arrow.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    whole = column.unify_dictionaries().combine_chunks()
    names = np.array([*(str(item) for item in whole.dictionary.to_pylist()), ""], object)
    codes = whole.indices.fill_null(len(names) - 1).to_numpy().astype(np.int64)
    used, codes = np.unique(codes, return_inverse=True)
    order = np.argsort(names[used].astype(str), kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return names[used][order], place[codes]


def _seconds(arrow: Any, column: Any, where: str, name: str) -> Array:
    if arrow.types.is_timestamp(column.type):
        stamps = column.cast(arrow.timestamp("ns")).cast(arrow.int64())
        return _numbers(arrow, stamps, where, name) * 1e-9
    return _numbers(arrow, column, where, name)


def _numbers(arrow: Any, column: Any, where: str, name: str) -> Array:
    """A column as float64, NaN where it is null."""
    if not (arrow.types.is_integer(column.type) or arrow.types.is_floating(column.type)):
        raise DataError(f"{where}: column {name} has values of type {column.type}, not numbers")
    numbers: Array = column.cast(arrow.float64(), safe=False).to_numpy()
    return numbers


@contextmanager
def local_file(store: Store, name: str) -> Iterator[Path]:
    """A file of a store on the local disk."""
    if store.local:
        yield Path(store.path(name))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / PurePosixPath(store.path(name)).name
        path.write_bytes(store.read(name))
        yield path


def _log(store: Store, name: str, settings: Settings, dtype: Any) -> Samples:
    with local_file(store, name) as path:
        named = "" if settings.time == TIME else settings.time
        log = choose(open_log(path, time=named), list(settings.topics), list(settings.fields))
        blocks = SampleBlocks(log, list(settings.names))
        parts = list(blocks)
        dropped = [signal for signal in blocks.notes if "left out" in signal]
        seen = sum(len(part.time) for part in parts)
        if not seen:
            raise DataError(f"{name}: the log has no samples of {', '.join(settings.names)}")
        if dropped and blocks.dropped > MOST_DROPPED * (seen + blocks.dropped):
            raise DataError(f"{name}: time goes backwards: {'; '.join(dropped)}")
        time = np.concatenate([part.time for part in parts]) + log.start_ns * 1e-9
        values = np.concatenate([part.values for part in parts]).astype(dtype)
    device = np.array([path_device(name, store)], object)
    return Samples(device, np.array([0, len(time)]), time, values)
