"""The public recordings of the navigation benchmark, each in the form that the navigation filter takes.

Where they come from, their units and their faults are in the README beside them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io  # type: ignore[import-untyped]
from scipy.spatial import transform  # type: ignore[import-untyped]

from fwnkf.errors import DataError
from fwnkf.logs import open_log
from fwnkf.navigation import from_log
from fwnkf.navigation.recording import NavigationRecording, Pose
from fwnkf.navigation.timeline import Array, Readings
from fwnkf.systems import earth


def folder() -> Path:
    """Where the recordings are: ``FWNKF_DATA``."""
    root = os.environ.get("FWNKF_DATA")
    if not root or not (Path(root) / "navigation").is_dir():
        raise DataError("FWNKF_DATA names no folder with the recordings in navigation/; see docs/howto/recordings.md")
    return Path(root)


def _mat(path: Path) -> dict[str, Any]:
    return dict(scipy.io.loadmat(path, squeeze_me=True, struct_as_record=False))


def quaternions(roll: Array, pitch: Array, yaw: Array) -> Array:
    """Of angles in radians, scalar first."""
    turned = transform.Rotation.from_euler("ZYX", np.stack((yaw, pitch, roll), -1)).as_quat()
    return np.roll(turned, 1, -1)


def navego() -> tuple[NavigationRecording, Any, Any]:
    """NaveGo's synthetic drive with a MEMS sensor and its exact reference; the error models of IMU and GNSS."""
    base = folder() / "navigation" / "synthetic"
    imu, gnss, ref = (
        _mat(base / f"navego_{name}.mat")[key] for name, key in (("imu1", "imu1"), ("gnss", "gnss"), ("ref", "ref"))
    )
    fixes = Readings(gnss.t, np.stack((np.rad2deg(gnss.lat), np.rad2deg(gnss.lon), gnss.h), -1))
    made = NavigationRecording.from_fixes(
        "NaveGo", Readings(imu.t, np.concatenate((imu.wb, imu.fb), 1)), fixes, velocity=Readings(gnss.t, gnss.vel)
    )
    places = np.stack((np.rad2deg(ref.lat), np.rad2deg(ref.lon), ref.h), -1)
    position = earth.north_east_down(places, made.origin)
    return replace(made, truth=Pose(ref.t, position, ref.vel, quaternions(ref.roll, ref.pitch, ref.yaw))), imu, gnss


def car() -> NavigationRecording:
    """rtklibexplorer's drive: a consumer IMU, unaligned, and RTK."""
    data = np.load(folder() / "navigation" / "car" / "rtklibexplorer_drive_0708.npz")
    begin = float(data["imu_t"][0])
    imu = Readings(data["imu_t"] - begin, np.concatenate((data["imu_gyro_radps"], data["imu_acc_mps2"]), 1))
    time = data["gnss_t"] - begin
    fixes = Readings(time, np.stack([data[f"gnss_{name}"] for name in ("lat_deg", "lon_deg", "h_m")], -1))
    velocity = Readings(time, data["gnss_vel_neu_mps"] * np.array([1.0, 1.0, -1.0]))
    return NavigationRecording.from_fixes("car", imu, fixes, velocity=velocity)


def swiss() -> NavigationRecording:
    """A PX4 fixed wing of 2014, 100 s in flight."""
    data = _mat(folder() / "navigation" / "real_fixedwing" / "inertialnav_SwissLog1.mat")
    imu = Readings(data["IMUtime"], np.concatenate((data["angRate"], data["accel"]), 1))
    time, course = data["GPStime"], data["CourseDeg"]
    fixes = Readings(time, np.stack((data["LatDeg"], data["LngDeg"], data["Hgt"]), -1))
    velocity = np.stack((data["GndSpd"] * np.cos(course), data["GndSpd"] * np.sin(course), data["VelD"]), -1)
    mag = np.stack([data[f"Mag{axis}"] for axis in "XYZ"], -1)
    made = NavigationRecording.from_fixes(
        "SwissLog1",
        imu,
        fixes,
        velocity=Readings(time, velocity),
        magnetometer=_fresh(data["MAGtime"], mag),
        barometer=_fresh(data["ADStime"], data["HgtBaro"][:, None]),
        airspeed=_fresh(data["ADStime"], data["Veas"][:, None]),
    )
    angles = np.deg2rad(np.stack([data[name] for name in ("Roll", "Pitch", "Yaw")]))
    return replace(made, autopilot=Pose(data["ATTtime"], orientation=quaternions(*angles)))


