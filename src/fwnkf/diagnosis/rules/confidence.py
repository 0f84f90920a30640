"""How sure a finding is, as a score between 0 and 1.

The constants are set by hand near the share of right findings that were counted on simulated logs with
labelled faults; they are not fitted, and causes have no scores of their own.
"""

from __future__ import annotations

from collections.abc import Mapping

PLAIN, DOUBTFUL, BEST = 0.95, 0.5, 0.97
"""Scores of what is measured directly, of what another cause explains as well, and of the surest line."""


def line_score(figures: Mapping[str, float | str]) -> float:
    """Of a line: lower where it is hardly above its limit, or where another cause explains it nearly as well."""
    excess, margin = float(figures.get("excess", 1.0)), float(figures.get("margin", 0.5))
    return round(min(BEST, 0.75 + 0.1 * min(excess, 2) + 0.1 * max(min(margin, 0.2), 0)), 2)


def plain_score(doubtful: bool = False) -> float:
    """Of a cause that is measured directly."""
    return DOUBTFUL if doubtful else PLAIN
