"""Folders of training runs: checked when they are read, and compared by mean and standard deviation over seeds.

A run folder may come from anybody: sizes are bounded before reading, every field is checked, nothing is executed.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..errors import CheckpointError, ConfigError, DataError, shown
from ..plain import number
from ..registry import fits
from .rows import Row

__all__ = ["Run", "compare", "read_run"]

FORMAT = 1
RUN_FILE, ROWS_FILE = "run.json", "rows.json"
RUN_LIMIT, ROWS_LIMIT = 1 << 20, 1 << 23
"""Bytes. A description is a page of text, a table of rows a few; anything larger is refused unread."""
ROW_LIMIT, TEXT_LIMIT = 10_000, 10_000
SAME = ("method", "data", "protocol", "scenario", "horizon", "records")
"""What says which figure a row is, beside the seed; everything else that is a number is averaged."""
_FIELDS: dict[str, Any] = {
    "name": str,
    "seed": int,
    "status": Literal["running", "done", "stopped"],
    "experiment": dict[str, Any],
    "versions": dict[str, Any],
    "commit": str | None,
    "data_digest": str,
    "command": str,
    "started": str,
    "cpu_seconds": float,
    "steps": int,
    "parameters": int,
}
_TEST_DIGEST = "test_digest"
"""Without it the digest of all records is taken, which differs between seeds where training records are drawn anew."""


@dataclass(frozen=True)
class Run:
    """What a run folder says: how it was made, and its rows (the trained filter first, then its baselines).

    >>> "rows" in Run.__dataclass_fields__
    True
    """

    folder: Path
    """The folder."""
    name: str
    """Name of the experiment."""
    seed: int
    """Seed of the training."""
    status: Literal["running", "done", "stopped"]
    """Whether training goes on, is done, or was stopped."""
    experiment: dict[str, Any]
    """What was asked for, as plain values."""
    versions: dict[str, Any]
    """Versions of the packages."""
    commit: str | None
    """Commit of the repository, if the run was made in one."""
    data_digest: str
    """Checksum of the training records."""
    test_digest: str
    """Of the test records: runs with equal digests were judged on the same."""
    command: str
    """The command line."""
    started: str
    """When it began."""
    cpu_seconds: float
    """Processor time of the training."""
    steps: int
    """Optimizer steps."""
    parameters: int
    """Number of trained parameters."""
    rows: tuple[Row, ...] = ()
    """Figures of the trained filter, then of the baselines."""

    def model_folder(self, which: Literal["best", "last"] = "best") -> Path:
        """Where the trained filter lies, for :func:`fwnkf.load`.

        Args:
            which: the filter with the best validation, or the last one.

        Returns:
            The folder.
        """
        return self.folder / which


def is_run(folder: str | Path) -> bool:
    """Whether a folder says that it is one of a run."""
    return (Path(folder) / RUN_FILE).is_file()


def read_run(folder: str | Path) -> Run:
    """A run folder, checked field by field; ``rows`` is empty as long as the run has not been evaluated.

    Args:
        folder: the folder.

    Returns:
        What it says.

    Raises:
        CheckpointError: it is not a run folder, or a field does not fit.

    >>> import tempfile
    >>> from fwnkf.errors import CheckpointError
    >>> try:
    ...     read_run(tempfile.mkdtemp())
    ... except CheckpointError as error:
    ...     print("a run is a folder" in str(error))
    True
    """
    folder = Path(folder)
    path = folder / RUN_FILE
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist; a run is a folder that `fwnkf train` has written")
    content = _read_json(path, RUN_LIMIT)
    if not isinstance(content, dict) or content.get("format") != FORMAT or isinstance(content.get("format"), bool):
        version = content.get("format") if isinstance(content, dict) else None
        raise CheckpointError(f"{path}: format {shown(version)}, this version reads {FORMAT}")
    faults = [f"{name} is missing" for name in _FIELDS if name not in content]
    content.setdefault(_TEST_DIGEST, content.get("data_digest"))
    for name, hint in {**_FIELDS, _TEST_DIGEST: str}.items():
        if name in content and not fits(content[name], hint):
            faults.append(f"{name} = {shown(content[name])} does not fit; wanted {getattr(hint, '__name__', hint)}")
    if not faults:  # NaN is no amount either
        counts = ("seed", "cpu_seconds", "steps", "parameters")
        faults += [f"{name} = {shown(content[name])} is no amount" for name in counts if not 0 <= content[name] < 2**63]
    if faults:
        raise CheckpointError(f"{path}: " + "; ".join(faults))
    values = {name: content[name] for name in (*_FIELDS, _TEST_DIGEST)}
    return Run(folder, **values, rows=_read_rows(folder / ROWS_FILE))


def _read_rows(path: Path) -> tuple[Row, ...]:
    if not path.is_file():
        return ()
    content = _read_json(path, ROWS_LIMIT)
    if not isinstance(content, list) or len(content) > ROW_LIMIT:
        raise DataError(f"{path}: wanted a list of at most {ROW_LIMIT:,} rows")
    for at, row in enumerate(content):
        if not isinstance(row, dict) or not isinstance(row.get("method"), str):
            raise DataError(f"{path}, row {at}: wanted names with values, `method` among them")
        for name, value in row.items():
            items = value if isinstance(value, list) else [value]
            if len(name) > TEXT_LIMIT or not all(_is_plain(item) for item in items):
                raise DataError(f"{path}, row {at}: {shown(name)} = {shown(value)} is no number, word or list of such")
        for name in ("data", "protocol", "scenario"):
            if not isinstance(row.get(name, ""), str | None):
                raise DataError(f"{path}, row {at}: {name} = {shown(row[name])} is no word")
    return tuple({name: value if name in SAME else number(value) for name, value in row.items()} for row in content)


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= TEXT_LIMIT
    if isinstance(value, int):
        return abs(value) < 2**63
    return value is None or isinstance(value, float)


def _read_json(path: Path, limit: int) -> Any:
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > limit:
        raise DataError(f"{path} is larger than {limit:,} bytes; that is no file of a run")
    try:
        return json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # damaged text, damaged JSON, numbers of thousands of digits
        raise DataError(f"{path} is not JSON: {str(error)[:160]}; it is damaged, or was cut short") from error


# ---- side by side ---------------------------------------------------------------------------------------------------


def compare(folders: Iterable[str | Path]) -> list[Row]:
    """Runs of one experiment as one row each, with mean and sample standard deviation over seeds; then baselines.

    Runs belong together when their experiments are equal apart from ``name`` and ``seed``. Every figure ``mse`` of the
    trained filter's row has ``mse_std`` beside it, None for a single run. Rows that share data, protocol, scenario and
    horizon stand together, followed once by the baselines of the runs. Where they were not judged on
    the same test records, or for other reasons do not compare, ``note`` says so.

    Args:
        folders: run folders.

    Returns:
        Rows of a table.

    Raises:
        ConfigError: no folder is given.
        DataError: a run has not been evaluated.

    >>> from fwnkf.errors import ConfigError
    >>> try:
    ...     compare([])
    ... except ConfigError as error:
    ...     print(error)
    name at least one run folder
    """
    runs = [read_run(folder) for folder in {Path(folder).resolve(): folder for folder in folders}.values()]
    if not runs:
        raise ConfigError("name at least one run folder")
    for run in runs:
        if not run.rows:
            raise DataError(
                f"{run.folder} has no {ROWS_FILE} (status: {run.status}): finish the run, or score its filter with "
                f"`fwnkf evaluate {run.folder}`"
            )
    tables: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        tables.setdefault(tuple(run.rows[0].get(name) for name in SAME[1:5]), []).append(run)
    return [row for members in tables.values() for row in _table(members)]


def _table(runs: list[Run]) -> list[Row]:
    digests = list(dict.fromkeys(run.test_digest for run in runs))
    groups: dict[str, list[Run]] = {}
    for run in runs:
        settings = {name: value for name, value in run.experiment.items() if name not in ("name", "seed")}
        groups.setdefault(json.dumps(settings, sort_keys=True), []).append(run)
    rows = [_over_seeds(members) for members in groups.values()]
    references: dict[str, tuple[Row, str]] = {}
    for run in runs:
        for row in run.rows[1:]:
            references.setdefault(row["method"], (row, run.test_digest))
    rows += [{**row, "seeds": None, "runs": None, "digests": [digest]} for row, digest in references.values()]
    if len(digests) > 1:
        for row in rows:
            mine = ", ".join(digest[:12] for digest in row["digests"])
            _note(row, f"the rows of this table were not judged on the same test records; these: {mine}")
    return rows


def _over_seeds(runs: list[Run]) -> Row:
    firsts = [run.rows[0] for run in runs]
    row: Row = {name: firsts[0].get(name) for name in SAME if any(name in first for first in firsts)}
    row["method"] = ", ".join(dict.fromkeys(first["method"] for first in firsts))
    row |= {"seeds": [run.seed for run in runs], "runs": len(runs)}
    measured: list[Row] = [
        {**first, "cpu_seconds": run.cpu_seconds, "steps": run.steps, "parameters": run.parameters}
        for first, run in zip(firsts, runs, strict=True)
    ]
    for name in dict.fromkeys(name for one in measured for name in one):
        if name not in (*SAME, "seed") and any(_is_figure(one.get(name)) for one in measured):
            row[name], row[f"{name}_std"] = mean_and_std([one.get(name) for one in measured])
    row |= {
        "command": runs[0].command,
        "commands": [run.command for run in runs],
        "digests": list(dict.fromkeys(run.test_digest for run in runs)),
    }
    twice = sorted({seed for seed in row["seeds"] if row["seeds"].count(seed) > 1})
    if twice:
        _note(row, f"seed {', '.join(map(str, twice))} more than once: the spread over seeds comes out too small")
    if len({first.get("records") for first in firsts}) > 1:
        _note(row, f"numbers of records differ: {', '.join(str(first.get('records')) for first in firsts)}")
    for status in ("running", "stopped"):
        early = [str(run.seed) for run in runs if run.status == status]
        if early:
            _note(row, f"seed {', '.join(early)}: {status}, not done")
    return row


def mean_and_std(values: Sequence[Any]) -> tuple[float | None, float | None]:
    """Mean and sample standard deviation; None where a run has no such figure, or for the spread of a single one.

    >>> mean_and_std([1.0, 2.0, 6.0])
    (3.0, 2.6457513110645907)
    """
    if not all(_is_figure(value) for value in values):
        return None, None
    if not all(math.isfinite(value) for value in values):  # a failure is never averaged away
        return sum(values), None
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


def _is_figure(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _note(row: Row, text: str) -> None:
    row["note"] = f"{row['note']}; {text}" if row.get("note") else text
