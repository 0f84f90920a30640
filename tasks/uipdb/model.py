"""The filter of all fifteen ranges together: increments with a fitted spectrum, coupled by what happens at one instant.

Every range is an ARIMA(p, 1, p) process, ``Δr = C(z)/A(z) e``: its spectrum tells how smooth the radios' own filter has
made it. The fifteen innovations ``e`` share one covariance, so that the ranges shown correct those hidden. How they
hang together depends on what the body does, so the covariance follows the innovations of the last seconds (an adaptive
filter; the moments are those of expectation maximisation). That is done between seconds, outside of the filter's step.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from tasks.uipdb.baselines import ChannelModel, channel_filter
from tasks.uipdb.protocol import BLOCK, STEP, Record, test_masks
from torch import Tensor

from fwnkf.core.system import LinearSystem
from fwnkf.filters.base import Filter, build
from fwnkf.shapes import Bool, Float
from fwnkf.types import Gaussian, Trajectory

ORDER = 3
FIT_STEPS = 4000
PULLS = (0.0, 0.002, 0.004, 0.008, 0.016)
"""Shares of the way to the usual range in one step, of which the best is taken."""
LIVES, SHRINKS = (1.0, 2.0, 4.0, 8.0), (0.05, 0.1, 0.2, 0.3)
WELCH = 256
NUGGET = 1e-4
"""Share of the variances that no common innovation explains: keeps the covariances definite in float32."""


class Adaptation(NamedTuple):
    """How the covariance follows: half its weight is younger than ``life`` seconds; correlations lose ``shrink``."""

    life: float
    shrink: float

    def shrunk(self, cov: Float[Tensor, "*B n n"]) -> Float[Tensor, "*B n n"]:
        return (1 - self.shrink) * cov + self.shrink * torch.diag_embed(cov.diagonal(dim1=-2, dim2=-1))

    def follow(self, cov: Tensor, moment: Tensor, steps: Tensor | int) -> Tensor:
        """The covariance after so many steps whose mean moment was this one."""
        kept = 0.5 ** (steps * STEP / self.life)
        return kept * cov + (1 - kept) * moment


def monic(raw: Float[Tensor, "*B p"]) -> Float[Tensor, "*B p1"]:
    """``1 + a_1 z⁻¹ + … + a_p z⁻ᵖ`` with all roots inside the unit circle, from any numbers (Levinson's recursion)."""
    a = torch.ones_like(raw[..., :1])
    for k in raw.tanh().unbind(-1):
        zero = torch.zeros_like(a[..., :1])
        a = torch.cat((a, zero), -1) + k.unsqueeze(-1) * torch.cat((zero, a.flip(-1)), -1)
    return a


def periodogram(pieces: list[Float[Tensor, "T 15"]]) -> Float[Tensor, "f 15"]:
    """Mean power of the increments over tapered pieces, half overlapping."""
    window = torch.hann_window(WELCH, dtype=torch.float64).unsqueeze(-1)
    parts = torch.cat([y.double().diff(dim=0).unfold(0, WELCH, WELCH // 2).mT for y in pieces])
    return torch.fft.rfft(parts * window, dim=1).abs().square().mean(0)


def fit_spectrum(power: Float[Tensor, "f 15"], order: int = ORDER) -> tuple[Tensor, Tensor]:
    """``A`` and ``C`` of every range (``[15, order + 1]``), by Whittle's likelihood with the scale taken out.

    The prediction error of a monic stable model is the mean of ``power |A / C|²``; its logarithm is what is minimised.
    """
    relative = (power / power.mean(0)).mT
    start = torch.zeros(2, 1, order, dtype=torch.float64)
    start[0, :, :2] = torch.tensor([-1.5, 1.0])
    start[1, :, :2] = torch.tensor([-1.0, 0.8])
    raw = start.requires_grad_()
    solver = torch.optim.LBFGS([raw], max_iter=400, line_search_fn="strong_wolfe", tolerance_grad=1e-9)

    def gain(coefficients: Tensor) -> Tensor:
        return torch.fft.rfft(coefficients, WELCH).abs().square()

    def loss() -> Tensor:
        solver.zero_grad()
        a, c = monic(raw)
        value = (relative * gain(a) / gain(c)).mean().log()
        value.backward()
        return value

    solver.step(loss)
    with torch.no_grad():
        a, c = monic(raw).expand(2, 15, order + 1)
    return a, c


def residuals(y: Float[Tensor, "T 15"], a: Tensor, c: Tensor) -> Float[Tensor, "S 15"]:
    """Innovations ``A(z)/C(z) Δr``: what the past of the same range does not tell."""
    increments = y.double().diff(dim=0)
    order = a.shape[-1] - 1
    past_w, past_e, found = [torch.zeros(15).double()] * order, [torch.zeros(15).double()] * order, []
    for w in increments.unbind(0):
        e = w + (a[:, 1:] * torch.stack(past_w, -1)).sum(-1) - (c[:, 1:] * torch.stack(past_e, -1)).sum(-1)
        past_w, past_e = [w, *past_w[:-1]], [e, *past_e[:-1]]
        found.append(e)
    return torch.stack(found)


def joint_system(model: ChannelModel, a: Tensor, c: Tensor, innovation: Float[Tensor, "15 15"]) -> LinearSystem:
    """The fifteen models as one system whose innovations are correlated; its control is the constant 1.

    State ``[r, s_1, …, s_p]`` of 15 each; the constant carries ``κ μ``, what pulls the ranges to their usual values.
    """
    order = a.shape[-1] - 1
    size = 15 * (order + 1)
    F = torch.diag_embed(model.F.permute(1, 2, 0)).transpose(1, 2).reshape(size, size)
    spread = _gains(a, c).mT.reshape(size, 1)
    Q = spread * innovation.repeat(order + 1, order + 1) * spread.mT
    Q = Q + NUGGET * Q.diagonal().diag()
    R = NUGGET * innovation.diagonal().diag()
    pull = torch.cat(((1 - model.F[:, 0, 0]) * model.centre, torch.zeros(15 * order)))
    H, B = torch.eye(15, size), pull.unsqueeze(-1)
    return LinearSystem.of(F.float(), H, Q.float(), R.float(), B.float())


def channel_model(a: Tensor, c: Tensor, variance: Tensor, kappa: float, centre: Tensor) -> ChannelModel:
    """``r⁺ = r + κ (μ - r) + s_1 + e``, ``s_i⁺ = φ_i s_1 + s_{i+1} + (φ_i + θ_i) e`` for each range."""
    order = a.shape[-1] - 1
    F = torch.diag_embed(torch.ones(15, order).double(), 1)
    F[:, 0, 0] = 1 - kappa
    F[:, 1:, 1] = F[:, 1:, 1] - a[:, 1:]
    g = _gains(a, c)
    Q = variance[:, None, None] * g[:, :, None] * g[:, None]
    return ChannelModel(F, Q, NUGGET * variance, centre.double(), torch.full((order + 1,), 1e-4).double())


def _gains(a: Tensor, c: Tensor) -> Float[Tensor, "15 p1"]:
    """What an innovation adds to each part of the state."""
    return torch.cat((torch.ones(15, 1).double(), c[:, 1:] - a[:, 1:]), -1)


def sessions_of(records: list[Record], seed: int) -> list[Record]:
    """All sessions but one, drawn by the seed: what differs from seed to seed."""
    left = int(torch.randint(len(records), (1,), generator=torch.Generator().manual_seed(seed)))
    return [record for i, record in enumerate(records) if i != left]


def best_adaptation(before: Tensor, errors: list[Float[Tensor, "T 15"]]) -> Adaptation:
    """The memory that best tells one innovation from the other fourteen of its instant, on sessions held back."""

    def missed(tried: Adaptation) -> float:
        total = 0.0
        for session in errors:
            now = before
            for block in session.split(BLOCK):
                precision = torch.linalg.inv(tried.shrunk(now))
                total += float((block @ precision / precision.diagonal()).square().sum())
                now = tried.follow(now, block.mT @ block / len(block), len(block))
        return total

    return min((Adaptation(life, shrink) for life in LIVES for shrink in SHRINKS), key=missed)


def train_filter(
    records: list[Record], held_back: list[Record], seed: int, order: int = ORDER
) -> tuple[Filter, Adaptation]:
    """The filter of one seed and how its covariance follows; the pull ``κ`` is the best over hidden seconds.

    Coefficients and covariance come from the training sessions, pull and adaptation from those held back.
    """
    chosen = sessions_of(records, seed)
    a, c = fit_spectrum(periodogram([record.y for record in chosen]), order)
    errors = torch.cat([residuals(record.y[:FIT_STEPS], a, c)[40:] for record in chosen])
    innovation = errors.mT @ errors / len(errors)
    centre = torch.stack([record.y.mean(0) for record in chosen]).mean(0)
    short = [record.part(0, FIT_STEPS) for record in held_back]
    y, shown = torch.stack([record.y for record in short]), torch.stack(test_masks(short, "block"))

    def missed(kappa: float) -> float:
        model = channel_model(a, c, innovation.diagonal(), kappa, centre)
        e = channel_filter(model, y, shown)[0].transpose(0, 1)
        return float(e[~shown].square().mean())

    made = channel_model(a, c, innovation.diagonal(), min(PULLS, key=missed), centre)
    model = build("fwnkf", system=joint_system(made, a, c, innovation), shaping="none", hidden=0, residual_width=1)
    late = [residuals(record.y[:FIT_STEPS], a, c)[40:] for record in held_back]
    return model, best_adaptation(innovation, late)


def start(model: Filter, first: Float[Tensor, "B 15"]) -> Gaussian:
    """The belief before the first step: the first measurement give or take ten innovations, at rest."""
    system = model.system
    assert isinstance(system, LinearSystem)
    variance = system.Q().diagonal()[:15].detach()
    order = system.config.state_dim // 15 - 1
    mean = torch.cat((first, first.new_zeros(len(first), 15 * order)), -1)
    cov = torch.cat((100 * variance, *[4 * variance] * order)).diag()
    return Gaussian(mean, cov.expand(len(first), -1, -1))


@torch.no_grad()
def predict(
    model: Filter,
    y: Float[Tensor, "B T 15"],
    shown: Bool[Tensor, "B T 15"],
    adaptation: Adaptation | None = None,
) -> Float[Tensor, "B T 15"]:
    """The filter's ranges at every step, given the present and the past, second by second.

    Without ``adaptation`` the covariance of the innovations stays that of training.
    """
    prepared = model.prepare()
    state, found = model.init(len(y), start(model, y[:, 0])), []
    spread, base = _factors(prepared.Q)
    now = base.expand(len(y), 15, 15)
    for part in range(0, y.shape[1], BLOCK):
        here = shown[:, part : part + BLOCK]
        # hidden values are NaN on the way in: a filter that looked at one would show it
        seen = torch.where(here, y[:, part : part + BLOCK], math.nan)
        if adaptation is not None:
            prepared = prepared._replace(Q=_process(spread, adaptation.shrunk(now)))
        track = model.run(seen, torch.ones_like(seen[..., :1]), here, state=state, prepared=prepared)
        state = track.state
        found.append(track.mean[..., :15])
        if adaptation is not None:
            moment, steps = moments(track, here, now)
            now = adaptation.follow(now, moment, steps)
    return torch.cat(found, 1)


def moments(
    track: Trajectory, here: Bool[Tensor, "B T 15"], now: Float[Tensor, "B 15 15"]
) -> tuple[Float[Tensor, "B 15 15"], Float[Tensor, "B 1 1"]]:
    """The mean of ``E[e eᵀ]`` over the steps that show anything, and how many those are.

    Hidden channels enter by their conditional mean and covariance. After a gap an innovation is larger than one step
    would make it: it is scaled by what the filter itself expected.
    """
    moved = (track.mean - track.prior_mean)[..., :15]
    left = track.cov[..., :15, :15]
    expected = track.innovation_cov.diagonal(dim1=-2, dim2=-1)
    scale = (now.diagonal(dim1=-2, dim2=-1).unsqueeze(1) / expected).sqrt().clamp(max=1.0)
    moved = moved * scale
    whole = moved.unsqueeze(-1) * moved.unsqueeze(-2) + left * scale.unsqueeze(-1) * scale.unsqueeze(-2)
    counts = here.any(-1).to(moved)[..., None, None]
    steps = counts.sum(1)
    return (whole * counts).sum(1) / steps.clamp(min=1.0), steps


def _factors(Q: Float[Tensor, "d d"]) -> tuple[Float[Tensor, " d"], Float[Tensor, "15 15"]]:
    """The gains and the innovations' covariance a process noise was made of."""
    blocks = Q.unflatten(0, (-1, 15)).unflatten(-1, (-1, 15))
    base = blocks[0, :, 0]
    # the first row of blocks is Σ times the gains, column by column; the nugget is on the first block's diagonal only
    first = blocks[0].diagonal(dim1=0, dim2=2).mT / base.diagonal().unsqueeze(-1)
    gains = torch.cat((first[:, :1], first[:, 1:] * (1 + NUGGET)), -1)
    return gains.mT.flatten(), base


def _process(spread: Float[Tensor, " d"], innovation: Float[Tensor, "B 15 15"]) -> Float[Tensor, "B d d"]:
    times = len(spread) // 15
    Q = spread[:, None] * innovation.repeat(1, times, times) * spread
    return Q + NUGGET * torch.diag_embed(Q.diagonal(dim1=-2, dim2=-1))
