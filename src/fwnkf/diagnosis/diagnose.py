"""The diagnosis of a log: measure, judge, and say what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import ConfigError, DataError, listed
from ..logs.choice import choose
from ..logs.excerpt import excerpt
from ..logs.log import Log
from .evidence import SIGNALS, Analysed, Evidence, gather
from .finding import Finding
from .notch_settings import notch_settings
from .result import Diagnosis, Trade
from .rules import judge
from .thresholds import THRESHOLDS, Thresholds

if TYPE_CHECKING:
    from ..filters.base import Filter
    from ..types import Frame
    from .truth import Reference


def diagnose(
    log: Log | Frame,
    *,
    filter: Filter | None = None,
    truth: str | Path | None = None,
    fix: bool = False,
    folder: Path | str | None = None,
    thresholds: Thresholds = THRESHOLDS,
    command: str = "",
    columns: Mapping[str, str] | None = None,
) -> Diagnosis:
    """What is wrong with the estimate, with what confidence, and what to do about it.

    Of a long log only parts are examined (:mod:`fwnkf.logs.excerpt`); the notes say so.

    Args:
        log: an open log (:func:`fwnkf.logs.open_log`); or a DataFrame of pandas or polars or a Dataset of xarray, whose
            columns are recognised by name and unit as those of a table are.
        filter: whose innovations to examine; channels are matched by name. By default a filter is fitted to the log:
            a signal with a rate of change and white noise for each channel (:mod:`fwnkf.diagnosis.default_filter`).
        truth: a topic of the log or another file with the true position, orientation or velocity, against which the
            estimates in the log and those of the filter are compared (NEES). By default what the log itself has.
        fix: fit noise states to the first 60 % of the log and compare on the rest.
        folder: where the fitted filter is saved.
        thresholds: of the verdict.
        command: the command line that gives this diagnosis, for the report.
        columns: of a frame, the columns of signals and of the ``"time"`` by these names, where they are called
            otherwise: ``{"gyro_x": "wx*0.0174533", "time": "stamp"}``.

    Returns:
        Findings, the most severe first, and the curves behind them.

    >>> import tempfile
    >>> import numpy as np
    >>> from fwnkf.logs import open_log
    >>> time, generator = np.arange(80) / 100, np.random.default_rng(0)
    >>> gyro = 0.01 * generator.standard_normal((80, 3)) + np.sin(2 * np.pi * 23 * time)[:, None]
    >>> path = Path(tempfile.mkdtemp()) / "bench.csv"
    >>> header = "t [s],gyro_x [rad/s],gyro_y [rad/s],gyro_z [rad/s]"
    >>> np.savetxt(path, np.column_stack((time, gyro)), delimiter=",", header=header, comments="")
    >>> diagnose(open_log(path)).findings[0].cause
    'vibration'
    """
    if not isinstance(log, Log):
        log = _frame_log(log, dict(columns or {}))
    elif columns is not None:
        raise ConfigError("columns=… is for frames; those of a log are named by fwnkf.logs.choose")
    evidence = examine(log, filter=filter, truth=truth, thresholds=thresholds)
    return complete(evidence, judge(evidence), fix=fix, folder=folder, command=command)


def _frame_log(frame: Frame, columns: dict[str, str]) -> Log:
    """A frame as a log of one table."""
    from ..frames import open_frame
    from ..logs.tables import HeldTable

    opened = open_frame(frame, columns.pop("time", ""))
    if opened.time is None:
        raise DataError(
            f"{opened.name}: a diagnosis needs the time of each row, and neither an index nor a column is one "
            f"({listed(opened.units)}); name it: columns={{'time': …}}"
        )
    log = HeldTable(opened.table(), opened.time.seconds, opened.time.start_ns)
    return choose(log, fields=[f"{name}={place}" for name, place in columns.items()])


def examine(
    log: Log,
    *,
    filter: Filter | None = None,
    truth: str | Path | None = None,
    thresholds: Thresholds = THRESHOLDS,
) -> Evidence:
    """What the verdict on a log rests on; see :func:`diagnose`."""
    log = excerpt(log)
    return gather(log, thresholds, filter, _reference(log, truth))


def complete(
    evidence: Evidence,
    findings: tuple[Finding, ...],
    *,
    fix: bool = False,
    folder: Path | str | None = None,
    command: str = "",
) -> Diagnosis:
    """The findings with everything that the report shows: innovations, curves, and the fix."""
    log, thresholds = evidence.log, evidence.thresholds
    inertial = [part for part in evidence.analysed if part.role in SIGNALS]
    cure = None
    if fix and evidence.analysed:
        from .fix import fix as fix_series  # with all that fits a filter

        part = (inertial or list(evidence.analysed))[0]
        try:
            cure = fix_series(part.series, given=part.given, folder=folder, thresholds=thresholds)
        except DataError as error:
            evidence.notes.append(f"--fix: {error}")
    fitted = [part for part in evidence.analysed if _runs(part, evidence)]
    inertial = [part for part in inertial if part in fitted]
    settings, settings_notes = notch_settings(evidence, findings)
    return replace(
        outline(evidence, findings, command=command),
        filter=_described(evidence),
        spectra=tuple(row for part in evidence.analysed for row in part.spectra(innovations=part in fitted)),
        waterfalls=tuple(item for part in evidence.analysed for item in part.waterfalls),
        trades=tuple(item for part in inertial for item in _trades(part, thresholds)),
        fix=cure,
        settings=settings,
        settings_notes=settings_notes,
        allan=tuple(row for part in evidence.analysed for row in part.allan),
        consistency=(
            *(row for part in fitted for row in (*part.consistency, *part.errors)),
            *evidence.logged_errors,
            *evidence.logged,
        ),
        notes=(*log.notes, *evidence.notes),
    )


def _runs(part: Analysed, evidence: Evidence) -> bool:
    """Whether a filter runs on a stream; a note says why not."""
    try:
        part.innovations  # noqa: B018  computed where it is first asked for
    except DataError as error:
        evidence.notes.append(f"{part.role}: {error}")
        return False
    return True


def outline(evidence: Evidence, findings: tuple[Finding, ...], *, command: str = "") -> Diagnosis:
    """The findings without curves: what is printed before a report is drawn."""
    log = evidence.log
    return Diagnosis(
        name=log.path.name,
        format=log.format,
        seconds=evidence.seconds,
        filter=_described(evidence),
        stamps=evidence.stamps,
        findings=findings,
        peaks=evidence.peaks,
        notes=(*log.notes, *evidence.notes),
        facts=_facts(evidence),
        thresholds={
            row.name: f"{row.value:g} {row.unit}: {row.meaning} ({row.source})" for row in evidence.thresholds.table()
        },
        command=command,
    )


def _reference(log: Log, truth: str | Path | None) -> Reference | None:
    """The truth that estimates are compared with; most logs have none, and need nothing that compares."""
    if truth is None and all(source.role != "truth" for source in log.sources()):
        return None
    from .truth import reference

    return reference(log, truth)


def _described(evidence: Evidence) -> str:
    if not evidence.analysed:
        return "none: the log has no signal for a filter"
    if evidence.given:
        model = evidence.analysed[0].filter
        return f"the filter given ({model.name}, {model.layout.size} states)"
    parts = "; ".join(f"{part.stream.name} at {part.series.rate:.4g} Hz" for part in evidence.analysed)
    return f"fitted to the log: a signal with a rate of change and white noise for each channel ({parts})"


def _facts(evidence: Evidence) -> dict[str, float | str]:
    facts: dict[str, float | str] = dict(evidence.log.facts)
    for part in evidence.analysed:
        facts[f"{part.role}_rate_hz"] = part.series.rate
    rotor = evidence.role("rotor")
    if rotor is not None:
        median = np.nanmedian(rotor.stack(), 0)
        facts["rotors"] = ", ".join(f"{value:.3g}" for value in median) + " Hz (median)"
    if evidence.airborne:
        facts["in_the_air_s"] = sum(stop - start for start, stop in evidence.airborne)
    return facts


def _trades(part: Analysed, thresholds: Thresholds) -> list[Trade]:
    """Of the channels with the highest lines."""
    from .default_filter import LINES, channel_models
    from .trade import trade

    names = [waterfall.channel for waterfall in part.waterfalls]
    columns = [part.series.channels.index(name) for name in names]
    series = part.series.columns(columns)
    measured = part.signal._replace(density=part.signal.density[:, columns])
    lowest = min(thresholds.line_lowest, 0.1 * series.rate)
    models = channel_models(series, measured, lines=LINES, lowest_hz=lowest)
    return [trade(name, unit, model) for name, unit, model in zip(series.channels, series.units, models, strict=True)]
