"""What is wrong with an estimate: spectra of innovations, peaks and their causes, consistency, and a verdict."""

from typing import TYPE_CHECKING

from ..lazy import attach
from .diagnose import diagnose
from .finding import CAUSES, Finding
from .result import Diagnosis

if TYPE_CHECKING:
    from .autopilots import notches_without_speeds, rotor_notches

__getattr__ = attach(__name__, {"autopilots": ("notches_without_speeds", "rotor_notches")})

__all__ = ["CAUSES", "Diagnosis", "Finding", "diagnose", "notches_without_speeds", "rotor_notches"]
