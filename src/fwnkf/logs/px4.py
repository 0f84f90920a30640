"""Standard signals of PX4 logs, under the names that its messages have had since version 1.8."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from .log import Source, Stream
from .packets import expand
from .records import RecordLog, instances
from .roles import AXES, FIX, Columns, SourceList, intervals, match, rotor_numbers, vector, whole

MOTOR1 = 101
"""Value of ``actuator_function`` for the first motor."""
SUFFIXES = (("estimator_innovation_variances", "_variance"), ("estimator_innovation_test_ratios", "_ratio"))


def facts(log: RecordLog, information: Mapping[str, float | str]) -> dict[str, float | str]:
    """Firmware, board, airframe and GPS fix."""
    known: dict[str, float | str] = {"firmware": "PX4"}
    release = information.get("ver_sw_release")
    if release is not None and not isinstance(release, str):
        number = whole(release)
        known["firmware"] = f"PX4 {number >> 24 & 255}.{number >> 16 & 255}.{number >> 8 & 255}"
    if "ver_hw" in information:
        known["board"] = str(information["ver_hw"])[:80]
    if "SYS_AUTOSTART" in log.parameters:
        known["airframe"] = log.parameters["SYS_AUTOSTART"]
    for kind in ("vehicle_gps_position", "sensor_gps"):
        names = [name for name in instances(log, kind) if "fix_type" in log.series[name].fields]
        if names:
            best = max(whole(log.read(name, ["fix_type"]).columns["fix_type"].max()) for name in names)
            known["gps_fix"] = FIX.get(best, str(best))
            break
    return known


def airborne(log: RecordLog) -> tuple[tuple[float, float], ...]:
    """Times between take-off and landing by ``vehicle_land_detected``."""
    if "vehicle_land_detected" not in log.topics:
        return ()
    stream = log.read("vehicle_land_detected", ["landed"])
    return intervals(stream.time, stream.columns["landed"] == 0)


# ---- computed topics -------------------------------------------------------------------------------------------------


def derive(log: RecordLog) -> None:
    """Add the topics that are computed from several fields or topics."""
    for kind in ("sensor_gyro_fifo", "sensor_accel_fifo"):
        for name in instances(log, kind):
            fields = log.series[name].fields
            if all(wanted in fields for wanted in ("dt", "scale", "samples", "x[0]", "y[0]", "z[0]")):
                log.derive(f"{name}/samples", AXES, partial(_fifo, log, name))
    for name in instances(log, "vehicle_imu"):
        if "delta_velocity[2]" in log.series[name].fields and "delta_velocity_dt" in log.series[name].fields:
            columns = [f"{kind}_{axis}" for kind in ("gyro", "accel") for axis in AXES]
            log.derive(f"{name}/rates", columns, partial(_rates, log, name))
    for name in instances(log, "actuator_outputs"):
        count = _outputs(log, name)
        if count:
            log.derive(f"{name}/motors", [f"motor_{i + 1}" for i in range(count)], partial(_motors, log, name, count))
    for name in instances(log, "estimator_innovations"):
        names = [field for field in log.series[name].fields if not field.startswith("timestamp")]
        joined = [field + suffix for field in names for suffix in ("", "_variance", "_ratio")]
        log.derive(f"{name}/joined", joined, partial(_innovations, log, name, names))


def _fifo(log: RecordLog, name: str) -> Stream:
    stream = log.read(name)
    count = len([field for field in stream.columns if re.fullmatch(r"x\[\d+\]", field)])
    values = np.stack([np.stack([stream.columns[f"{axis}[{i}]"] for i in range(count)], -1) for axis in AXES], -1)
    scale = stream.columns["scale"][:, None, None]
    return expand(name, stream.time, values * scale, stream.columns["samples"], stream.columns["dt"] * 1e-6)


def _rates(log: RecordLog, name: str) -> Stream:
    stream = log.read(name)
    columns = {}
    for kind, source in (("gyro", "delta_angle"), ("accel", "delta_velocity")):
        seconds = stream.columns[f"{source}_dt"] * 1e-6
        for index, axis in enumerate(AXES):
            with np.errstate(divide="ignore", invalid="ignore"):
                columns[f"{kind}_{axis}"] = stream.columns[f"{source}[{index}]"] / seconds
    return Stream(name, stream.time, columns, received=stream.received)


def _outputs(log: RecordLog, name: str) -> int:
    """Number of motor outputs of a topic; zero where nothing ever moves."""
    fields = log.series[name].fields
    if "noutputs" not in fields:
        return 0
    count = min(int(np.nanmax(log.read(name, ["noutputs"]).columns["noutputs"])), 16)
    names = [f"output[{i}]" for i in range(count)]
    if count == 0 or any(field not in fields for field in names):
        return 0
    values = log.read(name, names).stack()
    moving = np.flatnonzero(np.nan_to_num(np.ptp(values, axis=0), nan=0.0, posinf=0.0) > 0)
    return int(moving[-1]) + 1 if len(moving) else 0


def _motors(log: RecordLog, name: str, count: int) -> Stream:
    """Outputs from 0 to 1: pulse widths between 1,000 and 2,000 µs, or counts of CAN speed controllers up to 8,191."""
    stream = log.read(name, [f"output[{i}]" for i in range(count)])
    values = stream.stack()
    largest = float(np.nanmax(np.abs(values))) if values.size else 0.0
    if largest <= 1.5:
        scaled = values
    elif largest <= 2500:
        scaled = (values - 1000.0) / 1000.0
    else:
        scaled = values / max(8191.0, largest)
    columns = {f"motor_{i + 1}": np.clip(scaled[:, i], 0.0, 1.0) for i in range(count)}
    return Stream(name, stream.time, columns, received=stream.received)


def _innovations(log: RecordLog, name: str, names: list[str]) -> Stream:
    """Innovations with variances and test ratios of the same time."""
    stream = log.read(name, names)
    columns = dict(stream.columns)
    for kind, suffix in SUFFIXES:
        topic = name.replace("estimator_innovations", kind)
        series = log.series.get(topic)
        shared = [field for field in names if series is not None and series.places and field in series.fields]
        other = log.read(topic, shared) if shared else None
        rows = np.full(len(stream), -1) if other is None else match(stream.time, other.time)
        for field in names:
            values = np.full(len(stream), np.nan)
            if other is not None and field in other.columns:
                values[rows >= 0] = other.columns[field][rows[rows >= 0]]
            columns[field + suffix] = values
    return Stream(name, stream.time, columns, received=stream.received)


# ---- standard signals ------------------------------------------------------------------------------------------------


def sources(log: RecordLog) -> tuple[Source, ...]:
    """The standard signals, the best of each role first."""
    listed = SourceList(log.topics)
    add = listed.add

    def numbered(kind: str, suffix: str = "") -> Iterator[tuple[str, str]]:
        for name in instances(log, kind):
            yield name.rpartition(".")[2] if "." in name else "0", name + suffix

    add("imu", "combined", "sensor_combined", vector("gyro", "gyro_rad[#]") | vector("accel", "accelerometer_m_s2[#]"))
    for number, topic in numbered("vehicle_imu", "/rates"):
        add("imu", f"integrated_{number}", topic, vector("gyro", "gyro_?") | vector("accel", "accel_?"))
    for role in ("gyro", "accel"):
        for number, topic in numbered(f"sensor_{role}_fifo", "/samples"):
            add(role, f"fifo_{number}", topic, vector(role, "?"))
        for number, topic in numbered(f"sensor_{role}"):
            add(role, number, topic, vector(role, "?"))
    add("gyro_filtered", "", "vehicle_angular_velocity", vector("gyro", "xyz[#]"))
    for number, topic in numbered("esc_status"):
        add("rotor", number, topic, _rotors(log, topic))
    for number, topic in numbered("actuator_motors"):
        add("motor", number, topic, _commands(log, topic))
    for number, topic in numbered("actuator_outputs", "/motors"):
        if topic in log.topics:
            add("motor", f"output_{number}", topic, {name: (name, 1.0) for name in log.topics[topic].fields})
    _add_poses(add, numbered)
    for number, topic in numbered("estimator_innovations", "/joined"):
        add("innovation", number, topic, _used(log, topic))
    for number, topic in numbered("ekf2_innovations"):
        add("innovation", f"ekf2_{number}", topic, _used(log, topic))
    if not listed.has("innovation"):
        for name in sorted(log.topics):
            if name.startswith("estimator_aid_src_"):
                add("innovation", name.removeprefix("estimator_aid_src_"), name, _aid(log, name))
    clips = vector("clip", "accel_clipping[#]")
    for number, topic in numbered("vehicle_imu_status"):
        add("vibration", number, topic, {"vibration": ("accel_vibration_metric", 1.0)} | clips)
    for number, topic in numbered("estimator_status"):
        add("vibration", f"estimator_{number}", topic, {"vibration": ("vibe[2]", 1.0)})
    for number, topic in numbered("sensor_gyro_fft"):
        add("peak", number, topic, vector("peak", "peak_frequencies_?[0]"))
    return tuple(listed.sources)


def _add_poses(
    add: Callable[[str, str, str, Columns], None], numbered: Callable[[str], Iterator[tuple[str, str]]]
) -> None:
    quaternion = vector("orientation", "q[#]", "wxyz")
    for kind, label in (
        ("vehicle_odometry", "odometry"),
        ("vehicle_local_position", "local"),
        ("vehicle_visual_odometry", "visual"),
        ("vehicle_mocap_odometry", "mocap"),
        ("estimator_odometry", "estimator"),
        ("vehicle_local_position_groundtruth", "truth"),
    ):
        for number, topic in numbered(kind):
            name = label if number == "0" else f"{label}_{number}"
            for fields in ("position[#]", "?"):
                add("pose", name, topic, vector("position", fields) | ({} if "local" in kind else quaternion))
            for fields in ("velocity[#]", "v?"):
                add("velocity", name, topic, vector("velocity", fields))
                if label == "truth":
                    add("truth", name, topic, vector("position", "?") | vector("velocity", fields))
            for quantity in ("position", "velocity"):
                stated = vector(quantity, f"{quantity}_variance[#]")
                stated = {f"{column}_variance": place for column, place in stated.items()}
                add("estimate", name, topic, vector(quantity, f"{quantity}[#]") | stated)
    for kind in ("vehicle_gps_position", "sensor_gps"):
        label = "gps" if kind.startswith("vehicle") else "gps_sensor"
        for number, topic in numbered(kind):
            gps = {f"velocity_{axis}": (f"vel_{side}_m_s", 1.0) for axis, side in zip(AXES, "ned", strict=True)}
            add("velocity", label if number == "0" else f"{label}_{number}", topic, gps)
    for number, topic in numbered("vehicle_attitude"):
        add("attitude", number, topic, quaternion)


def _rotors(log: RecordLog, topic: str) -> dict[str, tuple[str, float]]:
    fields = [name for name in log.topics[topic].fields if re.fullmatch(r"esc\[\d+\]\.esc_rpm", name)]
    columns = log.read(topic, fields).columns
    turning = [index for index, name in enumerate(fields) if np.any(columns[name] != 0)]
    proposals: list[list[float]] = [[index + 1.0 for index in turning]]
    functions = [fields[index].replace("esc_rpm", "actuator_function") for index in turning]
    if functions and set(functions) <= set(log.topics[topic].fields):  # outputs serve motors in any order
        assigned = log.read(topic, functions).columns
        proposals.insert(0, [float(assigned[name].max()) - MOTOR1 + 1 for name in functions])
    pairs = sorted(zip(rotor_numbers(*proposals), turning, strict=True))
    return {f"rotor_{number}": (fields[index], 1 / 60) for number, index in pairs}


def _commands(log: RecordLog, topic: str) -> dict[str, tuple[str, float]]:
    fields = [name for name in log.topics[topic].fields if re.fullmatch(r"control\[\d+\]", name)]
    columns = log.read(topic, fields).columns
    driven = [index for index, name in enumerate(fields) if np.any(np.isfinite(columns[name]) & (columns[name] != 0))]
    return {f"motor_{index + 1}": (fields[index], 1.0) for index in driven}


def _used(log: RecordLog, topic: str) -> dict[str, tuple[str, float]]:
    """Innovations that are not zero throughout, which is what those of unused sensors are."""
    stream = log.read(topic)
    chosen: dict[str, tuple[str, float]] = {}
    for name in stream.columns:
        if topic.startswith("ekf2"):
            base, variance = name.replace("_innov", ""), name.replace("_innov", "_innov_var")
            if "_innov" not in name or "_innov_var" in name:
                continue
        else:
            base, variance = name, f"{name}_variance"
            if name.endswith(("_variance", "_ratio")):
                continue
        values = stream.columns[name]
        if not np.any(np.isfinite(values) & (values != 0)):
            continue
        chosen[base] = (name, 1.0)
        for suffix, field in (("_variance", variance), ("_ratio", f"{name}_ratio")):
            if field in stream.columns and np.any(np.isfinite(stream.columns[field])):
                chosen[base + suffix] = (field, 1.0)
    return chosen


def _aid(log: RecordLog, topic: str) -> dict[str, tuple[str, float]]:
    label = topic.removeprefix("estimator_aid_src_")
    pairs = (("innovation", ""), ("innovation_variance", "_variance"), ("test_ratio", "_ratio"))
    columns = {}
    for name in log.topics[topic].fields:
        matched = re.fullmatch(r"(innovation|innovation_variance|test_ratio)(\[\d+\])?", name)
        if matched:
            columns[label + (matched[2] or "") + dict(pairs)[matched[1]]] = (name, 1.0)
    return columns
