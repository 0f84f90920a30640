"""Training losses, registered by name and summed with weights as configured in the experiment.

A loss returns one number for each record, the mean over its counted steps. Records are weighted by their number of
counted steps, so that padded, incomplete and sharded batches give the same sum as one whole batch.
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
from ..core.trajectory import Trajectory
from ..errors import NumericalFailureError
from ..filters.base import Filter
from ..filters.engines import is_transformed
from ..registry import Registry, at_least, limited, try_config
from ..shapes import Bool, Float
from ..types import Gaussian

__all__ = ["LOSSES", "Batch", "Loss", "mean_over"]

LOSSES: Registry[Any] = Registry("loss")
"""Losses by name, as experiments write them."""


class Batch(NamedTuple):
    """Records to train on.

    >>> "valid" in Batch._fields
    True
    """

    y: Float[Tensor, "B T m"]
    """Measurements."""
    truth: Float[Tensor, "B T n"]
    """True states; a placeholder where they are not known."""
    valid: Bool[Tensor, "B T"]
    """True at the steps with a true state."""
    mask: Bool[Tensor, "B T m"]
    """True where a channel was measured."""
    dt: Float[Tensor, "B T"]
    """Lengths of the steps in seconds."""
    u: Float[Tensor, "B T p"] | None
    """Controls."""
    prior: Gaussian
    """The beliefs that the filter starts from."""
    share: Float[Tensor, " B"]
    """Weight of each record in the whole batch; sums to one over the parts of all processes."""
    first: int = 0
    """Index within the record of the first step of this batch."""


@dataclass(frozen=True)
class Loss:
    """Base class of losses. Called with filter, batch and trajectory, a loss gives one number for each record.

    >>> from fwnkf.training.losses import LOSSES
    >>> LOSSES["state"](weight=0.5).weight
    0.5
    """

    weight: float = at_least(0.0, 1.0)
    """In the sum of all losses."""
    from_step: int = at_least(0, 0)
    """The first step that counts."""

    def check(self, model: Filter) -> list[str]:
        """Whether this loss can be used with a filter.

        Args:
            model: the filter.

        Returns:
            Reasons why not, one line each.
        """
        return []

    def __call__(self, model: Filter, batch: Batch, track: Trajectory) -> Float[Tensor, " B"]:
        raise NotImplementedError

    def counted(self, batch: Batch) -> Bool[Tensor, "B T"]:
        """Mask of the steps that enter the loss.

        Args:
            batch: the records.

        Returns:
            True where a step counts.
        """
        return batch.valid & self.late(batch)

    def late(self, batch: Batch) -> Bool[Tensor, " T"]:
        """Mask of the steps from ``from_step`` of the record on.

        Args:
            batch: the records.

        Returns:
            True from that step on.
        """
        number = torch.arange(batch.first, batch.first + batch.valid.shape[1], device=batch.valid.device)
        return number >= self.from_step


def mean_over(counted: Bool[Tensor, "B T"], values: Float[Tensor, "B T"]) -> Float[Tensor, " B"]:
    """Mean over the counted steps, zero for a record without any. Other values, including NaN, have no effect.

    Args:
        counted: True where a step counts.
        values: the values.

    Returns:
        The mean of each record.

    >>> mean_over(torch.tensor([[True, False, True]]), torch.tensor([[1.0, torch.nan, 3.0]]))
    tensor([2.])
    """
    return torch.where(counted, values, 0.0).sum(-1) / counted.sum(-1).clamp_min(1)


def _needs_observation(model: Filter, weight: float, name: str) -> list[str]:
    if weight > 0 and not model.observes:
        return [
            f"{name} needs an observation model, but filter {model.name!r} has none; "
            "use another filter, or set the weight to 0"
        ]
    return []


@LOSSES.register("state")
@dataclass(frozen=True)
class StateLoss(Loss):
    """Squared error of the posterior mean: shortest arc for angles, rotation vector on SO(3).

    ``reduction="paper"`` sums over dimensions as in Algorithm 1, ``"mean"`` averages. ``scales`` divides each tangent
    coordinate first, for states whose parts have different units.
    """

    reduction: Literal["paper", "mean"] = "paper"
    scales: tuple[float, ...] = limited((), above=0.0)

    def check(self, model: Filter) -> list[str]:
        size = model.layout.tangent_size
        if self.scales and len(self.scales) != size:
            return [f"state: {len(self.scales)} scales for a state with {size} tangent coordinates"]
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
    """L1 distance between the magnitude spectra of ``H(x̂)`` and ``H(x)`` over a band (Algorithm 1).

    The weight is the paper's λ_Φ. ``band`` is in radians per sample. Steps without a true state are zero in both
    signals.
    """

    which: Literal["prior", "posterior"] = "prior"
    band: tuple[float, ...] = limited((0.0, math.pi / 2), min=0.0, max=math.pi)
    window: spectral.Window = "none"
    reduction: spectral.Reduction = "paper"

    def check(self, model: Filter) -> list[str]:
        faults = _needs_observation(model, self.weight, "spectral")
        if len(self.band) != 2 or self.band[0] >= self.band[1]:
            faults.append(f"spectral: band = {list(self.band)} must be two increasing angular frequencies in [0, π]")
        if self.from_step:
            faults.append("spectral: from_step does not apply to a spectrum of the whole record; remove it")
        return faults

    def __call__(self, model: Filter, batch: Batch, track: Trajectory) -> Float[Tensor, " B"]:
        estimate = track.prior_mean if self.which == "prior" else track.mean
        valid = batch.valid.unsqueeze(-1)
        predicted, reference = model.observe(estimate) * valid, model.observe(batch.truth) * valid
        low, high = self.band
        return spectral.spectral_distance(predicted, reference, (low, high), self.window, self.reduction)


@LOSSES.register("posterior_nll")
@dataclass(frozen=True)
class PosteriorLikelihood(Loss):
    """Negative log-likelihood of the true state under the posterior, which trains consistent covariances.

    If the initial state is known exactly, the first posterior covariance is singular: set ``from_step: 1``.
    """

    def __call__(self, model: Filter, batch: Batch, track: Trajectory) -> Float[Tensor, " B"]:
        counted = self.counted(batch)
        # removed before factorisation: a covariance of zero has no Cholesky factor
        first = max(self.from_step - batch.first, 0)
        residual = model.layout.boxminus(batch.truth, track.mean)[:, first:]
        value, ok = log_prob(residual, track.cov[:, first:])
        broken = ~ok & counted[:, first:]
        if is_transformed():
            # values cannot be looked at here: a loss that is not finite ends the training of this member alone
            return mean_over(counted[:, first:], torch.where(broken, torch.nan, -value))
        failed = broken.nonzero()
        if len(failed):
            record, step = (int(i) for i in failed[0])
            raise NumericalFailureError(
                f"posterior_nll: the covariance of record {record} of the batch is not positive definite at step "
                f"{step + first} ({len(failed)} such step(s)). If the initial state is known exactly, set "
                "from_step: 1; otherwise lower optimizer.learning_rate or train in float64 (data.dtype)"
            )
        return mean_over(counted[:, first:], -value)


@LOSSES.register("empirical_variance")
@dataclass(frozen=True)
class EmpiricalVariance(Loss):
    """Distance between the squared error and the stated variance, ``|e² - σ²|`` summed over the tangent coordinates.

    The second term of Bayesian KalmanNet's loss, beside ``state``: it trains the spread of the members. Unlike a
    likelihood it needs no definite covariance, which an ensemble with few members does not have.
    """

    def __call__(self, model: Filter, batch: Batch, track: Trajectory) -> Float[Tensor, " B"]:
        error = model.layout.boxminus(track.mean, batch.truth)
        variance = track.cov.diagonal(dim1=-2, dim2=-1)
        return mean_over(self.counted(batch), (error.square() - variance).abs().sum(-1))


@LOSSES.register("innovation_nll")
@dataclass(frozen=True)
class InnovationLikelihood(Loss):
    """Negative log-likelihood of the innovations; needs no true states, so it can be used on any recording."""

    def check(self, model: Filter) -> list[str]:
        faults = _needs_observation(model, self.weight, "innovation_nll")
        if self.weight > 0 and model.latent_innovations and not faults:
            faults.append(
                f"innovation_nll needs innovations of the measurements, but those of filter {model.name!r} are of its "
                "latent space; use another filter, or set the weight to 0"
            )
        return faults

    def __call__(self, model: Filter, batch: Batch, track: Trajectory) -> Float[Tensor, " B"]:
        present = batch.mask & batch.y.isfinite()
        return mean_over(present.any(-1) & self.late(batch), -track.step_log_likelihood)


@LOSSES.register("anchor")
@dataclass(frozen=True)
class AnchorLoss(Loss):
    """Squared error of ``H(x)`` against the measurements, which keeps a learned observation model from collapsing."""

    def check(self, model: Filter) -> list[str]:
        return _needs_observation(model, self.weight, "anchor")

    def __call__(self, model: Filter, batch: Batch, track: Trajectory) -> Float[Tensor, " B"]:
        present = batch.mask & batch.y.isfinite() & self.counted(batch).unsqueeze(-1)
        target = torch.where(present, batch.y, 0.0)
        error = model.observation_layout.boxminus(target, model.observe(batch.truth)) * present
        return error.square().sum((-1, -2)) / present.sum((-1, -2)).clamp_min(1)


class WeightedSum:
    """The weighted sum of loss terms; a term of weight zero is not computed."""

    def __init__(self, terms: Sequence[tuple[str, Loss]]) -> None:
        self.terms = [(name, term) for name, term in terms if term.weight > 0]

    def __call__(self, model: Filter, batch: Batch, track: Trajectory) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """The sum, and the value of each term by name, without its weight."""
        values = self.values(model, batch, track)
        total = batch.share.new_zeros(())
        for name, term in self.terms:
            total = total + term.weight * values[name]
        return total, {name: value.detach() for name, value in values.items()}

    def values(self, model: Filter, batch: Batch, track: Trajectory) -> dict[str, Float[Tensor, ""]]:
        """The value of each term by name, without its weight."""
        return {name: (term(model, batch, track) * batch.share).sum() for name, term in self.terms}


def parse_terms(entries: Sequence[Any], owner: str) -> tuple[list[Loss], list[str]]:
    """Loss objects from entries ``{kind, weight, …}``, and the faults in them, one line each."""
    terms, faults = [], []
    for number, item in enumerate(entries):
        where = f"loss.{number}"
        if not isinstance(item, Mapping) or not isinstance(item.get("kind"), str):
            faults.append(f"{owner}: {where} = {item!r} must be a mapping with kind: {_kinds()}")
            continue
        if item["kind"] not in list(LOSSES):
            faults.append(f"{owner}: option {where}.kind = {item['kind']!r}: unknown loss; choose one of: {_kinds()}")
            continue
        options = {name: value for name, value in item.items() if name != "kind"}
        term, term_faults = try_config(LOSSES[item["kind"]], options, owner, f"{where}.")
        faults += term_faults
        if term is not None:
            terms.append(term)
    if not faults and not any(term.weight > 0 for term in terms):
        faults.append(f"{owner}: loss needs a term with a weight above 0")
    return terms, faults


def weighted_sum(entries: Sequence[Any]) -> WeightedSum:
    """The loss of an experiment that has been checked."""
    terms, faults = parse_terms(entries, "loss")
    assert not faults, faults
    names = [item["kind"] for item in entries]
    unique = [name if names.count(name) == 1 else f"{name}_{i}" for i, name in enumerate(names)]
    return WeightedSum(list(zip(unique, terms, strict=True)))


def _kinds() -> str:
    return ", ".join(sorted(LOSSES))
