"""Rules about levels that the autopilot measured itself: vibration and clipping."""

from __future__ import annotations

import numpy as np

from ..evidence import Evidence
from ..finding import Finding, Severity
from ..thresholds import Thresholds


def findings(evidence: Evidence) -> list[Finding]:
    """From the vibration signal of the log."""
    stream = evidence.role("vibration")
    if stream is None:
        return []
    limits = evidence.thresholds
    results = []
    levels = {
        name: float(np.nanmedian(values))
        for name, values in stream.columns.items()
        if name.startswith("vibration") and np.isfinite(values).any()
    }
    if levels:
        results += _vibration(levels, evidence.log.format, limits)
    clips = {
        name: float(np.nanmax(values) - np.nanmin(values))
        for name, values in stream.columns.items()
        if name.startswith("clip") and np.isfinite(values).any()
    }
    total = sum(clips.values())
    if total > 0:
        listed = ", ".join(f"{name} {count:.0f}" for name, count in clips.items() if count)
        level: Severity = "warning" if total > limits.clip_count else "info"
        results.append(
            Finding(
                "clipping",
                level,
                0.95,
                f"The accelerometer clipped {total:.0f} times in the air.",
                f"clipping counters of {stream.name}: {listed} (threshold {limits.clip_count:g})",
                "Clipped samples have an unknown error that does not average out. Choose a larger measurement range, "
                "damp the mount, and look for the cause: an impact, or vibration above the logged bandwidth.",
                tuple(clips),
                {"count": total},
            )
        )
    return results


def _vibration(levels: dict[str, float], source: str, limits: Thresholds) -> list[Finding]:
    """ArduPilot's VIBE has three axes, PX4's metric one number; each has thresholds of its own."""
    vibe = source == "DataFlash"
    name, top = max(levels.items(), key=lambda item: item[1])
    low = limits.vibe_grey if vibe else limits.accel_grey
    warning, failure = (
        (limits.vibe_warning, limits.vibe_failure) if vibe else (limits.accel_warning, limits.accel_failure)
    )
    if top < low:
        return []
    # VIBE of a healthy vehicle is a few m/s²: a cut propeller shows long before the autopilot's limits
    level: Severity = "failure" if top > failure else "warning" if vibe or top > warning else "info"
    listed = " / ".join(f"{value:.3g}" for value in levels.values())
    scale = (
        f"good below {limits.vibe_grey:g}, poor above {limits.vibe_poor:g}, unacceptable above {warning:g}"
        if vibe
        else f"amber above {warning:g}, red above {failure:g}"
    )
    return [
        Finding(
            "broadband",
            level,
            0.9,
            f"The autopilot measured strong vibration: {top:.3g} m/s² in {name}.",
            f"median in the air {listed} m/s² ({scale})",
            "Check for a damaged or unbalanced propeller, a bent shaft or a loose mount before you tune any filter.",
            tuple(levels),
            {"level": top, "excess": top / low},
        )
    ]
