"""Simulated logs with labels: what a label says is in the signals, measured with scipy and not with the diagnosis."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import signal
from scipy.spatial.transform import Rotation

from fwnkf.data.labelled import Label, Labelled, Line, labelled_flight
from fwnkf.data.labelled.flights import FAULTS, HEALTHY, TWO, drawn_faults
from fwnkf.data.labelled.labels import ACCEL_FAULT, GYRO_FAULT
from fwnkf.errors import ConfigError

CAUSES = {
    "unbalance": "rotor_vibration", "bent_shaft": "rotor_vibration", "blade_pass": "rotor_vibration",
    "bearing": "rotor_vibration", "rough_rotors": "rotor_vibration", "fixed_line": "vibration",
    "resonance": "resonance", "loose_mount": "broadband",
    "impact": "impact", "clipped_accel": "clipping", "clipped_gyro": "clipping", "axis_sign": "axis_sign",
    "axis_swap": "axis_swap", "scale": "scale", "bias_step": "bias_step", "drift": "drift",
    "interference": "interference", "gnss_glitch": "gnss_glitch", "pose_delay": "delay", "gnss_delay": "delay",
    "dropouts": "gaps", "skipped": "gaps", "duplicated": "time_base", "clock": "time_base", "jitter": "time_base",
    "disorder": "time_base", "unit": "time_base",
}  # fmt: skip


def flown(fault: str, seed: int = 5, **wanted: object) -> Labelled:
    """A flight with this fault, in one stream, that says when it was in the air."""
    vehicle = {"rate": 400.0, "seconds": 20.0, "apart": False, "states_air": True, "sensing": "averaged", **wanted}
    return labelled_flight(seed, (fault,) if fault else (), vehicle)


def required(one: Labelled) -> Label:
    (label,) = [label for label in one.labels if label.required]
    return label


def channel(one: Labelled, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Stamps and values of an inertial channel in the air."""
    stream = one.log.signal("imu")
    time, values = stream.time, stream.columns[name]
    (begin, end) = span(one)
    inside = (time >= begin) & (time <= end)
    return time[inside], values[inside]


def span(one: Labelled) -> tuple[float, float]:
    airborne = one.log.airborne()
    return airborne[0] if airborne else (0.0, one.craft.seconds)


