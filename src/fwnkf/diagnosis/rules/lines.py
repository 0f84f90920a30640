"""Rules about lines in spectra: vibration, rotors and aliases, and what to do about each."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...logs.log import OWN
from ..evidence import SIGNALS, Analysed, Evidence
from ..finding import Finding, Severity
from ..notch import notch, notch_bandwidth
from ..orders import integration_gain
from ..peaks import group_peaks
from ..result import Peak
from ..thresholds import THRESHOLDS, Thresholds

MOST = 6
"""Findings about lines in one log; the rest is in the table of lines."""
FOLLOWING_Q = 5.0
"""Frequency over bandwidth of a notch that follows the speed of a rotor, as Betaflight's RPM filter has it."""


def findings(evidence: Evidence) -> list[Finding]:
    """One finding for each frequency or rotor, whatever the number of channels that show it."""
    results = []
    for part in evidence.analysed:
        if part.role not in SIGNALS and part.stream.role != OWN:
            continue
        followed = [peak for peak in part.peaks if _follows(peak)]
        fixed = [peak for peak in part.peaks if not _follows(peak)]
        results += [_finding(group, part, evidence) for group in _by_source(followed)]
        results += [_finding(group, part, evidence) for group in group_peaks(fixed)]
    results.sort(key=lambda item: (item.severity == "info", -float(item.figures["excess"])))
    return results[:MOST]


def severity(group: Sequence[Peak], part: Analysed, limits: Thresholds) -> tuple[Severity, float]:
    """And the largest amplitude over its threshold, or power over that of the noise where that is more."""
    excess = max(_excess(peak, part, limits) for peak in group)
    serious = any(peak.channel.startswith("accel") and peak.amplitude > limits.accel_failure for peak in group)
    return ("failure" if serious else "warning" if excess > 1 else "info"), excess


def _excess(peak: Peak, part: Analysed, limits: Thresholds) -> float:
    """A small line also gives a warning if it has more power than the rest of the noise."""
    share = noise_share(peak, part, limits) / limits.line_power_share
    return max(peak.amplitude / _limit(peak.channel, limits), math.sqrt(share))


def noise_share(peak: Peak, part: Analysed, limits: Thresholds) -> float:
    """Power of a line over the power of the noise without lines in its channel."""
    above = part.signal.frequency >= limits.line_lowest
    floor = part.floor[:, part.series.channels.index(peak.channel)]
    level = float(np.median(floor[above])) if above.any() else float(floor[-1])
    return 0.5 * peak.amplitude**2 / max(level * part.signal.rate / 2, np.finfo(float).tiny)


def _limit(channel: str, limits: Thresholds) -> float:
    """Of the amplitude; a column of which nothing is known has none."""
    known = {"accel": limits.line_accel, "gyro": limits.line_gyro}
    return known.get(channel.partition("_")[0], math.inf)


def _follows(peak: Peak) -> bool:
    return peak.rotor is not None or peak.label.startswith("sweeps")


def _by_source(peaks: Sequence[Peak]) -> list[list[Peak]]:
    """By rotor, all its harmonics together, folded or not: they have one remedy. All else that sweeps is one source."""
    groups: dict[int | None, list[Peak]] = {}
    for peak in peaks:
        groups.setdefault(peak.rotor, []).append(peak)
    return [sorted(group, key=lambda peak: -peak.ratio) for group in groups.values()]


def _finding(group: Sequence[Peak], part: Analysed, evidence: Evidence) -> Finding:
    limits, rate = evidence.thresholds, part.series.rate
    level, excess = severity(group, part, limits)
    top = max(group, key=lambda peak: _excess(peak, part, limits))
    channels = tuple(dict.fromkeys(peak.channel for peak in group if peak.harmonic == top.harmonic))
    others = sorted({peak.harmonic for peak in group if peak.harmonic is not None} - {top.harmonic})
    folded = top.origin is not None and top.origin > rate / 2
    cause = "aliasing" if folded else "rotor_vibration" if _follows(top) else "vibration"
    figures: dict[str, float | str] = {
        "frequency_hz": top.frequency,
        "amplitude": top.amplitude,
        "ratio": top.ratio,
        "width_hz": top.width,
        "rate_hz": rate,
        "excess": excess,
        "noise_share": noise_share(top, part, limits),
        "label": top.label,
        "attributed": float(top.rotor is not None or top.correlation is not None),
    }
    if top.rotor is not None:
        figures["rotor"] = float(top.rotor)
    if top.harmonic is not None:
        figures["harmonic"] = float(top.harmonic)
    if top.origin is not None:
        figures["origin_hz"] = top.origin
    text = (
        f"{_criterion(group, top, part, limits)}; {top.ratio:{'.3g' if top.ratio < 1000 else ',.0f'}} times the noise "
        f"floor around it (detection threshold {limits.line_ratio:g})"
    )
    if top.correlation is not None:
        text += f"; correlation with its source {top.correlation:.2f}"
    if top.label:
        text += f"; {top.label}"
    if _follows(top) and others:
        text += f"; also at harmonics {', '.join(map(str, others))}"
    return Finding(
        cause, level, _score(top), _what(cause, top, channels), text,
        _action(cause, top, part, figures), channels, figures,
    )  # fmt: skip


