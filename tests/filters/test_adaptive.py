"""The adaptive Kalman filter: against the plain one, against the moments by hand, and on noise that changes."""

from __future__ import annotations

import pytest
import torch

import fwnkf
from fwnkf.errors import ConfigError
from fwnkf.metrics import consistency

from ..tolerances import assert_close

F = torch.tensor([[1.0, 0.0, 0.1], [0.0, 0.9, 0.0], [0.0, 0.0, 0.8]], dtype=torch.float64)
H = torch.eye(2, 3, dtype=torch.float64)
G = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.3, -0.2]], dtype=torch.float64)
S = torch.tensor([[1.0, 0.4], [0.4, 2.0]], dtype=torch.float64)
R = torch.diag(torch.tensor([0.5, 0.3], dtype=torch.float64))


def adaptive(**options) -> fwnkf.Filter:
    return fwnkf.build("adaptive_kf", F=F, H=H, G=G, S=S, R=R, **options)


def simulate(generator, cov: torch.Tensor, steps: int, batch: int = 4) -> torch.Tensor:
    root = torch.linalg.cholesky(cov)
    x, y = torch.zeros(batch, 3).double(), []
    for _ in range(steps):
        x = x @ F.mT + torch.randn(batch, 2, generator=generator, dtype=torch.float64) @ root.mT @ G.mT
        y.append(x @ H.mT + torch.randn(batch, 2, generator=generator, dtype=torch.float64) @ R.sqrt())
    return torch.stack(y, 1)


def test_without_a_half_life_it_is_the_kalman_filter(generator) -> None:
    y = simulate(generator, S, 50)
    plain = fwnkf.build("kf", F=F, H=H, Q=G @ S @ G.mT, R=R)
    prior = fwnkf.Gaussian(torch.zeros(3).double(), torch.eye(3).double())
    ours, theirs = adaptive().run(y, prior=prior), plain.run(y, prior=prior)
    assert_close(ours.mean, theirs.mean)
    assert_close(ours.cov, theirs.cov)


def test_the_covariance_moves_by_the_mean_moment_and_its_half_life(generator) -> None:
    y = simulate(generator, S, 10)
    mask = torch.ones_like(y, dtype=torch.bool)
    mask[:, 3] = False  # a step without measurement does not count
    model = adaptive(half_life=6.0, update_every=5)
    track = model.run(y[:, :5], mask=mask[:, :5])
    moments = []
    for t in (0, 1, 2, 4):
        moved = (track.mean - track.prior_mean)[:, t, :2]
        share = (S.diagonal() / track.prior_cov[:, t].diagonal(dim1=-2, dim2=-1)[:, :2]).sqrt()
        moment = moved.unsqueeze(-1) * moved.unsqueeze(-2) + track.cov[:, t, :2, :2]
        moments.append(moment * share.unsqueeze(-1) * share.unsqueeze(-2))
    kept = 0.5 ** (4 / 6)
    assert_close(track.state.noise_cov, kept * S + (1 - kept) * torch.stack(moments).mean(0))
    assert not track.state.steps.any()


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
@pytest.mark.parametrize("share_missing", [0.0, 0.3])
def test_the_covariance_finds_that_of_the_data(generator, share_missing) -> None:
    """Started a factor of nine off, with measurement noise as large as a third of the process noise."""
    y = simulate(generator, 9 * S, 1500)
    mask = torch.rand(y.shape, generator=generator) >= share_missing
    model = adaptive(half_life=300.0, update_every=10)
    with torch.no_grad():
        estimate = model.run(y, mask=mask).state.noise_cov.mean(0)
    torch.testing.assert_close(estimate, 9 * S, rtol=0.25, atol=1.0)


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_adaptation_makes_the_innovations_consistent(generator) -> None:
    y = torch.cat((simulate(generator, S, 300), simulate(generator, 25 * S, 300)), 1)

    def nis(model: fwnkf.Filter) -> float:
        with torch.no_grad():
            track = model.run(y)
        late = slice(400, None)
        return float(consistency.nis(track.innovation[:, late], track.innovation_cov[:, late]).mean())

    assert nis(adaptive()) > 5
    assert nis(adaptive(half_life=20.0, update_every=5)) == pytest.approx(1.0, abs=0.2)


def test_it_starts_at_the_first_measurement() -> None:
    model = adaptive(P0=0.5 * torch.eye(3).double())
    y = torch.tensor([[[3.0, torch.nan]], [[1.0, 2.0]]]).double()
    belief = model.initial_belief(y)
    assert belief.mean.tolist() == [[3.0, 0.0, 0.0], [1.0, 2.0, 0.0]]
    assert belief.cov.diagonal(dim1=-2, dim2=-1).tolist() == [[0.5, 1.5, 0.5], [0.5, 0.5, 0.5]]


def test_a_covariance_spoilt_by_rounding_leaves_a_finite_state() -> None:
    """A negative variance, as single precision can leave one, must not put a NaN into the noise for good."""
    eye = torch.eye(1)
    model = fwnkf.build("adaptive_kf", F=eye, H=eye, S=0.1 * eye, R=eye, half_life=2.0, update_every=1)
    state = model.init(1)._replace(cov=-0.5 * eye.unsqueeze(0))
    for _ in range(3):
        state, _ = model.step(state, torch.ones(1, 1))
    assert state.noise_cov.isfinite().all()
    assert (state.noise_cov > 0).all()


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match="H G must be the identity"):
        fwnkf.build("adaptive_kf", F=F, H=H, G=2 * G, S=S, R=R)
    with pytest.raises(ConfigError, match="G has shape"):
        fwnkf.build("adaptive_kf", F=F, H=H, G=G[:, :1], S=S, R=R)
    with pytest.raises(ConfigError, match="leave dt out"):
        adaptive().run(torch.zeros(1, 3, 2).double(), dt=torch.ones(1, 3).double())
