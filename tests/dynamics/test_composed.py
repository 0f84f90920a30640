"""Systems of a motion and sensors against systems written by hand; sensors added, their states, saving, refusals."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
import torch
from safetensors.torch import load_file, save_file

import fwnkf
from fwnkf import Sensor, SensorState
from fwnkf.core import linearize, rotation
from fwnkf.core.composed import ComposedSystem
from fwnkf.core.gaussian import block_diagonal, matvec
from fwnkf.core.linear import LinearSystem
from fwnkf.core.system import build_system
from fwnkf.errors import ConfigError
from fwnkf.migration import SYSTEM_TENSORS
from fwnkf.registry import SENSORS
from fwnkf.systems import (
    ConstantVelocity,
    ConstantVelocityConfig,
    ConstantVelocityMotion,
    ConstantVelocityMotionConfig,
    Lorenz,
    LorenzConfig,
    Strapdown,
    StrapdownConfig,
    StrapdownMotion,
    StrapdownMotionConfig,
)
from fwnkf.systems.sensors import (
    Barometer,
    BarometerConfig,
    Position,
    PositionConfig,
    Range,
    RangeConfig,
    Velocity,
    VelocityConfig,
)

from ..tolerances import assert_close, assert_same_bits

DOUBLE = torch.float64


@pytest.fixture(autouse=True)
def forgotten():
    """Other tests iterate over the registry."""
    yield
    for name in [name for name in SENSORS._classes if name.startswith("test_")]:
        del SENSORS._classes[name]


class ByHand(fwnkf.System):
    """A strapdown with biases, GNSS with a lever arm, and a barometer with a drifting offset, in one piece."""

    control_dim, dt = 6, 0.005

    def __init__(self):
        super().__init__(None)
        parts = [("position", "euclidean", 3), ("velocity", "euclidean", 3), ("orientation", "quaternion", 4)]
        parts += [("gyro_bias", "euclidean", 3), ("accelerometer_bias", "euclidean", 3), ("offset", "euclidean", 1)]
        self.layout = fwnkf.Layout.parse(parts)
        self.observation_layout = fwnkf.Layout.parse([("gps", "euclidean", 3), ("baro", "euclidean", 1)])
        self.register_buffer("arm", torch.tensor([0.3, 0.1, -0.2], dtype=DOUBLE))

    def transition(self, x, u, dt):
        h = (torch.full_like(x[:, :1], self.dt)) if dt is None else dt[:, None]
        p, v, q, bias, offset = x.split((3, 3, 4, 6, 1), -1)
        rate, force = (u - bias).split(3, -1)
        middle = rotation.to_matrix(rotation.multiply(q, rotation.exp(0.5 * h * rate)))
        a = matvec(middle, force) + x.new_tensor([0.0, 0.0, -9.81])
        turned = rotation.normalize(rotation.multiply(q, rotation.exp(h * rate)))
        return torch.cat((p + h * v + 0.5 * h * h * a, v + h * a, turned, bias, offset), -1)

    def observe(self, x):
        p, _, q, _, offset = x.split((3, 3, 4, 6, 1), -1)
        antenna = p + matvec(rotation.to_matrix(q), self.arm.expand_as(p))
        return torch.cat((antenna, p[..., 2:] + offset), -1)

    def process_noise(self, dt):
        h = torch.tensor([self.dt], dtype=DOUBLE) if dt is None else dt
        Q = torch.zeros(len(h), 16, 16, dtype=DOUBLE)
        for i in range(3):
            Q[:, i, i], Q[:, 3 + i, 3 + i] = 2e-3**2 * h**3 / 3, 2e-3**2 * h
            Q[:, i, 3 + i] = Q[:, 3 + i, i] = 2e-3**2 * h**2 / 2
            Q[:, 6 + i, 6 + i] = 1.6968e-4**2 * h
            Q[:, 9 + i, 9 + i], Q[:, 12 + i, 12 + i] = 1.9393e-5**2 * h, 3e-3**2 * h
        Q[:, 15, 15] = 0.1**2 * h
        return Q[0] if dt is None else Q

    def measurement_covariance(self):
        return torch.diag(torch.tensor([4.0, 4.0, 4.0, 0.25], dtype=DOUBLE))


def flying():
    gps = Position(PositionConfig(std=2.0, lever_arm=(0.3, 0.1, -0.2)))
    baro = Barometer(BarometerConfig(std=0.5, offset_walk=0.1, offset_std=3.0))
    return fwnkf.System(StrapdownMotion(StrapdownMotionConfig()), sensors={"gps": gps, "baro": baro})


@pytest.mark.parametrize("filter", ["ekf", "ukf"])
@pytest.mark.parametrize("given_steps", [False, True])
def test_a_composed_strapdown_is_the_one_written_by_hand(filter, given_steps, generator):
    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=DOUBLE)

    system, expected = flying().double(), ByHand()
    y, u = 3 * normal(2, 40, 4), normal(2, 40, 6) + torch.tensor([0.0, 0, 0, 0, 0, 9.81])
    mask = torch.rand(2, 40, 4, generator=generator) < 0.7
    dt = 0.01 + 0.01 * torch.rand(2, 40, generator=generator, dtype=DOUBLE) if given_steps else None
    prior = fwnkf.Gaussian(system.layout.origin(y), 0.1 * torch.eye(16, dtype=DOUBLE))
    one = fwnkf.build(filter, system=system).run(y, u, mask, dt, prior)
    other = fwnkf.build(filter, system=expected).run(y, u, mask, dt, prior)
    assert_close(one.mean, other.mean)
    assert_close(one.cov, other.cov)


def test_each_sensor_alone_gives_its_rows_of_all_together(generator):
    system = flying().with_sensor("doppler", Velocity(VelocityConfig(frame="body"))).double()
    x = system.layout.boxplus(
        system.layout.origin(torch.zeros((), dtype=DOUBLE)).expand(4, -1),
        torch.randn(4, system.layout.tangent_size, generator=generator, dtype=DOUBLE),
    )
    seen, H = system.linearize_observation(x)
    R = system.measurement_covariance()
    assert list(system.sensor_channels) == ["gps", "baro", "doppler"]
    for name, channels in system.sensor_channels.items():
        y, rows = system.linearize_sensor(name, x)
        assert_close(y, seen[:, channels], "rounding")
        assert_close(rows.expand(4, -1, -1), H[:, channels], "rounding")
        assert_close(system.sensors[name].measurement_covariance(), R[channels, channels], "rounding")
    assert system.sensor_channels["doppler"] == slice(4, 7)


def test_a_linear_composition_is_the_kalman_filter_of_its_matrices(generator):
    motion = ConstantVelocityMotion(ConstantVelocityMotionConfig(dims=3, density=0.3, dt=0.1))
    baro = Barometer(BarometerConfig(std=0.5, offset_std=2.0, offset_walk=0.2))
    system = fwnkf.System(motion, sensors={"gps": Position(PositionConfig(std=1.5)), "baro": baro}).double()
    assert system.linearity == "constant"
    assert system.with_sensor("v", Velocity(VelocityConfig())).linearity == "constant"
    assert system.with_sensor("r", Range(RangeConfig())).linearity == "state_dependent"
    F, B = torch.eye(7, dtype=DOUBLE), torch.eye(3, 7, dtype=DOUBLE)
    F[:3, 3:6] = 0.1 * torch.eye(3, dtype=DOUBLE)
    H = torch.cat((B, torch.tensor([[0.0, 0, 1, 0, 0, 0, 1]], dtype=DOUBLE)))
    G = torch.tensor([[0.1**3 / 3, 0.1**2 / 2], [0.1**2 / 2, 0.1]], dtype=DOUBLE)
    Q = block_diagonal(0.3 * torch.kron(G, torch.eye(3, dtype=DOUBLE)), torch.tensor([[0.2**2 * 0.1]], dtype=DOUBLE))
    R = torch.diag(torch.tensor([1.5**2] * 3 + [0.25], dtype=DOUBLE))
    y = torch.randn(2, 30, 4, generator=generator, dtype=DOUBLE)
    prior = fwnkf.Gaussian(torch.zeros(6, dtype=DOUBLE), torch.eye(6, dtype=DOUBLE))
    whole = fwnkf.Gaussian(torch.zeros(7, dtype=DOUBLE), torch.diag(torch.tensor([1.0] * 6 + [2.0**2], dtype=DOUBLE)))
    one, other = fwnkf.EKF(system).run(y, prior=prior), fwnkf.KF(F=F, H=H, Q=Q, R=R).run(y, prior=whole)
    assert_close(one.mean, other.mean)
    assert_close(one.cov, other.cov)


STATES = {
    "constant": SensorState("bias", 2, std=(0.5, 0.7), mean=(1.0, 2.0)),
    "random walk": SensorState("bias", 2, std=0.5, walk=(0.1, 0.2)),
    "Gauss-Markov": SensorState("bias", 2, std=0.5, seconds=3.0),
}


@pytest.mark.parametrize("kind", STATES)
def test_the_states_of_a_sensor_move_as_they_say(kind):
    state = STATES[kind]
    sensor = Sensor(lambda position, bias: position[:2] + bias, R=[0.1, 0.1], states=[state])
    base = ConstantVelocity(ConstantVelocityConfig(dims=2)).double()
    system = base.with_sensor("gps", sensor)
    x, h = torch.tensor([[0.0, 0, 0, 0, 3, -1]], dtype=DOUBLE), torch.tensor([0.8], dtype=DOUBLE)
    decay = math.exp(-0.8 / 3) if kind == "Gauss-Markov" else 1.0
    moved, F = system.linearize_transition(x, None, h)
    assert_close(moved[:, 4:], decay * x[:, 4:], "rounding")
    assert_close(F[0, 4:, 4:], decay * torch.eye(2, dtype=DOUBLE), "rounding")
    expected = linearize.jacobian(lambda z: system.transition(z, None, h), x, system.layout, system.layout)[1]
    assert_close(F, expected, "rounding")
    # two halves of a step are the step
    Q, half = system.process_noise(h)[0, 4:, 4:], system.process_noise(h / 2)[0, 4:, 4:]
    assert_close(Q, decay * half + half, "rounding")
    variance = {"constant": 0.0, "random walk": 0.1**2 * 0.8, "Gauss-Markov": 0.25 * (1 - decay**2)}[kind]
    assert_close(Q[0, 0], torch.tensor(variance, dtype=DOUBLE), "rounding")
    # what the filter starts from
    prior = fwnkf.Gaussian(torch.zeros(4, dtype=DOUBLE), torch.eye(4, dtype=DOUBLE))
    belief = system.complete_prior(prior)
    assert belief.mean[4:].tolist() == ([1.0, 2.0] if kind == "constant" else [0.0, 0.0])
    assert belief.cov.diagonal()[4:].tolist() == ([0.25, 0.7**2] if kind == "constant" else [0.25, 0.25])
    # names
    assert [part.name for part in system.layout.parts] == ["position", "velocity", "gps_bias"]


def test_adding_a_sensor_leaves_the_system_alone(generator):
    system = Lorenz(LorenzConfig()).double()
    x = torch.randn(3, 3, generator=generator, dtype=DOUBLE)
    before = system.observe(x)
    more = system.with_sensor("sum", Sensor(lambda x: x.sum(-1), R=0.1, channels=1))
    assert more.observation_layout.size == system.observation_layout.size + 1
    assert_same_bits(more.observe(x)[:, :-1], before)
    assert_close(more.observe(x)[:, -1], x.sum(-1), "rounding")
    assert_same_bits(more.transition(x, None, None), system.transition(x, None, None))
    with torch.no_grad():
        for buffer in more.buffers():
            buffer.zero_()
    assert_same_bits(system.observe(x), before)


def test_a_sensor_added_to_a_named_system(generator):
    system = Strapdown(StrapdownConfig(observed="velocity"))
    more = system.with_sensor("gps", Position(PositionConfig())).with_sensor("baro", Barometer(BarometerConfig()))
    assert isinstance(more, ComposedSystem)
    assert list(more.sensor_channels) == ["velocity", "gps", "baro"]
    assert more.layout.size == system.layout.size + 1


def test_the_first_belief_is_that_of_the_motion():
    walk = fwnkf.System.of(
        lambda x: x, lambda x: x, Q=[0.1], R=[1.0], state=["level"], initial_mean=[3.0], initial_std=[2.0]
    )
    bias = [SensorState("bias", std=0.5)]
    tank = Sensor(lambda level, bias: level + bias, R=[0.1], states=bias)
    for system in (walk.with_sensor("tank", tank), fwnkf.System(walk, sensors={"tank": tank})):
        m = system.observation_layout.size
        belief = system.initial_belief(torch.zeros(2, 1, m), torch.zeros(2, 1, m), None)
        assert belief.mean.tolist() == [[3.0, 0.0]] * 2
        assert belief.cov[0].tolist() == [[4.0, 0.0], [0.0, 0.25]]
        assert system.prior().mean.tolist() == [3.0, 0.0]


def test_a_function_for_one_state_serves_batches(generator):
    def of_one(position, velocity, gain=2.0):
        return gain * position @ velocity  # right for a single state only

    def jacobian(position, velocity, gain=2.0):
        return gain * torch.cat((velocity, position))[None]

    options = {"R": 0.1, "channels": 1}
    base = ConstantVelocity(ConstantVelocityConfig(dims=2)).double()
    plain = base.with_sensor("work", Sensor(of_one, **options))
    given = base.with_sensor("work", Sensor(of_one, H=jacobian, **options))
    x = torch.randn(5, 4, generator=generator, dtype=DOUBLE)
    expected = 2 * (x[:, :2] * x[:, 2:]).sum(-1, keepdim=True)
    for system in (plain, given):
        seen, H = system.linearize_observation(x)
        assert_close(seen[:, 2:], expected, "rounding")
        assert_close(H[:, 2], 2 * torch.cat((x[:, 2:], x[:, :2]), -1), "rounding")
    assert_close(plain.observe(x.view(1, 5, 4))[0], plain.observe(x), "rounding")


def test_constants_and_noise_can_be_learned():
    def height(position, scale=1.0, spread=0.3):
        return scale * position

    sensor = Sensor(
        height, R=lambda spread: spread**2, channels=1, learn=["scale", "spread"], positive=["spread"],
        constants={"spread": 0.5},
    )  # fmt: skip
    system = ConstantVelocity(ConstantVelocityConfig(dims=1)).with_sensor("h", sensor)
    assert {name for name, _ in system.named_parameters()} == {"sensors.h.scale", "sensors.h.raw_spread"}
    assert_close(system.measurement_covariance()[1, 1], torch.tensor(0.25))
    (system.observe(torch.ones(1, 2)).sum() + system.measurement_covariance().sum()).backward()
    assert all(bool(parameter.grad) for parameter in system.parameters())
    full = Sensor(lambda position: position, R=[[1.0, 0.2], [0.2, 1.0]], learn=["R"])
    system = ConstantVelocity(ConstantVelocityConfig(dims=2)).with_sensor("gps", full)
    assert not system.diagonal_noise
    assert_close(system.measurement_covariance()[2:, 2:], torch.tensor([[1.0, 0.2], [0.2, 1.0]]))


def test_angles_are_channels():
    compass = Sensor(lambda theta: theta + 0.1, R=[0.01], channels={"bearing": "angle"})
    pendulum = build_system("pendulum", {}).with_sensor("compass", compass)
    assert pendulum.observation_layout.parts[-1].kind == "angle"
    assert float(pendulum.observe(torch.tensor([[math.pi - 0.01, 0.0]]))[0, -1]) < 0


def test_a_sensor_reads_parts_of_other_names_and_comes_back_from_disk(tmp_path, generator):
    tip = fwnkf.System.of(
        lambda tip, dt: tip, lambda tip: tip, state={"tip": 3}, Q=[0.1] * 3, R=[1.0] * 3, dt=0.1, name="test_tip"
    )
    up = Sensor(lambda z, offset: z[..., 2] + offset, R=0.1, channels=1, states=[SensorState("offset")], name="test_up")
    sensors = {"camera": Position(PositionConfig(std=0.1)).reading(position="tip"), "laser": up.reading(z="tip")}
    system = fwnkf.System(tip, sensors=sensors).double()
    model = fwnkf.EKF(system)
    y = torch.randn(2, 10, 4, generator=generator, dtype=DOUBLE)
    again = fwnkf.load(fwnkf.save(model, tmp_path / "model"))
    assert_same_bits(again.run(y).mean, model.run(y).mean)
    assert list(again.system.sensor_channels) == ["camera", "laser"]
    assert again.system.linearity == system.linearity


def test_what_is_not_registered_cannot_be_saved(tmp_path):
    base = ConstantVelocity(ConstantVelocityConfig())
    nameless = base.with_sensor("speed", Sensor(lambda velocity: velocity.norm(), R=0.1, channels=1))
    with pytest.raises(ConfigError, match="sensor 'speed' is not registered"):
        fwnkf.save(fwnkf.EKF(nameless), tmp_path / "model")


WRONG = {
    "there are position, velocity": lambda base: base.with_sensor("s", Sensor(lambda place: place, R=[1.0, 1.0])),
    "has a sensor 'position' already": lambda base: base.with_sensor("position", Position(PositionConfig(dims=2))),
    "has a sensor 'y' already": lambda base: (
        LinearSystem.of(*[torch.eye(1)] * 4)
        .with_sensor("z", Sensor(lambda x: x, R=[1.0]))
        .with_sensor("y", Sensor(lambda x: x, R=[1.0]))
    ),
    "cannot be called": lambda base: fwnkf.System(base, sensors={"a b": Position(PositionConfig(dims=2))}),
    "at least one sensor": lambda base: fwnkf.System(base, sensors={}),
    "more than one part 'velocity'": lambda base: base.with_sensor(
        "s", Sensor(lambda b: b, R=[1.0], states=[SensorState("b")]).reading(b="velocity")
    ),
    "fails for position near": lambda base: base.with_sensor("s", Sensor(lambda position: position[7], R=[1.0])),
    "no argument 'bias'": lambda base: Sensor(lambda position: position, R=[1.0], states=[SensorState("bias")]),
    "size of the measurement is not known": lambda base: Sensor(lambda position: position, R=1.0),
    "which h does not take": lambda base: Sensor(lambda position: position, R=lambda spread: spread),
    "neither a walk nor a mean": lambda base: SensorState("bias", seconds=3.0, walk=0.1),
    "but no place": lambda base: Position(PositionConfig()).reading(place="tip"),
    "give each its own sensor": lambda base: _shared(base),
}


def _shared(base):
    sensor = Position(PositionConfig(dims=2))
    fwnkf.System(base, sensors={"gps": sensor})
    fwnkf.System(Strapdown(StrapdownConfig()), sensors={"gps": sensor})


@pytest.mark.parametrize("message", WRONG)
def test_what_is_refused(message):
    with pytest.raises(ConfigError, match=message):
        WRONG[message](ConstantVelocity(ConstantVelocityConfig()))


@pytest.mark.parametrize(
    "description",
    [{"name": 3, "config": {}}, {"name": "position"}, 7, {"name": "position", "config": {}, "reading": 1}],
)
def test_a_damaged_description_is_refused(description):
    motion = {"name": "constant_velocity", "config": {"dims": 3}}
    with pytest.raises(ConfigError, match="system composed: sensor 'gps'"):
        build_system("composed", {"motion": motion, "sensors": {"gps": description}})
    with pytest.raises(ConfigError, match="system composed: motion"):
        build_system("composed", {"motion": {"kind": 3}, "sensors": {}})


def test_options_of_a_named_system_reach_its_parts():
    system = ConstantVelocity(ConstantVelocityConfig(density=1.0, variance=1.0)).double()
    system.config = dataclasses.replace(system.config, density=2.0, variance=9.0)
    assert system.process_noise(None)[2, 2] == 2.0
    assert system.measurement_covariance()[0, 0] == 9.0
    calibrated = build_system("calibrated_strapdown", {}).double()
    calibrated.config = dataclasses.replace(calibrated.config, gyro_walk=0.5, variance=4.0)
    assert_close(calibrated.process_noise(None)[9, 9], torch.tensor(0.25 * 0.005, dtype=DOUBLE))
    assert calibrated.measurement_covariance()[0, 0] == 4.0
    composed = flying()
    with pytest.raises(ConfigError, match="has no options of its own"):
        composed.config = composed.motion.config


@pytest.mark.parametrize("name", SYSTEM_TENSORS)
def test_tensors_are_found_under_their_old_names(name, tmp_path):
    torch.manual_seed(0)
    system = build_system(name, {})
    tensors = system.state_dict()
    assert set(SYSTEM_TENSORS[name].values()) == set(tensors)
    with torch.no_grad():
        for tensor in tensors.values():
            tensor.add_(torch.rand(tensor.shape))
    model = fwnkf.EKF(system)
    folder = fwnkf.save(model, tmp_path / "model")
    old = {new: before for before, new in SYSTEM_TENSORS[name].items()}
    stored = load_file(folder / "model.safetensors")
    save_file(
        {f"system.{old[key.removeprefix('system.')]}": value for key, value in stored.items()},
        folder / "model.safetensors",
    )
    config = json.loads((folder / "config.json").read_text())
    assert config["system"]["name"] == name
    (folder / "config.json").write_text(json.dumps({**config, "format": 2}))
    again = fwnkf.load(folder)
    for key, value in system.state_dict().items():
        assert_same_bits(again.system.state_dict()[key], value)


def test_a_linear_system_moves_and_other_sensors_see():
    eye = torch.eye(2)
    linear = LinearSystem.of(
        F=eye, H=eye[:1], Q=0.1 * eye, R=eye[:1, :1], layout=(("a", "euclidean", 1), ("b", "euclidean", 1))
    )
    system = fwnkf.System(linear, sensors={"sum": Sensor(lambda a, b: a + b, R=[1.0], linear=True)})
    assert system.linearity == "constant"
    assert not system.takes_dt
    assert system.observe(torch.tensor([[1.0, 2.0]])).tolist() == [[3.0]]
