"""Rules about lines in spectra: rotors, fixed frequencies, resonances, and what to do about each.

One source is one finding: a rotor with its orders, folded or not; all rotors together, because the remedy is the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..evidence import Analysed, Evidence
from ..finding import HIGH, Finding, Severity
from ..notch import notch, notch_bandwidth
from ..orders import fold, integration_gain
from ..result import Peak
from ..rotors import Named
from ..sources import Line
from ..thresholds import Thresholds
from . import advice
from .confidence import SHAKING, line_score
from .visibility import to_record_speeds

FOLLOWING_Q = 5.0
"""Frequency over bandwidth of a notch that follows the speed of a rotor, as Betaflight's RPM filter has it."""
BESIDE = 0.12
"""Relative distance from the band of a line that moves, within which what is left of it is not another source."""
NEAR = 0.03
"""Relative distance from a multiple of a line within which a weaker band is that multiple."""
STEADY = 0.02
"""Relative spread of motor commands below which a rotor may have turned at one speed."""
SHORT = 6.5
"""Seconds below which a log cannot tell a resonance from a line that moves."""
SMEAR = 0.18
"""Width over frequency from which a band is not named a resonance where other lines move."""
IN_MOTION = 3.0
"""Power over the floor up to which a line below the lowest of those that move by themselves may be fast motion."""
IN_WASH = 5.0
"""The same for what moves by itself, at any frequency: flight through the own wash shakes as broadly. On simulated logs
of healthy acrobatic flights such bands have 2 to 3.5."""
RINGING = 250.0
"""Power over the floor up to which a band is a resonance, which rings for moments; a higher one is a line that moves
within it. On simulated logs resonances have 3 to 80, lines that were taken for one 700 and more."""
LEFT = 0.35
"""Likelihood gained, over that of the line that moves, up to which something beside it is what is left of it."""


class Found(NamedTuple):
    """A source, and the stream in which it is."""

    named: Named
    part: Analysed

    @property
    def moves(self) -> bool:
        kind = self.named.source.kind
        return kind in ("rotor", "sweep") or (kind == "resonance" and self.named.peaks[0].ratio > RINGING)


def findings(evidence: Evidence) -> list[Finding]:
    """One finding for all that moves with the rotors, and one for each fixed line and resonance."""
    limits = evidence.thresholds
    everything = [Found(item, part) for part in evidence.analysed for item in part.named]
    least = {"rotor": limits.line_least, "resonance": limits.line_least}
    # what is sharp or moves by itself stands out of noise that is not smooth only where it is well above it
    least |= {"sweep": limits.line_ratio, "fixed": limits.line_ratio}
    found = [item for item in everything if item.named.peaks[0].ratio > least.get(item.named.source.kind, math.inf)]
    moving = [item for item in found if item.moves]
    moving += [item for item in found if moving and _unclear(item)]
    still = [item for item in found if not item.moves and item not in moving]
    fixed = [item for item in still if not _left_over(item, everything)]
    results = [_finding(group, evidence) for group in _groups(moving, fixed)]
    if all(item.severity == "info" for item in results):
        results += list(_broadband(evidence, limits))
    return sorted(results, key=lambda item: (item.severity == "info", -float(item.figures["excess"])))


def _unclear(item: Found) -> bool:
    """Whether a broad band may as well be lines that move in it, of which there are others in the log."""
    source = item.named.source
    line = source.lines[0]
    return source.kind == "resonance" and line.width > SMEAR * line.frequency and source.margin < 0.02


def _groups(moving: list[Found], fixed: list[Found]) -> Iterator[list[Found]]:
    if moving:
        yield moving
    rest = sorted(fixed, key=lambda item: -item.named.source.lines[0].gain)
    while rest:
        first, *rest = rest
        top = first.named.peaks[0]
        # the same line in another stream, such as a gyro and an accelerometer of their own, is the same source
        same = [
            item for item in rest
            if abs(item.named.peaks[0].frequency - top.frequency) <= max(0.03 * top.frequency, 0.5 * top.width)
        ]  # fmt: skip
        rest = [item for item in rest if item not in same]
        yield [first, *same]


