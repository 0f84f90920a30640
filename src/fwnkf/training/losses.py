"""Losses as objects: what a filter is trained to do, by name, with a weight, summed as the experiment says.

A loss gives one number for every record, the mean over the steps that count; the module weighs records by how many
steps they count, so that padded, gappy and sharded batches give the same sum as one whole batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ..core import spectral
from ..core.gaussian import log_prob
from ..errors import NumericalFailureError
from ..filters.base import Filter
from ..registry import Registry, at_least, limited, try_config
from ..shapes import Bool, Float
from ..types import Gaussian, Trajectory

LOSSES: Registry[Any] = Registry("loss")


class Batch(NamedTuple):
    """Records to train on. ``valid`` says which steps have a truth; where it is False, ``truth`` is filled in."""

    y: Float[Tensor, "B T m"]
    truth: Float[Tensor, "B T n"]
    valid: Bool[Tensor, "B T"]
    mask: Bool[Tensor, "B T m"]
    dt: Float[Tensor, "B T"]
    u: Float[Tensor, "B T p"] | None
    prior: Gaussian
    share: Float[Tensor, " B"]
    """What a record counts for in the whole batch, other processes' parts included; sums to one over all of them."""
    first: int = 0
    """The number of the first step here in its record."""


@dataclass(frozen=True)
class Loss:
    """Base of all: the weight in the sum, and the first step that counts."""

    weight: float = at_least(0.0, 1.0)
    from_step: int = at_least(0, 0)

    def unfit(self, model: Filter) -> list[str]:
        """Why this loss cannot be asked of this filter, one line each."""
        return []

    def __call__(self, model: Filter, batch: Batch, track: Trajectory) -> Float[Tensor, " B"]:
        raise NotImplementedError

    def counted(self, batch: Batch) -> Bool[Tensor, "B T"]:
        """The steps that count."""
        return batch.valid & self.late(batch)

    def late(self, batch: Batch) -> Bool[Tensor, " T"]:
        """The steps from ``from_step`` of the record on."""
        number = torch.arange(batch.first, batch.first + batch.valid.shape[1], device=batch.valid.device)
        return number >= self.from_step


def mean_over(counted: Bool[Tensor, "B T"], values: Float[Tensor, "B T"]) -> Float[Tensor, " B"]:
    """The mean over the steps that count; zero for a record without any. Values elsewhere, NaN too, touch nothing."""
    return torch.where(counted, values, 0.0).sum(-1) / counted.sum(-1).clamp_min(1)


def _needs_observation(model: Filter, weight: float, name: str) -> list[str]:
    if weight > 0 and type(model).observe is Filter.observe:
        return [
            f"{name} compares measurements, but filter {model.name!r} has no observation model; "
            "use another filter, or set the weight to 0"
        ]
    return []


@LOSSES.register("state")
@dataclass(frozen=True)
class StateLoss(Loss):
    """Squared error of the posterior mean along the shortest way: arcs for angles, rotation vectors on SO(3).

    ``"paper"`` sums over dimensions as Algorithm 1 writes it, ``"mean"`` averages. ``scales`` divides each tangent
    coordinate first, for states whose parts have different units.
    """

    reduction: Literal["paper", "mean"] = "paper"
    scales: tuple[float, ...] = limited((), above=0.0)

    def unfit(self, model: Filter) -> list[str]:
        size = model.layout.tangent_size
        if self.scales and len(self.scales) != size:
            return [f"state: {len(self.scales)} scales for a state of {size} tangent coordinates"]
        return []

    def __call__(self, model: Filter, batch: Batch, track: Trajectory) -> Float[Tensor, " B"]:
        error = model.layout.boxminus(track.mean, batch.truth)
        if self.scales:
            error = error / error.new_tensor(self.scales)
        squared = error.square()
        return mean_over(self.counted(batch), squared.sum(-1) if self.reduction == "paper" else squared.mean(-1))


@LOSSES.register("spectral")
@dataclass(frozen=True)
class SpectralLoss(Loss):
    """Magnitude spectra of ``H(x̂)`` against ``H(x)``, L1 over a band (Algorithm 1); its weight is the paper's λ_Φ.

    ``band`` is in radians per sample. Steps without truth are taken out of both signals.
    """

    which: Literal["prior", "posterior"] = "prior"
    band: tuple[float, ...] = limited((0.0, math.pi / 2), min=0.0, max=math.pi)
    window: spectral.Window = "none"
    reduction: spectral.Reduction = "paper"

    def unfit(self, model: Filter) -> list[str]:
        faults = _needs_observation(model, self.weight, "spectral")
        if len(self.band) != 2 or self.band[0] >= self.band[1]:
            faults.append(f"spectral: band = {list(self.band)} must be two rising angular frequencies in [0, π]")
        if self.from_step:
            faults.append("spectral: from_step has no meaning for a spectrum of the whole record; leave it out")
        return faults

    def __call__(self, model: Filter, batch: Batch, track: Trajectory) -> Float[Tensor, " B"]:
        estimate = track.prior_mean if self.which == "prior" else track.mean
        here = batch.valid.unsqueeze(-1)
        predicted, reference = model.observe(estimate) * here, model.observe(batch.truth) * here
        low, high = self.band
        return spectral.spectral_distance(predicted, reference, (low, high), self.window, self.reduction)


