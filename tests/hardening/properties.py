"""Drawn estimation problems: ``python -m tests.hardening.properties TARGET CASES --seed S --rows FILE``.

Systems, priors, noises, masks, outliers and scales are drawn over many orders of magnitude. Every step of the filter is
compared with the same step in extended precision (64 bits of mantissa), computed by code that shares nothing with the
package, from the filter's own estimate before the step and from measurements that were not rounded to its dtype. What
seems wrong is computed again with 100 digits. The only failure is a step that is wrong while its status says nothing.

Where the dtype cannot hold the factors that a filter carries (``square_root``), the whole run is compared instead,
without outliers, which would make an error of earlier steps as many times larger as they are standard deviations away.
For the others the whole run is judged too, and what earlier steps left in the estimate is counted as inherited.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import mpmath
import numpy as np
import torch
from torch import Tensor

import fwnkf
from fwnkf import Gaussian, Status
from fwnkf.core.gaussian import DiagonalNoise, FullNoise, Noise
from fwnkf.core.integrate import discretize_with
from fwnkf.core.layout import Layout
from fwnkf.types import numpy_dtype

from .rows import Row, append

STD_TOLERANCE = 0.05
"""A standard deviation that is wrong by more than this share of it is wrong."""
MEAN_TOLERANCE = 0.5
"""So is a mean that is wrong by more than so many standard deviations."""
STEPS = 6
BLOCK = 1000
"""Cases that are drawn and filtered together."""
MARGIN = 1e4
"""A covariance that is given is as far from singular as so many rounding errors, ten times as far for a whole run."""
SMALLEST = 1e-14
"""Standard deviations below are those of an exact state."""
EXCUSES = int(Status.FACTORIZATION_FAILED | Status.PRECISION_LOST | Status.REJECTED)
Long = np.longdouble


class Problem(NamedTuple):
    """Cases of one size: matrices as the filter has them, and measurements before they are rounded."""

    F: np.ndarray
    H: np.ndarray
    Q: np.ndarray
    R: np.ndarray
    mean: np.ndarray
    cov: np.ndarray
    y: np.ndarray
    measured: np.ndarray

    def cast(self, dtype: torch.dtype) -> dict[str, Tensor]:
        kinds = {name: torch.bool if name == "measured" else dtype for name in self._fields}
        return {name: torch.as_tensor(np.asarray(item, float)).to(kinds[name]) for name, item in self._asdict().items()}


# ---- drawing --------------------------------------------------------------------------------------------------------


def powers(rng: np.random.Generator, low: float, high: float, *shape: int) -> np.ndarray:
    """Numbers whose logarithm is uniform."""
    return 10.0 ** rng.uniform(low, high, shape)


def semidefinite(rng: np.random.Generator, count: int, n: int) -> np.ndarray:
    """Positive semidefinite matrices of any rank, well and badly conditioned."""
    root = rng.standard_normal((count, n, n)) * (rng.random((count, 1, n)) < 0.85)
    root *= powers(rng, -3, 0, count, 1, n) ** rng.integers(0, 2, (count, 1, 1))
    return root @ root.swapaxes(-1, -2)


def definite(cov: np.ndarray, dtype: torch.dtype, margin: float) -> np.ndarray:
    """Variances larger by more than rounding takes, so that a rounded covariance still is one. Zeros stay zeros."""
    diagonal = np.diagonal(cov, axis1=-2, axis2=-1)
    return cov + margin * float(torch.finfo(dtype).eps) * diagonal[..., None] * np.eye(cov.shape[-1])


def rounded(values: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """What a filter of this dtype holds; symmetric matrices stay symmetric."""
    return values.astype(numpy_dtype(dtype)).astype(float)


def transitions(rng: np.random.Generator, count: int, n: int) -> np.ndarray:
    turned = np.linalg.qr(rng.standard_normal((count, n, n)))[0]
    kinds = [
        turned * rng.choice([1.0, 0.99, 0.5, 1.1], (count, 1, 1)),
        rng.standard_normal((count, n, n)) / np.sqrt(n),
        np.broadcast_to(np.eye(n), (count, n, n)),
        np.eye(n) + np.diag(np.ones(n - 1), 1) * powers(rng, -4, 1, count, 1, 1),
        turned * (rng.random((count, n, 1)) < 0.7),
    ]
    return np.stack(kinds)[rng.integers(0, len(kinds), count), np.arange(count)]


def draw(
    rng: np.random.Generator, n: int, m: int, dtype: torch.dtype, full_noise: bool, count: int, whole: bool = False
) -> Problem:
    """Cases that a filter of this dtype can hold."""
    scale = powers(rng, -3, 3, count, 1, n) ** rng.integers(0, 2, (count, 1, 1))  # units of the states
    F = transitions(rng, count, n)
    F = F * scale.swapaxes(-1, -2) / scale
    H = rng.standard_normal((count, m, n)) * powers(rng, -2, 2, count, m, 1) / scale
    H = np.where(rng.random((count, 1, 1)) < 0.2, H[:, :1], H)  # sensors that measure the same
    H = H * (rng.random((count, 1, n)) < 0.8)  # states that no sensor sees
    Q = semidefinite(rng, count, n) * powers(rng, -12, 2, count, 1, 1) * (rng.random((count, 1, 1)) < 0.85)
    Q = Q * (scale * scale.swapaxes(-1, -2))
    std = powers(rng, -6, 3, count, m, 1) * (rng.random((count, m, 1)) < 0.97)
    correlation = np.eye(m)
    if full_noise:
        share = rng.choice([0.3, 0.9, 0.999], (count, 1, 1))
        correlation = (1 - share) * np.eye(m) + share
    R = correlation * (std * std.swapaxes(-1, -2))
    cov = semidefinite(rng, count, n) * powers(rng, -6, 8, count, 1, 1) * (scale * scale.swapaxes(-1, -2))
    mean = rng.standard_normal((count, n)) * powers(rng, -2, 7, count, 1) * (rng.random((count, 1)) < 0.5) * scale[:, 0]
    Q, R, cov = (definite(item, dtype, (10 if whole else 1) * MARGIN) for item in (Q, R, cov))
    F, H, Q, R, mean, cov = (rounded(item, dtype) for item in (F, H, Q, R, mean, cov))
    x = mean + np.einsum("bij,bj->bi", _root(cov), rng.standard_normal((count, n)))
    y = np.empty((count, STEPS, m), Long)
    roots = _root(Q), _root(R)
    state = x.astype(Long)
    for t in range(STEPS):
        if t:
            state = np.einsum("bij,bj->bi", F.astype(Long), state)
            state = state + np.einsum("bij,bj->bi", roots[0], rng.standard_normal((count, n)))
        noise = np.einsum("bij,bj->bi", roots[1], rng.standard_normal((count, m)))
        y[:, t] = np.einsum("bij,bj->bi", H.astype(Long), state) + noise
    outlier = rng.random((count, STEPS, m)) < (0 if whole else 0.005)
    y = np.where(outlier, y * powers(rng, 2, 25, count, STEPS, m), y)
    return Problem(F, H, Q, R, mean, cov, y, rng.random((count, STEPS, m)) < 0.75)


def _root(cov: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(cov)
    return vectors * np.sqrt(np.clip(values, 0, None))[:, None]


# ---- the oracle -----------------------------------------------------------------------------------------------------


class Belief(NamedTuple):
    mean: np.ndarray
    cov: np.ndarray


def one_step(problem: Problem, t: int, belief: Belief, largest: float) -> Belief:
    """Step ``t`` from a belief, one scalar update after the other, in the numbers of the arrays.

    With arrays of objects they are those of mpmath.
    """
    F, H, Q, R = problem[:4]
    mean, P = belief
    if t:
        mean = (F @ mean[..., None])[..., 0]
        P = F @ P @ F.swapaxes(-1, -2) + Q
    used = problem.measured[:, t] & (np.abs(problem.y[:, t]) <= largest)
    rows, values, variances = independent(H, problem.y[:, t], R, used)
    eye = np.eye(mean.shape[-1], dtype=int)
    for i in range(rows.shape[1]):
        h, r = rows[:, i], variances[:, i]
        Ph = (P @ h[..., None])[..., 0]
        s = (Ph * h).sum(-1) + r
        use = used[:, i] & (s > 0)
        k = Ph * (use / np.where(use, s, 1))[:, None]
        mean = mean + k * (values[:, i] - (h * mean).sum(-1))[:, None]
        A = eye - k[:, :, None] * h[:, None]
        P = A @ P @ A.swapaxes(-1, -2) + (r[:, None] * k)[:, :, None] * k[:, None]
    return Belief(mean, P)


def oracle(problem: Problem, before: Sequence[Belief] | None, largest: float) -> Belief:
    """Beliefs after each step: from those ``before`` it, or from the prior on."""
    beliefs = []
    for t in range(STEPS):
        last = before[t] if before is not None else beliefs[-1] if beliefs else Belief(problem.mean, problem.cov)
        beliefs.append(one_step(problem, t, last, largest))
    return Belief(*(np.stack(items, 1) for items in zip(*beliefs, strict=True)))


def beliefs_before(problem: Problem, run: Any, numbers: Callable[[Any], np.ndarray]) -> list[Belief]:
    """What the filter had before each step."""
    mean, cov = (item.double().numpy() for item in (run.mean, run.cov))
    pairs = [(problem.mean, problem.cov), *((mean[:, t], cov[:, t]) for t in range(STEPS - 1))]
    return [Belief(numbers(a), numbers(b)) for a, b in pairs]


def long(values: Any) -> np.ndarray:
    """In extended precision."""
    return np.asarray(values, Long)


def many_digits(values: Any) -> np.ndarray:
    """In the numbers of mpmath, exactly as they are in extended precision."""
    parts = np.vectorize(lambda v: mpmath.mpf(float(v)) + mpmath.mpf(float(v - Long(float(v)))), otypes=[object])
    return parts(np.asarray(values, Long))


def converted(problem: Problem, numbers: Callable[[Any], np.ndarray]) -> Problem:
    return Problem(*(numbers(item) for item in problem[:-1]), problem.measured)


def independent(
    H: np.ndarray, y: np.ndarray, R: np.ndarray, used: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Measurements with independent noise: ``L⁻¹`` of ``R = L D Lᵀ`` over the channels that are used."""
    H, y, R = H.copy(), y * used, R * (used[:, :, None] & used[:, None])
    D = []
    for i in range(H.shape[1]):
        pivot = R[:, i, i]
        D.append(pivot * (pivot > 0))
        for j in range(i + 1, H.shape[1]):
            factor = R[:, j, i] * (pivot > 0) / np.where(pivot > 0, pivot, 1)
            H[:, j] = H[:, j] - factor[:, None] * H[:, i]
            y[:, j] = y[:, j] - factor * y[:, i]
            R[:, j] = R[:, j] - factor[:, None] * R[:, i]
    return H, y, np.stack(D, 1)


