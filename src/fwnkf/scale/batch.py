"""Filter the logs of a fleet: plan, run, and commit."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from .. import load
from ..errors import ConfigError, DataError
from .engine import Engine, Item, Loop, RayData
from .filtering import batch_size_for
from .index import StateIndex
from .lock import Lock
from .manifest import MANIFEST, PARTS, STATES, Manifest, Record, files_of, read_record
from .plan import held_back, waves
from .reading import Survey, input_files, survey
from .rows import Fault
from .settings import MOST_ROWS, Settings, names_of, put_filter, step_of
from .states import filter_digest
from .store import ATTEMPTS, Store

__all__ = ["BatchResult", "Progress", "batch"]

SMALL = 2_000_000
"""Rows below which Ray would take longer to start than the plain loop to finish."""
LOG_ROWS = 100_000
"""Rows that a log is taken for, before it is read, when an engine is chosen."""
READERS = 4
"""Files that are surveyed at a time."""

EngineName = Literal["auto", "loop", "ray"]


@dataclass
class Progress:
    """What a run has done so far.

    >>> Progress(parts=3).parts_done
    0
    """

    parts: int = 0
    """Parts to do."""
    parts_done: int = 0
    """Parts done."""
    rows: int = 0
    """Rows filtered."""
    sessions: int = 0
    """Sessions filtered."""
    set_aside: int = 0
    """Samples set aside."""
    engine: str = "loop"
    """``"loop"`` or ``"ray"``."""
    seconds: float = 0.0
    """Since the start."""
    work: dict[str, float] = field(default_factory=dict)
    """Seconds of all workers by kind: read, filter, write."""
    task_seconds: list[float] = field(default_factory=list)
    """Seconds of each task."""


@dataclass(frozen=True)
class BatchResult:
    """A finished run: its manifest, and what this call did.

    >>> BatchResult({"parts": []}, Progress(), ()).faults
    []
    """

    manifest: Mapping[str, Any]
    """What the output consists of."""
    progress: Progress
    """What this call did."""
    notes: tuple[str, ...]
    """Remarks, for people."""
    held: Mapping[str, Sequence[Fault]] = field(default_factory=dict)
    """Files that this run left for a later one, because the state of a device is lost, with the reasons."""

    @property
    def faults(self) -> list[dict[str, str]]:
        """All samples that were set aside or left for a later run: file, device and reason."""
        aside = [{"input": part["input"], **fault} for part in self.manifest["parts"] for fault in part["faults"]]
        return aside + [{"input": name, **fault._asdict()} for name, faults in self.held.items() for fault in faults]


def batch(
    input: str,
    output: str,
    filter: str | Path,
    *,
    channels: tuple[str, ...] = (),
    controls: tuple[str, ...] = (),
    device: str = "device",
    time_column: str = "time",
    stamps: bool = False,
    step: float | None = None,
    batch_size: int | None = None,
    engine: EngineName = "auto",
    workers: int | None = None,
    address: str | None = None,
    resume: bool = False,
    topics: tuple[str, ...] = (),
    fields: tuple[str, ...] = (),
    modules: tuple[str, ...] = (),
    progress: Callable[[Progress], None] | None = None,
) -> BatchResult:
    """Filter all files below ``input`` that ``output`` does not have yet, and commit the results.

    A device goes on from the state that ``output`` has of it, with the same bits as if its samples had come at once.
    What cannot be filtered is set aside with its reason; a file with a device whose state is lost is left for a later
    run, never started anew. Results count when the manifest names them; it is written last, in one piece, by one run at
    a time.

    Args:
        input: folder, file or URI (``s3://…``) of Parquet files with many devices, or of logs of any format.
        output: folder or URI of the results, partitioned as the input is.
        filter: folder of a saved filter.
        channels: columns of its measurements, in their order; by default the names of its channels.
        controls: columns of its control inputs.
        device, time_column: columns of a Parquet file that name the device, and the time in seconds or as time stamps.
        stamps: steps by the time stamps, not by the rate of the filter.
        step: time step in seconds, for a filter without a time step.
        batch_size: rows of every batch; by default what the first run chose. Bits may depend on it.
        engine: ``loop``, ``ray``, or ``auto``: Ray for more than 2 million rows in several files.
        workers: processes of Ray; by default the cores of this machine.
        address: of a Ray cluster.
        resume: go on after a run that did not finish.
        topics, fields: where signals are in logs, as for ``fwnkf run``.
        modules: modules that register systems or filters, imported by the workers too.
        progress: called after each part.

    Returns:
        The manifest with all parts, and what this call did.

    Raises:
        ConfigError: the output lies in the input, or the settings are not those of the output.
        DataError: there is nothing to filter, or the manifest is not one.
        InUseError: another run writes into the output, or took it over.

    >>> import tempfile, torch, fwnkf
    >>> import pyarrow as arrow, pyarrow.parquet as parquet
    >>> folder, one = Path(tempfile.mkdtemp()), torch.eye(1)
    >>> _ = fwnkf.save(fwnkf.KF(F=one, H=one, Q=one, R=one, channels=("gyro_x",)), folder / "filter")
    >>> table = arrow.table({"device": ["a"] * 3, "time": [0.0, 1.0, 2.0], "gyro_x": [0.0, 1.0, 2.0]})
    >>> (folder / "input").mkdir()
    >>> parquet.write_table(table, folder / "input" / "day.parquet")
    >>> batch(str(folder / "input"), str(folder / "output"), folder / "filter", step=1.0).progress.rows
    3
    """
    began = time.perf_counter()
    source, target = Store(input), Store(output)
    if source.root == target.root or target.root.startswith(source.root + "/"):
        raise ConfigError(f"the output {output} lies in the input {input}, and would be its input; name another folder")
    model = load(filter)
    names = names_of(model, channels, controls)
    settings = Settings(
        input, output, filter_digest(filter), *names, device, time_column, stamps,
        step_of(model, step, stamps), batch_size or 0, topics, fields, modules,
    )  # fmt: skip
    if not 0 <= settings.batch_size <= MOST_ROWS:
        raise ConfigError(f"--batch-size {batch_size}: expected a number from 1 to {MOST_ROWS:,}")
    listed = dict(input_files(source))
    if not listed:
        raise DataError(f"{input}: no file with a suffix of a log or table; nothing to filter")
    state = Progress()
    with Lock(target) as lock:
        manifest = Manifest.read(target)
        notes = lock.notes
        records, earlier = _unfinished(target, manifest, resume, notes)
        if not settings.batch_size:
            settings = replace(settings, batch_size=earlier.get("batch_size", 0))
        _check_settings(earlier, settings, output)
        done = {**manifest.parts, **records}
        _check_unchanged(done, listed)
        new = {name: size for name, size in listed.items() if name not in done}
        with ThreadPoolExecutor(READERS) as pool:
            surveys = dict(zip(new, pool.map(lambda name: survey(source, name, settings), new), strict=True))
        if not settings.batch_size:
            settings = replace(settings, batch_size=batch_size_for(_most_devices(surveys)))
        groups, before = waves(surveys)
        index = StateIndex(target, done.values())
        held = held_back(surveys, groups, before, index.lost)
        if index.lost and not held:
            device, reason = next(iter(index.lost.items()))
            notes.append(f"{len(index.lost)} device(s) cannot go on when their next samples come. {device}: {reason}")
        state.parts, state.set_aside = len(new) - len(held), sum(map(len, held.values()))
        if state.parts:
            put_filter(filter, target)
            chosen = _engine(settings, engine, workers, address, surveys)
            state.engine = chosen.name
            try:
                for wave in groups:
                    items = [_item(name, new[name], surveys[name], index) for name in wave if name not in held]
                    for record in chosen.run(items):
                        lock.check()
                        _count(state, record)
                        state.seconds = time.perf_counter() - began
                        done[record["input"]] = record
                        index.add(record)
                        if progress is not None:
                            progress(state)
            finally:
                chosen.close()
        lock.check()
        whole = manifest.replace(target, settings, index.trimmed(done[name] for name in sorted(done)))
        _clear(target, whole["parts"])
    state.seconds = time.perf_counter() - began
    notes += [f"{name}: gone from the input since it was filtered" for name in sorted(set(done) - set(listed))]
    return BatchResult(whole, state, tuple(notes), held)


def _unfinished(
    target: Store, manifest: Manifest, resume: bool, notes: list[str]
) -> tuple[dict[str, Record], Mapping[str, Any]]:
    """The records of a run that did not finish, by input, and its settings; none if anything of it is damaged."""
    records: dict[str, Record] = {}
    settings = manifest.settings
    for name, _ in target.files(PARTS):
        try:
            record, own = read_record(target, name)
            whole = all(_is_whole(target, path, digest) for path, digest in files_of(record).items())
        except DataError:
            record, own, whole = {"input": name}, {}, False
        if record["input"] in manifest.parts:
            continue
        records[record["input"]] = record
        settings = settings or own
        if resume and (not whole or own != settings):
            # later parts have gone on from it, so that it cannot be done again alone
            notes.append(f"{name}: damaged; all parts of the run that did not finish are filtered again")
            return {}, manifest.settings
    if records and not resume:
        raise ConfigError(
            f"{target.uri} has {len(records)} part(s) of a run that did not finish; go on with --resume, or empty it"
        )
    return records, settings


def _is_whole(target: Store, path: str, digest: str | None) -> bool:
    return target.exists(path) and hashlib.sha256(target.read(path)).hexdigest() == digest


def _check_settings(before: Mapping[str, Any], settings: Settings, output: str) -> None:
    now = settings.kept()
    changed = [name for name in before if before[name] != now[name]]
    if changed:
        text = "; ".join(f"{name} was {_short(before[name])}, is {_short(now[name])}" for name in changed)
        raise ConfigError(f"{output} holds results with other settings ({text}); use another --output for these")


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _check_unchanged(done: Mapping[str, Mapping[str, Any]], listed: Mapping[str, int]) -> None:
    changed = [name for name, part in done.items() if name in listed and listed[name] != part["size"]]
    if changed:
        raise DataError(
            f"{', '.join(sorted(changed)[:5])}: changed since they were filtered ({len(changed)} file(s)); later "
            "states depend on them: filter everything again into another --output"
        )


def _most_devices(surveys: Mapping[str, Survey | None]) -> int:
    return max((len(item.device) for item in surveys.values() if item is not None), default=1)


def _item(name: str, size: int, surveyed: Survey | None, index: StateIndex) -> Item:
    return Item(name, size, () if surveyed is None else tuple(index.files_for(surveyed.device.tolist())))


def _engine(
    settings: Settings, name: EngineName, workers: int | None, address: str | None, surveys: Mapping[str, Survey | None]
) -> Engine:
    rows = sum(item.rows or LOG_ROWS for item in surveys.values() if item is not None)
    count = workers or os.cpu_count() or 1
    small = rows < SMALL or len(surveys) == 1 or (count == 1 and address is None)
    if name == "loop" or (name == "auto" and small and address is None):
        return Loop(settings)
    return RayData(settings, count, address)


def _count(state: Progress, record: dict[str, Any]) -> None:
    seconds = record.pop("seconds")
    for kind, value in seconds.items():
        state.work[kind] = state.work.get(kind, 0.0) + value
    state.task_seconds.append(sum(seconds.values()))
    state.parts_done += 1
    state.rows += record["rows"]
    state.sessions += record["sessions"]
    state.set_aside += len(record["faults"])


def _clear(target: Store, parts: Sequence[Record]) -> None:
    """Remove what a manifest has made superfluous: states that it does not name, records, and attempts."""
    named = {part.get("state") for part in parts}
    for name, _ in target.files(STATES):
        if name not in named:
            target.delete(name)
    for folder in (PARTS, ATTEMPTS):
        target.delete_folder(folder)


def results(output: str) -> Iterator[Record]:
    """The parts of a finished output, as its manifest names them."""
    manifest = Manifest.read(Store(output))
    if manifest.data is None:
        raise DataError(f"{output} has no {MANIFEST}: no run into it has finished")
    yield from manifest.parts.values()
