"""Training without equations: the learned system, least squares for linear filters, one regression for all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.func import functional_call, stack_module_state, vmap

import fwnkf
from fwnkf.data import tables
from fwnkf.errors import ConfigError, DataError
from fwnkf.evaluation.evaluate import evaluate
from fwnkf.systems import LearnedSystem
from fwnkf.training.batches import Piece, gather
from fwnkf.training.experiments import parse_experiment
from fwnkf.training.fit import fit, prepare_filter
from fwnkf.training.losses import weighted_sum
from fwnkf.training.setup import load_data, measure_for

ON_A_SYSTEM = ("ekf", "ukf", "kalmannet", "bayesian_kalmannet", "recursive_kalmannet")
LINEAR = ("kf", "arkf")
WITH_ANGLES = ("kalmannet", "kf", "arkf", "fwnkf", "fwnkf_public_code")
WHOLE = ("rkn", "fwnkf_public_code")
"""Filters that learn everything at once, without a regression before."""
ALL = (*ON_A_SYSTEM, *LINEAR, *WHOLE, "fwnkf")


LEARNED = {"encoder": {"units": 64}, "transition": {"rank": 1}, "phi": {"sections": 1}}
"""The learned parts of the paper's filter."""


def experiment(name="kalmannet", data="lorenz", pretrain=0, dtype="float64", short=False, **section):
    trainer = {"pretrain": pretrain, "steps": 1, "batch_size": 4, "validate_every": 1, "loggers": []}
    sizes = {"train": 24, "val": 4, "test": 4, "dtype": dtype}
    parts = {"options": LEARNED} if name == "fwnkf" else {}
    records = {"name": "simulated", "steps": 25} if short else {"name": data, "protocol": "paper"}
    return parse_experiment(
        {
            **({"system": {"name": data}} if short else {}),
            "data": {**records, **sizes},
            "filter": {"name": name, "equations": False, **parts, **section},
            "optimizer": {"learning_rate": 1e-4},
            "trainer": trainer,
        }
    )


@pytest.fixture(scope="module")
def records():
    return {name: load_data(experiment(data=name)).split.train for name in ("lorenz", "pendulum")}


def linear_records(records, F, order=1, rows=200, std=0.05, seed=0):
    """Records of ``x_t = Σ F_i x_{t-i} + w`` with two states and one measurement."""
    rng = np.random.default_rng(seed)
    x = np.zeros((rows, 100, 2))
    x[:, :order] = rng.standard_normal((rows, order, 2))
    for t in range(order, 100):
        lags = sum(x[:, t - 1 - i] @ F[i].T for i in range(order))
        x[:, t] = lags + std * rng.standard_normal((rows, 2))
    truth = torch.from_numpy(x)
    source = records.take([0] * rows)
    start = fwnkf.Gaussian(truth[:, 0], torch.eye(2).double())
    layout = fwnkf.core.layout.Layout.euclidean(2)
    dt = torch.ones_like(source.dt)
    return replace(
        source, truth=truth, y=truth[..., :1], mask=source.mask[..., :1], start=start, layout=layout, dt=dt, system=None
    )


# ---- every filter ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data"), [*((name, "lorenz") for name in ALL), *((name, "pendulum") for name in WITH_ANGLES)]
)
def test_every_filter_trains_without_equations_and_comes_back_from_disk(name, data, tmp_path):
    fitted = fit(experiment(name, data, 0 if name in WHOLE else 2, "float32", short=True), tmp_path / "run")
    assert fitted.record["steps"] == 1
    records = fitted.data.split.test
    last = fwnkf.load(tmp_path / "run" / "last")
    again = fwnkf.load(fwnkf.save(last, tmp_path / "again"))
    inputs = {name: value for name, value in records.inputs().items() if name != "dt"}
    runs = []
    for model in (last, again):
        with torch.no_grad():
            generator = torch.Generator().manual_seed(0)
            given = inputs if model.control_dim else {**inputs, "u": None}
            runs.append(model.run(**given, generator=generator).mean)
    assert torch.equal(*runs)
    assert isinstance(last.system, LearnedSystem) == (name not in (*LINEAR, "rkn"))


