"""Labels of the public logs below ``$FWNKF_DATA/logs``, and findings of a diagnosis against them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).with_name("log_labels.json")
FIRST = 3
"""Warnings and failures that are compared with a label."""
CLAIM = re.compile(r"(?P<cause>[a-z_]+)(?: (?P<low>[0-9.]+)-(?P<high>[0-9.]+))?")


class Claim(NamedTuple):
    """A cause, and the frequencies (Hz) to which it is limited.

    >>> Claim.parsed("resonance 185-220")
    Claim(cause='resonance', low=185.0, high=220.0)
    """

    cause: str
    low: float = 0.0
    high: float = float("inf")

    @classmethod
    def parsed(cls, text: str) -> Claim:
        """From ``cause`` or ``cause low-high``."""
        found = CLAIM.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r}: write a claim as a cause, or as a cause and a band, such as resonance 185-220")
        if found["low"] is None:
            return cls(found["cause"])
        return cls(found["cause"], float(found["low"]), float(found["high"]))

    def covers(self, finding: Mapping[str, Any]) -> bool:
        """Whether a finding says this; one without a frequency is not limited by a band."""
        frequency = finding["figures"].get("frequency_hz")
        inside = frequency is None or self.low <= float(frequency) <= self.high
        return finding["cause"] == self.cause and inside


class LogLabel(NamedTuple):
    """What is known of a log; the file of labels explains the fields."""

    file: str
    first: tuple[Claim, ...]
    also: tuple[Claim, ...]
    wrong: tuple[Claim, ...]
    must: tuple[Claim, ...]
    why: str

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> LogLabel:
        """From an entry of the file."""
        if set(entry) != set(cls._fields):
            raise ValueError(f"{entry.get('file')}: fields are {', '.join(cls._fields)}, not {', '.join(entry)}")
        claims = {name: tuple(map(Claim.parsed, entry[name])) for name in ("first", "also", "wrong", "must")}
        return cls(file=entry["file"], why=entry["why"], **claims)


class Comparison(NamedTuple):
    """The findings of a log against its label; empty where they agree."""

    first: str
    """The cause of the first warning or failure where it is not one of those of the label."""
    wrong: tuple[str, ...]
    """Further causes among the first three that the label does not have."""
    missing: tuple[str, ...]
    """Causes that had to be found."""

    @property
    def agrees(self) -> bool:
        return not (self.first or self.wrong or self.missing)


def read_labels(file: Path = FILE) -> dict[str, LogLabel]:
    """Labels by the path of their log below the folder of logs."""
    entries = json.loads(file.read_text(encoding="utf-8"))["logs"]
    labels = [LogLabel.of(entry) for entry in entries]
    if len({label.file for label in labels}) != len(labels):
        raise ValueError(f"{file.name}: a log has two labels")
    return {label.file: label for label in labels}


def compare(label: LogLabel, findings: Sequence[Mapping[str, Any]]) -> Comparison:
    """The first three warnings and failures against what a label allows, and all findings against what it demands."""
    stated = [finding for finding in findings if finding["severity"] != "info"][:FIRST]
    first = ""
    if label.first and not stated:
        first = "nothing"
    elif stated and label.first and not _said(label.first, stated[0]):
        first = _named(stated[0])
    allowed = (*label.first, *label.also)
    wrong = [
        _named(finding)
        for finding in stated
        if not _said(allowed, finding) or (_said(label.wrong, finding) and not _banded(allowed, finding))
    ]
    missing = [claim.cause for claim in label.must if not any(claim.covers(finding) for finding in findings)]
    return Comparison(first, tuple(name for name in wrong if name != first), tuple(missing))


def _said(claims: Sequence[Claim], finding: Mapping[str, Any]) -> bool:
    return any(claim.covers(finding) for claim in claims)


def _banded(claims: Sequence[Claim], finding: Mapping[str, Any]) -> bool:
    """Whether a claim with a band covers it, which then holds against a cause that is wrong elsewhere."""
    return any(claim.covers(finding) and claim.high < float("inf") for claim in claims)


def _named(finding: Mapping[str, Any]) -> str:
    frequency = finding["figures"].get("frequency_hz")
    return finding["cause"] if frequency is None else f"{finding['cause']} at {float(frequency):.4g} Hz"
