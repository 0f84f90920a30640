"""DIDO ``denoise``: baselines against scipy and filterpy, metrics against closed forms, the task on its quick set."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from filterpy.kalman import KalmanFilter
from scipy import signal

import fwnkf
from fwnkf import Correction
from fwnkf.identify import CorrectionChoice, VibrationModel, VibrationOptions, cross_spectra
from tasks import results
from tasks.dido import baselines, classical, denoise, notch, scoring
from tasks.dido.denoise import Denoise, run
from tasks.dido.denoise_fit import with_correction
from tasks.dido.fir import apply_fir
from tasks.dido.protocol import AXES

from ...tolerances import assert_close

FOLDER = Path(__file__).parents[3] / "models" / "dido"


def number(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def started(b: np.ndarray, a: np.ndarray, y: torch.Tensor) -> torch.Tensor:
    """scipy's filter as if the first sample had always been there."""
    return torch.from_numpy(signal.lfilter(b, a, y, zi=signal.lfilter_zi(b, a) * y[:, :1].numpy())[0])


# ---- classical baselines --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cutoff", [7.0, 30.0, 120.0])
def test_the_low_pass_is_scipys_butterworth(generator, cutoff):
    y = torch.randn(3, 1000, generator=generator, dtype=torch.float64) + 5
    ours = classical.apply(classical.low_pass(number(cutoff), classical.delays(1000)), y)
    assert_close(ours, started(*signal.butter(2, cutoff, fs=400), y))


@pytest.mark.parametrize(("centre", "quality"), [(34.0, 2.0), (83.0, 10.0), (160.0, 1.0)])
def test_the_notch_is_scipys(generator, centre, quality):
    y = torch.randn(3, 1000, generator=generator, dtype=torch.float64) + 5
    theirs = started(*signal.iirnotch(centre, quality, fs=400), y)
    assert_close(classical.apply(classical.notch(number(centre), number(quality), classical.delays(1000)), y), theirs)
    fixed = notch.moving_notch(y.unsqueeze(-1), torch.full((3, 1000, 1), centre, dtype=torch.float64), quality)
    assert_close(fixed.squeeze(-1), theirs)


def test_a_tracked_notch_follows_a_tone(generator):
    time = torch.arange(8000, dtype=torch.float64) / 400
    hertz = 40 + 2 * time  # from 40 to 80 Hz
    tone = torch.sin(2 * math.pi * (40 * time + time.square()))
    y = (tone + 0.01 * torch.randn(8000, generator=generator, dtype=torch.float64)).expand(1, 1, -1).mT
    centres = notch.track_peaks(y)
    nearest = (centres[0, :, 0] - hertz.unsqueeze(-1)).abs().amin(-1)
    # the window is 1.28 s long, in which the tone moves by 2.6 Hz
    assert float(nearest[2000:].max()) < 5.0
    left = notch.notched(y, centres, 1.0)[0, 2000:, 0].square().mean()
    assert float(left) < 0.05 * float(tone[2000:].square().mean())


def test_the_white_kalman_filter_is_filterpys_in_the_steady_state(generator):
    ratio, y = 1e4, torch.randn(1, 3000, generator=generator, dtype=torch.float64).cumsum(1)
    kf = KalmanFilter(dim_x=2, dim_z=1)
    h = 1 / 400
    kf.F, kf.H, kf.R = np.array([[1, h], [0, 1]]), np.array([[1.0, 0.0]]), np.array([[1.0]])
    kf.Q = ratio * np.array([[h**3 / 3, h**2 / 2], [h**2 / 2, h]])
    kf.x = np.array([[float(y[0, 0])], [0.0]])
    estimates, innovations = [], []
    for value in y[0].tolist():
        kf.predict()
        kf.update(value)
        estimates.append(float(kf.x[0, 0]))
        innovations.append(float(kf.y[0, 0]))
    delay = classical.delays(3000)
    ours = classical.apply(classical.white_kalman(number(ratio), delay), y)
    assert_close(ours[0, 1500:], torch.tensor(estimates, dtype=torch.float64)[1500:])
    innovation = classical.apply(classical.white_innovation(number(ratio), delay), y) - y[:, :1]
    assert_close(innovation[0, 1500:], torch.tensor(innovations, dtype=torch.float64)[1500:])
    assert_close(classical.white_gain(number(ratio))[1], torch.tensor(float(kf.S[0, 0]), dtype=torch.float64))


