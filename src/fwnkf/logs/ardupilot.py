"""Standard signals of ArduPilot logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from .log import Message, Source, Stream
from .records import RecordLog, instances
from .roles import AXES, FIX, SourceList, euler_to_quaternion, intervals, match, rotor_numbers, vector, whole

LANDED, MAYBE_LANDED, NOT_LANDED = 18, 17, 28
"""Events of ``EV``."""
MOTORS = [*range(33, 41), *range(82, 86)]
"""Values of ``SERVOn_FUNCTION`` for motors 1 to 12."""
RATIOS = {
    "SV": ("IVN", "IVE", "IVD"),
    "SP": ("IPN", "IPE"),
    "SH": ("IPD",),
    "SM": ("IMX", "IMY", "IMZ"),
    "SVT": ("IVT",),
}
"""Test ratios of ``XKF4``, and the innovations of ``XKF3`` that each of them is about."""


def facts(log: RecordLog, versions: Sequence[str], messages: Sequence[Message]) -> dict[str, float | str]:
    """Firmware, frame and GPS fix."""
    known: dict[str, float | str] = {"firmware": "ArduPilot"}
    texts = [*versions, *(message.text for message in messages)]
    for text in texts:
        if text.startswith("Ardu") and " V" in text:
            known["firmware"] = text.split(" (")[0][:80]
            break
    frames = [text.removeprefix("Frame: ") for text in texts if text.startswith("Frame: ")]
    if frames:
        known["airframe"] = frames[-1][:80]
    fixes = [log.read(name, ["Status"]).columns["Status"].max() for name in instances(log, "GPS", "Status")]
    if fixes:
        best = max(map(whole, fixes))
        known["gps_fix"] = FIX.get(best, str(best))
    return known


def airborne(log: RecordLog) -> tuple[tuple[float, float], ...]:
    """Times between the events for take-off and landing."""
    if "EV" not in log.topics or "Id" not in log.topics["EV"].fields:
        return ()
    stream = log.read("EV", ["Id"])
    events = stream.columns["Id"]
    chosen = np.isin(events, (LANDED, NOT_LANDED))
    if not (events == NOT_LANDED).any():
        return ()
    ends = [log.read(name, []).time for name in instances(log, "IMU", "GyrX")[:1]]
    time = np.concatenate([stream.time[chosen], *(end[-1:] for end in ends)])
    state = np.concatenate([events[chosen] == NOT_LANDED, *(np.zeros(1, bool) for _ in ends)])
    return intervals(time, state)


# ---- computed topics -------------------------------------------------------------------------------------------------


def derive(log: RecordLog) -> None:
    """Add the topics that are computed from several fields or topics."""
    for kind in ("XKF", "NKF"):
        for name in instances(log, f"{kind}1", "Yaw"):
            if all(field in log.series[name].fields for field in ("PN", "PE", "PD", "Roll", "Pitch")):
                fields = [f"position_{axis}" for axis in AXES] + [f"orientation_{axis}" for axis in "wxyz"]
                log.derive(f"{name}/pose", fields, partial(_pose, log, name))
        for name in instances(log, f"{kind}3", "IVN"):
            ratios = name.replace(f"{kind}3", f"{kind}4")
            names = [field for field in log.series[name].fields if field[:1] == "I"]
            log.derive(f"{name}/joined", _joined(log, names, ratios), partial(_innovations, log, name, names, ratios))
    for name in instances(log, "GPS", "GCrs"):
        if all(field in log.series[name].fields for field in ("Spd", "VZ")):
            log.derive(f"{name}/velocity", [f"velocity_{axis}" for axis in AXES], partial(_velocity, log, name))
    for kind, field in (("ESC", "RPM"), ("RPM", "RPM")):
        names = instances(log, kind, field)
        if names:
            numbers = _motor_numbers(log, names) if kind == "ESC" else list(range(1, len(names) + 1))
            columns = {f"rotor_{number}": name for number, name in sorted(zip(numbers, names, strict=True))}
            log.derive(f"{kind}/rotors", list(columns), partial(_rotors, log, columns, field))
    motors = _motor_channels(log)
    if motors:
        log.derive("RCOU/motors", list(motors), partial(_motors, log, motors))
    for number, instance in _batches(log):
        role = "gyro" if number else "accel"
        log.derive(f"ISBH/{role}_{instance}", AXES, partial(_batch, log, number, instance))


def _pose(log: RecordLog, name: str) -> Stream:
    stream = log.read(name, ["PN", "PE", "PD", "Roll", "Pitch", "Yaw"])
    position = {f"position_{axis}": stream.columns[f] for axis, f in zip(AXES, ("PN", "PE", "PD"), strict=True)}
    angles = [np.deg2rad(stream.columns[field]) for field in ("Roll", "Pitch", "Yaw")]
    return Stream(name, stream.time, position | euler_to_quaternion(*angles))


def _velocity(log: RecordLog, name: str) -> Stream:
    stream = log.read(name, ["Spd", "GCrs", "VZ"])
    course, speed = np.deg2rad(stream.columns["GCrs"]), stream.columns["Spd"]
    values = (speed * np.cos(course), speed * np.sin(course), stream.columns["VZ"])
    return Stream(name, stream.time, dict(zip((f"velocity_{axis}" for axis in AXES), values, strict=True)))


def _joined(log: RecordLog, names: Sequence[str], ratios: str) -> list[str]:
    series = log.series.get(ratios)
    logged = {} if series is None or not series.places else series.fields
    squared = [f"{field}_ratio" for ratio, fields in RATIOS.items() if ratio in logged for field in fields]
    return [*names, *(name for name in squared if name.removesuffix("_ratio") in names)]


def _innovations(log: RecordLog, name: str, names: Sequence[str], ratios: str) -> Stream:
    """Innovations and test ratios; the log has the root of a ratio, for all axes together."""
    stream = log.read(name, names)
    columns = dict(stream.columns)
    joined = _joined(log, names, ratios)[len(names) :]
    logged = [ratio for ratio, fields in RATIOS.items() if any(f"{field}_ratio" in joined for field in fields)]
    if logged:
        other = log.read(ratios, logged)
        rows = match(stream.time, other.time)
        for ratio in logged:
            values = np.where(rows >= 0, other.columns[ratio][rows] ** 2, np.nan)
            columns |= {f"{field}_ratio": values for field in RATIOS[ratio] if f"{field}_ratio" in joined}
    return Stream(name, stream.time, columns)


def _motor_numbers(log: RecordLog, names: Sequence[str]) -> list[int]:
    """Of ESCs, whose instances are those of the outputs; outputs serve motors in any order."""
    outputs = [float(name.partition(".")[2] or 0) + 1 for name in names]
    motors: dict[object, int] = {function: index + 1 for index, function in enumerate(MOTORS)}
    functions = [log.parameters.get(f"SERVO{output:g}_FUNCTION") for output in outputs]
    return rotor_numbers([motors.get(function, 0) for function in functions], outputs)


def _rotors(log: RecordLog, names: Mapping[str, str], field: str) -> Stream:
    """Rotations per second of all rotors at the times of the one with the most samples."""
    streams = {rotor: log.read(name, [field]) for rotor, name in names.items()}
    time = max(streams.values(), key=len).time
    columns = {}
    for rotor, stream in streams.items():
        order = np.argsort(stream.time, kind="stable")
        speeds = stream.columns[field][order] / 60
        columns[rotor] = np.interp(time, stream.time[order], speeds, np.nan, np.nan)
    return Stream("rotors", time, columns)


def _motor_channels(log: RecordLog) -> dict[str, str]:
    """Field of ``RCOU`` for each motor, by the servo functions or, without them, those that move."""
    if "RCOU" not in instances(log, "RCOU", "C1"):  # servo outputs have no instances
        return {}
    fields = log.series["RCOU"].fields
    functions = {log.parameters.get(f"SERVO{index}_FUNCTION"): f"C{index}" for index in range(1, 15)}
    motors = [functions[number] for number in MOTORS if number in functions and functions[number] in fields]
    if not motors:
        stream = log.read("RCOU", [field for field in fields if field[:1] == "C"])
        motors = [name for name, values in stream.columns.items() if np.ptp(values) > 0]
    return {f"motor_{index + 1}": field for index, field in enumerate(motors)}


def _motors(log: RecordLog, motors: dict[str, str]) -> Stream:
    stream = log.read("RCOU", list(motors.values()))
    low, high = (_number(log, name, usual) for name, usual in (("MOT_PWM_MIN", 1000.0), ("MOT_PWM_MAX", 2000.0)))
    if not 500 <= low < high <= 2500:
        low, high = 1000.0, 2000.0
    scale = log.series["RCOU"].fields[next(iter(motors.values()))].factor
    columns = {name: np.clip((stream.columns[f] / scale - low) / (high - low), 0, 1) for name, f in motors.items()}
    return Stream("RCOU", stream.time, columns)


def _number(log: RecordLog, name: str, usual: float) -> float:
    value = log.parameters.get(name)
    return usual if value is None or isinstance(value, str) else float(value)


def _batches(log: RecordLog) -> list[tuple[int, int]]:
    """Kinds (0 accelerometer, 1 gyro) and instances for which there are batches of raw samples."""
    needed = ("N", "type", "instance", "mul", "smp_rate")
    if not all(instances(log, "ISBH", field) for field in needed) or not instances(log, "ISBD", "z[31]"):
        return []
    stream = log.read("ISBH", ["type", "instance"])
    pairs = {(whole(kind), whole(number)) for kind, number in zip(*stream.columns.values(), strict=True)}
    return sorted(pair for pair in pairs if pair[0] in (0, 1))[:32]


def _batch(log: RecordLog, kind: int, instance: int) -> Stream:
    """Samples of the batches of one sensor: each has the time of its first sample and a rate of its own."""
    heads, blocks = log.read("ISBH"), log.read("ISBD")
    places = np.array(log.series["ISBH"].places), np.array(log.series["ISBD"].places)
    chosen = (heads.columns["type"] == kind) & (heads.columns["instance"] == instance) & (heads.columns["smp_rate"] > 0)
    latest: dict[float, int] = {}  # the number of a batch is reused, so that the last one before a block counts
    order = np.argsort(np.concatenate(places), kind="stable")
    owner = np.full(len(blocks), -1)
    for row in order.tolist():
        if row < len(heads):
            latest[heads.columns["N"][row]] = row
        else:
            owner[row - len(heads)] = latest.get(blocks.columns["N"][row - len(heads)], -1)
    rows = np.flatnonzero((owner >= 0) & chosen[owner])
    head = owner[rows]
    index = blocks.columns["seqno"][rows, None] * 32 + np.arange(32)
    time = heads.time[head, None] + index / heads.columns["smp_rate"][head, None]
    columns = {}
    for axis in AXES:
        values = np.stack([blocks.columns[f"{axis}[{place}]"][rows] for place in range(32)], -1)
        columns[axis] = (values / np.maximum(heads.columns["mul"][head, None], 1)).ravel()
    rates = heads.columns["smp_rate"][chosen]
    return Stream(
        f"ISBH_{instance}", time.ravel(), columns, nominal=1 / float(np.median(rates)) if len(rates) else None
    )


# ---- standard signals ------------------------------------------------------------------------------------------------


def sources(log: RecordLog) -> tuple[Source, ...]:
    """The standard signals, the best of each role first."""
    listed = SourceList(log.topics)
    add = listed.add
    sensors = vector("gyro", "Gyr?") | vector("accel", "Acc?")
    for names in ("IMU", "IMU2", "IMU3"):
        for name in instances(log, names, "GyrX"):
            add("imu", str(len([source for source in listed.sources if source.role == "imu"])), name, _upper(sensors))
    for role, kind, field in (("gyro", "GYR", "Gyr?"), ("accel", "ACC", "Acc?")):
        for topic in (topic for topic in log.topics if topic.startswith(f"ISBH/{role}_")):
            add(role, f"batch_{topic.rpartition('_')[2]}", topic, vector(role, "?"))
        for name in instances(log, kind, "SampleUS"):
            add(role, name.partition(".")[2] or "0", name, _upper(vector(role, field)))
    for kind in ("ESC", "RPM"):
        topic = f"{kind}/rotors"
        if topic in log.topics:
            add("rotor", kind.lower(), topic, {name: (name, 1.0) for name in log.topics[topic].fields})
    add("rotor", "rpm", "RPM", {"rotor_1": ("rpm1", 1 / 60), "rotor_2": ("rpm2", 1 / 60)})
    if "RCOU/motors" in log.topics:
        add("motor", "", "RCOU/motors", {name: (name, 1.0) for name in log.topics["RCOU/motors"].fields})
    for kind in ("XKF", "NKF"):
        for name in instances(log, f"{kind}1", "PN"):
            label = f"{kind.lower()}_{name.partition('.')[2] or '0'}"
            add(
                "pose",
                label,
                f"{name}/pose",
                vector("position", "position_?") | vector("orientation", "orientation_?", "wxyz"),
            )
            add("velocity", label, name, {f"velocity_{a}": (f"V{f}", 1.0) for a, f in zip(AXES, "NED", strict=True)})
        for name in instances(log, f"{kind}3", "IVN"):
            label = f"{kind.lower()}_{name.partition('.')[2] or '0'}"
            add("innovation", label, f"{name}/joined", _used(log, f"{name}/joined"))
    for name in instances(log, "GPS", "GCrs"):
        add("velocity", "gps" + name.partition(".")[2], f"{name}/velocity", vector("velocity", "velocity_?"))
    add("attitude", "", "AHR2", {f"orientation_{axis}": (f"Q{i + 1}", 1.0) for i, axis in enumerate("wxyz")})
    for name in instances(log, "VIBE", "VibeX"):
        label = name.partition(".")[2] or "0"
        counts = [field for field in log.topics[name].fields if field.startswith("Clip")]
        clips = {f"clip_{field[4:] or 'all'}": (field, 1.0) for field in counts}
        add("vibration", label, name, _upper(vector("vibration", "Vibe?")) | clips)
    return tuple(listed.sources)


def _upper(columns: dict[str, tuple[str, float]]) -> dict[str, tuple[str, float]]:
    """Axes as ArduPilot writes them: ``GyrX``."""
    return {name: (field[:-1] + field[-1].upper(), factor) for name, (field, factor) in columns.items()}


def _used(log: RecordLog, topic: str) -> dict[str, tuple[str, float]]:
    """Innovations that are not zero throughout, which is what those of unused sensors are."""
    columns = log.read(topic).columns
    used = {name for name, values in columns.items() if np.any(np.isfinite(values) & (values != 0))}
    return {name: (name, 1.0) for name in columns if name.removesuffix("_ratio") in used}
