"""Samples of many devices as rows, checked and cut into segments that a filter runs over without a break."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..logs.clock import RATE_TOLERANCE
from ..runtime.recordings import starts_anew
from .states import Snapshots

Array = NDArray[np.float64]
Index = NDArray[np.int64]

LEAST_FINITE = 0.5
"""Share of finite values below which the samples of a device are set aside: a sensor that failed, not gaps."""
LEAST_FOR_RATE = 8
"""Steps from which a rate is compared with that of the filter."""


class Samples(NamedTuple):
    """Rows of a file, those of a device one after the other."""

    devices: NDArray[np.object_]
    """Their names, ``[D]``."""
    first: Index
    """``[D + 1]``: the row at which each device begins, and the number of rows."""
    time: Array
    """``[rows]`` seconds."""
    values: NDArray[Any]
    """``[rows, channels + controls]``; NaN is missing."""

    def of_row(self) -> Index:
        """The device of each row."""
        return np.repeat(np.arange(len(self.devices)), np.diff(self.first))


class Fault(NamedTuple):
    """Samples that were set aside."""

    device: str
    reason: str


class Clock(NamedTuple):
    """How rows become steps of a filter."""

    step: float | None
    """Seconds of a step of the filter; None for a filter without a time step: every row is one step."""
    stamps: bool
    """Whether steps have the length that the time stamps say, divided where samples are missing."""


class Segments(NamedTuple):
    """Stretches that a filter runs over without a break, in the order of the rows."""

    device: Index
    """``[S]``: place in ``Samples.devices``."""
    first: Index
    """``[S + 1]``, of the rows that are used."""
    rows: Index
    """Rows of the samples that are used."""
    step: Index
    """Of each used row: its step within the segment, missing samples counted."""
    spacing: Array
    """Of each used row: seconds of each of the steps since the row before."""
    start: Index
    """``[S]``: place of the state it goes on from in the snapshots; -1 where the filter starts anew."""
    last: NDArray[np.bool_]
    """``[S]``: whether its state is that of the device after these samples."""

    @property
    def steps(self) -> Index:
        """Steps of each segment."""
        return self.step[self.first[1:] - 1] + 1


def group(names: NDArray[Any], codes: Index, time: Array, values: NDArray[Any]) -> Samples:
    """Rows with the rows of each device together, in their order in the file; devices in that of their names."""
    order = np.argsort(codes, kind="stable")
    if not np.array_equal(order, np.arange(len(order))):
        codes, time, values = codes[order], time[order], values[order]
    first = np.append(np.flatnonzero(np.diff(codes, prepend=-1)), len(codes))
    return Samples(names[codes[first[:-1]]], first, time, values)


def cut(
    samples: Samples, channels: int, clock: Clock, known: Snapshots | None, initial_steps: int = 0
) -> tuple[Segments, list[Fault]]:
    """Segments of all devices whose samples are in order, and the others with the reason.

    Which steps a row stands for depends on the row before alone, so that a log cut into chunks gives the same steps.
    """
    devices = samples.of_row()
    start = np.full(len(samples.devices), -1)
    since = np.full(len(samples.devices), np.nan)
    if known is not None and len(known.device):
        order = np.argsort(known.device.astype(str))
        place = np.searchsorted(known.device[order].astype(str), samples.devices.astype(str))
        place = order[np.minimum(place, len(order) - 1)]
        start = np.where(known.device[place] == samples.devices, place, -1)
        since = np.where(start >= 0, known.time[place], np.nan)
    before = np.concatenate([[np.nan], samples.time[:-1]])
    begins = samples.first[:-1]
    before[begins] = since
    spacing = samples.time - before
    reasons = _faults(samples, channels, clock, spacing, since)
    good = np.array([reason is None for reason in reasons], bool)
    used = np.flatnonzero(good[devices])
    spacing, owner = spacing[used], devices[used]
    new = starts_anew(spacing)
    if clock.step is None:
        counts = np.ones(len(used), np.int64)
    else:
        counts = np.where(new, 1, np.maximum(np.rint(np.where(new, 0, spacing) / clock.step), 1)).astype(np.int64)
        spacing = np.where(new, clock.step, spacing) / counts
    boundary = new | (np.diff(owner, prepend=-1) != 0)
    opening = np.flatnonzero(boundary)
    first = np.append(opening, len(used))
    total = np.cumsum(counts)
    number = np.cumsum(boundary) - 1
    step = total - (total[opening] - counts[opening])[number] - 1
    owners = owner[opening]
    segments = Segments(
        owners, first, used, step, spacing, np.where(new[opening], -1, start[owners]),
        np.append(owners[1:] != owners[:-1], len(owners) > 0) if len(owners) else np.zeros(0, bool),
    )  # fmt: skip
    short = (segments.start < 0) & (segments.steps < initial_steps)
    for place in dict.fromkeys(segments.device[short].tolist()):
        reasons[place] = f"the filter starts from {initial_steps} steps, and a stretch of these samples is shorter"
    faults = [Fault(str(samples.devices[k]), reason) for k, reason in enumerate(reasons) if reason is not None]
    if short.any():
        keep = np.array([reason is None for reason in reasons], bool)[segments.device]
        segments = _kept(segments, keep)
    return segments, faults


def _kept(segments: Segments, keep: NDArray[np.bool_]) -> Segments:
    lengths = np.diff(segments.first)
    rows = np.repeat(keep, lengths)
    return Segments(
        segments.device[keep], np.append(0, np.cumsum(lengths[keep])), segments.rows[rows], segments.step[rows],
        segments.spacing[rows], segments.start[keep], segments.last[keep],
    )  # fmt: skip


def _faults(samples: Samples, channels: int, clock: Clock, spacing: Array, since: Array) -> list[str | None]:
    """Why the samples of a device cannot be filtered, for each device."""
    begins = samples.first[:-1]
    count = np.diff(samples.first)
    reasons: list[str | None] = [None] * len(count)

    def put(where: NDArray[np.bool_], text: Any) -> None:
        for place in np.flatnonzero(where):
            if reasons[place] is None:
                reasons[place] = text(place)

    if not len(count):
        return reasons

    def total(values: Any) -> Array:
        return np.add.reduceat(np.asarray(values, float), begins)

    put(np.array([name is None or name == "" for name in samples.devices]), lambda k: "rows without a device")
    put(total(~np.isfinite(samples.time)) > 0, lambda k: f"{_count(samples, k, ~np.isfinite(samples.time))} of "
        f"{count[k]:,} time stamps are missing or not finite")  # fmt: skip
    later = spacing > 0
    first = samples.time[begins]
    with np.errstate(invalid="ignore"):
        put(first <= since, lambda k: f"begins at {first[k]:.6f} s, but this device was filtered up to {since[k]:.6f} "
            "s: chunks must come in the order of time; filter all of them again into another output")  # fmt: skip
    back = ~later
    back[begins] = False
    put(total(back) > 0, lambda k: _backwards(samples, k, back))
    finite = np.isfinite(samples.values[:, :channels])
    share = total(finite.mean(1)) / count
    put(share < LEAST_FINITE, lambda k: f"{100 * (1 - share[k]):.0f} % of the values are not finite")
    if clock.step is not None and not clock.stamps:
        inner = spacing.copy()
        inner[begins] = np.nan
        with np.errstate(invalid="ignore"):
            ratio = inner / clock.step
            near = ratio < 1.5
        regular = total(near)
        mean = total(np.where(near, ratio, 0.0)) / np.maximum(regular, 1)
        off = (count > LEAST_FOR_RATE) & ((regular < 0.5 * count) | (np.abs(mean - 1) > RATE_TOLERANCE))

        def rate(k: int) -> str:
            part = inner[samples.first[k] + 1 : samples.first[k + 1]]
            found = 1 / float(np.median(part))
            return (
                f"samples at {found:.5g} Hz, but the filter has {1 / (clock.step or 1):.5g} Hz; resample, or --stamps"
            )

        put(off, rate)
    return reasons


def _count(samples: Samples, place: int, where: NDArray[np.bool_]) -> str:
    return f"{int(where[samples.first[place] : samples.first[place + 1]].sum()):,}"


def _backwards(samples: Samples, place: int, back: NDArray[np.bool_]) -> str:
    low, high = samples.first[place], samples.first[place + 1]
    row = low + int(np.flatnonzero(back[low:high])[0])
    return (
        f"time goes backwards at sample {row - low}: {samples.time[row]:.6f} s after {samples.time[row - 1]:.6f} s "
        f"({int(back[low:high].sum())} such samples)"
    )
