"""Motions by regression: what is a polynomial is found, sparse where it is, uncertain where there were no states."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fwnkf
from fwnkf.core.least_squares import Rows
from fwnkf.data import protocols
from fwnkf.errors import ConfigError, DataError
from fwnkf.evaluation.evaluate import estimate
from fwnkf.identify import fit_observation, fit_regression
from fwnkf.identify.regression import long_run_covariance
from fwnkf.systems import RegressedMotion, RegressedMotionConfig

STEP = 0.05


def oscillations(records=6, steps=80, seed=0, noise=0.0):
    """Van der Pol by Euler steps, which are polynomials of degree 3: ``x' = v``, ``v' = (1 - x²) v - x``."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(records, 2, generator=generator, dtype=torch.float64)
    states = [x]
    for _ in range(steps - 1):
        rate = torch.stack((x[:, 1], (1 - x[:, 0] ** 2) * x[:, 1] - x[:, 0]), -1)
        x = x + STEP * rate + noise * torch.randn(records, 2, generator=generator, dtype=torch.float64)
        states.append(x)
    return torch.stack(states, 1)


# ---- least squares ---------------------------------------------------------------------------------------------------


def test_rows_in_pieces_give_the_coefficients_and_covariance_of_numpy(generator):
    A = torch.randn(300, 5, generator=generator, dtype=torch.float64)
    B = torch.randn(300, 2, generator=generator, dtype=torch.float64)
    whole = Rows.of(A[:100], B[:100]) + Rows.of(A[100:250], B[100:250]) + Rows.of(A[250:], B[250:])
    solution = whole.solve()
    expected = np.linalg.lstsq(A.numpy(), B.numpy(), rcond=None)[0]
    np.testing.assert_allclose(solution.W.numpy(), expected, atol=1e-12)
    np.testing.assert_allclose((solution.root @ solution.root.mT).numpy(), np.linalg.inv(A.numpy().T @ A.numpy()))
    left = B.numpy() - A.numpy() @ expected
    np.testing.assert_allclose(solution.residual_cov.numpy(), left.T @ left / 300)


def test_thresholding_is_that_of_its_definition(generator):
    """Brunton, Proctor and Kutz: least squares, zero what is small, least squares on the rest, until nothing falls."""
    A = torch.randn(200, 6, generator=generator, dtype=torch.float64)
    W = torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.02, 0.0], [0.0, 0.0], [0.5, -0.7], [0.0, 0.03]], dtype=torch.float64)
    B = A @ W + 0.02 * torch.randn(200, 2, generator=generator, dtype=torch.float64)
    size_a, size_b = (np.sqrt((item.numpy() ** 2).mean(0)) for item in (A, B))
    expected = np.zeros((6, 2))
    for j in range(2):
        kept = np.ones(6, bool)
        while True:
            column = np.zeros(6)
            column[kept] = np.linalg.lstsq(A.numpy()[:, kept], B.numpy()[:, j], rcond=None)[0]
            still = kept & (np.abs(column) * size_a >= 0.05 * size_b[j])
            if (still == kept).all():
                break
            kept = still
        expected[:, j] = column
    found = Rows.of(A, B).solve(0.05)
    np.testing.assert_allclose(found.W.numpy(), expected, atol=1e-12)
    assert (found.support.numpy() == (expected != 0)).all()
    assert found.support.sum() == 4


# ---- terms -----------------------------------------------------------------------------------------------------------


def test_products_are_those_of_numpy(generator):
    x = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    terms = RegressedMotion(RegressedMotionConfig(state_dim=3, degree=3)).double().terms
    exponents = [(i, j, k) for i in range(4) for j in range(4) for k in range(4) if i + j + k <= 3]
    expected = sorted(float(np.prod(x[0].numpy() ** np.array(powers))) for powers in exponents)
    assert sorted(terms(x, None)[0].tolist()) == pytest.approx(expected)


# ---- fits ------------------------------------------------------------------------------------------------------------


def test_the_equations_of_an_oscillator_are_found_with_their_degree_and_no_further_terms():
    fitted = fit_regression(oscillations(noise=1e-4), dt=STEP, threshold="auto")
    assert fitted.motion.config.degree == 3
    chosen = [one for one in fitted.candidates if one.chosen]
    assert len(chosen) == 1
    assert chosen[0].terms == 4
    assert [line.split(" = ")[0] for line in fitted.motion.equations()] == ["x0'", "x1'"]
    terms = dict(zip(fitted.motion.terms.names, fitted.motion.W.abs().sum(0).tolist(), strict=True))
    assert {name for name, value in terms.items() if value} == {"x0", "x1", "x0 x0 x1"}


