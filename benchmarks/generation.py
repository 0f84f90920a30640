"""The cost of simulated data compared with a plain NumPy simulation.

    python benchmarks/generation.py [--quick] [--markdown FILE]

- 30,000 pendulum trajectories of 100 steps by ``fwnkf.data.simulated.generate`` against a batched NumPy loop with Euler
  step, controls, process noise and wrapping, which measures nothing and stores only the states ``[N, T, 2]``;
- 1,000 Lorenz trajectories of 100 steps against the same Runge-Kutta steps in plain NumPy, without noise.

One thread, interleaved, medians of CPU time, so that other load does not matter. The exit code is 1 if white noise, the
scenario of the paper, costs more than twice the plain loop; the coloured scenarios have no limit. ``--quick`` takes a
tenth of the trajectories, few rounds and a limit of 3.0, because short measurements vary more.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from tables import write

from fwnkf.data.simulated import LORENZ_SUBSTEPS, generate
from fwnkf.evaluation.timing import interleave
from fwnkf.systems.noise import SCENARIOS

STEPS = 100
LIMIT, QUICK_LIMIT = 2.0, 3.0
SIZES = {"pendulum": 30_000, "lorenz": 1_000}


def bare_pendulum(trajectories: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    path = np.empty((trajectories, STEPS, 2))
    x = np.stack((rng.uniform(-np.pi, np.pi, trajectories), rng.uniform(-2, 2, trajectories)))
    path[:, 0] = x.T
    for t in range(1, STEPS):
        theta, omega = x
        u = 0.5 * rng.standard_normal(trajectories)
        rate = np.stack((omega, -9.81 * np.sin(theta) - 0.1 * omega + u))
        x = x + 0.02 * rate + 0.05 * rng.standard_normal((2, trajectories))
        x[0] -= 2 * np.pi * np.round(x[0] / (2 * np.pi))
        path[:, t] = x.T
    return path


def bare_lorenz(trajectories: int) -> np.ndarray:
    def rate(v: np.ndarray) -> np.ndarray:
        x, y, z = v
        return np.stack((10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z))

    v = 5 * np.random.default_rng(0).standard_normal((3, trajectories))
    path = np.empty((trajectories, STEPS, 3))
    path[:, 0] = v.T
    h = 1 / 99 / LORENZ_SUBSTEPS
    for t in range(1, STEPS):
        for _ in range(LORENZ_SUBSTEPS):
            k1 = rate(v)
            k2 = rate(v + 0.5 * h * k1)
            k3 = rate(v + 0.5 * h * k2)
            k4 = rate(v + h * k3)
            v = v + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        path[:, t] = v.T
    return path


BARE: dict[str, Callable[[int], np.ndarray]] = {"pendulum": bare_pendulum, "lorenz": bare_lorenz}


def measure(name: str, trajectories: int, rounds: int) -> dict[str, float]:
    """Median seconds of the plain loop and of every scenario, measured in turn."""
    candidates: dict[str, Callable[[], object]] = {"bare": lambda: BARE[name](trajectories)}
    for scenario in SCENARIOS:
        candidates[scenario] = lambda scenario=scenario: generate(name, trajectories, STEPS, scenario)
    return interleave(candidates, rounds, clock=time.process_time)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--markdown", type=Path, help="write the table as a page of the documentation")
    options = parser.parse_args()
    torch.set_num_threads(1)
    limit = QUICK_LIMIT if options.quick else LIMIT
    rows, held = [], True
    for name, size in SIZES.items():
        trajectories = size // 10 if options.quick else size
        taken = measure(name, trajectories, 3 if options.quick else options.rounds)
        ratios = {key: value / taken["bare"] for key, value in taken.items() if key != "bare"}
        held = held and ratios["white"] <= limit
        rows.append(
            {"what": f"{trajectories:,} x {STEPS} {name}", "bare_ms": 1e3 * taken["bare"], "limit": limit, **ratios}
        )
        shown = ", ".join(f"{key} {ratio:.2f}" for key, ratio in ratios.items())
        print(
            f"{trajectories:6,} x {STEPS} {name:9}: bare {1e3 * taken['bare']:7.1f} ms; {shown} (limit {limit})",
            flush=True,
        )
    if options.markdown:
        note = (
            "Ratios to the batched simulation in plain NumPy, measured in the same run, interleaved, medians. The "
            "limit is for white noise."
        )
        write(options.markdown, "Generation", note, rows)
    sys.exit(not held)


if __name__ == "__main__":
    main()
