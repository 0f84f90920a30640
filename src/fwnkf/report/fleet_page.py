"""The report on a fleet: the devices that need attention first, from the statistics of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ._style import COLOURS, TRUTH
from .drawing import BAD, canvas, draw, log_ticks
from .page import Cell, Notice, Page, Section, Table
from .wording import number, shorten

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:  # runtime shape checks evaluate annotations, and matplotlib is optional
    Figure = Any

Array = NDArray[np.float64]

ROWS = 50
"""Devices in each table."""
NAME = 40
LEVELS = ((0.5, 2.0), (0.2, 5.0))
"""Intervals of NIS: inside the first a filter is consistent enough, outside the second it is inconsistent."""
LINE = 30.0
"""Power of a line over the median of its spectrum from which it is named: in white noise one in 10⁹ bins has it."""
DRIFT = 0.5
"""Mean of the innovations, in stated standard deviations, from which it is named."""


def fleet_page(
    title: str,
    columns: Mapping[str, NDArray[Any]],
    faults: Sequence[Mapping[str, str]] = (),
    facts: Mapping[str, str] | None = None,
) -> Page:
    """The page of a fleet: consistency, vibration and drift by device, worst first, and the inputs that were skipped.

    Args:
        title: of the page.
        columns: a value for each device: ``device, sessions, samples, flagged, nis, measured, drift, drift_channel,
            peak_hz, peak_ratio, peak_channel``.
        faults: ``input, device, reason`` of inputs that were skipped.
        facts: key figures by name.

    >>> one = {"device": np.array(["a"], object), "nis": np.array([9.0]), "peak_ratio": np.array([3.0])}
    >>> one |= {name: np.ones(1) for name in ("sessions", "samples", "flagged", "measured", "drift", "peak_hz")}
    >>> one |= {name: np.array(["x"], object) for name in ("drift_channel", "peak_channel")}
    >>> "is not consistent" in fleet_page("Fleet", one).html()
    True
    """
    nis = np.asarray(columns["nis"], float)
    count = len(nis)
    (low, high), (least, most) = LEVELS
    with np.errstate(invalid="ignore"):
        wrong = int(((nis < least) | (nis > most)).sum())
        odd = int(((nis < low) | (nis > high)).sum()) - wrong
        loud = int((columns["peak_ratio"] >= LINE).sum())
        drifting = int((np.abs(columns["drift"]) >= DRIFT).sum())
    notices = []
    if wrong:
        notices.append(
            Notice(
                "failure",
                f"The filter is not consistent on {_devices(wrong)} of {count:,}: NIS below {least:g} or above "
                f"{most:g}.",
                {"What to do": "Run `fwnkf diagnose` on a log of the first device in the table below."},
            )
        )
    if faults:
        notices.append(Notice("warning", f"{len(faults):,} inputs were skipped; the reasons are below."))
    if not notices:
        notices.append(Notice("good", f"No problem was found on {_devices(count)}."))
    return Page(
        title=title,
        subtitle=f"{_devices(count)}, {int(np.sum(columns['samples'])):,} samples",
        sections=(
            _consistency(columns, nis, odd, wrong), _vibration(columns, loud), _drift(columns, drifting),
            *([_set_aside(faults)] if faults else []),
        ),
        notices=tuple(notices),
        facts=dict(facts or {}),
    )  # fmt: skip


def _devices(count: int) -> str:
    return f"{count:,} device{'' if count == 1 else 's'}"


def _consistency(columns: Mapping[str, NDArray[Any]], nis: Array, odd: int, wrong: int) -> Section:
    known = nis[np.isfinite(nis) & (nis > 0)]
    drawings = (
        [draw(_histogram(known), "nis", "Number of devices by NIS. Dashed: a consistent filter.")] if len(known) else []
    )
    distance = np.abs(np.log(np.where(nis > 0, nis, np.nan)))
    order = _worst(distance)
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (_name(columns, k), float(nis[k]), int(columns["samples"][k]), int(columns["flagged"][k])) for k in order
    )
    (low, high), (least, most) = LEVELS
    answer = (
        f"NIS is below {least:g} or above {most:g} on {_devices(wrong)}, and below {low:g} or above {high:g} on "
        f"{odd:,} more. Its median over the fleet is {number(float(np.median(known)))}."
        if len(known)
        else "Unknown: there are no innovations of measured channels."
    )
    table = Table(("device", "NIS", "samples", "flagged steps"), rows, "Farthest from 1 first")
    notes = ("NIS above 1: the errors are larger than the filter expects; below 1: smaller.",)
    return Section("On which devices is the filter not consistent?", answer, tuple(drawings), (table,), notes)


def _vibration(columns: Mapping[str, NDArray[Any]], loud: int) -> Section:
    order = _worst(np.asarray(columns["peak_ratio"], float))
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            _name(columns, k), float(columns["peak_hz"][k]), float(columns["peak_ratio"][k]),
            shorten(str(columns["peak_channel"][k]), NAME),
        )
        for k in order
    )  # fmt: skip
    answer = (
        f"The innovations of {_devices(loud)} have a spectral line, at least {LINE:g} times the median of the spectrum."
    )
    table = Table(("device", "frequency (Hz)", "ratio to median", "channel"), rows, "Strongest line first")
    return Section("Which devices vibrate?", answer, (), (table,))


def _drift(columns: Mapping[str, NDArray[Any]], drifting: int) -> Section:
    drift = np.asarray(columns["drift"], float)
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (_name(columns, k), float(drift[k]), shorten(str(columns["drift_channel"][k]), NAME))
        for k in _worst(np.abs(drift))
    )
    answer = (
        f"The mean innovation of {_devices(drifting)} is more than {DRIFT:g} standard deviations in a session; without "
        "drift it is zero."
    )
    table = Table(("device", "mean innovation (σ)", "channel"), rows, "Largest first")
    return Section("Which devices drift?", answer, (), (table,))


def _set_aside(faults: Sequence[Mapping[str, str]]) -> Section:
    kinds = Counter(_kind(fault["reason"]) for fault in faults)
    common = Table(("reason", "inputs"), tuple((kind, count) for kind, count in kinds.most_common()), "By reason")
    rows = tuple((shorten(item["input"], NAME), item["device"] or "–", item["reason"]) for item in faults[: 4 * ROWS])
    table = Table(("input", "device", "reason"), rows, f"The first {len(rows)} of {len(faults):,}")
    answer = f"{len(faults):,} inputs could not be filtered. The other inputs are not affected."
    return Section("Which inputs were skipped?", answer, (), (common, table))


def _kind(reason: str) -> str:
    """A reason without the numbers and names of one input."""
    for words in (
        "time goes backwards", "not finite", "no column", "cannot be read", "order of time", "not numbers", " Hz",
    ):  # fmt: skip
        if words in reason:
            return words.strip() if words != " Hz" else "another rate than the filter"
    return "other"


def _worst(values: Array) -> list[int]:
    """Places of the largest values, those without a value left out."""
    order = np.argsort(np.where(np.isfinite(values), -values, np.inf), kind="stable")
    return [int(k) for k in order[:ROWS] if np.isfinite(values[k])]


def _name(columns: Mapping[str, NDArray[Any]], place: int) -> str:
    return shorten(str(columns["device"][place]), NAME)


def _histogram(nis: Array) -> Figure:
    figure, (axis,) = canvas(height=2.4)
    low, high = min(0.3, float(nis.min())), max(3.0, float(nis.max()))
    axis.hist(np.clip(nis, low, high), bins=np.geomspace(low, high, 41).tolist(), color=COLOURS[0])
    axis.axvline(1.0, color=TRUTH, linestyle="--", linewidth=0.9)
    for edge in LEVELS[1]:
        if low < edge < high:
            axis.axvline(edge, color=BAD, linestyle=":", linewidth=0.9)
    axis.set_xscale("log")
    log_ticks(axis.xaxis, low, high)
    axis.set_yscale("log")
    axis.set_ylim(bottom=0.5)  # a single device has a visible bar
    log_ticks(axis.yaxis, *axis.get_ylim())
    axis.set_xlabel("NIS", fontsize=9)
    axis.set_ylabel("devices", fontsize=9)
    return figure
