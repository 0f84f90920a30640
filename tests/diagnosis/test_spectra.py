"""Spectra over gaps and their lines, compared with scipy, with the same signal without gaps, and with closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import signal, stats

from fwnkf.diagnosis.peaks import chance_ratio, find_peaks, group_peaks
from fwnkf.diagnosis.spectra import even_grid, noise_floor, restore, sampling_rate, spectrum, spectrum_to_fit
from fwnkf.diagnosis.thresholds import THRESHOLDS
from fwnkf.errors import ConfigError, DataError

RATE = 200.0


def tone_and_motion(seed: int, frequency: float, amplitude: float, seconds: float = 60.0, rate: float = RATE):
    """White noise of unit density 0.01, slow motion a thousand times stronger, and a line."""
    generator = np.random.default_rng(seed)
    time = np.arange(int(seconds * rate)) / rate
    motion = 5 * np.sin(2 * np.pi * 0.3 * time + seed)
    noise = generator.normal(size=len(time)) * np.sqrt(0.01 * rate / 2)
    return time, amplitude * np.sin(2 * np.pi * frequency * time + seed) + motion + noise


def test_without_gaps_it_is_scipys_welch():
    time, values = tone_and_motion(0, 37.3, 1.0)
    ours = spectrum(time, values, resolution=0.5)
    frequency, density = signal.welch(values, RATE, "hann", 400, 200, detrend="linear")
    np.testing.assert_allclose(ours.frequency, frequency)
    np.testing.assert_allclose(ours.density, density, rtol=1e-6)


def test_a_spectrum_to_fit_has_longer_segments_only_where_a_log_is_short_or_slow():
    def resolutions(rate: float, count: int) -> tuple[float, float]:
        time = np.arange(count) / rate
        values = np.random.default_rng(0).normal(size=(count, 1))
        return spectrum(time, values).resolution, spectrum_to_fit(time, values).resolution

    smooth, to_fit = resolutions(500.0, 30_000)
    assert smooth == to_fit == 0.5
    smooth, to_fit = resolutions(200.0, 1800)
    assert smooth > 0.8 > 0.4 > to_fit
    smooth, to_fit = resolutions(10.0, 5000)
    assert (smooth, to_fit) == (0.5, pytest.approx(10 / 512))


def test_a_spectrum_to_fit_covers_runs_between_gaps():
    """One long run among many short ones would else be all that is fitted to."""
    kept = np.concatenate([np.arange(600), *(700 + 300 * k + np.arange(200) for k in range(20))])
    values = np.random.default_rng(1).normal(size=(len(kept), 1))
    values[:600] *= 3
    fitted = spectrum_to_fit(kept / 200, values)
    assert fitted.resolution > 1.0  # segments of at most 200 samples
    assert fitted.density.mean() * 100 < 0.5 * 9  # the variance is not that of the long run


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("damage", ["none", "skipped", "gaps", "jitter", "not finite"])
def test_lines_keep_frequency_and_amplitude_over_missing_samples(seed, damage):
    generator = np.random.default_rng(100 + seed)
    frequency = float(generator.uniform(15, 95))
    time, values = tone_and_motion(seed, frequency, 0.6)
    if damage == "skipped":  # one in ten, at random
        chosen = generator.random(len(time)) > 0.1
        time, values = time[chosen], values[chosen]
    if damage == "gaps":
        chosen = (np.floor(time / 7.3) % 3 != 1) | (time % 1 > 0.4)
        time, values = time[chosen], values[chosen]
    if damage == "jitter":  # the stamps, not the samples
        time = time + generator.normal(size=len(time)) * 0.05 / RATE
    if damage == "not finite":
        values[generator.integers(0, len(values), 200)] = np.nan
    (peak,) = find_peaks(spectrum(time, values), limit=1)
    assert peak.frequency == pytest.approx(frequency, rel=2e-3)
    assert peak.amplitude == pytest.approx(0.6, rel=0.1)


def test_the_floor_is_that_of_the_noise_with_lines_motion_and_missing_samples():
    time, values = tone_and_motion(1, 60.2, 2.0)
    chosen = np.random.default_rng(1).random(len(time)) > 0.07
    floor = noise_floor(spectrum(time[chosen], values[chosen]))
    # restored samples have no noise of their own, so that a seventh of a tenth is missing
    np.testing.assert_allclose(floor[40:], 0.01, rtol=0.25)


def test_restored_samples_are_better_than_interpolated_ones():
    time, values = tone_and_motion(2, 80.3, 1.0)
    truth = np.sin(2 * np.pi * 80.3 * time + 2) + 5 * np.sin(2 * np.pi * 0.3 * time + 2)
    missing = np.zeros(len(time), bool)
    missing[5::13] = True
    holes = np.where(missing, np.nan, truth + 0.1 * (values - truth))
    linear = np.interp(time[missing], time[~missing], holes[~missing])
    restored = restore(holes[:, None])[missing, 0]
    assert np.std(restored - truth[missing]) < 0.1 * np.std(linear - truth[missing])


def test_the_rate_counts_missing_samples_and_includes_late_ones():
    steps = np.full(5000, 0.004)
    steps[::97] = 0.008  # skipped samples
    assert sampling_rate(np.r_[0, np.cumsum(steps)]) == pytest.approx(250.0, rel=1e-6)
    steps[5::30] = 0.0048  # late samples, nothing missing: the mean step is what a line sees
    counts = np.rint(steps / 0.004)
    assert sampling_rate(np.r_[0, np.cumsum(steps)]) == pytest.approx(counts.sum() / steps.sum(), rel=1e-4)
    coarse = np.floor(np.arange(5000) / 222.2 * 1000) / 1000  # milliseconds, 4 or 5 of them
    assert sampling_rate(coarse) == pytest.approx(222.2, rel=2e-3)


def test_a_late_stamp_is_no_missing_sample():
    time = np.arange(1000) / RATE
    time[500] += 0.7 / RATE
    assert even_grid(time, np.zeros(1000)).restored == 0
    assert even_grid(np.delete(time, 300), np.zeros(999)).restored == 1


def test_stamps_that_stand_still_or_go_back_are_dropped():
    time = np.arange(1000) / RATE
    time[400:410] = time[400]
    time[600:605] -= 1.0
    grid = even_grid(time, np.ones(1000), fill=20)
    assert len(grid.runs) == 1
    assert len(grid.runs[0]) == 1000


def test_too_little_is_an_error_for_people():
    with pytest.raises(DataError, match="at least 3 samples"):
        spectrum(np.array([0.0, 1.0]), np.zeros(2))
    with pytest.raises(DataError, match="without a gap"):
        spectrum(np.cumsum(np.tile([0.01, 0.01, 0.01, 1.0], 10)), np.zeros(40))


@pytest.mark.parametrize("colour", ["white", "red", "low-pass"])
def test_noise_without_lines_has_none(colour):
    """The stated rate of false alarms is one in a thousand spectra; 3 in 120 would be chance once in 3,000 times."""
    generator = np.random.default_rng(7)
    alarms = 0
    for _ in range(40):
        noise = generator.normal(size=(6000, 3))
        if colour == "red":
            noise = signal.lfilter([1], [1, -0.98], noise, axis=0)
        if colour == "low-pass":
            noise = signal.lfilter(*signal.butter(2, 30, fs=RATE), noise, axis=0)
        alarms += len(find_peaks(spectrum(np.arange(6000) / RATE, noise), "xyz"))
    assert alarms <= 2


def test_the_bound_of_chance_is_the_chi_square_quantile():
    for averages in (8.0, 30.0, 200.0):
        exact = stats.chi2.isf(0.001 / 500, 2 * averages) / (2 * averages)
        assert chance_ratio(0.001, 500, averages) == pytest.approx(exact, rel=0.02)


def test_a_broad_hump_has_its_width_and_power():
    generator = np.random.default_rng(3)
    damped = signal.lfilter([1], np.poly(0.97 * np.exp([2j, -2j])).real, generator.normal(size=24000))
    damped *= 1.5 / damped.std()
    (peak,) = find_peaks(spectrum(np.arange(24000) / RATE, damped + 0.2 * generator.normal(size=24000)), limit=1)
    width = -np.log(0.97) * RATE / np.pi  # of a pole pair at half power
    assert peak.frequency == pytest.approx(2 * RATE / (2 * np.pi), rel=0.01)
    assert peak.width == pytest.approx(width, rel=0.35)
    assert peak.amplitude == pytest.approx(1.5 * np.sqrt(2), rel=0.25)


def test_the_same_line_in_several_channels_is_one_group():
    time, values = tone_and_motion(5, 33.0, 1.0)
    _, other = tone_and_motion(6, 33.0, 0.5)
    peaks = find_peaks(spectrum(time, np.stack([values, other], -1)), ["gyro_x", "gyro_y"])
    assert [peak.channel for peak in group_peaks(peaks)[0]] == ["gyro_x", "gyro_y"]


def test_thresholds_are_documented_and_parsed():
    assert all(row.unit and row.meaning and row.source for row in THRESHOLDS.table())
    assert THRESHOLDS.parsed(["nis_high=3", "nis_low = 0.1"]).nis_low == 0.1
    with pytest.raises(ConfigError, match="no threshold named 'nis_hig'"):
        THRESHOLDS.parsed(["nis_hig=3"])
    with pytest.raises(ConfigError, match="must be a number"):
        THRESHOLDS.parsed(["nis_high=three"])
