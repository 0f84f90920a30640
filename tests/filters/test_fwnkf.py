"""The FW-NKF against its paper, against the classical filters it extends, and against simulation."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
import torch
from filterpy.kalman import KalmanFilter

import fwnkf
from fwnkf import GRU, MLP, Drift, Level, Lines, LocallyLinear, Modes, Phi
from fwnkf.core.gaussian import log_prob
from fwnkf.core.iir import Sections
from fwnkf.core.shaped import loop_matrix, shaper_blocks, spectral_radius
from fwnkf.errors import ConfigError
from fwnkf.filters.diagnostics import noise_over_time
from fwnkf.systems import LearnedSystem

from .. import systems
from ..conformance.cases import shake
from ..tolerances import assert_close

LINEAR = systems.linear_matrices(torch.float64)


def linear_system(**changes: torch.Tensor) -> fwnkf.LinearSystem:
    return fwnkf.LinearSystem.of(**{**{k: v for k, v in LINEAR.items() if k != "B"}, **changes})


def walk(dtype: torch.dtype = torch.float64, **changes: torch.Tensor) -> LearnedSystem:
    """A random walk, for filters that learn the motion."""
    arrays = {name: LINEAR[name].to(dtype) for name in ("H", "Q", "R")}
    return LearnedSystem.of(**(arrays | changes))


# ---- Algorithms 2 and 3, implemented in numpy ----------------------------------------------------------------------


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def test_paper_form_equals_algorithm_three(generator):
    """Every line of the forward step, for one stream with a dropped measurement, from the weights of the module."""
    n, m, hidden, rank = 3, 2, 5, 1
    torch.manual_seed(0)
    model = fwnkf.FWNKF.paper(walk(Q=LINEAR["Q"].diagonal().diag()), units=hidden, rank=rank)
    shake(model, 0.2)
    cell = model.encoder.cells[0]
    w_ih, w_hh, b_ih, b_hh = (p.detach().numpy() for p in (cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh))
    head_w, head_b = model.head_weight.detach().numpy(), model.head_bias.detach().numpy()
    H = LINEAR["H"].numpy()
    alpha, beta, gain0, b1, b2 = model.shaper.raw.detach().numpy()[0]
    inside = model.config.phi.pole_radius * (1 - 2e-3)
    a2 = math.tanh(beta)
    a1 = (1 + a2) * math.tanh(alpha) * inside
    a2 = a2 * inside**2
    b = (1 + gain0, b1, b2)

    y = torch.randn(1, 8, m, generator=generator).double()
    mask = torch.ones_like(y, dtype=torch.bool)
    mask[0, 3] = False
    track = model.run(y, mask=mask)

    x, P, h = np.zeros(n), np.eye(n), np.zeros(hidden)
    lag1, lag2 = np.zeros(m), np.zeros(m)
    for t in range(8):
        observed = y[0, t].numpy() if mask[0, t, 0] else H @ x
        z = np.concatenate((x, observed))
        gi, gh = w_ih @ z + b_ih, w_hh @ h + b_hh
        reset, update = sigmoid(gi[:hidden] + gh[:hidden]), sigmoid(gi[hidden : 2 * hidden] + gh[hidden : 2 * hidden])
        new = np.tanh(gi[2 * hidden :] + reset * gh[2 * hidden :])
        h = (1 - update) * new + update * h
        out = head_w @ h + head_b
        U, V = out[: n * rank].reshape(n, rank), out[n * rank : 2 * n * rank].reshape(n, rank)
        A, offset = np.eye(n) + U @ V.T, out[2 * n * rank : 2 * n * rank + n]
        scales = np.exp(6.0 * np.tanh(out[2 * n * rank + n :]))
        Q = np.diag(LINEAR["Q"].numpy().diagonal() * scales[:n])
        R = np.diag(LINEAR["R"].numpy().diagonal() * scales[n:])
        x, P = A @ x + offset, A @ P @ A.T + Q
        assert_close(track.prior_mean[0, t], x)
        assert_close(track.prior_cov[0, t], P)
        S = H @ P @ H.T + R
        K = P @ H.T @ np.linalg.inv(S)
        innovation = (y[0, t].numpy() - H @ x) if mask[0, t, 0] else np.zeros(m)
        s = innovation - a1 * lag1 - a2 * lag2
        shaped = b[0] * s + b[1] * lag1 + b[2] * lag2
        lag1, lag2 = s, lag1
        if mask[0, t, 0]:
            x = x + K @ shaped
            IKH = np.eye(n) - K @ H
            P = IKH @ P @ IKH.T + K @ R @ K.T
            assert_close(track.shaped_innovation[0, t], shaped)
        assert_close(track.innovation_cov[0, t], S)
        assert_close(track.mean[0, t], x)
        assert_close(track.cov[0, t], P)


# ---- an untrained filter is the classical one ----------------------------------------------------------------------

NETWORKS: dict[str, Any] = {"encoder": GRU(64), "residual": MLP(64)}
FORMS: dict[str, dict[str, Any]] = {
    "phi": NETWORKS | {"phi": Phi()},
    "two layers": {"encoder": GRU(64, layers=2), "residual": MLP(64), "phi": Phi(3, shared=False)},
    "paper order": {"encoder": GRU(64, reads="current"), "residual": MLP(64), "phi": Phi()},
    "lines": NETWORKS | {"noise": Lines(2)},
    "no colour": NETWORKS,
    "augmented": NETWORKS | {"phi": Phi(covariance="augmented")},
    "augmented, shaped gain": NETWORKS | {"phi": Phi(covariance="augmented", gain="shaped")},
    "no encoder": {"residual": MLP(64), "phi": Phi()},
    "curved": NETWORKS | {"moments": "second_order"},
    "curved, lines": NETWORKS | {"moments": "second_order", "noise": Lines()},
    # each part alone
    "encoder alone": {"encoder": GRU(8)},
    "residual alone": {"residual": MLP(8, 2)},
    "phi alone": {"phi": Phi()},
    "shared lines": {"noise": Lines(2, shared=True)},
    "modes": {"noise": Modes(2)},
    "drift": {"noise": Drift()},
    "lines, modes and drift": {"noise": [Lines(), Modes(), Drift()]},
}


@functools.cache
def classical_run(system, moments):
    """A system, what a filter is given on it, and the run of the EKF, which all forms are compared with."""
    generator = torch.Generator().manual_seed(20240229)
    plant = linear_system().float() if system == "linear" else getattr(systems, system)(torch.float32)
    m, p = plant.observation_layout.size, plant.control_dim
    u = 0.1 * torch.randn(3, 40, p, generator=generator) if p else None
    x = plant.layout.origin(torch.zeros(())).expand(3, -1)
    clean = []
    for t in range(40):
        x = plant.transition(x, None if u is None else u[:, t], None)
        clean.append(plant.observe(x))
    y = torch.stack(clean, 1) + 0.1 * torch.randn(3, 40, m, generator=generator)
    mask = torch.rand(y.shape, generator=generator) > 0.2
    # a narrow prior: with a wide one, the rounding of the first steps remains in the unobserved heading
    prior = fwnkf.Gaussian(plant.layout.origin(x), 0.01 * torch.eye(plant.layout.tangent_size))
    given = {"y": y, "u": u, "mask": mask, "prior": prior}
    with torch.no_grad():
        return plant, given, fwnkf.build("ekf", system=plant, moments=moments).run(**given)


@pytest.mark.parametrize("form", list(FORMS))
@pytest.mark.parametrize("system", ["linear", "pendulum", "attitude", "wave"])
def test_untrained_equals_the_extended_kalman_filter(form, system):
    plant, given, theirs = classical_run(system, FORMS[form].get("moments", "linear"))
    with torch.no_grad():
        ours = fwnkf.FWNKF(plant, **FORMS[form]).run(**given)
    difference = plant.layout.boxminus(ours.mean, theirs.mean)
    # gravity does not observe the heading, so the rounding of the larger joint covariance is not corrected there
    tolerance = 3e-6 if system == "attitude" else 1e-6
    torch.testing.assert_close(difference, torch.zeros_like(difference), atol=tolerance, rtol=0)
    torch.testing.assert_close(ours.cov, theirs.cov, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("rank", [1, 3])
def test_untrained_without_equations_is_a_random_walk(rank, generator):
    arrays = {name: LINEAR[name].float() for name in ("H", "Q", "R")}
    y = torch.randn(3, 60, 2, generator=generator)
    model = fwnkf.FWNKF(walk(torch.float32), encoder=GRU(64), transition=LocallyLinear(rank), phi=Phi())
    ours = model.run(y)
    theirs = fwnkf.build("kf", F=torch.eye(3), **arrays).run(y)
    torch.testing.assert_close(ours.mean, theirs.mean, atol=1e-6, rtol=0)
    torch.testing.assert_close(ours.cov, theirs.cov, atol=1e-6, rtol=0)


def test_every_part_has_a_gradient_before_training():
    """The initial values must not be a saddle point: each kind of parameter has a gradient."""
    y, x = torch.randn(4, 30, 2), torch.randn(4, 30, 3)
    system, local = walk(torch.float32, Q=torch.eye(3)), {"transition": LocallyLinear(1)}
    cases = [
        (local | {"phi": Phi()}, {"shaper.raw"}),
        (local | {"noise": Lines()}, {"noise_states.amplitude"}),
        (local | {"noise": Modes()}, {"noise_states.mixing"}),
        (local | {"noise": Drift()}, {"noise_states.log_std"}),
        ({"phi": Phi(), "residual": MLP(64)}, {"shaper.raw", "residual.out.weight"}),
    ]
    for parts, wanted in cases:
        model = fwnkf.FWNKF(system, encoder=GRU(64), **parts)
        track = model.run(y)
        (-log_prob(x - track.mean, track.cov)[0].mean()).backward()
        with_gradient = {
            name for name, p in model.named_parameters() if p.grad is not None and bool(p.grad.abs().sum() > 0)
        }
        assert wanted | {"head_weight", "head_bias"} <= with_gradient, parts


# ---- noise states: the optimal filter of coloured noise ------------------------------------------------------------


def test_noise_states_equal_filterpy_on_the_augmented_model(rng):
    """The filter on [x; ν] against filterpy on explicitly assembled matrices, with two oscillators per channel."""
    matrices = {name: value.numpy() for name, value in LINEAR.items()}
    omega, radius, amplitude = (
        np.array([[0.7, 1.9], [0.3, 2.5]]),
        np.array([[0.99, 0.8]] * 2),
        np.array([[1.5, 0.5]] * 2),
    )
    model = fwnkf.FWNKF(linear_system(), noise=Lines(2))
    model.noise_states.set_oscillators(*(torch.from_numpy(part) for part in (omega, radius, amplitude)))
    n, m, s = 3, 2, 8
    oracle = KalmanFilter(n + s, m)
    F, Q, H = np.zeros((n + s, n + s)), np.zeros((n + s, n + s)), np.zeros((m, n + s))
    F[:n, :n], Q[:n, :n], H[:, :n] = matrices["F"], matrices["Q"], matrices["H"]
    std = np.sqrt(matrices["R"].diagonal())
    for channel in range(m):
        for k in range(2):
            at = n + 4 * channel + 2 * k
            c, s_ = np.cos(omega[channel, k]), np.sin(omega[channel, k])
            F[at : at + 2, at : at + 2] = radius[channel, k] * np.array([[c, -s_], [s_, c]])
            Q[at : at + 2, at : at + 2] = (1 - radius[channel, k] ** 2) * np.eye(2)
            H[channel, at] = amplitude[channel, k] * std[channel]
    oracle.F, oracle.Q, oracle.H, oracle.R, oracle.x, oracle.P = F, Q, H, matrices["R"], np.zeros(n + s), np.eye(n + s)
    y = rng.standard_normal((40, m))
    track = model.run(torch.from_numpy(y)[None])
    for t in range(40):
        oracle.predict()
        oracle.update(y[t])
        assert_close(track.mean[0, t], oracle.x[:n])
        assert_close(track.cov[0, t], oracle.P[:n, :n])
        assert_close(track.innovation_cov[0, t], oracle.S)


def test_noise_states_follow_the_time_step():
    """Two half steps without a measurement in between equal one full step: the noise is in continuous time."""
    system = fwnkf.LinearSystem.of(
        **{k: v for k, v in systems.continuous_matrices().items() if k != "B"}, continuous=True, dt=0.1
    )
    model = fwnkf.FWNKF(system, noise=Lines(shared=True))
    model.noise_states.set_oscillators(*(torch.tensor([[v]]).double() for v in (0.8, 0.97, 2.0)))
    y = torch.tensor([[[0.3, -0.2]]]).double()
    whole = model.run(y, dt=torch.tensor([[0.1]]).double())
    halves = model.run(
        torch.cat((torch.full_like(y, torch.nan), y), 1),
        mask=torch.tensor([[[False, False], [True, True]]]),
        dt=torch.full((1, 2), 0.05).double(),
    )
    assert_close(halves.mean[:, -1], whole.mean[:, -1])
    assert_close(halves.state.cov, whole.state.cov)


# ---- the exact covariance of the paper's update --------------------------------------------------------------------

SHAPER = Sections(torch.tensor([[0.6, 0.2, 0.1]]).double(), torch.tensor([[-0.3, 0.1]]).double())


def simulate(runs: int, steps: int, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    matrices = {name: value.numpy() for name, value in LINEAR.items()}
    roots = {name: np.linalg.cholesky(matrices[name]) for name in "QR"}
    x, states, measured = rng.standard_normal((runs, 3)), [], []
    for _ in range(steps):
        x = x @ matrices["F"].T + rng.standard_normal((runs, 3)) @ roots["Q"].T
        states.append(x)
        measured.append(x @ matrices["H"].T + rng.standard_normal((runs, 2)) @ roots["R"].T)
    return torch.from_numpy(np.stack(states, 1)), torch.from_numpy(np.stack(measured, 1))


@pytest.mark.parametrize("gain", ["kalman", "shaped"])
def test_augmented_covariance_is_the_error_covariance(gain, rng):
    """Against the empirical error covariance over 4,000 runs, at single steps and with dropped channels."""
    x, y = simulate(4000, 25, rng)
    mask = torch.ones_like(y, dtype=torch.bool)
    mask[:, 7, 0] = mask[:, 12] = False
    model = fwnkf.FWNKF(linear_system(), phi=Phi(covariance="augmented", gain=gain))
    model.shaper.set_sections(SHAPER)
    with torch.no_grad():
        track = model.run(y, mask=mask)
    for t in (0, 7, 12, 24):
        error = x[:, t] - track.mean[:, t]
        empirical = (error.mT @ error) / len(error)
        # the standard error of a variance over 4,000 runs is 2.2 %; entries are judged against their own scale
        scale = track.cov[0, t].diagonal().sqrt()
        assert float(((empirical - track.cov[0, t]) / torch.outer(scale, scale)).abs().max()) < 0.1, t


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_a_stable_shaper_can_make_the_loop_unstable():
    """The spectral radius predicts whether the error of the filter decays or grows."""
    F, H = torch.tensor([[1.0, 0.1], [0.0, 1.0]]).double(), torch.tensor([[1.0, 0.0]]).double()
    system = fwnkf.LinearSystem.of(
        F, H, torch.diag(torch.tensor([1e-4, 1.0])).double(), torch.tensor([[0.01]]).double()
    )
    slow = Sections(torch.tensor([[0.0201, 0.0402, 0.0201]]).double(), torch.tensor([[-1.561, 0.6414]]).double())
    mild = Sections(torch.tensor([[0.9, 0.1, 0.0]]).double(), torch.tensor([[0.0, 0.0]]).double())
    grew = {}
    for name, sections in (("slow", slow), ("mild", mild)):
        model = fwnkf.FWNKF(system, phi=Phi())
        model.shaper.set_sections(sections)
        steady = model.run(torch.zeros(1, 400, 1).double())
        P = steady.prior_cov[0, -1]
        K = P @ H.mT / steady.innovation_cov[0, -1]
        radius = float(spectral_radius(loop_matrix(F, K, H, shaper_blocks(model.shaper().detach(), 1))))
        start = fwnkf.Gaussian(torch.tensor([[1.0, 0.0]]).double(), steady.cov[:, -1])
        decay = model.run(torch.zeros(1, 400, 1).double(), prior=start).mean.abs().amax(-1)[0]
        grew[name] = radius > 1
        assert (float(decay[-1]) > float(decay[50])) == grew[name]
    assert grew == {"slow": True, "mild": False}


# ---- encoder, observation models, losses ---------------------------------------------------------------------------


@pytest.mark.parametrize(("order", "depends"), [("previous", False), ("current", True)])
def test_the_prior_depends_on_the_measurement_only_if_the_encoder_reads_it(order, depends):
    model = shake(fwnkf.FWNKF(walk(), encoder=GRU(64, reads=order), transition=LocallyLinear(1), phi=Phi()), 0.3)
    y = torch.randn(1, 5, 2).double().requires_grad_()
    (gradient,) = torch.autograd.grad(model.run(y).prior_mean[:, 3].sum(), y)
    assert bool(gradient[:, 3].abs().max() > 0) == depends
    assert bool(gradient[:, 2].abs().max() > 0)


class StartsAtFirstMeasurement(systems.Wave):
    """The initial belief is centred at a value computed from the first measurement."""

    initial_steps = 1

    def initial_belief(self, y, weight, u):
        return fwnkf.Gaussian(y[:, 0, :1].expand(-1, 3), 0.5 * torch.eye(3).to(y))


def test_noise_over_time_starts_as_the_run_does(generator):
    """Without a prior both start from the initial belief, on which the encoder and so ``Q_t`` depend."""
    system = StartsAtFirstMeasurement(systems.WaveConfig()).double()
    model = shake(fwnkf.FWNKF(system, encoder=GRU(4), phi=Phi()), 0.3)
    y = torch.randn(2, 6, 2, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        belief = model.initial_belief(y)
    Q, _ = noise_over_time(model, y)
    assert torch.equal(Q, noise_over_time(model, y, prior=belief, prior_at="before_first_step")[0])
    elsewhere = fwnkf.Gaussian(0 * belief.mean, belief.cov)
    rested = noise_over_time(model, y, prior=belief)[0]
    assert not rested[:, 0].any()
    assert not torch.equal(Q, noise_over_time(model, y, prior=elsewhere, prior_at="before_first_step")[0])


# ---- invalid configurations ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": Lines(), "phi": Phi()}, "phi and noise both model coloured noise"),
        ({"phi": {"gain": "shaped"}}, "gain='shaped' needs the exact covariance"),
        ({"phi": Phi(covariance="augmented"), "solve": "square_root"}, "no form for solve='square_root'"),
        ({"noise": {"part": "lines", "pole_radius": 1.0}}, "pole_radius = 1.0"),
        ({"noise": {"part": "linse"}}, "'linse'; wanted part: drift, lines, modes, orders"),
        ({"noise": {"tip": Lines()}}, "noise of sensor 'tip'; the system has: y"),
        ({"transition": LocallyLinear(1), "residual": MLP(8)}, "residual adds to the transition of the system"),
        ({"transition": {"rank": 0}}, "transition.rank = 0 is below 1"),
        ({"encoder": GRU(0)}, "encoder.units = 0 is below 1"),
        ({"level": Level(of="all", seconds=0.1)}, "too short for steps of 1 s and 2 channel"),
        ({"shaping": "noise"}, "no option 'shaping'"),
    ],
)
def test_invalid_configs_raise_a_config_error(options, message):
    with pytest.raises(ConfigError, match=message):
        fwnkf.build("fwnkf", system=linear_system(), **options)


def test_poles_outside_the_radius_raise():
    system = LearnedSystem.of(state_dim=2, observation_dim=1)
    model = fwnkf.FWNKF(system, phi=Phi())
    with pytest.raises(ConfigError, match="pole outside"):
        model.shaper.set_sections(Sections(torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[-1.9999, 0.9999]])))
    noisy = fwnkf.FWNKF(system, noise=Lines(pole_radius=0.999))
    with pytest.raises(ConfigError, match="at or above pole_radius"):
        noisy.noise_states.set_oscillators(torch.tensor([[1.0]]), torch.tensor([[0.9999]]), torch.tensor([[1.0]]))
