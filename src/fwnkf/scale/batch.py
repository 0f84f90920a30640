"""Filter the logs of a fleet: plan, run, and commit."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from .. import load
from ..errors import ConfigError, DataError
from ..extras import need
from .engine import Engine, Item, Loop, RayData
from .filtering import batch_size_for
from .part import PARTS
from .plan import holders, waves
from .reading import Survey, input_files, survey
from .settings import Settings, names_of, put_filter, step_of
from .states import filter_digest
from .store import ATTEMPTS, Store

__all__ = ["BatchResult", "Progress", "batch"]

MANIFEST = "_manifest.json"
FORMAT = 1
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

    @property
    def faults(self) -> list[dict[str, str]]:
        """All samples that were set aside: file, device and reason."""
        return [{"input": part["input"], **fault} for part in self.manifest["parts"] for fault in part["faults"]]


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
    What cannot be filtered is set aside with its reason. Results count when the manifest names them; it is written
    last, in one piece.

    Args:
        input: folder, file or URI (``s3://…``) of Parquet files with many devices, or of logs of any format.
        output: folder or URI of the results, partitioned as the input is.
        filter: folder of a saved filter.
        channels: columns of its measurements, in their order; by default the names of its channels.
        controls: columns of its control inputs.
        device, time_column: columns of a Parquet file that name the device, and the time in seconds or as time stamps.
        stamps: steps by the time stamps, not by the rate of the filter.
        step: seconds of a step, for a filter that counts in steps.
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
        DataError: there is nothing to filter.

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
    manifest, records = _existing(target, settings, resume)
    settings = replace(settings, batch_size=batch_size or manifest.get("settings", {}).get("batch_size", 0))
    listed = dict(input_files(source))
    if not listed:
        raise DataError(f"{input}: no file with a suffix of a log or table; nothing to filter")
    done = {part["input"]: part for part in (*manifest.get("parts", ()), *records)}
    _check_unchanged(done, listed)
    new = {name: size for name, size in listed.items() if name not in done}
    with ThreadPoolExecutor(READERS) as pool:
        surveys = dict(zip(new, pool.map(lambda name: survey(source, name, settings), new), strict=True))
    if not settings.batch_size:
        settings = replace(settings, batch_size=batch_size_for(_most_devices(surveys)))
    _check_settings(manifest, settings, output)
    groups, before = waves(surveys)
    devices, files = _states_index(target, done.values())
    earlier = holders(surveys, devices, files)
    made = {name: part.get("state") for name, part in done.items()}

    state = Progress(parts=len(new))
    report = progress or (lambda _: None)
    if new:
        put_filter(filter, target)
        chosen = _engine(settings, engine, workers, address, surveys)
        state.engine = chosen.name
        try:
            for wave in groups:
                items = []
                for name in wave:
                    states = {made[item] for item in before[name]} | set(earlier[name])
                    items.append(Item(name, new[name], tuple(sorted(path for path in states if path))))
                for record in chosen.run(items):
                    _count(state, record)
                    state.seconds = time.perf_counter() - began
                    done[record["input"]] = record
                    made[record["input"]] = record.get("state")
                    report(state)
        finally:
            chosen.close()
    whole = _commit(target, settings, done)
    state.seconds = time.perf_counter() - began
    notes = [f"{name}: gone from the input since it was filtered" for name in sorted(set(done) - set(listed))]
    return BatchResult(whole, state, tuple(notes))


def _existing(target: Store, settings: Settings, resume: bool) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The manifest of earlier runs, and the records of a run that did not finish."""
    manifest = target.read_json(MANIFEST) if target.exists(MANIFEST) else {}
    records = [target.read_json(name) for name, _ in target.files(PARTS)]
    committed = {part["input"] for part in manifest.get("parts", ())}
    records = [record for record in records if record["input"] not in committed]
    if records and not resume:
        raise ConfigError(
            f"{target.uri} has {len(records)} part(s) of a run that did not finish; go on with --resume, or empty it"
        )
    if manifest and manifest.get("format") != FORMAT:
        raise DataError(f"{target.uri}: {MANIFEST} has format {manifest.get('format')!r}; this version reads {FORMAT}")
    _check_settings(manifest, settings, target.uri)
    return manifest, records


def _check_settings(manifest: Mapping[str, Any], settings: Settings, output: str) -> None:
    if not manifest:
        return
    before, now = manifest["settings"], settings.kept()
    changed = [name for name in before if before[name] != now[name] and not (name == "batch_size" and not now[name])]
    if changed:
        text = "; ".join(f"{name} was {before[name]}, is {now[name]}" for name in changed)
        raise ConfigError(f"{output} holds results with other settings ({text}); use another --output for these")


def _check_unchanged(done: Mapping[str, Mapping[str, Any]], listed: Mapping[str, int]) -> None:
    changed = [name for name, part in done.items() if name in listed and listed[name] != part["size"]]
    if changed:
        raise DataError(
            f"{', '.join(sorted(changed)[:5])}: changed since they were filtered ({len(changed)} file(s)); later "
            "states depend on them: filter everything again into another --output"
        )


def _most_devices(surveys: Mapping[str, Survey | None]) -> int:
    return max((len(item.device) for item in surveys.values() if item is not None), default=1)


def _states_index(target: Store, parts: Any) -> tuple[list[str], list[str]]:
    """Devices, and the file that holds the last state of each."""
    parquet = need("pyarrow.parquet", "scale")
    rows: dict[str, tuple[float, str]] = {}
    for path in sorted({part["state"] for part in parts if part.get("state")}):
        if not target.exists(path):
            continue  # of devices that all have later states
        with target.open(path) as source:
            table = parquet.read_table(source, columns=["device", "time"])
        for device, moment in zip(table.column(0).to_pylist(), table.column(1).to_pylist(), strict=True):
            if device not in rows or moment >= rows[device][0]:
                rows[device] = moment, path
    return list(rows), [path for _, path in rows.values()]


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


def _commit(target: Store, settings: Settings, done: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Write the manifest, then remove what it has made superfluous."""
    parts = [done[name] for name in sorted(done)]
    manifest = {"format": FORMAT, "settings": settings.kept(), "parts": parts}
    target.write_json(MANIFEST, manifest)
    _, files = _states_index(target, parts)
    for path in {part["state"] for part in parts if part.get("state")} - set(files):
        target.delete(path)
    for folder in (PARTS, ATTEMPTS):
        target.delete_folder(folder)
    return manifest


def results(output: str) -> Iterator[dict[str, Any]]:
    """The parts of a finished output, as its manifest names them."""
    store = Store(output)
    if not store.exists(MANIFEST):
        raise DataError(f"{output} has no {MANIFEST}: no run into it has finished")
    yield from store.read_json(MANIFEST)["parts"]
