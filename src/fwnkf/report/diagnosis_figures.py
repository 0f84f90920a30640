"""Figures of a diagnosis in the width of a phone: spectra with named lines, waterfall, consistency, Allan, trade."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..diagnosis.result import AllanDeviation, ChannelSpectrum, Consistency, Peak, Trade, Waterfall
from ..extras import need
from ._style import COLOURS, DOTS, TRUTH, line, log_scale
from .drawing import BAD, canvas, legend, log_ticks, thin
from .spectrogram import raster
from .wording import number, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:  # runtime shape checks evaluate annotations, and matplotlib is optional
    Axes = Figure = Any

Array = NDArray[np.float64]

LABELS = 4
"""Lines of a spectrum that are labelled in the figure; the table has all of them."""
APART = 0.16
"""Share of the width of a figure between labels, at least: a label is up to 0.14 wide."""
LOG_ABOVE = 700.0
"""Hz. Spectra that go further have a logarithmic frequency axis, because most of what matters is below."""
TRACK = "#00e5ff"
"""Colour of tracks above a waterfall; it is in no part of the colour map."""
MARGIN = 1.25
"""Factor by which a mean may lie outside its band, which becomes narrow for long logs, without being marked."""
NAME = 22
"""Characters of a name in a figure."""


def spectra(channels: Sequence[ChannelSpectrum], peaks: Sequence[Peak] = ()) -> Figure:
    """Noise density of channels with one unit and labels at strong lines; dashes are what a consistent filter has."""
    figure, (axis,) = canvas(height=2.9)
    log = _frequency_axis(axis, channels)
    for k, channel in enumerate(channels):
        x, y = thin(channel.frequency, np.sqrt(channel.density), log=log)
        axis.plot(x, _positive(y), label=shorten(channel.channel, NAME), **{**line(k), "linewidth": 1.0})
        if channel.white is not None:
            axis.axhline(np.sqrt(channel.white), linestyle="--", linewidth=0.9, color=COLOURS[k % len(COLOURS)])
    _density_axis(axis, channels)
    _label_peaks(axis, channels, peaks, log)
    legend(figure, axis)
    return figure


def before_after(before: ChannelSpectrum, after: ChannelSpectrum) -> Figure:
    """Innovations of one channel in units of what each filter states: a consistent filter is flat at one."""
    figure, (axis,) = canvas(height=2.7)
    log = _frequency_axis(axis, (before, after))
    for k, (name, channel) in enumerate((("before", before), ("after", after))):
        scale = np.sqrt(channel.white) if channel.white else 1.0
        x, y = thin(channel.frequency, np.sqrt(channel.density) / scale, log=log)
        axis.plot(x, _positive(y), label=name, **{**line(1 - k), "linewidth": 1.1})
    axis.axhline(1.0, color=TRUTH, linewidth=0.9, linestyle="--", label="consistent")
    _log_values(axis)
    both = before.white and after.white
    axis.set_ylabel("innovation / expected" if both else f"{_unit(before.unit)}/√Hz", fontsize=9)
    axis.set_title(shorten(before.channel, 2 * NAME), fontsize=9.5)
    legend(figure, axis)
    return figure


def waterfall(result: Waterfall) -> Figure:
    """Noise density over time as colour, with the tracks of possible sources as dashes."""
    figure, (axis,) = canvas(height=3.2)
    image, extent = raster(result)
    finite = image[np.isfinite(image)]
    low, high = (float(np.quantile(finite, q)) for q in (0.2, 0.999)) if finite.size else (0.0, 1.0)
    shown = axis.imshow(
        image, extent=extent, origin="lower", aspect="auto", interpolation="none", cmap="inferno", vmin=low, vmax=high
    )
    axis.grid(False)
    for time, frequency in result.tracks.values():
        for part in _pieces(time):
            axis.plot(*_course(time[part], frequency[part]), color=TRACK, linewidth=0.9, linestyle=(0, (3, 3)))
    axis.set_xlim(extent[:2])
    axis.set_ylim(0 if extent[2] < 0.1 * extent[3] else extent[2], extent[3])
    axis.set_xlabel("time (s)", fontsize=9)
    axis.set_ylabel("frequency (Hz)", fontsize=9)
    bar = figure.colorbar(shown, ax=axis, pad=0.02, aspect=30)
    bar.ax.collections[0].set_rasterized(True)
    bar.ax.spines[:].set_visible(False)
    ticks = _round_levels(low, high)
    bar.set_ticks([float(np.log10(level)) for level in ticks], labels=[number(level) for level in ticks])
    bar.ax.minorticks_off()
    bar.ax.tick_params(labelsize=8.5)
    bar.set_label(f"{_unit(result.unit)}/√Hz", fontsize=9)
    axis.set_title(shorten(result.channel, 2 * NAME), fontsize=9.5)
    return figure


def is_consistent(row: Consistency) -> bool:
    """Whether a mean is within its band, or outside by less than the tolerance."""
    return row.low / MARGIN <= row.mean <= row.high * MARGIN


def consistency(rows: Sequence[Consistency]) -> Figure:
    """Mean of every row beside the interval of a consistent filter."""
    figure, (axis,) = canvas(height=0.27 * len(rows) + 1.15)
    values = [value for row in rows for value in (row.mean, row.low, row.high) if np.isfinite(value) and value > 0]
    low, high = (min(values), max(values)) if values else (0.1, 10.0)
    low, high = low / 1.6, high * 1.6
    for place, row in enumerate(rows):
        axis.plot([max(row.low, low), min(row.high, high)], [place, place], color=DOTS, linewidth=7, alpha=0.45)
        inside = is_consistent(row)
        mean = min(max(row.mean, low), high)
        axis.plot([mean], [place], "o" if inside else "X", color=COLOURS[0] if inside else BAD, markersize=7)
    axis.set_yticks(range(len(rows)), [shorten(row.name, NAME) for row in rows])
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set_xscale("log")
    log_ticks(axis.xaxis, low, high)
    axis.set_xlim(low, high)
    kinds = dict.fromkeys(shorten(row.kind, 10) for row in rows)
    axis.set_xlabel(f"← underconfident · {', '.join(list(kinds)[:2])} · overconfident →", fontsize=9)
    return figure


def consistency_over_time(rows: Sequence[Consistency]) -> Figure:
    """The course of each row, smoothed over a fiftieth of the log, with the value of a consistent filter."""
    figure, axes = canvas(rows=len(rows), height=1.25 * len(rows) + 0.6)
    for axis, row in zip(axes, rows, strict=True):
        usable = np.isfinite(row.values)
        time, values = row.time[usable], row.values[usable]
        window = max(1, len(values) // 50)
        if window > 4:
            kernel = np.ones(window) / window
            axis.plot(*thin(time, _positive(values)), color=DOTS, linewidth=0.4, alpha=0.3)
            time, values = time[window // 2 :][: len(values) - window + 1], np.convolve(values, kernel, "valid")
        axis.plot(*thin(time, _positive(values)), color=COLOURS[0], linewidth=1.4)
        middle = np.sqrt(row.low * row.high) if row.low > 0 else row.high
        axis.axhline(middle, color=TRUTH, linewidth=0.9, linestyle="--")
        if len(values):
            axis.set_yscale("log")
            low, high = float(np.min(values)), float(np.max(values))
            low, high = max(min(low, middle) / 2, 1e-12), max(high, middle) * 2
            axis.set_ylim(low, high)
            log_ticks(axis.yaxis, low, high)
        axis.set_title(f"{shorten(row.kind, 10)}: {shorten(row.name, 36)}", fontsize=9.5, loc="left")
    axes[-1].set_xlabel("time (s)", fontsize=9)
    return figure


def allan(rows: Sequence[AllanDeviation]) -> Figure:
    """Allan deviation of channels with one unit over the averaging time."""
    figure, (axis,) = canvas(height=2.8)
    for k, row in enumerate(rows):
        axis.plot(*thin(row.tau, _positive(row.deviation), log=True), label=shorten(row.channel, NAME), **line(k))
    axis.set_xscale("log")
    log_ticks(axis.xaxis, *axis.get_xlim())
    _log_values(axis)
    axis.set_xlabel("averaging time (s)", fontsize=9)
    axis.set_ylabel(f"Allan deviation ({_unit(rows[0].unit)})", fontsize=9)
    legend(figure, axis)
    return figure


def trade(result: Trade) -> Figure:
    """Error of the estimate against its delay: further down and left is better."""
    figure, (axis,) = canvas(height=2.5 + 0.19 * (len(result.curves) + len(result.marks)))
    for k, (name, (delay, error)) in enumerate(result.curves.items()):
        axis.plot(delay, error, marker=".", label=shorten(name, 36), **line(k))
    for k, (name, mark) in enumerate(result.marks.items()):
        axis.plot(*mark, "sD^vP"[k % 5], color=TRUTH, markersize=6, label=shorten(name, 36))
    low, high = axis.get_ylim()
    errors = [value for _, error in result.curves.values() for value in error if value > 0]
    if errors and max(errors) > 8 * min(errors):
        _log_values(axis)
    else:
        axis.set_ylim(min(0.0, low), high)
        axis.yaxis.set_major_formatter(lambda value, _: number(value))
    axis.set_xlabel("delay (ms)", fontsize=9)
    axis.set_ylabel(f"error ({_unit(result.unit)})", fontsize=9)
    axis.set_title(shorten(result.channel, 2 * NAME), fontsize=9.5)
    legend(figure, axis)
    return figure


# ---- helpers --------------------------------------------------------------------------------------------------------


def _frequency_axis(axis: Axes, channels: Sequence[ChannelSpectrum]) -> bool:
    """Set up the frequency axis; whether it is logarithmic."""
    top = max((float(channel.frequency[-1]) for channel in channels if len(channel.frequency)), default=1.0)
    log = top > LOG_ABOVE
    axis.set_xlabel("frequency (Hz)", fontsize=9)
    if log:
        low = max(min(float(channel.frequency[channel.frequency > 0][0]) for channel in channels), top / 2000)
        axis.set_xscale("log")
        axis.set_xlim(low, top)
        log_ticks(axis.xaxis, low, top)
    else:
        axis.set_xlim(0, top)
    return log


def _density_axis(axis: Axes, channels: Sequence[ChannelSpectrum]) -> None:
    """Limits that are not spoilt by a single small value, such as that at zero frequency."""
    values = [np.sqrt(channel.density[channel.density > 0]) for channel in channels]
    values = [value[np.isfinite(value)] for value in values]
    values = [value for value in values if value.size]
    if values:
        low = min(float(np.quantile(value, 0.01)) for value in values)
        high = max(float(value.max()) for value in values)
        axis.set_ylim(low / 1.5, high * 1.5)
    _log_values(axis)
    axis.set_ylabel(f"noise density ({_unit(channels[0].unit)}/√Hz)", fontsize=9)


def _label_peaks(axis: Axes, channels: Sequence[ChannelSpectrum], peaks: Sequence[Peak], log: bool) -> None:
    """Frequencies of the strongest lines, strongest first, as long as labels do not cover each other."""
    names = {channel.channel for channel in channels}
    low, high = axis.get_xlim()
    places: list[float] = []
    for peak in sorted(peaks, key=lambda peak: -peak.ratio):
        if peak.channel not in names or len(places) >= LABELS or not low < peak.frequency <= high:
            continue
        share = np.log(peak.frequency / low) / np.log(high / low) if log else (peak.frequency - low) / (high - low)
        if any(abs(share - place) < APART for place in places):
            continue
        places.append(float(share))
        side = "left" if share < 0.1 else "right" if share > 0.9 else "center"
        # above the axes: nothing is drawn there that a label could cover
        axis.annotate(
            number(peak.frequency, "Hz"),
            (peak.frequency, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3),
            textcoords="offset points",
            ha=side,
            fontsize=8.5,
            annotation_clip=False,
        )
        axis.axvline(peak.frequency, color=DOTS, linewidth=0.7, linestyle=":", zorder=0.5)


def _round_levels(low: float, high: float) -> list[float]:
    """A few round numbers between ``10**low`` and ``10**high``."""
    for steps in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0)):
        levels = [step * 10.0**power for power in range(int(np.floor(low)), int(np.ceil(high)) + 1) for step in steps]
        levels = [level for level in levels if low <= np.log10(level) <= high]
        if len(levels) >= 3:
            break
    return levels


def _log_values(axis: Axes) -> None:
    """Logarithmic values with plain numbers, without minor ticks, which are most of the size and time of a figure."""
    log_scale(axis)
    axis.yaxis.set_major_formatter(lambda value, _: number(value))
    axis.yaxis.set_minor_locator(need("matplotlib.ticker", extra="plot").NullLocator())


def _pieces(time: Array) -> list[slice]:
    """Parts of a series without gaps, so that no line is drawn across one."""
    steps = np.diff(time)
    cuts = (np.flatnonzero(steps > 4 * np.median(steps)) + 1).tolist() if len(steps) else []
    return [slice(start, stop) for start, stop in zip([0, *cuts], [*cuts, len(time)], strict=True)]


def _unit(name: str) -> str:
    return shorten(name, 14)


def _course(time: Array, values: Array, points: int = 150) -> tuple[Array, Array]:
    """Medians over short times: where a source is, without the noise of its sensor, which would hide what is below."""
    if len(time) <= points:
        return time, values
    cuts = np.linspace(0, len(time), points + 1).astype(np.int64)
    parts = [slice(start, stop) for start, stop in pairwise(cuts)]
    return np.array([np.median(time[part]) for part in parts]), np.array([np.median(values[part]) for part in parts])


def _positive(values: Array) -> Array:
    return np.where(values > 0, values, np.nan)
