"""Numbers to type in: suggested settings of autopilots and calibration files, with the gain that supports each."""

from .catalogue import CATALOGUE, RELEASES, Firmware, Parameter, Vehicle, find, firmware_of
from .suggestion import Gain, Suggestion, significant

__all__ = [
    "CATALOGUE",
    "RELEASES",
    "Firmware",
    "Gain",
    "Parameter",
    "Suggestion",
    "Vehicle",
    "find",
    "firmware_of",
    "significant",
]
