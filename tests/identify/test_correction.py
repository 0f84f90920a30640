"""The fitted correction beside the best linear filter, which scipy's Riccati equation gives for noise that is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.linalg import solve_discrete_are

import fwnkf
from fwnkf import Correction, Lines
from fwnkf.core import oscillators
from fwnkf.errors import DataError
from fwnkf.identify import choose_correction, fit_correction, levels_of

STEP, RADIUS, TURN, SIZE = 0.01, 0.97, 0.9, 2.0
F = torch.tensor([[0.99, 0.1], [0.0, 0.95]], dtype=torch.float64)
Q = torch.diag(torch.tensor([1e-6, 0.01], dtype=torch.float64))
R = torch.tensor([[0.04]], dtype=torch.float64)
H = torch.tensor([[1.0, 0.0]], dtype=torch.float64)


def filters() -> tuple[fwnkf.FWNKF, fwnkf.FWNKF]:
    """One that knows the vibration, and one that takes it for white noise."""
    best = fwnkf.FWNKF(fwnkf.LinearSystem.of(F=F, H=H, Q=Q, R=R, dt=STEP), noise=Lines(1))
    one = torch.ones(1, 1).double()
    best.noise_states.set_oscillators(TURN * one, RADIUS * one, SIZE / R.sqrt())
    plain = fwnkf.FWNKF(fwnkf.LinearSystem.of(F=F, H=H, Q=Q, R=R + SIZE**2, dt=STEP))
    return best.requires_grad_(False), plain.requires_grad_(False)


def joint() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    A, drive = oscillators.transition(torch.tensor([RADIUS]).double(), torch.tensor([TURN]).double())
    vibration = torch.tensor([[SIZE, 0.0]], dtype=torch.float64)
    return torch.block_diag(F, A), torch.cat((H, vibration), -1), torch.block_diag(Q, drive)


def simulate(generator: torch.Generator, records: int, steps: int) -> tuple[torch.Tensor, torch.Tensor]:
    A, C, drive = joint()
    x, states = torch.zeros(records, 4).double(), []
    for _ in range(steps + 300):
        x = x @ A.mT + torch.randn(records, 4, generator=generator, dtype=torch.float64) * drive.diagonal().sqrt()
        states.append(x)
    states = torch.stack(states[300:], 1)
    white = R.sqrt() * torch.randn(records, steps, 1, generator=generator, dtype=torch.float64)
    return states @ C.mT + white, states[..., :1]


def squared_error(model: fwnkf.Filter, y: torch.Tensor, truth: torch.Tensor, **inputs: torch.Tensor) -> float:
    with torch.no_grad():
        return float((model.run(y, **inputs).mean[..., :1] - truth)[:, 300:].square().mean())


def test_a_filter_that_knows_nothing_of_the_vibration_becomes_the_best_linear_filter(generator):
    A, C, drive = (item.numpy() for item in joint())
    P = solve_discrete_are(A.T, C.T, drive, R.numpy())
    gain = P @ C.T @ np.linalg.inv(C @ P @ C.T + R.numpy())
    least = float((P - gain @ C @ P)[0, 0])
    _, plain = filters()
    y, truth = simulate(generator, 8, 5000)
    new_y, new_truth = simulate(generator, 8, 5000)
    part = Correction(24, seconds=0.3)
    corrected = fit_correction(plain, y, truth, part=part, ridge=1e-5, skip=300)
    before, after = (squared_error(model, new_y, new_truth) for model in (plain, corrected))
    assert before > 1.5 * least
    assert 0.9 * least < after < 1.06 * least


def test_with_gaps_a_rough_model_of_the_vibration_and_the_correction_are_near_the_best_filter(generator):
    """The gaps are those of the model: without one, innovations that are missing are not zero on average."""
    best, plain = filters()
    system = fwnkf.LinearSystem.of(F=F, H=H, Q=Q, R=4 * R, dt=STEP)
    rough = fwnkf.FWNKF(system, noise=Lines(1))
    one = torch.ones(1, 1).double()
    rough.noise_states.set_oscillators(1.05 * TURN * one, 0.9 * one, 0.35 * SIZE / R.sqrt())
    y, truth = simulate(generator, 8, 4000)
    new_y, new_truth = simulate(generator, 8, 4000)
    mask = torch.rand(new_y.shape, generator=generator) > 0.1
    part = Correction(24, seconds=0.3)
    corrected = fit_correction(rough.requires_grad_(False), y, truth, part=part, ridge=1e-5, skip=300)
    errors = [squared_error(model, new_y, new_truth, mask=mask) for model in (best, corrected, rough, plain)]
    assert errors[1] < 1.03 * errors[0]
    assert errors[2] > 1.05 * errors[0]
    assert errors[3] > 2 * errors[0]


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_what_is_chosen_on_recordings_left_out_pays_there_and_a_right_model_gets_no_correction(generator):
    best, plain = filters()
    y, truth = simulate(generator, 3, 2500)
    candidates = (Correction(2), Correction(12, seconds=0.2))
    choice = choose_correction([plain] * 3, y, truth, candidates=candidates, ridges=(1e-4, 1e-1), skip=200)
    assert choice.part == candidates[1]
    assert len(choice.errors) == 4
    assert choose_correction([best] * 3, y, truth, candidates=candidates, ridges=(1e-4,), skip=200).part is None
    # the error that the choice states is that of filters fitted to the others
    others = [torch.arange(3) != out for out in range(3)]
    fitted = [fit_correction(plain, y[o], truth[o], part=choice.part, ridge=choice.ridge, skip=200) for o in others]
    levels = levels_of([model.run for model in fitted], y, truth, skip=200)
    own = levels_of([plain.run] * 3, y, truth, skip=200)
    stated = choice.errors[12, 0.2, choice.ridge]
    assert abs(float(levels.squared_error.sum() / own.squared_error.sum()) - stated) < 1e-9


def test_what_does_not_fit_is_said():
    _, plain = filters()
    y = torch.zeros(1, 50, 1).double()
    with pytest.raises(DataError, match="at least two"):
        choose_correction([plain], y, y)
    with pytest.raises(DataError, match="first coordinates of a state of 2"):
        fit_correction(plain, y, torch.zeros(1, 50, 3).double())
