"""What a diagnosis said of a log against the labels of that log: the arithmetic of ``benchmarks/diagnosis.py``.

A *stated* finding is one of the first three warnings or failures. It is *right* if it names the cause of a label that
has to be found (or a cause that the label says this log cannot separate from it) and fits its frequency or channels;
*neutral* if it fits a label that need not be found; otherwise *wrong*. A second finding for the same label is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

Row = Mapping[str, Any]
"""A log of the bench: ``seed``, ``faults``, ``labels`` and ``findings`` as plain values."""

FIRST = 3
"""Findings that count as first."""
NEAR = 0.10
"""Relative distance from a line of the label within which a finding is about that line."""
CLOSE = 0.01
"""Relative error of a frequency that is called right; for a resonance, a quarter of its width where that is more."""
SHARP = 0.10
"""Relative spread of a line over the flight up to which it has one frequency to compare."""
BY_CHANNEL = ("axis_sign", "axis_swap", "scale", "bias_step", "drift")
"""Causes whose findings have to name a channel of the label."""
HELD_OUT = 2_000_000
"""Seeds from here on are not looked at while rules are made."""


class Judged(NamedTuple):
    """A stated finding, and the label it is about."""

    finding: Mapping[str, Any]
    label: Mapping[str, Any] | None
    verdict: str
    """``right``, ``neutral``, ``duplicate`` or ``wrong``."""


class Scored(NamedTuple):
    """A log with its stated findings judged."""

    row: Row
    judged: tuple[Judged, ...]
    missed: tuple[Mapping[str, Any], ...]
    """Labels that had to be found and were not."""
    found: tuple[Mapping[str, Any], ...]


class Share(NamedTuple):
    """A share with its 95 % interval by Wilson.

    >>> print(Share.of(19, 20))
    0.95 (0.76–0.99) of 20
    """

    hits: int
    count: int
    low: float
    high: float

    @classmethod
    def of(cls, hits: int, count: int, z: float = 1.959964) -> Share:
        """Wilson's score interval; from 0 to 1 where nothing was counted."""
        if count == 0:
            return cls(0, 0, 0.0, 1.0)
        share, denominator = hits / count, 1 + z**2 / count
        centre = (share + z**2 / (2 * count)) / denominator
        half = z * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2)) / denominator
        return cls(hits, count, max(centre - half, 0.0), min(centre + half, 1.0))

    @property
    def value(self) -> float:
        return self.hits / self.count if self.count else float("nan")

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f}–{self.high:.2f}) of {self.count}" if self.count else "–"


# ---- one log --------------------------------------------------------------------------------------------------------


def serious(row: Row) -> list[Mapping[str, Any]]:
    """Warnings and failures in their order."""
    return [finding for finding in row["findings"] if finding["severity"] != "info"]


def fits(finding: Mapping[str, Any], label: Mapping[str, Any]) -> bool:
    """Whether a finding is about what a label says."""
    if finding["cause"] not in (label["cause"], *label["also"]):
        return False
    if finding["cause"] in BY_CHANNEL and label["channels"]:
        return bool(set(finding["channels"]) & set(label["channels"])) or not finding["channels"]
    frequency = finding["figures"].get("frequency_hz")
    return frequency is None or not label["lines"] or nearest(label, float(frequency))[1] <= 1


def nearest(label: Mapping[str, Any], frequency: float) -> tuple[Mapping[str, Any], float]:
    """The line of a label that is nearest, and its distance over the largest at which it is still that line."""
    top = max(max(line["amplitude"].values()) for line in label["lines"])
    heard = [line for line in label["lines"] if max(line["amplitude"].values()) > 0.05 * top]
    distances = [
        abs(frequency - line["frequency"]) / max(NEAR * line["frequency"], 1.5 * line["spread"]) for line in heard
    ]
    best = min(range(len(heard)), key=distances.__getitem__)
    return heard[best], distances[best]


def score(row: Row, first: int = FIRST) -> Scored:
    """Judge the stated findings of a log, in their order."""
    open_labels = [label for label in row["labels"] if label["required"]]
    optional = [label for label in row["labels"] if not label["required"]]
    found: list[Mapping[str, Any]] = []
    judged = []
    for finding in serious(row)[:first]:
        own = next((label for label in open_labels if fits(finding, label)), None)
        if own is not None:
            open_labels.remove(own)
            found.append(own)
            judged.append(Judged(finding, own, "right"))
            continue
        other = next((label for label in optional if fits(finding, label)), None)
        again = next((label for label in found if fits(finding, label)), None)
        if again is not None:
            judged.append(Judged(finding, again, "duplicate"))
        elif other is not None:
            judged.append(Judged(finding, other, "neutral"))
        else:
            judged.append(Judged(finding, None, "wrong"))
    return Scored(row, tuple(judged), tuple(open_labels), tuple(found))


