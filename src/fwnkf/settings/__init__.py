"""Numbers to type in: suggested settings of autopilots and calibration files, with the gain that supports each."""

from .calibration import ImuNoise, SensorNoise, gtsam, kalibr, openvins
from .catalogue import CATALOGUE, RELEASES, Firmware, Parameter, Vehicle, find, firmware_of
from .files import FORMATS, FileFormat, format_of, settings_text
from .navigation_noise import Estimate, NavigationNoise, navigation_settings
from .suggestion import Gain, Suggestion, significant

__all__ = [
    "CATALOGUE",
    "FORMATS",
    "RELEASES",
    "Estimate",
    "FileFormat",
    "Firmware",
    "Gain",
    "ImuNoise",
    "NavigationNoise",
    "Parameter",
    "SensorNoise",
    "Suggestion",
    "Vehicle",
    "find",
    "firmware_of",
    "format_of",
    "gtsam",
    "kalibr",
    "navigation_settings",
    "openvins",
    "settings_text",
    "significant",
]
