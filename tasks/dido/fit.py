"""Fitting a linear FW-NKF with noise states to records, in the frequency domain.

Without an encoder the filter settles to constant gains, so its innovations and its estimates are the measurements
through known transfer functions. Their likelihood and their squared error are then sums over the cross-spectra of
measurements and truth, computed once: a gradient step takes 0.1 s where a scan over the records takes minutes.
The model: every axis a signal with a slope, all of them coupled (drag ties the force to the attitude, and so to the
rate); shared vibration modes that shake all axes, each with its own gain and phase; one cycle for each axis alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fwnkf.core.system import LinearSystem
from fwnkf.filters.base import Filter, build
from fwnkf.filters.shaping import NoiseStates
from fwnkf.shapes import Float

SEGMENT = 2048
"""Samples of one periodogram: 0.2 Hz at 400 Hz."""
TINY = 1e-10
"""Added to every process variance, in units of the signals' own: keeps the Riccati equation definite."""
SECONDS_SCALE = 10 * math.pi
"""Slopes are per this many seconds, the radians of 5 Hz, so that signal and slope are of one size."""


@dataclass(frozen=True)
class FitOptions:
    """Sizes and the optimizer's course; chosen on the flight held back."""

    modes: int = 12
    iterations: int = 220
    learning_rate: float = 0.04
    truth_weight: float = 5.0
    jitter: float = 0.05


class Spectra(NamedTuple):
    """Cross-spectra of ``[measurements; truth]`` over bins of ``weight`` that sum to one."""

    omega: Float[Tensor, " f"]
    weight: Float[Tensor, " f"]
    density: Tensor
    scale: Float[Tensor, " m"]
    """Standard deviation of the truth, by which both are divided."""


