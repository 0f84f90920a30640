"""Systems from plain functions against systems written by hand, scipy, and closed forms; and what is refused."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

import fwnkf
from fwnkf import System
from fwnkf.core import rotation
from fwnkf.core.gaussian import DiagonalNoise, FullNoise
from fwnkf.core.integrate import runge_kutta
from fwnkf.core.layout import Layout
from fwnkf.core.system import build_system
from fwnkf.errors import CheckpointError, ConfigError, UnknownNameError
from fwnkf.registry import SYSTEMS
from fwnkf.systems import Lorenz, LorenzConfig, Pendulum, PendulumConfig, Strapdown, StrapdownConfig

from ..shell import shell
from ..tolerances import assert_close, assert_same_bits


@pytest.fixture(autouse=True)
def forgotten():
    """Other tests iterate over the registry."""
    yield
    for name in [name for name in SYSTEMS._classes if name.startswith("test_")]:
        del SYSTEMS._classes[name]


def swing(theta, omega, torque, dt, gravity=9.81, length=0.7, damping=0.1, mass=1.3):
    rate = -gravity / length * theta.sin() - damping / mass * omega + torque / mass
    return theta + dt * omega, omega + dt * rate


def tip(theta, length=0.7):
    return length * theta.sin(), -length * theta.cos()


PENDULUM = {
    "state": {"theta": "angle", "omega": 1},
    "measurement": ["east", "up"],
    "control": ["torque"],
    "Q": 0.05**2,
    "R": 0.1**2,
    "dt": 0.02,
}


def swing_of_one(x, u, dt, gravity=9.81, length=0.7, damping=0.1, mass=1.3):
    """The same by a matrix product, which is right for a single state only."""
    linear = torch.stack((dt * torch.eye(2, dtype=x.dtype)[1], -dt * damping / mass * torch.eye(2, dtype=x.dtype)[1]))
    push = torch.stack((0 * dt, dt * (u[0] / mass - gravity / length * x[0].sin())))
    return x + linear @ x + push


def pendulum(f=swing, **options):
    return System.of(f, tip, **{**PENDULUM, **options}).double()


def lorenz_rate(x, sigma=10.0, rho=28.0, beta=8 / 3):
    return torch.stack((sigma * (x[1] - x[0]), x[0] * (rho - x[2]) - x[1], x[0] * x[1] - beta * x[2]))


def turning(attitude, bias, gyro):
    return gyro - bias, 0.0


def field_of(attitude, field=(0.4, 0.1, -0.8)):
    return rotation.to_matrix(attitude).mT @ field


def attitude(**options):
    given = {"state": {"attitude": "quaternion", "bias": 3}, "measurement": 3, "control": {"gyro": 3}, "dt": 0.01}
    return System.of(
        turning, field_of, continuous=True, **{**given, "Q": [1e-4] * 3 + [1e-6] * 3, "R": 0.01, **options}
    )


def both(generator, layout, control_dim, dt, batch=5):
    origin = layout.origin(torch.zeros((), dtype=torch.float64)).expand(batch, -1)
    x = layout.boxplus(origin, torch.randn(batch, layout.tangent_size, generator=generator, dtype=torch.float64))
    u = torch.randn(batch, control_dim, generator=generator, dtype=torch.float64) if control_dim else None
    return x, u, dt * (0.5 + torch.rand(batch, generator=generator, dtype=torch.float64))


# ---- the same as written by hand ------------------------------------------------------------------------------------


@pytest.mark.parametrize("broadcasts", [True, False])
def test_a_pendulum_of_functions_is_the_pendulum(generator, broadcasts):
    ours, theirs = (
        pendulum() if broadcasts else pendulum(f=swing_of_one),
        Pendulum(PendulumConfig(length=0.7, mass=1.3)).double(),
    )
    x, u, dt = both(generator, theirs.layout, 1, 0.02)
    x[0, 0] = 3.14  # wraps within the step
    for step in (None, dt):
        for mine, expected in zip(
            ours.linearize_transition(x, u, step), theirs.linearize_transition(x, u, step), strict=True
        ):
            assert_close(mine, expected)
        assert_close(ours.process_noise(step), theirs.process_noise(step), "rounding")
    assert_close(ours.transition(x, None, None), theirs.transition(x, None, None), "rounding")
    assert_close(ours.observe(x.expand(2, *x.shape)), theirs.observe(x.expand(2, *x.shape)), "rounding")
    for mine, expected in zip(ours.linearize_observation(x), theirs.linearize_observation(x), strict=True):
        assert_close(mine, expected, "rounding")
    assert_close(ours.measurement_covariance(), theirs.measurement_covariance(), "rounding")
    assert isinstance(ours.measurement_noise(), DiagonalNoise)
    assert ours._functions["f"].batched == broadcasts
    assert ours._functions["h"].batched
    assert (ours.layout.flat, ours.control_dim, ours.takes_dt) == (False, 1, True)


def test_lorenz_by_its_derivative_is_lorenz(generator):
    ours = System.of(lorenz_rate, lambda x: x[:2], state=3, Q=1e-6, R=[0.26, 0.26], dt=1 / 99, continuous=True)
    ours, theirs = ours.double(), Lorenz(LorenzConfig(dt=1 / 99)).double()
    x, _, dt = both(generator, theirs.layout, 0, 0.01)
    for step in (None, dt):
        for mine, expected in zip(
            ours.linearize_transition(5 * x, None, step), theirs.linearize_transition(5 * x, None, step), strict=True
        ):
            assert_close(mine, expected)


def test_an_attitude_by_its_rate_is_that_of_the_strapdown_system(generator):
    """A constant rate turns along a straight line of the tangent space, where Runge-Kutta is exact."""
    ours, theirs = attitude().double(), Strapdown(StrapdownConfig()).double()
    x, u, dt = both(generator, ours.layout, 3, 0.01)
    full = torch.zeros(len(x), 16, dtype=x.dtype)
    full[:, 6:10], full[:, 10:13] = x[:, :4], x[:, 4:]
    moved, F = theirs.linearize_transition(full, torch.cat((u, 0 * u), -1), dt)
    mine, mine_F = ours.linearize_transition(x, u, dt)
    assert_close(mine[:, :4], moved[:, 6:10])
    assert_close(mine_F[:, :3, :3], F[:, 6:9, 6:9])
    assert_close(mine_F[:, :3, 3:], F[:, 6:9, 9:12])


@pytest.mark.parametrize("name", ["ekf", "ukf", "fwnkf", "kalmannet"])
def test_filters_give_the_same_estimates(generator, name):
    y = torch.randn(3, 12, 2, generator=generator, dtype=torch.float64)
    u = torch.randn(3, 12, 1, generator=generator, dtype=torch.float64)
    tracks = []
    for system in (pendulum(), Pendulum(PendulumConfig(length=0.7, mass=1.3)).double()):
        torch.manual_seed(0)
        parts = {"encoder": {"units": 8}, "residual": {"width": 8}, "phi": {}} if name == "fwnkf" else {}
        tracks.append(fwnkf.build(name, system=system, **parts).run(y, u))
    assert_close(tracks[0].mean, tracks[1].mean)
    assert_close(tracks[0].cov, tracks[1].cov)


# ---- continuous time ------------------------------------------------------------------------------------------------


def test_a_linear_derivative_is_discretised_as_a_linear_system(generator):
    A = torch.tensor([[0.0, 1.0, 0.0], [-1.5, -0.4, 0.2], [0.0, 0.3, -0.1]], dtype=torch.float64)
    B = torch.tensor([[0.0], [1.0], [0.5]], dtype=torch.float64)
    Q = torch.diag(torch.tensor([0.0, 0.3, 0.1], dtype=torch.float64))
    C = torch.eye(2, 3, dtype=torch.float64)
    R = torch.tensor([[0.2, 0.05], [0.05, 0.1]], dtype=torch.float64)
    theirs = fwnkf.LinearSystem.of(A, C, Q, R, B, continuous=True, dt=0.05)
    ours = System.of(
        lambda x, u, A, B: A @ x + B @ u,
        lambda x, C: C @ x,
        Q=Q,
        R=R,
        control=1,
        dt=0.05,
        continuous=True,
        constants={"A": A, "B": B, "C": C},
    )
    assert next(ours.buffers()).dtype == torch.float64  # that of Q
    x, u, dt = both(generator, theirs.layout, 1, 0.05)
    for step in (None, dt, torch.zeros(5, dtype=torch.float64)):
        assert_close(ours.process_noise(step), theirs.process_noise(step), "rounding")
        for mine, expected in zip(
            ours.linearize_transition(x, u, step), theirs.linearize_transition(x, u, step), strict=True
        ):
            # Runge-Kutta leaves the fifth order: (1.6 · 0.075)⁵ / 120
            torch.testing.assert_close(mine, expected.expand_as(mine), rtol=0, atol=1e-6)
    assert isinstance(ours.measurement_noise(), FullNoise)


def test_the_order_on_rotations_is_four(rng):
    """A rate that depends on the attitude, against scipy on rotation matrices."""
    inertia = torch.tensor([1.0, 2.0, 3.5], dtype=torch.float64)
    layout = Layout.parse([("q", "quaternion", 4), ("w", "euclidean", 3)])

    def rate(x):
        q, w = x[..., :4], x[..., 4:]
        pull = torch.linalg.cross(
            torch.tensor([0.3, -0.2, 1.0]).double().expand_as(w), rotation.to_matrix(q)[..., 2, :]
        )
        return torch.cat((w, (torch.linalg.cross(inertia * w, w) + pull) / inertia), -1)

    x = torch.tensor([[0.9, 0.1, -0.3, 0.2, 1.0, -2.0, 1.5]], dtype=torch.float64)
    x = layout.project(x)

    def flat(_, state):
        R, w = torch.from_numpy(state[:9].reshape(3, 3)), torch.from_numpy(state[9:])
        pull = torch.linalg.cross(torch.tensor([0.3, -0.2, 1.0]).double(), R[2])
        rates = (R @ rotation.skew(w)).flatten(), (torch.linalg.cross(inertia * w, w) + pull) / inertia
        return torch.cat(rates).numpy()

    start = torch.cat((rotation.to_matrix(x[0, :4]).flatten(), x[0, 4:])).numpy()
    exact = solve_ivp(flat, (0, 0.8), start, rtol=1e-12, atol=1e-12).y[:, -1]
    errors = []
    for substeps in (8, 16, 32):
        end = runge_kutta(rate, x, torch.tensor([0.8], dtype=torch.float64), layout, substeps)[0]
        mine = torch.cat((rotation.to_matrix(end[:4]).flatten(), end[4:])).numpy()
        errors.append(np.abs(mine - exact).max())
        assert_close(end[:4].norm(), torch.ones(()).double(), "rounding")
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert (orders > 3.7).all(), (errors, orders)


def test_the_noise_of_a_turning_body_is_that_of_small_steps():
    """``Q`` at a state that turns: the sum of the noise of many small steps, moved by their Jacobians."""
    spin = System.of(
        lambda rate: (rate, 0.0), lambda q: q[1:], state={"q": "quaternion", "rate": 3}, measurement=3, R=1.0, dt=0.4,
        Q=[0.1, 0.2, 0.3, 0.3, 0.2, 0.1], continuous=True, initial_mean=(1, 0, 0, 0, 0.5, -1.0, 2.0),
    ).double()  # fmt: skip
    steps = 4000
    small = torch.full((1,), 0.4 / steps, dtype=torch.float64)
    x, Q, P = spin.initial_mean.unsqueeze(0), spin.process_noise(small)[0], torch.zeros(6, 6).double()
    _, F = spin.linearize_transition(x, None, small)  # the rate is constant, so every small step has this Jacobian
    for _ in range(steps):
        P = F[0] @ P @ F[0].mT + Q
    assert_close(spin.process_noise(None), P, "finite_difference")


# ---- constants, noise, learning -------------------------------------------------------------------------------------


def test_constants_are_options_and_parameters():
    system = pendulum(learn=("damping", "length", "R"), positive=("length",), name=None)
    names = {name for name, _ in system.named_parameters()}
    assert names == {"damping", "raw_length", "R.log_std"}
    values = system.constants()
    assert_close(values["length"].float(), torch.tensor(0.7))
    loss = (
        system.observe(torch.ones(2, 2).double()).sum() + system.transition(torch.ones(2, 2).double(), None, None).sum()
    )
    loss.backward()
    assert system.raw_length.grad != 0
    assert system.damping.grad != 0
    with torch.no_grad():
        system.raw_length.fill_(-50.0)
    assert system.constants()["length"] > 0
    assert_close(system.measurement_covariance(), 0.01 * torch.eye(2).double(), "finite_difference")


def test_constants_are_exact_in_every_dtype():
    system = System.of(swing, tip, **PENDULUM)
    assert system.mass.dtype == torch.float32
    assert system.double().mass.item() == 1.3
    assert system.float().double().Q[0, 0].item() == 0.05**2


def test_noise_as_functions_of_dt_and_constants():
    def process(dt, density=0.5):
        return density * torch.stack((torch.stack((dt**3 / 3, dt**2 / 2)), torch.stack((dt**2 / 2, dt))))

    def sensor(range_std=0.2):
        return range_std**2, (2 * range_std) ** 2

    system = System.of(
        lambda p, v, dt: (p + dt * v, v), lambda x: x, Q=process, R=sensor, state=["p", "v"], measurement=2, dt=0.5,
        learn=["density", "range_std"], positive=["density", "range_std"],
    ).double()  # fmt: skip
    theirs = fwnkf.systems.ConstantVelocity(fwnkf.systems.ConstantVelocityConfig(dims=1, density=0.5, dt=0.5)).double()
    dt = torch.tensor([0.1, 0.0, 2.0], dtype=torch.float64)
    for step in (None, dt):
        torch.testing.assert_close(system.process_noise(step), theirs.process_noise(step), rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(system.measurement_covariance(), torch.diag(torch.tensor([0.04, 0.16])).double())
    assert system.diagonal_noise


def test_given_jacobians_are_used(generator):
    calls = []

    def F(x, dt, drag=0.1):
        calls.append("F")
        return torch.stack((torch.stack((x[0] * 0 + 1, dt)), torch.stack((x[0] * 0, 1 - drag * dt))))

    def H(x):
        return torch.stack((2 * x[0], x[0] * 0)).unsqueeze(0)

    given = {"Q": (0.1, 0.2), "R": [0.3], "dt": 0.1}

    def move(x, dt, drag=0.1):
        return torch.stack((x[0] + dt * x[1], x[1] - drag * dt * x[1]))

    ours = System.of(move, lambda x: x[:1] ** 2, F=F, H=H, **given).double()
    plain = System.of(move, lambda x: x[:1] ** 2, **given).double()
    x, _, dt = both(generator, plain.layout, 0, 0.1)
    calls.clear()
    for step in (dt, None):
        assert_close(ours.linearize_transition(x, None, step)[1], plain.linearize_transition(x, None, step)[1])
    assert len(calls) == 2
    assert_close(ours.linearize_observation(x)[1], plain.linearize_observation(x)[1])


def test_a_step_without_dt_is_fixed_and_the_initial_belief_is_used():
    system = System.of(
        lambda x: 0.9 * x, lambda x: x, Q=[0.1], R=[0.2], initial_mean=[3.0], initial_std=[0.5]
    )  # fmt: skip
    assert not system.takes_dt
    with pytest.raises(ConfigError, match="f has no argument dt"):
        system.transition(torch.ones(1, 1), None, torch.ones(1))
    kf = fwnkf.build("ekf", system=system)
    state = kf.init(2, kf.initial_belief(torch.zeros(2, 3, 1)))
    assert state.mean.tolist() == [[3.0], [3.0]]
    assert state.cov.tolist() == [[[0.25]], [[0.25]]]


def test_functions_under_torch_func_and_empty_batches():
    system = attitude().double()
    x = system.layout.origin(torch.zeros(()).double())
    whole = torch.func.jacrev(system.observe)(x)
    lone = torch.func.jacfwd(lambda z: system.observe(z.expand(2, 3, -1))[1, 1])(x)
    assert_close(whole, lone, "rounding")
    assert system.transition(x.expand(0, -1), None, None).shape == (0, 7)
    twin = copy.deepcopy(system)
    assert_same_bits(twin.observe(x), system.observe(x))


@pytest.mark.slow  # other systems are compiled in the conformance suite
@pytest.mark.export
def test_the_step_compiles(generator):
    model = fwnkf.build("ekf", system=pendulum())
    y, u = (torch.randn(2, size, generator=generator, dtype=torch.float64) for size in (2, 1))
    state, dt = model.init(2), torch.full((2,), 0.03, dtype=torch.float64)
    expected, _ = model.step(state, y, u, None, dt)
    moved, _ = torch.compile(model.step, fullgraph=True, backend="aot_eager")(state, y, u, None, dt)
    assert_close(moved.mean, expected.mean)
    assert_close(moved.cov, expected.cov)


# ---- names and files ------------------------------------------------------------------------------------------------

MODULE = """
import fwnkf

