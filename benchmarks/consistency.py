"""Consistency: NEES, NIS and whiteness of innovations on linear Gaussian systems with coloured noise.

    python benchmarks/consistency.py [--quick] [--seeds 5] [--markdown FILE]

The data are simulated in numpy, independently of the package. Two claims, each over several systems and seeds:

- ``noise=Lines(…)`` with the true noise parameters: NEES/n and NIS/m within 0.97 to 1.03, innovations white by a
  Ljung-Box test at 1 % (pooled over trajectories), compared with the Kalman filter for white noise;
- ``phi=Phi(covariance="augmented")`` with a fixed Φ in white noise: NEES/n within 0.97 to 1.03, compared with the
  Joseph form.

The exit code is 1 if a claim does not hold.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from tables import write

import fwnkf
from fwnkf.core.iir import Sections
from fwnkf.metrics.consistency import ljung_box, nees, nis, whiten

BAND = (0.97, 1.03)
LEVEL = 0.01
LAGS = 20


@dataclass(frozen=True)
class Linear:
    """A linear Gaussian system as plain matrices."""

    F: np.ndarray
    H: np.ndarray
    Q: np.ndarray
    R: np.ndarray


SYSTEMS = {
    "constant velocity": Linear(
        np.array([[1.0, 0.05], [0.0, 0.98]]), np.array([[1.0, 0.0]]), np.diag([1e-4, 1e-2]), np.array([[0.05]])
    ),
    "two coupled oscillators": Linear(
        np.array([[0.95, 0.2, 0.0], [-0.2, 0.95, 0.1], [0.0, 0.0, 0.9]]),
        np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]),
        np.diag([0.01, 0.02, 0.05]),
        np.array([[0.10, 0.03], [0.03, 0.20]]),
    ),
}

# one row per oscillator: frequency in radians per step, pole radius, amplitude over the white standard deviation
COLOURS = {
    "tone": [(0.9, 0.999, 2.0)],
    "band": [(1.8, 0.80, 1.5), (2.4, 0.80, 1.5)],
    "drift": [(0.0, 0.99, 2.0)],
    "pink": [(0.0, 0.999, 1.0), (0.0, 0.98, 1.0), (0.0, 0.80, 1.0)],
}

SHAPERS = {
    "low-pass": ([[0.6, 0.2, 0.1]], [[-0.3, 0.1]]),
    "notch": ([[1.0, -1.2, 0.98]], [[-1.1, 0.8]]),
    "high-pass": ([[0.8, -0.3, 0.0]], [[-0.2, 0.0]]),
    "two sections": ([[0.9, 0.1, 0.0], [1.0, -0.3, 0.2]], [[-0.2, 0.1], [-0.4, 0.2]]),
}


@dataclass
class Row:
    """A row of the table: means over seeds and their standard deviations."""

    claim: str
    system: str
    case: str
    filter: str
    nees: float
    nees_spread: float
    nis: float
    nis_spread: float
    smallest_p: float
    mse: float
    holds: bool | None


def simulate(
    system: Linear, oscillators: list[tuple[float, float, float]], runs: int, steps: int, rng: np.random.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """States and measurements; every channel has its own independent oscillators, as complex AR(1) processes."""
    n, m = system.F.shape[0], system.H.shape[0]
    root_q, root_r = (np.linalg.cholesky(matrix) for matrix in (system.Q, system.R))
    std = np.sqrt(np.diag(system.R))
    omega, radius, amplitude = (
        (np.array(column) for column in zip(*oscillators, strict=True)) if oscillators else ([], [], [])
    )
    pole = np.asarray(radius) * np.exp(1j * np.asarray(omega))
    drive = np.sqrt(1 - np.asarray(radius) ** 2)

    def circular(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)

    x = rng.standard_normal((runs, n))
    nu = circular(runs, m, len(oscillators))
    states, measured = [], []
    for _ in range(steps):
        x = x @ system.F.T + rng.standard_normal((runs, n)) @ root_q.T
        nu = pole * nu + drive * circular(runs, m, len(oscillators))
        coloured = (nu.real * amplitude).sum(-1) * std if oscillators else 0.0
        states.append(x)
        measured.append(x @ system.H.T + coloured + rng.standard_normal((runs, m)) @ root_r.T)
    return torch.from_numpy(np.stack(states, 1)), torch.from_numpy(np.stack(measured, 1))


def figures(model: fwnkf.Filter, x: torch.Tensor, y: torch.Tensor) -> tuple[float, float, float, float]:
    """NEES/n, NIS/m, pooled Ljung-Box p-value and mean squared error of one run."""
    with torch.no_grad():
        track = model.run(y).raise_for_status()
    error = x - track.mean
    white = whiten(track.innovation, track.innovation_cov).mT  # [runs, m, steps]
    statistic = ljung_box(white, LAGS).statistic
    pooled = torch.special.gammaincc(torch.tensor(LAGS * statistic.numel() / 2.0).double(), statistic.sum() / 2)
    return (
        float(nees(error, track.cov).mean()),
        float(nis(track.innovation, track.innovation_cov).mean()),
        float(pooled),
        float(error.square().mean()),
    )


def linear_system(system: Linear) -> fwnkf.LinearSystem:
    return fwnkf.LinearSystem.of(*(torch.from_numpy(getattr(system, name)) for name in ("F", "H", "Q", "R")))


def with_noise_states(system: Linear, oscillators: list[tuple[float, float, float]]) -> fwnkf.Filter:
    """The FW-NKF with the true noise states, without an encoder and without training."""
    lines = fwnkf.Lines(len(oscillators), shared=True, pole_radius=0.99999)
    model = fwnkf.FWNKF(linear_system(system), noise=lines, solve="cholesky")
    omega, radius, amplitude = (torch.tensor([column]).double() for column in zip(*oscillators, strict=True))
    model.noise_states.set_oscillators(omega, radius, amplitude)
    return model


def with_shaper(system: Linear, shaper: tuple[list, list], **options: str) -> fwnkf.Filter:
    model = fwnkf.FWNKF(linear_system(system), phi=fwnkf.Phi(len(shaper[0]), **options))
    model.shaper.set_sections(Sections(*(torch.tensor(part).double() for part in shaper)))
    return model


def measure(
    claim: str, system: str, case: str, name: str, model: fwnkf.Filter, data: list, *, check: bool, whiteness: bool
) -> Row:
    results = np.array([figures(model, x, y) for x, y in data])
    mean, spread = results.mean(0), results.std(0, ddof=1) if len(results) > 1 else np.zeros(4)
    holds = None
    if check:
        holds = bool(BAND[0] <= mean[0] <= BAND[1])
        if whiteness:
            # Bonferroni: a true null hypothesis is rejected with 1 % probability over all seeds together
            holds = holds and bool(BAND[0] <= mean[1] <= BAND[1]) and bool((results[:, 2] > LEVEL / len(results)).all())
    return Row(
        claim,
        system,
        case,
        name,
        *(float(v) for v in (mean[0], spread[0], mean[1], spread[1], results[:, 2].min(), mean[3])),
        holds,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one system, one seed and no baselines, for CI")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=500, help="trajectories per seed")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--markdown", type=Path, help="write the table as a page of the documentation")
    options = parser.parse_args()
    seeds = 1 if options.quick else options.seeds
    systems = dict(list(SYSTEMS.items())[:1]) if options.quick else SYSTEMS
    torch.set_num_threads(1)

    rows: list[Row] = []
    print(f"{seeds} seed(s), {options.runs} runs of {options.steps} steps each, float64; ± is the spread over seeds")
    print(f"{'system':24} {'case':13} {'filter':22} {'NEES/n':>15} {'NIS/m':>15} {'min p':>7} {'mse':>8}  holds")

    def report(row: Row) -> None:
        rows.append(row)
        verdict = "" if row.holds is None else ("yes" if row.holds else "NO")
        print(
            f"{row.system:24} {row.case:13} {row.filter:22} {row.nees:8.3f} ±{row.nees_spread:5.3f} "
            f"{row.nis:8.3f} ±{row.nis_spread:5.3f} {row.smallest_p:7.3f} {row.mse:8.4f}  {verdict}",
            flush=True,
        )

    for system_name, system in systems.items():
        for colour, oscillators in COLOURS.items():
            data = [
                simulate(system, oscillators, options.runs, options.steps, np.random.default_rng(seed))
                for seed in range(seeds)
            ]
            claim = "noise states"
            if not options.quick:
                plain = fwnkf.build("ekf", system=linear_system(system))
                name = "kf for white noise"
                report(measure(claim, system_name, colour, name, plain, data, check=False, whiteness=True))
            exact = with_noise_states(system, oscillators)
            report(measure(claim, system_name, colour, "fwnkf, noise states", exact, data, check=True, whiteness=True))
        white = [
            simulate(system, [], options.runs, options.steps, np.random.default_rng(100 + seed))
            for seed in range(seeds)
        ]
        for shaper_name, shaper in SHAPERS.items():
            claim = "augmented covariance"
            if not options.quick:
                joseph = with_shaper(system, shaper)
                name = "fwnkf, joseph"
                report(measure(claim, system_name, shaper_name, name, joseph, white, check=False, whiteness=False))
            for gain in ("kalman", "shaped"):
                model = with_shaper(system, shaper, covariance="augmented", gain=gain)
                name = f"fwnkf, augmented {gain}"
                report(measure(claim, system_name, shaper_name, name, model, white, check=True, whiteness=False))
    if options.markdown:
        note = (
            f"{seeds} seeds, {options.runs} runs of {options.steps} steps each, float64; spreads are standard "
            "deviations over seeds. `smallest_p` is the smallest Ljung-Box p-value over the seeds (20 lags, pooled "
            "over runs). Rows without an entry under `holds` are baselines without a claim: the Joseph form of the "
            "shaped update, and the Kalman filter for white noise."
        )
        write(options.markdown, "Consistency", note, [asdict(row) for row in rows])
    failures = [row for row in rows if row.holds is False]
    print(f"{len(failures)} of {sum(row.holds is not None for row in rows)} claims fail")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
