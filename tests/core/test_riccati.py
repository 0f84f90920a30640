"""The steady state of a Kalman filter: against scipy, against the recursion itself, and its gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.linalg import solve_discrete_are

import fwnkf
from fwnkf.core import riccati
from fwnkf.errors import ConfigError

from ..tolerances import assert_close


def system(seed: int, n: int = 4, m: int = 2, radius: float = 0.95) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    F = draw(n, n)
    F = radius * F / torch.linalg.eigvals(F).abs().max()
    Q, R = draw(n, n), draw(m, m)
    return {"F": F, "H": draw(m, n), "Q": Q @ Q.mT, "R": R @ R.mT + 0.1 * torch.eye(m).double()}


@pytest.mark.parametrize("radius", [0.5, 0.999, 1.05])
@pytest.mark.parametrize("seed", range(3))
def test_the_solution_is_scipys(seed, radius):
    given = system(seed, radius=radius)
    steady = riccati.steady_state(**given)
    F, H, Q, R = (given[name].numpy() for name in "FHQR")
    theirs = solve_discrete_are(F.T, H.T, Q, R)
    assert_close(steady.prior_cov, torch.from_numpy(theirs))
    S = H @ theirs @ H.T + R
    assert_close(steady.innovation_cov, torch.from_numpy(S))
    assert_close(steady.gain, torch.from_numpy(np.linalg.solve(S, H @ theirs).T))


def test_the_kalman_filter_ends_there(generator):
    given = system(7)
    steady = riccati.steady_state(**given)
    y = torch.randn(2, 600, 2, generator=generator, dtype=torch.float64)
    track = fwnkf.build("kf", **given).run(y)
    assert_close(track.cov[:, -1], steady.cov.expand(2, -1, -1))
    states, innovations = riccati.constant_gain(given["F"], given["H"], steady.gain, y)
    assert_close(track.mean[:, -1], states[:, -1])
    assert_close(track.innovation[:, -1], innovations[:, -1])


def test_frequency_responses_are_those_of_the_recursion(generator):
    """A periodic input, after the start has died out, is multiplied by the response at its frequencies."""
    given = system(3, radius=0.8)
    F, H, gain = given["F"], given["H"], riccati.steady_state(**given).gain
    period = torch.randn(1, 64, 2, generator=generator, dtype=torch.float64)
    states, innovations = riccati.constant_gain(F, H, gain, period.repeat(1, 20, 1))
    omega = 2 * torch.pi * torch.arange(33, dtype=torch.float64) / 64
    to_estimate, to_innovation = riccati.frequency_response(F, H, gain, omega)
    lines = torch.fft.rfft(period[0], dim=0).unsqueeze(-1)
    assert_close(torch.fft.rfft(states[0, -64:], dim=0), (to_estimate @ lines).squeeze(-1))
    assert_close(torch.fft.rfft(innovations[0, -64:], dim=0), (to_innovation @ lines).squeeze(-1))


def test_blocks_change_nothing_but_the_time():
    small = [system(seed, n=n, m=2, radius=0.9) for seed, n in enumerate((3, 2, 2, 1))]
    F, Q = (torch.block_diag(*(one[name] for one in small)) for name in "FQ")
    H, R = torch.cat([one["H"] for one in small], -1), small[0]["R"]
    gain = riccati.steady_state(F, H, Q, R).gain
    omega = torch.linspace(0.0, 3.0, 7, dtype=torch.float64)
    whole = riccati.frequency_response(F, H, gain, omega)
    for ours, theirs in zip(riccati.frequency_response(F, H, gain, omega, (3, 2, 2, 1)), whole, strict=True):
        assert_close(ours, theirs)


def test_gradients_are_those_of_differences():
    given = {name: value.requires_grad_() for name, value in system(5, n=2, m=1).items()}
    assert torch.autograd.gradcheck(lambda *parts: riccati.steady_state(*parts), tuple(given[k] for k in "FHQR"))


@pytest.mark.unchecked("the shape checker raises first")
def test_matrices_that_do_not_fit_are_refused():
    given = system(1)
    with pytest.raises(ConfigError, match="do not fit together"):
        riccati.steady_state(**{**given, "R": torch.eye(3).double()})
