"""The filter of all fifteen ranges together: an autoregression for each range, coupled within each step.

Every range is an autoregressive process of its own, ``r⁺ = Σ a_k r_k + c + e``, fitted by least squares. The fifteen
innovations ``e`` share one covariance, so that measured ranges correct those that are missing. How they correlate
depends on the motion, so the filter (``adaptive_kf``) lets the covariance follow the innovations. With a constant
diagonal covariance it is the baseline ``ar``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fwnkf import Filter, build
from fwnkf.core.gaussian import solve_psd
from fwnkf.shapes import Float
from tasks.uipdb.baselines import autoregression, channel_filter, fit_autoregression
from tasks.uipdb.protocol import BLOCK, STEP, Record, test_masks

ORDERS = (8, 12, 16, 24)
"""Of the autoregressions, of which one is chosen on the subject held back."""
FIT_STEPS = 4000
SETTLE = 40
"""Innovations of a session's start that do not count: its past is not known."""
HALF_LIVES, SHRINKS = (1.0, 2.0, 4.0, 8.0), (0.05, 0.1, 0.2, 0.3)
NUGGET = 1e-4
"""Share of the variances that no common innovation explains: keeps the covariances definite."""


class Adaptation(NamedTuple):
    """How the covariance follows: its half-life in seconds, and the share taken off the correlations."""

    half_life: float
    shrink: float

    def shrunk(self, cov: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
        return (1 - self.shrink) * cov + self.shrink * cov.diagonal().diag()

    def follow(self, cov: Tensor, moment: Tensor, steps: int) -> Tensor:
        """The covariance after so many steps whose mean moment was this one."""
        kept = 0.5 ** (steps * STEP / self.half_life)
        return kept * cov + (1 - kept) * moment


class RangeModel(NamedTuple):
    """Everything that is fitted: the autoregressions, the covariance of their innovations, adaptation."""

    coefficients: Float[Tensor, "m p1"]
    """Of the last samples of each range, the constant last."""
    innovation: Float[Tensor, "m m"]
    adaptation: Adaptation
    level: float = 1.0
    """Factor of the stated variances."""

    def filter(self, *, adaptive: bool = True) -> Filter:
        """All ranges as one filter whose innovations are correlated; the state are ranges and their last changes.

        It starts at the first measurement give or take ten innovations, at rest. Otherwise than ``adaptive`` the
        covariance of the innovations stays that of the training sessions, and the variances are as computed.
        """
        channels, order = len(self.coefficients), self.coefficients.shape[-1] - 1
        variance = self.innovation.diagonal()
        # the innovation is new in the range, and in its last change
        enters = torch.zeros(order, dtype=torch.float64)
        enters[:2] = 1.0
        offset = enters[:, None] * self.coefficients[:, -1]
        arrays = {
            "F": _transition(self.coefficients[:, :-1]),
            "H": torch.eye(channels, channels * order),
            "G": torch.kron(enters[:, None], torch.eye(channels)),
            "S": self.innovation,
            "R": NUGGET * variance.diag(),
            "c": offset.flatten(),
            "P0": torch.cat((100 * variance, *[4 * variance] * (order - 1))).diag(),
        }
        options: dict[str, Any] = {name: value.double() for name, value in arrays.items()} | {"nugget": NUGGET}
        if adaptive:
            half_life = self.adaptation.half_life / STEP
            options |= {"half_life": half_life, "update_every": BLOCK, "shrink": self.adaptation.shrink}
        model = build("adaptive_kf", **options)
        if adaptive:
            model.calibrate_covariance(variance.new_full((channels * order,), self.level))
        return model

    def plain(self) -> dict[str, Any]:
        """As plain values, to be kept beside the results."""
        return {
            "coefficients": self.coefficients.tolist(),
            "innovation": self.innovation.tolist(),
            **self.adaptation._asdict(),
            "level": self.level,
        }

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> RangeModel:
        coefficients, innovation = (
            torch.tensor(values[name], dtype=torch.float64) for name in ("coefficients", "innovation")
        )
        return cls(coefficients, innovation, Adaptation(values["half_life"], values["shrink"]), values["level"])


def _transition(a: Float[Tensor, "m p"]) -> Float[Tensor, "n n"]:
    """``[r, Δr, Δr of the step before, …]`` of all ranges: next to changes, absolute lags are ill-conditioned."""
    channels, order = a.shape
    lags = torch.zeros(order, order, channels, channels, dtype=a.dtype)
    lags[0] = torch.diag_embed(a.mT)
    for k in range(1, order):
        lags[k, k - 1] = torch.eye(channels)
    changes = torch.eye(order, dtype=a.dtype).diff(dim=0, prepend=torch.zeros(1, order)).neg()
    changes[0, 0] = 1.0
    # a lag is the range less the changes since
    back = -torch.ones_like(changes).tril()
    back[:, 0] = 1.0
    moved = torch.einsum("ij,jkab,kl->ialb", changes, lags, back)
    return moved.reshape(order * channels, order * channels)


def sessions_of(records: list[Record], seed: int) -> list[Record]:
    """All sessions but one, drawn by the seed: what differs from seed to seed."""
    left = int(torch.randint(len(records), (1,), generator=torch.Generator().manual_seed(seed)))
    return [record for i, record in enumerate(records) if i != left]


def innovations(coefficients: Float[Tensor, "m p1"], record: Record) -> Float[Tensor, "T m"]:
    """What the past of each range alone does not tell."""
    y, order = record.y[:FIT_STEPS].double(), coefficients.shape[-1] - 1
    past = y.unfold(0, order, 1)[:-1].flip(-1)
    predicted = (past * coefficients[:, :-1]).sum(-1) + coefficients[:, -1]
    return (y[order:] - predicted)[SETTLE:]


def best_adaptation(before: Tensor, errors: list[Float[Tensor, "T m"]]) -> Adaptation:
    """The memory that best tells one innovation from the others of its step, on sessions held back."""
    eye = torch.eye(len(before)).to(before)

    def squared_error(tried: Adaptation) -> float:
        total = 0.0
        for session in errors:
            now = before
            for block in session.split(BLOCK):
                precision, _ = solve_psd(tried.shrunk(now), eye)
                total += float((block @ precision / precision.diagonal()).square().sum())
                now = tried.follow(now, block.mT @ block / len(block), len(block))
        return total

    return min((Adaptation(life, shrink) for life in HALF_LIVES for shrink in SHRINKS), key=squared_error)


def fit(records: list[Record], held_back: Sequence[Record], seed: int, orders: Sequence[int] = ORDERS) -> RangeModel:
    """The model of one seed, whose variances are as computed.

    Autoregressions and covariance come from the training sessions, order and adaptation from those held back.
    """
    chosen = sessions_of(records, seed)
    short = [record.part(0, FIT_STEPS) for record in held_back]
    y, shown = torch.stack([record.y for record in short]), torch.stack(test_masks(short, "block"))
    fitted = {order: fit_autoregression(chosen, order) for order in orders}

    def squared_error(order: int) -> float:
        residual = channel_filter(autoregression(*fitted[order]), y, shown)[0].transpose(0, 1)
        return float(residual[~shown].square().mean())

    coefficients, _ = fitted[min(orders, key=squared_error)]
    errors = torch.cat([innovations(coefficients, record) for record in chosen])
    innovation = errors.mT @ errors / len(errors)
    adaptation = best_adaptation(innovation, [innovations(coefficients, record) for record in held_back])
    return RangeModel(coefficients, innovation, adaptation)