def test_what_was_never_measured_does_not_change_the_fit():
    states = oscillations()
    whole = torch.cat((states, torch.full((6, 1, 2), torch.nan, dtype=torch.float64)), 1)
    whole = torch.cat((whole, torch.full((1, 81, 2), torch.nan, dtype=torch.float64)))
    plain = fit_regression(states, dt=STEP, degree=3, held_out=[5]).motion
    with_gaps = fit_regression(whole, dt=STEP, degree=3, held_out=[5]).motion
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(with_gaps.state_dict()[name], value)


def test_irregular_steps_of_a_linear_motion_give_the_same_rate(generator):
    dt = 0.05 + 0.1 * torch.rand(4, 200, generator=generator, dtype=torch.float64)
    states = [torch.randn(4, 1, generator=generator, dtype=torch.float64)]
    for t in range(1, 200):
        noise = 0.01 * dt[:, t : t + 1].sqrt() * torch.randn(4, 1, generator=generator, dtype=torch.float64)
        states.append(states[-1] + dt[:, t : t + 1] * (1 - states[-1]) + noise)
    motion = fit_regression(torch.stack(states, 1), dt=dt, degree=1).motion
    x = torch.zeros(3, 1, dtype=torch.float64)
    lengths = torch.tensor([0.02, 0.1, 0.2], dtype=torch.float64)
    torch.testing.assert_close(motion.transition(x, None, lengths)[:, 0], lengths, rtol=0.03, atol=0)
    torch.testing.assert_close(motion.process_noise(lengths)[:, 0, 0], 1e-4 * lengths, rtol=0.2, atol=0)


@pytest.fixture
def own_feature():
    fwnkf.register_feature("tests/saturated", again=True)(lambda x: torch.tanh(3 * x[..., :1]))
    yield "tests/saturated"
    from fwnkf.registry import FEATURES

    del FEATURES._classes["tests/saturated"]


def test_sines_and_own_functions_are_terms(own_feature):
    generator = torch.Generator().manual_seed(0)
    states = [2 * torch.randn(5, 2, generator=generator, dtype=torch.float64)]
    for _ in range(100):
        x, v = states[-1].unbind(-1)
        states.append(torch.stack((x + STEP * v, v - STEP * (2 * x.sin() + (3 * x).tanh())), -1))
    motion = fit_regression(
        torch.stack(states, 1), dt=STEP, degree=1, harmonics=2, functions=[own_feature], threshold=1e-3
    ).motion
    assert motion.equations() == ["x0' = 1 x1", "x1' = -2 sin(1 x0) - 1 tests/saturated"]


def test_a_function_of_the_wrong_shape_is_named():
    fwnkf.register_feature("tests/wrong", again=True)(lambda x: x.sum())
    with pytest.raises(ConfigError, match=r"feature 'tests/wrong': returns \[\] for a state \[2\]"):
        RegressedMotion(RegressedMotionConfig(state_dim=2, functions=("tests/wrong",)))
    from fwnkf.registry import FEATURES

    del FEATURES._classes["tests/wrong"]


def test_a_config_cannot_ask_for_billions_of_terms():
    with pytest.raises(ConfigError, match="at most 2,000, with 200,000 derivatives"):
        RegressedMotion(RegressedMotionConfig(state_dim=1000, degree=1000))
    with pytest.raises(ConfigError, match="1,001 products of 1000 features"):
        RegressedMotion(RegressedMotionConfig(state_dim=1000, degree=1))
    with pytest.raises(ConfigError, match=r"control_dim = 1,000,000, harmonics = 0: at most 2,000"):
        RegressedMotion(RegressedMotionConfig(state_dim=2, degree=2, control_dim=1_000_000))


def test_too_few_states_are_named():
    with pytest.raises(DataError, match="pairs of consecutive states are known"):
        fit_regression(torch.full((2, 10, 2), torch.nan))


# ---- process noise ---------------------------------------------------------------------------------------------------


def test_the_long_run_covariance_of_correlated_noise_is_its_density_at_zero(generator):
    """A first-order process with coefficient 0.8 moves a sum as white noise with 1 / (1 - 0.8)² of its drive does."""
    drive = torch.randn(20, 5000, 1, generator=generator, dtype=torch.float64)
    noise = [drive[:, 0]]
    for t in range(1, 5000):
        noise.append(0.8 * noise[-1] + drive[:, t])
    assert float(long_run_covariance(torch.stack(noise, 1), 100_000)) == pytest.approx(
        25, rel=0.15
    )  # the weights take a part
    assert float(long_run_covariance(drive, 100_000)) == pytest.approx(1, rel=0.05)


