"""Numbers and names as people read them in a report."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

TEXT_LIMIT = 2000
"""Characters of a text from a log that a page shows."""
_UNITS = {"hz": "Hz", "s": "s", "ms": "ms", "m": "m", "db": "dB", "percent": "%"}
_SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def number(value: float | int | None, unit: str = "", digits: int = 3) -> str:
    """A number with three significant digits, or ``digits``, and its unit; whole numbers keep theirs.

    >>> number(96.8765, "Hz"), number(12345.6), number(0.000123, "rad/s"), number(163), number(1234567)
    ('96.9 Hz', '12,300', '1.23×10⁻⁴ rad/s', '163', '1,234,567')
    >>> number(1016.8, "Hz", digits=4), number(1e-4)
    ('1,017 Hz', '10⁻⁴')
    >>> number(None), number(float("inf"), "m"), number(0.0, "s"), number(0.999666), number(-2.5)
    ('–', '∞ m', '0 s', '1', '-2.5')
    """
    if value is None or value != value:
        return "–"
    if isinstance(value, int) or value == 0:
        text = f"{value:,.0f}"
    elif math.isinf(value):
        text = "∞" if value > 0 else "-∞"
    elif 1e-3 <= abs(value) < 1e7:
        rounded = float(f"{value:.{digits}g}")
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
        text = f"{rounded:,.{decimals}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    else:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        power = f"10{str(int(exponent)).translate(_SUPERSCRIPTS)}"
        mantissa = mantissa.rstrip("0").rstrip(".")
        text = power if mantissa == "1" else f"{mantissa}×{power}"
    if not unit:
        return text
    return f"{text}{' ' if unit != '°' else ''}{unit}"


def quantity(name: str, value: float | int | str) -> tuple[str, str]:
    """Name and value of a figure whose unit is at the end of its name; numbers without a unit are kept as they are.

    >>> quantity("imu_rate_hz", 248.2419), quantity("airframe", 6021), quantity("gps_fix", "3D")
    (('imu rate', '248.2 Hz'), ('airframe', '6021'), ('gps fix', '3D'))
    """
    stem, _, suffix = name.rpartition("_")
    if stem and suffix in _UNITS and not isinstance(value, str):
        return stem.replace("_", " "), number(value, _UNITS[suffix], digits=4)
    return name.replace("_", " "), value if isinstance(value, str) else f"{value:.6g}"


def percent(share: float | None) -> str:
    """A share of one in per cent.

    >>> percent(0.0123), percent(0.5), percent(None), percent(1e-5)
    ('1.2 %', '50 %', '–', 'below 0.1 %')
    """
    if share is None or share != share:
        return "–"
    if 0 < share < 0.001:
        return "below 0.1 %"
    return f"{100 * share:.1f} %" if 0 < share < 0.1 else f"{100 * share:.0f} %"


def in_words(items: Sequence[str], most: int = 6) -> str:
    """Names in a sentence; beyond ``most`` of them, how many more there are.

    >>> in_words(["a"]), in_words(["a", "b", "c"]), in_words(["a", "b", "c", "d"], most=2)
    ('a', 'a, b and c', 'a, b and 2 more')
    """
    shown = list(items[:most])
    if len(items) > most:
        shown.append(f"{len(items) - most} more")
    return " and ".join((", ".join(shown[:-1]), shown[-1])) if len(shown) > 1 else "".join(shown)


def shorten(text: str, limit: int) -> str:
    """The beginning and the end of a long name, which is where names differ.

    >>> shorten("vehicle_angular_velocity_groundtruth", 16)
    'vehicle…undtruth'
    """
    if len(text) <= limit:
        return text
    return f"{text[: (limit - 1) // 2]}…{text[-(limit // 2) :]}"


def clean(value: Any) -> Any:
    """The same value with every text in it fit for a page: one line, no control characters, of bounded length.

    Goes through dataclasses, tuples and mappings. Escaping is another matter, done where markup is written.

    >>> clean({"a\\x00b": ("line\\nbreak", 1.5)})
    {'a�b': ('line break', 1.5)}
    """
    if isinstance(value, str):
        line = " ".join(value[: 2 * TEXT_LIMIT].split())
        line = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in line)
        return line if len(line) <= TEXT_LIMIT else line[: TEXT_LIMIT - 1] + "…"
    if isinstance(value, np.ndarray):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        return dataclasses.replace(value, **{name: clean(getattr(value, name)) for name in fields})
    if isinstance(value, Mapping):
        return {clean(name): clean(item) for name, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(clean(item) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(clean(item) for item in value)
    return value


def versions() -> str:
    """What a page was made with."""
    try:
        package = version("fwnkf")
    except PackageNotFoundError:  # run from a checkout that is not installed
        package = "(not installed)"
    return f"fwnkf {package}, Python {sys.version.split()[0]}."