def _left_over(item: Found, others: Sequence[Found]) -> bool:
    """Whether a source stands where a stronger line moves, at a multiple of it, or in the skirt of a stronger one."""
    own = item.named.source.lines[0]
    at, sharp = item.named.peaks[0].frequency, item.named.source.kind == "fixed"
    for other in others:
        source = other.named.source
        if other is item or other.part is not item.part:
            continue
        for line in source.lines:
            track = line.track[line.track > 0]
            low, high = np.quantile(track, (0.05, 0.95)) if len(track) else (line.frequency, line.frequency)
            orders: tuple[int, ...] = (1,)
            least = LEFT
            if source.kind in ("rotor", "sweep"):
                orders = (1, 2, 3)
                least = 1.0 if source.kind == "sweep" and not sharp else LEFT
            else:
                reach = max(0.2 * line.frequency, 1.5 * line.width)
                low, high = line.frequency - reach, line.frequency + reach
            if own.gain < least * line.gain and any(
                (1 - BESIDE) * order * low <= at <= (1 + BESIDE) * order * high for order in orders
            ):
                return True
            if other.moves and not sharp and _is_multiple(item, other, line):
                return True
    return False


def _is_multiple(item: Found, other: Found, line: Line) -> bool:
    """Whether a band is a weaker multiple of a line that moves, folded where it has to be.

    Likelihoods of strong lines are alike whatever their power, so the amplitudes are compared.
    """
    top = item.named.peaks[0]
    strongest = max((peak.amplitude for peak in other.named.peaks if peak.channel == top.channel), default=0.0)
    half = max(line.spread, 0.5 * line.width if other.named.source.kind == "resonance" else 0.0)
    places = [(float(fold(order * line.frequency, item.part.series.rate)), order) for order in (2, 3)]
    near = any(abs(top.frequency - at) < max(NEAR * at, order * half) for at, order in places)
    return near and top.amplitude < strongest


# ---- how much it matters --------------------------------------------------------------------------------------------


def limit_of(channel: str, part: Analysed, evidence: Evidence) -> float:
    """Amplitude of a line from which it is worth a warning: of a sensor without a limit, that of its other noise."""
    limits = evidence.thresholds
    for sensor, limit in (("accel", limits.line_accel), ("gyro", limits.line_gyro)):
        if channel.startswith(sensor):
            return limit * evidence.factors.get(channel, 1.0)
    return math.sqrt(2 * limits.line_power_share) * noise_rms(channel, part, limits)


def noise_rms(channel: str, part: Analysed, limits: Thresholds) -> float:
    """Of the noise of a channel without its lines."""
    above = part.signal.frequency >= min(limits.line_lowest, 0.1 * part.signal.rate)
    floor = part.floor[:, part.series.channels.index(channel)]
    level = float(np.median(floor[above])) if above.any() else float(floor[-1])
    return math.sqrt(max(level * part.signal.rate / 2, np.finfo(float).tiny))


def _excess(peak: Peak, part: Analysed, evidence: Evidence) -> float:
    return peak.amplitude / limit_of(peak.channel, part, evidence)


def _in_motion(peak: Peak, item: Found, moves: bool, limits: Thresholds) -> bool:
    """Whether fast motion looks the same as a line of a group that moves, or does not."""
    kind = item.named.source.kind
    if peak.frequency < limits.sweep_lowest:
        return kind == "sweep" or peak.ratio < IN_MOTION
    return moves and kind != "rotor" and peak.ratio < IN_WASH


def _severity(pairs: Sequence[tuple[Peak, Found]], evidence: Evidence) -> tuple[Severity, float]:
    limits = evidence.thresholds
    excess = max(_excess(peak, item.part, evidence) for peak, item in pairs)
    serious = any(
        peak.channel.startswith("accel")
        and peak.amplitude > limits.accel_failure * evidence.factors.get(peak.channel, 1.0)
        for peak, _ in pairs
    )
    return ("failure" if serious else "warning" if excess > 1 else "info"), excess


# ---- the finding ----------------------------------------------------------------------------------------------------