def test_few_states_make_the_motion_as_uncertain_as_bayes_says():
    """Errors of one step at other states, in units of ``Q`` there, over many small sets of records."""
    ratios, plain = [], []
    for seed in range(60):
        motion = fit_regression(oscillations(2, 12, seed, noise=0.05), dt=STEP, degree=3, held_out=0).motion
        fresh = oscillations(3, 12, seed + 1000, noise=0.05)
        x, after = fresh[:, :-1].flatten(0, 1), fresh[:, 1:].flatten(0, 1)
        error = after - motion.transition(x, None, None)
        Q = motion.process_noise_at(motion.Q(), x, None)
        ratios.append((error.square() / torch.diagonal(Q, dim1=-2, dim2=-1)).median())
        plain.append((error.square() / motion.Q().diagonal()).median())
    normal = 0.455  # the median of the square of a standard normal number
    assert torch.stack(ratios).median() < 2.5 * normal
    assert torch.stack(plain).median() > 1.3 * torch.stack(ratios).median()


def test_residuals_alone_give_one_q_for_all_states():
    motion = fit_regression(oscillations(noise=0.01), dt=STEP, degree=3, noise="residuals").motion
    x = oscillations(1)[:, 0]
    assert motion.process_noise_at(motion.Q(), x, None) is motion.process_noise(None)
    torch.testing.assert_close(motion.Q().diagonal(), torch.full((2,), 1e-4, dtype=torch.float64), rtol=0.2, atol=0)


# ---- filters on it ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pendulum():
    return protocols.simulated("pendulum", "strict", train=300, val=60, test=100).split


def fitted_system(split, **options):
    records = split.train
    motion = fit_regression(records.truth, records.u, records.dt, layout=records.layout, **options).motion
    sensor = fit_observation(records.truth, records.y, records.mask, layout=records.layout)
    return fwnkf.System(motion, {"tip": sensor}).double()


def test_a_filter_on_it_is_as_good_as_one_with_the_equations_and_consistent(pendulum):
    test = pendulum.test
    errors, nees = {}, {}
    for name, system in {"fitted": fitted_system(pendulum, degree=2), "known": test.system}.items():
        found = estimate(fwnkf.EKF(system), test)
        apart = test.layout.boxminus(found.mean, test.truth)
        errors[name] = float(apart.square().mean())
        inverse = torch.linalg.inv(found.cov[:, 10:])
        nees[name] = float(torch.einsum("nti,ntij,ntj->nt", apart[:, 10:], inverse, apart[:, 10:]).mean() / 2)
    assert errors["fitted"] < 1.02 * errors["known"]
    assert nees["fitted"] == pytest.approx(nees["known"], rel=0.05)


def test_it_is_saved_and_loaded_with_the_filter(pendulum, tmp_path):
    model = fwnkf.EKF(fitted_system(pendulum, degree=2))
    some = pendulum.test.take(range(3))
    before = model.run(some.y, some.u, some.mask, some.dt)
    fwnkf.save(model, tmp_path)
    after = fwnkf.load(tmp_path).run(some.y, some.u, some.mask, some.dt)
    assert torch.equal(before.mean, after.mean)
    assert torch.equal(before.cov, after.cov)


def test_the_native_engine_gives_the_same_estimates(pendulum):
    model = fwnkf.EKF(fitted_system(pendulum, degree=3))
    some = pendulum.test.take(range(3))
    loop, native = (model.run(some.y, some.u, some.mask, some.dt, engine=name) for name in ("loop", "native"))
    torch.testing.assert_close(native.mean, loop.mean, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(native.cov, loop.cov, rtol=1e-9, atol=1e-12)


def test_a_residual_network_starts_at_zero_and_reaches_as_far_as_the_regression_leaves(pendulum):
    """What is left of a step is less than the step, and nothing may change before training."""
    from fwnkf.training.setup import statistics

    system = fitted_system(pendulum, degree=2)
    model = fwnkf.FWNKF(system, residual=fwnkf.MLP(width=8)).double()
    figures = statistics(pendulum.train)
    model.normalize(figures)
    left = system.process_noise(None).diagonal().sqrt()
    torch.testing.assert_close(model.residual.reach, left)
    assert bool((model.residual.reach < 0.9 * figures.step).all())
    some = pendulum.test.take(range(3))
    plain, with_network = (one.run(some.y, some.u, some.mask, some.dt) for one in (fwnkf.EKF(system), model))
    torch.testing.assert_close(with_network.mean, plain.mean, rtol=1e-12, atol=1e-12)
