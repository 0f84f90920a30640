"""Vibration modes that several channels share, fitted to recordings in the frequency domain.

A linear filter in its steady state has constant gains, so its innovations and estimates are the measurements through
known transfer functions. Their likelihood and squared error are then sums over cross-spectra that are computed once: a
gradient step takes 0.1 s where a scan over the recordings takes minutes.

The model: every channel a signal with a slope, all of them coupled; shared vibration modes that shake all channels,
each with its own gain and phase; a few oscillators for each channel alone; white noise, correlated between channels.
Signals and slopes are a continuous-time system, so that the filter takes steps of any length.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from ..core import oscillators
from ..core.gaussian import safe_cholesky, solve_psd
from ..core.integrate import discretize
from ..core.linear import LinearSystem
from ..core.riccati import constant_gain, frequency_response, steady_state
from ..errors import ConfigError
from ..filters.base import Filter
from ..filters.factory import build
from ..filters.fwnkf import FrequencyWeightedNeuralKalmanFilter
from ..filters.parts.lines import Lines, LineStates
from ..filters.parts.modes import Modes, ModeStates
from ..shapes import Float
from .band import below
from .spectra import Spectra, cross_spectra

POLE_RADIUS = 0.9999
ROUNDING = 1e-6
"""Learned radii stay below the filter's limit by this share."""
DOUBLINGS = 12
"""Of the Riccati equation while fitting: 4,096 steps of the recursion, many times the memory of a filter in use."""
TINY = 1e-10
"""Added to every process density, in units of the signals' own: keeps the Riccati equation definite."""


@dataclass(frozen=True)
class VibrationOptions:
    """Sizes of the model and the course of its fit.

    >>> VibrationOptions(modes=2).bandwidth
    5.0
    """

    modes: int = 4
    """Oscillators that all channels share."""
    oscillators: int = 1
    """Oscillators of each channel alone."""
    bandwidth: float = 5.0
    """Where the signals are expected (Hz)."""
    truth_weight: float = 5.0
    """Weight of the squared error of the estimates against the likelihood, where the truth is known."""
    iterations: int = 220
    """Steps of Adam."""
    learning_rate: float = 0.04
    """Its largest learning rate."""
    jitter: float = 0.05
    """Standard deviation by which the seed moves the start."""
    start: Literal["peaks", "uniform"] = "peaks"
    """Whether the modes start on the largest peaks of the spectrum or evenly over the band."""


class SteadyTrack(NamedTuple):
    """Predictions of the model for recordings, in its steady state; its covariances are the same at every sample."""

    mean: Float[Tensor, "N T m"]
    cov: Float[Tensor, "N T m m"]
    innovation: Float[Tensor, "N T m"]
    innovation_cov: Float[Tensor, "N T m m"]


