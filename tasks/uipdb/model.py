"""The filter of all fifteen ranges together: increments with a fitted spectrum, coupled within each step.

Every range is an ARIMA(p, 1, p) process, ``Δr = C(z)/A(z) e``: its spectrum tells how much the radios' own filter
smooths. The fifteen innovations ``e`` share one covariance, so that measured ranges correct those that are missing. How
they correlate depends on the motion, so the filter (``adaptive_kf``) lets the covariance follow the innovations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fwnkf import Filter, build
from fwnkf.core.gaussian import solve_psd
from fwnkf.shapes import Float
from tasks.uipdb import arma
from tasks.uipdb.baselines import ChannelModel, channel_filter
from tasks.uipdb.protocol import BLOCK, STEP, Record, test_masks

ORDER = 3
FIT_STEPS = 4000
SETTLE = 40
"""Innovations of a session's start that do not count: its past is not known."""
PULLS = (0.0, 0.002, 0.004, 0.008, 0.016)
"""Shares of the way to the mean range in one step, of which the best is taken."""
HALF_LIVES, SHRINKS = (1.0, 2.0, 4.0, 8.0), (0.05, 0.1, 0.2, 0.3)
NUGGET = 1e-4
"""Share of the variances that no common innovation explains: keeps the covariances definite in float32."""


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


def channel_model(spectrum: arma.ARMA, variance: Float[Tensor, " m"], pull: float, centre: Tensor) -> ChannelModel:
    """Every range alone: ``r⁺ = r + κ (μ - r) + s_1 + e`` with the pull ``κ`` to the mean range ``μ``."""
    F, g = _transition(spectrum, pull)
    Q = variance[:, None, None] * g[:, None] * g
    return ChannelModel(F.expand(len(variance), -1, -1), Q, NUGGET * variance, centre, torch.full_like(g, 1e-4))


class RangeModel(NamedTuple):
    """Everything that is fitted: one spectrum, the innovations' covariance, the pull to the mean ranges, adaptation."""

    spectrum: arma.ARMA
    innovation: Float[Tensor, "m m"]
    pull: float
    centre: Float[Tensor, " m"]
    adaptation: Adaptation

    def filter(self, *, adaptive: bool = True) -> Filter:
        """All ranges as one filter whose innovations are correlated; state ``[r, s_1, …, s_p]`` of 15 each.

        It starts at the first measurement give or take ten innovations, at rest. Otherwise than ``adaptive`` the
        covariance of the innovations stays that of the training sessions.
        """
        transition, gains = _transition(self.spectrum, self.pull)
        channels, order = len(self.innovation), len(gains) - 1
        eye, variance = torch.eye(channels, dtype=torch.float64), self.innovation.diagonal()
        arrays = {
            "F": torch.kron(transition, eye),
            "H": torch.eye(channels, channels * (order + 1)),
            "G": torch.kron(gains.unsqueeze(-1), eye),
            "S": self.innovation,
            "R": NUGGET * variance.diag(),
            "c": torch.cat((self.pull * self.centre, torch.zeros(channels * order, dtype=torch.float64))),
            "P0": torch.cat((100 * variance, *[4 * variance] * order)).diag(),
        }
        options: dict[str, Any] = {name: value.float() for name, value in arrays.items()} | {"nugget": NUGGET}
        if adaptive:
            half_life = self.adaptation.half_life / STEP
            options |= {"half_life": half_life, "update_every": BLOCK, "shrink": self.adaptation.shrink}
        return build("adaptive_kf", **options)

    def plain(self) -> dict[str, Any]:
        """As plain values, to be kept beside the results."""
        return {
            "a": self.spectrum.a.tolist(),
            "c": self.spectrum.c.tolist(),
            "innovation": self.innovation.tolist(),
            "pull": self.pull,
            "centre": self.centre.tolist(),
            **self.adaptation._asdict(),
        }

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> RangeModel:
        a, c, innovation, centre = (
            torch.tensor(values[name], dtype=torch.float64) for name in ("a", "c", "innovation", "centre")
        )
        adaptation = Adaptation(values["half_life"], values["shrink"])
        return cls(arma.ARMA(a, c), innovation, values["pull"], centre, adaptation)


def _transition(spectrum: arma.ARMA, pull: float) -> tuple[Float[Tensor, "n n"], Float[Tensor, " n"]]:
    """``r⁺ = (1 - κ) r + s_1 + e``, ``s⁺ = F s + g e``: transition of ``[r, s]`` and what ``e`` adds to it."""
    shift, gains = spectrum.state_space()
    F = torch.nn.functional.pad(shift, (1, 0, 1, 0))
    F[0, 0], F[0, 1] = 1 - pull, 1.0
    return F, torch.cat((torch.ones_like(gains[:1]), gains))


def sessions_of(records: list[Record], seed: int) -> list[Record]:
    """All sessions but one, drawn by the seed: what differs from seed to seed."""
    left = int(torch.randint(len(records), (1,), generator=torch.Generator().manual_seed(seed)))
    return [record for i, record in enumerate(records) if i != left]


def innovations(model: arma.ARMA, record: Record) -> Float[Tensor, "T m"]:
    """What the past of each range alone does not tell."""
    return model.innovations(record.y[:FIT_STEPS].double().diff(dim=0))[SETTLE:]


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


def fit(records: list[Record], held_back: list[Record], seed: int, order: int = ORDER) -> RangeModel:
    """The model of one seed.

    Spectrum and covariance come from the training sessions, pull and adaptation from those held back.
    """
    chosen = sessions_of(records, seed)
    spectrum = arma.fit(arma.power([record.y.double().diff(dim=0) for record in chosen]), order)
    errors = torch.cat([innovations(spectrum, record) for record in chosen])
    innovation = errors.mT @ errors / len(errors)
    centre = torch.stack([record.y.mean(0) for record in chosen]).mean(0).double()
    short = [record.part(0, FIT_STEPS) for record in held_back]
    y, shown = torch.stack([record.y for record in short]), torch.stack(test_masks(short, "block"))

    def squared_error(pull: float) -> float:
        single = channel_model(spectrum, innovation.diagonal(), pull, centre)
        residual = channel_filter(single, y, shown)[0].transpose(0, 1)
        return float(residual[~shown].square().mean())

    adaptation = best_adaptation(innovation, [innovations(spectrum, record) for record in held_back])
    return RangeModel(spectrum, innovation, min(PULLS, key=squared_error), centre, adaptation)
