"""The cells of the linear map, and what is measured in each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch

import fwnkf
from fwnkf.core.gaussian import dense
from fwnkf.filters.base import LinearModel
from tasks.when import search
from tasks.when.linear import Estimator, kalman
from tasks.when.problem import STEP, Array, Disturbance, Model, motion
from tasks.when.search import Bench, Found
from tasks.when.simulation import drawn
from tasks.when.store import Job, Row, rounded

STRENGTHS = (0.1, 0.3, 1.0, 3.0)
"""RMS of the disturbance over that of the motion; the white noise has 0.1."""
TONES = (0.3, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0)
BANDS = (1.0, 2.0, 5.0, 10.0, 20.0)
WIDTHS = (0.1, 0.3, 1.0)
DRIFTS = (0.001, 0.01, 0.1, 1.0)
PINKS = (0.01, 0.1, 1.0)
SWEEPS = (2.0, 5.0, 10.0, 20.0)
FACTORS = (0.1, 1.0, 10.0)
"""Of the assumed Q and R over the true ones. A gain depends on their ratio, so equal factors are right ones to it."""
USUAL_WIDTH, USUAL_SWEEP, USUAL_STRENGTH = 0.3, 0.5, 1.0
WEIGHT = 0.1
"""``λ`` of the spectral loss, the larger one of the paper's two."""
FITTED_RECORDS, FITTED_STEPS = 5, 3000
"""What noise states are fitted to: 150 s of measurements, no truth."""
SEEDS = (0, 1, 2)
ORACLE = "states told"


class Cell(NamedTuple):
    """One disturbance, and factors of the assumed noises."""

    disturbance: Disturbance
    q: float = 1.0
    r: float = 1.0

    @property
    def key(self) -> dict[str, Any]:
        one = self.disturbance
        return {"kind": one.kind, "hz": one.hz, "width": one.width, "std": one.std, "q": self.q, "r": self.r}


def disturbances() -> Iterator[Disturbance]:
    """All disturbances of the map with right ``Q`` and ``R``, those of the usual strength first."""
    for std in (USUAL_STRENGTH, *(each for each in STRENGTHS if each != USUAL_STRENGTH)):
        yield from (Disturbance("tone", hz, 0.0, std) for hz in TONES)
        yield from (Disturbance("band", hz, USUAL_WIDTH, std) for hz in BANDS)
        yield from (Disturbance("drift", hz, 0.0, std) for hz in DRIFTS)
        yield from (Disturbance("pink", hz, 0.0, std) for hz in PINKS)
        yield from (Disturbance("sweep", hz, USUAL_SWEEP, std) for hz in SWEEPS)
        if std == USUAL_STRENGTH:
            yield from (Disturbance("band", hz, width, std) for width in WIDTHS if width != USUAL_WIDTH for hz in BANDS)


MISMATCHED = (
    Disturbance("none", 5.0, 0.0, 0.0),
    Disturbance("tone", 10.0, 0.0, 1.0),
    Disturbance("band", 5.0, 0.3, 1.0),
    Disturbance("drift", 0.01, 0.0, 1.0),
)


def cells() -> Iterator[Cell]:
    """The map, then the cells of wrong ``Q`` and ``R``."""
    for one in disturbances():
        yield Cell(one)
    for one in MISMATCHED:
        yield from (Cell(one, q, r) for q in FACTORS for r in FACTORS if q != r or q == 1)


