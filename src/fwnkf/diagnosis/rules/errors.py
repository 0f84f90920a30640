"""Rules about errors against a reference: as large as the estimator states, on both sides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..consistency import GATE
from ..evidence import Evidence
from ..finding import Finding
from ..result import Consistency

CHECK = (
    "Check first that estimate and reference are in one frame and on one clock: an offset or a delay adds to the error."
)


def findings(evidence: Evidence) -> Iterator[Finding]:
    """From the estimates in the log, and from a filter that was given; one fitted to the log is not judged."""
    limits = evidence.thresholds
    own = [row for part in evidence.analysed if evidence.given for row in part.errors]
    for rows, whose in ((own, "the filter"), (evidence.logged_errors, "the estimator in the log")):
        large = sorted((row for row in rows if row.mean > max(limits.nees_high, row.high)), key=lambda row: -row.mean)
        small = sorted((row for row in rows if row.mean < min(limits.nees_low, row.low)), key=lambda row: row.mean)
        if large:
            top = large[0]
            yield Finding(
                "overconfident",
                "failure" if top.mean > GATE**2 else "warning",
                0.95,
                f"{_component(top)}: errors against the reference are {top.mean**0.5:.2g} times as large as {whose} "
                "expects.",
                _evidence(large, f"threshold is {limits.nees_high:g}"),
                f"{CHECK} If they are, {whose} is overconfident: increase its process noise, or multiply its "
                f"covariance by {top.mean:.3g} (standard deviations × {top.mean**0.5:.2g}) where it is used.",
                tuple(row.name for row in large),
                _figures(large),
            )
        if small:
            top = small[0]
            yield Finding(
                "underconfident",
                "warning",
                0.9,
                f"{_component(top)}: errors against the reference are only {top.mean**0.5:.2g} times as large as "
                f"{whose} expects.",
                _evidence(small, f"threshold is {limits.nees_low:g}"),
                f"Reduce process and measurement noise together: with the covariance multiplied by {top.mean:.2g} "
                f"(standard deviations × {top.mean**0.5:.2g}) the estimate is consistent.",
                tuple(row.name for row in small),
                _figures(small),
            )


def _evidence(rows: Sequence[Consistency], threshold: str) -> str:
    listed = ", ".join(f"{row.name} {row.mean:.3g}" for row in rows[:6])
    top = rows[0]
    return (
        f"mean NEES {listed}, where a consistent estimate has 1 and the {threshold} (95 % band of the mean of "
        f"{top.name} {top.low:.2g} to {top.high:.2g})"
    )


def _figures(rows: Sequence[Consistency]) -> dict[str, float | str]:
    top = rows[0]
    return {
        "nees": top.mean, "p_factor": top.mean, "band_low": top.low, "band_high": top.high,
        **{f"p_factor_{_component(row)}": row.mean for row in rows},
    }  # fmt: skip


def _component(row: Consistency) -> str:
    """The name of what is estimated, without the word for its error."""
    return row.name.replace(" error", "")
