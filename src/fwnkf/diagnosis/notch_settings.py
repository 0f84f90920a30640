"""Notches to type in for the lines that a diagnosis found, in the parameters of the firmware that wrote the log.

That there is a line, and which orders of a rotor it has, is judged on the whole log. Frequency and width of a notch
that stands still come from its first half, and the gain that is stated from the second. Gains are measured behind the
low-pass and the notches that the vehicle had in this flight, one change after the other: on the filtered gyro, where
the log has it at the full rate. A notch has to take more than a low-pass with the same delay.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..settings import Suggestion, Vehicle, find, significant
from .autopilots import ATTENUATION, BANDWIDTH, CENTRE, HIGHEST, NOTCHES, ROTOR_QUALITY, Autopilot, dynamic_peaks
from .autopilots import LOWEST as LOWEST_DYNAMIC
from .evidence import Analysed, Evidence
from .finding import Finding
from .flown import without
from .notch import low_pass, notch, notch_bandwidth
from .notched import Notch, Response, delay_of, first, held_out, notched
from .spectra import Grid, even_grid, grid_spectrum, noise_floor

Array = NDArray[np.float64]

CAUSES = ("rotor_vibration", "vibration", "resonance")
"""Causes that a notch can cure."""
WORTH = 1.0
"""Per cent of gyro vibration below which a gain, significant or not, is not worth the delay of a notch."""
ESC, FFT = 1, 2
"""Bits of IMU_GYRO_DNF_EN."""
EACH_ROTOR = 2
"""Bit of INS_HNTCH_OPTS: a notch for each rotor, not one for their mean."""
USUAL_RATE, FASTEST = 1000.0, 32_000.0
"""Hz at which firmware filters where the log does not say, and beyond which a log is not believed."""
FULL = 0.9
"""Rate of the filtered gyro over that of the other from which it is used."""
BETAFLIGHT_MOST = 3
"""Harmonics of Betaflight's RPM filter."""


@dataclass(frozen=True, eq=False)
class Try:
    """Settings that have an effect together, and the notches that they make."""

    group: str
    values: Mapping[str, float]
    notches: tuple[Notch, ...]
    why: str


def notch_settings(evidence: Evidence, findings: Sequence[Finding]) -> tuple[tuple[Suggestion, ...], tuple[str, ...]]:
    """Settings of notches whose gain is significant, and notes on lines for which nothing is suggested.

    Args:
        evidence: of the diagnosis.
        findings: of the diagnosis; problems alone ask for a notch.

    Returns:
        Suggestions and notes; none for firmware that is not known.
    """
    vehicle = Vehicle(evidence.log.facts.get("firmware"), evidence.log.parameters)
    problems = [item for item in findings if item.cause in CAUSES and item.severity != "info"]
    part = next((item for item in evidence.analysed if any(map(_is_gyro, item.series.channels))), None)
    if vehicle.firmware is None or part is None or not problems:
        return (), ()
    try:
        search = _Search(evidence, part, vehicle, vehicle.firmware)
        for finding in problems:
            search.add(finding)
    except DataError as error:  # a half without a run that is long enough for a spectrum
        return (), (f"no settings: {error}",)
    return tuple(search.found), tuple(search.notes)


def _is_gyro(channel: str) -> bool:
    return channel.startswith("gyro")


