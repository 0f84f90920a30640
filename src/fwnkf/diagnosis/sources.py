"""Where the power of a log comes from: one source after the other, the strongest first, each taken out before the next.

A source is a rotor with its orders, a line that moves with a motor command or by itself, a line at a constant
frequency, or a resonance. Each is a hypothesis about the frequency of a line over time, and the likelihood that it
gains decides (:mod:`fwnkf.diagnosis.plane`): a line is at a constant frequency only if no order of a rotor explains it
as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .orders import at_samples, fold, order_strength
from .paths import best_path, held_out_centre, held_out_path
from .plane import Plane, plane
from .spectra import Grid, detrended
from .thresholds import THRESHOLDS, Thresholds

Array = NDArray[np.float64]
Track = tuple[Array, Array]
"""Times and values, ``[samples]`` and ``[samples, rotors]``."""
Kind = Literal["rotor", "sweep", "fixed", "resonance", "none"]
"""``none`` is neither: the skirt of the motion, or the shape of the noise."""

SECONDS = (1.0, 0.5, 0.25)
"""Windows: long ones for lines that are weak or close together, short ones for lines that move fast."""
ORDERS = (1.0, 2.0, 3.0, 4.0)
"""Multiples of the speed of a rotor that are tried."""
FIRST = 3
"""Of these, the first so many can be the strongest line of a rotor."""
MOST = 10
"""Sources of one log, at most."""
NARROW = ("rotor", "command", "sweep", "fixed")
"""Hypotheses about one line; a smear and a resonance are broader."""
SHIFTS = 12
"""Shifts in time of a rotor's speed that show what chance does."""
LEAST = 1.8
"""Mean power of the cells of a line over that of the floor, in one channel at least."""
BAND = 0.3
"""Half-width, over its frequency, of the band around a line in which hypotheses about it are compared."""
MOTION = 1.5
"""Times the lowest frequency of a line, below which an order says nothing: it passes through the motion."""
FAST = 0.1
"""Change of a rotor's speed within a window, over the speed, above which the window says nothing about its orders."""
PERSISTENT = 0.3
"""Share of the time in which a line has a fifth of its mean power, at least: what is shorter is motion, or a shock."""
GATHERED = 0.6
"""Share of the power of a smear that is along a path, from which it is a line."""
WHOLE = 1.4
"""Gain of a path through all frequencies over that of one inside a band, from which a line leaves the band."""
LONGER = 0.8
"""Likelihood of a line in longer windows, over that in the best ones, from which the longer ones are taken."""
UNCLEAR = 0.15
"""Relative difference of likelihoods up to which the scatter of log power decides whether a line moves."""
STEADIER = 1.2
"""That scatter at constant frequencies over that beside the path, from which it does."""
SHARP = 3.2
"""Width of a sharp line at half power, in bins of a Hann window, at most; the window alone has 1.4."""
FINE = 4.0
"""Seconds of the segments of the finest spectrum, where the log is long enough."""
BROADEST = 0.3
"""Width of a hump over its frequency from which it is no line and no resonance: motion, or the shape of the noise."""
TOLERANCE = 0.004
"""Relative error of logged rotor speeds."""


@dataclass(frozen=True, eq=False)
class Line:
    """One order of a source."""

    order: float
    """Multiple of the frequency of the source."""
    time: Array
    track: Array
    """Hz over time, as it appears in the log."""
    frequency: float
    """Hz, where the power is."""
    origin: float | None
    """Hz before it was folded at the Nyquist frequency, where it was."""
    spread: float
    """Hz, standard deviation of the frequency over time."""
    width: float
    """Hz, at half power."""
    amplitude: Array
    """Of each channel: of a sine with the power of the line."""
    ratio: Array
    """Of each channel: power of the line's cells over that of the floor."""
    gain: float
    share: float = 1.0
    """Share of the time in which it has its usual power."""


@dataclass(frozen=True, eq=False)
class Source:
    """One cause of power in the spectra, with everything that it explains."""

    kind: Kind
    lines: tuple[Line, ...]
    """The strongest first."""
    rotor: int | None = None
    """From 1."""
    motor: int | None = None
    """Whose command it follows, from 1; 0 for the mean of all."""
    correlation: float | None = None
    """Of the frequency with that of the rotor, or with the command."""
    margin: float = 0.0
    """Log-likelihood over that of the best hypothesis of another kind, as a share of its own."""


