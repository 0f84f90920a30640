"""Write estimates to files: Parquet, CSV, TUM trajectories (for evo), and MCAP (for Foxglove and Rerun)."""

from __future__ import annotations

import csv
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from ..extras import need

Array = NDArray[np.float64]
Parts = Sequence[tuple[Any, ...]]
"""Name, kind (``euclidean``, ``angle``, ``quaternion``), size and, where it has one, origin of each part of a state."""

AXES = "xyz"


def component_names(parts: Parts, *, tangent: bool = False) -> tuple[str, ...]:
    """A name for each number of a state, or of its tangent space, in which covariances are.

    >>> component_names([("position", "euclidean", 3), ("bias", "euclidean", 1), ("q", "quaternion", 4)])
    ('position_x', 'position_y', 'position_z', 'bias', 'q_w', 'q_x', 'q_y', 'q_z')
    """
    names: list[str] = []
    for name, kind, size, *_ in parts:
        if kind == "quaternion":
            names += [f"{name}_r{axis}" for axis in AXES] if tangent else [f"{name}_{axis}" for axis in "wxyz"]
        elif size == 1:
            names.append(name)
        else:
            names += [f"{name}_{AXES[index] if size == 3 else index}" for index in range(size)]
    return tuple(names)


class ResultFile(ABC):
    """A file of estimates, to which rows are appended."""

    def __init__(self, path: Path, parts: Parts, start_ns: int) -> None:
        self.path, self.start_ns = path, start_ns
        self.names, self.tangent_names = component_names(parts), component_names(parts, tangent=True)
        self.quaternion = next((f"{name}_" for name, kind, *_ in parts if kind == "quaternion"), None)

    def stamps(self, time: Array) -> NDArray[np.int64]:
        return self.start_ns + np.round(time * 1e9).astype(np.int64)

    @abstractmethod
    def write(self, time: Array, mean: Array, cov: Array) -> None:
        """Append rows: seconds since the start, means ``[T, n]`` and covariances ``[T, d, d]``."""

    @abstractmethod
    def close(self, facts: Mapping[str, str]) -> None:
        """Finish the file; ``facts`` say how it was computed, and whether it is complete."""

    def _pose(self, mean: Array) -> tuple[Array | None, Array | None]:
        """Position ``[T, 3]`` and orientation ``[T, 4]`` (x, y, z, w), where the state has them."""
        position = orientation = None
        columns = {name: index for index, name in enumerate(self.names)}
        if all(f"position_{axis}" in columns for axis in AXES):
            position = mean[:, [columns[f"position_{axis}"] for axis in AXES]]
        if self.quaternion is not None:
            orientation = mean[:, [columns[self.quaternion + axis] for axis in "xyzw"]]
        return position, orientation


class TableResult(ResultFile):
    """A row for each step: ``time``, ``stamp_ns``, means by name, and standard deviations ``NAME_std``."""

    def __init__(self, path: Path, parts: Parts, start_ns: int, *, covariance: bool = False) -> None:
        super().__init__(path, parts, start_ns)
        size = len(self.tangent_names)
        self._pairs = [(i, j) for i in range(size) for j in range(i + 1, size)] if covariance else []
        further = [f"{self.tangent_names[i]}*{self.tangent_names[j]}" for i, j in self._pairs]
        self.numbers = [*self.names, *(f"{name}_std" for name in self.tangent_names), *further]

    def columns(self, mean: Array, cov: Array) -> list[Array]:
        """The columns of :attr:`numbers`."""
        std = np.sqrt(np.maximum(np.diagonal(cov, axis1=1, axis2=2), 0))
        return [*mean.T, *std.T, *(cov[:, i, j] for i, j in self._pairs)]


