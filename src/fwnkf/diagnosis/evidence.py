"""Everything that is measured on a log before anything is judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..logs.log import OWN, Log, Stream
from ..logs.roles import rotor_numbers
from ..logs.stamps import StampReport, examine, repair
from .allan import allan
from .attitude import Agreement, agreement, attitude_rates
from .consistency import consistency, logged_consistency
from .flown import bursts, lifted, without
from .result import AllanDeviation, ChannelSpectrum, Consistency, Peak, Waterfall
from .rotors import Lines, Named, name_lines
from .scales import ACCEL, GYRO, ORIENTATION, Scale, accel_scale, gyro_scale
from .series import Series, moving_channels
from .sources import Track
from .spectra import Grid, Spectrum, even_grid, grid_waterfall, noise_floor, spectrum
from .thresholds import Thresholds

if TYPE_CHECKING:
    from ..filters.base import Filter
    from ..identify.channels import ChannelModel
    from .innovations import Innovations
    from .truth import Reference

Array = NDArray[np.float64]

SIGNALS = ("imu", "gyro", "accel")
"""Roles of inertial sensors, whose noise is analysed; ``pose`` and ``velocity`` where a log has none of them."""
OTHERS = (
    "gyro_filtered", "rotor", "motor", "pose", "attitude", "velocity", "gnss", "mag", "power", "innovation",
    "vibration", "peak",
)  # fmt: skip
FASTER = 1.2
"""A gyro or accelerometer of its own is analysed instead of the IMU if its rate is higher by this factor."""
SLOWEST = 2.0
"""Hz: nothing is said about the noise of a stream below it, unless its columns have their own names."""
MOST_OWN = 4
"""Topics whose columns have their own names and that are analysed without being asked for."""
MOST_COLUMNS = 12
"""Columns of such a topic that are analysed together without being asked for."""
LOWEST_SHARE = 0.05
"""Lowest frequency of a line over the sampling rate, in columns of which it is not known how fast they move."""


@dataclass(frozen=True, eq=False)
class Analysed:
    """One stream with its noise: spectra and lines; the filter that runs on it and its innovations when they are asked.

    The verdict on a log needs no filter, unless one is given: what only the report shows is computed for the report.
    """

    role: str
    stream: Stream
    series: Series
    grid: Grid
    lines: Lines
    bursts: tuple[tuple[float, float], ...]
    """Times of touchdowns, impacts and handling, which are in no spectrum."""
    tracks: Mapping[str, tuple[Array, Array]]
    """Rotor speeds over time, by name."""
    given: Filter | None = None
    truth: Reference | None = None

    @property
    def signal(self) -> Spectrum:
        return self.lines.spectrum

    @property
    def floor(self) -> Array:
        return self.lines.floor

    @property
    def peaks(self) -> tuple[Peak, ...]:
        return self.lines.peaks

    @property
    def named(self) -> tuple[Named, ...]:
        """The sources of the lines, the strongest first."""
        return self.lines.named

    @cached_property
    def models(self) -> tuple[ChannelModel, ...]:
        """Of each channel, without lines; empty if the filter was given."""
        from .default_filter import channel_models

        return () if self.given is not None else tuple(channel_models(self.series, self.signal))

    @cached_property
    def filter(self) -> Filter:
        """The one given, or one that is fitted to the log."""
        from ..identify.channels import channels_filter

        return self.given if self.given is not None else channels_filter(self.models, self.series.channels)

    @cached_property
    def innovations(self) -> Innovations:
        from .innovations import innovations

        return innovations(self.filter, self.series)

    @cached_property
    def consistency(self) -> tuple[Consistency, ...]:
        return tuple(consistency(self.innovations))

    @cached_property
    def errors(self) -> tuple[Consistency, ...]:
        """NEES of the filter's states that a reference has."""
        if self.truth is None:
            return ()
        from .truth import filter_errors

        return tuple(filter_errors(self.filter, self.series, self.truth))

    @cached_property
    def waterfalls(self) -> tuple[Waterfall, ...]:
        """Of the gyro and the accelerometer channel with the highest lines."""
        shown = [self.series.channels.index(name) for name in _strongest(self.peaks, self.series.channels)]
        return tuple(
            grid_waterfall(
                self.grid, column, channel=self.series.channels[column], unit=self.series.units[column],
                tracks=self.tracks,
            )
            for column in shown
        )  # fmt: skip

    @cached_property
    def allan(self) -> tuple[AllanDeviation, ...]:
        return tuple(allan(self.grid, self.series.channels, self.series.units))

    def spectra(self, *, innovations: bool = True) -> list[ChannelSpectrum]:
        """Of signals and innovations, channel by channel."""
        rows = []
        for column, (channel, unit) in enumerate(zip(self.series.channels, self.series.units, strict=True)):
            rows.append(
                ChannelSpectrum(
                    channel, unit, "signal", self.signal.frequency, self.signal.density[:, column],
                    self.floor[:, column],
                )
            )  # fmt: skip
        if not innovations:
            return rows
        from .innovations import innovation_spectra

        measured = spectrum(self.innovations.time, self.innovations.values)
        return rows + innovation_spectra(self.innovations, measured, noise_floor(measured))


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the rules judge."""

    log: Log
    thresholds: Thresholds
    streams: Mapping[str, Stream]
    """The first stream of every role, repaired, inside the times in the air."""
    entire: Mapping[str, Stream]
    """The same, with the times on the ground."""
    stamps: tuple[StampReport, ...]
    reports: Mapping[str, StampReport]
    """Stamps by role."""
    analysed: tuple[Analysed, ...]
    logged: tuple[Consistency, ...]
    logged_errors: tuple[Consistency, ...]
    """NEES of the estimates in the log."""
    airborne: tuple[tuple[float, float], ...]
    given: bool
    """Whether the filter was given, not built from the log."""
    seconds: float
    notes: list[str] = field(default_factory=list)

    @property
    def gyro(self) -> Stream | None:
        """The first with all three axes, in the air."""
        return _first(self.streams, ("imu", "gyro"), GYRO, 100)

    @property
    def attitude(self) -> Stream | None:
        """The first with an orientation, in the air."""
        return _first(self.streams, ("pose", "attitude"), ORIENTATION, 20)

    @cached_property
    def agreement(self) -> Agreement | None:
        """Of the gyro with the attitude; None where the log has not enough of both."""
        if self.gyro is None or self.attitude is None:
            return None
        rates = attitude_rates(self.attitude.time, self.attitude.stack(ORIENTATION))
        return None if rates is None else agreement(self.gyro.time, self.gyro.stack(GYRO), rates)

    @cached_property
    def scales(self) -> tuple[Scale, ...]:
        """Sensors that are wrong by a factor."""
        found, limit = [], self.thresholds.scale_error
        if self.agreement is not None and self.attitude is not None:
            found.append(gyro_scale(self.agreement, self.attitude.name, limit))
        accel = _first(self.entire, ("imu", "accel"), ACCEL, 100)
        if accel is not None:
            turning = _first(self.entire, ("imu", "gyro"), GYRO, 1)  # on the ground too: there is gravity alone
            attitude = _first(self.entire, ("pose", "attitude"), ORIENTATION, 20)
            factor = found[0].factor if found and found[0] is not None else 1.0
            found.append(accel_scale(accel, turning, attitude, limit, factor))
        return tuple(item for item in found if item is not None)

    @property
    def factors(self) -> dict[str, float]:
        """By channel: how many times too large its values are, where they are."""
        return {channel: item.factor for item in self.scales for channel in item.channels}

    @property
    def peaks(self) -> tuple[Peak, ...]:
        return tuple(peak for part in self.analysed for peak in part.peaks)

    def role(self, name: str) -> Stream | None:
        """The stream of a role, in the air."""
        return self.streams.get(name)

    def whole(self, name: str) -> Stream | None:
        """The stream of a role, on the ground too."""
        return self.entire.get(name)


def _first(streams: Mapping[str, Stream], roles: Sequence[str], columns: Sequence[str], least: int) -> Stream | None:
    """The first stream of some roles with all the columns, and with enough samples."""
    found = (streams[role] for role in roles if role in streams)
    return next((item for item in found if set(columns) <= set(item.columns) and len(item) >= least), None)


def gather(log: Log, thresholds: Thresholds, filter: Filter | None = None, truth: Reference | None = None) -> Evidence:
    """Read the signals of a log, repair their time stamps, and analyse their noise."""
    notes: list[str] = []
    raw: dict[str, Stream] = {}
    for role in (*SIGNALS, *OTHERS):
        sources = [source for source in log.sources() if source.role == role]
        if sources:
            try:
                stream = log.signal(sources[0].name)
            except DataError as error:
                notes.append(f"{sources[0].name} could not be read: {error}")
                continue
            if len(stream) > 1:
                raw[role] = stream
    raw |= _own_streams(log, raw, notes)
    reports = {role: _examined(log, stream) for role, stream in raw.items()}
    # stamps that jitter stay as they are: the grid of a spectrum counts steps, which a late stamp does not change
    streams = {role: repair(stream, replace(reports[role], jitter=0.0)) for role, stream in raw.items()}
    for stream in streams.values():
        notes += [f"{stream.name}: {note}" for note in stream.notes if note not in raw.get(stream.role, stream).notes]
    airborne = log.airborne()
    drive = streams.get("rotor") or streams.get("motor")
    if drive is not None and len(drive) > 1:
        airborne = lifted(drive.time, drive.stack(), airborne)
    ends = [float(stream.time[-1]) for stream in streams.values() if len(stream)]
    starts = [float(stream.time[0]) for stream in streams.values() if len(stream)]
    inside = {role: within(stream, airborne) for role, stream in streams.items()}
    analysed = []
    for role in _chosen(inside, reports, log.asked):
        try:
            analysed.append(analyse(role, inside, thresholds, filter, truth))
        except DataError as error:
            if filter is not None:
                raise
            notes.append(f"{role}: {error}")
    logged: list[Consistency] = []
    if "innovation" in inside:
        stream = inside["innovation"]
        logged = logged_consistency(stream, np.ones(len(stream), bool))
    errors: list[Consistency] = []
    if truth is not None:
        from .truth import logged_errors

        errors = logged_errors(log, truth)
    if truth is not None and not errors and not any(part.errors for part in analysed):
        notes.append(
            f"the truth in {truth.name} was not used: no estimate with variances and no state of the filter has the "
            "same name and overlaps it in time"
        )
    return Evidence(
        log, thresholds, inside, streams, tuple(reports.values()), reports, tuple(analysed), tuple(logged),
        tuple(errors), airborne, filter is not None, max(ends, default=0.0) - min(starts, default=0.0), notes,
    )  # fmt: skip


def _own_streams(log: Log, known: Mapping[str, Stream], notes: list[str]) -> dict[str, Stream]:
    """Columns under their own names: those asked for, or all where the log has nothing better.

    Better are inertial sensors and, in a log with many topics, the motion of a vehicle.
    """
    own = [source for source in log.sources() if source.role == OWN]
    wanted = [source for source in own if source.name in log.asked]
    better = SIGNALS if len(log.topics) == 1 else (*SIGNALS, "pose", "velocity")
    if not log.asked and not any(role in known for role in better):
        wanted = own[:MOST_OWN]
    left = [source for source in own if source not in wanted]
    if left and not log.asked and len(log.topics) == 1:
        notes.append(_not_examined([name for source in left for name in source.columns]))
    streams = {}
    for source in wanted:
        try:
            stream = log.signal(source.name)
        except DataError as error:
            notes.append(f"{source.name} could not be read: {error}")
            continue
        stream = stream if log.asked else _first_columns(stream, notes)
        if len(stream) > 1 and stream.columns:
            streams[source.name] = stream
    return streams


def _first_columns(stream: Stream, notes: list[str]) -> Stream:
    """The first columns that are measured, as many as are analysed together; counters and constants are not."""
    measured = [name for name, values in stream.columns.items() if _is_measured(values)]
    left = measured[MOST_COLUMNS:]
    if left:
        notes.append(_not_examined(left))
    return replace(stream, columns={name: stream.columns[name] for name in measured[:MOST_COLUMNS]})


def _not_examined(columns: Sequence[str]) -> str:
    listed = ", ".join(columns[:8]) + (f" and {len(columns) - 8} more" if len(columns) > 8 else "")
    return f"not examined: {listed}; name those that matter with --channels"


def _is_measured(values: Array) -> bool:
    """Whether a column changes, and not by the same amount from sample to sample."""
    steps = np.diff(values[np.isfinite(values)])
    return bool(len(steps)) and float(np.ptp(steps)) > 1e-6 * float(np.abs(steps).max())


def _examined(log: Log, stream: Stream) -> StampReport:
    """The time stamps of a stream; times that were not read are no gaps."""
    report = examine(stream, dropouts=log.dropouts)
    spans = [(left.time - 1.0, left.time + left.seconds + 1.0) for left in log.left_out]
    gaps = [gap for gap in report.gaps if not any(a <= gap.time and gap.time + gap.seconds <= b for a, b in spans)]
    return replace(report, gaps=tuple(gaps))


def within(stream: Stream, intervals: Sequence[tuple[float, float]]) -> Stream:
    """The samples inside any of the intervals; all of them if there are no intervals, or none inside."""
    keep = np.zeros(len(stream), bool)
    for start, stop in intervals:
        keep |= (stream.time >= start) & (stream.time <= stop)
    if not keep.any() or keep.all():
        return stream
    return stream.take(keep)


def _chosen(streams: Mapping[str, Stream], reports: Mapping[str, StampReport], asked: Sequence[str]) -> list[str]:
    """Roles to analyse: the IMU, or gyro and accelerometer of their own where these are faster; else pose, velocity.

    Columns under their own names are analysed where they were read. What the user asked for is analysed alone.
    """
    if asked:
        return [name for name in asked if name in streams and reports[name].rate > 0]
    own = [name for name, stream in streams.items() if stream.role == OWN and reports[name].rate > 0]
    rate = reports["imu"].rate if "imu" in reports else 0.0
    single = [role for role in ("gyro", "accel") if role in reports and reports[role].rate > FASTER * rate]
    both = len(single) == 2
    chosen = single if both or "imu" not in streams else [*single, "imu"]
    if not chosen:
        chosen = [role for role in ("imu", "pose", "velocity") if role in streams][:1]
    return [*(role for role in chosen if reports[role].rate >= SLOWEST), *own]


def stream_series(stream: Stream) -> Series:
    """The channels of a stream that change, orientations left out."""
    names = [name for name in stream.columns if not name.startswith("orientation")]
    series = Series.of(stream.name, stream.time, stream.stack(names), names, [stream.units.get(n, "") for n in names])
    series = series.columns(moving_channels(series))
    if not series.channels:
        raise DataError(f"{stream.name}: no channel ever changes")
    return series


def analyse(
    role: str, streams: Mapping[str, Stream], thresholds: Thresholds, filter: Filter | None = None,
    truth: Reference | None = None,
) -> Analysed:  # fmt: skip
    """Spectra and lines with their sources of one stream."""
    stream = streams[role]
    series = stream_series(stream)
    if role not in SIGNALS:
        lowest = min(thresholds.line_lowest, LOWEST_SHARE * series.rate)
        thresholds = replace(thresholds, line_lowest=lowest)
    grid = even_grid(series.time, series.values)
    rotor, motor = (_track(streams.get(name)) for name in ("rotor", "motor"))
    cut = bursts(grid, thresholds.line_lowest)
    lines = name_lines(without(grid, cut), series.channels, rotor=rotor, motor=motor, thresholds=thresholds)
    turning = [] if rotor is None else np.flatnonzero(rotor[1].any(0)).tolist()
    tracks = {f"rotor {k + 1}": (rotor[0], rotor[1][:, k]) for k in turning if rotor is not None}
    part = Analysed(role, stream, series, grid, lines, tuple(cut), tracks, filter, truth)
    if filter is not None:
        part.innovations  # noqa: B018  whether it fits the log is said before anything else
    return part


def _track(stream: Stream | None) -> Track | None:
    """Times and values of rotors or motors by their numbers, without samples that are not finite.

    A log may leave out rotors that never turn: their columns are zero, so that the others keep their numbers.
    """
    if stream is None:
        return None
    values = stream.stack()
    known = np.isfinite(values).all(1) & np.isfinite(stream.time)
    if known.sum() < 2:
        return None
    numbers = rotor_numbers([name.rpartition("_")[2] for name in stream.columns])
    placed = np.zeros((int(known.sum()), max(numbers)))
    placed[:, [number - 1 for number in numbers]] = values[known]
    return stream.time[known], placed


def _strongest(peaks: Sequence[Peak], channels: Sequence[str]) -> list[str]:
    """The gyro and the accelerometer channel with the highest line, or the first one."""
    chosen = []
    for kind in dict.fromkeys(channel.partition("_")[0] for channel in channels):
        of_kind = [channel for channel in channels if channel.startswith(kind)]
        lines = [peak for peak in peaks if peak.channel in of_kind]
        chosen.append(max(lines, key=lambda peak: peak.ratio).channel if lines else of_kind[0])
    return chosen[:2]