class Hypothesis(NamedTuple):
    """Where a line might be over time, in the windows of one plane."""

    kind: Kind
    track: Array
    half: Array | float
    gain: float
    rotor: int | None = None
    order: float = 1.0
    motor: int | None = None
    correlation: float | None = None


ABSENT = -1e9
"""Frequency of a line in windows in which it is not."""
_NONE = Hypothesis("fixed", np.zeros(0), 0.0, 0.0)


@dataclass(eq=False)
class _Search:
    """What is searched: planes of the same samples, and the speeds and commands beside them."""

    grid: Grid
    planes: list[Plane]
    rotor: Track | None
    motor: Track | None
    thresholds: Thresholds
    sources: list[Source] = field(default_factory=list)

    def run(self) -> list[Source]:
        """All sources, the strongest first."""
        while len(self.sources) < MOST:
            found = self._next()
            if found is None:
                break
            self.sources.append(found)
        return [source for source in self.sources if source.kind != "none"]

    def _next(self) -> Source | None:
        """The source that explains most of what is left; None where nothing stands out."""
        tried: list[tuple[Plane, Hypothesis]] = []
        for area in self.planes:
            for item in (*self._orders(area), *_constants(area), *_paths(area)):
                tried.append((area, item))
        if not tried:
            return None
        area, top = max(tried, key=lambda pair: pair[1].gain)
        if top.gain < self.thresholds.line_gain or area.along(top.track, top.half)[0].mean(0).max() < LEAST:
            return None
        return self._judged(area, top)

    # ---- hypotheses -------------------------------------------------------------------------------------------------

    def _orders(self, area: Plane) -> Iterator[Hypothesis]:
        if self.rotor is None:
            return
        for number in range(self.rotor[1].shape[1]):
            for order in ORDERS[:FIRST]:
                yield self._order(area, number, order)

    def _order(self, area: Plane, number: int, order: float, shift: float = 0.0) -> Hypothesis:
        """An order of a rotor, where it is above the motion."""
        track, half = self._order_track(area, number, order, shift)
        clear = (track > MOTION * area.lowest) & (track < area.rate / 2 - 0.5 * area.resolution)
        track = np.where(clear, track, ABSENT)
        return Hypothesis("rotor", track, half, area.gain(track, half), number + 1, order)

    def _order_track(self, area: Plane, number: int, order: float, shift: float = 0.0) -> tuple[Array, Array]:
        assert self.rotor is not None
        time, speeds = self.rotor
        speed = speeds[:, number]
        if shift:
            speed = np.roll(speed, round(shift * len(speed)))
        at, half = windowed(area, time, speed)
        turning = (at > 1) & (half < FAST * at)
        return np.where(turning, fold(order * at, area.rate), ABSENT), order * (half + TOLERANCE * at)

    def _judged(self, where: Plane, top: Hypothesis) -> Source:
        """What the strongest line is: every hypothesis about the band around where it mostly is."""
        middle = _mode(where, top)
        low, high = (1 - BAND) * middle, (1 + BAND) * middle
        high = min(max(high, where.lowest + 6 * where.resolution), where.rate / 2)
        local = [item for item in self.planes if (high - low) / item.resolution > 6] or [self.planes[0]]
        tables = [(item, self._best(item, low, high)) for item in local]
        # hypotheses are compared in one plane: that in which a line is sharpest
        tops = [max(best[name].gain for name in NARROW) for _, best in tables]
        area, best = next(pair for pair, gain in zip(tables, tops, strict=True) if gain >= LONGER * max(tops))
        margin = max(self.thresholds.line_gain, 0.03 * max(best[name].gain for name in NARROW))
        still = max(best["fixed"].gain, best["resonance"].gain)
        free = max(("sweep", "smear"), key=lambda name: best[name].gain)
        moving = max(best["command"].gain, best[free].gain)
        if best["rotor"].gain > 0 and best["rotor"].gain >= max(best["fixed"].gain, 0.7 * still, 0.4 * moving):
            return self._rotor(area, self._sharpest(area, best["rotor"], low, high), best["fixed"].gain)
        bearing = self._bearing(area, best[free])
        if bearing.gain > max(still, 0.8 * moving) + margin:
            return self._rotor(area, bearing, best["fixed"].gain)
        moves = moving > still + margin
        if len(best[free].track) and abs(moving - still) < UNCLEAR * max(moving, still):
            ratio = steadier(area, best[free].track, low, high)
            moves = ratio > STEADIER or (moves and ratio > 1)
        if moves:
            name = "command" if best["command"].gain > 0.8 * best[free].gain else free
            return self._sweep(area, best[name], still, where, top)
        name = "resonance" if best["resonance"].gain > best["fixed"].gain + margin else "fixed"
        chosen = best[name] if len(best[name].track) else top._replace(track=np.full(len(area.time), middle))
        return self._fixed(area, chosen, max(best["rotor"].gain, moving))

    def _best(self, area: Plane, low: float, high: float) -> dict[str, Hypothesis]:
        best = dict.fromkeys((*NARROW, "smear", "resonance"), _NONE)
        for name, item in self._local(area, low, high):
            if item.gain > best[name].gain:
                best[name] = item
        return best

    def _sharpest(self, area: Plane, order: Hypothesis, low: float, high: float) -> Hypothesis:
        """Of rotors whose speeds are too close for a plane, the one in step with which the line is strongest."""
        rivals = [item for item in self._orders(area) if item.order == order.order and item.gain > 0.6 * order.gain]
        if len(rivals) < 2 or self.rotor is None:
            return order

        def strength(item: Hypothesis) -> float:
            assert self.rotor is not None
            assert item.rotor is not None
            speed = self.rotor[1][:, item.rotor - 1]
            speeds = [at_samples(self.grid, run, self.rotor[0], speed) for run in range(len(self.grid.runs))]
            return float(order_strength(self.grid, speeds, item.order, item.order * float(np.mean(speed)))[1].sum())

        best = max(rivals, key=strength)
        return order if best.rotor == order.rotor else best

    def _bearing(self, area: Plane, path: Hypothesis) -> Hypothesis:
        """An order that is no whole number, as damaged bearings have, folded or not."""
        best = _NONE
        if self.rotor is None or not len(path.track):
            return best
        weight = np.maximum(area.gains(path.track, path.half), 0)
        for number in range(self.rotor[1].shape[1]):
            speed, _ = windowed(area, self.rotor[0], self.rotor[1][:, number])
            used = (speed > 1) & (weight > 0)
            if used.sum() < 12:
                continue
            for sign, turns in ((1, 0), (-1, 1), (1, 1), (-1, 2)):
                ratio = (turns * area.rate + sign * path.track[used]) / speed[used]
                middle = float(np.median(ratio))
                if not 1.15 < middle < 9.5:
                    continue
                for order in middle * (1 + np.linspace(-0.01, 0.01, 9)):
                    item = self._order(area, number, float(order))
                    if item.gain > best.gain and abs(order - round(order)) > 0.06:
                        best = item
        if best.gain > 0 and best.gain > self._still(area, best) + self.thresholds.line_gain:
            return best
        return _NONE

    def _local(self, area: Plane, low: float, high: float) -> Iterator[tuple[str, Hypothesis]]:
        """Hypotheses about a line inside a band, by name."""
        for item in self._orders(area):
            inside = (item.track >= low) & (item.track <= high)
            if inside.mean() > 0.1:
                gain = float(area.gains(np.where(inside, item.track, ABSENT), item.half).sum())
                yield "rotor", item._replace(gain=gain)
        gains = np.where((area.frequency >= low) & (area.frequency <= high), area.constant_gains(), -np.inf)
        place = int(gains.argmax())
        yield "fixed", Hypothesis("fixed", np.full(len(area.time), area.frequency[place]), 0.0, float(gains[place]))
        path = held_out_path(area, low, high)
        sweep = Hypothesis("sweep", path, 0.0, area.gain(path))
        yield "sweep", sweep
        yield from (("command", item) for item in self._commands(area, path))
        centre, width, left, right = _hump(area, float(area.frequency[place]))
        if width > 2.5 * area.resolution:
            half = max(0.5 * width - 0.5 * area.resolution, 0.0)
            track = np.full(len(area.time), centre)
            yield "resonance", Hypothesis("resonance", track, half, area.gain(track, half))
            moving = held_out_centre(area, max(low, left - width), min(high, right + width))
            yield "smear", Hypothesis("sweep", moving, half, area.gain(moving, half))
            yield from (("command", item) for item in self._commands(area, moving, half))

    def _commands(self, area: Plane, path: Array, half: float = 0.0) -> Iterator[Hypothesis]:
        """Speeds that rise (or, folded, fall) with the command of a motor, fitted to a path."""
        if self.motor is None:
            return
        time, motor = self.motor
        weight = np.sqrt(np.maximum(area.gains(path, half), 0))
        if (weight > 0).sum() < 12:
            return
        for number in range(motor.shape[1] + 1):
            command = motor[:, number - 1] if number else motor.mean(1)
            at, _ = windowed(area, time, command)
            if np.ptp(at) < 1e-3:
                continue
            slope, level = np.polyfit(at, path, 1, w=weight + 1e-9)
            track = level + slope * at
            rank = rank_correlation(path[weight > 0], at[weight > 0])
            yield Hypothesis("sweep", track, half, area.gain(track, half), None, 1.0, number, rank)

    def _still(self, area: Plane, order: Hypothesis) -> float:
        """The largest gain of the same order with the speed of the rotor shifted in time."""
        assert order.rotor is not None
        shifts = np.linspace(0.1, 0.9, SHIFTS)
        return max(self._order(area, order.rotor - 1, order.order, float(shift)).gain for shift in shifts)

    # ---- sources ----------------------------------------------------------------------------------------------------

    def _rotor(self, area: Plane, order: Hypothesis, fixed: float) -> Source:
        """A rotor with all orders that stand out once one of them does."""
        assert order.rotor is not None
        chosen = [self._order(area, order.rotor - 1, order.order)]
        multiples = ORDERS if order.order in ORDERS else (2 * order.order, *ORDERS)
        for other in multiples:
            if other != order.order:
                found = self._order(area, order.rotor - 1, other)
                least = max(self.thresholds.line_gain, 0.02 * order.gain)
                if (
                    found.gain > least
                    and found.gain > max(self._still(area, found), _constant(area, found)) + least / 2
                ):
                    chosen.append(found)
        lines = [self._line(area, item) for item in chosen]
        rival = max(fixed, self._still(area, order))
        margin = 1 - rival / max(order.gain, 1e-9)
        self._explained(area, chosen)
        kind: Kind = "rotor" if lines[0].share > PERSISTENT else "none"
        return Source(kind, tuple(lines), order.rotor, None, None, margin)

    def _sweep(self, area: Plane, item: Hypothesis, fixed: float, wide: Plane, top: Hypothesis) -> Source:
        """A line that moves, with its multiples; the whole path where the strongest line was one."""
        margin = 1 - fixed / max(item.gain, 1e-9)
        motor, correlation = item.motor, item.correlation
        if correlation is None or abs(correlation) < self.thresholds.command_correlation:
            motor, correlation = None, None
            item = item._replace(motor=None, correlation=None)
        low, high = np.quantile(item.track, (0.02, 0.98)) * (1 - BAND / 2, 1 + BAND / 2)
        sharp = item._replace(track=best_path(area, float(low), float(high)), half=0.0)
        if not np.any(item.half) or _share(area, sharp, item) > GATHERED:
            item = sharp
            if top.kind == "sweep" and top.gain > WHOLE * item.gain:
                area, item = wide, top._replace(track=best_path(wide), motor=motor, correlation=correlation)
        chosen = [_heard(area, item)]
        for order in ORDERS[1:3]:
            half = np.asarray(item.half) * order + 0.5 * (order - 1) * area.resolution
            gain = area.gain(fold(order * item.track, area.rate), half)
            if gain > max(self.thresholds.line_gain, 0.05 * item.gain):
                shifts = (round(float(share) * len(item.track)) for share in np.linspace(0.1, 0.9, SHIFTS))
                chance = max(area.gain(fold(order * np.roll(item.track, shift), area.rate), half) for shift in shifts)
                if gain > chance + self.thresholds.line_gain:
                    track = np.where(chosen[0].track > 0, fold(order * item.track, area.rate), ABSENT)
                    chosen.append(item._replace(track=track, order=order, half=half, gain=gain))
        lines = [self._line(area, part) for part in chosen]
        self._explained(area, chosen)
        return Source(
            "sweep" if lines[0].share > PERSISTENT else "none", tuple(lines), None, motor, correlation, margin
        )

    def _fixed(self, area: Plane, item: Hypothesis, rival: float) -> Source:
        centre, width, low, high = _hump(area, float(item.track[0]))
        width = min(width, fine_width(self.grid, centre, max(width, area.resolution)))
        kind: Kind = "fixed"
        if width > BROADEST * centre or low <= area.lowest + 1.5 * area.resolution:
            kind = "none"
        elif width > max(self.thresholds.resonance_width * centre, SHARP / self.seconds):
            kind = "resonance"
        # all of a hump is one source
        full = Hypothesis(kind, np.full(len(area.time), 0.5 * (low + high)), 0.5 * (high - low), item.gain)
        line = self._line(area, full)
        line = Line(**{**vars(line), "frequency": centre, "width": width})
        if line.share < PERSISTENT:
            kind = "none"
        self._explained(area, [full])
        return Source(kind, (line,), None, None, None, 1 - rival / max(item.gain, 1e-9))

    @property
    def seconds(self) -> float:
        """Length of the segments of the finest spectrum."""
        return fine_seconds(self.grid)

    def _line(self, area: Plane, item: Hypothesis) -> Line:
        power, moment = area.moments(item.track, item.half)
        present = (item.track > 0) & np.isfinite(power).all(1)
        if not present.any():
            present, power, moment = item.track > 0, np.nan_to_num(power), np.nan_to_num(moment)
        track, power = item.track[present], power[present]
        usual_power = np.maximum(area.scale.mean((0, 1)), np.finfo(float).tiny)
        total = np.maximum((np.maximum(power, 0) / usual_power).sum(1), 1e-12)
        # of the cells, not of the track: a line that is late behind its track, or leaves it, is where its power is
        centre = np.where(power > 0, moment[present], 0) / usual_power
        frequency = float(centre.sum() / total.sum()) if centre.any() else float(total @ track / total.sum())
        spread = float(np.sqrt(max(total @ (track - frequency) ** 2 / total.sum(), 0)))
        usual = np.maximum(np.median(power, axis=0), 0)  # no moment counts for more than some times this
        amplitude = np.sqrt(2 * np.maximum(np.minimum(power, 10 * usual).mean(0), 0))
        ratio = area.along(item.track, item.half)[0][present].mean(0)
        origin = None
        if item.rotor is not None and self.rotor is not None:
            speed = windowed(area, self.rotor[0], self.rotor[1][:, item.rotor - 1])[0][present]
            true = item.order * float(total @ speed / total.sum())
            origin = true if true > area.rate / 2 else None
        width = max(2.355 * spread, area.resolution)
        loudest = power[:, int(ratio.argmax())]
        share = float((loudest > 0.2 * max(float(loudest.mean()), 0.0)).mean())
        return Line(
            item.order, area.time, item.track, frequency, origin, spread, width, amplitude, ratio, item.gain, share
        )

    def _explained(self, area: Plane, items: Sequence[Hypothesis]) -> None:
        """Take lines out of all planes."""
        for item in items:
            for other in self.planes:
                if item.rotor is not None and item.order and self.rotor is not None:
                    other.take_out(*self._order_track(other, item.rotor - 1, item.order))
                else:
                    heard = item.track > 0
                    time, line = area.time[heard], item.track[heard]
                    half = np.interp(other.time, area.time, np.broadcast_to(item.half, area.time.shape))
                    moved = (
                        np.abs(np.gradient(line, time)) * other.seconds / 2 if len(time) > 1 else np.zeros(len(time))
                    )
                    other.take_out(np.interp(other.time, time, line), half + np.interp(other.time, time, moved))