def move(position, velocity, dt, drag=0.1):
    return position + dt * velocity, (1 - drag * dt) * velocity

fwnkf.System.of(move, lambda position: position, Q=(0.0, 0.01), R=0.04, dt=0.1, state=["position", "velocity"],
                measurement=["seen"], learn=["drag"], name="sled")
"""


@pytest.mark.process
def test_a_named_system_is_saved_and_loaded_in_another_process(tmp_path):
    (tmp_path / "my_sled.py").write_text(MODULE, encoding="utf-8")
    use = """
import sys, torch, fwnkf
from fwnkf.core.system import build_system
folder, action = sys.argv[1:]
if action == "save":
    import my_sled
    model = fwnkf.build("ekf", system=build_system("sled", {"drag": 0.25, "learn": ["drag", "Q"], "Q": [0.1, 0.2]}))
    fwnkf.save(model, folder)
if action == "load":
    import my_sled
model = fwnkf.load(folder)
print(model.run(torch.arange(4.0)[None, :, None]).mean.flatten().tolist())
"""

    (tmp_path / "use.py").write_text(use, encoding="utf-8")
    actions = ("save", "load", "forget")
    saved, loaded, forgotten = (shell(f"python use.py saved {action}", tmp_path) for action in actions)
    assert saved.code == 0, saved.err
    assert loaded.out == saved.out != ""
    assert forgotten.code == 1
    assert "no system is called 'sled'" in forgotten.err
    assert "--import MODULE" in forgotten.err


def test_a_system_without_a_name_cannot_be_saved(tmp_path):
    with pytest.raises(CheckpointError, match="name="):
        fwnkf.save(fwnkf.build("ekf", system=pendulum()), tmp_path)
    with pytest.raises(UnknownNameError, match="--import"):
        build_system("no_such_system", {})


def test_a_definition_can_be_executed_again_but_no_name_of_the_package_is_taken():
    for length in (0.7, 0.9):
        System.of(swing, tip, **PENDULUM, constants={"length": length}, name="test_again")
    assert SYSTEMS["test_again"](SYSTEMS["test_again"].Config()).config.length == 0.9
    with pytest.raises(ConfigError, match="registered twice"):
        System.of(swing, tip, **PENDULUM, name="pendulum")


def test_the_config_is_checked():
    System.of(swing, tip, **PENDULUM, positive=["mass"], name="test_checked")
    for options, message in (
        ({"mass": -1.0}, "mass = -1.0 must be above 0.0"),
        ({"mas": 1.0}, "no option 'mas'.*did you mean mass"),
        ({"gravity": "strong"}, "gravity = 'strong' does not fit; wanted float"),
        ({"learn": ["mas"]}, "mas cannot be learned; there are: gravity, .*Q, R"),
        ({"Q": [1.0, 2.0, 3.0]}, r"Q has shape \[3\]; wanted a variance, 2 variances or a 2 x 2 matrix"),
        ({"dt": 0.0}, "dt = 0.0 must be above"),
    ):
        with pytest.raises(ValueError, match=message):
            build_system("test_checked", options)


def identity(x):
    return x


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"f": lambda x, wheelbase: x}, "f takes 'wheelbase', which is none of its inputs .x, u, dt. and has no value"),
        ({"f": lambda *x: x}, "has no name that a value could be found by"),
        ({"f": lambda x, dt: x}, "dt is missing"),
        ({"f": lambda x, a=1.0: x, "h": lambda x, a=2.0: x}, "constant 'a' has two default values: 1.0 and 2.0"),
        ({"f": lambda x, a="b": x}, "a = 'b': wanted a number"),
        ({"f": lambda x, layout=1.0: x}, "cannot be called 'layout'"),
        ({"f": lambda x: x[:1]}, r"f returns \[1\]; wanted 2 numbers for one state"),
        ({"f": lambda x: (x, x, x)}, "f returns 3 values; wanted one for each of the 1 parts"),
        ({"h": lambda x: x[7]}, "h: <lambda> fails for states near .0.0, 0.0.: IndexError"),
        ({"Q": 1.0}, "the size of the state is not known"),
        ({"R": lambda: 1.0}, "the size of the measurement is not known"),
        ({"Q": float("nan")}, "entries that are not finite"),
        ({"state": {"a": "angel", "b": 1}}, "kind 'angel'"),
        ({"state": ["a", "a"]}, "a: named more than once"),
        ({"state": ["x", "y"]}, "a part cannot be called 'x'"),
        ({"state": ["a", "b"], "control": ["a"]}, "'a' is a part of the state and a control"),
        ({"control": {"q": "quaternion"}}, "controls are Euclidean"),
        ({"constants": {"k": 1.0}}, "no function has a constant 'k'"),
        ({"positive": ["k"]}, "no function has a constant 'k'"),
        ({"learn": ["k"]}, "k cannot be learned; there are: Q, R"),
        ({"learn": ["Q"], "Q": (0.0, 1.0)}, "a learnable covariance needs positive variances"),
        ({"continuous": True, "F": identity, "dt": 1.0}, "F is the Jacobian of a discrete f"),
        ({"continuous": True, "f": lambda x: x.sqrt(), "dt": 1.0}, "not finite at the state .*give initial_mean"),
        ({"initial_mean": (1.0,)}, "initial_mean returns"),
    ],
)
def test_faults_are_named(arguments, message):
    given = {"f": identity, "h": identity, "Q": (1.0, 1.0), "R": (1.0, 1.0), **arguments}
    with pytest.raises(ValueError, match=message):
        System.of(given.pop("f"), given.pop("h"), **given)
