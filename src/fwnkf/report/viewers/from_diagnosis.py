"""What a viewer shows of ``fwnkf diagnose``: findings, signals, innovations, spectrograms, and the pose."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...diagnosis.evidence import Analysed, Evidence
from ...diagnosis.result import ALL_CHANNELS, Diagnosis
from ...diagnosis.scales import ORIENTATION
from ...logs.results import rotation_matrices
from .heat import picture
from .scene import Item, Remark, Signals, Track, around, distinct, east_north_up, safe, split, stem

POSITION = tuple(f"position_{axis}" for axis in "xyz")
NORTH_EAST_DOWN = ("ULog", "DataFlash")
"""Formats of logs whose poses are in north, east, down."""


def diagnosis_items(evidence: Evidence, result: Diagnosis) -> Iterator[Item]:
    """Everything of a diagnosis."""
    first = min((float(part.series.time[0]) for part in evidence.analysed), default=0.0)
    lines = [result.verdict, *(f"**{item.title}.** {item.what} {item.action}" for item in result.first)]
    yield Remark(result.name, "\n\n".join(lines), time=first)
    for finding in result.findings:
        yield Remark(finding.title, f"{finding.what} {finding.evidence} {finding.action}", finding.severity, first)
    for part in evidence.analysed:
        names = part.series.channels
        yield from _signals(part, runs=any(row.kind == "innovation" and row.channel in names for row in result.spectra))
    # by sensor and not by axis, so that a layout fits another log
    for waterfall, name in zip(
        result.waterfalls, distinct([stem(item.channel) for item in result.waterfalls]), strict=True
    ):
        yield picture(waterfall, name)
    for row in result.consistency:
        if row.name == ALL_CHANNELS and len(row.time):
            yield Signals(f"consistency/{safe(row.kind)}", (safe(row.kind),), row.time, row.values[:, None])
    yield from _pose(evidence)


def _signals(part: Analysed, *, runs: bool) -> Iterator[Item]:
    """Measured values beside where the filter expected them; without a filter the values alone."""
    series = part.series
    if not runs:
        yield from split("signal", series.channels, series.time, series.values, units=series.units)
        return
    found = part.innovations
    chosen, std = found.series, np.sqrt(found.variance)
    measured = chosen.values[np.searchsorted(chosen.time, found.time)]
    expected = around(measured - found.values, std)
    yield from split("signal", chosen.channels, found.time, measured, expected, units=chosen.units)
    yield from split("innovation", chosen.channels, found.time, found.values, around(0.0, std), units=chosen.units)


def _pose(evidence: Evidence) -> Iterator[Item]:
    """The pose, or the attitude alone, that the log has."""
    for role in ("pose", "attitude"):
        stream = evidence.entire.get(role)
        if stream is None or not set(ORIENTATION) <= set(stream.columns) or not len(stream):
            continue
        placed = set(POSITION) <= set(stream.columns)
        position = stream.stack(POSITION) if placed else np.zeros((len(stream), 3))
        turn = stream.stack(ORIENTATION)[:, [1, 2, 3, 0]]
        usable = np.isfinite(turn).all(1) & np.isfinite(position).all(1)
        if not usable.any():
            continue
        time, position, turn = stream.time[usable], position[usable], turn[usable]
        if evidence.log.format in NORTH_EAST_DOWN:
            yield Track(safe(role), time, *east_north_up(position, rotation_matrices(turn)), main=True)
        else:
            yield Track(safe(role), time, position, turn, main=True)
        return