def test_models_of_single_axes_side_by_side_are_those_models(generator):
    options = VibrationOptions(modes=0, oscillators=2)
    models = [VibrationModel(1, 400.0, options, seed) for seed in range(6)]
    with torch.no_grad():
        for model in models:
            model.coupling.copy_(0.1 * torch.randn(2, 2, generator=generator, dtype=torch.float64))
            model.drive.copy_(0.3 * torch.randn(2, 2, generator=generator, dtype=torch.float64))
    y = torch.randn(1, 300, 6, generator=generator, dtype=torch.float64)
    scale = torch.linspace(0.5, 2.0, 6, dtype=torch.float64)
    joint = baselines.side_by_side(models, options).run(y, scale)
    for i, model in enumerate(models):
        alone = model.run(y[..., i : i + 1], scale[i : i + 1])
        assert_close(joint.mean[..., i], alone.mean[..., 0])
        assert_close(joint.cov[..., i, i], alone.cov[..., 0, 0])


# ---- metrics --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [-3, 0, 5])
def test_lag_is_how_late_an_estimate_is(generator, late):
    smooth = torch.randn(2, 4000, 6, generator=generator, dtype=torch.float64).cumsum(1)
    smooth = smooth - smooth.roll(200, 1)
    assert scoring.lag(smooth.roll(late, 1)[:, 300:-300], smooth[:, 300:-300]) == pytest.approx(2.5 * late, abs=0.3)


def test_a_calibrated_filter_is_consistent_where_its_errors_were_too_large(generator):
    """Errors of twice the stated standard deviation, factors of four: the table shows both."""
    cov = torch.eye(6, dtype=torch.float64).expand(1, 20_000, 6, 6)
    error = 2 * torch.randn(1, 20_000, 6, generator=generator, dtype=torch.float64)
    table = scoring.consistency_by_axis(error, 4 * cov, torch.full((6,), 4.0, dtype=torch.float64))
    for row in table.values():
        assert row["error² / variance before"] == pytest.approx(4.0, rel=0.05)
        assert row["after"] == pytest.approx(1.0, rel=0.05)
        assert row["95 % coverage before"] == pytest.approx(math.erf(0.98 / math.sqrt(2)), abs=0.01)
        assert row["coverage after"] == pytest.approx(0.95, abs=0.01)


def test_the_level_of_all_covariances_leaves_the_corrected_estimates(generator):
    y = torch.randn(2, 2100, 6, generator=generator, dtype=torch.float64)
    truth = y.roll(1, 1)
    spectra = cross_spectra(y)
    model = VibrationModel(6, 400.0, VibrationOptions(modes=2))
    choice = CorrectionChoice(Correction(4), 1e-3, {})
    filters = [with_correction(model.to_filter(spectra.scale, level), y, truth, choice) for level in (1.0, 1.3)]
    one, two = (run(each, y[:, :600]) for each in filters)
    torch.testing.assert_close(one.mean, two.mean)
    torch.testing.assert_close(1.3 * one.cov, two.cov)
    assert with_correction(filters[0], y, truth, choice._replace(part=None)) is filters[0]


def test_an_fir_filter_is_refitted_to_flights_with_gaps(generator):
    """Where every other sample is missing, the last value counts for twice its length."""
    y = torch.randn(1, 3000, 1, generator=generator, dtype=torch.float64).cumsum(1)
    present = torch.zeros_like(y, dtype=torch.bool)
    present[:, ::2] = True
    tuned = {"fir": {"taps": 4, "ridge": 1e-9}}
    error = {}
    for name, mask in (("gaps", present), ("regular", torch.ones_like(present))):
        weights = denoise.refitted((y, y, mask, None), tuned)
        error[name] = float((apply_fir(weights, baselines.hold(y, present)) - y).square().mean())
    assert error["gaps"] <= error["regular"]


# ---- the task -------------------------------------------------------------------------------------------------------


def test_the_shipped_filter_and_its_baselines_on_the_quick_set(dido_recordings):
    task, kept = Denoise(), results.read(FOLDER)
    data = task.load(quick=True)
    scores = dict(task.baselines(data, kept))
    assert tuple(scores) == baselines.METHODS
    own = task.evaluate(fwnkf.load(FOLDER), data)
    for name, value in kept.quick.items():
        assert own.metrics[name] == pytest.approx(value, rel=1e-6), name
    assert own.metrics["ratio"] == pytest.approx(task.compare(own, scores)["ratio"])
    assert own.metrics["ratio"] < min(scores[name].metrics["ratio"] for name in baselines.CLASSICAL)
    # a flight's ratios and the ratio of all are of the same errors
    assert set(own.by_recording) == set(data.names) == set(scores["raw"].by_recording)


def test_static_baselines_measured_now_are_those_of_the_results(dido_recordings):
    task, kept = Denoise(), results.read(FOLDER)
    data = task.load()
    for name in ("raw", "notches_tuned"):
        now = scoring.rmse(baselines.estimate(name, kept.details["tuned"], {}, data.y).mean, data.truth)
        assert [now[axis] for axis in AXES] == pytest.approx(
            [kept.baselines[name].metrics[f"rmse_{axis}"] for axis in AXES], rel=1e-6
        )
