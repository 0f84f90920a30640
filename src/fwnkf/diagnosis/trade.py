"""Noise against delay: how well a signal is known, and how old that knowledge is, for filters of several kinds.

All errors are computed from the spectra of a channel's fitted model: a filter with the response ``G`` that is late by
``τ`` makes the error ``∫ |e^{-jωτ} - G|² S_signal + |G|² S_noise``. At a fixed lag, ``τ`` is the lag.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from ..core.riccati import frequency_response, steady_state
from ..identify.channels import ChannelModel
from .notch import low_pass, notch, notch_bandwidth
from .result import Trade

Array = NDArray[np.float64]
Response = NDArray[np.complex128]

BINS = 4096
CUTOFFS = (0.4, 0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.035, 0.025)
"""Of low-passes, as shares of the sampling rate."""
LAGS = (0, 1, 2, 4, 8, 16, 32)
"""Steps of the Kalman filter's fixed lags."""


def trade(channel: str, unit: str, model: ChannelModel) -> Trade:
    """The curves of one channel, from its model with lines."""
    omega = (torch.arange(BINS, dtype=torch.float64) + 0.5) * math.pi / BINS
    frequency = omega.numpy() * model.rate / (2 * math.pi)
    signal, noise = model.signal_spectrum(omega).numpy(), model.noise_spectrum(omega).numpy()

    def error(response: Response, delay: float) -> float:
        late = np.exp(-2j * np.pi * frequency * delay)
        squared = np.abs(late - response) ** 2 * signal + np.abs(response) ** 2 * noise
        return float(np.sqrt(squared.mean()))

    cuts = [low_pass(share * model.rate, model.rate) for share in CUTOFFS]
    notches = [
        notch(line.hz, notch_bandwidth(line.hz, line.bandwidth_hz, model.rate), model.rate)
        for line in model.lines
        if line.hz < 0.48 * model.rate
    ]
    held = np.ones_like(frequency, dtype=complex)
    for section in notches:
        held = held * section.response(frequency, model.rate)
    wait = sum(section.delay(model.rate) for section in notches)

    def points(pairs: Sequence[tuple[Response, float]]) -> tuple[Array, Array]:
        rows = sorted((1e3 * delay, error(response, delay)) for response, delay in pairs)
        return np.array([row[0] for row in rows]), np.array([row[1] for row in rows])

    curves = {"low-pass": points([(cut.response(frequency, model.rate), cut.delay(model.rate)) for cut in cuts])}
    if notches:
        curves["notches and low-pass"] = points(
            [(held * cut.response(frequency, model.rate), wait + cut.delay(model.rate)) for cut in cuts]
        )
    # what a filter without noise states makes of the lines: white noise of the same power
    white = replace(model, lines=(), white=model.noise_std**2)
    curves["Kalman filter, white noise"] = points(lagged(white, omega))
    if model.lines:
        curves["Kalman filter with noise states"] = points(lagged(model, omega))
    marks = {"unfiltered": (0.0, model.noise_std)}
    if notches:
        marks["notches alone"] = (1e3 * wait, error(held, wait))
    return Trade(channel, unit, curves, marks)


def lagged(model: ChannelModel, omega: torch.Tensor) -> list[tuple[Response, float]]:
    """Responses of the steady Kalman filter of a model at fixed lags, late by these; with the lags in seconds."""
    F, H, Q, R = model.matrices()
    steady = steady_state(F, H, Q + 1e-12 * model.white * torch.eye(len(Q)).to(Q), R)
    blocks = (2,) * (len(F) // 2)
    estimate, innovation = frequency_response(F, H, steady.gain, omega, blocks)
    response, single = estimate[:, 0, 0].numpy(), innovation[:, 0, 0].numpy()
    closed = (F - F @ steady.gain @ H).mT
    # x(t | t + L) = x(t | t) + Σ P (F - F K H)ᵀʲ Hᵀ S⁻¹ e(t + j), of which the first state is wanted
    weight = H.mT / steady.innovation_cov
    ahead = np.exp(1j * omega.numpy())
    results = [(response, 0.0)]
    total = response.copy()
    for step in range(1, max(LAGS) + 1):
        weight = closed @ weight
        total = total + float((steady.prior_cov[0] @ weight).item()) * ahead**step * single
        if step in LAGS:
            results.append((total * ahead**-step, step / model.rate))
    return results
