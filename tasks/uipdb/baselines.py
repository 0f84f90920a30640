"""Baselines for held-out ranges: every range alone, with what a practitioner would fit to it.

``hold`` keeps the last measured value; ``kf_random_walk`` and ``kf_constant_velocity`` have maximum-likelihood ``Q``
and ``R``; ``ar`` is an autoregressive model by least squares, run as a Kalman filter so that gaps are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fwnkf.core.gaussian import solve_psd
from fwnkf.shapes import Bool, Float
from tasks.uipdb.protocol import STEP, Record

AR_ORDER = 12
FIT_STEPS = 1500
"""Steps of each training session the likelihood is computed on: 75 s."""
BURN_IN = 20


class ChannelModel(NamedTuple):
    """``x⁺ = F x + N(0, Q)``, ``y = x_0 + N(0, R)`` for each of 15 channels, about a centre."""

    F: Float[Tensor, "*C n n"]
    Q: Float[Tensor, "*C n n"]
    R: Float[Tensor, "*C"]
    centre: Float[Tensor, " 15"]
    start: Float[Tensor, " n"]
    """Prior variances of the state around the first measurement."""
    lags: bool = False
    """Whether the state holds earlier samples, which then start at the first measurement too."""


def channel_filter(
    model: ChannelModel, y: Float[Tensor, "B T 15"], shown: Bool[Tensor, "B T 15"]
) -> tuple[Float[Tensor, "T *C"], Float[Tensor, "T *C"]]:
    """Innovations and their variances of scalar Kalman filters side by side; at a hidden sample the innovation is the
    error of the prediction. Channels may carry a grid of models on leading axes of ``F``, ``Q``, ``R``."""
    y = (y - model.centre).double()
    lead = torch.broadcast_shapes(model.R.shape, y[:, 0].shape)
    known = torch.ones(model.F.shape[-1]) if model.lags else torch.eye(model.F.shape[-1])[0]
    x = y[:, 0].expand(lead).unsqueeze(-1) * known
    P = torch.diag_embed(model.start.to(y)).expand(*lead, -1, -1).clone()
    innovations, variances = [torch.zeros(lead).double()], [torch.ones(lead).double()]
    for value, seen in zip(y.unbind(1)[1:], shown.unbind(1)[1:], strict=True):
        x = (model.F @ x.unsqueeze(-1)).squeeze(-1)
        P = model.F @ P @ model.F.mT + model.Q
        S = P[..., 0, 0] + model.R
        e = value - x[..., 0]
        K = torch.where(seen.unsqueeze(-1), P[..., 0] / S.unsqueeze(-1), 0.0)
        x = x + K * e.unsqueeze(-1)
        P = P - K.unsqueeze(-1) * P[..., None, 0, :]
        innovations.append(e)
        variances.append(S)
    return torch.stack(innovations), torch.stack(variances)


def random_walk(q: Tensor, R: Tensor) -> ChannelModel:
    return ChannelModel(torch.ones_like(q)[..., None, None], q[..., None, None], R, torch.zeros(15), torch.ones(1))


def constant_velocity(q: Tensor, R: Tensor) -> ChannelModel:
    """``q`` is the spectral density of the acceleration."""
    F = q.new_tensor([[1.0, STEP], [0.0, 1.0]])
    Q = q.new_tensor([[STEP**3 / 3, STEP**2 / 2], [STEP**2 / 2, STEP]])
    return ChannelModel(F.expand(*q.shape, 2, 2), q[..., None, None] * Q, R, torch.zeros(15), torch.ones(2))


def fit_noise(make: Callable[[Tensor, Tensor], ChannelModel], train: list[Record]) -> tuple[Tensor, Tensor]:
    """Maximum-likelihood ``Q`` and ``R`` of each channel: a grid over their ratio, refined once.

    Given the ratio the scale has a closed form, ``σ² = mean e²/S``.
    """
    length = min(FIT_STEPS, *(len(record.y) for record in train))
    y = torch.stack([record.y[:length] for record in train])
    shown = torch.ones_like(y, dtype=torch.bool)
    centre, half = torch.full((15,), 2.5).double(), 6.0
    for _ in range(2):
        logs = centre + torch.linspace(-half, half, 21).double()[:, None]
        ratio = (10**logs).unsqueeze(1)  # [grid, 1, 15]
        e, S = channel_filter(make(ratio, torch.ones_like(ratio)), y, shown)
        e, S = e[BURN_IN:], S[BURN_IN:]
        scale = (e.square() / S).mean((0, 2))
        likelihood = -0.5 * (scale.log() + S.log().mean((0, 2)))
        best = likelihood.argmax(0)
        centre, half = logs.gather(0, best[None])[0], half / 10
        R = scale.gather(0, best[None])[0]
    return 10**centre * R, R


def fit_autoregression(train: list[Record], order: int = AR_ORDER) -> tuple[Tensor, Tensor]:
    """Coefficients ``[15, order + 1]`` (the constant last) and variances by least squares."""
    coefficients, variances = [], []
    for c in range(15):
        rows, wanted = [], []
        for record in train:
            y = record.y[:, c].double()
            rows.append(y.unfold(0, order, 1)[:-1].flip(-1))
            wanted.append(y[order:])
        X, target = torch.cat(rows), torch.cat(wanted)
        X = torch.cat((X, torch.ones(len(X), 1).double()), -1)
        solution = solve_psd(X.mT @ X, (X.mT @ target).unsqueeze(-1))[0].squeeze(-1)
        coefficients.append(solution)
        variances.append((target - X @ solution).square().mean())
    return torch.stack(coefficients), torch.stack(variances)


def autoregression(coefficients: Tensor, variance: Tensor) -> ChannelModel:
    """The companion form: the state is the last samples, so a hidden one is estimated like any other."""
    order = coefficients.shape[-1] - 1
    F = torch.zeros(15, order, order).double()
    F[:, 0], F[:, 1:, :-1] = coefficients[:, :-1], torch.eye(order - 1).double()
    Q = torch.zeros_like(F)
    Q[:, 0, 0] = variance
    centre = coefficients[:, -1] / (1 - coefficients[:, :-1].sum(-1))
    # the past is not known: the first measurement, give or take a metre, all lags alike
    return ChannelModel(F, Q, torch.full((15,), 1e-8).double(), centre, torch.ones(order), lags=True)


def hold(y: Float[Tensor, "B T 15"], shown: Bool[Tensor, "B T 15"]) -> Float[Tensor, "B T 15"]:
    """The last measured value."""
    index = torch.where(shown, torch.arange(y.shape[1])[:, None], 0).cummax(1).values
    return y.gather(1, index)


def fit(train: list[Record]) -> dict[str, Any]:
    """The parameters of all baselines as plain values, kept beside the trained filter."""
    fitted: dict[str, Any] = {}
    for name, make in (("kf_random_walk", random_walk), ("kf_constant_velocity", constant_velocity)):
        q, R = fit_noise(make, train)
        fitted[name] = {"q": q.tolist(), "R": R.tolist()}
    coefficients, variance = fit_autoregression(train)
    fitted["ar"] = {"coefficients": coefficients.tolist(), "variance": variance.tolist()}
    return fitted


def predictions(
    fitted: dict[str, Any], y: Float[Tensor, "B T 15"], shown: Bool[Tensor, "B T 15"]
) -> dict[str, Callable[[], tuple[Tensor, Tensor | None]]]:
    """By name, the prediction of each baseline at every step and its variance; valid where a range is hidden."""

    def run(model: ChannelModel) -> tuple[Tensor, Tensor]:
        innovation, variance = channel_filter(model, y, shown)
        return y - innovation.transpose(0, 1).to(y), variance.transpose(0, 1)

    def numbers(name: str) -> list[Tensor]:
        return [torch.tensor(value, dtype=torch.float64) for value in fitted[name].values()]

    return {
        "hold": lambda: (hold(y, shown), None),
        "kf_random_walk": lambda: run(random_walk(*numbers("kf_random_walk"))),
        "kf_constant_velocity": lambda: run(constant_velocity(*numbers("kf_constant_velocity"))),
        "ar": lambda: run(autoregression(*numbers("ar"))),
    }
