"""Constants of a filter from its innovations on recordings, without truth.

For constants that ``fwnkf.fit`` does not reach: those a system reads once, when it is built, and those of its
preprocessing. A task gives the innovations of a list of candidates; the maximisation is that of ``fwnkf.fit``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from fwnkf.core.gaussian import masked
from fwnkf.identify.likelihood import Likelihood, Local, Predictions, maximise
from fwnkf.metrics.consistency import mahalanobis_squared
from fwnkf.shapes import Float

BELIEF_STD = 1.0
"""Standard deviation of the logarithm of a constant about its start, which matters only where recordings say nothing:
without it a constant that approaches zero takes ever larger steps and holds up all others."""
Constants = dict[str, float]
Innovations = Callable[[list[Constants]], Predictions]
"""The innovations of several candidates on the same recordings, in units that do not depend on the candidate."""


class ConstantsLikelihood(Likelihood):
    """The likelihood of the innovations as a function of the logarithms of positive constants, from ``start`` on."""

    def __init__(self, start: Mapping[str, float], innovations: Innovations) -> None:
        self.names, self.innovations = tuple(start), innovations
        self.start = torch.tensor(list(start.values()), dtype=torch.float64).log()

    def local(self, raw: Float[Tensor, " p"]) -> Local:
        here, off, precision = super().local(raw), raw - self.start, BELIEF_STD**-2
        return Local(
            here.value - 0.5 * precision * float(off @ off),
            here.gradient - precision * off,
            here.information + precision * torch.eye(len(raw)).to(raw),
        )

    def constants(self, raw: Float[Tensor, " p"]) -> Constants:
        return dict(zip(self.names, raw.exp().tolist(), strict=True))

    def predictions(self, raws: Float[Tensor, "V p"]) -> list[Predictions]:
        return [self.innovations([self.constants(raw) for raw in raws])]


def fit_constants(
    start: Mapping[str, float], innovations: Innovations, *, iterations: int, say: Callable[[str], None]
) -> Constants:
    """The positive constants that maximise the likelihood of the innovations, from those in ``start`` on."""
    likelihood = ConstantsLikelihood(start, innovations)

    def progress(number: int, value: float) -> None:
        say(f"iteration {number}: log-likelihood {value:.1f}")

    raw, _ = maximise(likelihood.local, likelihood.start, iterations=iterations, tolerance=1.0, progress=progress)
    return likelihood.constants(raw)


def measured_nis(
    innovation: Float[Tensor, "*B m"], cov: Float[Tensor, "*B m m"], weight: Float[Tensor, "*B m"]
) -> float:
    """NIS over the measured channels of all steps together: their sum of squares over their number.

    >>> weight = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    >>> measured_nis(torch.full((2, 2), 2.0), torch.eye(2).expand(2, 2, 2), weight)
    4.0
    """
    return float(mahalanobis_squared(innovation * weight, masked(cov, weight)).sum() / weight.sum())