def explain(
    grid: Grid, *, rotor: Track | None = None, motor: Track | None = None, thresholds: Thresholds = THRESHOLDS
) -> list[Source] | None:
    """The sources of the lines of a log, the strongest first; None where it is too short to tell any apart."""
    planes = [area for seconds in SECONDS if (area := plane(grid, seconds, thresholds.line_lowest)) is not None]
    return _Search(grid, planes, rotor, motor, thresholds).run() if planes else None


def windowed(area: Plane, time: Array, speed: Array) -> tuple[Array, Array]:
    """Mean of a speed in each window, and half its range there."""
    offsets = np.linspace(-0.35, 0.35, 8) * area.seconds  # the middle of a Hann window
    values = np.interp(area.time[:, None] + offsets, time, speed)
    return values.mean(1), 0.5 * np.ptp(values, axis=1)


def _constants(area: Plane) -> list[Hypothesis]:
    gains = area.constant_gains()
    top = int(gains.argmax())
    return [Hypothesis("fixed", np.full(len(area.time), area.frequency[top]), 0.0, float(gains[top]))]


def _paths(area: Plane) -> list[Hypothesis]:
    track = held_out_path(area)
    return [Hypothesis("sweep", track, 0.0, area.gain(track))]


def fine_seconds(grid: Grid) -> float:
    """Of segments of which the runs hold eight at least."""
    longest = max(len(run) for run in grid.runs) / grid.rate
    total = sum(len(run) for run in grid.runs) / grid.rate
    return min(FINE, longest, total / 4)


