"""Four rotors that sweep, in simulation: what their speeds are worth, given, tracked or wrong."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import expm
from scipy.signal import lfilter

import fwnkf
from fwnkf.diagnosis.autopilots import CUTOFF, rotor_notches

Array = NDArray[Any]
ROTORS = 4

STEP, STEPS, SETTLE = 1e-3, 5000, 500
ORDERS, LINE_STD, LINE_HZ, FLOOR = (1.0, 2.0, 3.0, 4.0), (1.0, 0.5, 0.35, 0.25), 2.0, 0.1
SPREAD = (-0.04, -0.012, 0.015, 0.04)
"""Speeds of the four motors relative to their mean."""
TELEMETRY, TELEMETRY_STD, WRONG = 10, 0.003, 1
"""A speed every so many steps; its relative error; the motor whose speed is wrong."""
SIGNAL_HZ, DAMPING = 2.0, 0.7
TRACKING, LEVEL = {"walk": 0.3, "common": 0.98}, fwnkf.Level(seconds=0.5)
"""Chosen on seeds 10 to 14, which are not among those measured."""


def with_notches(values: Array, speeds: Array, step: float) -> dict[str, Array]:
    """Values ``[T, channels]`` behind the rotor notches and the low-pass of each autopilot."""
    return {
        f"{name}: rotor notches, low-pass {cutoff:g} Hz": rotor_notches(values, speeds, step, name)
        for name, cutoff in CUTOFF.items()
    }


def motion() -> tuple[Array, Array, Array]:
    """``F``, ``Q`` and the stationary covariance of the signal: a damped oscillation driven by white noise."""
    w = 2 * np.pi * SIGNAL_HZ
    F = expm(np.array([[0, 1], [-w * w, -2 * DAMPING * w]]) * STEP)
    P = np.diag([1.0, w * w])
    return F, P - F @ P @ F.T, P


def simulate(seed: int) -> tuple[Array, Array, Array, Array]:
    """Signal, measurement, speeds in Hz, and telemetry with its gaps, of a sweep from 40 to 120 Hz and back."""
    generator = np.random.default_rng(seed)
    F, Q, P = motion()
    roots = np.linalg.cholesky(P), np.linalg.cholesky(Q)
    state, signal = roots[0] @ generator.standard_normal(2), np.empty(STEPS)
    for step in range(STEPS):
        state = F @ state + roots[1] @ generator.standard_normal(2)
        signal[step] = state[0]
    mean = 40.0 * 3.0 ** (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(STEPS) / STEPS))
    apart = 1 + np.array(SPREAD) * (1 + 0.2 * generator.standard_normal(ROTORS))
    wander = 0.01 * math.sqrt(STEP) * np.cumsum(generator.standard_normal((STEPS, ROTORS)), 0)
    hz = mean[:, None] * apart * np.exp(wander)
    phase = 2 * np.pi * STEP * np.cumsum(hz, 0)
    y, r = signal + FLOOR * generator.standard_normal(STEPS), math.exp(-math.pi * STEP * LINE_HZ)
    for rotor in range(ROTORS):
        for order, std in zip(ORDERS, LINE_STD, strict=True):
            drive = generator.standard_normal((2, STEPS)) * math.sqrt(1 - r * r)
            drive[:, 0] /= math.sqrt(1 - r * r)  # from the stationary distribution
            amplitude = lfilter([1.0], [1.0, -r], drive[0] + 1j * drive[1])
            y = y + std * (amplitude * np.exp(1j * order * phase[:, rotor])).real
    telemetry = np.full_like(hz, np.nan)
    measured = hz[::TELEMETRY] * (1 + TELEMETRY_STD * generator.standard_normal((len(hz[::TELEMETRY]), ROTORS)))
    telemetry[::TELEMETRY] = measured
    return signal, y, hz, telemetry


def wrong_speeds(telemetry: Array) -> dict[str, Array]:
    """The telemetry with one motor silent, stuck from a third of the time on, or halved."""
    third, given = STEPS // 3, np.isfinite(telemetry[:, WRONG])
    silent, stuck, halved, from_start = (telemetry.copy() for _ in range(4))
    silent[:, WRONG] = np.nan
    last = telemetry[:third, WRONG][given[:third]][-1]
    stuck[third:, WRONG] = np.where(given[third:], last, np.nan)
    halved[third:, WRONG] /= 2
    from_start[:, WRONG] /= 2
    return {"silent": silent, "stuck": stuck, "halved": halved, "halved from the start": from_start}


def tracker(hz: float, level: fwnkf.Level | None = None, **options: float) -> fwnkf.FWNKF:
    """The filter with the true lines; what it is told of the speeds is in the control and in the options."""
    F, Q, _ = (torch.tensor(item) for item in motion())
    system = fwnkf.LinearSystem.of(
        F=F, H=torch.tensor([[1.0, 0.0]]).double(), Q=Q, R=torch.tensor([[FLOOR**2]]).double(), dt=STEP
    )
    lines = fwnkf.Orders(ROTORS, ORDERS, hz=hz, bandwidth_hz=LINE_HZ, **options)
    model = fwnkf.FWNKF(system, noise=lines, level=level)
    model.noise_states.set(std=LINE_STD)
    return model


@torch.no_grad()
def estimates(model: fwnkf.Filter, y: Array, u: Array | None) -> Array:
    prior = fwnkf.Gaussian(torch.zeros(2).double(), torch.tensor(motion()[2]))
    control = None if u is None else torch.tensor(u)
    return model.run(torch.tensor(y)[..., None], control, prior=prior).mean[..., 0].numpy()


def sweep(seeds: list[int]) -> dict[str, list[float]]:
    """Mean squared error of each filter in each record."""
    signal, y, hz, telemetry = (np.stack(items) for items in zip(*map(simulate, seeds), strict=True))

    def error(estimate: Array) -> Array:
        return np.asarray(((estimate - signal)[:, SETTLE:] ** 2).mean(1))

    F, Q, _ = (torch.tensor(item) for item in motion())
    eye = torch.eye(1).double()
    white = {}
    for variance in (1.0, 3.0, 10.0, 30.0, 100.0):
        model = fwnkf.KF(F=F, H=torch.tensor([[1.0, 0.0]]).double(), Q=Q, R=variance * eye)
        white[variance] = error(estimates(model, y, None))
    best = min(white, key=lambda variance: float(white[variance].mean()))
    result = {f"white noise, best R ({best:g})": white[best]}
    told = tracker(40.0, speed_std=1e-5, speed_gate=1e9, walk=1.0)
    result["told the speeds exactly"] = error(estimates(told, y, hz))
    cases = [("speeds given at 100 Hz", telemetry), ("no speed", np.full_like(telemetry, np.nan))]
    others = [wrong_speeds(item) for item in telemetry]
    cases += [(f"one motor {name}", np.stack([item[name] for item in others])) for name in others[0]]
    model = tracker(40.0, LEVEL, speed_std=TELEMETRY_STD, hz_std=0.3, **TRACKING)
    all_y = np.concatenate([y] * len(cases))
    estimate = estimates(model, all_y, np.concatenate([speeds for _, speeds in cases]))
    for (name, _), part in zip(cases, np.split(estimate, len(cases)), strict=True):
        result[name] = error(part)
    each = [with_notches(y[index][:, None], hz[index], STEP) for index in range(len(seeds))]
    for name in each[0]:
        result[name] = error(np.stack([item[name][:, 0] for item in each]))
    return {name: [float(value) for value in values] for name, values in result.items()}