# ---- many logs ------------------------------------------------------------------------------------------------------


class CauseScore(NamedTuple):
    """Precision and recall of a cause."""

    cause: str
    precision: Share
    recall: Share
    instead: Mapping[str, int]
    """What was stated of logs in which it was missed."""


def by_cause(scored: Iterable[Scored]) -> list[CauseScore]:
    """Precision: right findings of a cause over stated ones. Recall: labels of a cause that a right finding names."""
    scored = list(scored)
    stated = [one for log in scored for one in log.judged if one.verdict != "neutral"]
    causes = {one.finding["cause"] for one in stated}
    causes |= {label["cause"] for log in scored for label in (*log.found, *log.missed)}
    results = []
    for cause in sorted(causes):
        own = [one for one in stated if one.finding["cause"] == cause]
        found = sum(label["cause"] == cause for log in scored for label in log.found)
        missed = [log for log in scored for label in log.missed if label["cause"] == cause]
        instead: dict[str, int] = {}
        for log in missed:
            wrong = [one.finding["cause"] for one in log.judged if one.verdict == "wrong"] or ["nothing"]
            instead[wrong[0]] = instead.get(wrong[0], 0) + 1
        results.append(
            CauseScore(
                cause,
                Share.of(sum(one.verdict == "right" for one in own), len(own)),
                Share.of(found, found + len(missed)),
                dict(sorted(instead.items(), key=lambda item: -item[1])),
            )
        )
    return results


def false_warnings(scored: Iterable[Scored]) -> tuple[Share, float]:
    """Healthy logs with a warning that no label excuses, and such warnings a healthy log (all, not the first three)."""
    healthy = [score(log.row, first=10**6) for log in scored if not log.row["faults"]]
    counts = [sum(one.verdict in ("wrong", "duplicate") for one in log.judged) for log in healthy]
    return Share.of(sum(count > 0 for count in counts), len(counts)), sum(counts) / max(len(counts), 1)


class Errors(NamedTuple):
    """Of right findings with a frequency: relative errors, and which are close enough."""

    frequency: list[float]
    close: list[bool]
    amplitude: list[float]
    """Logarithm of the stated over the true amplitude."""
    rotor: list[bool]


def errors(scored: Iterable[Scored]) -> Errors:
    """Of frequency, amplitude and rotor, in right findings."""
    result = Errors([], [], [], [])
    for log in scored:
        for finding, label, verdict in log.judged:
            frequency = finding["figures"].get("frequency_hz")
            if verdict != "right" or label is None:
                continue
            rotor = finding["figures"].get("rotor")
            if label["rotor"] is not None and rotor is not None and row_has_speeds(log.row):
                result.rotor.append(int(rotor) == label["rotor"])
            if frequency is None or not label["lines"]:
                continue
            line, _ = nearest(label, float(frequency))
            if line["spread"] > SHARP * line["frequency"] and label["cause"] != "resonance":
                continue
            error = float(frequency) / line["frequency"] - 1
            width = float(label["figures"].get("width_hz", 0.0)) / line["frequency"]
            result.frequency.append(error)
            result.close.append(abs(error) <= max(CLOSE, width / 4))
            amplitude = finding["figures"].get("amplitude")
            channel = finding["channels"][0] if finding["channels"] else ""
            if amplitude and line["amplitude"].get(channel):
                result.amplitude.append(math.log(float(amplitude) / line["amplitude"][channel]))
    return result


def row_has_speeds(row: Row) -> bool:
    return bool(row["log"]["speeds"])


class Calibration(NamedTuple):
    """Findings of one class of confidence."""

    name: str
    stated: float
    """Mean of their scores."""
    right: Share


def calibration(scored: Iterable[Scored], *, deciles: bool = False) -> list[Calibration]:
    """The share of right findings by stated confidence, or by tenths of the score."""
    judged = [one for log in scored for one in log.judged if one.verdict != "neutral"]
    groups: dict[str, list[Judged]] = {} if deciles else {"high": [], "medium": [], "low": []}
    for one in sorted(judged, key=lambda one: -one.finding["score"]):
        tenth = min(math.floor(10 * one.finding["score"]), 9)
        name = f"{10 * tenth}–{10 * tenth + 10} %" if deciles else one.finding["confidence"]
        groups.setdefault(name, []).append(one)
    return [
        Calibration(
            name,
            sum(one.finding["score"] for one in own) / len(own) if own else float("nan"),
            Share.of(sum(one.verdict == "right" for one in own), len(own)),
        )
        for name, own in groups.items()
    ]


def halves(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows for choosing thresholds, and rows that were held out, by seed."""
    return {
        "choosing": [row for row in rows if row["seed"] < HELD_OUT],
        "held out": [row for row in rows if row["seed"] >= HELD_OUT],
    }
