"""The likelihood of many records as a sum over parts of them, each evaluated alone: here, or by workers.

Log-likelihood, gradient, information, spectra and innovation statistics of records add up. A fit needs nothing else of
them, so that the records of a fleet are mapped to sums and the sums are reduced; the result differs from that of one
evaluation in the order of summation alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from ..filters.base import Filter
from ..shapes import Float
from .likelihood import Likelihood, Local, Measurements
from .parameters import Parameters

Result = TypeVar("Result")
MapParts = Callable[[Callable[..., Any], Likelihood, Sequence[Measurements], Tensor, tuple[Any, ...]], list[Any]]
"""Calls ``function(likelihood of a part, raw, *arguments)`` for every part and returns the results in their order."""


class Parts(NamedTuple):
    """How the likelihood of many records is evaluated.

    >>> Parts(64).records
    64
    """

    records: int
    """Records of a part."""
    run: MapParts | None = None
    """Evaluates the parts; None: one after the other, here."""

    def likelihood(self, model: Filter, parameters: Parameters, data: Measurements) -> Likelihood:
        """The likelihood of all records."""
        return PartedLikelihood(model, parameters, data, self)


class PartedLikelihood(Likelihood):
    """A likelihood whose sums are taken part by part."""

    def __init__(self, model: Filter, parameters: Parameters, data: Measurements, parts: Parts) -> None:
        super().__init__(model, parameters, data)
        rows = torch.arange(len(data.y)).split(parts.records)
        self.parts = [data.take(chosen) for chosen in rows]
        self.run = parts.run or one_by_one

    def gather(self, function: Callable[..., Result], raw: Float[Tensor, " p"], *arguments: Any) -> list[Result]:
        shell = Likelihood.__new__(Likelihood)
        shell.__dict__.update({name: value for name, value in self.__dict__.items() if name not in ("parts", "run")})
        return self.run(function, shell, self.parts, raw, arguments)

    def value(self, raw: Float[Tensor, " p"]) -> float:
        return sum(self.gather(Likelihood.value, raw))

    def local(self, raw: Float[Tensor, " p"]) -> Local:
        found = self.gather(Likelihood.local, raw)
        return Local(*(sum(items[1:], items[0]) for items in zip(*found, strict=True)))


def one_by_one(
    function: Callable[..., Any],
    likelihood: Likelihood,
    parts: Sequence[Measurements],
    raw: Tensor,
    arguments: tuple[Any, ...],
) -> list[Any]:
    """Evaluate the parts one after the other in this process."""
    return [function(of_part(likelihood, data), raw, *arguments) for data in parts]


def of_part(likelihood: Likelihood, data: Measurements) -> Likelihood:
    """The likelihood of some records, evaluated in the way that was chosen for all of them."""
    part = copy.copy(likelihood)
    part.data = data
    return part
