"""DIDO in the accuracy table: rungs against scipy and filterpy, the fit against a scan, figures against published."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from filterpy.kalman import KalmanFilter
from scipy import signal
from scipy.linalg import solve_discrete_are
from tasks.dido.protocol import AXES

import fwnkf
from fwnkf.core import linearize
from fwnkf.data import catalogue, dido
from fwnkf.systems.multirotor import Multirotor, MultirotorConfig
from tasks.dido import attitude, fit
from tasks.dido import baselines as ladder
from tasks.dido import dido as accuracy
from tasks.dido import protocol as dido_tasks

from ..tolerances import assert_close

MODELS = Path(__file__).parents[2] / "models"
PUBLISHED = {
    "raw": (0.271, 0.344, 0.0563, 0.0387),
    "low_pass_px4": (0.160, 0.0835, 0.0182, 0.0150),
    "low_pass_tuned": (0.0513, 0.0602, 0.0182, 0.0147),
    "notches_tuned": (0.0491, 0.0604, 0.0171, 0.0130),
    "white_kf_likelihood": (0.0598, 0.0633, 0.0162, 0.0121),
    "white_kf_tuned": (0.0562, 0.0558, 0.0155, 0.0111),
}
"""Force x and z, gyro x and y, of the protocol's table."""


def need_recordings() -> None:
    if not os.environ.get("FWNKF_DATA") or not dido.find(catalogue.folder_of("dido")):
        pytest.skip("FWNKF_DATA names no folder with DIDO")


def need_model(name: str) -> dict:
    if not (MODELS / name / "figures.json").is_file():
        pytest.skip(f"models/{name} is not there")
    return json.loads((MODELS / name / "figures.json").read_text(encoding="utf-8"))