@pytest.mark.parametrize("name", ON_A_SYSTEM)
def test_the_learned_system_is_trained_together_with_the_filter(name, records):
    model = prepare_filter(experiment(name, pretrain=3), records["lorenz"])
    batch = gather(records["lorenz"], Piece(torch.arange(4), 0, 10))
    track = model.run(batch.y, mask=batch.mask, prior=batch.prior, generator=torch.Generator().manual_seed(0))
    track.mean.square().sum().backward()
    for key, parameter in model.system.network.named_parameters():
        assert float(parameter.grad.abs().max()) > 0, key


def test_the_untrained_learned_system_is_the_random_walk_that_fwnkf_starts_from(records):
    """The same noise levels, the same observation: an EKF on it and an untrained FW-NKF are the same filter."""
    for data in ("lorenz", "pendulum"):
        own = prepare_filter(
            experiment("fwnkf", data, options={"encoder": {"units": 64}, "residual": {"width": 64}}), records[data]
        )
        extended = prepare_filter(experiment("ekf", data), records[data])
        inputs = records[data].take(range(3)).inputs()
        with torch.no_grad():
            torch.testing.assert_close(own.run(**inputs).mean, extended.run(**inputs).mean, rtol=1e-9, atol=1e-9)


def test_options_of_the_learned_system_and_a_given_function(records):
    chosen = {"width": 5, "order": 2, "observation": "given_function", "learn": ["Q", "R"]}
    model = prepare_filter(experiment("ekf", "pendulum", learned_system=chosen), records["pendulum"])
    system, given = model.system, records["pendulum"].system
    assert system.network.out.in_features == 5
    assert system.network.straight is not None
    x = records["pendulum"].truth[0]
    assert torch.equal(system.observe(x), given.observe(x))
    assert {"system.Q.log_std", "system.R.log_std"} < {name for name, _ in model.named_parameters()}
    neural = prepare_filter(experiment("fwnkf", "pendulum", learned_system={"width": 5}), records["pendulum"])
    assert neural.system.network.out.in_features == 5
    # an fwnkf learns the transition itself
    assert prepare_filter(experiment("fwnkf", "pendulum"), records["pendulum"]).system.network is None


def test_a_filter_can_start_from_a_saved_one_on_the_same_system_only(tmp_path, records):
    model = prepare_filter(experiment("ekf", pretrain=2), records["lorenz"])
    fwnkf.save(model, tmp_path / "saved")
    start = str(tmp_path / "saved")
    again = prepare_filter(experiment("ekf", start=start), records["lorenz"])
    assert torch.equal(again.system.network.out.weight, model.system.network.out.weight)
    with pytest.raises(ConfigError, match="holds a filter with other options"):
        prepare_filter(experiment("ekf", start=start, learned_system={"width": 8}), records["lorenz"])


# ---- regression -----------------------------------------------------------------------------------------------------


def test_the_regression_of_a_learned_system_is_close_to_least_squares(records):
    F = np.array([[[0.98, 0.1], [-0.1, 0.98]]])
    data = linear_records(records["lorenz"], F, rows=60)
    model = prepare_filter(experiment("kalmannet", pretrain=250), data)
    pairs = data.truth[:, :-1].reshape(-1, 2).numpy(), data.truth[:, 1:].reshape(-1, 2).numpy()
    solution = np.linalg.lstsq(*pairs, rcond=None)[0]
    best = ((pairs[1] - pairs[0] @ solution) ** 2).mean(0)
    variance = model.system.process_noise(None).diagonal().numpy()
    assert (variance > 0.95 * best).all()
    assert (variance < 1.1 * best).all()
    x = data.truth[:5, 10]
    moved, slope = model.system.linearize_transition(x, None, None)
    np.testing.assert_allclose(moved.detach(), x.numpy() @ solution, atol=0.05)
    np.testing.assert_allclose(slope.detach().mean(0), solution.T, atol=0.05)


def test_a_control_is_read_by_the_learned_motion(records):
    """The torque of the pendulum moves its rate by u dt / m; without control the regression cannot explain it."""
    model = prepare_filter(experiment("ekf", "pendulum", pretrain=200), records["pendulum"])
    x = records["pendulum"].truth[:, 50]
    u = torch.zeros(len(x), 1).double()
    pushed = model.system.transition(x, u + 1, None) - model.system.transition(x, u, None)
    expected = records["pendulum"].system.transition(x, u + 1, None) - records["pendulum"].system.transition(x, u, None)
    assert float(expected[:, 1].mean()) > 0.01
    np.testing.assert_allclose(pushed.detach()[:, 1].mean(), expected[:, 1].mean(), rtol=0.2)


