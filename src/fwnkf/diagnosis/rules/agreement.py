"""Rules about innovations: as large as stated, white, and inside their gates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..consistency import gate
from ..evidence import Evidence
from ..finding import Finding, Severity
from ..result import ALL_CHANNELS, Consistency
from ..thresholds import Thresholds


def findings(evidence: Evidence) -> list[Finding]:
    """From the innovations of a filter that was given, and from those that the autopilot logged."""
    limits = evidence.thresholds
    results = []
    own = [row for part in evidence.analysed if evidence.given for row in part.consistency]
    for rows, whose in ((own, "the filter"), (evidence.logged, "the autopilot's filter")):
        rows = [row for row in rows if row.name != ALL_CHANNELS and row.mean > 0]
        results += _too_large([row for row in rows if _is_large(row, limits)], whose, limits)
        results += _too_small([row for row in rows if _is_small(row, limits)], whose, limits)
        results += _coloured([row for row in rows if _is_coloured(row, evidence)], whose, limits)
    return results


def nis_of(row: Consistency) -> float:
    """Mean NIS; of a test ratio ``ν² / (gate² S)``, the NIS behind it."""
    return row.mean * _scale(row)


def _scale(row: Consistency) -> float:
    return gate(row.name) ** 2 if row.kind == "test ratio" else 1.0


def _band(row: Consistency) -> str:
    """Of the mean NIS, whatever the row holds."""
    return f"95 % band of the mean of {row.name} {_scale(row) * row.low:.2g} to {_scale(row) * row.high:.2g}"


def _is_large(row: Consistency, limits: Thresholds) -> bool:
    return nis_of(row) > limits.nis_high and row.mean > row.high


def _is_small(row: Consistency, limits: Thresholds) -> bool:
    return nis_of(row) < limits.nis_low and row.mean < row.low


def _is_coloured(row: Consistency, evidence: Evidence) -> bool:
    limits = evidence.thresholds
    explained = any(peak.channel == row.name for peak in evidence.peaks)  # a line has a finding of its own
    correlated = row.correlation is not None and abs(row.correlation) > limits.whiteness_correlation
    return correlated and not explained and row.white_p is not None and row.white_p < limits.whiteness_p


def _listed(rows: Sequence[Consistency], most: int = 6) -> str:
    text = ", ".join(f"{row.name} {nis_of(row):.2g}" for row in rows[:most])
    return text + (f" and {len(rows) - most} more" if len(rows) > most else "")


def _figures(rows: Sequence[Consistency]) -> dict[str, Any]:
    top = rows[0]
    return {
        "nis": nis_of(top),
        "r_factor": nis_of(top),
        "band_low": _scale(top) * top.low,
        "band_high": _scale(top) * top.high,
        "gated_share": top.gated or 0.0,
        **{f"r_factor_{row.name}": nis_of(row) for row in rows},
    }


def _severity(whose: str, gated: float, limits: Thresholds) -> Severity:
    """Constants of an autopilot that were never calibrated are worth a warning where measurements are rejected."""
    rejects = gated > limits.ratio_share_warning
    if whose == "the filter":
        return "failure" if rejects else "warning"
    return "warning" if rejects else "info"


def _too_large(rows: Sequence[Consistency], whose: str, limits: Thresholds) -> list[Finding]:
    if not rows:
        return []
    rows = sorted(rows, key=lambda row: -nis_of(row))
    top, gated = rows[0], max(row.gated or 0.0 for row in rows)
    factor = nis_of(top)
    return [
        Finding(
            "overconfident",
            _severity(whose, gated, limits),
            0.95,
            f"{top.name}: innovations are {factor**0.5:.2g} times as large as {whose} expects"
            + (f", and {len(rows) - 1} other measurement(s) are too large as well." if len(rows) > 1 else "."),
            f"mean NIS {_listed(rows)}, where a consistent filter has 1 and the threshold is {limits.nis_high:g} "
            f"({_band(top)}); {100 * gated:.2g} % rejected by the gate",
            "Check first for a wrong bias, delay or axis if the innovations keep the same sign for a long time. "
            f"Otherwise increase the measurement noise of {top.name}: R × {factor:.3g} (standard deviation × "
            f"{factor**0.5:.2g}), if R is the largest part of the innovation variance.",
            tuple(row.name for row in rows),
            _figures(rows),
        )
    ]


def _too_small(rows: Sequence[Consistency], whose: str, limits: Thresholds) -> list[Finding]:
    if not rows:
        return []
    rows = sorted(rows, key=nis_of)
    top = rows[0]
    factor = nis_of(top)
    return [
        Finding(
            "underconfident",
            "warning" if whose == "the filter" else "info",  # autopilots inflate their noise on purpose
            0.9,
            f"{whose[0].upper()}{whose[1:]} states a much larger uncertainty than its innovations show for "
            f"{len(rows)} measurement(s), so that its innovation gate rejects nothing.",
            f"mean NIS {_listed(rows)}, where a consistent filter has 1 and the threshold is {limits.nis_low:g} "
            f"({_band(top)})",
            f"If the measurements are good, reduce their noise parameter: R × {factor:.2g} (standard deviation × "
            f"{factor**0.5:.2g}) makes {top.name} consistent. Reduce it in steps, and not below the sensor's data "
            "sheet, because R also has to cover delay and vibration.",
            tuple(row.name for row in rows),
            _figures(rows),
        )
    ]


def _coloured(rows: Sequence[Consistency], whose: str, limits: Thresholds) -> list[Finding]:
    if not rows:
        return []
    rows = sorted(rows, key=lambda row: -abs(row.correlation or 0.0))
    listed = ", ".join(f"{row.name} {row.correlation:.2g}" for row in rows[:6])
    return [
        Finding(
            "coloured",
            "info",
            0.9,
            f"Innovations of {whose} are correlated in time for {len(rows)} measurement(s), without a spectral line.",
            f"autocorrelation {listed} (threshold {limits.whiteness_correlation:g}); p = {rows[0].white_p:.1g}",
            "The model lacks something slow: a bias, a delay between sensors, or correlated noise. Estimate the bias "
            "as a state, or check the delay. --fix fits noise states to the IMU.",
            tuple(row.name for row in rows),
            {"correlation": float(rows[0].correlation or 0.0)},
        )
    ]