class CsvFile(TableResult):
    """Numbers with all their digits; what is known of the run stands in comments at the end."""

    def __init__(self, path: Path, parts: Parts, start_ns: int, *, covariance: bool = False) -> None:
        super().__init__(path, parts, start_ns, covariance=covariance)
        self._file = path.open("w", encoding="utf-8", newline="")
        self._writer = csv.writer(self._file, lineterminator="\n")
        self._writer.writerow(["time", "stamp_ns", *self.numbers])

    def write(self, time: Array, mean: Array, cov: Array) -> None:
        columns = [time.tolist(), self.stamps(time).tolist(), *(item.tolist() for item in self.columns(mean, cov))]
        self._writer.writerows(zip(*columns, strict=True))

    def close(self, facts: Mapping[str, str]) -> None:
        if not self._file.closed:
            self._file.writelines(
                f"# {name}: {value}".replace("\r", " ").replace("\n", " ") + "\n" for name, value in facts.items()
            )
            self._file.close()


class ParquetFile(TableResult):
    """The same with 64 bits a number."""

    def __init__(self, path: Path, parts: Parts, start_ns: int, *, covariance: bool = False) -> None:
        super().__init__(path, parts, start_ns, covariance=covariance)
        self._arrow = need("pyarrow", "logs")
        self._parquet = need("pyarrow.parquet", "logs")
        fields = [("time", self._arrow.float64()), ("stamp_ns", self._arrow.int64())]
        self._schema = self._arrow.schema(fields + [(name, self._arrow.float64()) for name in self.numbers])
        self._writer = self._parquet.ParquetWriter(path, self._schema)

    def write(self, time: Array, mean: Array, cov: Array) -> None:
        columns: list[Any] = [time, self.stamps(time), *self.columns(mean, cov)]
        self._writer.write_table(self._arrow.table(columns, schema=self._schema))

    def close(self, facts: Mapping[str, str]) -> None:
        if self._writer.is_open:
            self._writer.add_key_value_metadata({f"fwnkf.{name}": value for name, value in facts.items()})
            self._writer.close()


class TumFile(ResultFile):
    """A line for each step: time in seconds, position, and orientation as x, y, z, w."""

    def __init__(self, path: Path, parts: Parts, start_ns: int) -> None:
        super().__init__(path, parts, start_ns)
        if any(item is None for item in self._pose(np.zeros((1, len(self.names))))):
            raise ConfigError(
                f"{path}: a TUM trajectory needs a position (position_x, position_y, position_z) and an orientation; "
                f"the state of this filter has {', '.join(self.names)}. Write .parquet, .csv or .mcap instead"
            )
        self._file = path.open("w", encoding="utf-8")
        self._file.write("# timestamp tx ty tz qx qy qz qw\n")

    def write(self, time: Array, mean: Array, cov: Array) -> None:
        position, orientation = self._pose(mean)
        assert position is not None
        assert orientation is not None
        lines = []
        for stamp, *row in zip(self.stamps(time).tolist(), *position.T.tolist(), *orientation.T.tolist(), strict=True):
            # as text and not as float, which does not hold the nanoseconds of a date
            seconds = f"{stamp // 1_000_000_000}.{stamp % 1_000_000_000:09d}"
            lines.append(" ".join([seconds, *(repr(value) for value in row)]) + "\n")
        self._file.writelines(lines)

    def close(self, facts: Mapping[str, str]) -> None:
        if not self._file.closed:
            self._file.writelines(f"# {name}: {value}\n".replace("\r", " ") for name, value in facts.items())
            self._file.close()


