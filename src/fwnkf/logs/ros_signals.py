"""The standard signals among the topics of a ROS log, by the types of their messages."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping

from .definitions import short
from .log import OWN, Source, Topic, own_name

AXES = ("x", "y", "z")
QUATERNION = ("w", "x", "y", "z")

Columns = dict[str, tuple[str, float]]


def _axes(name: str, field: str, axes: tuple[str, ...] = AXES) -> Columns:
    return {f"{name}_{axis}": (f"{field}.{axis}", 1.0) for axis in axes}


def _indexed(name: str, field: str) -> Columns:
    return {f"{name}_{axis}": (f"{field}[{index}]", 1.0) for index, axis in enumerate(AXES)}


def _pose(position: str, orientation: str) -> Columns:
    return _axes("position", position) | _axes("orientation", orientation, QUATERNION)


SIGNALS: Mapping[str, Mapping[str, Columns]] = {
    "sensor_msgs/Imu": {"imu": _axes("gyro", "angular_velocity") | _axes("accel", "linear_acceleration")},
    "nav_msgs/Odometry": {
        "pose": _pose("pose.pose.position", "pose.pose.orientation"),
        "velocity": _axes("velocity", "twist.twist.linear"),
    },
    "geometry_msgs/PoseStamped": {"pose": _pose("pose.position", "pose.orientation")},
    "geometry_msgs/PoseWithCovarianceStamped": {"pose": _pose("pose.pose.position", "pose.pose.orientation")},
    "geometry_msgs/TransformStamped": {"pose": _pose("transform.translation", "transform.rotation")},
    "geometry_msgs/PointStamped": {"pose": _axes("position", "point")},
    "geometry_msgs/TwistStamped": {"velocity": _axes("velocity", "twist.linear")},
    "geometry_msgs/TwistWithCovarianceStamped": {"velocity": _axes("velocity", "twist.twist.linear")},
    "px4_msgs/SensorCombined": {"imu": _indexed("gyro", "gyro_rad") | _indexed("accel", "accelerometer_m_s2")},
    "px4_msgs/VehicleOdometry": {"pose": _indexed("position", "position")},
}
"""Columns of the standard signals by the type of the message and the role."""

NUMBERED: Mapping[str, Mapping[str, tuple[str, float]]] = {
    "mavros_msgs/ESCStatus": {"rotor": ("esc_status[{}].rpm", 1 / 60)},
    "mavros_msgs/ESCTelemetry": {"rotor": ("esc_telemetry[{}].rpm", 1 / 60)},
    "px4_msgs/EscStatus": {"rotor": ("esc[{}].esc_rpm", 1 / 60)},
    "px4_msgs/ActuatorMotors": {"motor": ("control[{}]", 1.0)},
    "mav_msgs/Actuators": {"rotor": ("angular_velocities[{}]", 1 / math.tau), "motor": ("normalized[{}]", 1.0)},
    "actuator_msgs/Actuators": {"rotor": ("velocity[{}]", 1 / math.tau), "motor": ("normalized[{}]", 1.0)},
}
"""Fields with the speed of a rotor or the command of a motor, and their factors to the standard units."""


ESTIMATES = ("nav_msgs/Odometry", "geometry_msgs/PoseWithCovarianceStamped")
"""Types with a covariance of the position; ROS states velocities in the frame of the body, a reference rarely does."""
ESTIMATE = _axes("position", "pose.pose.position") | {
    f"position_{axis}_variance": (f"pose.covariance[{7 * index}]", 1.0) for index, axis in enumerate(AXES)
}
TRUTH = re.compile(r"truth|vicon|mocap|optitrack|qualisys|(^|[/_])gt([/_]|$)", re.IGNORECASE)
"""Names of topics with a reference."""


UNMEASURED = re.compile(r"(^|[._])(stamp|sec|nsec|nanosec|secs|nsecs|seq|frame_id|timestamp|time)$|covariance|stamp\.")
"""Fields of messages that are no measurements."""
MOST_FIELDS = 64
"""Numbers of a message, at most, for its fields to be taken as channels: more of them are an image or a scan."""


def signals(topics: Mapping[str, Topic]) -> tuple[Source, ...]:
    """The standard signals: of several topics with the same role, the one with the most samples first."""
    candidates: list[tuple[str, Topic, Columns]] = []
    for topic in topics.values():
        kind = short(topic.kind)
        for role, columns in SIGNALS.get(kind, {}).items():
            if _has(topic, columns):
                candidates.append((role, topic, columns))
                if TRUTH.search(topic.name) and role == "pose":
                    candidates.append(("truth", topic, columns))
        if kind in ESTIMATES and not TRUTH.search(topic.name) and _has(topic, ESTIMATE):
            candidates.append(("estimate", topic, ESTIMATE))
        for role, (pattern, factor) in NUMBERED.get(kind, {}).items():
            fields = [pattern.format(index) for index in range(32) if pattern.format(index) in topic.fields]
            if fields:
                numbered: Columns = {f"{role}_{index + 1}": (field, factor) for index, field in enumerate(fields)}
                candidates.append((role, topic, numbered))
    # names decide between topics of equal rate: a magnetometer may publish its heading as an Imu message
    candidates.sort(key=lambda item: (-(item[1].count or 0), item[0] not in item[1].name.lower()))
    sources: list[Source] = []
    of_role: Counter[str] = Counter()
    for role, topic, columns in candidates:
        number = of_role[role]
        of_role[role] += 1
        sources.append(Source(f"{role}_{number}" if number else role, role, topic.name, columns))
    known = {source.topic for source in sources}
    others = sorted((t for t in topics.values() if t.name not in known), key=lambda topic: -(topic.count or 0))
    for topic in others:
        own = {field: (field, 1.0) for field in topic.fields if not UNMEASURED.search(field)}
        if own and len(own) <= MOST_FIELDS:
            sources.append(Source(own_name(topic.name), OWN, topic.name, own))
    return tuple(sources)


def _has(topic: Topic, columns: Columns) -> bool:
    return all(field in topic.fields for field, _ in columns.values())