@LOSSES.register("posterior_nll")
@dataclass(frozen=True)
class PosteriorLikelihood(Loss):
    """Negative log-likelihood of the true state under the posterior: error bars that hold.

    With the initial state given exactly, the first posterior has no density: start from step 1.
    """

    def __call__(self, model: Filter, batch: Batch, track: Trajectory) -> Float[Tensor, " B"]:
        counted = self.counted(batch)
        first = max(self.from_step - batch.first, 0)  # left out before factoring: a covariance of zero has no factor
        residual = model.layout.boxminus(batch.truth, track.mean)[:, first:]
        value, ok = log_prob(residual, track.cov[:, first:])
        failed = (~ok & counted[:, first:]).nonzero()
        if len(failed):
            record, step = (int(i) for i in failed[0])
            raise NumericalFailureError(
                f"posterior_nll: the covariance of record {record} of the batch has no factor at step {step + first} "
                f"({len(failed)} such step(s)). If the initial state is given exactly, set from_step: 1; else lower "
                "optimizer.learning_rate, train in float64 (data.dtype), or use a filter whose covariance is its own"
            )
        return mean_over(counted[:, first:], -value)


@LOSSES.register("innovation_nll")
@dataclass(frozen=True)
class InnovationLikelihood(Loss):
    """Negative log-likelihood of the measurements, step by step: needs no truth, so it can be had on any log."""

    def unfit(self, model: Filter) -> list[str]:
        return _needs_observation(model, self.weight, "innovation_nll")

    def __call__(self, model: Filter, batch: Batch, track: Trajectory) -> Float[Tensor, " B"]:
        present = batch.mask & batch.y.isfinite()
        value = log_prob(track.innovation, track.innovation_cov, present.to(batch.y.dtype))[0]
        return mean_over(present.any(-1) & self.late(batch), -value)


@LOSSES.register("anchor")
@dataclass(frozen=True)
class AnchorLoss(Loss):
    """Squared error of ``H(x)`` against what was measured: keeps a learned observation model from collapsing."""

    def unfit(self, model: Filter) -> list[str]:
        return _needs_observation(model, self.weight, "anchor")

    def __call__(self, model: Filter, batch: Batch, track: Trajectory) -> Float[Tensor, " B"]:
        present = batch.mask & batch.y.isfinite() & self.counted(batch).unsqueeze(-1)
        target = torch.where(present, batch.y, 0.0)
        apart = model.observation_layout.boxminus(target, model.observe(batch.truth)) * present
        return apart.square().sum((-1, -2)) / present.sum((-1, -2)).clamp_min(1)


class WeightedSum:
    """The terms of an experiment as one loss; a term of weight zero is not computed."""

    def __init__(self, terms: Sequence[tuple[str, Loss]]) -> None:
        self.terms = [(name, term) for name, term in terms if term.weight > 0]

    def __call__(self, model: Filter, batch: Batch, track: Trajectory) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """The sum, and every term by name as it enters it before its weight."""
        total, parts = batch.share.new_zeros(()), {}
        for name, term in self.terms:
            value = (term(model, batch, track) * batch.share).sum()
            parts[name] = value.detach()
            total = total + term.weight * value
        return total, parts


def parse_terms(given: Sequence[Any], owner: str) -> tuple[list[Loss], list[str]]:
    """Terms ``{kind, weight, …}`` as loss objects, and what is wrong with them, one line each."""
    terms, faults = [], []
    for number, item in enumerate(given):
        where = f"loss.{number}"
        if not isinstance(item, Mapping) or not isinstance(item.get("kind"), str):
            faults.append(f"{owner}: {where} = {item!r} does not fit; wanted a mapping with kind: {_kinds()}")
            continue
        if item["kind"] not in list(LOSSES):
            faults.append(f"{owner}: option {where}.kind = {item['kind']!r}: no such loss; there are: {_kinds()}")
            continue
        options = {name: value for name, value in item.items() if name != "kind"}
        term, wrong = try_config(LOSSES[item["kind"]], options, owner, f"{where}.")
        faults += wrong
        if term is not None:
            terms.append(term)
    if not faults and not any(term.weight > 0 for term in terms):
        faults.append(f"{owner}: loss has no term with a weight above 0: nothing to train for")
    return terms, faults


def weighted_sum(given: Sequence[Any]) -> WeightedSum:
    """The loss of a checked experiment."""
    terms, faults = parse_terms(given, "loss")
    assert not faults, faults
    names = [item["kind"] for item in given]
    unique = [name if names.count(name) == 1 else f"{name}_{i}" for i, name in enumerate(names)]
    return WeightedSum(list(zip(unique, terms, strict=True)))


def _kinds() -> str:
    return ", ".join(sorted(LOSSES))