def number(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def started(b: np.ndarray, a: np.ndarray, y: torch.Tensor) -> torch.Tensor:
    """scipy's filter as if the first sample had always been there."""
    return torch.from_numpy(signal.lfilter(b, a, y, zi=signal.lfilter_zi(b, a) * y[:, :1].numpy())[0])


# ---- the rungs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cutoff", [7.0, 30.0, 120.0])
def test_the_low_pass_is_scipys_butterworth(generator, cutoff):
    y = torch.randn(3, 1000, generator=generator, dtype=torch.float64) + 5
    ours = ladder.apply(ladder.low_pass(number(cutoff), ladder.delays(1000)), y)
    assert_close(ours, started(*signal.butter(2, cutoff, fs=400), y))


@pytest.mark.parametrize(("centre", "quality"), [(34.0, 2.0), (83.0, 10.0), (160.0, 1.0)])
def test_the_notch_is_scipys(generator, centre, quality):
    y = torch.randn(3, 1000, generator=generator, dtype=torch.float64) + 5
    ours = ladder.apply(ladder.notch(number(centre), number(quality), ladder.delays(1000)), y)
    assert_close(ours, started(*signal.iirnotch(centre, quality, fs=400), y))


def test_the_white_kalman_filter_is_filterpys_once_settled(generator):
    ratio, y = 1e4, torch.randn(1, 3000, generator=generator, dtype=torch.float64).cumsum(1)
    kf = KalmanFilter(dim_x=2, dim_z=1)
    h = 1 / 400
    kf.F, kf.H, kf.R = np.array([[1, h], [0, 1]]), np.array([[1.0, 0.0]]), np.array([[1.0]])
    kf.Q = ratio * np.array([[h**3 / 3, h**2 / 2], [h**2 / 2, h]])
    kf.x = np.array([[float(y[0, 0])], [0.0]])
    found, innovations = [], []
    for value in y[0].tolist():
        kf.predict()
        kf.update(value)
        found.append(float(kf.x[0, 0]))
        innovations.append(float(kf.y[0, 0]))
    delay = ladder.delays(3000)
    ours = ladder.apply(ladder.white_kalman(number(ratio), delay), y)
    assert_close(ours[0, 1500:], torch.tensor(found, dtype=torch.float64)[1500:])
    seen = ladder.apply(ladder.white_innovation(number(ratio), delay), y) - y[:, :1]
    assert_close(seen[0, 1500:], torch.tensor(innovations, dtype=torch.float64)[1500:])
    assert_close(ladder.white_gain(number(ratio))[1], torch.tensor(float(kf.S[0, 0]), dtype=torch.float64))


@pytest.mark.parametrize("rung", ladder.RUNGS)
def test_figures_are_those_published(rung):
    need_recordings()
    figures = need_model("dido")
    found = figures["references"][rung]
    axes = ("force_x", "force_z", "gyro_x", "gyro_y")
    # untuned rungs to 5 %: a 400 Hz grid can be laid in several ways; tuned ones to 12 %, and better is welcome
    for axis, value in zip(axes, PUBLISHED[rung], strict=True):
        low, high = (0.95, 1.05) if rung in ("raw", "low_pass_px4") else (0.85, 1.12)
        assert low * value < found[axis] < high * value, axis


def test_a_rung_measured_now_is_that_of_the_figures():
    need_recordings()
    figures = need_model("dido")
    task = dido_tasks.denoise_task("test", dido_tasks.flights(dido_tasks.TEST))
    for rung in ("raw", "notches_tuned"):
        found = accuracy.rmse(ladder.estimates(figures["tuned"], rung, task.y, AXES), task.truth)
        assert found == pytest.approx(figures["references"][rung], rel=1e-6)


# ---- the fit --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small() -> fit.VibrationModel:
    model = fit.VibrationModel(fit.FitOptions(modes=2), seed=3)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(5)
        model.coupling.copy_(0.05 * torch.randn(12, 12, generator=generator, dtype=torch.float64))
        model.drive.copy_(0.2 * torch.randn(12, 12, generator=generator, dtype=torch.float64))
    return model


def test_the_riccati_equation_is_solved_as_scipy_does(small):
    with torch.no_grad():
        F, H, Q, R, _, _ = small.settled()
        ours = fit.riccati(F, H, Q, R)
    theirs = solve_discrete_are(F.mT.numpy(), H.mT.numpy(), Q.numpy(), R.numpy())
    # scipy's Schur method loses digits on poles this near to the circle
    torch.testing.assert_close(ours, torch.from_numpy(theirs), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("inflate", [1.0, 1.7])
def test_the_filter_is_the_fitted_model(small, generator, inflate):
    scale = torch.linspace(0.2, 2.0, 6, dtype=torch.float64)
    y = scale * torch.randn(2, 1500, 6, generator=generator, dtype=torch.float64)
    ours, nis = accuracy.filtered(fit.as_filter(small, scale, inflate), y)
    settled, by_record = accuracy.settled_run(small, y, scale, inflate)
    torch.testing.assert_close(ours[:, -200:], settled[:, -200:], rtol=1e-4, atol=1e-5)  # starts differ and die out
    assert nis == pytest.approx(float(by_record.mean()), rel=0.05)


def test_the_error_over_frequencies_is_that_over_time(small, generator):
    walk = torch.randn(4, 12_000, 6, generator=generator, dtype=torch.float64).cumsum(1)
    truth = walk - torch.nn.functional.pad(walk, (0, 0, 400, 0))[:, :12_000]
    y = truth + truth.std() * torch.randn(truth.shape, generator=generator, dtype=torch.float64)
    spectra = fit.cross_spectra(y, truth)
    assert float(spectra.weight.sum()) == pytest.approx(1.0)
    _, mse = fit.objective(small, spectra, 1.0)
    estimate, _ = accuracy.settled_run(small, y, spectra.scale, 1.0)
    over_time = ((estimate - truth) / spectra.scale)[:, 500:].square().mean((0, 1))
    # a windowed estimate of the spectrum: a few percent
    torch.testing.assert_close(mse.detach(), over_time, rtol=0.1, atol=0.0)


@pytest.mark.parametrize("late", [-3, 0, 5])
def test_lag_is_what_an_estimate_is_late(generator, late):
    smooth = torch.randn(2, 4000, 6, generator=generator, dtype=torch.float64).cumsum(1)
    smooth = smooth - smooth.roll(200, 1)
    assert accuracy.lag(smooth.roll(late, 1)[:, 300:-300], smooth[:, 300:-300]) == pytest.approx(2.5 * late, abs=0.3)


# ---- attitude -------------------------------------------------------------------------------------------------------


def test_the_multirotors_jacobians_are_those_of_its_functions(generator):
    system = Multirotor(MultirotorConfig(dt=0.05)).double()
    origin = system.layout.origin(torch.zeros(1, dtype=torch.float64)).expand(4, -1)
    x = system.layout.boxplus(origin, 0.5 * torch.randn(4, 11, generator=generator, dtype=torch.float64))
    u = torch.randn(4, 6, generator=generator, dtype=torch.float64)
    mean, F = system.linearize_transition(x, u, None)
    by_hand = linearize.jacobian(lambda z: system.transition(z, u, None), x, system.layout, system.layout)
    assert_close(mean, by_hand[0])
    assert_close(F, by_hand[1])
    seen, H = system.linearize_observation(x)
    theirs = linearize.jacobian(system.observe, x, system.layout, system.observation_layout)
    assert_close(seen, theirs[0])
    assert_close(H.expand_as(theirs[1]), theirs[1])


def test_a_drone_that_hovers_tilted_is_found_level_by_drag_and_not_by_gravity():
    """Thrust along z and drag: accelerating forwards, the force stays along z although the drone is pitched."""
    pitch, drag, steps, h = 0.1, 0.3, 4000, 1 / 400
    q = torch.tensor([math.cos(pitch / 2), 0.0, math.sin(pitch / 2), 0.0], dtype=torch.float64)
    speed, forces = 0.0, []
    for _ in range(steps):
        forces.append([-drag * speed, 0.0, 9.81 * math.cos(pitch)])
        speed += h * (9.81 * math.sin(pitch) - drag * speed)
    imu = torch.cat((torch.zeros(steps, 3), torch.tensor(forces)), -1).double()
    known = attitude.Calibration((0.0,) * 6, drag, (0.0, 0.0))
    made = dido_tasks.Flight("made", imu, imu, q.expand(steps, 4), torch.zeros(steps, 3).double(), "")
    level = torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64).expand(steps, 4)
    by_gravity = attitude.inclination(made, level)
    (by_drag,), _ = attitude.scores(attitude.new_filter(known), [made], known)
    # both start level, off by the whole pitch; the drone speeds up, and only drag says why
    assert by_gravity == pytest.approx(math.degrees(pitch), rel=1e-6)
    assert by_drag < 0.8 * by_gravity


# ---- what is shipped ------------------------------------------------------------------------------------------------


def test_the_shipped_denoiser_gives_its_figures():
    need_recordings()
    figures = need_model("dido")
    rows = list(accuracy.measure_denoise(MODELS, quick=True))
    own = {row["metric"].removeprefix("rmse_"): row["value"] for row in rows if row["method"] == "fwnkf"}
    for name, value in figures["quick"].items():
        assert own[name] == pytest.approx(value, rel=0.01), name
    assert {row["command"] for row in rows} == {accuracy.COMMAND}


def test_the_shipped_attitude_filter_gives_its_figures():
    need_recordings()
    pytest.importorskip("vqf")
    pytest.importorskip("ahrs")
    figures = need_model("dido-attitude")
    rows = list(accuracy.measure_attitude(MODELS, quick=True))
    (own,) = (row["value"] for row in rows if row["method"] == "fwnkf" and row["metric"] == "inclination_deg")
    assert own == pytest.approx(figures["quick"]["inclination_deg"], rel=0.01)


@pytest.mark.parametrize("name", ["dido", "dido-attitude"])
def test_a_model_folder_is_small_and_its_card_speaks_of_its_figures(name):
    figures = need_model(name)
    assert sum(path.stat().st_size for path in (MODELS / name).iterdir()) < 1_000_000
    assert f"{figures['mean']['ratio']:.3f}" in (MODELS / name / "README.md").read_text(encoding="utf-8")
    assert fwnkf.load(MODELS / name).name == "fwnkf"
