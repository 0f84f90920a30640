"""Searches on measured spectra, beside the closed form of the process that the measurements are drawn from."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.signal import butter, sosfiltfilt

from tasks.when import recorded, recordings, search
from tasks.when.cells import simulated
from tasks.when.linear import after, kalman, response
from tasks.when.problem import WHITE, Disturbance
from tasks.when.recorded import Channel, Pair, Recorded, impulse_response, spectra
from tasks.when.search import Bench
from tests.tasks.when.test_linear import run

BAND = Disturbance("band", 10.0, 0.3, 1.0)


def channel(seed: int = 0) -> Channel:
    pairs = [
        [Pair(measured, true) for true, measured in zip(*simulated(BAND, 6, 12_000, each), strict=True)]
        for each in (seed, seed + 1)
    ]
    return Channel(100.0, *pairs, lowest_hz=4.0)


@pytest.fixture(scope="module")
def bench() -> Recorded:
    return Recorded(channel())


def test_measured_spectra_are_those_of_the_process():
    omega, measured, true, cross = spectra(channel().train, 512)
    exact = Bench(BAND)
    total, signal = (np.interp(omega, exact.omega, density) for density in (exact.total, exact.signal))
    inside = (omega > 0.1) & (omega < 2.5)
    assert np.mean(measured[inside] / total[inside]) == pytest.approx(1.0, rel=0.05)
    slow = (omega > 0.03) & (omega < 0.2)
    assert np.mean(true[slow] / signal[slow]) == pytest.approx(1.0, rel=0.1)
    assert np.mean(np.abs(cross[slow]) / signal[slow]) == pytest.approx(1.0, rel=0.1)


def test_the_error_by_spectra_is_that_of_running_over_the_same_recordings():
    same = channel()
    bench = Recorded(same._replace(test=same.train))
    estimator = kalman(bench.with_r(3.0))
    b, a = search.notch_sections(np.log([10.0]), np.log([3.0]))
    for each in (estimator, after((b[0], a[0]), estimator)):
        by_spectra = float(bench.error(response(each, bench.omega)[None])[0]) * bench.scale**2
        assert bench.score(each).variance == pytest.approx(by_spectra, rel=0.03)


def test_the_impulse_response_is_that_of_a_run(bench):
    estimator = kalman(bench.with_r(2.0))
    found = impulse_response(estimator)
    impulse = np.eye(1, 300)[0]
    np.testing.assert_allclose(found[:300], run(estimator, impulse)[: len(found)], atol=1e-9)


def test_noise_states_and_phi_come_near_the_closed_form(bench):
    exact = {"told": search.states_told(Bench(BAND)), "best": search.best_r(Bench(BAND))}
    least, plain = (math.sqrt(each.variance) for each in exact.values())
    found = {name: math.sqrt(estimate(bench).variance) for name, estimate in recorded.ESTIMATORS.items()}
    assert found["raw"] == pytest.approx(math.hypot(1.0, WHITE), rel=0.03)
    assert found["best R"] == pytest.approx(plain, rel=0.1)
    for name in ("states fitted", "states trained", "Φ", "FIR"):
        assert found[name] == pytest.approx(least, rel=0.15), name
    assert min(found.values()) > 0.95 * least


def test_frequencies_scale_with_the_rate(bench):
    """The same samples at another rate are the same problem."""
    one = channel()
    faster = Recorded(one._replace(rate=400.0, lowest_hz=16.0))
    assert search.best_r(faster).variance == pytest.approx(search.best_r(bench).variance, rel=1e-9)
    assert faster.disturbance.hz == pytest.approx(bench.disturbance.hz)
    assert bench.disturbance.hz == pytest.approx(BAND.hz, rel=0.15)


def test_a_channel_without_truth_is_compared_with_its_slow_part():
    values = simulated(BAND, 1, 6000, 5)[1][0]
    one = recordings.slow_channel("broad", 1000.0, [values], [values[:3000]])
    expected = sosfiltfilt(butter(4, recordings.SLOW_HZ["broad"], fs=1000.0, output="sos"), values)
    np.testing.assert_allclose(one.train[0].true, expected)
    assert (len(one.test[0].measured), one.lowest_hz) == (3000, recordings.SLOW_HZ["broad"])


def test_missing_samples_lie_between_their_neighbours():
    np.testing.assert_allclose(recordings.filled(np.array([1.0, np.nan, 3.0, np.nan])), [1.0, 2.0, 3.0, 3.0])


def test_lines_are_found_without_truth(bench):
    assert bench.found.lines[0].hz == pytest.approx(BAND.hz, rel=0.1)
    assert bench.found.lines[0].std * bench.scale == pytest.approx(BAND.std, rel=0.2)
