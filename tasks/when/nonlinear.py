"""The cells of the pendulum, and the estimators that are trained or fitted on records and scored on others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache, cached_property, partial
from typing import NamedTuple

import numpy as np
import torch

from fwnkf.core.spectral import spectral_distance
from tasks.dido.fir import apply_fir, fit_fir
from tasks.when import summary
from tasks.when.cells import ORACLE, USUAL_STRENGTH, WEIGHT
from tasks.when.pendulum import CHANNELS, RMS, Lanes, Records, Track, observe, run, simulate
from tasks.when.problem import WHITE, Array, Disturbance
from tasks.when.search import (
    LARGEST,
    RECORD,
    Params,
    butterworth,
    least,
    least_sum_of_squares,
    notch_sections,
    phi_starts,
    stable_sections,
)
from tasks.when.store import Job, Row, rounded

PART = "pendulum"
TRAINED, TRAINED_STEPS = 40, 600
"""Records for training and fitting, and steps of each: four minutes in all."""
TESTED, TESTED_STEPS = 64, 1000
SKIP = 200
"""Steps before errors count: what filters begin with is then forgotten."""
TAPS = 150
EVALUATIONS = 12
"""Of residuals and their derivatives from a start of a search."""
SEEDS = (0, 1)
TEST_SEED = 1000
USUAL = (
    Disturbance("tone", 5.0, 0.0, USUAL_STRENGTH),
    Disturbance("tone", 20.0, 0.0, USUAL_STRENGTH),
    Disturbance("band", 2.0, 0.3, USUAL_STRENGTH),
    Disturbance("band", 5.0, 0.3, USUAL_STRENGTH),
    Disturbance("band", 20.0, 0.3, USUAL_STRENGTH),
    Disturbance("drift", 0.1, 0.0, USUAL_STRENGTH),
    Disturbance("pink", 0.1, 0.0, USUAL_STRENGTH),
    Disturbance("sweep", 10.0, 0.5, USUAL_STRENGTH),
)
WEAK = (USUAL[0], USUAL[3], USUAL[5], USUAL[7])
"""Measured at a third of the usual strength too."""
MISMATCHED = USUAL[3]
WRONG = (0.1, 10.0)
"""Factors of the assumed process noise."""


class Cell(NamedTuple):
    """One disturbance, a factor of the assumed process noise, and a draw of records."""

    disturbance: Disturbance
    q: float
    seed: int

    @property
    def key(self) -> Row:
        one = self.disturbance
        return {"kind": one.kind, "hz": one.hz, "width": one.width, "std": one.std, "q": self.q, "seed": self.seed}


def cells() -> Iterator[Cell]:
    """All seeds at the usual strength, one of the others."""
    for one in USUAL:
        yield Cell(one, 1.0, SEEDS[0])
    for one in WEAK:
        yield Cell(Disturbance(one.kind, one.hz, one.width, 0.3), 1.0, SEEDS[0])
    for q in WRONG:
        yield Cell(MISMATCHED, q, SEEDS[0])
    for seed in SEEDS[1:]:
        yield from (Cell(one, 1.0, seed) for one in USUAL)


class Workbench:
    """Records of a cell: those for training and those for the score."""

    def __init__(self, cell: Cell, trained: int = TRAINED, tested: int = TESTED) -> None:
        self.cell = cell
        self.train = simulate(cell.disturbance, trained, TRAINED_STEPS, cell.seed)
        self.test = simulate(cell.disturbance, tested, TESTED_STEPS, TEST_SEED + cell.seed)

    def lanes(self, log_r: Array, log_q: Array | float = 0.0, **others: object) -> Lanes:
        """Filters with factors ``exp(log_r)`` of the true white noise, ``exp(log_q)`` of the assumed process noise."""
        r, q = (np.exp(np.clip(each, -LARGEST, LARGEST)) for each in (log_r, log_q))
        return Lanes((WHITE * RMS) ** 2 * r, self.cell.q * q * np.ones(len(r)), **others)  # type: ignore[arg-type]

    @cached_property
    def best_log_r(self) -> float:
        """Of the filter without anything before it: a search on ever finer grids."""
        best, half = 4.0, 5.0
        for _ in range(3):
            tried = best + half * np.linspace(-1, 1, 13)
            best, half = float(tried[np.argmin(_mean_square(self.residuals(self.lanes(tried))))]), half / 6
        return best

    @cached_property
    def best_phi(self) -> Params:
        """Five numbers of ``Φ`` and the logarithm of the factor of ``R``, of the least error."""
        starts = [[*first, r] for first in phi_starts(self.cell.disturbance) for r in (0.0, 4.0, self.best_log_r)]
        return least_sum_of_squares(lambda p: self.residuals(self.shaped(p)), starts, EVALUATIONS)

    def shaped(self, p: Params) -> Lanes:
        """Filters with ``Φ`` from such numbers."""
        return self.lanes(p[:, 5], phi=stable_sections(p[:, :5]))

    def one_line(self, p: Params) -> Lanes:
        """Filters with an oscillator in each channel.

        Numbers are logarithms: of its frequency, width and deviation, of the factor of ``R``, and of that of ``Q``.
        """
        hz, width, std = np.exp(p[:, :3].T)
        parts = [(np.minimum(hz, 49.0), np.minimum(width, 50.0), std)]
        return self.lanes(p[:, 3], p[:, 4] if p.shape[1] > 4 else 0.0, parts=parts)

    def residuals(self, lanes: Lanes) -> Array:
        """Errors of the tip on the training records, ``[P, …]``."""
        return np.moveaxis(errors(run(lanes, self.train.y), self.train), 2, 0).reshape(len(lanes.r), -1)

    def score(self, lanes: Lanes) -> Row:
        """RMSE of the tip on the test records, and what the filter states of the angle beside its error."""
        with np.errstate(over="ignore", invalid="ignore"):
            track = run(lanes, self.test.y)
        angle = track.theta[SKIP:, 0] - self.test.theta[SKIP:]
        angle = np.angle(np.exp(1j * angle))
        nees = float(np.mean(angle**2 / track.variance[SKIP:, 0]))
        return {"rmse": rounded(rms(errors(track, self.test))), "nees": rounded(nees)}


def errors(track: Track, records: Records) -> Array:
    """Errors of the tip ``[T, 2, P, B]`` once the start is forgotten."""
    return np.moveaxis(observe(track.theta[SKIP:]), 2, 1) - records.tip[SKIP:, :, None]


def rms(error: Array) -> float:
    """Root of the mean squared distance, channels along the second axis."""
    found = math.sqrt(np.mean(np.sum(error**2, 1)))
    return found if math.isfinite(found) else math.inf


# ---- the estimators -------------------------------------------------------------------------------------------------


def told(bench: Workbench) -> Row:
    """Noise states with the true disturbance; of a sweeping line the frequency of every step."""
    one = bench.cell.disturbance
    swept = one.kind == "sweep"
    parts = [
        (np.array([part.hz]), np.array([part.width]), np.array([RMS * part.std]))
        for part in ((one.line,) if swept else one.oscillators())
    ]
    return bench.score(bench.lanes(np.zeros(1), parts=parts, omega=bench.test.omega if swept else None))


def best_r(bench: Workbench) -> Row:
    """The extended Kalman filter with the best constant ``R``."""
    return bench.score(bench.lanes(np.array([bench.best_log_r])))


def low_pass(bench: Workbench) -> Row:
    """A Butterworth low-pass of second order before it; cutoff and ``R`` are searched."""
    return _searched(
        bench,
        lambda p: bench.lanes(p[:, 1], front=butterworth(p[:, 0])),
        [[math.log(hz), r] for hz in (2.0, 10.0, 48.0) for r in (0.0, bench.best_log_r)],
    )


def notch(bench: Workbench) -> Row:
    """A notch before it; centre, width and ``R`` are searched."""
    centre = bench.cell.disturbance.hz
    widths = (0.05, 1.0) if bench.cell.disturbance.kind == "tone" else (0.2 * centre, 2.0 * centre)
    return _searched(
        bench,
        lambda p: bench.lanes(p[:, 2], front=notch_sections(p[:, 0], p[:, 1])),
        [[math.log(centre), math.log(w), r] for w in (1e-3, *widths) for r in (0.0, bench.best_log_r)],
    )


def phi(bench: Workbench, spectral: bool = False) -> Row:
    """``Φ`` of one biquad on both innovations; its five numbers and ``R`` are searched.

    With ``spectral`` for the paper's loss from there on: the squared error and ``WEIGHT`` times the spectral term.
    """

    found = bench.best_phi
    if spectral:

        def loss(p: Params) -> Array:
            track = run(bench.shaped(p), bench.train.y)
            squared = _mean_square(np.moveaxis(errors(track, bench.train), 2, 0).reshape(len(p), -1))
            return np.log(CHANNELS * squared + WEIGHT * spectral_loss(track, bench.train))

        found = least(loss, [list(found)], EVALUATIONS)
    return bench.score(bench.shaped(found[None]))


def spectral_loss(track: Track, records: Records) -> Array:
    """The paper's spectral loss of predicted measurements, mean over pieces as long as its records."""
    pieces = (len(track.predicted) - SKIP) // RECORD
    end = SKIP + pieces * RECORD

    def cut(theta: Array) -> torch.Tensor:  # [P or 1, B, pieces, T, 2]
        tip = observe(theta[SKIP:end]).reshape(pieces, RECORD, -1, CHANNELS, theta.shape[-1])
        return torch.from_numpy(np.ascontiguousarray(tip.transpose(2, 4, 0, 1, 3)))

    return spectral_distance(cut(track.predicted), cut(records.theta[:, None])).mean((-2, -1)).numpy()