class McapResult(ResultFile):
    """Topics ``/fwnkf/state`` (JSON) and, for a state that has them, ``/fwnkf/pose`` and ``/fwnkf/imu``."""

    def __init__(self, path: Path, parts: Parts, start_ns: int) -> None:
        super().__init__(path, parts, start_ns)
        from .ros_write import McapFile

        self._mcap = McapFile(path)
        tangent = {name: index for index, name in enumerate(self.tangent_names)}

        def places(name: str) -> list[int] | None:
            wanted = [f"{name}_{axis}" for axis in AXES]
            return [tangent[item] for item in wanted] if all(item in tangent for item in wanted) else None

        self._places = {name: places(name) for name in ("position", "gyro", "accel")}
        turns = None if self.quaternion is None else [tangent[f"{self.quaternion}r{axis}"] for axis in AXES]
        self._places["orientation"] = turns

    def write(self, time: Array, mean: Array, cov: Array) -> None:
        stamps = self.stamps(time)
        std = np.sqrt(np.maximum(np.diagonal(cov, axis1=1, axis2=2), 0))
        names = [*self.names, *(f"{name}_std" for name in self.tangent_names)]
        self._mcap.write_json("/fwnkf/state", names, stamps, np.concatenate([mean, std], 1))
        position, orientation = self._pose(mean)
        if position is not None:
            numbers = np.concatenate(
                [position, _identity(len(time)) if orientation is None else orientation,
                 self._pose_covariance(cov, orientation).reshape(len(time), 36)], 1,
            )  # fmt: skip
            self._mcap.write("/fwnkf/pose", "geometry_msgs/msg/PoseWithCovarianceStamped", stamps, numbers)
        gyro, accel = self._places["gyro"], self._places["accel"]
        if gyro is not None and accel is not None:
            columns = {name: index for index, name in enumerate(self.names)}
            unknown = np.zeros((len(time), 9))
            unknown[:, 0] = -1.0  # of the orientation, as ROS wants it
            vectors = [mean[:, [columns[f"{name}_{axis}"] for axis in AXES]] for name in ("gyro", "accel")]
            blocks = [cov[:, place][:, :, place].reshape(len(time), 9) for place in (gyro, accel)]
            numbers = np.concatenate(
                [_identity(len(time)), unknown, vectors[0], blocks[0], vectors[1], blocks[1]], 1
            )  # fmt: skip
            self._mcap.write("/fwnkf/imu", "sensor_msgs/msg/Imu", stamps, numbers, frame="base_link")

    def _pose_covariance(self, cov: Array, orientation: Array | None) -> Array:
        """Covariance of position and rotation about fixed axes, ``[T, 6, 6]``; rotations here are about body axes."""
        place, turns = self._places["position"], self._places["orientation"]
        assert place is not None
        joint = np.zeros((len(cov), 6, 6))
        joint[:, :3, :3] = cov[:, place][:, :, place]
        if orientation is None or turns is None:
            joint[:, [3, 4, 5], [3, 4, 5]] = np.pi**2  # unknown
            return joint
        rotation = rotation_matrices(orientation)
        joint[:, 3:, 3:] = rotation @ cov[:, turns][:, :, turns] @ rotation.swapaxes(1, 2)
        joint[:, :3, 3:] = cov[:, place][:, :, turns] @ rotation.swapaxes(1, 2)
        joint[:, 3:, :3] = joint[:, :3, 3:].swapaxes(1, 2)
        return joint

    def close(self, facts: Mapping[str, str]) -> None:
        self._mcap.close(facts)


def rotation_matrices(q: Array) -> Array:
    """Rotation matrices ``[T, 3, 3]`` of unit quaternions (x, y, z, w)."""
    x, y, z, w = q.T
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    return np.stack([np.stack(row, -1) for row in rows], -2)


def _identity(count: int) -> Array:
    return np.repeat(np.array([[0.0, 0.0, 0.0, 1.0]]), count, 0)


def result_file(path: Path, parts: Parts, start_ns: int, *, covariance: bool = False) -> ResultFile:
    """A file of the format of the suffix: ``.parquet``, ``.csv``, ``.tum`` or ``.mcap``."""
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return ParquetFile(path, parts, start_ns, covariance=covariance)
    if suffix == ".csv":
        return CsvFile(path, parts, start_ns, covariance=covariance)
    if suffix == ".tum":
        return TumFile(path, parts, start_ns)
    if suffix == ".mcap":
        return McapResult(path, parts, start_ns)
    raise ConfigError(f"{path}: estimates are written as .parquet, .csv, .tum or .mcap")
