"""Tensors that older checkpoints have under other names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_CALIBRATED = {"calibration": "motion.calibration", "bias_std": "motion.bias_std"}
SYSTEM_TENSORS: dict[str, dict[str, str]] = {
    "calibrated_strapdown": _CALIBRATED,
    "drag_strapdown": {
        **_CALIBRATED,
        "tilt_std": "motion.tilt_std",
        "axes": "sensors.across.axes",
        "drag": "sensors.across.drag",
        "offset_std": "sensors.across.offset_std",
    },
    "multirotor": {
        "log_density": "motion.log_density",
        "drag": "sensors.force.drag",
        "log_deviation": "sensors.force.log_deviation",
    },
}
"""For each registered system: the name a tensor had in version 0.2.0, and its name now."""


def current_names(description: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Old names of the tensors of a saved filter and their names now, the filter inside its preprocessing included.

    >>> current_names({"system": {"name": "multirotor"}, "preprocess": None})["system.drag"]
    'system.sensors.force.drag'
    """
    system, preprocess = description["system"], description["preprocess"]
    tensors = {} if system is None else SYSTEM_TENSORS.get(system["name"], {})
    names = {f"{prefix}system.{old}": f"{prefix}system.{new}" for old, new in tensors.items()}
    inner = None if preprocess is None else preprocess.get("filter")
    return names if inner is None else {**names, **current_names(inner, f"{prefix}preprocess.inner.")}
