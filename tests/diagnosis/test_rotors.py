"""Lines and their sources on simulated flights with known causes, and on noise and fixed lines that have none."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fwnkf.data.flights import flight
from fwnkf.data.labelled import labelled_flight
from fwnkf.diagnosis.evidence import analyse, gather
from fwnkf.diagnosis.flown import bursts, lifted, without
from fwnkf.diagnosis.orders import fold, integration_gain
from fwnkf.diagnosis.plane import plane
from fwnkf.diagnosis.rotors import harmonic_series, name_lines
from fwnkf.diagnosis.rules import judge
from fwnkf.diagnosis.sources import explain, rank_correlation, steadier
from fwnkf.diagnosis.spectra import even_grid, grid_waterfall
from fwnkf.diagnosis.thresholds import THRESHOLDS
from fwnkf.logs.log import Stream

CHANNELS = ["gyro_x", "gyro_y", "gyro_z"]


def gyro_grid(flown):
    return even_grid(flown.imu_time, flown.gyro)


def swept(rate=500.0, seconds=24.0, seed=0):
    """Time, a speed that sweeps from 60 to 100 Hz and back, and noise in three channels."""
    time = np.arange(int(rate * seconds)) / rate
    speed = 80 + 14 * np.sin(0.5 * time) + 6 * np.sin(1.3 * time + 1)
    return time, speed, np.random.default_rng(seed).normal(size=(len(time), 3))


def wave(speed, rate, order=1.0):
    return np.sin(2 * np.pi * order * np.cumsum(speed) / rate)[:, None]


@pytest.mark.parametrize("cause", ["rotor_vibration", "aliasing"])
@pytest.mark.parametrize("seed", range(3))
def test_the_right_rotor_is_named_from_its_speed(cause, seed):
    flown = flight(cause, seed=seed, seconds=30.0)
    figures = flown.causes[0].figures
    first = explain(gyro_grid(flown), rotor=(flown.rotor_time, flown.rotor))[0]
    assert (first.kind, first.rotor) == ("rotor", figures["rotor"])
    line = next(line for line in first.lines if line.order == figures["harmonic"])
    # where the power is: averaging over a sample passes less of a faster rotor, which moves the mean of an alias
    true = line.order * flown.rotor[:, first.rotor - 1]
    power = np.sinc(true / flown.rate) ** 2
    assert line.frequency == pytest.approx((power * fold(true, flown.rate)).sum() / power.sum(), rel=0.01)
    assert (line.origin is not None) == (cause == "aliasing")


def test_the_folded_harmonics_of_a_rotor_are_part_of_it():
    """The second harmonic of 127 Hz at 500 Hz sweeps about 237 Hz, and is no line of its own."""
    flown = flight("rotor_vibration", seed=0, seconds=20.0)
    sources = explain(gyro_grid(flown), rotor=(flown.rotor_time, flown.rotor))
    assert {line.order for line in sources[0].lines} >= {1.0, 2.0}
    assert all(source.kind == "rotor" for source in sources)


def test_a_fixed_line_at_the_mean_speed_of_a_rotor_does_not_follow_it():
    flown = flight(seed=8, seconds=30.0)
    grid = gyro_grid(flown)
    tone = 0.2 * np.sin(2 * np.pi * flown.rotor[:, 0].mean() * np.arange(len(grid.runs[0])) / grid.rate)
    grid = grid._replace(runs=(grid.runs[0] + tone[:, None],))
    first = explain(grid, rotor=(flown.rotor_time, flown.rotor))[0]
    assert first.kind == "fixed"
    assert first.lines[0].frequency == pytest.approx(flown.rotor[:, 0].mean(), rel=0.01)


def test_a_line_that_follows_a_command_is_found_without_speeds():
    time, speed, noise = swept()
    grid = even_grid(time, noise + 2 * wave(speed, 500.0))
    command = np.stack([(speed / 120) ** 2, 0.5 + 0.1 * np.sin(0.9 * time)], -1)[::10]
    first = explain(grid, motor=(time[::10], command))[0]
    assert (first.kind, first.motor) == ("sweep", 1)
    assert first.correlation > 0.9
    truth = np.interp(first.lines[0].time, time, speed)
    heard = first.lines[0].track > 0
    assert stats.spearmanr(first.lines[0].track[heard], truth[heard]).statistic > 0.9
    assert first.lines[0].frequency == pytest.approx(speed.mean(), rel=0.02)


def test_a_folded_line_falls_when_the_commands_rise():
    flown = flight("aliasing", seed=1, seconds=40.0)
    lines = name_lines(gyro_grid(flown), CHANNELS, motor=(flown.motor_time, flown.motor))
    top = lines.named[0]
    assert top.source.correlation < -0.8
    assert top.peaks[0].origin == pytest.approx(flown.causes[0].figures["origin_hz"], rel=0.02)


@pytest.mark.parametrize("cause", [None, "vibration", "gaps"])
def test_nothing_moves_where_nothing_does(cause):
    for seed in range(2):
        flown = flight(cause, seed=seed, seconds=30.0)
        found = explain(gyro_grid(flown), rotor=(flown.rotor_time, flown.rotor))
        strong = [source for source in found if source.lines[0].ratio.max() > 20]
        assert all(source.kind == "fixed" for source in strong)


def test_a_resonance_is_told_from_a_line_and_from_a_sweep(rng):
    time, speed, noise = swept()
    frequency = np.fft.rfftfreq(len(time), 1 / 500.0)
    response = 1 / (1 - (frequency / 83) ** 2 + 1j * frequency / (83 * 12))
    ringing = np.fft.irfft(np.fft.rfft(rng.normal(size=len(time))) * response, len(time))[:, None]
    tone = np.sin(2 * np.pi * 83 * time)[:, None]
    for signal, kind in ((ringing, "resonance"), (3 * tone, "fixed"), (3 * wave(speed, 500.0), "sweep")):
        first = explain(even_grid(time, noise + signal))[0]
        assert first.kind == kind
    assert explain(even_grid(time, noise + ringing))[0].lines[0].frequency == pytest.approx(83, rel=0.03)


def test_log_power_scatters_less_beside_the_true_path():
    time, speed, noise = swept()
    area = plane(even_grid(time, noise + 5 * wave(speed, 500.0)), 0.5, 8.0)
    truth = np.interp(area.time, time, speed)
    assert steadier(area, truth, 50.0, 110.0) > 1.3
    assert steadier(area, truth[::-1].copy(), 50.0, 110.0) < 1.05


def test_a_bearing_has_an_order_that_is_no_whole_number():
    time, speed, noise = swept(rate=1000.0)
    grid = even_grid(time, noise + 2 * wave(speed, 1000.0, 3.37))
    first = explain(grid, rotor=(time[::50], speed[::50, None]))[0]
    assert (first.kind, first.rotor) == ("rotor", 1)
    assert first.lines[0].order == pytest.approx(3.37, rel=0.01)


def test_a_burst_is_in_no_spectrum(rng):
    """Two seconds of a touchdown are no line, however strong."""
    time = np.arange(10_000) / 250
    values = rng.normal(size=(len(time), 6))
    landed = (time > 30) & (time < 31)
    values[landed] += 60 * np.sin(2 * np.pi * 35 * time[landed])[:, None] * rng.normal(size=(landed.sum(), 1))
    grid = even_grid(time, values)
    cut = bursts(grid, 8.0)
    assert any(start < 30.1 and stop > 30.9 for start, stop in cut) or len(cut) > 1
    assert explain(without(grid, cut)) == []


@pytest.mark.parametrize("seed", [1_000_292, 1_000_419, 1_000_766, 1_000_938])
def test_a_rotor_line_at_full_throttle_is_no_burst(seed):
    """At 200 and 250 Hz a line that sweeps fills the band above 80 Hz in a window; its power counts all the same."""
    flown = labelled_flight(seed)
    (part,) = gather(flown.log, THRESHOLDS).analysed
    assert part.bursts == ()
    (label,) = (one for one in flown.labels if one.cause == "rotor_vibration")
    source = next(item.source for item in part.named if item.source.rotor == label.rotor)
    assert source.lines[0].frequency == pytest.approx(label.frequency, rel=0.01)


def test_the_frequency_of_a_line_is_where_its_power_is():
    """Off the track as well: a speed that is logged with an error of 0.6 % does not move the line."""
    time, speed, noise = swept()
    amplitude = np.where(speed > 85, 8.0, 0.5)[:, None]
    grid = even_grid(time, amplitude * wave(speed, 500.0) + 0.1 * noise)
    line = explain(grid, rotor=(time, 1.006 * speed[:, None]))[0].lines[0]
    power = amplitude[:, 0] ** 2
    assert line.frequency == pytest.approx(power @ speed / power.sum(), rel=0.003)


def verdict(seed):
    return {
        item.cause: item for item in judge(gather(labelled_flight(seed).log, THRESHOLDS)) if item.severity != "info"
    }


def test_fast_motion_does_not_hide_the_lines_of_rotors():
    """A band of motion at 20 Hz is the strongest that moves; the rotor line at 90 Hz is worth a warning as well."""
    assert verdict(1_000_902)["rotor_vibration"].figures["frequency_hz"] == pytest.approx(90.3, rel=0.02)


@pytest.mark.parametrize("seed", [3225, 3229])
def test_flight_through_the_own_wash_is_no_rotor_fault(seed):
    flown = labelled_flight(seed)
    assert (flown.healthy, flown.craft.acrobatic) == (True, True)
    assert verdict(seed) == {}


def test_a_multiple_of_a_line_that_moves_is_no_resonance():
    """Of a rotor without speeds at 58.2 Hz, that at 116.3 Hz."""
    found = verdict(1_000_246)
    assert found["rotor_vibration"].figures["frequency_hz"] == pytest.approx(58.2, rel=0.01)
    assert "resonance" not in found


def test_idle_is_not_in_the_air():
    time = np.arange(0, 30, 0.05)
    speed = np.where(time < 6, 40.0, np.where(time < 25, 250.0, 30.0))[:, None]
    ((start, stop),) = lifted(time, speed, ())
    assert (start, stop) == (pytest.approx(6, abs=0.1), pytest.approx(25, abs=0.1))


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
