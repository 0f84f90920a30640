"""Lines and their sources on simulated flights with known causes, and on noise and fixed lines that have none."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from fwnkf.data.flights import flight
from fwnkf.diagnosis.evidence import analyse
from fwnkf.diagnosis.orders import fold, integration_gain, track_orders
from fwnkf.diagnosis.result import Peak
from fwnkf.diagnosis.ridges import _best_path, _best_scores, find_ridge, rank_correlation, with_commands
from fwnkf.diagnosis.rotors import harmonic_series, name_lines
from fwnkf.diagnosis.rules import lines
from fwnkf.diagnosis.spectra import even_grid, grid_waterfall
from fwnkf.diagnosis.thresholds import THRESHOLDS
from fwnkf.logs.log import Stream

CHANNELS = ["gyro_x", "gyro_y", "gyro_z"]


def gyro_grid(flown):
    return even_grid(flown.imu_time, flown.gyro)


@pytest.mark.parametrize("cause", ["rotor_vibration", "aliasing"])
@pytest.mark.parametrize("seed", range(4))
def test_the_right_rotor_is_named_from_its_speed(cause, seed):
    flown = flight(cause, seed=seed, seconds=30.0)
    figures = flown.causes[0].figures
    order = track_orders(gyro_grid(flown), CHANNELS, flown.rotor_time, flown.rotor)[0]
    assert (order.rotor, order.harmonic) == (figures["rotor"], figures["harmonic"])
    assert order.frequency == pytest.approx(figures["frequency_hz"], rel=0.01)
    assert (order.origin > flown.rate / 2) == (cause == "aliasing")


@pytest.mark.parametrize("cause", [None, "vibration", "clipping", "drift"])
def test_no_rotor_is_claimed_where_none_is_heard(cause):
    for seed in range(3):
        flown = flight(cause, seed=seed, seconds=30.0)
        assert track_orders(gyro_grid(flown), CHANNELS, flown.rotor_time, flown.rotor) == []


def test_a_fixed_line_at_the_mean_speed_of_a_rotor_does_not_follow_it():
    flown = flight(seed=8, seconds=30.0)
    grid = gyro_grid(flown)
    tone = 0.2 * np.sin(2 * np.pi * flown.rotor[:, 0].mean() * np.arange(len(grid.runs[0])) / grid.rate)
    grid = grid._replace(runs=(grid.runs[0] + tone[:, None],))
    assert track_orders(grid, CHANNELS, flown.rotor_time, flown.rotor) == []
    lines = name_lines(grid, CHANNELS, rotor=(flown.rotor_time, flown.rotor))
    assert lines.peaks[0].label.startswith("fixed")


@pytest.mark.parametrize("seed", range(3))
def test_a_sweep_is_found_without_speeds_and_follows_the_commands(seed):
    flown = flight("rotor_vibration", seed=seed, seconds=40.0)
    ridge = find_ridge(gyro_grid(flown), range(3))
    assert ridge is not None
    rotor = flown.rotor[:, int(flown.causes[0].figures["rotor"]) - 1]
    assert ridge.mean == pytest.approx(rotor.mean(), rel=0.01)
    truth = np.interp(ridge.time, flown.rotor_time, rotor)
    assert stats.spearmanr(ridge.frequency, truth).statistic > 0.9
    assert {1, 2} <= set(ridge.harmonics)
    assert with_commands(ridge, flown.motor_time, flown.motor).correlation > 0.9


@pytest.mark.parametrize("seed", range(3))
def test_a_folded_sweep_falls_when_the_commands_rise(seed):
    flown = flight("aliasing", seed=seed, seconds=40.0)
    lines = name_lines(gyro_grid(flown), CHANNELS, motor=(flown.motor_time, flown.motor))
    assert lines.ridge is not None
    assert lines.ridge.correlation < -0.8
    assert lines.peaks[0].origin == pytest.approx(flown.causes[0].figures["origin_hz"], rel=0.02)


@pytest.mark.parametrize("cause", [None, "vibration", "gaps"])
def test_nothing_sweeps_where_nothing_does(cause):
    assert all(find_ridge(gyro_grid(flight(cause, seed=seed, seconds=30.0)), range(3)) is None for seed in range(3))


def test_a_line_that_is_off_for_half_of_the_time_has_the_frequency_of_the_other_half(rng):
    """A vibrating telephone: where it is still, the path through the waterfall is chance."""
    time = np.arange(16_000) / 200
    frequency = 44 - 2 * (time - 20) / 40  # falls slowly while it is on, from 20 to 60 s
    on = (time > 20) & (time < 60)
    line = np.where(on, np.sin(2 * np.pi * np.cumsum(frequency) / 200), 0.0)
    grid = even_grid(time, line[:, None] * [3.0, 2.0, 1.0] + rng.normal(size=(len(time), 3)))
    lines = name_lines(grid, CHANNELS)
    assert lines.ridge is not None
    assert lines.ridge.mean == pytest.approx(43.0, rel=0.01)
    assert set(CHANNELS[:2]) <= {peak.channel for peak in lines.peaks if abs(peak.frequency - 43) < 0.5}


def test_the_batched_paths_are_those_of_one_at_a_time():
    stack = np.random.default_rng(0).normal(size=(5, 30, 40))
    np.testing.assert_allclose(_best_scores(stack), [_best_path(logs)[1] for logs in stack])


def test_rank_correlation_is_spearmans():
    a, b = np.random.default_rng(1).normal(size=(2, 200))
    assert rank_correlation(a, a + b) == pytest.approx(stats.spearmanr(a, a + b).statistic)


def test_folding_and_gain_are_those_of_averaged_samples():
    """A sine far above the sampling rate, averaged over every sample, against the closed forms."""
    rate, inner = 200.0, 200
    time = np.arange(4000 * inner) / (rate * inner)
    for frequency in (170.0, 233.0, 385.0):
        averaged = np.sin(2 * np.pi * frequency * time).reshape(-1, inner).mean(1)
        density = np.abs(np.fft.rfft(averaged * np.hanning(len(averaged))))
        assert density.argmax() * rate / len(averaged) == pytest.approx(float(fold(frequency, rate)), abs=0.06)
        assert np.sqrt(2) * averaged.std() == pytest.approx(integration_gain(frequency, rate), rel=0.01)


def test_a_waterfall_averages_powers_and_shows_gaps():
    generator = np.random.default_rng(2)
    time = np.r_[np.arange(4000) / 200, 40 + np.arange(4000) / 200]
    values = generator.normal(size=8000) * np.sqrt(100)
    grid = even_grid(time, values)
    full, short = grid_waterfall(grid, 0), grid_waterfall(grid, 0, rows=10)
    assert not ((full.time > 20) & (full.time < 40)).any()
    assert short.density.shape == (10, len(full.frequency))
    assert full.density[:, 5:-1].mean() == pytest.approx(1.0, rel=0.05)
    assert short.density[:, 5:-1].mean() == pytest.approx(1.0, rel=0.08)


def test_series_need_three_lines():
    assert harmonic_series([20.0, 41.0, 77.0], 0.5) == (None, {})
    assert harmonic_series([20.0, 40.0], 0.5) == (None, {})
    assert harmonic_series([20.0, 40.1, 59.9, 77.0], 0.5)[0] == 20.0


def test_a_rotor_keeps_its_number_where_others_never_turn():
    """Logs leave out rotors that never turn: the names of the columns count, not their order."""
    flown = flight("rotor_vibration", seed=2, seconds=20.0)
    number = int(flown.causes[0].figures["rotor"])
    gyro = Stream("gyro", flown.imu_time, dict(zip(CHANNELS, flown.gyro.T, strict=True)), role="gyro")
    speeds = {f"rotor_{index + 3}": values for index, values in enumerate(flown.rotor.T)}
    part = analyse("gyro", {"gyro": gyro, "rotor": Stream("rotor", flown.rotor_time, speeds)}, THRESHOLDS)
    assert part.peaks[0].rotor == number + 2
    assert list(part.waterfalls[0].tracks) == [name.replace("_", " ") for name in speeds]


def test_harmonics_of_a_folded_sweep_come_from_multiples_of_its_source():
    """A line that falls when commands rise is 250 Hz less its source; its double is not 250 Hz less the double."""
    rate, time = 250.0, np.arange(10_000) / 250
    speed = 155 + 6 * np.sin(0.4 * time) + 4 * np.sin(0.13 * time + 1)
    turns = 2 * np.pi * np.cumsum(speed) / rate
    noise = 0.1 * np.random.default_rng(0).normal(size=(len(time), 3))
    lines = np.sin(turns) + 0.7 * np.sin(2 * turns) + 0.5 * np.sin(3 * turns)
    command = (time[::10], np.repeat(speed[::10, None] / 300, 2, 1))
    named = name_lines(even_grid(time, noise + 0.3 * lines[:, None]), CHANNELS, motor=command)
    origins = {peak.harmonic: peak.origin for peak in named.peaks if peak.label.startswith("sweeps")}
    assert len(origins) > 1
    for harmonic, origin in origins.items():
        assert origin == pytest.approx(harmonic * speed.mean(), rel=0.02)


@pytest.mark.parametrize("origin", [110.0, 190.0, 210.0, 290.0, 310.0, 530.0])
def test_an_alias_moves_as_the_fold_says(origin):
    """Against the frequency of a sine as sampling folds it: towards its own side, or away from it."""
    rate = 200.0
    apparent = [abs(hz - rate * round(hz / rate)) for hz in (origin, origin + 1)]
    way = "rises" if apparent[1] > apparent[0] else "falls"
    top = Peak("gyro_x", apparent[0], 1.0, 1.0, 9.0, 1.0, rotor=1, harmonic=2, origin=origin)
    part = SimpleNamespace(series=SimpleNamespace(rate=rate))
    assert f"whose frequency {way} when the rotor speed rises" in lines._action("aliasing", top, part, {})
