"""Simulated logs of vehicles whose faults are known: a test bench for diagnoses.

:func:`labelled_flight` draws a vehicle, a flight and its faults from a seed, and gives the log with its labels.
"""

from __future__ import annotations

from .flights import Labelled, labelled_flight
from .labels import Label, Line

__all__ = ["Label", "Labelled", "Line", "labelled_flight"]
