"""The likelihood of innovations, its derivatives, and what is learned by name."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

import fwnkf
from fwnkf.errors import ConfigError
from fwnkf.filters.base import PriorAt
from fwnkf.identify import fit, starting_belief
from fwnkf.identify.likelihood import Likelihood, Local, Measurements, maximise
from fwnkf.identify.selection import learned_parameters
from fwnkf.identify.whittle import measured_spectra
from fwnkf.systems.motion import ConstantVelocity, ConstantVelocityConfig
from fwnkf.systems.pendulum import Pendulum, PendulumConfig
from fwnkf.types import Gaussian

DT = 0.02


def velocity_filter(**options: float) -> fwnkf.Filter:
    """Constant velocity with one oscillator of 9 Hz, in float64."""
    system = ConstantVelocity(ConstantVelocityConfig(dims=1, dt=DT, **options)).double()
    model = fwnkf.FWNKF(system, noise=fwnkf.Lines())
    states = model.get_submodule("noise_states")
    states.set_oscillators(*(torch.tensor([[v]]).double() for v in (2 * math.pi * 9 * DT, 0.9, 2.0)))  # type: ignore[operator]
    return model


def measurements(y: torch.Tensor, n: int, *, dt: bool = True, truth: torch.Tensor | None = None) -> Measurements:
    steps = torch.full(y.shape[:2], DT).to(y)
    steps[:, 0] = 0.0
    prior = Gaussian(torch.zeros(len(y), n).to(y), torch.eye(n).to(y).expand(len(y), n, n))
    return Measurements(y, y.isfinite(), None, steps if dt else None, prior, truth)


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("gap", [False, True], ids=["regular", "gap"])
@pytest.mark.parametrize("prior_at", ["first_measurement", "before_first_step"])
def test_likelihood_equals_the_joint_density_of_all_measurements(prior_at: PriorAt, gap: bool):
    """The covariance of all measurements together, written out, against the sum over innovations."""
    F, H = torch.tensor([[1.0, 0.3], [-0.2, 0.9]]).double(), torch.tensor([[1.0, 0.5]]).double()
    Q, R = torch.tensor([[0.4, 0.1], [0.1, 0.2]]).double(), torch.tensor([[0.3]]).double()
    model = fwnkf.build("kf", F=F, H=H, Q=Q, R=R)
    y, length = noise(2, 7, 1), 7
    if gap:
        y[1, 3] = math.nan
    data = dataclasses.replace(measurements(y, 2, dt=False), prior_at=prior_at)
    likelihood = Likelihood(model, learned_parameters(model, ("Q", "R")), data)
    assert likelihood.time_invariant is not gap
    states, cov = torch.eye(2).double(), []
    powers = [torch.linalg.matrix_power(F, t) for t in range(length)]
    for t in range(length):
        if t or prior_at == "before_first_step":
            states = F @ states @ F.mT + Q
        cov.append(states)
    joint = torch.zeros(length, length).double()
    for s in range(length):
        for t in range(s, length):
            joint[s, t] = joint[t, s] = (H @ cov[s] @ powers[t - s].mT @ H.mT).squeeze()
    joint += R * torch.eye(length)
    expected = 0.0
    for row in y[..., 0]:
        seen = row.isfinite()
        dense = torch.distributions.MultivariateNormal(torch.zeros(int(seen.sum())).double(), joint[seen][:, seen])
        expected += float(dense.log_prob(row[seen]))
    assert likelihood.value(likelihood.parameters.start) == pytest.approx(expected, abs=1e-10)


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_steady_state_gives_the_same_likelihood_as_the_full_recursion():
    y = noise(3, 300, 1)
    y[2, 280:] = math.nan  # a shorter record, filled up
    compiled, fast, full = (
        Likelihood(model, learned_parameters(model, ("Q", "R", "oscillators")), measurements(y, 2))
        for model in (velocity_filter(), velocity_filter(), velocity_filter())
    )
    assert fast.time_invariant
    fast.compiled = full.compiled = full.time_invariant = False
    raw = fast.parameters.start
    c = full.local(raw)
    for a in (fast.local(raw), compiled.local(raw)):
        assert a.value == pytest.approx(c.value, rel=1e-7)
        torch.testing.assert_close(a.gradient, c.gradient, rtol=1e-4, atol=1e-3)
        torch.testing.assert_close(a.information, c.information, rtol=1e-4, atol=1e-3)


def test_gradient_and_information_agree_with_automatic_differentiation_and_simulation():
    """The gradient against reverse mode through the recursion, the information against the spread of gradients."""
    model = velocity_filter(variance=0.5)
    states = model.get_submodule("noise_states")
    y = noise(2, 60, 1)
    likelihood = Likelihood(model, learned_parameters(model, ("oscillators",)), measurements(y, 2))
    local = likelihood.local(likelihood.parameters.start)
    likelihood.parameters.finish(likelihood.parameters.start)
    track = model.run(**likelihood.data.first(60))
    density = torch.distributions.Normal(0.0, track.innovation_cov[..., 0].sqrt()).log_prob(track.innovation).sum()
    assert local.value == pytest.approx(float(density.detach()), rel=1e-10)
    density.backward()
    expected = torch.cat([states.raw_frequency.grad[0], states.raw_radius.grad[0]])  # type: ignore[union-attr,index]
    torch.testing.assert_close(local.gradient[:2], expected, rtol=1e-4, atol=1e-4)
    amplitude = states.amplitude.grad * states.amplitude  # type: ignore[operator]
    torch.testing.assert_close(local.gradient[2:], amplitude.detach()[0], rtol=1e-4, atol=1e-4)


def test_scoring_finds_the_maximum_of_a_known_likelihood():
    """Mean and log standard deviation of normal samples, whose estimates are in every textbook."""
    samples = 3 + 2 * noise(1000)

    def local(raw: torch.Tensor) -> Local:
        white = (samples - raw[0]) / raw[1].exp()
        value = float((-0.5 * white.square() - raw[1]).sum())
        gradient = torch.stack((white.sum() / raw[1].exp(), (white.square() - 1).sum()))
        return Local(value, gradient, 1000 * torch.stack((1 / (2 * raw[1]).exp(), torch.tensor(2.0).double())).diag())

    raw, _ = maximise(local, torch.zeros(2).double(), iterations=50, tolerance=1e-9)
    assert float(raw[0]) == pytest.approx(float(samples.mean()), rel=1e-4)
    assert float(raw[1].exp()) == pytest.approx(float(samples.std(correction=0)), rel=1e-4)


def test_systems_that_cannot_be_batched_run_one_by_one():
    system = Pendulum(PendulumConfig()).double()
    model = fwnkf.build("ekf", system=system)
    y = noise(2, 12, 2)
    data = measurements(y, 2)
    parameters = learned_parameters(model, ("Q", "R", "damping"))
    assert parameters.names == ["process", "variance", "damping"]
    likelihood = Likelihood(model, parameters, data)
    batched = likelihood.local(parameters.start)
    likelihood.side_by_side = False
    parameters.as_numbers()
    alone = likelihood.local(parameters.start)
    assert batched.value == pytest.approx(alone.value, rel=1e-12)
    torch.testing.assert_close(batched.gradient, alone.gradient, rtol=1e-3, atol=1e-3)


def test_names_of_what_is_learned():
    eye = torch.eye(2).double()
    linear = fwnkf.LinearSystem.of(eye, eye[:1], eye, eye[:1, :1], learn=("Q", "H"))
    model = fwnkf.build("ekf", system=linear)
    parameters = learned_parameters(model, ("Q", "R", "constants"))
    assert parameters.names == ["Q[0,0]", "Q[1,1]", "correlation Q[1,0]", "R[0,0]", "H[0,0]", "H[0,1]"]
    torch.testing.assert_close(parameters.values(parameters.start), torch.tensor([1.0, 1, 0, 1, 1, 0]).double())
    with pytest.raises(ConfigError, match=r"learn = friction.*of this system: .*H"):
        learned_parameters(model, ("friction",))


def test_starting_belief_covers_the_true_first_states():
    """Against the spread of the states that the records were made from."""
    states = noise(40, 2) * torch.tensor([5.0, 2.0])
    steps = torch.arange(200.0).double() * DT
    y = (states[:, :1] + states[:, 1:] * steps).unsqueeze(-1) + 0.05 * noise(40, 200, 1, seed=1)
    model = velocity_filter()
    dt = torch.full(y.shape[:2], DT).double()
    dt[:, 0] = 0.0
    belief = starting_belief(model, y, dt=dt)
    assert torch.all(belief.cov.diagonal() > states.var(0))
    assert torch.all(belief.cov.diagonal() < 100 * states.var(0))
    assert torch.all((states.mean(0) - belief.mean).abs() < 0.2)


def test_truth_on_some_records_is_used():
    """Two states whose sum alone is measured: without truth their noises cannot be told apart, with truth they can."""
    eye = torch.eye(2).double()
    Q = torch.tensor([0.04, 0.01]).double().diag()
    drive = noise(12, 260, 2) @ Q.sqrt()
    x = torch.zeros_like(drive)
    for t in range(1, 260):
        x[:, t] = 0.8 * x[:, t - 1] + drive[:, t]
    y = x.sum(-1, keepdim=True) + 0.1 * noise(12, 260, 1, seed=1)
    start = fwnkf.build("kf", F=0.8 * eye, H=torch.ones(1, 2).double(), Q=0.02 * eye, R=0.02 * eye[:1, :1])
    blind = fit(start, y, held_out=0.0).report
    assert [direction.parameters for direction in blind.flat] in ([("Q[0,0]", "Q[1,1]")], [("Q[1,1]", "Q[0,0]")])
    assert "cannot be distinguished" in blind.flat[0].text
    truth = torch.full_like(x, math.nan)
    truth[:6] = x[:6]
    report = fit(start, y, truth=truth, held_out=0.0).report
    assert report.flat == ()
    assert report.value("Q[0,0]") / report.value("Q[1,1]") == pytest.approx(4.0, rel=0.4)


@pytest.mark.parametrize("discrete", [False, True], ids=["dt", "discrete"])
def test_a_missing_sample_hardly_changes_the_spectrum(discrete: bool):
    y = noise(3, 300, 1).cumsum(1) + noise(3, 300, 1, seed=1)
    if discrete:
        one = torch.eye(1).double()
        model = fwnkf.build("kf", F=one, H=one, Q=one, R=one)
    else:
        system = ConstantVelocity(ConstantVelocityConfig(dims=1, dt=DT, density=1e4, variance=1.0)).double()
        model = fwnkf.build("ekf", system=system)
    parameters = learned_parameters(model, ("Q", "R"))
    density = []
    for _ in range(2):
        likelihood = Likelihood(model, parameters, measurements(y, model.layout.size, dt=not discrete))
        density.append(measured_spectra(likelihood, parameters.start).density.real.flatten().log())
        y[1, 150] = math.nan
    assert 0 < float((density[1] - density[0]).abs().mean()) < 0.2