def fir(bench: Workbench) -> Row:
    """The FIR filter of both channels of least squares on the training records."""
    y, tip = (
        torch.from_numpy(np.ascontiguousarray(each.transpose(2, 0, 1))) for each in (bench.train.y, bench.train.tip)
    )
    weights = fit_fir(y, tip, taps=TAPS)
    tested = torch.from_numpy(np.ascontiguousarray(bench.test.y.transpose(2, 0, 1)))
    error = apply_fir(weights, tested).numpy().transpose(1, 2, 0) - bench.test.tip
    return {"rmse": rounded(rms(error[SKIP:])), "nees": math.nan}


def fitted(bench: Workbench) -> Row:
    """One oscillator in each channel as noise states; its three numbers and ``R`` have the largest likelihood.

    Of measurements without truth; where ``Q`` is wrong, it is fitted as well. The first frequency and width are the
    likeliest of a coarse grid.
    """

    def loss(p: Params) -> Array:
        return -run(bench.one_line(p), bench.train.y, SKIP).log_likelihood / bench.train.y[SKIP:].size

    grid = [
        [math.log(hz), math.log(share * hz), math.log(0.5 * RMS), 0.0]
        for hz in np.geomspace(0.05, 40.0, 18)
        for share in (0.03, 0.5)
    ]
    likeliest = grid[int(np.argmin(loss(np.array(grid))))]
    start = likeliest if bench.cell.q == 1 else [*likeliest, 0.0]
    found = least(loss, [start], 2 * EVALUATIONS)
    return bench.score(bench.one_line(found[None]))


