"""Classical filters for one axis each: low-passes, static notches, and the Kalman filter of white noise.

All are linear with constant gains, so each is a frequency response, applied by FFT with enough padding for the response
to die out. A record starts as if its first sample had always been there. Cutoffs, notches and the noise ratio of the
Kalman filter are tuned by gradient descent from several starts, on the cross-spectra of the training flights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from fwnkf.core.riccati import steady_state
from fwnkf.identify import Spectra
from fwnkf.shapes import Float
from tasks.dido.protocol import AXES, RATE

PX4_CUTOFF = 30.0
PADDING = 4096
NOTCH_STARTS = ((34.0, 64.0, 160.0), (34.0, 83.0, 160.0), (24.0, 62.0, 83.0))
STEPS = 150

Response = Callable[[Tensor, Tensor], Tensor]
"""Parameters and ``z⁻¹`` on the grid of frequencies to gains."""


def padded(samples: int) -> int:
    """A power of two that leaves room for a response to die out."""
    return 1 << (samples + PADDING - 1).bit_length()


def apply(response: Tensor, y: Float[Tensor, "N T"]) -> Float[Tensor, "N T"]:
    """A response with gain one at zero frequency, over records that have stood at their first sample for ever."""
    first = y[:, :1]
    length = padded(y.shape[1])
    return torch.fft.irfft(torch.fft.rfft(y - first, n=length) * response, n=length)[:, : y.shape[1]] + first


def delays(samples: int) -> Tensor:
    """``z⁻¹`` at the frequencies of a padded record."""
    length = padded(samples)
    return torch.exp(-2j * math.pi * torch.arange(length // 2 + 1, dtype=torch.float64) / length)


def low_pass(cutoff: Tensor, delay: Tensor) -> Tensor:
    """Second-order Butterworth by the bilinear transform with prewarping: PX4's ``LowPassFilter2p``."""
    warp = torch.tan(math.pi * cutoff / RATE)
    scale = 1 + math.sqrt(2) * warp + warp**2
    a1, a2 = 2 * (warp**2 - 1) / scale, (1 - math.sqrt(2) * warp + warp**2) / scale
    return (warp**2 / scale) * (1 + delay) ** 2 / (1 + a1 * delay + a2 * delay**2)


def notch(centre: Tensor, quality: Tensor, delay: Tensor) -> Tensor:
    """A second-order notch with unit gain at zero frequency; its width at -3 dB is ``centre / quality``."""
    omega = 2 * math.pi * centre / RATE
    gain = 1 / (1 + torch.tan(omega / quality / 2))
    cosine = omega.cos()
    return gain * (1 - 2 * cosine * delay + delay**2) / (1 - 2 * gain * cosine * delay + (2 * gain - 1) * delay**2)


def white_gain(ratio: Tensor) -> tuple[Tensor, Tensor]:
    """Steady-state gain ``[2]`` of an integrated random walk (density over ``R``: ``ratio``), and ``S / R``."""
    h = 1 / RATE
    F = torch.tensor([[1.0, h], [0.0, 1.0]], dtype=torch.float64)
    H = torch.eye(1, 2, dtype=torch.float64)
    Q = ratio * torch.tensor([[h**3 / 3, h**2 / 2], [h**2 / 2, h]], dtype=torch.float64)
    steady = steady_state(F, H, Q, torch.eye(1, dtype=torch.float64))
    return steady.gain[:, 0], steady.innovation_cov[0, 0]


def white_kalman(ratio: Tensor, delay: Tensor) -> Tensor:
    """From measurement to the filtered signal: ``x̂ = (I - K H) F x̂₋ + K y``, first component."""
    gain, _ = white_gain(ratio)
    h = 1 / RATE
    # closed loop [[1-k1, (1-k1) h], [-k2, 1-k2 h]] written out
    a11, a12, a21, a22 = 1 - gain[0], (1 - gain[0]) * h, -gain[1], 1 - gain[1] * h
    below = (1 - a11 * delay) * (1 - a22 * delay) - a12 * a21 * delay**2
    return (gain[0] * (1 - a22 * delay) + gain[1] * a12 * delay) / below


def white_innovation(ratio: Tensor, delay: Tensor) -> Tensor:
    """From measurement to innovation: the posterior residual over ``1 - k1``."""
    gain, _ = white_gain(ratio)
    return (1 - white_kalman(ratio, delay)) / (1 - gain[0])


