"""What is wrong with an estimate: spectra of innovations, peaks and their causes, consistency, and a verdict."""

from .diagnose import diagnose
from .finding import CAUSES, Finding
from .result import Diagnosis

__all__ = ["CAUSES", "Diagnosis", "Finding", "diagnose"]
