"""What can go wrong, by name. Every message says what happened, where, and what to do next."""

from __future__ import annotations


class FwnkfError(Exception):
    """Base of every error this package raises on purpose."""


class ConfigError(FwnkfError, ValueError):
    """A configuration names something that does not exist, or combines what cannot be combined."""


class ShapeError(FwnkfError, ValueError):
    """A tensor has the wrong shape, dtype or device for the filter it is given to."""


class UnknownNameError(FwnkfError, KeyError):
    """A filter or system was asked for by a name nobody registered."""

    def __str__(self) -> str:  # KeyError would print the repr of the message, quotes included
        return str(self.args[0])


class NoObservationModelError(FwnkfError, TypeError):
    """Something needs ``H(x)`` from a filter that has none (the RKN works in a latent space)."""


class NumericalFailureError(FwnkfError, ArithmeticError):
    """A factorisation failed or a measurement was not finite; the message names stream and step."""


class CheckpointError(FwnkfError, ValueError):
    """A saved filter or state cannot be read: wrong format, version, names, shapes or dtypes."""


class DataError(FwnkfError, ValueError):
    """A recording, an archive or a download is not what it should be; the message names file and place."""