@pytest.mark.parametrize("name", ["fwnkf", "ekf"])
def test_a_learned_observation_is_regressed_too_and_its_residual_is_the_noise(name, records):
    """y = |x|², which no matrix explains."""
    base = linear_records(records["lorenz"], np.array([[[0.95, 0.2], [-0.2, 0.95]]]), rows=40, std=0.3)
    noise = 0.1 * torch.from_numpy(np.random.default_rng(1).standard_normal((*base.truth.shape[:2], 1)))
    data = replace(base, y=base.truth.square().sum(-1, keepdim=True) + noise)
    chosen = {"learned_system": {"observation": "learned_network"}}
    chosen |= {"options": {"residual": {"width": 64}}} if name == "fwnkf" else {}
    variances = []
    for steps in (0, 150):
        model = prepare_filter(experiment(name, pretrain=steps, **chosen), data)
        variances.append(float(model.system.measurement_covariance().squeeze().detach()))
    error = (data.y - model.observe(data.truth)).square().mean()
    assert 0.01 < variances[1] < 0.5 * variances[0]
    assert variances[1] == pytest.approx(float(error.detach()), rel=1e-6)


def test_pretraining_makes_a_filter_on_the_learned_system_more_accurate(records):
    protocol = load_data(experiment())
    rows = [
        evaluate(prepare_filter(experiment("ekf", pretrain=steps), records["lorenz"]), protocol, "ekf")
        for steps in (0, 100)
    ]
    assert rows[1]["mse"] < 0.5 * rows[0]["mse"]


# ---- linear filters -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, 2, 3])
def test_least_squares_of_any_order_equals_numpy(order, records):
    F = np.zeros((order, 2, 2))
    F[0] = [[0.7, 0.1], [-0.1, 0.7]]
    F[-1] += 0.2 * np.eye(2)
    data = linear_records(records["lorenz"], F, order)
    regression = tables.fit_steps(data, order)
    x = data.truth.numpy()
    lags = np.concatenate([x[:, order - 1 - i : 99 - i] for i in range(order)], -1).reshape(-1, 2 * order)
    solution, *_ = np.linalg.lstsq(lags, x[:, order:].reshape(-1, 2), rcond=None)
    expected = solution.T.reshape(2, order, 2).transpose(1, 0, 2)
    np.testing.assert_allclose(regression.F, expected, atol=1e-4)  # a ridge of 1e-6 of the data
    residual = x[:, order:].reshape(-1, 2) - lags @ solution
    np.testing.assert_allclose(regression.Q, residual.T @ residual / (len(residual) - 2 * order), rtol=1e-3, atol=1e-6)


def test_an_angle_that_passes_pi_does_not_jump_in_the_regression(records):
    data = records["pendulum"]
    rate = 0.5
    theta = torch.arange(100).double()[None] * rate + torch.linspace(0, 6, len(data)).double()[:, None]
    omega = torch.full_like(theta, rate) + torch.linspace(-0.1, 0.1, len(data)).double()[:, None]
    theta = theta + torch.arange(100) * (omega - rate)
    truth = data.layout.project(torch.stack((theta, omega), -1))
    regression = tables.fit_steps(replace(data, truth=truth, u=None))
    np.testing.assert_allclose(regression.F[0], [[1, 1], [0, 1]], atol=1e-3)


def test_linear_filters_get_the_regression_and_train_all_matrices(records):
    kalman = prepare_filter(experiment("kf"), records["lorenz"])
    regression = tables.fit_steps(records["lorenz"])
    assert torch.equal(kalman.system.F, regression.F[0])
    torch.testing.assert_close(kalman.system.process_noise(None), regression.Q)
    assert {name.split(".")[1] for name, _ in kalman.named_parameters()} == {"F", "H", "Q", "R"}
    driven = prepare_filter(experiment("kf", "pendulum"), records["pendulum"])
    assert "system.B" in dict(driven.named_parameters())
    assert driven.layout == records["pendulum"].layout
    fixed = prepare_filter(experiment("kf", options={"learn": ["Q"]}), records["lorenz"])
    assert {name.split(".")[1] for name, _ in fixed.named_parameters()} == {"Q"}


