"""What a likelihood fit found: parameters with standard errors, consistency, and what the data cannot tell apart."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core.gaussian import masked
from ..metrics.consistency import ljung_box, mahalanobis_squared, whiten
from ..shapes import Float
from .likelihood import DIFFERENCE, Likelihood
from .parameters import Parameters

FLAT = 1.0
"""Standard error, relative to the value, above which a direction of the parameters counts as not determined."""
SHARE = 0.3
"""Smallest component of a flat direction that is named."""


@dataclass(frozen=True)
class FittedParameter:
    """A parameter before and after the fit; ``standard_error`` is infinite if the data do not determine it."""

    name: str
    start: float
    value: float
    standard_error: float


@dataclass(frozen=True)
class FlatDirection:
    """A combination of parameters that the measurements do not determine.

    ``relative_error`` is the standard error along it, relative to the values of the parameters.
    """

    parameters: tuple[str, ...]
    weights: tuple[float, ...]
    relative_error: float
    text: str


@dataclass(frozen=True)
class Consistency:
    """Innovations of some records against their stated covariance; NIS is divided by the number of channels."""

    records: int
    log_likelihood: float
    """Per sample of all channels."""
    nis: float
    nis_by_channel: tuple[float, ...]
    white: tuple[float, ...]
    """Share of the records whose innovations pass the Ljung-Box test at 1 %, by channel; 0.99 for a true model."""


@dataclass(frozen=True)
class Order:
    """A number of oscillators that was tried.

    The last one was chosen whose BIC (Bayesian information criterion) is smaller than those before, and that gains on
    records to which it was not fitted.
    """

    oscillators: int
    log_likelihood: float
    bic: float
    gain: float | None = None
    """Log-likelihood gained over one oscillator less on such records; None where that was not examined."""
    chosen: bool = False


@dataclass(frozen=True)
class FitReport:
    """All figures of a fit, as plain values.

    >>> import fwnkf
    >>> one, y = torch.ones(1, 1).double(), torch.randn(3, 100, 1, dtype=torch.float64)
    >>> report = fwnkf.fit(fwnkf.KF(F=one, H=one, Q=one, R=one), y, iterations=2, held_out=0).report
    >>> [parameter.name for parameter in report.parameters]
    ['Q[0,0]', 'R[0,0]']
    """

    parameters: tuple[FittedParameter, ...]
    """What was fitted, before and after."""
    flat: tuple[FlatDirection, ...]
    """Combinations of parameters that the measurements do not determine."""
    before: Consistency
    """On the records of the fit, with the parameters it started from."""
    fitted: Consistency
    """On the records of the fit, with the fitted parameters."""
    held_out: Consistency | None
    """On the records held out; None without any."""
    orders: tuple[Order, ...]
    """The numbers of oscillators that were tried."""
    iterations: int
    """Iterations of the final maximisation."""
    seconds: float
    """CPU time."""
    stopped: bool = False
    """Whether the fit was stopped before it converged."""
    engine: str = "loop"
    """What evaluated the likelihood, see :meth:`fwnkf.Filter.run`."""

    def as_dict(self) -> dict[str, Any]:
        """The report as values of JSON.

        Returns:
            Fields by name.
        """
        return dataclasses.asdict(self)

    def value(self, name: str) -> float:
        """The fitted value of a parameter.

        Args:
            name: as in :attr:`parameters`, for example ``"R[0,0]"``.

        Returns:
            The value.
        """
        return next(parameter.value for parameter in self.parameters if parameter.name == name)

    def lines(self) -> list[str]:
        """The report as text.

        Returns:
            One string for each line.
        """
        width = max(len(parameter.name) for parameter in self.parameters)
        lines = [f"{'parameter':<{width}}  {'start':>11}  {'fitted':>11}  standard error"]
        for item in self.parameters:
            error = f"{item.standard_error:.2g}" if math.isfinite(item.standard_error) else "not determined"
            lines.append(f"{item.name:<{width}}  {item.start:>11.5g}  {item.value:>11.5g}  {error}")
        if len(self.orders) > 1:
            bics = ", ".join(f"{order.oscillators}: {order.bic:.1f}" for order in self.orders)
            gains = ", ".join(f"{o.oscillators}: {o.gain:+.1f}" for o in self.orders if o.gain is not None)
            chosen = next(order.oscillators for order in self.orders if order.chosen)
            lines.append(f"oscillators per channel: {chosen} chosen; BIC {bics}")
            if gains:
                lines.append(f"log-likelihood gained by one more on records it was not fitted to: {gains}")
        for title, part in (("start", self.before), ("fitted", self.fitted), ("held out", self.held_out)):
            if part is not None:
                channels = ", ".join(f"{value:.3f}" for value in part.nis_by_channel)
                white = ", ".join(f"{share:.0%}" for share in part.white)
                lines.append(
                    f"{title}: {part.records} record(s), log-likelihood {part.log_likelihood:.4f} per sample, "
                    f"NIS {part.nis:.3f} (by channel {channels}), white innovations in {white} of the records"
                )
        lines += [direction.text for direction in self.flat] or ["every parameter is determined by these records"]
        if self.stopped:
            lines.append("the fit was stopped before it converged")
        return lines


@torch.no_grad()
def consistency(likelihood: Likelihood, raw: Float[Tensor, " p"], *, skip: int = 0) -> Consistency:
    """Log-likelihood, NIS and whiteness of innovations; the first ``skip`` steps count in the likelihood alone."""
    sums = likelihood.gather(_sums_of_part, raw, skip)
    return _finished(ConsistencySums(*(sum(items[1:], items[0]) for items in zip(*sums, strict=True))))


class ConsistencySums(NamedTuple):
    """What :class:`Consistency` is computed from; those of several parts add up."""

    records: int
    total: float
    measurements: float
    squared: Tensor
    late: Tensor
    ratio: Tensor
    late_by_channel: Tensor
    passed: Tensor


@torch.no_grad()
def _sums_of_part(likelihood: Likelihood, raw: Float[Tensor, " p"], skip: int) -> ConsistencySums:
    part = likelihood.predictions(raw.unsqueeze(0))[0]
    cov = part.cov[0].expand(len(part.weight), -1, -1, -1)
    return _sums(part.residual[0], cov, part.weight, likelihood.value_of(part), skip)


def consistency_of(
    residual: Float[Tensor, "N T m"],
    cov: Float[Tensor, "N T m m"],
    weight: Float[Tensor, "N T m"],
    total: float,
    skip: int,
) -> Consistency:
    """As :func:`consistency`, of innovations whose summed log density is ``total``."""
    return _finished(_sums(residual, cov, weight, total, skip))


def _sums(residual: Tensor, cov: Tensor, weight: Tensor, total: float, skip: int) -> ConsistencySums:
    late = weight[:, skip:]
    measured = masked(cov, weight)
    squared = mahalanobis_squared(residual * weight, measured)[:, skip:]
    ratio = residual.square()[:, skip:] / cov.diagonal(dim1=-2, dim2=-1)[:, skip:] * late
    white = whiten(residual * weight, measured)[:, skip:].mT
    lags = max(1, min(20, white.shape[-1] // 5))
    passed = (ljung_box(white, lags).p_value > 0.01).double().sum(0)
    return ConsistencySums(
        len(residual),
        total,
        float(weight.sum()),
        squared.sum(),
        late.sum(),
        ratio.sum((0, 1)),
        late.sum((0, 1)),
        passed,
    )


def _finished(sums: ConsistencySums) -> Consistency:
    return Consistency(
        sums.records,
        sums.total / max(1.0, sums.measurements),
        float(sums.squared / sums.late.clamp_min(1)),
        tuple((sums.ratio / sums.late_by_channel.clamp_min(1)).tolist()),
        tuple((sums.passed / sums.records).tolist()),
    )


@torch.no_grad()
def fitted_parameters(
    parameters: Parameters,
    raw: Float[Tensor, " p"],
    information: Float[Tensor, "p p"],
    given: Mapping[str, float] | None = None,
) -> tuple[tuple[FittedParameter, ...], tuple[FlatDirection, ...]]:
    """Values with standard errors, and the directions that the information matrix leaves open.

    Directions are eigenvectors of the information in relative units: a unit is the value of the parameter itself, or
    one where the value is zero. ``given`` are the values before the fit, where they are not those of the parameters.
    """
    names = parameters.names
    start = dict(zip(names, parameters.values(parameters.start).tolist(), strict=True)) | dict(given or {})
    value = parameters.values(raw)
    steps = torch.eye(len(raw)).to(raw) * DIFFERENCE
    slope = torch.stack([(parameters.values(raw + step) - value) / DIFFERENCE for step in steps], -1)
    parameters.install(raw)
    scale = torch.where(value == 0, 1.0, value.abs())
    inverse = torch.linalg.pinv(slope / scale.unsqueeze(-1))
    relative = inverse.mT @ information @ inverse
    eigenvalues, vectors = torch.linalg.eigh(0.5 * (relative + relative.mT))
    open_ = eigenvalues < 1 / FLAT**2
    # the standard errors of the others come from the directions that are determined
    spread = (vectors[:, ~open_].square() / eigenvalues[~open_]).sum(-1).sqrt()
    undetermined = (vectors[:, open_].square().sum(-1) > SHARE**2) if bool(open_.any()) else torch.zeros_like(open_)
    errors = torch.where(undetermined, math.inf, spread * scale)
    numbers = zip(names, value.tolist(), errors.tolist(), strict=True)
    return tuple(FittedParameter(name, start[name], *rest) for name, *rest in numbers), tuple(
        _named(names, vectors[:, i], float(eigenvalues[i]), relative) for i in open_.nonzero().flatten()
    )


def _named(names: list[str], vector: Tensor, eigenvalue: float, relative: Tensor) -> FlatDirection:
    """A flat direction in words."""
    vector = vector / vector.abs().max()
    chosen = [i for i in vector.abs().argsort(descending=True).tolist() if abs(vector[i]) > SHARE]
    error = 1 / math.sqrt(max(eigenvalue, 1e-30))
    if len(chosen) == 1:
        name = names[chosen[0]]
        if float(relative[chosen[0], chosen[0]]) < 1e-6:
            text = f"{name} has no influence on the measurements: it keeps its start"
        else:
            text = f"{name} is not determined by these records: its standard error is {_percent(error)} of its value"
    else:
        listed = ", ".join(names[i] for i in chosen[:-1]) + f" and {names[chosen[-1]]}"
        moves = ", ".join(
            f"{names[i]} {'up' if vector[i] * vector[chosen[0]] > 0 else 'down'} by {10 * abs(float(vector[i])):.2g} %"
            for i in chosen
        )
        text = (
            f"{listed} cannot be distinguished: changing them together ({moves}) changes the log-likelihood by "
            f"{0.005 * max(eigenvalue, 0.0) * float(vector.square().sum()):.2g}; fix one of them"
        )
    return FlatDirection(tuple(names[i] for i in chosen), tuple(float(vector[i]) for i in chosen), error, text)


def _percent(error: float) -> str:
    return f"{100 * error:.0f} %" if error < 100 else "more than 100 times"