# ---- the filters ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DrawnConfig:
    """No options: the matrices are given."""


class DrawnSystem(fwnkf.System):
    """One linear system for each item of the batch."""

    Config = DrawnConfig

    def __init__(self, F: Tensor, H: Tensor, Q: Tensor, R: Tensor, diagonal: bool) -> None:
        super().__init__(DrawnConfig())
        self.layout, self.observation_layout = Layout.euclidean(F.shape[-1]), Layout.euclidean(H.shape[-2], "y")
        self.diagonal_noise = diagonal
        for name, item in (("F", F), ("H", H), ("Q", Q), ("R", R)):
            self.register_buffer(name, item)

    def _of(self, matrix: Tensor, x: Tensor) -> Tensor:
        """The matrices of the rows of ``x``: sigma points of an item stand next to each other, or on an axis."""
        if x.ndim == 3:
            return matrix.unsqueeze(1)
        return matrix.repeat_interleave(len(x) // len(matrix), 0)

    def transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> Tensor:
        return (self._of(self.get_buffer("F"), x) @ x.unsqueeze(-1)).squeeze(-1)

    def observe(self, x: Tensor) -> Tensor:
        return (self._of(self.get_buffer("H"), x) @ x.unsqueeze(-1)).squeeze(-1)

    def linearize_transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        return self.transition(x, u, dt), self.get_buffer("F")

    def linearize_observation(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.observe(x), self.get_buffer("H")

    def process_noise(self, dt: Tensor | None) -> Tensor:
        return self.get_buffer("Q")

    def measurement_covariance(self) -> Tensor:
        return self.get_buffer("R")

    def measurement_noise(self) -> Noise:
        R = self.get_buffer("R")
        return DiagonalNoise(torch.diagonal(R, dim1=-2, dim2=-1)) if self.diagonal_noise else FullNoise(R)


def together(make: Callable[[DrawnSystem], fwnkf.Filter]) -> Callable[..., Any]:
    """All cases of a problem as one batch."""

    def run(given: dict[str, Tensor], diagonal: bool) -> Any:
        model = make(DrawnSystem(given["F"], given["H"], given["Q"], given["R"], diagonal))
        y = torch.where(given["measured"], given["y"], torch.nan)
        return model.run(y, mask=given["measured"], prior=Gaussian(given["mean"], given["cov"]))

    return run


def one_by_one(make: Callable[[dict[str, Tensor]], fwnkf.Filter]) -> Callable[..., Any]:
    """A filter for each case, for filters that take matrices."""

    def run(given: dict[str, Tensor], diagonal: bool) -> Any:
        runs = []
        for i in range(len(given["F"])):
            case = {name: item[i] for name, item in given.items()}
            y = torch.where(case["measured"], case["y"], torch.nan)[None]
            prior = Gaussian(case["mean"], case["cov"])
            runs.append(make(case).run(y, mask=case["measured"][None], prior=prior))
        return fwnkf.StepOutput(*(torch.cat([getattr(run, name) for run in runs]) for name in fwnkf.StepOutput._fields))

    return run


def matrices(case: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: case[name] for name in "FHQR"}


FILTERS: dict[str, Callable[..., Any]] = {
    **{
        f"ekf {solve}": together(lambda system, solve=solve: fwnkf.EKF(system, solve=solve))
        for solve in ("auto", "cholesky", "unrolled", "sequential", "square_root")
    },
    "ukf": together(fwnkf.UKF),
    "ekf second order": together(lambda system: fwnkf.EKF(system, moments="second_order")),
    "kf": one_by_one(lambda case: fwnkf.KF(**matrices(case))),
    "arkf": one_by_one(lambda case: fwnkf.ARKF(**{**matrices(case), "F": case["F"][None]})),
    "fwnkf": one_by_one(lambda case: fwnkf.FWNKF(fwnkf.LinearSystem.of(**matrices(case)))),
    "fwnkf augmented": one_by_one(
        lambda case: fwnkf.FWNKF(fwnkf.LinearSystem.of(**matrices(case)), phi=fwnkf.Phi(covariance="augmented"))
    ),
}


class Verdict(NamedTuple):
    """What a block of cases gave."""

    wrong: np.ndarray
    """Cases that are wrong and say nothing."""
    outcomes: Counter[str]


def off(run: Any, wanted: Belief) -> np.ndarray:
    """Steps whose estimate is wrong, ``[B, T]``."""
    mean, cov = (long(item.double().numpy()) for item in (run.mean, run.cov))
    exact_mean, exact_cov = long(wanted.mean), long(wanted.cov)
    variance, exact = (np.diagonal(item, axis1=-2, axis2=-1) for item in (cov, exact_cov))
    std, stated = np.sqrt(np.clip(exact, 0, None)), np.sqrt(np.clip(variance, 0, None))
    known = std > SMALLEST
    # an exact state stays exact up to the rounding of numbers of its size
    floor = 1e3 * np.finfo(numpy_dtype(run.mean.dtype)).eps * np.abs(exact_mean) + 1e-14
    bad = np.abs(stated - std) > np.where(known, STD_TOLERANCE * std, floor)
    bad |= np.abs(mean - exact_mean) > np.where(known, MEAN_TOLERANCE * std, floor)
    bad |= ~np.isfinite(mean) | ~np.isfinite(stated) | (variance < 0)
    # where the covariance before the step is definite but for rounding, the exact one after it means nothing
    return bad.any(-1) & (exact >= 0).all(-1)


def silent(problem: Problem, run: Any, largest: float, from_prior: bool, numbers: Callable[[Any], np.ndarray]) -> Any:
    """Steps that are wrong and say nothing, and whether runs say something at or before each step."""
    flagged = (run.status.numpy() & EXCUSES) != 0
    said = np.maximum.accumulate(flagged, axis=1)
    before = None if from_prior else beliefs_before(problem, run, numbers)
    wrong = off(run, oracle(converted(problem, numbers), before, largest))
    return (wrong & ~(said if from_prior else flagged)).any(-1), wrong, said


def check(target: str, rng: np.random.Generator, count: int) -> tuple[Problem, Verdict]:
    """One block of cases of a filter."""
    dtype = torch.float32 if rng.random() < 0.6 else torch.float64
    full = "sequential" not in target and rng.random() < 0.3
    whole = "square_root" in target
    problem = draw(rng, int(rng.integers(1, 5)), int(rng.integers(1, 4)), dtype, full, count, whole)
    largest = float(torch.finfo(dtype).max) ** 0.5 / 16
    with np.errstate(all="ignore"), torch.no_grad(), mpmath.workdps(100):
        run = FILTERS[target](problem.cast(dtype), not full)
        wrong, _, said = silent(problem, run, largest, whole, long)
        suspects = np.flatnonzero(wrong)
        if len(suspects):
            wrong[suspects] = silent(*some(problem, run, suspects), largest, whole, many_digits)[0]
        inherited, over_all, _ = silent(problem, run, largest, True, long)
    quiet = ~said.any(-1)
    outcomes = {
        "right": quiet & ~inherited & ~wrong,
        "inherited": inherited & ~wrong,
        "flagged, wrong": ~quiet & over_all.any(-1) & ~inherited & ~wrong,
        "flagged, right": ~quiet & ~over_all.any(-1) & ~wrong,
    }
    return problem, Verdict(wrong, Counter({name: int(cases.sum()) for name, cases in outcomes.items()}))


def some(problem: Problem, run: Any, cases: np.ndarray) -> tuple[Problem, Any]:
    """Some of the cases."""
    chosen = torch.as_tensor(cases)
    outputs = {name: getattr(run, name)[chosen] for name in fwnkf.StepOutput._fields}
    return Problem(*(item[cases] for item in problem)), fwnkf.StepOutput(**outputs)


# ---- discretisation -------------------------------------------------------------------------------------------------


def check_discretize(rng: np.random.Generator, count: int) -> tuple[Any, Verdict]:
    """Process noise over steps of any length beside a series and doublings in extended precision."""
    dtype = torch.float32 if rng.random() < 0.5 else torch.float64
    n = int(rng.integers(1, 5))
    base = rng.standard_normal((count, n, n))
    kinds = [
        base - base.swapaxes(-1, -2) - 0.1 * np.eye(n) * rng.random((count, 1, 1)),
        -semidefinite(rng, count, n),
        np.diag(np.ones(n - 1), 1) - 0.0 * base,
        base * (np.arange(n)[:, None] < np.arange(n)) - np.eye(n) * powers(rng, -4, 2, count, 1, n),
    ]
    A = np.stack(kinds)[rng.integers(0, len(kinds), count), np.arange(count)]
    A, S = rounded(A, dtype), rounded(semidefinite(rng, count, n) * powers(rng, -6, 6, count, 1, 1), dtype)
    dt = rounded(powers(rng, -6, 6, count), dtype)
    F, Q = series_and_doublings(A, S, dt)
    given = [torch.as_tensor(item).to(dtype) for item in (A, S, dt)]
    found_F, _, found_Q = discretize_with(given[0], given[0][..., :0], given[1], given[2], doublings=None)
    std = np.sqrt(np.clip(np.diagonal(Q, axis1=-2, axis2=-1), 0, None))
    stated = np.sqrt(np.clip(np.diagonal(np.asarray(found_Q.double()), axis1=-2, axis2=-1), 0, None))
    # a motion of as many radians per step as the dtype has digits is not resolved; that of its noise is
    turned = np.abs(A).sum(-1).max(-1) * dt
    resolved = turned * float(torch.finfo(dtype).eps) < 1e-3
    size = np.maximum(np.abs(F).max((-1, -2)), 1)
    bad = (np.abs(stated - std) > 1e-3 * std + 1e-6 * std.max(-1, keepdims=True)).any(-1)
    bad |= resolved & (np.abs(np.asarray(found_F.double()) - F).max((-1, -2)) > 5e-3 * size)
    inside = (size < 1e15) & (
        np.abs(Q).max((-1, -2)) < 0.1 * float(torch.finfo(dtype).max)
    )  # of the range of the dtype
    wrong = bad & inside & resolved | ~np.isfinite(stated).all(-1) & inside
    return (A, S, dt), Verdict(wrong, Counter({"right": int((~wrong).sum())}))


def series_and_doublings(A: np.ndarray, S: np.ndarray, dt: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``F`` and ``Q`` in extended precision."""
    A, S, dt = (np.asarray(item, Long) for item in (A, S, dt))
    count = np.maximum(np.ceil(np.log2(np.abs(A).sum(-1).max(-1) * dt + 1e-300)) + 6, 0).astype(int)
    step = A * (dt / Long(2) ** count)[:, None, None]
    h = (dt / Long(2) ** count)[:, None, None]
    E, Q, term, noise = np.zeros_like(A), np.zeros_like(S), np.eye(A.shape[-1], dtype=Long) + 0 * A, S
    for k in range(1, 25):
        Q = Q + h * noise / k
        term = step @ term / k
        E = E + term
        noise = (step @ noise + noise @ step.swapaxes(-1, -2)) / k
    for done in range(int(count.max())):
        more = (done < count)[:, None, None]
        wider = Q + E @ Q
        Q = np.where(more, Q + wider + wider @ E.swapaxes(-1, -2), Q)
        E = np.where(more, 2 * E + E @ E, E)
    return np.eye(A.shape[-1]) + E, Q


TARGETS = (*FILTERS, "discretize")


def run_block(target: str, seed: int, block: int, count: int) -> tuple[Any, Verdict]:
    """Block number ``block`` of a seed, the same in every run."""
    rng = np.random.default_rng([seed, block, TARGETS.index(target)])
    return check_discretize(rng, count) if target == "discretize" else check(target, rng, count)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=[*TARGETS, "all"])
    parser.add_argument("cases", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=Path)
    options = parser.parse_args(arguments)
    command = f"python -m tests.hardening.properties {' '.join(f'{a!r}' if ' ' in a else a for a in arguments[:2])}"
    failures = 0
    for target in TARGETS if options.target == "all" else (options.target,):
        size = 100 if target in ("kf", "arkf", "fwnkf", "fwnkf augmented") else BLOCK
        for block in range(-(-options.cases // size)):
            begin = time.process_time()
            _, verdict = run_block(target, options.seed, block, size)
            seconds = time.process_time() - begin
            wrong = int(verdict.wrong.sum())
            failures += wrong
            if wrong:
                print(f"{target}: block {block} of seed {options.seed}: cases {np.flatnonzero(verdict.wrong)[:5]}")
            if options.rows:
                append(
                    options.rows,
                    Row(
                        "properties", target, f"{command} --seed {options.seed}", options.seed, size, wrong, seconds,
                        outcomes=dict(verdict.outcomes),
                    ),
                )  # fmt: skip
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
