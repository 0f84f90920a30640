"""Parts together: against a Kalman filter whose state holds the same noise, and untrained parts that change nothing."""

from __future__ import annotations

import math

import pytest
import torch

import fwnkf
from fwnkf import GRU, MLP, Drift, Level, Lines, Modes, Orders
from fwnkf.core.tree import named_leaves

from .. import systems
from ..conformance.cases import shake
from ..tolerances import assert_close, assert_same_bits

STEP = 0.1
SENSORS = ("gps", "baro")
TURN = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)


def given() -> dict[str, torch.Tensor]:
    return {name: value for name, value in systems.continuous_matrices(torch.float64, True).items() if name != "B"}


def weighted(noise, **parts) -> fwnkf.FWNKF:
    system = fwnkf.LinearSystem.of(**given(), continuous=True, dt=STEP, channels=SENSORS)
    return fwnkf.FWNKF(system, noise=noise, **parts).requires_grad_(False)


def drift_by_hand(seconds: float) -> tuple[torch.Tensor, torch.Tensor]:
    """``dν = -ν / seconds dt + noise`` with unit variance: drift matrix and spectral density."""
    one = torch.eye(1, dtype=torch.float64)
    return -one / seconds, 2 * one / seconds


def line_by_hand(hz: float, bandwidth: float) -> tuple[torch.Tensor, torch.Tensor]:
    """An oscillator of unit variance, whose correlation falls as ``exp(-π bandwidth t)``."""
    decay = math.pi * bandwidth * torch.eye(2, dtype=torch.float64)
    return 2 * math.pi * hz * TURN - decay, 2 * decay


def by_hand(blocks: list[tuple[torch.Tensor, torch.Tensor]], C: list[list[float]]) -> fwnkf.KF:
    """A Kalman filter on the system augmented by these noise states, of which ``C`` is measured."""
    matrices = given()
    drifts, densities = zip(*blocks, strict=True)
    return fwnkf.KF(
        F=torch.block_diag(matrices["F"], *drifts),
        Q=torch.block_diag(matrices["Q"], *densities),
        H=torch.cat((matrices["H"], torch.tensor(C, dtype=torch.float64)), -1),
        R=matrices["R"],
        continuous=True,
        dt=STEP,
    )


def compare(model: fwnkf.FWNKF, plain: fwnkf.KF, irregular: bool, generator: torch.Generator) -> None:
    y = torch.randn(3, 50, 2, generator=generator, dtype=torch.float64)
    mask = torch.rand(y.shape, generator=generator) > 0.2
    dt = 2 * STEP * torch.rand(3, 50, generator=generator, dtype=torch.float64) if irregular else None
    ours, theirs = model.run(y, mask=mask, dt=dt), plain.run(y, mask=mask, dt=dt)
    assert_close(ours.mean, theirs.mean[..., :3])
    assert_close(ours.cov, theirs.cov[..., :3, :3])
    assert_close(ours.innovation_cov, theirs.innovation_cov)
    assert_close(torch.cat((ours.state.mean, ours.state.noise), -1), theirs.state.mean)
    assert_close(ours.state.cov, theirs.state.cov)


@pytest.mark.parametrize("irregular", [False, True])
def test_a_drift_is_a_first_order_gauss_markov_state(generator, irregular):
    model = weighted(Drift(seconds=0.7, std=0.4))
    plain = by_hand([drift_by_hand(0.7)] * 2, [[0.4, 0.0], [0.0, 0.4]])
    compare(model, plain, irregular, generator)


def test_the_drift_of_each_channel_has_its_own_numbers(generator):
    model = weighted(Drift())
    model.noise_states.set(seconds=[0.7, 3.0], std=[0.4, 0.9])
    plain = by_hand([drift_by_hand(0.7), drift_by_hand(3.0)], [[0.4, 0.0], [0.0, 0.9]])
    compare(model, plain, True, generator)


@pytest.mark.parametrize("irregular", [False, True])
def test_lines_drift_and_modes_together_are_the_augmented_system(generator, irregular):
    line, mode, phase = (2.0, 0.5), (3.5, 0.2), 1.1
    parts = [
        Lines(hz=line[0], bandwidth_hz=line[1], std=[[0.3], [0.6]]),
        Drift(seconds=0.7, std=0.4),
        Modes(hz=mode[0], bandwidth_hz=mode[1], std=[[0.2], [0.5]], phase=[[0.0], [phase]]),
    ]
    model = weighted(parts)
    assert [type(item).__name__ for item in model.noise_parts()] == ["LineStates", "DriftStates", "ModeStates"]
    blocks = [line_by_hand(*line)] * 2 + [drift_by_hand(0.7)] * 2 + [line_by_hand(*mode)]
    C = [
        [0.3, 0.0, 0.0, 0.0, 0.4, 0.0, 0.2, 0.0],
        [0.0, 0.0, 0.6, 0.0, 0.0, 0.4, 0.5 * math.cos(phase), 0.5 * math.sin(phase)],
    ]
    compare(model, by_hand(blocks, C), irregular, generator)