def attitude_rates(one: Labelled) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Middle times of the poses, rates between them by the orientation, and the mean of the gyro between them."""
    pose, imu = one.log.signal("pose"), one.log.signal("imu")
    orientation = np.stack([pose.columns[f"orientation_{axis}"] for axis in "xyzw"], -1)
    turns = Rotation.from_quat(orientation)
    rates = (turns[:-1].inv() * turns[1:]).as_rotvec() / np.diff(pose.time)[:, None]
    gyro = np.stack([imu.columns[f"gyro_{axis}"] for axis in "xyz"], -1)
    angle = np.cumsum(np.vstack([np.zeros(3), gyro[:-1] * np.diff(imu.time)[:, None]]), axis=0)
    turned = np.stack([np.interp(pose.time, imu.time, angle[:, k]) for k in range(3)], -1)
    return (pose.time[1:] + pose.time[:-1]) / 2, rates, np.diff(turned, axis=0) / np.diff(pose.time)[:, None]


def slow(values: np.ndarray, rate: float) -> np.ndarray:
    """Below 2 Hz, where rates are motion."""
    return np.asarray(signal.sosfiltfilt(signal.butter(2, 2.0, fs=rate, output="sos"), values, axis=0))


# ---- as a whole -----------------------------------------------------------------------------------------------------


def test_equal_seeds_give_equal_logs_and_others_differ():
    first, again, other = labelled_flight(7), labelled_flight(7), labelled_flight(8)
    assert first.labels == again.labels
    assert list(first.log.topics) == list(again.log.topics)
    for name in first.log.topics:
        one, two = first.log.read(name), again.log.read(name)
        assert np.array_equal(one.time, two.time)
        assert all(np.array_equal(one.columns[key], two.columns[key]) for key in one.columns)
    assert first.craft != other.craft


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_has_its_label_and_finite_signals(fault):
    one = labelled_flight(31, (fault,))
    assert [label.cause for label in one.labels if label.required] in ([CAUSES[fault]], [])
    assert any(label.cause == CAUSES[fault] for label in one.labels)
    for name in one.log.topics:
        assert all(np.isfinite(values).all() for values in one.log.read(name).columns.values())


def test_shares_of_healthy_logs_and_of_logs_with_two_faults():
    drawn = [drawn_faults(np.random.default_rng(seed)) for seed in range(2000)]
    assert np.mean([len(faults) == 0 for faults in drawn]) == pytest.approx(HEALTHY, abs=0.04)
    assert np.mean([len(faults) == 2 for faults in drawn]) == pytest.approx(TWO, abs=0.03)
    assert {name for faults in drawn for name in faults} == set(FAULTS)


def test_unknown_faults_are_named():
    with pytest.raises(ConfigError, match="there are: unbalance"):
        labelled_flight(0, ("flutter",))
    with pytest.raises(ConfigError, match="a vehicle has no 'wings'"):
        labelled_flight(0, (), {"wings": 2})


# ---- vibration ------------------------------------------------------------------------------------------------------


def clearest(line: Line) -> str:
    """The channel in which a line is strongest, by the limits of a fault."""
    limits = {"gyro": GYRO_FAULT, "accel": ACCEL_FAULT}
    return max(line.amplitude, key=lambda name: line.amplitude[name] / limits[name.partition("_")[0]])


@pytest.mark.parametrize("seed", range(4))
def test_a_fixed_line_has_its_power_at_its_frequency(seed):
    one = flown("fixed_line", seed)
    line = required(one).lines[0]
    name = clearest(line)
    _, values = channel(one, name)
    frequency, power = signal.periodogram(signal.detrend(values), one.craft.rate, window="hann", scaling="density")
    distance = np.abs(frequency - line.frequency)
    near, beside = distance < 1.5, (distance > 3) & (distance < 8)
    assert frequency[near][np.argmax(power[near])] == pytest.approx(line.frequency, abs=0.3)
    measured = np.sqrt(2 * (power[near] - np.median(power[beside])).sum() * (frequency[1] - frequency[0]))
    assert measured == pytest.approx(line.amplitude[name], rel=0.12)


def tracked(one: Labelled, name: str, rotor: int, order: float) -> float:
    """Amplitude of an order of a rotor by its logged speed: the demodulated channel, averaged over 0.15 s."""
    time, values = channel(one, name)
    stream = one.log.signal("rotor")
    speed = np.interp(time, stream.time, stream.columns[f"rotor_{rotor}"])
    fast = signal.sosfiltfilt(signal.butter(4, 12.0, "highpass", fs=one.craft.rate, output="sos"), values)
    slowed = fast * np.exp(-2j * np.pi * order * np.cumsum(speed) / one.craft.rate)
    length = int(0.15 * one.craft.rate)
    means = slowed[: len(slowed) // length * length].reshape(-1, length).mean(1)
    return float(2 * np.sqrt(np.mean(np.abs(means) ** 2)))


@pytest.mark.parametrize("style", ["steady", "cruise", "agile"])
@pytest.mark.parametrize("fault", ["unbalance", "bent_shaft", "blade_pass", "bearing"])
def test_the_orders_of_a_rotor_are_where_its_speed_says(fault, style):
    """Also beyond the Nyquist frequency, where wave and speed fold alike."""
    one = flown(fault, 3, style=style, speeds=100.0, hover=70.0)
    label = required(one)
    line, name = label.lines[0], clearest(label.lines[0])
    assert label.rotor is not None
    assert tracked(one, name, label.rotor, line.order) == pytest.approx(line.amplitude[name], rel=0.2)
    assert tracked(one, name, label.rotor, 1.11 * line.order) < 0.35 * line.amplitude[name]
    assert line.folded == (line.order * 70.0 > 200.0)


@pytest.mark.parametrize("seed", range(3))
def test_a_folded_line_is_stated_where_it_appears(seed):
    """Twice 80 Hz at 250 Hz, weighted by the power that unbalance has and an average over a sample leaves."""
    one = flown("bent_shaft", seed, rate=250.0, hover=80.0, speeds=100.0)
    label = required(one)
    stream, (begin, end) = one.log.signal("rotor"), span(one)
    inside = (stream.time >= begin) & (stream.time <= end)
    speed = stream.columns[f"rotor_{label.rotor}"][inside]
    power = (speed**2 * np.sinc(2 * speed / 250)) ** 2
    assert label.lines[0].folded
    appears = np.where(2 * speed > 125, np.abs(250 - 2 * speed), 2 * speed)
    expected = (power * appears).sum() / power.sum()
    assert label.lines[0].frequency == pytest.approx(expected, rel=0.005)


def test_rough_rotors_vibrate_at_the_speeds_of_all():
    one = flown("rough_rotors", 2, hover=70.0, speeds=100.0, style="cruise")
    label = required(one)
    line, name = label.lines[0], clearest(label.lines[0])
    assert label.rotor is None
    parts = [tracked(one, name, rotor + 1, line.order) for rotor in range(one.craft.rotors)]
    assert min(parts) > 0.2 * line.amplitude[name]  # each of them has its part
    _, values = channel(one, name)
    frequency, power = signal.welch(values, one.craft.rate, nperseg=400, detrend="linear")
    near = np.abs(frequency - line.frequency) < 3 * line.spread
    assert (frequency * power)[near].sum() / power[near].sum() == pytest.approx(line.frequency, rel=0.03)


def test_acrobatics_are_no_fault_and_carry_loads():
    one = labelled_flight(3, (), {"rate": 500.0, "style": "agile", "acrobatic": True, "pose": 0.0, "apart": False})
    assert one.healthy
    assert not any(label.required for label in one.labels)
    accel = np.linalg.norm([one.log.signal("imu").columns[f"accel_{axis}"] for axis in "xyz"], axis=0)
    assert accel.max() > 15
    assert accel.min() < 5


@pytest.mark.parametrize("seed", range(3))
def test_a_resonance_has_its_centre_and_width(seed):
    one = flown("resonance", seed, style="steady")
    label = required(one)
    width = float(label.figures["width_hz"])
    centre = label.lines[0].frequency
    _, values = channel(one, clearest(label.lines[0]))
    length = int(min(len(values) / 8, 6 * one.craft.rate / width))
    frequency, power = signal.welch(values, one.craft.rate, nperseg=length, detrend="linear")
    around = np.abs(frequency - centre) < 4 * width
    peak = frequency[around][np.argmax(power[around])]
    assert peak == pytest.approx(centre, abs=0.6 * width)
    inside = np.abs(frequency - centre) < width
    outside = around & (np.abs(frequency - centre) > 3 * width)
    assert power[inside].mean() > 4 * power[outside].mean()


def test_an_impact_is_as_large_as_stated_and_an_ordinary_landing_is_small():
    for seed in range(6):
        one = flown("impact", seed)
        label = required(one)
        stream = one.log.signal("imu")
        magnitude = np.sqrt(sum(stream.columns[f"accel_{axis}"] ** 2 for axis in "xyz"))
        change = np.abs(magnitude - np.median(magnitude))
        assert abs(stream.time[change.argmax()] - float(label.figures["at_s"])) < 0.15
        assert 60 < change.max() < 1.2 * float(label.figures["size"])
        landed = flown("", seed, landing=True)
        stream = landed.log.signal("imu")
        magnitude = np.sqrt(sum(stream.columns[f"accel_{axis}"] ** 2 for axis in "xyz"))
        assert np.abs(magnitude - np.median(magnitude)).max() < 40


# ---- sensors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("down", [False, True])
def test_the_gyro_of_a_healthy_flight_agrees_with_its_attitude(down):
    one = flown("", 3, down=down, pose=50.0)
    _, rates, gyro = attitude_rates(one)
    rates, gyro = slow(rates, 50), slow(gyro, 50)
    for axis in range(3):
        assert np.corrcoef(rates[:, axis], gyro[:, axis])[0, 1] > 0.95
    accel = one.log.signal("imu").columns["accel_z"]
    assert np.median(accel) == pytest.approx(-9.81 if down else 9.81, rel=0.05)


def test_a_mirrored_axis_disagrees_with_the_attitude():
    one = flown("axis_sign", 11)
    (name,) = required(one).channels
    _, rates, gyro = attitude_rates(one)
    rates, gyro = slow(rates, 50), slow(gyro, 50)
    for axis in range(3):
        sign = -1 if f"gyro_{'xyz'[axis]}" == name else 1
        assert sign * np.corrcoef(rates[:, axis], gyro[:, axis])[0, 1] > 0.9


def test_exchanged_axes_agree_crosswise():
    one = flown("axis_swap", 12)
    first, second = ("xyz".index(name[-1]) for name in required(one).channels)
    _, rates, gyro = attitude_rates(one)
    rates, gyro = slow(rates, 50), slow(gyro, 50)
    assert np.corrcoef(rates[:, first], gyro[:, second])[0, 1] ** 2 > 0.8
    assert np.corrcoef(rates[:, second], gyro[:, first])[0, 1] ** 2 > 0.8


def test_a_scale_is_the_slope_against_the_attitude_or_against_gravity():
    kinds = set()
    for seed in range(20):
        one = flown("scale", seed)
        label = required(one)
        factor = float(label.figures["factor"])
        if label.channels[0].startswith("gyro"):
            _, rates, gyro = attitude_rates(one)
            rates, gyro = slow(rates, 50), slow(gyro, 50)
            slope = (rates * gyro).sum() / (rates**2).sum()
            kinds.add("gyro")
        else:
            imu = one.log.signal("imu")
            inside = (imu.time > span(one)[0] + 2) & (imu.time < span(one)[1] - 2)
            vector = np.stack([imu.columns[f"accel_{axis}"][inside].mean() for axis in "xyz"])
            slope = np.linalg.norm(vector) / 9.81
            kinds.add("accel")
        assert slope == pytest.approx(factor, rel=0.1)
        if kinds == {"gyro", "accel"}:
            return
    raise AssertionError(kinds)


@pytest.mark.parametrize("fault", ["bias_step", "drift"])
def test_biases_change_by_the_stated_amount(fault):
    one = flown(fault, 14)
    label = required(one)
    axis = "xyz".index(label.channels[0][-1])
    time, rates, gyro = attitude_rates(one)
    error = (gyro - rates)[:, axis]
    if fault == "bias_step":
        at = float(label.figures["at_s"])
        change = error[time > at + 0.1].mean() - error[time < at - 0.1].mean()
        assert change == pytest.approx(float(label.figures["step"]), rel=0.1)
    else:
        change = error[time > time[-1] - 1].mean() - error[time < 1].mean()
        assert change == pytest.approx(float(label.figures["change"]), rel=0.35)


def test_late_attitudes_are_late_by_the_stated_time():
    one = flown("pose_delay", 15)
    _, rates, gyro = attitude_rates(one)
    rates, gyro = slow(rates, 50), slow(gyro, 50)
    lags = np.arange(0, 40)
    scores = [(rates[lag:] * gyro[: len(gyro) - lag]).sum() for lag in lags]
    assert lags[int(np.argmax(scores))] / 50 == pytest.approx(float(required(one).figures["delay_s"]), abs=0.04)


def test_the_current_moves_the_magnetometer():
    one = flown("interference", 16)
    mag, power, pose = one.log.signal("mag"), one.log.signal("power"), one.log.signal("pose")
    turns = Rotation.from_quat(np.stack([pose.columns[f"orientation_{axis}"] for axis in "xyzw"], -1))
    nearest = np.searchsorted(pose.time, mag.time).clip(0, len(pose.time) - 1)
    north = turns[nearest].inv()
    design = [north.apply(np.tile(axis, (len(mag.time), 1))) for axis in np.eye(3)]
    rows = np.concatenate([np.stack([column[:, k] for column in design], -1) for k in range(3)])
    current = np.kron(np.eye(3), power.columns["current"][:, None])
    offsets = np.kron(np.eye(3), np.ones((len(mag.time), 1)))
    target = np.concatenate([mag.columns[f"mag_{axis}"] for axis in "xyz"])
    solution = np.linalg.lstsq(np.hstack([rows, current, offsets]), target, rcond=None)[0]
    size = 18.5 * np.linalg.norm(solution[3:6])
    assert size == pytest.approx(float(required(one).figures["at_hover_ut"]), rel=0.15)


def test_positions_of_the_receiver_jump_as_stated():
    one = flown("gnss_glitch", 17)
    gnss, pose = one.log.signal("gnss"), one.log.signal("pose")
    error = np.linalg.norm(
        [gnss.columns[f"position_{a}"] - np.interp(gnss.time, pose.time, pose.columns[f"position_{a}"]) for a in "xyz"],
        axis=0,
    )
    at = float(required(one).figures["at_s"])
    assert error[gnss.time < at].max() < 4
    assert error[(gnss.time >= at) & (gnss.time < at + 0.5)].max() > 5


def test_clipped_values_lie_at_the_limit():
    for fault, sensor in (("clipped_accel", "accel"), ("clipped_gyro", "gyro")):
        one = flown(fault, 18)
        label = required(one)
        values = np.stack([one.log.signal("imu").columns[f"{sensor}_{axis}"] for axis in "xyz"], -1)
        limit = float(label.figures["limit"])
        step = one.craft.accel_step if sensor == "accel" else one.craft.gyro_step
        assert np.abs(values).max() == pytest.approx(limit, abs=step / 2)
        assert (np.abs(values) >= limit - step / 2).any(1).mean() == pytest.approx(
            float(label.figures["share"]), rel=0.02
        )
        assert float(label.figures["share"]) > 0.002


# ---- samples and stamps ---------------------------------------------------------------------------------------------


def test_missing_and_repeated_samples_have_the_stated_share():
    for fault in ("dropouts", "skipped", "duplicated"):
        one = flown(fault, 19)
        imu = one.log.signal("imu")
        share = float(required(one).figures["share"])
        steps = np.diff(imu.time)
        if fault == "duplicated":
            assert (steps == 0).sum() / one.craft.samples == pytest.approx(share, abs=0.005)
        else:
            assert 1 - len(imu.time) / one.craft.samples == pytest.approx(share)
            long = steps.max() * one.craft.rate
            assert (long > 10) == (fault == "dropouts")


def test_a_clock_that_is_wrong_disagrees_with_the_recorder():
    one = flown("clock", 20)
    imu = one.log.signal("imu")
    assert imu.received is not None
    slope = np.polyfit(imu.received, imu.time, 1)[0]
    assert slope == pytest.approx(float(required(one).figures["factor"]), rel=1e-4)
