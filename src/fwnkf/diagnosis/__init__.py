"""What is wrong with an estimate: spectra of innovations, peaks and their causes, consistency, and a verdict."""

from .autopilots import notches_without_speeds, rotor_notches
from .diagnose import diagnose
from .finding import CAUSES, Finding
from .result import Diagnosis

__all__ = ["CAUSES", "Diagnosis", "Finding", "diagnose", "notches_without_speeds", "rotor_notches"]