class VibrationModel(nn.Module):
    """The parameters of the model for signals of unit size.

    Args:
        channels: number of signals.
        rate: that of the recordings (Hz).
        options: sizes, and where the fit starts.
        seed: moves the start a little.
        frequencies: where the shared modes start, in radians per sample; by default evenly over the band.

    >>> VibrationModel(3, 100.0, VibrationOptions(modes=2)).matrices()[0].shape
    torch.Size([16, 16])
    """

    def __init__(
        self,
        channels: int,
        rate: float,
        options: VibrationOptions,
        seed: int = 0,
        frequencies: Float[Tensor, " k"] | None = None,
    ) -> None:
        super().__init__()
        if not 0 < options.bandwidth < rate / 2:
            raise ConfigError(f"bandwidth = {options.bandwidth} Hz must lie between 0 and half the rate, {rate / 2} Hz")
        generator = torch.Generator().manual_seed(seed)

        def near(values: Tensor) -> nn.Parameter:
            noise = torch.randn(values.shape, generator=generator, dtype=torch.float64)
            return nn.Parameter(values.double() + options.jitter * noise)

        n, k, own = 2 * channels, options.modes, (channels, options.oscillators)
        self.channels, self.rate, self.modes, self.oscillators = channels, rate, k, options.oscillators
        # slopes are counted per radian of the bandwidth, so that signal and slope are of one size
        self.step = 2 * math.pi * options.bandwidth / rate
        if frequencies is None:
            frequencies = math.pi * torch.linspace(0.1, 0.9, k, dtype=torch.float64)
        self.register_buffer("slope", torch.diag_embed(torch.full((channels,), self.step).double(), channels))
        self.coupling = nn.Parameter(torch.zeros(n, n, dtype=torch.float64))
        self.leak = near(torch.full((n,), -5.0))
        self.log_drive = near(torch.tensor([-6.0] * channels + [math.log(0.3 * math.sqrt(self.step))] * channels))
        self.drive = nn.Parameter(torch.zeros(n, n, dtype=torch.float64))
        self.log_white = near(torch.full((channels,), math.log(0.1)))
        self.white = nn.Parameter(torch.zeros(channels, channels, dtype=torch.float64))
        self.frequency = near(torch.logit(frequencies / math.pi))
        self.damping = near(torch.full((k,), math.log(0.03)))
        self.mixing = nn.Parameter(0.1 * torch.randn(channels, 2 * k, generator=generator, dtype=torch.float64))
        spread = (torch.arange(options.oscillators) + 0.5) / max(1, options.oscillators)
        self.own_frequency = near(torch.logit(spread).expand(own))
        self.own_damping = near(torch.full(own, math.log(0.3)))
        self.own_amplitude = near(torch.full(own, 0.1))

    # ---- parts of the model ---------------------------------------------------------------------------------

    def drift(self) -> Float[Tensor, "n n"]:
        """Drift matrix of signals and slopes, per sample.

        Returns:
            The matrix.
        """
        return self.get_buffer("slope") - torch.diag_embed(self.leak.exp()) + self.step * self.coupling

    def density(self) -> Float[Tensor, "n n"]:
        """Spectral density of the noise that drives signals and slopes, per sample.

        Returns:
            The matrix.
        """
        eye = torch.eye(2 * self.channels).to(self.drive)
        root = self.log_drive.exp().unsqueeze(-1) * (eye + self.drive.tril(-1))
        return root @ root.mT + TINY * eye

    def white_covariance(self) -> Float[Tensor, "m m"]:
        """Covariance of the white measurement noise.

        Returns:
            The matrix.
        """
        root = self.log_white.exp().unsqueeze(-1) * (torch.eye(self.channels).to(self.white) + self.white.tril(-1))
        return root @ root.mT

    def mode_poles(self) -> tuple[Float[Tensor, " k"], Float[Tensor, " k"]]:
        """Poles of the shared modes.

        Returns:
            Frequency (radians per sample) and radius.
        """
        return _poles(self.frequency, self.damping)

    def own_poles(self) -> tuple[Float[Tensor, "m k"], Float[Tensor, "m k"]]:
        """Poles of the oscillators of each channel.

        Returns:
            Frequency (radians per sample) and radius.
        """
        return _poles(self.own_frequency, self.own_damping)

    def mode_hertz(self) -> Float[Tensor, " k"]:
        """Frequencies of the shared modes.

        Returns:
            The frequencies (Hz).
        """
        return self.mode_poles()[0] * self.rate / (2 * math.pi)

    def matrices(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The linear model of signals, slopes, the channels' oscillators and shared modes, for one sample.

        Returns:
            ``F, H, Q, R``.
        """
        drift = self.drift()
        F, _, Q = discretize(drift, drift[:, :0], self.density(), torch.ones((), dtype=drift.dtype))
        H = torch.eye(self.channels, 2 * self.channels).to(F)
        (omega, radius), (own_omega, own_radius) = self.mode_poles(), self.own_poles()
        if self.modes or self.oscillators:
            radii, omegas = torch.cat((own_radius.flatten(), radius)), torch.cat((own_omega.flatten(), omega))
            A, drive = oscillators.transition(radii, omegas)
            F, Q = torch.block_diag(F, A), torch.block_diag(Q, drive)
            H = torch.cat((H, oscillators.output(self.own_amplitude), self.mixing), -1)
        return F, H, Q, self.white_covariance()

    def blocks(self) -> tuple[int, ...]:
        """Sizes of the blocks of the block-diagonal ``F``.

        Returns:
            The sizes in their order.
        """
        return (2 * self.channels, *(2,) * (self.channels * self.oscillators + self.modes))

    # ---- the model on recordings ----------------------------------------------------------------------------

    @torch.no_grad()
    def run(self, y: Float[Tensor, "N T m"], scale: Float[Tensor, " m"]) -> SteadyTrack:
        """Estimate the signals with the gains of the steady state from the start.

        Args:
            y: measurements.
            scale: size of each channel, as in :class:`Spectra`.

        Returns:
            Estimates and innovations in the units of the measurements.
        """
        F, H, Q, R = self.matrices()
        steady = steady_state(F, H, Q, R)
        states, innovations = constant_gain(F, H, steady.gain, y / scale)
        m, squared = self.channels, scale.unsqueeze(-1) * scale
        cov = (steady.cov[:m, :m] * squared).expand(*y.shape, m)
        return SteadyTrack(
            states[..., :m] * scale, cov, innovations * scale, (steady.innovation_cov * squared).expand(*y.shape, m)
        )

    @torch.no_grad()
    def to_filter(self, scale: Float[Tensor, " m"], level: float = 1.0) -> Filter:
        """The filter of the model in the units of the recordings; its first ``m`` states are the signals.

        Args:
            scale: size of each channel, as in :class:`Spectra`.
            level: multiplies every covariance, which leaves all gains as they are
                (:func:`fwnkf.identify.levels_left_out`).

        Returns:
            An ``fwnkf`` with noise states, or a ``kf`` if the model has none.
        """
        units = scale.repeat(2)
        R = self.white_covariance() * (scale.unsqueeze(-1) * scale) * level
        matrices = {
            "F": units.unsqueeze(-1) * self.drift() / units * self.rate,
            "H": torch.eye(self.channels, 2 * self.channels).to(R),
            "Q": self.density() * (units.unsqueeze(-1) * units) * (self.rate * level),
            "R": R,
        }
        # signals and slopes are of the size of the signals, in these units
        options: dict[str, Any] = {
            "continuous": True,
            "dt": 1 / self.rate,
            "initial_std": tuple((units * level**0.5).tolist()),
        }
        if not self.modes and not self.oscillators:
            return build("kf", **matrices, **options)
        system = LinearSystem.of(**matrices, **options)
        over_white = (self.white_covariance().diagonal().sqrt()).unsqueeze(-1)
        lines = [Lines(self.oscillators, pole_radius=POLE_RADIUS)] if self.oscillators else []
        modes = [Modes(self.modes, pole_radius=POLE_RADIUS)] if self.modes else []
        model = FrequencyWeightedNeuralKalmanFilter(system, noise=[*lines, *modes])
        for part in model.noise_parts():
            if isinstance(part, LineStates):
                part.set_oscillators(*self.own_poles(), self.own_amplitude / over_white)
            elif isinstance(part, ModeStates):
                part.set_modes(*self.mode_poles(), self.mixing / over_white)
        return model


def objective(
    model: VibrationModel, spectra: Spectra, truth_weight: float = 0.0
) -> tuple[Float[Tensor, ""], Float[Tensor, " m"] | None]:
    """Negative log-likelihood of a sample, plus half the summed log squared errors where the truth is known.

    Returns the squared errors of the estimates too, in units of the spectra's scale.
    """
    F, H, Q, R = model.matrices()
    steady, m = steady_state(F, H, Q, R, DOUBLINGS), model.channels
    estimate, innovation = frequency_response(F, H, steady.gain, spectra.omega, model.blocks())
    weight = spectra.weight.to(estimate.dtype)
    measured = spectra.density[:, :m, :m]
    cov = torch.einsum("f,fij,fjk,flk->il", weight, innovation, measured, innovation.conj()).real
    log_det = 2 * safe_cholesky(steady.innovation_cov)[0].diagonal().log().sum()
    likelihood = 0.5 * (log_det + solve_psd(steady.innovation_cov, cov)[0].diagonal().sum())
    if not spectra.has_truth:
        return likelihood, None
    error = torch.cat((estimate[:, :m], -torch.eye(m).to(estimate).expand(len(estimate), m, m)), -1)
    squared = torch.einsum("f,fij,fjk,fik->i", weight, error, spectra.density, error.conj()).real
    return likelihood + 0.5 * truth_weight * squared.log().sum(), squared


def fit_model(
    spectra: Spectra,
    rate: float,
    options: VibrationOptions,
    seed: int = 0,
    progress: Callable[[int, float], None] | None = None,
) -> VibrationModel:
    """Fit the model to cross-spectra with Adam on a one-cycle schedule.

    Args:
        spectra: those of the recordings.
        rate: that of the recordings (Hz).
        options: sizes, and the course of the fit.
        seed: moves the start a little.
        progress: gets step and objective.

    Returns:
        The fitted model, for signals of unit size.

    >>> y = torch.randn(1, 2048, 2, dtype=torch.float64)
    >>> fit_model(cross_spectra(y), 100.0, VibrationOptions(modes=2, iterations=2)).mode_hertz().shape
    torch.Size([2])
    """
    start = spectral_peaks(spectra, options.modes, 4 * math.pi * options.bandwidth / rate)
    model = VibrationModel(spectra.channels, rate, options, seed, start if options.start == "peaks" else None)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, options.learning_rate, total_steps=options.iterations, pct_start=0.1
    )
    for number in range(options.iterations):
        loss, _ = objective(model, spectra, options.truth_weight)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        schedule.step()
        if progress is not None:
            progress(number, loss.item())
    return model


def fit_vibration(
    y: Float[Tensor, "N T m"],
    truth: Float[Tensor, "N T m"] | None = None,
    *,
    rate: float,
    modes: int = 4,
    seed: int = 0,
    level: float = 1.0,
    motion_hz: float | None = None,
    **options: float | str,
) -> Filter:
    """A Kalman filter that takes vibration shared by all channels off their signals, fitted to recordings.

    Args:
        y: measurements, without constant offset, in float64.
        truth: the clean signals, where they are known. Without them the likelihood of the measurements alone decides.
        rate: samples per second (Hz).
        modes: how many vibration modes the channels share.
        seed: moves the start of the fit a little.
        level: factor on all covariances.
        motion_hz: without truth: the motion lies below this, and the measurements below it, without delay
            (:func:`fwnkf.identify.below`), take the place of the truth. The likelihood alone does not know which part
            of a measurement is motion, and may take some of it for vibration.
        **options: further :class:`VibrationOptions`.

    Returns:
        An ``fwnkf`` whose first ``m`` states are the clean signals, then their slopes; ``filter.run(y)`` denoises,
        with ``mask`` and ``dt`` for gaps and irregular steps.

    >>> y = torch.randn(1, 2048, 2, dtype=torch.float64)
    >>> model = fit_vibration(y, rate=100.0, modes=2, iterations=2)
    >>> model.run(y[:, :5]).mean.shape
    torch.Size([1, 5, 4])
    """
    chosen = VibrationOptions(modes=modes, **options)  # type: ignore[arg-type]
    if motion_hz is not None:
        if truth is not None:
            raise ConfigError("motion_hz takes the place of a truth that is not known: give one of them")
        truth = below(y, rate, motion_hz)
    spectra = cross_spectra(y, truth)
    return fit_model(spectra, rate, chosen, seed).to_filter(spectra.scale, level)


def spectral_peaks(spectra: Spectra, count: int, above: float) -> Float[Tensor, " k"]:
    """The ``count`` frequencies (radians per sample) above ``above`` with the most power, each away from the others."""
    m = spectra.channels
    power = torch.diagonal(spectra.density[:, :m, :m], dim1=-2, dim2=-1).real.sum(-1)
    power = torch.where(spectra.omega > above, power, 0.0)
    apart = (math.pi - above) / (4 * max(1, count))
    peaks = []
    for _ in range(count):
        top = spectra.omega[power.argmax()]
        peaks.append(top.clamp(0.01 * math.pi, 0.99 * math.pi))
        power = torch.where((spectra.omega - top).abs() < apart, 0.0, power)
    return torch.stack(peaks).sort().values if peaks else spectra.omega[:0]


def _poles(frequency: Tensor, damping: Tensor) -> tuple[Tensor, Tensor]:
    return math.pi * torch.sigmoid(frequency), POLE_RADIUS * (1 - ROUNDING) * torch.exp(-torch.exp(damping))
