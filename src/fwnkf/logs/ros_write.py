"""Write MCAP files with messages of ROS 2, which Foxglove, Rerun and ROS open."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..extras import need

Array = NDArray[np.float64]
Stamps = NDArray[np.int64]

NUMBERS: Mapping[str, int] = {
    "geometry_msgs/msg/PoseStamped": 7,
    "geometry_msgs/msg/PoseWithCovarianceStamped": 43,
    "sensor_msgs/msg/Imu": 37,
    "sensor_msgs/msg/MagneticField": 12,
}
"""Message types of a header and this many numbers: positions, quaternions (x, y, z, w), covariances by rows."""


def stamped(stamps: Stamps, numbers: Array, frame: str = "map") -> list[bytes]:
    """Messages in CDR of one of the types of :data:`NUMBERS`, a row of numbers each."""
    name = frame.encode() + b"\x00"
    lead = 12 + len(name)
    row = np.dtype(
        [
            ("encapsulation", "V4"),
            ("seconds", "<i4"),
            ("nanoseconds", "<u4"),
            ("length", "<u4"),
            ("frame", f"S{len(name)}"),
            ("padding", f"V{-lead % 8}"),
            ("numbers", "<f8", (numbers.shape[1],)),
        ]
    )
    rows = np.zeros(len(stamps), row)
    rows["encapsulation"] = b"\x00\x01\x00\x00"  # little-endian CDR
    rows["seconds"], rows["nanoseconds"] = stamps // 1_000_000_000, stamps % 1_000_000_000
    rows["length"], rows["frame"], rows["numbers"] = len(name), name, numbers
    data, size = rows.tobytes(), row.itemsize
    return [data[at : at + size] for at in range(0, len(data), size)]


class McapFile:
    """An MCAP file that is written: topics of standard ROS 2 types, and topics of named numbers in JSON.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "run.mcap"
    >>> with McapFile(path) as file:
    ...     file.write("/imu", "sensor_msgs/msg/Imu", np.arange(3) * 10**7, np.ones((3, 37)))
    >>> from fwnkf.logs import open_log
    >>> open_log(path).signal("imu").columns["gyro_x"]
    array([1., 1., 1.])
    """

    def __init__(self, path: str | Path, *, compression: str = "zstd") -> None:
        writer = need("mcap.writer", "logs")
        self._file = Path(path).open("wb")  # noqa: SIM115  # closed by close
        self._writer = writer.Writer(self._file, compression=writer.CompressionType[compression.upper()])
        self._writer.start(profile="ros2", library="fwnkf")
        self._channels: dict[str, int] = {}

    def __enter__(self) -> McapFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write(self, topic: str, kind: str, stamps: Stamps, numbers: Array, *, received: Stamps | None = None,
              frame: str = "map") -> None:  # fmt: skip
        """Append messages of one of the types of :data:`NUMBERS`, logged at ``received`` or at their stamps."""
        if topic not in self._channels:
            typesys = need("rosbags.typesys", "logs")
            text, _ = typesys.get_typestore(typesys.Stores.ROS2_HUMBLE).generate_msgdef(kind, ros_version=2)
            schema = self._writer.register_schema(kind, "ros2msg", text.encode())
            self._channels[topic] = self._writer.register_channel(topic, "cdr", schema)
        self._add(topic, stamps if received is None else received, stamps, stamped(stamps, numbers, frame))

    def write_json(self, topic: str, names: Sequence[str], stamps: Stamps, numbers: Array) -> None:
        """Append a JSON object of named numbers for each row; values that are not finite are null."""
        if topic not in self._channels:
            properties: dict[str, Any] = {name: {"type": ["number", "null"]} for name in names}
            time = {"type": "object", "properties": {name: {"type": "integer"} for name in ("sec", "nsec")}}
            text = json.dumps({"type": "object", "title": topic, "properties": {"timestamp": time} | properties})
            schema = self._writer.register_schema(topic.strip("/").replace("/", "."), "jsonschema", text.encode())
            self._channels[topic] = self._writer.register_channel(topic, "json", schema)
        finite = np.isfinite(numbers)
        rows = []
        for stamp, values, known in zip(stamps.tolist(), numbers.tolist(), finite.tolist(), strict=True):
            time = {"sec": stamp // 1_000_000_000, "nsec": stamp % 1_000_000_000}
            pairs = zip(names, values, known, strict=True)
            row = {"timestamp": time} | {name: value if valid else None for name, value, valid in pairs}
            rows.append(json.dumps(row, allow_nan=False).encode())
        self._add(topic, stamps, stamps, rows)

    def _add(self, topic: str, received: Stamps, stamps: Stamps, messages: Iterable[bytes]) -> None:
        channel, add = self._channels[topic], self._writer.add_message
        for log_time, stamp, data in zip(received.tolist(), stamps.tolist(), messages, strict=True):
            add(channel, log_time, data, stamp)

    def close(self, facts: Mapping[str, str] | None = None) -> None:
        """Write the index; ``facts`` are stored as metadata named ``fwnkf``."""
        if self._file.closed:
            return
        if facts:
            self._writer.add_metadata("fwnkf", dict(facts))
        self._writer.finish()
        self._file.close()
