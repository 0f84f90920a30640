"""Rules about the size of signals: clipping and shocks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...logs.log import OWN
from ..amplitude import Clip, clipping, shocks
from ..evidence import Analysed, Evidence
from ..finding import Finding
from .confidence import plain_score

ACCEL = tuple(f"accel_{axis}" for axis in "xyz")
LEAST_RETURNS = 3
"""Times that a column is at its limit, at least, to be clipped."""


def findings(evidence: Evidence) -> Iterator[Finding]:
    """Of the inertial sensors as they are in the log."""
    yield from _clipping(evidence)
    yield from _shocks(evidence)


def _clipping(evidence: Evidence) -> Iterator[Finding]:
    limits = evidence.thresholds
    for part in evidence.analysed:
        if part.role == "pose":
            continue
        clips = clipping(part.series.values, part.series.channels, thresholds=limits)
        if part.stream.role == OWN:  # a sensor at rest stands at its lowest value too, but does not come back to it
            clips = [clip for clip in clips if _returns(part, clip) >= LEAST_RETURNS]
        if not clips:
            continue
        units = dict(zip(part.series.channels, part.series.units, strict=True))
        worst = clips[0]
        share = max(clip.share for clip in clips)
        yield Finding(
            "clipping",
            "failure" if share > limits.clip_share_failure else "warning",
            plain_score(),
            f"{', '.join(dict.fromkeys(clip.channel for clip in clips))} clipped: the signal exceeds the range.",
            ", ".join(
                f"{clip.channel} {clip.samples:,} times at {clip.limit:.4g} {units[clip.channel]}" for clip in clips
            )
            + f"; {100 * share:.2g} % of the samples (threshold {100 * limits.clip_share:g} %)",
            "Choose a larger measurement range, or damp the mount. No filter can recover clipped samples, and they "
            "bias velocity and attitude.",
            tuple(dict.fromkeys(clip.channel for clip in clips)),
            {"limit": worst.limit, "share": share, "count": float(worst.samples), "excess": share / limits.clip_share},
        )


def _returns(part: Analysed, clip: Clip) -> int:
    """How often a channel reaches the limit."""
    values = part.series.values[:, part.series.channels.index(clip.channel)]
    at = np.isclose(values, clip.limit, rtol=0, atol=1e-7 * float(np.nanmax(values) - np.nanmin(values)))
    return int((np.diff(at.astype(int)) == 1).sum() + at[0])


def _shocks(evidence: Evidence) -> Iterator[Finding]:
    stream = evidence.whole("imu") or evidence.whole("accel")
    if stream is None or not set(ACCEL) <= set(stream.columns):
        return
    moments = shocks(stream.time, stream.stack(ACCEL), thresholds=evidence.thresholds)
    if not moments:
        return
    worst = max(moments, key=lambda shock: shock.peak)
    yield Finding(
        "impact",
        "failure",
        plain_score(),
        f"Impact of {worst.peak:.4g} m/s² at {worst.time:.1f} s"
        + (f", one of {len(moments)}." if len(moments) > 1 else "."),
        ", ".join(f"{s.peak:.3g} m/s² at {s.time:.1f} s for {s.seconds:.2g} s" for s in moments[:6])
        + f" (threshold: {evidence.thresholds.shock_accel:g} m/s² from the median)",
        "Use only the part of the log before the impact: the data after it do not represent normal flight.",
        ACCEL,
        {"peak": worst.peak, "at_s": worst.time, "excess": worst.peak},
    )
