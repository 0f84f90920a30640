"""Rules for columns of which only the numbers are known: too coarse, or drifting at rest."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ...logs.log import OWN
from ..evidence import Analysed, Evidence
from ..finding import Finding
from ..resolution import drift, resolution
from ..thresholds import Thresholds


def findings(evidence: Evidence) -> Iterator[Finding]:
    """Of columns under their own names; what inertial sensors do is known better."""
    for part in evidence.analysed:
        if part.stream.role == OWN:
            yield from _coarse(part, evidence.thresholds)
            yield from _drifting(part, evidence.thresholds)


def _white(part: Analysed, column: int) -> float:
    """Variance of the white noise of a channel: the floor of its spectrum in the upper half, without lines."""
    upper = part.signal.frequency >= 0.25 * part.signal.rate
    return 0.5 * part.signal.rate * float(np.median(part.floor[upper, column]))


def _coarse(part: Analysed, limits: Thresholds) -> Iterator[Finding]:
    rate = part.series.rate
    for column, (channel, unit) in enumerate(zip(part.series.channels, part.series.units, strict=True)):
        step = resolution(part.series.values[:, column])
        if step is None:
            continue
        share = step**2 / 12 / max(_white(part, column), np.finfo(float).tiny)
        if share < limits.resolution_share:
            continue
        yield Finding(
            "quantisation",
            "warning",
            0.95,
            f"{channel} is coarse: it moves in steps of {step:.4g} {unit}".rstrip() + ", which are most of its noise.",
            f"the variance of such steps, {step**2 / 12:.3g}, is {min(share, 1.0):.0%} of the white noise (threshold "
            f"{limits.resolution_share:.0%}); {len(np.unique(part.series.values[:, column])):,} different values in "
            f"{len(part.series):,} samples",
            f"Record with more digits or a finer encoder. In a filter, give {channel} a measurement noise of at least "
            f"{step / math.sqrt(12):.3g} {unit}".rstrip()
            + f" (standard deviation), and estimate its rate of change by the filter (--fix): differences of "
            f"neighbouring samples come in steps of {step * rate:.3g} a second.",
            (channel,),
            {"step": step, "noise_share": share, "std": step / math.sqrt(12)},
        )


def _drifting(part: Analysed, limits: Thresholds) -> Iterator[Finding]:
    """A straight drift of a channel that does not move otherwise."""
    for column, (channel, unit) in enumerate(zip(part.series.channels, part.series.units, strict=True)):
        values = part.series.values[:, column]
        found = drift(part.series.time, values)
        if found is None or found.t < limits.drift_t:
            continue
        noise = math.sqrt(_white(part, column))
        if found.scatter > noise or abs(found.change) < noise:
            continue  # it moves, or drifts by less than a sample says
        yield Finding(
            "drift",
            "info",
            0.6,
            f"{channel} drifts by {found.change:+.3g} {unit}".rstrip() + f" in {np.ptp(part.series.time):.3g} s.",
            f"{found.slope:+.3g} {unit or 'units'} a second, {found.t:.0f} times its standard error (threshold "
            f"{limits.drift_t:g}); the noise of a sample is {noise:.2g}",
            "If what it measures was at rest, let the sensor warm up or tare it before use, and give the estimator a "
            "bias state.",
            (channel,),
            {"change": found.change, "slope": found.slope},
        )