def estimators(cell: Cell) -> dict[tuple[str, int], Callable[[Bench], Found]]:
    """What is measured in a cell, by name and seed; the oracle first."""
    one = cell.disturbance
    found: dict[tuple[str, int], Callable[[Bench], Found]] = {}
    if any(one == each for each in MISMATCHED):  # R is no longer free: it is one of the numbers that are wrong
        found |= {
            ("Q, R assumed; as assumed", 0): search.as_assumed,
            ("Q, R assumed; notch", 0): lambda bench: search.notch(bench, free_r=False),
            ("Q, R assumed; Φ", 0): lambda bench: search.phi(bench, free_r=False),
            ("Q, R assumed; Φ, spectral loss", 0): lambda bench: search.phi(bench, spectral=WEIGHT, free_r=False),
            ("Q, R assumed; states told", 0): search.states_told,
        }
        found |= {("Q, R fitted; states fitted", 0): _fit(0, cell, ("Q", "R", "oscillators"))}
        if cell.q != 1 or cell.r != 1 or one.kind == "none":
            return found
    found |= {
        (ORACLE, 0): search.states_told,
        ("as assumed", 0): search.as_assumed,
        ("best R", 0): search.best_r,
        ("low-pass", 0): search.low_pass,
        ("notch", 0): search.notch,
        ("Φ", 0): search.phi,
        ("Φ, spectral loss", 0): lambda bench: search.phi(bench, spectral=WEIGHT),
        ("FIR", 0): search.fir,
    }
    if one.kind in ("pink", "sweep"):
        found |= {("Φ of two", 0): search.phi_of_two, ("states trained", 0): search.states_trained}
    if one.kind == "sweep":
        found |= {("notch told", 0): search.notch_following}
    if one.std == USUAL_STRENGTH:
        found |= {("Φ, spectral loss alone", 0): lambda bench: search.phi(bench, spectral=math.inf)}
    usual = one.std == USUAL_STRENGTH and one.width in (0.0, USUAL_WIDTH, USUAL_SWEEP)
    seeds = SEEDS if usual else SEEDS[:1]
    return found | {("states fitted", seed): _fit(seed, cell, ("R", "oscillators")) for seed in seeds}


def _fit(seed: int, cell: Cell, learn: tuple[str, ...]) -> Callable[[Bench], Found]:
    return lambda bench: states_fitted(bench, cell, seed, learn)


def jobs() -> Iterator[Job]:
    """Every row of the linear map; estimators of one cell share what they have in common."""
    for cell in cells():
        bench = cache(partial(Bench, cell.disturbance, cell.q, cell.r))
        group = f"{cell.disturbance.kind} at {cell.disturbance.hz:g} Hz, RMS {cell.disturbance.std:g}"
        for (name, seed), estimate in estimators(cell).items():
            key: Row = {"part": "linear", **cell.key, "estimator": name, "seed": seed}
            yield Job(key, group, partial(_row, bench, estimate))


def _row(bench: Callable[[], Bench], estimate: Callable[[Bench], Found]) -> Row:
    found = estimate(bench())
    return {"rmse": rounded(math.sqrt(found.variance)), "nees": rounded(found.variance / found.stated)}


# ---- noise states fitted to measurements alone ----------------------------------------------------------------------


def states_fitted(bench: Bench, cell: Cell, seed: int, learn: tuple[str, ...]) -> Found:
    """Noise states that :func:`fwnkf.fit` finds in measurements without truth, scored in closed form.

    The number of oscillators is its choice too.
    """
    _, y = simulated(cell.disturbance, FITTED_RECORDS, FITTED_STEPS, seed)
    assumed = bench.assumed
    F, H, Q = (torch.from_numpy(np.ascontiguousarray(matrix)) for matrix in (assumed.F, assumed.H, assumed.Q))
    system = fwnkf.LinearSystem.of(F=F, H=H, Q=Q, R=torch.tensor([[assumed.R]]).double(), dt=STEP)
    fitted = fwnkf.fit(system, torch.from_numpy(y).unsqueeze(-1), learn=learn, held_out=0.0).filter
    return bench.score(steady(fitted))


@torch.no_grad()
def steady(model: fwnkf.Filter) -> Estimator:
    """The steady state of a linear filter of the library whose first state is the motion."""
    linear: LinearModel = model.linear_model(model.prepare(), None)
    if linear.F is None or linear.H is None or linear.Q is None or linear.R is None:
        raise ValueError("a filter with a constant linear model is needed")
    F, H, Q = (matrix.double().numpy() for matrix in (linear.F, linear.H, linear.Q))
    R = float(dense(linear.R)[0, 0])
    return kalman(Model(F, Q, H, R, np.eye(1, len(F))))


def simulated(disturbance: Disturbance, records: int, steps: int, seed: int) -> tuple[Array, Array]:
    """Motion and measurements ``[records, steps]`` from the stationary distribution."""
    signal, measured, _ = drawn(motion(), disturbance, records, steps, np.random.default_rng(seed))
    return signal, measured
