"""What a stream returns: plain numbers and NumPy arrays, converted when they are read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..core.layout import Layout
from .fast_step import PackedStep, Stepped
from .health import EXPLANATIONS, Reason


class Estimate:
    """The estimate after one call of :meth:`fwnkf.Stream.step`.

    Arrays have no batch axis for a single stream, and a leading axis for a batch of streams. Health is ``"ok"``,
    ``"degraded"`` or ``"diverged"``; of a batch it is that of the worst stream.
    """

    def __init__(
        self, layout: Layout, time: float, stepped: Stepped | PackedStep, reason: Reason, single: bool
    ) -> None:
        self.time = time
        """Time of the estimate, the newest that has been measured."""
        self._layout, self._stepped, self._single, self._reason = layout, stepped, single, reason

    def _array(self, tensor: Tensor) -> NDArray[Any]:
        array: NDArray[Any] = tensor.detach().cpu().numpy()
        return array[0] if self._single else array

    @property
    def mean(self) -> NDArray[Any]:
        """The state, in the order of the filter's layout; absolute and in double precision if a part has an origin."""
        return self._array(self._layout.absolute(self._stepped.out.mean))

    @property
    def cov(self) -> NDArray[Any]:
        """The covariance of the error of the state, in its tangent space."""
        return self._array(self._stepped.out.cov)

    @property
    def std(self) -> NDArray[Any]:
        """Standard deviations: the roots of the diagonal of :attr:`cov`."""
        return np.sqrt(np.diagonal(self.cov, axis1=-2, axis2=-1))

    @property
    def innovation(self) -> NDArray[Any]:
        """Measurement minus prediction; zero in channels that were not measured or were rejected."""
        return self._array(self._stepped.out.innovation)

    @property
    def innovation_std(self) -> NDArray[Any]:
        """Standard deviations of :attr:`innovation`, as the filter states them."""
        return np.sqrt(np.diagonal(self._array(self._stepped.out.innovation_cov), axis1=-2, axis2=-1))

    @property
    def nis(self) -> Any:
        """Squared normalised innovation divided by the number of channels, one on average; NaN without measurement."""
        values = self._stepped.checked.nis.detach().cpu()
        return float(values[0]) if self._single else values.numpy()

    def __getitem__(self, part: str) -> NDArray[Any]:
        """The part of the state with this name."""
        for known, piece in zip(
            self._layout.parts, self._layout.split(self._layout.absolute(self._stepped.out.mean)), strict=True
        ):
            if known.name == part:
                return self._array(piece)
        names = ", ".join(known.name for known in self._layout.parts)
        raise KeyError(f"the state has no part {part!r}; its parts are {names}")

    @property
    def reasons(self) -> Any:
        """Why the estimate is not healthy, as flags: one :class:`~fwnkf.runtime.health.Reason`, or one per stream."""
        flags = [self._reason | Reason(int(value)) for value in self._stepped.checked.reason.tolist()]
        return flags[0] if self._single else flags

    @property
    def health(self) -> str:
        """``"ok"``, ``"degraded"`` or ``"diverged"``."""
        worst = max([self.reasons] if self._single else self.reasons)
        return "ok" if worst == 0 else "degraded" if worst < Reason.NOT_FINITE else "diverged"

    @property
    def reason(self) -> str:
        """Why, in words; empty if the health is ``"ok"``. Streams of a batch are numbered from 0."""
        if self._single:
            return explained(self.reasons)
        return "\n".join(f"stream {i}: {explained(flags)}" for i, flags in enumerate(self.reasons) if flags)

    def __repr__(self) -> str:
        values = np.array2string(self.mean, precision=4, threshold=8)
        return f"Estimate(time={self.time:.6g}, mean={values}, health={self.health!r})"


def explained(flags: Reason) -> str:
    """The reasons in words, one sentence each, the worst first."""
    if Reason.PRECISION_LOST in flags:  # rounding explains innovations that are too large
        flags &= ~Reason.INCONSISTENT
    return "; ".join(EXPLANATIONS[reason] for reason in reversed(EXPLANATIONS) if reason in flags)