def fine_width(grid: Grid, centre: float, width: float) -> float:
    """Width (Hz) at half power of the strongest line near a frequency, from long segments."""
    length = 2 * int(fine_seconds(grid) * grid.rate / 2)
    window = np.hanning(length + 1)[:-1]
    frequency = np.arange(length // 2 + 1) * grid.rate / length
    inside = np.flatnonzero(np.abs(frequency - centre) <= max(2 * width, 4 * frequency[1]))
    if len(inside) < 3:
        return width
    total = np.zeros((len(inside), grid.runs[0].shape[1]))
    for run in grid.runs:
        for first in range(0, len(run) - length + 1, length // 2):
            total += np.abs(np.fft.rfft(detrended(run[first : first + length]) * window[:, None], axis=0)[inside]) ** 2
    if not total.any():
        return width
    channel = int((total.max(0) / np.maximum(np.median(total, axis=0), np.finfo(float).tiny)).argmax())
    profile = total[:, channel]
    # what holds half of the power: periodograms of noise are ragged, their sum is not
    floor = float(np.min(profile))
    share = np.cumsum(np.maximum(profile - floor, 0))
    share /= max(float(share[-1]), np.finfo(float).tiny)
    low, high = np.interp((0.25, 0.75), share, frequency[inside])
    return float(high - low + frequency[1])


def _constant(area: Plane, item: Hypothesis) -> float:
    """The best gain of a constant frequency in the band in which a line moves, as wide as the line."""
    track = item.track[item.track > 0]
    if not len(track):
        return 0.0
    low, high = np.quantile(track, (0.1, 0.9))
    gains = area.constant_gains(float(np.median(item.half)))
    inside = (area.frequency >= low - area.resolution) & (area.frequency <= high + area.resolution)
    return float(gains[inside].max(initial=0.0))


def steadier(area: Plane, track: Array, low: float, high: float) -> float:
    """How much less the log power of a band varies about its mean beside a track than about its mean at each frequency.

    Likelihoods of strong lines differ little in proportion, whatever is assumed about where they are. About the right
    assumption the logarithms of power scatter as those of noise do, and about a wrong one by the height of the line.
    """
    edges = np.quantile(track, (0.1, 0.9)) + 4 * area.resolution * np.array([-1, 1])
    first, last = np.searchsorted(area.frequency, (max(low, area.lowest, edges[0]), min(high, edges[1])))
    cells = np.arange(first, last)
    if len(cells) < 5:
        return 1.0
    channel = int(area.usual[first:last].max(0).argmax())
    beside = area.along(track)[0][:, channel]
    on = beside > 0.1 * np.quantile(beside, 0.75)  # a line that is off says nothing
    free = area.free[on, first:last]
    power = np.log(np.maximum(area.ratio[on, first:last, channel], 1e-3))
    offset = cells - np.rint(track[on] / area.resolution).astype(int)[:, None]

    def scatter(label: NDArray[np.int64]) -> float:
        label = label - label.min()
        count = np.bincount(label[free], minlength=int(label.max()) + 1)
        mean = np.bincount(label[free], power[free], minlength=len(count)) / np.maximum(count, 1)
        return float(((power - mean[label])[free] ** 2).mean())

    return scatter(np.broadcast_to(cells, power.shape)) / max(scatter(offset), 1e-9)


def _share(area: Plane, line: Hypothesis, band: Hypothesis) -> float:
    """Share of the power of a broad hypothesis that is in the cells of a sharp one, in the strongest channel."""
    inside, whole = (np.nan_to_num(np.maximum(area.power(item.track, item.half), 0)).sum(0) for item in (line, band))
    channel = int(whole.argmax())
    return float(inside[channel] / max(float(whole[channel]), np.finfo(float).tiny))


def _heard(area: Plane, item: Hypothesis) -> Hypothesis:
    """A path without the windows in which it is chance, or in which it is in the motion."""
    gains = area.gains(item.track, item.half)
    heard = (gains > 0.1 * np.median(gains)) & (item.track > MOTION * area.lowest)
    return item._replace(track=np.where(heard, item.track, ABSENT)) if heard.sum() >= 8 else item


def _mode(area: Plane, item: Hypothesis) -> float:
    """The frequency around which a line gains most."""
    gains = np.maximum(area.gains(item.track, item.half), 0)
    place = np.clip(np.rint(item.track / area.resolution).astype(int), 0, len(area.frequency) - 1)
    total = np.bincount(place, gains, len(area.frequency))
    reach = np.maximum((BAND / 2 * np.arange(len(total))).astype(int), 1)
    sums = np.r_[0, np.cumsum(total)]
    index = np.arange(len(total))
    near = sums[np.minimum(index + reach + 1, len(total))] - sums[np.maximum(index - reach, 0)]
    return float(area.frequency[int(near.argmax())])


def _hump(area: Plane, frequency: float) -> tuple[float, float, float, float]:
    """Centre, width at half power, and both feet (Hz) of the hump of the mean ratio about a frequency."""
    usual = area.usual
    start = int(np.clip(round(frequency / area.resolution), 2, len(area.frequency) - 3))
    channel = int(usual[start - 1 : start + 2].max(0).argmax())
    padded = np.pad(usual[:, channel], 1, mode="edge")
    profile = (padded[:-2] + 2 * padded[1:-1] + padded[2:]) / 4 - 1
    top = start - 1 + int(profile[start - 1 : start + 2].argmax())
    edges = []
    for step in (-1, 1):
        index, lowest = top, profile[top]
        while 0 < index + step < len(profile) - 1 and profile[index + step] > max(0.15 * profile[top], 0.3):
            if profile[index + step] > 2.5 * lowest:  # the next line
                break
            index += step
            lowest = min(lowest, profile[index])
        edges.append(index)
    low, high = edges
    span = np.arange(low, high + 1)
    weight = np.maximum(usual[span, channel] - 1, 1e-9)
    centre = float(weight @ area.frequency[span] / weight.sum())
    half = np.flatnonzero(profile[span] >= 0.5 * profile[top])
    width = (half[-1] - half[0] + 1 if len(half) else 1) * area.resolution
    return centre, float(width), float(area.frequency[low]), float(area.frequency[high])


def rank_correlation(first: Array, second: Array) -> float:
    """Spearman's correlation.

    >>> rank_correlation(np.array([1.0, 2.0, 5.0]), np.array([1.0, 4.0, 9.0]))
    1.0
    """
    ranks = [np.argsort(np.argsort(values, kind="stable"), kind="stable").astype(float) for values in (first, second)]
    a, b = (rank - rank.mean() for rank in ranks)
    norm = math.sqrt(float(a @ a) * float(b @ b))
    return round(float(a @ b) / norm, 12) if norm > 0 else 0.0