def testlog2() -> NavigationRecording:
    """ArduPlane of 2013, 613 s."""
    data = _mat(folder() / "navigation" / "real_fixedwing" / "inertialnav_TestLog2.mat")

    def columns(table: str, *names: str) -> Array:
        labels = [str(label) for label in data[f"{table}_label"]]
        return np.stack([data[table][:, labels.index(name)] for name in names], -1).astype(float)

    imu = Readings(
        1e-3 * columns("IMU", "TimeMS")[:, 0], columns("IMU", "GyrX", "GyrY", "GyrZ", "AccX", "AccY", "AccZ")
    )
    time = 1e-3 * columns("GPS", "T")[:, 0]
    fixes = Readings(time, columns("GPS", "Lat", "Lng", "Alt"))
    speed, course, climb = columns("GPS", "Spd", "GCrs", "VZ").T
    velocity = np.stack((speed * np.cos(np.deg2rad(course)), speed * np.sin(np.deg2rad(course)), climb), -1)
    mag = columns("MAG", "MagX", "MagY", "MagZ") + columns("MAG", "OfsX", "OfsY", "OfsZ")
    nav = 1e-3 * columns("NTUN", "TimeMS")[:, 0]
    angles = np.deg2rad(columns("ATT", "Roll", "Pitch", "Yaw")).T
    made = NavigationRecording.from_fixes(
        "TestLog2",
        imu,
        fixes,
        velocity=Readings(time, velocity),
        magnetometer=_fresh(1e-3 * columns("MAG", "TimeMS")[:, 0], mag),
        barometer=_fresh(nav, columns("NTUN", "Alt")),
        airspeed=_fresh(nav, columns("NTUN", "Arspd")),
    )
    return replace(made, autopilot=Pose(1e-3 * columns("ATT", "TimeMS")[:, 0], orientation=quaternions(*angles)))


def thor() -> NavigationRecording:
    """Ultra Stick of the University of Minnesota, flight 75."""
    data = _mat(folder() / "navigation" / "real_fixedwing" / "umn_thor_flight75.mat")["flight_data"]
    imu = Readings(data.time, np.stack((data.p, data.q, data.r, data.ax, data.ay, data.az), -1))
    new = np.concatenate(([False], np.diff(data.GPS_TOW) != 0)) & (data.lat != 0)
    time = data.time[new]
    fixes = Readings(time, np.stack((data.lat, data.lon, data.alt), -1)[new])
    made = NavigationRecording.from_fixes(
        "thor75",
        imu,
        fixes,
        velocity=Readings(time, np.stack((data.vn, data.ve, data.vd), -1)[new]),
        magnetometer=_fresh(data.time, np.stack((data.hx, data.hy, data.hz), -1)),
        barometer=_fresh(data.time, data.h[:, None]),
        airspeed=_fresh(data.time, data.ias[:, None]),
    )
    good = data.navValid == 0
    position = earth.north_east_down(
        np.stack((np.rad2deg(data.navlat), np.rad2deg(data.navlon), data.navalt), -1)[good], made.origin
    )
    velocity = np.stack((data.navvn, data.navve, data.navvd), -1)[good]
    turned = quaternions(data.phi[good], data.theta[good], data.psi[good])
    return replace(made, autopilot=Pose(data.time[good], position, velocity, turned))


def log376() -> NavigationRecording:
    """A PX4 multirotor without magnetometer, exported to CSV."""
    base = folder() / "navigation" / "real_px4_imu_gps"

    def table(name: str) -> Any:
        return np.genfromtxt(base / f"log_376_2018-11-1_{name}.csv.gz", delimiter=",", names=True)

    sensors, gnss, air = (table(name) for name in ("sensor_combined", "vehicle_gps_position", "vehicle_air_data"))
    imu = [sensors[f"{kind}{i}"] for kind in ("gyro_rad", "accelerometer_m_s2") for i in range(3)]
    time = 1e-6 * gnss["timestamp"]
    fixes = np.stack((1e-7 * gnss["lat"], 1e-7 * gnss["lon"], 1e-3 * gnss["alt"]), -1)
    velocity = np.stack([gnss[f"vel_{axis}_m_s"] for axis in "ned"], -1)
    return NavigationRecording.from_fixes(
        "log_376",
        Readings(1e-6 * sensors["timestamp"], np.stack(imu, -1)),
        Readings(time, fixes),
        velocity=Readings(time, velocity),
        barometer=Readings(1e-6 * air["timestamp"], air["baro_alt_meter"][:, None]),
    )


def of_log(*parts: str) -> NavigationRecording:
    """One of the logs."""
    return from_log.recording(open_log(folder().joinpath(*parts)))


def _fresh(time: Array, values: Array) -> Readings:
    """Without repetitions, of a table that is written more often than a sensor measures."""
    new = np.concatenate(([True], (np.diff(values, axis=0) != 0).any(1)))
    return Readings(time[new], values[new])


def hexa(number: int) -> NavigationRecording:
    """3DR's hexacopter with EKF2's innovations."""
    return of_log("logs", "ulog", f"3dr_hexa_flight{number}.ulg")


RECORDINGS: dict[str, Callable[[], NavigationRecording]] = {
    "3dr_hexa_flight1": lambda: hexa(1),
    "3dr_hexa_flight2": lambda: hexa(2),
    "thor75": thor,
    "SwissLog1": swiss,
    "TestLog2": testlog2,
    "log_376": log376,
}
"""Real flights."""
