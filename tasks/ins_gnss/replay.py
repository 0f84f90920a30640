"""PX4's own test data for its EKF: the sensors, and the 24 states and variances that EKF2 had."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fwnkf.navigation import compare, defaults
from fwnkf.navigation.estimate import Navigator, adapted
from fwnkf.navigation.recording import NavigationRecording, Pose
from fwnkf.navigation.timeline import Array, Readings
from fwnkf.systems import NavigationConfig, earth
from tasks.ins_gnss.recordings import folder

CASES = ("iris_gps", "ekf_gsf_reset")
STEP = 0.010
"""Seconds of a step of EKF2, over which its biases are integrals."""
PLACES = {
    "velocity": slice(4, 7),
    "position": slice(7, 10),
    "gyro_bias": slice(10, 13),
    "accelerometer_bias": slice(13, 16),
}
SETTLED = 15.0
"""Seconds after which both filters have started."""


def load(name: str) -> tuple[NavigationRecording, Array, Array, Array]:
    """The sensors, and times, states and variances of EKF2."""
    base = folder() / "navigation" / "px4_ecl_replay"
    rows: dict[str, list[list[float]]] = defaultdict(list)
    with (base / f"{name}.replay.csv").open() as file:
        for line in csv.reader(file):
            rows[line[1]].append([float(line[0]) * 1e-6, *map(float, line[2:])])
    tables = {kind: np.array(values) for kind, values in rows.items()}
    imu, gps = tables["imu"], tables["gps"]
    # longitude stands before latitude: both recordings are of a simulator that flies in Zurich
    fixes = Readings(gps[:, 0], np.stack((1e-7 * gps[:, 3], 1e-7 * gps[:, 2], 1e-3 * gps[:, 1]), -1))
    recording = NavigationRecording.from_fixes(
        name,
        Readings(imu[:, 0], imu[:, [4, 5, 6, 1, 2, 3]]),
        fixes,
        velocity=Readings(gps[:, 0], gps[:, 4:7]),
        magnetometer=Readings(tables["mag"][:, 0], tables["mag"][:, 1:4]),
        barometer=Readings(tables["baro"][:, 0], tables["baro"][:, 1:2]),
    )
    table = np.genfromtxt(base / f"{name}.ekf_expected.csv", delimiter=",", skip_header=1)
    time, states, variances = 1e-6 * table[:, 0], table[:, 1:25], table[:, 25:49]
    pose = Pose(time, states[:, 7:10], states[:, 4:7], states[:, :4])
    return replace(recording, autopilot=pose), time, states, variances


def rows() -> Iterator[tuple[str, Any]]:
    """One row for each recording."""
    for name in CASES:
        yield name, lambda name=name: beside(name)


def beside(name: str) -> dict[str, Any]:
    """Our filter with EKF2's noises and delay beside EKF2's own states, in standard deviations that EKF2 states."""
    recording, time, states, variances = load(name)
    recording = recording.with_delays(dict.fromkeys(compare.GNSS, defaults.PX4_DELAY))
    navigator = Navigator(adapted(NavigationConfig(**defaults.PX4), recording))
    begin, end = recording.span
    moment, prior = navigator.started(recording, begin, end)
    found = navigator.estimate(recording, moment, end, prior, gate=False)
    inside = (time > moment + SETTLED) & (time < found.time[-1]) & (variances[:, 4] > 0)
    row: dict[str, Any] = {"compared seconds": float(inside.sum()) * 0.1}
    for part, place in PLACES.items():
        scale = 1 / STEP if part.endswith("bias") else 1.0
        theirs, std = states[inside, place] * scale, np.sqrt(variances[inside, place]) * scale
        ours = compare.interpolated(found.time, found.part(part), time[inside])
        away = ours - theirs
        if part == "position":  # another origin
            away = away - np.median(away, 0)
        row[part] = {
            "difference": [float(value) for value in np.sqrt((away**2).mean(0))],
            "EKF2 std": [float(value) for value in std.mean(0)],
            "within two std": float((np.abs(away) <= 2 * std).mean()),
        }
    assert recording.autopilot is not None
    there, angle = compare.against(found, recording.autopilot)["orientation"]
    late = there > moment + SETTLED
    tilt = np.sqrt(np.maximum(variances[inside, 1:4], 0)).mean(0) * 2  # a quaternion has half of the angle
    row["orientation"] = {
        "difference": [float(value) for value in np.sqrt((angle[late] ** 2).mean(0))],
        "EKF2 std": [float(value) for value in tilt],
        "within two std": float((np.abs(angle[late]) <= 2 * tilt).mean()),
    }
    field = earth.magnetic_field(*recording.origin)
    scale = float(np.linalg.norm(recording.magnetic_field)) / float(
        np.linalg.norm(states[inside, 16:19].mean(0)) + 1e-12
    )
    row["earth field"] = {
        "ours": [float(value) for value in found.part("magnetometer_field")[-1]],
        "EKF2 in our scale": [float(value) for value in states[inside, 16:19][-1] * scale],
        "model": list(field),
    }
    row["body field"] = {
        "ours": [float(value) for value in found.part("magnetometer_hard_iron")[-1]],
        "EKF2 in our scale": [float(value) for value in states[inside, 19:22][-1] * scale],
    }
    row["wind"] = {"EKF2": [float(value) for value in states[inside, 22:24][-1]]}
    return row