@dataclass(eq=False)
class _Search:
    """Tries notches one after the other; each is measured behind those that were found before it."""

    evidence: Evidence
    part: Analysed
    vehicle: Vehicle
    firmware: Autopilot
    found: list[Suggestion] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        columns = [k for k, name in enumerate(self.part.series.channels) if _is_gyro(name)]
        self.channels = [self.part.series.channels[k] for k in columns]
        grid = without(self.part.grid, self.part.bursts)
        grid = grid._replace(runs=tuple(run[:, columns] for run in grid.runs))
        middle = _middle(grid)
        self.past = without(grid, [(middle, math.inf)])
        self.rate = self._filter_rate()
        tracks = [(time, np.where(speed > 1, speed, np.nan)) for time, speed in self.part.tracks.values()]
        self.rotors = [(time, hz) for time, hz in tracks if np.isfinite(hz).any()]
        filtered = grid if self._is_filtered() else self._filtered()
        self.flown: Response = self._passed if filtered is None else np.ones_like
        rest = first(without(grid if filtered is None else filtered, [(-math.inf, middle)]))
        self.held = notched(rest, self._active()) if filtered is None else rest

    def add(self, finding: Finding) -> None:
        """Try what may cure a finding."""
        name = finding.title
        if float(finding.figures.get("folded", 0.0)):
            self.notes.append(f"{name}: folded in the log, so that the effect of a notch cannot be measured on it")
            return
        tries = list(self._tries(finding))
        if not tries:
            known = any(map(self.vehicle.has, ("IMU_GYRO_NF0_FRQ", "INS_HNTCH_ENABLE", "gyro_notch1_hz")))
            which = "that could take it are on already" if known else "of the catalogue are not among its parameters"
            self.notes.append(f"{name}: the notches {which} in this log ({self.vehicle.described})")
        for item in tries:
            delay = delay_of(item.notches, self.rate)
            gain, beyond, after = held_out(self.held, item.notches, delay, self.flown)
            if gain is None or beyond is None:
                self.notes.append(f"{name}: the second half of the log is too short to measure the gain of a notch")
                continue
            if not gain.significant or gain.low < WORTH or not beyond.significant:
                less = "" if beyond.significant else f", no more than a low-pass with its delay of {1e3 * delay:.2g} ms"
                self.notes.append(f"{name}: {item.group} is not suggested; held-out gain {gain}{less}")
                continue
            rows = [
                Suggestion.of(
                    find(key), value, why=item.why, current=self.vehicle.value(key),
                    name=self.vehicle.spelled(find(key)), gain=gain, delay=delay, group=item.group,
                )
                for key, value in item.values.items()
            ]  # fmt: skip
            kept = significant(rows)
            if kept:
                self.found += kept
                self.held = after
                return

    # ---- what was flown -------------------------------------------------------------------------------------------

    def _filter_rate(self) -> float:
        """Hz at which the firmware filters, as far as the log says."""
        rate = self.vehicle.value("IMU_GYRO_RATEMAX") if self.firmware == "PX4" else None
        loop, each = self.vehicle.value("looptime"), self.vehicle.value("pid_process_denom")
        if self.firmware == "Betaflight" and loop and each:
            rate = 1e6 / (loop * each)
        if rate is None or not 0 < rate <= FASTEST:
            rate = USUAL_RATE
        return max(rate, self.part.series.rate)

    def _is_filtered(self) -> bool:
        """Whether the gyro that was analysed has passed the filters of the vehicle already."""
        sources = [source for source in self.evidence.log.sources() if source.name == self.part.stream.name]
        if self.firmware == "ArduPilot":  # its messages IMU, IMU2, ... are filtered, GYR and the batches are not
            return any(source.topic.startswith("IMU") for source in sources)
        fields = [source.columns[name][0] for source in sources for name in self.channels if name in source.columns]
        return any(name.startswith("gyroADC") for name in fields)

    def _filtered(self) -> Grid | None:
        """The gyro behind the filters of the vehicle, where the log has it at the full rate."""
        stream = self.evidence.role("gyro_filtered")
        if stream is None or not all(name in stream.columns for name in self.channels):
            return None
        grid = without(even_grid(stream.time, stream.stack(self.channels)), self.part.bursts)
        return grid if grid.rate > FULL * self.part.grid.rate else None

    def _passed(self, frequency: Array) -> Array:
        """Squared gain of the low-passes and of the notches that stand still."""
        power = np.ones_like(frequency)
        for name in ("IMU_GYRO_CUTOFF", "INS_GYRO_FILTER"):
            cutoff = self.vehicle.value(name)
            if cutoff and 0 < cutoff < 0.45 * self.rate:
                power = power * np.abs(low_pass(cutoff, self.rate).response(frequency, self.rate)) ** 2
        for name in ("gyro_lpf1_static_hz", "gyro_lpf2_static_hz"):
            cutoff = self.vehicle.value(name)
            if cutoff and cutoff > 0:
                power = power / (1 + (frequency / cutoff) ** 2)  # of first order, Betaflight's default
        for number in range(2):
            hz, width = (self.vehicle.value(f"IMU_GYRO_NF{number}_{kind}") for kind in ("FRQ", "BW"))
            if hz and width and 0 < hz < 0.48 * self.rate and 0 < width < 0.4 * self.rate:
                power = power * np.abs(notch(hz, width, self.rate).response(frequency, self.rate)) ** 2
        return np.asarray(power)

    def _active(self) -> list[Notch]:
        """Notches that follow the rotors and were on."""
        if not self.rotors:
            return []
        orders = {
            "PX4": self._count("IMU_GYRO_DNF_HMC") if self._count("IMU_GYRO_DNF_EN") & ESC else 0,
            "ArduPilot": 0,
            "Betaflight": self._count("rpm_filter_harmonics"),
        }[self.firmware]
        return self._following(range(1, orders + 1))

    def _count(self, name: str) -> int:
        """A whole number of the log, inside the firmware's range: what a file says is not believed beyond it."""
        return int(find(name).typed(self.vehicle.value(name) or 0.0))

    def _following(self, orders: Sequence[int]) -> list[Notch]:
        return [Notch(time, order * hz, self.firmware) for order in orders for time, hz in self.rotors]

    # ---- what could be set ----------------------------------------------------------------------------------------

    def _tries(self, finding: Finding) -> Iterator[Try]:
        moves = finding.cause == "rotor_vibration"
        if moves:
            following = {"PX4": self._moving_px4, "ArduPilot": self._moving_ardupilot}
            yield from following.get(self.firmware, self._moving_betaflight)()
        if not moves or not self.rotors:
            yield from self._fixed(finding, moves)

    def _orders(self, most: int) -> list[int]:
        """Whole orders of rotors that the gyro shows."""
        shown = [
            line.order for item in self.part.named if item.source.kind == "rotor" for line in item.source.lines
            if float(line.order).is_integer() and line.origin is None
        ]  # fmt: skip
        return sorted({int(order) for order in shown if order <= most}) or [1]

    def _moving_px4(self) -> Iterator[Try]:
        enabled = self._count("IMU_GYRO_DNF_EN")
        if not self.vehicle.has("IMU_GYRO_DNF_EN"):
            return
        if self.rotors and not enabled & ESC:
            most = self._orders(7)[-1]
            values = {"IMU_GYRO_DNF_EN": float(enabled | ESC), "IMU_GYRO_DNF_BW": 15.0, "IMU_GYRO_DNF_HMC": float(most)}
            slowest = min(float(np.nanquantile(hz, 0.05)) for _, hz in self.rotors)
            least = self.vehicle.value("IMU_GYRO_DNF_MIN") or find("IMU_GYRO_DNF_MIN").default or 25.0
            if slowest < least and self.vehicle.has("IMU_GYRO_DNF_MIN"):
                values["IMU_GYRO_DNF_MIN"] = math.floor(0.9 * slowest)
            why = f"Rotor vibration; the log has rotor speeds, which {most} notches for each rotor can follow."
            yield Try("rotor notches (ESC)", values, tuple(self._following(range(1, most + 1))), why)
        peaks = self.evidence.role("peak")
        if peaks is not None and not enabled & FFT and len(self.channels) == 3 and not self.rotors:
            columns = list(peaks.columns)[:3]
            notches = tuple(
                Notch(peaks.time, np.where(peaks.columns[name] > 10, peaks.columns[name], np.nan), "PX4", None, axis)
                for axis, name in enumerate(columns)
            )
            values = {"IMU_GYRO_FFT_EN": 1.0, "IMU_GYRO_DNF_EN": float(enabled | FFT)}
            why = "Vibration that moves; the FFT on board, whose peaks are in the log, can follow it."
            if all(np.isfinite(item.hz).any() for item in notches):
                yield Try("FFT notches", values, notches, why)

    def _moving_ardupilot(self) -> Iterator[Try]:
        slot = self._slot()
        follows = self.vehicle.value("INS_HNTCH_ENABLE") and self.vehicle.value("INS_HNTCH_MODE")
        if not self.rotors or slot is None or follows:
            return
        orders = self._orders(8)
        slowest = min(float(np.nanquantile(hz, 0.05)) for _, hz in self.rotors)
        lowest = find(f"{slot}_FREQ").typed(slowest)
        values = {
            f"{slot}_ENABLE": 1.0, f"{slot}_MODE": 3.0, f"{slot}_REF": 1.0, f"{slot}_FREQ": lowest,
            f"{slot}_BW": BANDWIDTH / CENTRE * lowest, f"{slot}_ATT": ATTENUATION,
            f"{slot}_HMNCS": float(sum(1 << (order - 1) for order in orders)),
            f"{slot}_OPTS": float(self._count(f"{slot}_OPTS") | EACH_ROTOR),
        }  # fmt: skip
        why = f"Rotor vibration of order {', '.join(map(str, orders))}; the log has rotor speeds (ESC telemetry)."
        yield Try("harmonic notch (ESC telemetry)", values, tuple(self._following(orders)), why)

    def _moving_betaflight(self) -> Iterator[Try]:
        harmonics = self._count("rpm_filter_harmonics")
        if self.rotors and self.vehicle.has("rpm_filter_harmonics"):
            most = self._orders(BETAFLIGHT_MOST)[-1]
            if harmonics < most:
                values = {"rpm_filter_harmonics": float(most), "rpm_filter_q": 500.0, "rpm_filter_min_hz": 100.0}
                why = f"Rotor vibration up to order {most}; the log has rotor speeds (bidirectional DShot)."
                added = self._following(range(harmonics + 1, most + 1))
                yield Try("RPM filter", values, tuple(added), why)
        elif not self.rotors and self.vehicle.has("dyn_notch_count") and not self.vehicle.value("dyn_notch_count"):
            values = {
                "dyn_notch_count": float(NOTCHES), "dyn_notch_q": 100 * ROTOR_QUALITY,
                "dyn_notch_min_hz": LOWEST_DYNAMIC, "dyn_notch_max_hz": HIGHEST,
            }  # fmt: skip
            why = "Vibration that moves, and no rotor speeds in the log: the dynamic notch finds it by itself."
            yield Try("dynamic notch", values, tuple(self._dynamic()), why)

    def _dynamic(self) -> Iterator[Notch]:
        """Betaflight's dynamic notches on the held-out part, as its own short transform places them."""
        for axis in range(len(self.channels)):
            tracks = [dynamic_peaks(run[:, axis], 1 / self.held.rate) for run in self.held.runs]
            stamps = [start + np.arange(len(run)) / self.held.rate
                      for run, start in zip(self.held.runs, self.held.starts, strict=True)]  # fmt: skip
            for number in range(NOTCHES):
                hz = np.concatenate([track[:, number] for track in tracks])
                yield Notch(np.concatenate(stamps), hz, "Betaflight", None, axis)

    def _fixed(self, finding: Finding, moves: bool) -> Iterator[Try]:
        """A notch that stands still, at the frequency that the first half shows."""
        wanted = float(finding.figures["frequency_hz"])
        frequency, broad = _centre_and_width(self.past, wanted, float(finding.figures["width_hz"]))
        width = notch_bandwidth(frequency, broad, self.rate)
        why = f"{finding.title[0].upper()}{finding.title[1:]}." + (
            " It moves with the rotors, whose speeds are not in the log: a notch that stands still fits the speeds of "
            "this flight alone, ESC telemetry would let it follow." if moves else ""
        )  # fmt: skip
        if self.firmware == "PX4":
            for number in range(2):
                names = [f"IMU_GYRO_NF{number}_{kind}" for kind in ("FRQ", "BW")]
                if self._is_free(names[0]):
                    hz, wide = (find(name).typed(value) for name, value in zip(names, (frequency, width), strict=True))
                    yield self._still(f"notch {number}", dict(zip(names, (hz, wide), strict=True)), hz, wide, why)
                    return
        elif self.firmware == "ArduPilot":
            slot = self._slot()
            if slot is not None:
                hz, wide = find(f"{slot}_FREQ").typed(frequency), find(f"{slot}_BW").typed(width)
                values = {
                    f"{slot}_ENABLE": 1.0, f"{slot}_MODE": 0.0, f"{slot}_REF": 0.0, f"{slot}_FREQ": hz,
                    f"{slot}_BW": wide, f"{slot}_ATT": ATTENUATION, f"{slot}_HMNCS": 1.0,
                }  # fmt: skip
                yield self._still("harmonic notch, fixed", values, hz, wide, why)
        else:
            for number in (1, 2):
                if self._is_free(f"gyro_notch{number}_hz"):
                    hz = find("gyro_notch1_hz").typed(frequency)
                    edge = round((math.sqrt(width**2 + 4 * hz**2) - width) / 2)
                    values = {f"gyro_notch{number}_hz": hz, f"gyro_notch{number}_cutoff": float(edge)}
                    # Q = f c / (f² - c²)
                    yield self._still(f"gyro notch {number}", values, hz, (hz**2 - edge**2) / edge, why)
                    return

    def _still(self, group: str, values: Mapping[str, float], hz: float, width: float, why: str) -> Try:
        return Try(group, values, (Notch(np.zeros(1), np.array([hz]), self.firmware, width),), why)

    def _is_free(self, name: str) -> bool:
        """Whether a notch of the firmware is off in the log, and not suggested for another line."""
        return self.vehicle.has(name) and not self.vehicle.value(name) and all(row.name != name for row in self.found)

    def _slot(self) -> str | None:
        """The first harmonic notch of ArduPilot that is free."""
        return next((name for name in ("INS_HNTCH", "INS_HNTC2") if self._is_free(f"{name}_ENABLE")), None)


def _middle(grid: Grid) -> float:
    """Time at which half of the samples are past."""
    left = sum(len(run) for run in grid.runs) / 2
    for run, start in zip(grid.runs, grid.starts, strict=True):
        if len(run) >= left:
            return start + left / grid.rate
        left -= len(run)
    return grid.starts[-1]


def _centre_and_width(grid: Grid, frequency: float, width: float) -> tuple[float, float]:
    """Hz of the middle of what stands above the floor near a frequency, and how wide it would be if it were level.

    The arguments are returned where nothing stands out.
    """
    measured = grid_spectrum(grid)
    excess = np.maximum(measured.density - noise_floor(measured), 0).sum(1)
    near = np.abs(measured.frequency - frequency) <= max(width, 2 * measured.resolution, 0.03 * frequency)
    total = float(excess[near].sum())
    if not total > 0:
        return frequency, width
    centre = float((excess[near] * measured.frequency[near]).sum()) / total
    return centre, total * measured.resolution / float(excess[near].max())