def _finding(group: Sequence[Found], evidence: Evidence) -> Finding:
    limits = evidence.thresholds
    pairs = [(peak, item) for item in group for peak in item.named.peaks]
    moves = any(item.moves for item in group)
    clear = [pair for pair in pairs if not _in_motion(*pair, moves, limits)]
    top, best = max(clear or pairs, key=lambda pair: _excess(pair[0], pair[1].part, evidence))
    source, part = best.named.source, best.part
    level, excess = _severity(clear or pairs, evidence)
    if not clear:
        level = "info"
    if source.kind == "resonance" and len(part.series) < SHORT * part.series.rate:
        level = "info"  # a line that moves looks the same
    rate = part.series.rate
    near = [peak for item in group for peak in item.named.peaks
            if peak.harmonic == top.harmonic and _excess(peak, item.part, evidence) > 0.3 * excess]  # fmt: skip
    near.sort(key=lambda peak: peak is not top)
    channels = tuple(dict.fromkeys(peak.channel for peak in near))
    folded = top.origin is not None and top.origin > rate / 2
    cause = "rotor_vibration" if moves else "resonance" if source.kind == "resonance" else "vibration"
    if cause == "resonance" and top.frequency > limits.nyquist_share * rate / 2:
        cause = "aliasing"  # what moves across half the sampling rate gathers there
    units = dict(zip(part.series.channels, part.series.units, strict=True))
    figures: dict[str, float | str] = {
        "frequency_hz": top.frequency, "amplitude": top.amplitude, "ratio": top.ratio, "width_hz": top.width,
        "rate_hz": rate, "excess": excess, "margin": source.margin, "label": top.label, "folded": float(folded),
        "gain": source.lines[0].gain, "cost": top.amplitude / math.sqrt(2), "cost_unit": units.get(top.channel, ""),
    }  # fmt: skip
    if moves:
        figures["attributed"] = float(source.rotor is not None or source.motor is not None)
        order = next((line.order for line in source.lines if abs(line.frequency - top.frequency) < 1e-6), 1.0)
        figures["harmonic"] = order
        if source.rotor is not None:
            figures["rotor"] = float(source.rotor)
        others = sorted({item.named.source.rotor for item in group if item.named.source.rotor} - {source.rotor})
        if others:
            figures["other_rotors"] = ", ".join(map(str, others))
    if folded and top.origin is not None:
        figures["origin_hz"] = top.origin
    unit = f" {units[top.channel]}".rstrip()  # columns of other sensors may have none
    limit = limit_of(top.channel, part, evidence)
    serious = level == "failure"
    threshold = f"failure above {limits.accel_failure:g}" if serious else f"warning above {limit:.3g}"
    text = (
        f"amplitude {top.amplitude:.3g}{unit} in {top.channel} ({threshold}{unit}), "
        f"{top.ratio:{'.3g' if top.ratio < 1000 else ',.0f'}} times the noise beside it"
    )
    text += _also(group, top, source.kind)
    if source.correlation is not None:
        text += f"; correlation with the motor command {source.correlation:.2f}"
    other = _alternative(cause, top, figures, evidence)
    if other:
        figures["alternative"] = "rotor_vibration" if cause != "rotor_vibration" else "vibration"
        text += f"; {other} looks the same in this log"
    return Finding(
        cause, level, line_score(cause, figures), _what(cause, top, channels, figures), text,
        _action(cause, top, part, figures, evidence) + (f" {_to_tell_apart(other, evidence)}" if other else ""),
        channels, figures,
    )  # fmt: skip


def _alternative(cause: str, top: Peak, figures: Mapping[str, float | str], evidence: Evidence) -> str:
    """What the log cannot tell from the cause that is named; empty where rotor speeds would not help."""
    if evidence.role("rotor") is not None or not top.channel.startswith(("gyro", "accel")):
        return ""
    if cause == "vibration" and _steady(evidence):
        return "a rotor at a constant speed"
    if cause == "resonance" and line_score(cause, figures) < HIGH:
        return "a rotor line that moves within this band"
    if cause == "rotor_vibration" and not figures["attributed"]:
        return "another machine whose speed changes"
    return ""


def _steady(evidence: Evidence) -> bool:
    """Whether rotors may have turned at one speed, as far as motor commands tell."""
    motor = evidence.role("motor")
    if motor is None:
        return True
    command = np.nanmean(motor.stack(), axis=1)
    return float(np.nanstd(command)) < STEADY * abs(float(np.nanmean(command)))


def _to_tell_apart(other: str, evidence: Evidence) -> str:
    return f"It may also be {other}: to tell them apart, {to_record_speeds(evidence.log.format)}, and record again."


def _also(group: Sequence[Found], top: Peak, kind: str) -> str:
    """The other lines of the same cause: harmonics, aliases, and other rotors."""
    others: dict[str, str] = {}
    for item in group:
        for peak in item.named.peaks:
            if abs(peak.frequency - top.frequency) > 0.01 * top.frequency:
                name = f"{peak.frequency:.4g} Hz"
                others.setdefault(name, f"{name} ({peak.label})" if kind != "resonance" else name)
    return f"; also {', '.join(list(others.values())[:6])}" if others else ""


