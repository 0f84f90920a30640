"""How sure a finding is, as a score between 0 and 1: near the share of such findings that were right on simulated logs.

Counted by ``benchmarks/diagnosis.py`` on seeds that rules were chosen on. What tells right findings from wrong ones is
how far a line stands out of the noise beside it, not how far its likelihood is above that of the next cause:
likelihoods of strong lines are alike whatever is assumed. Low scores are set by hand: such findings are so rare (fewer
than ten of a kind) that their share is hardly known, and the scores are drawn towards a half.
"""

from __future__ import annotations

from collections.abc import Mapping

PLAIN, DOUBTFUL = 0.98, 0.5
"""Scores of what is measured directly, and of what another cause explains as well."""
LINE = ((30.0, 0.98), (10.0, 0.75), (0.0, 0.4))
"""Of a line: power over the floor from which it has a score, the highest first."""
RESONANCE = ((100.0, 0.4), (30.0, 0.8), (0.0, 0.97))
"""Of a resonance: one that stands out as a line does may be a line that moves within a band."""
LEAST_EXCESS = 3.0
"""Amplitude over its limit from which the score of a resonance holds; below it is doubtful."""
SHAKING = 0.95


def line_score(cause: str, figures: Mapping[str, float | str]) -> float:
    """Of a line or a resonance, by its ``ratio`` to the floor and its ``excess`` over the limit.

    >>> line_score("vibration", {"ratio": 200.0, "excess": 4.0}), line_score("rotor_vibration", {"ratio": 4.0})
    (0.98, 0.4)
    """
    resonant = cause == "resonance"
    if resonant and float(figures.get("excess", LEAST_EXCESS)) < LEAST_EXCESS:
        return DOUBTFUL
    ratio = float(figures["ratio"])
    return next(score for least, score in (RESONANCE if resonant else LINE) if ratio >= least)


def plain_score(doubtful: bool = False) -> float:
    """Of a cause that is measured directly."""
    return DOUBTFUL if doubtful else PLAIN
