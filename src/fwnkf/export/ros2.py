"""``export_ros2``: the C of a filter in a ROS 2 package, with a node from IMU and odometry to a pose."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..core.layout import Layout, Part
from ..errors import ConfigError
from ..filters.base import Filter
from ..logs.results import component_names
from .c import export_c
from .reference import Record
from .ros2_files import FILES
from .trace import DEFAULT_OUTPUTS, example_inputs

__all__ = ["export_ros2"]

AXES = "xyz"
UNKNOWN = 1e9
"""Variance of what the filter does not estimate."""


def _vector(name: str, field: str) -> dict[str, str]:
    return {f"{name}_{axis}": f"{field}[{index}]" for index, axis in enumerate(AXES)}


IMU = _vector("gyro", "angular_velocity") | _vector("accel", "linear_acceleration")
ODOMETRY = (
    _vector("position", "position")
    | {f"orientation_{axis}": f"orientation[{index}]" for index, axis in enumerate("wxyz")}
    | {name: f"roll_pitch_yaw[{index}]" for index, name in enumerate(("roll", "pitch", "yaw"))}
    | _vector("roll_pitch_yaw", "roll_pitch_yaw")
    | _vector("velocity", "velocity")
    | _vector("body_velocity", "body_velocity")
    | _vector("rate", "angular_velocity")
)
"""Signals by name, and where the node has them after a message of each kind."""


class Wiring(NamedTuple):
    """A signal for each channel and each control input of a filter."""

    channels: tuple[str, ...]
    controls: tuple[str, ...]

    @property
    def by_imu(self) -> bool:
        """Whether a step is taken for every IMU message; without IMU signals, for every odometry message."""
        return bool({*self.channels, *self.controls} & set(IMU))


def export_ros2(
    model: Filter,
    folder: str | Path,
    name: str = "filter",
    precision: str = "float",
    outputs: tuple[str, ...] = DEFAULT_OUTPUTS,
    steps: int = 1000,
    channels: tuple[str, ...] = (),
    controls: tuple[str, ...] = (),
    records: Sequence[Record] = (),
) -> dict[str, Any]:
    """Write a package of ament with a node around the C step.

    The node subscribes to ``imu`` (sensor_msgs/Imu) and ``odometry`` (nav_msgs/Odometry) and publishes ``pose``
    (geometry_msgs/PoseWithCovarianceStamped). A step is taken for every IMU message, or every odometry message of a
    filter without IMU signals; channels of the other message are missing in steps without a new one. The state needs a
    part ``position`` or ``orientation``.

    Args:
        model: the filter.
        folder: where to; it is created.
        name: of the package.
        precision: ``"float"`` or ``"double"``.
        outputs: what the step returns, mean and covariance among it.
        steps: steps that are compared with the filter, as in :func:`~fwnkf.export.c.export_c`.
        channels: a signal of these messages for each channel: ``gyro_x``, ``accel_x``, ``position_x``,
            ``orientation_w``, ``roll``, ``velocity_x`` (in the frame of the pose), ``body_velocity_x``, ``rate_x``, …;
            by default found by their name in the filter.
        controls: a signal for each control input; by default six are gyroscope and accelerometer.
        records: recordings that are compared on, as in :func:`~fwnkf.export.c.export_c`.

    Returns:
        What :func:`~fwnkf.export.c.export_c` returns.

    Raises:
        ConfigError: a signal is unknown or missing, or the state has no pose.

    >>> import tempfile, torch, fwnkf
    >>> eye, parts = torch.eye(3), (("position", "euclidean", 3),)
    >>> model = fwnkf.KF(F=eye, H=eye, Q=eye, R=eye, layout=parts)
    >>> signals = ("position_x", "position_y", "position_z")
    >>> export_ros2(model, tempfile.mkdtemp(), steps=0, channels=signals)["filter"]
    'kf'
    """
    if not {"mean", "cov"} <= set(outputs):
        raise ConfigError("a ROS 2 node publishes mean and covariance: outputs must name mean and cov")
    wiring = wire(model, channels, controls)
    pose = _pose(model.layout)
    folder = Path(folder)
    facts = export_c(model, folder / "filter", name, precision, outputs, steps, records=records, by_axis=False)
    texts = {"NAME": name, "GUARD": name.upper(), **_tables(model, wiring), **pose}
    written = []
    for path, text in FILES.items():
        target = folder / path.replace("NAME", name)
        target.parent.mkdir(parents=True, exist_ok=True)
        for key, value in texts.items():
            text = text.replace(f"@{key}@", value)
        target.write_text(text, encoding="utf-8")
        written.append(str(target))
    return {**facts, "files": written + facts["files"], "wiring": wiring._asdict()}


def wire(model: Filter, channels: tuple[str, ...] = (), controls: tuple[str, ...] = ()) -> Wiring:
    """The signals of a filter, checked; raises ConfigError with the names there are.

    >>> import fwnkf
    >>> from ..core.system import build_system
    >>> wire(fwnkf.EKF(build_system("strapdown", {}))).controls[:4]
    ('gyro_x', 'gyro_y', 'gyro_z', 'accel_x')
    """
    source: Any = model if model.preprocess is None else model.preprocess
    counts = int(source.observation_dim), int(source.control_dim)
    if not channels and model.preprocess is None:
        channels = component_names(model.observation_layout.describe())
    if not controls and counts[1] == len(IMU):
        controls = tuple(IMU)
    for option, names, count in (("channels", channels, counts[0]), ("controls", controls, counts[1])):
        unknown = [item for item in names if item not in {**IMU, **ODOMETRY}]
        if unknown or len(names) != count:
            found = f"{', '.join(unknown)} unknown" if unknown else f"{len(names)} named"
            raise ConfigError(
                f"{option}: {found}; name a signal for each of the {count} {option} of the filter, from "
                f"{', '.join({**IMU, **ODOMETRY})}"
            )
    return Wiring(channels, controls)


def _tables(model: Filter, wiring: Wiring) -> dict[str, str]:
    """Sizes, and the statements that take signals from messages."""
    shapes = {name: value.shape for name, value in example_inputs(model).items()}
    block = shapes["y"][1] if len(shapes["y"]) == 3 else 1

    def reads(fields: dict[str, str], message: str) -> str:
        lines = []
        for place, signal in enumerate(wiring.channels):
            if signal in fields:
                lines.append(f"        measure({place}, {message}.{fields[signal]});")
        for place, signal in enumerate(wiring.controls):
            if signal in fields:
                lines.append(f"        control_[{place}] = {message}.{fields[signal]};")
        return "\n".join(lines) or f"        (void){message};"

    nominal = model.nominal_step or 0.01
    control = "control, " if wiring.controls else ""
    dt = ("dt[0], " if block == 1 else "dt, ") if model.takes_dt else ""
    return {
        "CHANNELS": str(len(wiring.channels)),
        "CONTROLS": str(len(wiring.controls)),
        "BLOCK": str(block),
        "NOMINAL": repr(float(nominal)),
        "READ_IMU": reads(IMU, "imu"),
        "READ_ODOMETRY": reads(ODOMETRY, "odometry"),
        "IMU_STEPS": "true" if wiring.by_imu else "false",
        "ARGUMENTS": f"&state_, measured, mask, {control}{dt}&out_",
        "SIGNALS": ", ".join(wiring.channels),
        "CONTROL_SIGNALS": ", ".join(wiring.controls) or "none",
    }


def _pose(layout: Layout) -> dict[str, str]:
    """Where position and orientation stand in the state and in its tangent space; -1 for what is not there."""
    places: dict[str, tuple[Part, int, int]] = {}
    stored = tangent = 0
    for part in layout.parts:
        if (part.name == "position" and part.size == len(AXES)) or part.kind == "quaternion":
            places.setdefault("orientation" if part.kind == "quaternion" else "position", (part, stored, tangent))
        stored, tangent = stored + part.size, tangent + part.tangent_size
    if not places:
        names = ", ".join(f"{part.name} ({part.size})" for part in layout.parts)
        raise ConfigError(
            f"a pose needs a part 'position' of 3 numbers or a quaternion in the state, which has {names}; "
            "export such a filter with --to c"
        )
    texts = {"STATES": str(stored), "TANGENT": str(tangent), "UNKNOWN": repr(UNKNOWN)}
    for name in ("position", "orientation"):
        _, first, second = places.get(name, (None, -1, -1))
        texts |= {name.upper(): str(first), f"{name.upper()}_TANGENT": str(second)}
    return texts