def test_a_linear_filter_wraps_its_angle_and_equals_the_plain_one_elsewhere():
    """A wheel that turns at 0.5 rad a step, its angle measured near ±π: the estimate stays in range."""
    F, H = torch.tensor([[1.0, 1.0], [0.0, 1.0]]).double(), torch.tensor([[0.0, 1.0]]).double()
    noise = {"Q": 0.01 * torch.eye(2).double(), "R": torch.eye(1).double()}
    turning = (("angle", "angle", 1), ("rate", "euclidean", 1))
    y = torch.full((1, 30, 1), 0.5).double()
    prior = fwnkf.Gaussian(torch.tensor([[0.0, 0.5]]).double(), torch.eye(2).double())
    plain = fwnkf.build("kf", F=F, H=H, **noise).run(y, prior=prior)
    wrapped = fwnkf.build("kf", F=F, H=H, layout=turning, **noise).run(y, prior=prior)
    assert plain.mean[..., 0].max() > 10
    assert wrapped.mean[..., 0].abs().max() <= np.pi
    difference = (plain.mean - wrapped.mean)[..., 0] / (2 * np.pi)
    np.testing.assert_allclose(difference, difference.round(), atol=1e-9)
    assert torch.equal(plain.mean[..., 1], wrapped.mean[..., 1])
    assert torch.equal(plain.cov, wrapped.cov)


def test_too_few_steps_for_least_squares(records):
    short = records["lorenz"].take([0])
    truth = short.truth.clone()
    truth[:, 3:] = torch.nan
    with pytest.raises(DataError, match="2 runs of 2 consecutive steps with ground truth; a linear model of order 1"):
        tables.fit_steps(replace(short, truth=truth))


# ---- several members at once ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", ["lorenz", "pendulum"])
def test_filters_on_a_learned_system_run_under_vmap_over_parameters(data, records):
    """Loss and gradient of two members at once equal those of each alone."""
    loss = weighted_sum([{"kind": "state"}, {"kind": "spectral", "weight": 0.1}])
    members = []
    for seed in (0, 1):
        model = prepare_filter(experiment("ekf", data, pretrain=2), records[data])
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.01 * torch.randn(parameter.shape, generator=generator).double())
        members.append(model)
    batch = gather(records[data], Piece(torch.arange(4), 0, 12))

    class Objective(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self):
            track = self.model.run(batch.y, batch.u, batch.mask, batch.dt, batch.prior)
            return loss(self.model, batch, track)[0]

    objectives = [Objective(model) for model in members]
    parameters, buffers = stack_module_state(objectives)

    def value(own, fixed):
        return functional_call(objectives[0], (own, fixed), ())

    together = vmap(torch.func.grad_and_value(value))(parameters, buffers)
    for place, objective in enumerate(objectives):
        alone = objective()
        alone.backward()
        torch.testing.assert_close(together[1][place], alone.detach(), rtol=1e-9, atol=1e-9)
        for key, parameter in objective.named_parameters():
            torch.testing.assert_close(together[0][key][place], parameter.grad, rtol=1e-7, atol=1e-9)


def test_the_rkn_decodes_in_the_units_of_its_states(records):
    model = prepare_filter(experiment("rkn", "pendulum"), records["pendulum"])
    rates = records["pendulum"].truth[..., 1]
    np.testing.assert_allclose(model.centre, [0.0, rates.mean()], rtol=1e-10)
    np.testing.assert_allclose(model.spread, [1.0, rates.std(correction=0)], rtol=1e-10)


def test_the_step_of_an_autoregression_over_angles_has_no_jumps(records):
    pendulum = records["pendulum"]
    angle = np.unwrap(pendulum.truth[..., 0].numpy(), axis=1)
    measured = measure_for(experiment("arkf", "pendulum"), pendulum)
    assert float(measured.step_cov[0, 0]) == pytest.approx(np.square(np.diff(angle, axis=1)).mean(), rel=1e-9)