@pytest.mark.parametrize(("sensor", "row"), [("gps", 0), ("baro", 1)])
def test_noise_of_a_sensor_is_in_its_channels_alone(generator, sensor, row):
    model = weighted({sensor: [Lines(hz=2.0, bandwidth_hz=0.5, std=0.3), Drift(seconds=0.7, std=0.4)]})
    C = [[0.3, 0.0, 0.4] if channel == row else [0.0, 0.0, 0.0] for channel in range(2)]
    compare(model, by_hand([line_by_hand(2.0, 0.5), drift_by_hand(0.7)], C), True, generator)
    assert not model.prepare().noise.C[1 - row].any()


def test_parts_of_several_sensors_have_their_own_states(generator):
    model = weighted({"gps": Drift(seconds=0.7, std=0.4), "baro": Lines(hz=2.0, bandwidth_hz=0.5, std=0.3)})
    plain = by_hand([drift_by_hand(0.7), line_by_hand(2.0, 0.5)], [[0.4, 0.0, 0.0], [0.0, 0.3, 0.0]])
    compare(model, plain, True, generator)


# ---- everything in one filter --------------------------------------------------------------------------------------

ROTORS = Orders(2, 2, hz=0.3, hz_std=0.3, speed_std=0.5, std=0.3, bandwidth_hz=0.5)


def inputs(generator: torch.Generator, steps: int = 20) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.randn(2, steps, 2, generator=generator, dtype=torch.float64)
    u = torch.randn(2, steps, 3, generator=generator, dtype=torch.float64)  # that of the system, then two speeds
    u[:, :, 1:] = u[:, :, 1:].abs()
    u[:, 5:9, 2] = torch.nan
    return y, u


@pytest.mark.parametrize("level", [Level(0.5), Level(0.5, of="each"), Level(0.5, of="all"), None], ids=str)
def test_an_untrained_encoder_and_residual_change_no_bit(generator, level):
    y, u = inputs(generator)
    plain, whole = (
        fwnkf.FWNKF(systems.wave(), noise=[ROTORS, Drift(0.5, std=0.2)], level=level, **networks).run(y, u)
        for networks in ({}, {"encoder": GRU(8), "residual": MLP(8)})
    )
    for name in ("mean", "cov", "innovation", "innovation_cov"):
        assert_same_bits(getattr(whole, name), getattr(plain, name), name)
    if level is not None:
        assert bool((whole.state.levels[0] != plain.state.levels[0].new_tensor(float(level.of == "all"))).all())


def test_a_saved_filter_and_state_of_everything_go_on_with_the_same_bits(generator, tmp_path):
    y, u = inputs(generator)
    noise = {"y": [ROTORS, Drift(0.5, std=0.2)]}
    model = fwnkf.FWNKF(systems.wave(), noise=noise, level=Level(0.5, of="each"), encoder=GRU(8), residual=MLP(8))
    shake(model, 0.1).requires_grad_(False)
    whole = model.run(y, u)
    state = model.run(y[:, :7], u[:, :7]).state
    # between a prediction and its measurement, where the encoder has read and time has passed
    ahead = model.predict(state, u[:, 7])
    loaded = fwnkf.load(fwnkf.save(model, tmp_path))
    for before in (state, ahead):
        again = fwnkf.load_state(loaded, fwnkf.dump_state(model, before))
        for (name, mine), (_, theirs) in zip(named_leaves(again), named_leaves(before), strict=True):
            assert_same_bits(mine, theirs, name)
    following, out = loaded.update(fwnkf.load_state(loaded, fwnkf.dump_state(model, ahead)), y[:, 7])
    assert_same_bits(out.mean, whole.mean[:, 7])
    rest = loaded.run(y[:, 8:], u[:, 8:], state=following)
    assert_same_bits(rest.mean, whole.mean[:, 8:])
    assert_same_bits(rest.cov, whole.cov[:, 8:])
