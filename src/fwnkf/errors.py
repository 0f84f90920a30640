"""The exceptions of this package. Every message states what happened, where, and what to do."""

from __future__ import annotations


class FwnkfError(Exception):
    """Base class of every error this package raises."""


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
