"""The exceptions of this package. Every message states what happened, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

MESSAGE_LIMIT = 10_000
"""Characters of a message; what is longer was made by a file, and is cut."""
VALUE_LIMIT = 80
"""Characters of one value or name in a message."""
MOST_NAMES = 20
"""Names that a message lists."""


class FwnkfError(Exception):
    """Base class of every error this package raises."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(_cut(item, MESSAGE_LIMIT) if isinstance(item, str) else item for item in args))


class ConfigError(FwnkfError, ValueError):
    """A configuration has an unknown name, an invalid value or an invalid combination of values."""


class ShapeError(FwnkfError, ValueError):
    """A tensor has the wrong shape, dtype or device for its filter."""


class UnknownNameError(FwnkfError, KeyError):
    """No filter, system or preprocessing is registered under this name."""

    def __str__(self) -> str:  # KeyError would print the repr of the message, with quotes
        return str(self.args[0])


class NoObservationModelError(FwnkfError, TypeError):
    """An operation needs ``H(x)`` from a filter that has no observation model (the RKN has a latent space)."""


class NumericalFailureError(FwnkfError, ArithmeticError):
    """A factorisation failed or a measurement was not finite; the message names stream and step."""


class CheckpointError(FwnkfError, ValueError):
    """A saved filter or state cannot be read: wrong format, version, names, shapes or dtypes."""


class DataError(FwnkfError, ValueError):
    """A recording, an archive or a download is invalid; the message names the file and the position."""


class InUseError(FwnkfError, RuntimeError):
    """Another run writes into the same output, or took it over; the message names the run."""


class ConcurrencyError(FwnkfError, RuntimeError):
    """An object that is not thread-safe was used by two threads at the same time."""


# ---- words of messages, of a length that no file can choose ----------------------------------------------------------


def shown(value: object) -> str:
    """A value from a file as a message shows it: its ``repr``, cut if it is long.

    >>> shown("x"), len(shown("x" * 10**6)), shown(1 << 100_000)
    ("'x'", 80, 'an integer of 100001 bits')
    """
    try:
        text = repr(value[: 2 * VALUE_LIMIT] if isinstance(value, (str, bytes)) else value)
    except (ValueError, RecursionError):  # an integer with too many digits for Python, or a list too deep
        text = f"an integer of {value.bit_length()} bits" if isinstance(value, int) else f"a {type(value).__name__}"
    return _cut(text, VALUE_LIMIT)


def listed(names: Iterable[object], most: int = MOST_NAMES) -> str:
    """Names as a message lists them: the first few, and how many more there are.

    >>> listed(["a", "b", "c"]), listed((f"t{i}" for i in range(60_000)), 2), listed([])
    ('a, b, c', 't0, t1 and 59,998 more', 'nothing')
    """
    rest = iter(names)
    words = [_cut(str(name), VALUE_LIMIT) for name in islice(rest, most)]
    more = sum(1 for _ in rest)
    return (", ".join(words) + (f" and {more:,} more" if more else "")) or "nothing"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
