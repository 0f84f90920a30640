"""Simulated flights as MCAP files, bags of ROS 1 and of ROS 2."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from fwnkf.data.flights import Flight

START = 1_700_000_000_000_000_000
IMU, POSE, ACTUATORS = "sensor_msgs/msg/Imu", "geometry_msgs/msg/PoseStamped", "actuator_msgs/msg/Actuators"
ACTUATORS_TEXT = "std_msgs/Header header\nfloat64[] position\nfloat64[] velocity\nfloat64[] normalized\n"


class Message(NamedTuple):
    """A message before it is encoded: a header, and numbers, or sequences of numbers."""

    received: int
    topic: str
    stamp: int
    numbers: Any


def messages(flight: Flight) -> list[Message]:
    """All messages in the order of the recorder."""

    def nanoseconds(seconds: Any) -> list[int]:
        return (START + np.round(np.asarray(seconds) * 1e9).astype(np.int64)).tolist()

    count = len(flight.imu_time)
    imu = np.zeros((count, 37))
    imu[:, 3], imu[:, 4], imu[:, 13:16], imu[:, 25:28] = 1.0, -1.0, flight.gyro, flight.accel
    pose = np.concatenate([flight.position, flight.orientation[:, [1, 2, 3, 0]]], 1)
    parts = [
        map(Message, nanoseconds(flight.received), ["/imu"] * count, nanoseconds(flight.imu_time), imu),
        _topic("/pose", nanoseconds(flight.pose_time), pose),
        _topic("/rotors", nanoseconds(flight.rotor_time), [((), row * 2 * np.pi, ()) for row in flight.rotor]),
        _topic("/motors", nanoseconds(flight.motor_time), [((), (), row) for row in flight.motor]),
    ]
    return sorted((message for part in parts for message in part), key=lambda message: message.received)


def _topic(name: str, stamps: list[int], rows: Any) -> Iterator[Message]:
    return (Message(stamp, name, stamp, row) for stamp, row in zip(stamps, rows, strict=True))


def _kind(topic: str) -> str:
    return {"/imu": IMU, "/pose": POSE}.get(topic, ACTUATORS)


def encode(message: Message, *, version: int) -> bytes:
    """A message as ROS 1 or ROS 2 (CDR, little-endian) sends it; the frame makes the header a multiple of eight."""
    seconds, nanoseconds = divmod(message.stamp, 1_000_000_000)
    if version == 1:
        head = struct.pack("<IIII3s", 0, seconds, nanoseconds, 3, b"imu")
    else:
        head = b"\x00\x01\x00\x00" + struct.pack("<iII4s", seconds, nanoseconds, 4, b"imu\x00")
    if isinstance(message.numbers, np.ndarray):
        return head + message.numbers.astype("<f8").tobytes()
    body = b""
    for sequence in message.numbers:
        body += struct.pack("<I", len(sequence))
        if len(sequence) and version == 2:
            body += bytes(-len(body) % 8)
        body += np.asarray(sequence, "<f8").tobytes()
    return head + body


def typestore(version: int) -> Any:
    typesys = pytest.importorskip("rosbags.typesys")
    store = typesys.get_typestore(typesys.Stores.ROS1_NOETIC if version == 1 else typesys.Stores.ROS2_HUMBLE)
    store.register(typesys.get_types_from_msg(ACTUATORS_TEXT, ACTUATORS))
    return store


def write_mcap(folder: Path, flight: Flight) -> Path:
    """A flight as an MCAP file."""
    path = folder / "flight.mcap"
    writer_module, store = pytest.importorskip("mcap.writer"), typestore(2)
    with path.open("wb") as file:
        writer = writer_module.Writer(file)
        writer.start(profile="ros2")
        channels: dict[str, int] = {}
        for message in messages(flight):
            if message.topic not in channels:
                kind = _kind(message.topic)
                text = store.generate_msgdef(kind, ros_version=2)[0].encode()
                schema = writer.register_schema(kind, "ros2msg", text)
                channels[message.topic] = writer.register_channel(message.topic, "cdr", schema)
            data = encode(message, version=2)
            writer.add_message(channels[message.topic], message.received, data, message.received)
        writer.finish()
    return path


def write_ros1(folder: Path, flight: Flight) -> Path:
    """A flight as a bag of ROS 1."""
    path = folder / "flight.bag"
    store = typestore(1)
    with pytest.importorskip("rosbags.rosbag1").Writer(path) as writer:
        _write(writer, store, flight, version=1)
    return path


def write_ros2(folder: Path, flight: Flight) -> Path:
    """A flight as a bag of ROS 2 in SQLite."""
    path = folder / "flight"
    rosbag2, store = pytest.importorskip("rosbags.rosbag2"), typestore(2)
    with rosbag2.Writer(path, version=9, storage_plugin=rosbag2.StoragePlugin.SQLITE3) as writer:
        _write(writer, store, flight, version=2)
    return path


def _write(writer: Any, store: Any, flight: Flight, *, version: int) -> None:
    connections: dict[str, Any] = {}
    for message in messages(flight):
        if message.topic not in connections:
            connection = writer.add_connection(message.topic, _kind(message.topic), typestore=store)
            connections[message.topic] = connection
        writer.write(connections[message.topic], message.received, encode(message, version=version))
