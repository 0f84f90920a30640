"""Losses against their formulas in NumPy and SciPy, and errors for filters without an observation model."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation
from scipy.stats import multivariate_normal

import fwnkf
from fwnkf import GRU, MLP, Lines
from fwnkf.core.layout import Layout
from fwnkf.core.trajectory import Trajectory
from fwnkf.data import protocols
from fwnkf.errors import NoObservationModelError, NumericalFailureError
from fwnkf.filters.base import Filter
from fwnkf.systems import LearnedSystem
from fwnkf.training.batches import Piece, gather
from fwnkf.training.losses import LOSSES, Batch, WeightedSum, parse_terms, weighted_sum
from fwnkf.types import Gaussian


@pytest.fixture(scope="module")
def lorenz():
    return protocols.simulated("lorenz", "strict", train=6, val=2, test=2).split.train


def filters_that_observe(records):
    """Every registered filter with an observation model, able to learn."""
    system = records.system
    eye = {"H": torch.eye(2, 3).double(), "Q": 0.1 * torch.eye(3).double(), "R": 0.26 * torch.eye(2).double()}
    learn = {"learn": ("F", "Q", "R")}
    models = {
        "kf": fwnkf.build("kf", F=torch.eye(3).double(), **eye, **learn, continuous=False),
        "arkf": fwnkf.build("arkf", F=torch.cat((torch.eye(3)[None], torch.zeros(1, 3, 3))).double(), **eye, **learn),
        "fwnkf": fwnkf.FWNKF.paper(LearnedSystem.of(**eye, dt=1 / 99), units=8),
        "fwnkf noise": fwnkf.FWNKF(system, noise=Lines(), encoder=GRU(8), residual=MLP(8)),
        "kalmannet": fwnkf.build("kalmannet", system=system, out_mult=2, in_mult=1),
        "bayesian_kalmannet": fwnkf.build("bayesian_kalmannet", system=system),
        "recursive_kalmannet": fwnkf.build("recursive_kalmannet", system=system),
        "fwnkf_public_code": fwnkf.build("fwnkf_public_code", system=system, units=8),
    }
    return {name: model.double() for name, model in models.items()}


OBSERVING = (
    *("kf", "arkf", "fwnkf", "fwnkf noise", "kalmannet", "bayesian_kalmannet", "recursive_kalmannet"),
    "fwnkf_public_code",
)


def run(model: Filter, batch: Batch) -> Trajectory:
    discrete = not model.takes_dt or model.name == "kf"
    return model.run(
        batch.y,
        None,
        batch.mask,
        None if discrete else batch.dt,
        batch.prior,
        generator=torch.Generator().manual_seed(0),
    )


def gradients(model: Filter, batch: Batch, terms) -> torch.Tensor:
    model.zero_grad()
    total, _ = weighted_sum(terms)(model, batch, run(model, batch))
    total.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def test_every_filter_that_can_learn_and_observe_is_covered():
    known = {name.split()[0] for name in OBSERVING}
    untrained = {"ekf", "ukf", "adaptive_kf"}  # no trainable parameters
    assert known | untrained | {"rkn"} == set(fwnkf.filters.available())


@pytest.mark.parametrize("name", OBSERVING)
@pytest.mark.parametrize("which", ["prior", "posterior"])
def test_the_spectral_weight_changes_the_gradients_of_every_filter_with_an_observation_model(lorenz, name, which):
    torch.manual_seed(0)
    model = filters_that_observe(lorenz)[name]
    batch = gather(lorenz, Piece(torch.arange(4), 0, 15))
    without = gradients(model, batch, [{"kind": "state"}, {"kind": "spectral", "weight": 0.0}])
    with_it = gradients(model, batch, [{"kind": "state"}, {"kind": "spectral", "weight": 1.0, "which": which}])
    plain = gradients(model, batch, [{"kind": "state"}])
    assert torch.equal(without, plain)
    assert float((with_it - without).norm()) > 1e-6 * float(without.norm())


def test_the_spectral_weight_raises_for_a_filter_without_observation_model(lorenz):
    model = fwnkf.build("rkn", state_dim=3, observation_dim=2).double()
    batch = gather(lorenz, Piece(torch.arange(2), 0, 10))
    for kind in ("spectral", "anchor"):
        with pytest.raises(NoObservationModelError, match="rkn"):
            weighted_sum([{"kind": kind}])(model, batch, run(model, batch))
    terms, _ = parse_terms([{"kind": "spectral", "weight": 0.1}, {"kind": "innovation_nll"}], "")
    for term in terms:
        (fault,) = term.check(model)
        assert "needs an observation model, but filter 'rkn' has none" in fault
    # a term of weight zero has no requirements
    assert parse_terms([{"kind": "spectral", "weight": 0.0}, {"kind": "state"}], "")[0][0].check(model) == []


# ---- formulas -------------------------------------------------------------------------------------------------------


def random_case(B=3, T=20, n=2, m=1, seed=0):
    """A batch with gaps in truth and measurements, a trajectory, and a filter that observes the first coordinate."""
    g = torch.Generator().manual_seed(seed)
    H = torch.eye(m, n).double()
    model = fwnkf.build("kf", F=torch.eye(n).double(), H=H, Q=torch.eye(n).double(), R=torch.eye(m).double())
    draw = lambda *shape: torch.randn(*shape, generator=g, dtype=torch.float64)  # noqa: E731
    root = draw(B, T, n, n)
    cov = root @ root.mT + 0.1 * torch.eye(n).double()
    wide = draw(B, T, m, m).square() + 0.5
    valid = torch.rand(B, T, generator=g) > 0.3
    mask = torch.rand(B, T, m, generator=g) > 0.2
    share = valid.sum(-1).double() / valid.sum()
    batch = Batch(
        draw(B, T, m), draw(B, T, n), valid, mask, torch.ones(B, T).double(), None, Gaussian(*model.init(1)[:2]), share
    )
    track = Trajectory(
        draw(B, T, n),
        cov,
        draw(B, T, n),
        cov,
        draw(B, T, m),
        draw(B, T, m),
        wide,
        torch.zeros(B, T, dtype=torch.int64),
        None,
        weight=mask.double(),
    )
    return model, batch, track


def test_state_loss_is_the_mean_over_counted_steps():
    model, batch, track = random_case()
    total, parts = weighted_sum([{"kind": "state", "weight": 2.0}])(model, batch, track)
    error = (track.mean - batch.truth).numpy()[batch.valid.numpy()]
    assert float(total) == pytest.approx(2 * (error**2).sum(-1).mean(), rel=1e-12)
    assert float(parts["state"]) == pytest.approx((error**2).sum(-1).mean(), rel=1e-12)
    scaled, _ = weighted_sum([{"kind": "state", "reduction": "mean", "scales": [2.0, 0.5]}])(model, batch, track)
    assert float(scaled) == pytest.approx(((error / [2.0, 0.5]) ** 2).mean(), rel=1e-12)


def test_posterior_likelihood_equals_scipy():
    model, batch, track = random_case()
    total, _ = weighted_sum([{"kind": "posterior_nll"}])(model, batch, track)
    expected = [
        -multivariate_normal(track.mean[i, t].numpy(), track.cov[i, t].numpy()).logpdf(batch.truth[i, t].numpy())
        for i, t in batch.valid.nonzero().tolist()
    ]
    assert float(total) == pytest.approx(np.mean(expected), rel=1e-10)


def test_innovation_likelihood_uses_the_present_channels():
    model, batch, track = random_case(m=1)
    term = parse_terms([{"kind": "innovation_nll"}], "")[0][0]
    losses = term(model, batch, track)
    for i in range(3):
        present = batch.mask[i, :, 0].nonzero().flatten().tolist()
        expected = [
            0.5 * (float(track.innovation[i, t, 0]) ** 2 / float(s) + math.log(2 * math.pi * float(s)))
            for t, s in ((t, track.innovation_cov[i, t, 0, 0]) for t in present)
        ]
        assert float(losses[i]) == pytest.approx(np.mean(expected), rel=1e-10)


def test_spectral_loss_is_the_papers_formula_in_numpy():
    model, batch, track = random_case(T=24)
    term = parse_terms([{"kind": "spectral", "which": "prior"}], "")[0][0]
    losses = term(model, batch, track)
    for i in range(3):
        valid = batch.valid[i].numpy()[:, None]
        predicted, reference = track.prior_mean[i, :, :1].numpy() * valid, batch.truth[i, :, :1].numpy() * valid
        distance = np.abs(np.abs(np.fft.rfft(predicted, axis=0)) - np.abs(np.fft.rfft(reference, axis=0)))
        omega = 2 * np.pi * np.arange(13) / 24
        assert float(losses[i]) == pytest.approx(distance[omega <= np.pi / 2 + 1e-9].mean(), rel=1e-10)


def test_anchor_is_the_squared_error_of_the_reconstructed_measurement():
    model, batch, track = random_case()
    losses = parse_terms([{"kind": "anchor"}], "")[0][0](model, batch, track)
    for i in range(3):
        present = (batch.mask[i, :, 0] & batch.valid[i]).numpy()
        error = (batch.y[i, :, 0] - batch.truth[i, :, 0]).numpy()[present]
        assert float(losses[i]) == pytest.approx((error**2).mean(), rel=1e-12)


def test_rotation_and_angle_errors_are_the_shortest():
    layout = Layout.parse([("angle", "angle", 1), ("q", "quaternion", 4)])

    class Turning(fwnkf.Filter):
        def setup(self, config, system, arrays) -> None:
            self.layout = layout

    rotations = Rotation.random(6, random_state=0)
    q = torch.from_numpy(rotations.as_quat()[:, [3, 0, 1, 2]])
    angles = torch.tensor([3.1, -3.1, 0.2, 3.0, -2.9, 1.0], dtype=torch.float64)
    state = torch.cat((angles[:, None], q), -1)
    mean, truth = state[None, :3], torch.cat((state[None, 3:, :1], -state[None, 3:, 1:]), -1)
    valid = torch.ones(1, 3, dtype=torch.bool)
    batch = Batch(
        mean, truth, valid, valid[..., None], valid.double(), None, Gaussian(mean, mean), torch.ones(1).double()
    )
    track = Trajectory(mean, *[mean] * 6, valid.long(), None)
    loss = float(parse_terms([{"kind": "state"}], "")[0][0](Turning.from_config(None), batch, track))
    arcs = np.angle(np.exp(1j * (angles[:3] - angles[3:]).numpy()))
    turns = (rotations[3:].inv() * rotations[:3]).magnitude()
    assert loss == pytest.approx((arcs**2 + turns**2).mean(), rel=1e-10)


def test_uncounted_steps_have_no_effect_even_if_nan():
    model, batch, track = random_case()
    terms = [{"kind": "state"}, {"kind": "posterior_nll"}, {"kind": "anchor"}]
    before, _ = weighted_sum(terms)(model, batch, track)
    spoiled = torch.where(batch.mask, batch.y, torch.nan)
    after, _ = weighted_sum(terms)(model, batch._replace(y=spoiled), track)
    assert torch.equal(before, after)


def test_parts_of_a_batch_sum_to_the_loss_of_the_whole_batch(lorenz):
    truth = lorenz.truth.clone()
    truth[1, 50:] = torch.nan  # a record with half the steps
    records = replace(lorenz, truth=truth)
    piece = Piece(torch.tensor([0, 1, 2, 3]), 0, 100)
    model = fwnkf.build("ekf", system=records.system)
    terms = weighted_sum([{"kind": "state"}, {"kind": "innovation_nll", "weight": 0.5}])
    whole = gather(records, piece)
    total = float(terms(model, whole, run(model, whole))[0])
    parts = [gather(records, piece, rank, 2) for rank in range(2)]
    assert sum(float(part.share.sum()) for part in parts) == pytest.approx(1, abs=1e-12)
    assert sum(float(terms(model, part, run(model, part))[0]) for part in parts) == pytest.approx(total, rel=1e-12)


def test_empirical_variance_compares_the_squared_error_with_the_stated_variance(lorenz):
    """In NumPy, also where the covariance is singular, and least where they agree."""
    model = filters_that_observe(lorenz)["bayesian_kalmannet"]
    batch = gather(lorenz, Piece(torch.arange(3), 0, 20))
    track = run(model, batch)
    term = LOSSES["empirical_variance"](from_step=4)
    error = (track.mean - batch.truth).detach().numpy()
    variance = np.diagonal(track.cov.detach().numpy(), axis1=-2, axis2=-1)
    expected = np.abs(error**2 - variance)[:, 4:].sum(-1).mean(-1)
    np.testing.assert_allclose(term(model, batch, track).detach().numpy(), expected, rtol=1e-12)
    agreeing = track._replace(cov=torch.diag_embed(torch.as_tensor(error**2)))
    assert term(model, batch, agreeing).abs().max() < 1e-12


def test_an_exactly_known_initial_state_needs_from_step_1():
    records = protocols.simulated("lorenz", "paper", train=4, val=2, test=2).split.train
    model = fwnkf.build("ekf", system=records.system)
    batch = gather(records, Piece(torch.arange(2), 0, 10))
    track = run(model, batch)
    with pytest.raises(NumericalFailureError, match=r"record 0 .* step 0 .*set from_step: 1"):
        weighted_sum([{"kind": "posterior_nll"}])(model, batch, track)


def test_registered_losses_and_names_of_repeated_terms():
    assert set(LOSSES) == {"state", "spectral", "posterior_nll", "empirical_variance", "innovation_nll", "anchor"}
    double = weighted_sum([{"kind": "spectral"}, {"kind": "state"}, {"kind": "spectral", "which": "posterior"}])
    assert [name for name, _ in double.terms] == ["spectral_0", "state", "spectral_2"]
    assert isinstance(double, WeightedSum)
