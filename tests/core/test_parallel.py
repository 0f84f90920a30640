"""Filters over all steps at once, beside a plain recursion in float64 that is written here, filterpy and the loop."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from fwnkf.core import parallel
from fwnkf.core.gaussian import DiagonalNoise, FullNoise, Noise, dense
from fwnkf.core.linear_run import LinearRun, LinearTrack
from fwnkf.core.parallel import filter_scan

WAYS = {
    "chosen": filter_scan,
    "chunks": lambda run: parallel._completed(run, *parallel._chunked(run)),
    "tree": lambda run: parallel._completed(run, *parallel._tree(run)),
}
ATOL = 1e-10
"""Beside a recursion in float64: values are of size one, and a thousand steps round."""


def problem(
    n: int = 3,
    m: int = 2,
    batch: int = 2,
    steps: int = 40,
    *,
    missing: float = 0.0,
    lengths: int = 1,
    shift: bool = False,
    predicts_first: bool = True,
    one_prior: bool = True,
    full_noise: bool = False,
    seed: int = 0,
) -> LinearRun:
    """A drawn model with ``lengths`` different steps."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    drift, root = draw(n, n) - 2 * torch.eye(n), draw(n, n)
    dt = 0.05 * (1 + torch.arange(lengths, dtype=torch.float64))[:, None, None]
    F, Q = torch.linalg.matrix_exp(drift * dt), (root @ root.mT + 0.1 * torch.eye(n)) * dt
    factor, noise_factor = draw(batch, n, n), draw(m, m)
    cov = factor @ factor.mT + torch.eye(n)
    noise: Noise = DiagonalNoise(0.3 + draw(m).square())
    if full_noise:
        noise = FullNoise(noise_factor @ noise_factor.mT + 0.3 * torch.eye(m))
    weight = (torch.rand(batch, steps, m, generator=generator) >= missing).double()
    return LinearRun(
        F,
        Q,
        draw(m, n),
        noise,
        2 * draw(batch, steps, m) * weight,
        weight,
        draw(batch, n),
        cov[:1].expand_as(cov) if one_prior else cov,
        torch.randint(0, lengths, (batch, steps), generator=generator) if lengths > 1 else None,
        draw(batch, steps, n) if shift else None,
        predicts_first,
    )


def plainly(run: LinearRun) -> dict[str, np.ndarray]:
    """The Kalman filter of the textbook in float64 numpy, one record and one step at a time; rows that are missing are
    taken out."""
    as_numpy = {
        name: item.double().numpy() if isinstance(item, Tensor) and item.is_floating_point() else item
        for name, item in run._asdict().items()
    }
    F, Q, H, y = (as_numpy[name] for name in "FQHy")
    R, n = dense(run.R).double().numpy(), run.F.shape[-1]
    found: dict[str, list] = {name: [] for name in LinearTrack._fields[:7]}
    for k in range(len(y)):
        x, P, rows = as_numpy["mean"][k], as_numpy["cov"][k], []
        for t in range(y.shape[1]):
            which = 0 if run.kind is None else int(run.kind[k, t])
            if t or run.predicts_first:
                x, P = F[which] @ x, F[which] @ P @ F[which].T + Q[which]
                x = x if run.shift is None else x + as_numpy["shift"][k, t]
            there = np.flatnonzero(as_numpy["weight"][k, t])
            h, r, innovation = H[there], R[np.ix_(there, there)], np.zeros(len(H))
            S = h @ P @ h.T + r
            innovation[there] = e = y[k, t, there] - h @ x
            K = P @ h.T @ np.linalg.inv(S)
            density = -0.5 * (e @ np.linalg.solve(S, e) + np.linalg.slogdet(2 * np.pi * S)[1])
            IKH = np.eye(n) - K @ h
            after, cov = x + K @ e, IKH @ P @ IKH.T + K @ r @ K.T
            rows.append((after, cov, x, P, innovation, H @ P @ H.T + R, density))
            x, P = after, cov
        for name, items in zip(found, zip(*rows, strict=True), strict=True):
            found[name].append(np.stack(items))
    return {name: np.stack(items) for name, items in found.items()}


def agrees(track: LinearTrack, run: LinearRun, atol: float = ATOL) -> None:
    for name, expected in plainly(run).items():
        np.testing.assert_allclose(getattr(track, name).numpy(), expected, atol=atol, rtol=atol, err_msg=name)
    assert track.ok.all() and track.precise.all()


CASES = {
    "regular": {},
    "regular, controls": {"shift": True},
    "regular, held": {"predicts_first": False, "shift": True},
    "regular, priors of their own": {"one_prior": False, "batch": 3},
    "missing": {"missing": 0.3},
    "missing, held": {"missing": 0.3, "predicts_first": False, "shift": True},
    "irregular": {"lengths": 4},
    "irregular, missing, controls": {"lengths": 4, "missing": 0.4, "shift": True, "predicts_first": False},
    "full noise": {"missing": 0.3, "full_noise": True},
    "many channels": {"m": 6, "n": 4, "missing": 0.3, "full_noise": True},
    "one channel": {"m": 1, "n": 2, "missing": 0.3},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES)
def test_agrees_with_the_recursion(case: str, way: str) -> None:
    run = problem(**CASES[case])
    agrees(WAYS[way](run), run)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("steps", [1, 2, 3, 17, 1000])
@pytest.mark.parametrize("predicts_first", [True, False])
def test_agrees_for_any_number_of_steps(steps: int, way: str, predicts_first: bool) -> None:
    for options in ({}, {"missing": 0.3, "lengths": 2}):
        run = problem(steps=steps, batch=1, predicts_first=predicts_first, **options)
        agrees(WAYS[way](run), run)
