"""The sensors of a navigation filter from a log: PX4, ArduPilot, or a table with the names of this module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import DataError
from ..logs.log import Log
from ..systems import earth
from .recording import NavigationRecording, Pose
from .timeline import Array, Readings

Fields = Sequence[str]
AXES = "xyz"
PX4_RADIUS, ARDUPILOT_RADIUS = 6_371_000.0, 6_378_100.0
"""Of the spheres on which the autopilots have their local positions (m)."""

NAMED: Mapping[str, Fields] = {
    "imu": ("gyro_x", "gyro_y", "gyro_z", "accel_x", "accel_y", "accel_z"),
    "fixes": ("latitude", "longitude", "height"),
    "gnss_position": ("position_north", "position_east", "position_down"),
    "gnss_velocity": ("velocity_north", "velocity_east", "velocity_down"),
    "barometer": ("barometer",),
    "magnetometer": ("mag_x", "mag_y", "mag_z"),
    "airspeed": ("airspeed",),
    "wheels": ("wheel_speed",),
}
"""Columns of a table, as ``--field`` names them."""


def recording(log: Log, *, imu: str | None = None) -> NavigationRecording:
    """The IMU and the aiding sensors of a log, in forward, right, down and north, east, down.

    Args:
        log: an open log.
        imu: the source of the IMU by its name, of several; by default the first.

    Returns:
        The recording.

    Raises:
        DataError: the log lacks the IMU or GNSS.
    """
    sources = [source for source in log.sources() if source.role == "imu"]
    chosen = [source for source in sources if imu is None or source.name == imu]
    if not chosen:
        names = ", ".join(source.name for source in sources)
        raise DataError(
            f"{log.path.name}: no IMU{f' {imu!r}; there are: {names}' if imu else ''}. A navigation filter needs rates "
            "and forces of one IMU; name columns with --field gyro_x=…, …, accel_z=…"
        )
    stream = log.signal(chosen[0].name)
    samples = _ordered(Readings(stream.time, stream.stack(NAMED["imu"])))
    found = _px4(log) or _ardupilot(log) or _table(log)
    if "fixes" not in found:
        raise DataError(
            f"{log.path.name}: no GNSS position. A navigation filter needs one: vehicle_gps_position (PX4), GPS "
            "(ArduPilot), or columns named with --field latitude=…, longitude=…, height=…"
        )
    fixes, velocity, magnetometer = (found.pop(name, None) for name in ("fixes", "gnss_velocity", "magnetometer"))
    made = NavigationRecording.from_fixes(
        log.path.name, samples, fixes, velocity=velocity, magnetometer=magnetometer, **found
    )
    poses = {"truth": _truth(log, made.origin), "autopilot": _autopilot(log, made.origin)}
    return NavigationRecording(**{**vars(made), **poses})


def _ordered(item: Readings) -> Readings:
    """Stamps that do not go back, and samples that are numbers."""
    kept = np.isfinite(item.values).all(1)
    time, values = item.time[kept], item.values[kept]
    ahead = np.concatenate(([True], np.diff(np.maximum.accumulate(time)) > 0)) if len(time) else np.ones(0, bool)
    return Readings(time[ahead], values[ahead], item.delay)


def _read(log: Log, topic: str, fields: Fields, scale: float | Sequence[float] = 1.0) -> Readings | None:
    if topic not in log.topics or any(field not in log.topics[topic].fields for field in fields):
        return None
    stream = log.read(topic, list(fields))
    values = np.stack([stream.columns[field] for field in fields], -1) * np.asarray(scale)
    return _ordered(Readings(stream.time, values))


def _changed(item: Readings) -> Readings:
    """Readings without repetitions, of a topic that is logged more often than it is measured."""
    new = np.concatenate(([True], (np.diff(item.values, axis=0) != 0).any(1)))
    return Readings(item.time[new], item.values[new], item.delay)


def _px4(log: Log) -> dict[str, Any]:
    for topic in ("vehicle_gps_position", "sensor_gps"):
        if topic not in log.topics:
            continue
        fields = log.topics[topic].fields
        found: dict[str, Any] = {}
        if "lat" in fields:
            scale, names = (1e-7, 1e-7, 1e-3), ("lat", "lon", "alt")
        else:
            scale, names = (1.0, 1.0, 1.0), ("latitude_deg", "longitude_deg", "altitude_msl_m")
        fixes = _read(log, topic, names, scale)
        if fixes is None or not len(fixes.time):
            continue
        valid = _read(log, topic, ("fix_type",))
        if valid is not None and len(valid.time) == len(fixes.time):
            fixes = Readings(fixes.time, np.where(valid.values >= 3, fixes.values, np.nan))
        known = np.isfinite(fixes.values).all(1) & (np.abs(fixes.values[:, :2]).max(1) > 0)
        if not known.any():
            continue
        found["fixes"] = Readings(fixes.time[known], fixes.values[known])
        velocity = _read(log, topic, ("vel_n_m_s", "vel_e_m_s", "vel_d_m_s"))
        if velocity is not None and len(velocity.time) == len(known):
            velocity = Readings(velocity.time[known], velocity.values[known])
        optional = {
            "gnss_velocity": velocity,
            "barometer": _first(log, ("vehicle_air_data", "sensor_baro"), (("baro_alt_meter",), ("altitude",))),
            "magnetometer": _first(
                log,
                ("vehicle_magnetometer", "sensor_combined", "sensor_mag"),
                (tuple(f"magnetometer_ga[{i}]" for i in range(3)), tuple(AXES)),
            ),
            "airspeed": _first(log, ("airspeed_validated", "airspeed"), (("true_airspeed_m_s",),)),
        }
        return found | {name: _changed(item) for name, item in optional.items() if item is not None and len(item.time)}
    return {}


def _ardupilot(log: Log) -> dict[str, Any]:
    fixes = _read(log, "GPS", ("Lat", "Lng", "Alt"))
    if fixes is None:
        return {}
    if len(fixes.values) and np.abs(fixes.values[:, 0]).max() > 90.0:  # older logs have integers
        fixes = Readings(fixes.time, fixes.values * np.array([1e-7, 1e-7, 1.0]))
    status = _read(log, "GPS", ("Status",))
    good = np.ones(len(fixes.time), bool)
    if status is not None and len(status.time) == len(fixes.time):
        good = status.values[:, 0] >= 3
    if not good.any():
        return {}
    velocity = _read(log, "GPS/velocity", ("velocity_x", "velocity_y", "velocity_z"))
    if velocity is not None and len(velocity.time) == len(good):
        velocity = Readings(velocity.time[good], velocity.values[good])
    optional = {
        "gnss_velocity": velocity,
        "barometer": _read(log, "BARO", ("Alt",)),
        "magnetometer": _read(log, "MAG", ("MagX", "MagY", "MagZ")),
        "airspeed": _read(log, "ARSP", ("Airspeed",)),
    }
    found: dict[str, Any] = {"fixes": Readings(fixes.time[good], fixes.values[good])}
    return found | {name: item for name, item in optional.items() if item is not None and len(item.time)}


def _table(log: Log) -> dict[str, Any]:
    """Signals with the columns of :data:`NAMED`, those that the user named with a factor first."""
    found = {}
    for name, fields in NAMED.items():
        if name in ("imu", "gnss_position"):
            continue
        item = next((item for item in _candidates(log, fields) if len(item.time)), None)
        if item is not None:
            if name == "wheels":  # forward speed, and none across
                item = Readings(item.time, np.pad(item.values, ((0, 0), (0, 2))))
            found[name] = _changed(item) if name != "wheels" else item
    return found


def _candidates(log: Log, fields: Fields) -> Iterator[Readings]:
    """Whatever has all of these columns: signals, then topics."""
    for source in log.sources():
        if all(field in source.columns for field in fields):
            stream = log.signal(source.name)
            yield _ordered(Readings(stream.time, stream.stack(fields)))
    for topic in log.topics:
        item = _read(log, topic, fields)
        if item is not None:
            yield item


def _first(log: Log, topics: Fields, choices: Sequence[Fields]) -> Readings | None:
    for topic in topics:
        for fields in choices:
            item = _read(log, topic, fields)
            if item is not None and len(item.time):
                return item
    return None


def _pose(time: Array, position: Array | None, velocity: Array | None, attitude: Readings | None) -> Pose:
    if attitude is None or not len(attitude.time):
        return Pose(time, position, velocity)
    place = np.clip(np.searchsorted(attitude.time, time), 0, len(attitude.time) - 1)
    return Pose(time, position, velocity, attitude.values[place])


def _relative(log: Log, topic: str, item: Readings, origin: tuple[float, float, float]) -> Array:
    """Positions relative to another origin than that of the topic, if it says which."""
    names = ("ref_lat", "ref_lon", "ref_alt")
    reference = _read(log, topic, names)
    if reference is None or not len(reference.time):
        return item.values
    known = reference.values[(np.abs(reference.values[:, :2]).max(1) > 0)]
    if not len(known):
        return item.values
    return placed(item.values, known[-1], PX4_RADIUS, origin)


def placed(position: Array, reference: Array, radius: float, origin: tuple[float, float, float]) -> Array:
    """Metres of an autopilot, for which the Earth is a sphere about its own origin, as metres of a recording.

    On the ellipsoid its metres are up to 0.7 % longer or shorter: metres of difference within a kilometre.

    Args:
        position: north, east and down by the autopilot (m), ``[T, 3]``.
        reference: latitude and longitude of its origin (degrees, or integers of 1e-7 degrees) and height (m).
        radius: of its sphere (m).
        origin: that of the recording.

    Returns:
        North, east and down along the ellipsoid (m), relative to the origin of the recording.
    """
    lat, lon, up = reference * ((1e-7, 1e-7, 1.0) if np.abs(reference[0]) > 90 else (1.0, 1.0, 1.0))
    across = radius * np.cos(np.deg2rad(lat))
    places = (
        lat + np.rad2deg(position[:, 0] / radius),
        lon + np.rad2deg(position[:, 1] / across),
        up - position[:, 2],
    )
    return earth.north_east_down(np.stack(places, -1), origin)


def _truth(log: Log, origin: tuple[float, float, float]) -> Pose | None:
    globe = _read(log, "vehicle_global_position_groundtruth", ("lat", "lon", "alt", "vel_n", "vel_e", "vel_d"))
    if globe is not None and len(globe.time):
        scale = 1e-7 if np.abs(globe.values[:, 0]).max() > 90 else 1.0
        position = earth.north_east_down(globe.values[:, :3] * np.array([scale, scale, 1.0]), origin)
        attitude = _read(log, "vehicle_attitude_groundtruth", tuple(f"q[{i}]" for i in range(4)))
        return _pose(globe.time, position, globe.values[:, 3:], attitude)
    simulated = _read(log, "SIM", ("Lat", "Lng", "Alt", "Q1", "Q2", "Q3", "Q4"))
    if simulated is not None and len(simulated.time):
        position = earth.north_east_down(simulated.values[:, :3], origin)
        return Pose(simulated.time, position, None, simulated.values[:, 3:])
    return None


def _autopilot(log: Log, origin: tuple[float, float, float]) -> Pose | None:
    for topic in ("vehicle_local_position", "estimator_local_position"):
        local = _read(log, topic, ("x", "y", "z", "vx", "vy", "vz"))
        if local is not None and len(local.time):
            attitude = _read(log, "vehicle_attitude", tuple(f"q[{i}]" for i in range(4)))
            place = Readings(local.time, local.values[:, :3])
            return _pose(local.time, _relative(log, topic, place, origin), local.values[:, 3:], attitude)
    for kind in ("XKF1", "NKF1"):
        pose = _read(log, f"{kind}/pose", [f"position_{a}" for a in AXES] + [f"orientation_{a}" for a in "wxyz"])
        velocity = _read(log, kind, ("VN", "VE", "VD"))
        if pose is not None and len(pose.time):
            shift = _read(log, "ORGN", ("Lat", "Lng", "Alt"))
            position = pose.values[:, :3]
            if shift is not None and len(shift.time):
                position = placed(position, shift.values[-1], ARDUPILOT_RADIUS, origin)
            speed = None if velocity is None or len(velocity.time) != len(pose.time) else velocity.values
            return Pose(pose.time, position, speed, pose.values[:, 3:])
    return None