def trained(bench: Workbench) -> Row:
    """The same oscillators, whose numbers and ``R`` are searched for the least error against the truth."""
    one = bench.cell.disturbance
    start = [math.log(one.hz), math.log(one.hz * (one.width or 2.0)), math.log(0.7 * one.std * RMS)]
    return _searched(bench, bench.one_line, [[*start, 0.0], [*start, 2.0]])


ESTIMATORS: dict[str, Callable[[Workbench], Row]] = {
    ORACLE: told,
    summary.BEST_R: best_r,
    summary.LOW_PASS: low_pass,
    summary.NOTCH: notch,
    summary.PHI: phi,
    summary.SPECTRAL: partial(phi, spectral=True),
    summary.FITTED: fitted,
    summary.FIR: fir,
}


def jobs() -> Iterator[Job]:
    """Every row of the pendulum."""
    for cell in cells():
        bench = cache(partial(Workbench, cell))
        group = f"pendulum, {cell.disturbance.kind} at {cell.disturbance.hz:g} Hz, seed {cell.seed}"
        # what is told is no bound of what is trained where it is no single oscillator, or Q is wrong
        searched = cell.disturbance.kind in ("pink", "sweep") or cell.q != 1
        for name, estimate in (ESTIMATORS | ({summary.TRAINED: trained} if searched else {})).items():
            yield Job({"part": PART, **cell.key, "estimator": name}, group, partial(_measured, bench, estimate))


def _measured(bench: Callable[[], Workbench], estimate: Callable[[Workbench], Row]) -> Row:
    return estimate(bench())


def _searched(bench: Workbench, lanes: Callable[[Params], Lanes], starts: list[list[float]]) -> Row:
    found = least_sum_of_squares(lambda p: bench.residuals(lanes(p)), starts, EVALUATIONS, tried=1)
    return bench.score(lanes(found[None]))


def _mean_square(residuals: Array) -> Array:
    return np.mean(residuals**2, -1)