def notched(theta: Tensor, delay: Tensor) -> Tensor:
    """Three notches and a low-pass; ``theta``: log cutoff, then log centre and log quality of each notch."""
    values = torch.exp(theta)
    # bounded as a user would: notches of quality 0.3 to 30 below Nyquist
    gain = low_pass(values[0].clamp(3.0, 190.0), delay)
    for i in range(3):
        gain = gain * notch(values[1 + 2 * i].clamp(5.0, 195.0), values[2 + 2 * i].clamp(0.3, 30.0), delay)
    return gain


def response(method: str, theta: Tensor, delay: Tensor) -> Tensor:
    """The frequency response of a method with its tuned logarithms."""
    if method == "raw":
        return torch.ones_like(delay)
    if method == "low_pass_px4":
        return low_pass(torch.tensor(PX4_CUTOFF, dtype=torch.float64), delay)
    if method == "low_pass_tuned":
        return low_pass(torch.exp(theta[0]).clamp(1.0, 195.0), delay)
    if method == "notches_tuned":
        return notched(theta, delay)
    return white_kalman(torch.exp(theta[0]), delay)


METHODS = ("raw", "low_pass_px4", "low_pass_tuned", "notches_tuned", "white_kf_likelihood", "white_kf_tuned")


def tune(spectra: Spectra, axis: int) -> dict[str, list[float]]:
    """Logarithms of the tuned parameters of one axis, by method, from the cross-spectra of training records."""
    delay, weight = torch.exp(-1j * spectra.omega), spectra.weight
    channels = spectra.channels
    measured = spectra.density[:, axis, axis].real
    true = spectra.density[:, channels + axis, channels + axis].real
    cross = spectra.density[:, axis, channels + axis]

    def error(method: str) -> Callable[[Tensor], Tensor]:
        def loss(theta: Tensor) -> Tensor:
            gain = response(method, theta, delay)
            return (weight * (gain.abs().square() * measured + true - 2 * (gain * cross).real)).sum().log()

        return loss

    def likelihood(theta: Tensor) -> Tensor:
        ratio = torch.exp(theta[0])
        power = (weight * white_innovation(ratio, delay).abs().square() * measured).sum()
        # at the best R, S is the power of the innovations, and its logarithm is all that is left of the likelihood
        return power.log()

    cut = _descend(error("low_pass_tuned"), [[math.log(8.0)], [math.log(30.0)]])
    starts = [[cut[0] + 0.7, *(v for f in fs for v in (math.log(f), 0.5))] for fs in NOTCH_STARTS]
    starts += [[cut[0] + 0.1, *(v for f in fs for v in (math.log(f), 1.5))] for fs in NOTCH_STARTS]
    notches = _descend(error("notches_tuned"), starts)
    tuned = _descend(error("white_kf_tuned"), [[6.0], [11.0], [16.0]])
    # one start, from the smooth side: a white model's likelihood has a second optimum that follows the vibration
    likely = _descend(likelihood, [[6.0]])
    return {
        "raw": [], "low_pass_px4": [], "low_pass_tuned": cut, "notches_tuned": notches,
        "white_kf_likelihood": likely, "white_kf_tuned": tuned,
    }  # fmt: skip


def _descend(loss: Callable[[Tensor], Tensor], starts: list[list[float]]) -> list[float]:
    """The best of several descents; Adam on logarithms, one-cycle."""
    best: tuple[list[float], float] = ([], math.inf)
    for start in starts:
        theta = torch.tensor(start, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.Adam([theta], lr=0.15)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.15, total_steps=STEPS, pct_start=0.1)
        for _ in range(STEPS):
            value = loss(theta)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            schedule.step()
        final = float(loss(theta.detach()))
        if final < best[1]:
            best = (theta.detach().tolist(), final)
    return best[0]


def estimates(tuned: Mapping[str, Mapping[str, list[float]]], method: str, y: Float[Tensor, "N T 6"]) -> Tensor:
    """A method's estimate of every axis."""
    delay = delays(y.shape[1])
    columns = []
    for i, axis in enumerate(AXES):
        theta = torch.tensor(tuned[axis][method], dtype=torch.float64)
        columns.append(apply(response(method, theta, delay), y[..., i]))
    return torch.stack(columns, -1)