def _what(cause: str, top: Peak, channels: Sequence[str], figures: dict[str, float | str]) -> str:
    where = ", ".join(channels)
    at = f"{top.frequency:.4g} Hz"
    if cause == "aliasing":
        return f"Vibration that gathers at {at}, close to half the sampling rate, in {where}: probably folded."
    if cause == "resonance":
        return f"A resonance at {at}, {top.width:.2g} Hz wide, in {where}."
    if cause == "vibration":
        note = ", close to half the sampling rate and possibly an alias" if "folded" in top.label else ""
        return f"Vibration at a fixed frequency of {at} in {where}{note}."
    name = f"rotor {top.rotor}" if top.rotor is not None else "the rotors" if figures["attributed"] else ""
    order = float(figures.get("harmonic", 1.0))
    notes = [f"{order:.4g} times its speed"] if order != 1 and top.rotor is not None else []
    if "origin_hz" in figures:
        notes.append(f"folded from {float(figures['origin_hz']):.4g} Hz, above half the sampling rate")
    more = f" ({'; '.join(notes)})" if notes else ""
    if not name:
        return f"Vibration whose frequency changes, near {at}{more}, in {where}: probably the rotors."
    return f"Vibration of {name} near {at}{more} in {where}."


def _action(cause: str, top: Peak, part: Analysed, figures: dict[str, float | str], evidence: Evidence) -> str:
    rate, kind = part.series.rate, evidence.log.format
    inertial = top.channel.startswith(("gyro", "accel"))
    follows = cause == "rotor_vibration"
    # a notch that follows the speed need not cover the whole sweep
    width = top.frequency / FOLLOWING_Q if follows else notch_bandwidth(top.frequency, top.width, rate)
    delay = 1e3 * notch(min(top.frequency, 0.49 * rate), min(width, 0.2 * rate), rate).delay(rate)
    figures |= {"notch_bandwidth_hz": width, "notch_delay_ms": delay}
    if "origin_hz" in figures:
        origin = float(figures["origin_hz"])
        figures["gain_before_sampling"] = integration_gain(origin, rate)
        # every multiple of half the rate reflects the frequency once more
        way = "falls" if int(2 * origin / rate) % 2 else "rises"
        return (
            f"Balance or replace the propeller. Raise the sampling rate above {2.5 * origin:.0f} Hz, or filter below "
            f"{rate / 2:.0f} Hz before sampling. A notch after sampling must follow the alias, whose frequency {way} "
            "when the rotor speed rises."
        )
    if cause == "aliasing":
        return (
            f"Raise the sampling rate above {1.25 * rate:.0f} Hz, or filter below {rate / 2:.0f} Hz before sampling, "
            "and record again: which source it has, this log cannot tell."
        )
    first = {
        "rotor_vibration": "Balance or replace the propeller",
        "resonance": "Stiffen or damp what resonates, or shift the rotor speeds away from it",
    }.get(cause, "Find what runs at this frequency, and stiffen or damp the mount" if inertial else "Find its source")
    setting = advice.notch(kind, top.frequency, width, follows, int(float(figures.get("harmonic", 1))))
    return f"{first}. {setting} (adds {delay:.2g} ms of delay); --fix models it without delay."


# ---- broadband ------------------------------------------------------------------------------------------------------


def _broadband(evidence: Evidence, limits: Thresholds) -> Iterator[Finding]:
    """Shaking without a line: a sensor or a battery that is not held."""
    for part in evidence.analysed:
        chosen = [k for k, name in enumerate(part.series.channels) if name.startswith("accel")]
        if not chosen or part.role not in ("imu", "accel"):
            continue
        frequency = part.signal.frequency
        inside = (frequency >= limits.line_lowest) & (
            frequency <= min(limits.shake_highest, 0.98 * part.signal.rate / 2)
        )
        if not inside.any():
            continue
        level = np.sqrt(part.floor[inside][:, chosen].sum(0) * part.signal.resolution)
        worst = int(level.argmax())
        if level[worst] > limits.shake_accel:
            name = part.series.channels[chosen[worst]]
            yield Finding(
                "broadband", "warning", SHAKING,
                f"Strong shaking without a line: {level[worst]:.2g} m/s² RMS in {name}.",
                f"RMS between {limits.line_lowest:g} and {limits.shake_highest:g} Hz without lines (warning above "
                f"{limits.shake_accel:g} m/s²)",
                "Check that sensor, battery and payload are held, and the propellers undamaged, before you tune any "
                "filter.",
                tuple(part.series.channels[k] for k in chosen),
                {"level": float(level[worst]), "excess": float(level[worst] / limits.shake_accel),
                 "cost": float(level[worst]), "cost_unit": "m/s²"},
            )  # fmt: skip
            return