def cross_spectra(y: Float[Tensor, "N T m"], truth: Float[Tensor, "N T m"]) -> Spectra:
    """Welch's estimate over all records; bins are pooled where transfer functions are smooth (above 20 and 100 Hz)."""
    scale = truth.flatten(0, 1).std(0)
    both = torch.cat((y / scale, truth / scale), -1)
    window = torch.hann_window(SEGMENT, dtype=both.dtype).unsqueeze(-1)
    pieces = both.unfold(1, SEGMENT, SEGMENT // 2).flatten(0, 1).mT
    lines = torch.fft.rfft(pieces * window, dim=1)
    density = torch.einsum("bfi,bfj->fij", lines, lines.conj()) / (len(pieces) * window.square().sum())
    weight = torch.full((len(density),), 2.0 / SEGMENT, dtype=both.dtype)
    weight[[0, -1]] /= 2
    omega = 2 * math.pi * torch.arange(len(density), dtype=both.dtype) / SEGMENT
    first, second = round(0.05 * SEGMENT), round(0.25 * SEGMENT)
    sizes = [1] * first + [2] * ((second - first) // 2)
    rest = len(density) - sum(sizes)
    sizes += [4] * (rest // 4) + ([rest % 4] if rest % 4 else [])
    parts = list(zip(weight.split(sizes), omega.split(sizes), density.split(sizes), strict=True))
    return Spectra(
        torch.stack([(w * o).sum() / w.sum() for w, o, _ in parts]),
        torch.stack([w.sum() for w, _, _ in parts]),
        torch.stack([(w[:, None, None] * d).sum(0) / w.sum() for w, _, d in parts]),
        scale,
    )


class Settled(NamedTuple):
    """The model's matrices and where its Kalman filter settles."""

    F: Tensor
    H: Tensor
    Q: Tensor
    R: Tensor
    gain: Tensor
    innovation_cov: Tensor


class VibrationModel(nn.Module):
    """Raw parameters of the joint model; ``seed`` jitters where they start."""

    def __init__(self, options: FitOptions, seed: int, channels: int = 6) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)

        def near(value: Tensor) -> nn.Parameter:
            jitter = torch.randn(value.shape, generator=generator, dtype=torch.float64)
            return nn.Parameter(value.double() + options.jitter * jitter)

        self.m, self.modes = channels, options.modes
        n, k = 2 * channels, options.modes
        step = SECONDS_SCALE / 400
        walk = torch.tensor([[1.0, step], [0.0, 1.0]], dtype=torch.float64)
        self.start = torch.kron(walk, torch.eye(channels, dtype=torch.float64))
        self.step = step
        self.coupling = nn.Parameter(torch.zeros(n, n, dtype=torch.float64))
        self.leak = near(torch.full((n,), -5.0))
        self.log_drive = near(torch.tensor([-6.0] * channels + [math.log(0.3 * math.sqrt(step))] * channels))
        self.drive = nn.Parameter(torch.zeros(n, n, dtype=torch.float64))
        self.log_white = near(torch.full((channels,), math.log(0.1)))
        self.white = nn.Parameter(torch.zeros(channels, channels, dtype=torch.float64))
        self.frequency = near(torch.logit(torch.linspace(0.1, 0.9, k)))
        self.damping = near(torch.full((k,), math.log(0.03)))
        self.shape = nn.Parameter(0.1 * torch.randn(channels, 2 * k, generator=generator, dtype=torch.float64))
        self.own_frequency = near(torch.zeros(channels))
        self.own_damping = near(torch.full((channels,), math.log(0.3)))
        self.own_amplitude = near(torch.full((channels,), 0.1))

    def signals(self) -> tuple[Tensor, Tensor]:
        """``F`` and ``Q`` of signals and slopes."""
        n = 2 * self.m
        F = self.start * torch.exp(-torch.exp(self.leak)).unsqueeze(-1) + self.step * self.coupling
        root = self.log_drive.exp().unsqueeze(-1) * (torch.eye(n).to(F) + self.drive.tril(-1))
        return F, root @ root.mT + TINY * torch.eye(n).to(F)

    def white_covariance(self) -> Tensor:
        root = self.log_white.exp().unsqueeze(-1) * (torch.eye(self.m).to(self.white) + self.white.tril(-1))
        return root @ root.mT

    def own_radius(self) -> Tensor:
        return 0.999 * torch.exp(-torch.exp(self.own_damping))

    def shared(self) -> tuple[Tensor, Tensor, Tensor]:
        """``F, H, Q`` of what goes into the filter's linear system: signals and shared modes."""
        F, Q = self.signals()
        A, drive = _cycles(math.pi * torch.sigmoid(self.frequency), 0.9999 * torch.exp(-torch.exp(self.damping)))
        H = torch.cat((torch.eye(self.m, 2 * self.m).to(F), self.shape), 1)
        return torch.block_diag(F, A), H, torch.block_diag(Q, drive)

    def settled(self) -> Settled:
        F, H, Q = self.shared()
        A, drive = _cycles(math.pi * torch.sigmoid(self.own_frequency), self.own_radius())
        place = torch.diag_embed(self.own_amplitude).repeat_interleave(2, -1)
        place = place * torch.tensor([1.0, 0.0]).to(F).repeat(self.m)
        F, Q, H = torch.block_diag(F, A), torch.block_diag(Q, drive), torch.cat((H, place), 1)
        R = self.white_covariance()
        P = riccati(F, H, Q, R)
        S = H @ P @ H.mT + R
        return Settled(F, H, Q, R, torch.linalg.solve(S, H @ P).mT, S)


def _cycles(omega: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    cosine, sine = radius * omega.cos(), radius * omega.sin()
    blocks = torch.stack((torch.stack((cosine, -sine), -1), torch.stack((sine, cosine), -1)), -2)
    return torch.block_diag(*blocks), torch.diag_embed((1 - radius.square()).repeat_interleave(2))


def riccati(F: Tensor, H: Tensor, Q: Tensor, R: Tensor, doublings: int = 14) -> Tensor:
    """Prior covariance of the settled Kalman filter, by the structured doubling algorithm; differentiable."""
    n = len(F)
    eye, A, G, P = torch.eye(n).to(F), F.mT, H.mT @ torch.linalg.solve(R, H), Q
    for _ in range(doublings):
        by_A, by_G = torch.linalg.solve(eye + G @ P, torch.cat((A, G), 1)).split(n, 1)
        P, G, A = P + A.mT @ P @ by_A, G + A @ by_G @ A.mT, A @ by_A
        P, G = 0.5 * (P + P.mT), 0.5 * (G + G.mT)
    return P


def responses(found: Settled, omega: Tensor) -> tuple[Tensor, Tensor]:
    """Transfer from measurements to the state's estimate and to the innovation at ``omega``."""
    n, m = found.gain.shape
    eye = torch.eye(n).to(found.F)
    closed = (eye - found.gain @ found.H) @ found.F
    delay = torch.exp(-1j * omega)[:, None, None]
    estimate = torch.linalg.solve(eye - delay * closed, found.gain.to(delay.dtype).expand(len(omega), n, m))
    predicted = delay * ((found.H @ found.F).to(delay.dtype) @ estimate)
    return estimate, torch.eye(m).to(found.F) - predicted


def objective(model: VibrationModel, spectra: Spectra, truth_weight: float) -> tuple[Tensor, Tensor]:
    """Negative log-likelihood of a sample plus half the summed log squared errors; and the squared errors alone."""
    found, m = model.settled(), model.m
    estimate, innovation = responses(found, spectra.omega)
    error = torch.cat((estimate[:, :m], -torch.eye(m).to(estimate).expand(len(estimate), m, m)), -1)
    weight = spectra.weight.to(error.dtype)
    mse = torch.einsum("f,fij,fjk,fik->i", weight, error, spectra.density, error.conj()).real
    seen = spectra.density[:, :m, :m]
    cov = torch.einsum("f,fij,fjk,flk->il", weight, innovation, seen, innovation.conj()).real
    S = found.innovation_cov
    nll = 0.5 * (torch.logdet(S) + torch.trace(torch.linalg.solve(S, cov)))
    return nll + 0.5 * truth_weight * mse.log().sum(), mse


def fit(spectra: Spectra, seed: int, options: FitOptions) -> VibrationModel:
    """Train from a jittered start with Adam on a one-cycle course."""
    model = VibrationModel(options, seed, len(spectra.scale))
    optimizer = torch.optim.Adam(model.parameters(), lr=options.learning_rate)
    course = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, options.learning_rate, total_steps=options.iterations, pct_start=0.1
    )
    for _ in range(options.iterations):
        loss, _ = objective(model, spectra, options.truth_weight)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        course.step()
    return model


@torch.no_grad()
def as_filter(model: VibrationModel, scale: Tensor, inflate: float = 1.0) -> Filter:
    """The FW-NKF of a fitted model, in SI units: its first six states are clean rate and force.

    ``inflate`` multiplies every variance, which leaves all gains as they are and sets the level of the error bars.
    """
    F, H, Q = model.shared()
    m = model.m
    units = torch.cat((scale, scale, torch.ones(2 * model.modes).to(scale)))
    level = math.sqrt(inflate)
    # a mode's states keep their unit size: their level goes into what they are seen with
    size = torch.cat((torch.full((2 * m,), level), torch.ones(2 * model.modes))).to(scale)
    gain = torch.cat((torch.ones(2 * m), torch.full((2 * model.modes,), level))).to(scale)
    grown = Q * (size.unsqueeze(-1) * size)
    R = model.white_covariance() * (scale.unsqueeze(-1) * scale) * inflate
    system = LinearSystem.of(
        F=units.unsqueeze(-1) * F / units,
        H=scale.unsqueeze(-1) * H / units * gain,
        Q=units.unsqueeze(-1) * grown * units,
        R=R,
        dt=1 / 400,
    )
    built = build("fwnkf", system=system, shaping="noise", hidden=0, sections=1, shared_shaper=False, residual_width=1)
    states = built.get_submodule("noise_states")
    assert isinstance(states, NoiseStates)
    amplitude = (level * model.own_amplitude * scale / R.diagonal().sqrt()).unsqueeze(-1)
    states.set_oscillators(
        (math.pi * torch.sigmoid(model.own_frequency)).unsqueeze(-1), model.own_radius().unsqueeze(-1), amplitude
    )
    return built