def _criterion(group: Sequence[Peak], top: Peak, part: Analysed, limits: Thresholds) -> str:
    """Amplitude and power of a line; a threshold stands beside a value that exceeds it, or beside both if none does."""
    units = dict(zip(part.series.channels, part.series.units, strict=True))
    unit = units[top.channel]
    strongest = max(
        (peak for peak in group if peak.channel.startswith("accel")), key=lambda p: p.amplitude, default=top
    )
    if strongest.channel.startswith("accel") and strongest.amplitude > limits.accel_failure:
        return (
            f"amplitude {strongest.amplitude:.3g} {units[strongest.channel]} in {strongest.channel} (failure above "
            f"{limits.accel_failure:g} {units[strongest.channel]})"
        )
    limit, share = _limit(top.channel, limits), noise_share(top, part, limits)
    amplitude = f"amplitude {top.amplitude:.3g} {unit} in {top.channel}"
    power = f"{share:.2g} times the power of the other noise"
    large, strong = top.amplitude > limit, share > limits.line_power_share
    if (large or not strong) and math.isfinite(limit):
        amplitude += f" (warning above {limit:g} {unit})"
    if strong or not large:
        power += f" (warning above {limits.line_power_share:g})"
    return f"{amplitude}, {power}"


def _what(cause: str, top: Peak, channels: Sequence[str]) -> str:
    where = ", ".join(channels)
    source = f"rotor {top.rotor}" if top.rotor is not None else "a source with a changing speed"
    order = "" if top.harmonic in (None, 1) else f" (harmonic {top.harmonic})"
    if cause == "aliasing":
        return (
            f"The line at {top.frequency:.4g} Hz in {where} is an alias: {source}{order} vibrates at "
            f"{top.origin:.4g} Hz, above half the sampling rate."
        )
    if cause == "rotor_vibration":
        return f"Vibration of {source}{order} near {top.frequency:.4g} Hz in {where}."
    note = ", close to half the sampling rate and possibly an alias" if "folded" in top.label else ""
    if math.isinf(_limit(top.channel, THRESHOLDS)):
        return f"A tone at {top.frequency:.4g} Hz in {where}{note}."
    return f"Vibration at a fixed frequency of {top.frequency:.4g} Hz in {where}{note}."


def _score(top: Peak) -> float:
    """From the ratio of the line to the floor; lower where only a sweep or a fold suggests the source."""
    score = 1 - 0.5 / max(1.0, top.ratio / 2)
    if _follows(top) and top.rotor is None:
        score = min(score, 0.8)
    return round(min(score, 0.99), 2)


def _action(cause: str, top: Peak, part: Analysed, figures: dict[str, float | str]) -> str:
    rate = part.series.rate
    if cause == "aliasing":
        origin = top.origin or rate - top.frequency
        gain = integration_gain(origin, rate)
        figures["gain"] = gain
        # every multiple of half the rate reflects the frequency once more
        way = "falls" if int(2 * origin / rate) % 2 else "rises"
        return (
            f"Balance or replace the rotor. Raise the sampling rate above {2.5 * origin:.0f} Hz, or add a low-pass "
            f"filter below {rate / 2:.0f} Hz before sampling: the average over one sample interval still passes "
            f"{gain:.2g} of the amplitude at {origin:.4g} Hz. A notch after sampling must follow the alias, whose "
            f"frequency {way} when the rotor speed rises."
        )
    # one that follows the speed need not cover the whole sweep
    width = top.frequency / FOLLOWING_Q if _follows(top) else notch_bandwidth(top.frequency, top.width, rate)
    delay = 1e3 * notch(min(top.frequency, 0.49 * rate), width, rate).delay(rate)
    figures |= {"notch_bandwidth_hz": width, "notch_delay_ms": delay}
    mechanical = "Balance or replace the propeller" if cause == "rotor_vibration" else "Stiffen or damp the mount"
    if math.isinf(_limit(top.channel, THRESHOLDS)):
        mechanical = "Find the source: mains and its harmonics, a motor or pump, a switching supply, a loose mount"
    kind = "that follows the rotor speed, " if cause == "rotor_vibration" else ""
    return (
        f"{mechanical}. A notch filter {kind}at {top.frequency:.4g} Hz with a bandwidth of {width:.3g} Hz adds "
        f"{delay:.2g} ms of delay. Noise states in the filter at {top.frequency:.4g} Hz (standard deviation "
        f"{top.amplitude / math.sqrt(2):.2g}) add no delay and keep its covariance consistent: --fix fits them."
    )
