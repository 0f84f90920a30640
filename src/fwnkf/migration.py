"""Checkpoints of formats 1 and 2: their options and the names of their tensors in terms of the present ones.

Format 3 (0.3.0) composes an FW-NKF of parts and gives every FW-NKF a system. In formats 1 and 2 it had 34 options, the
level, hypotheses and rotor lines were filters of their own, and a filter without equations had no system.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from .errors import CheckpointError, listed, shown


class Migrated(NamedTuple):
    """A description in the present format, and what becomes of the tensors."""

    description: dict[str, Any]
    names: dict[str, str]
    """Prefixes of old names of tensors, and what stands for them; the longest one that fits counts."""
    dropped: tuple[str, ...] = ()
    """Prefixes of tensors that have no counterpart."""
    added: tuple[str, ...] = ()
    """Names of tensors that the file does not have; they are as in a new filter."""


def migrate(description: dict[str, Any], where: str) -> Migrated:
    """A filter's description of format 1 or 2 in the form of format 3.

    Args:
        description: as the file has it, its form checked.
        where: the file, for messages.

    Returns:
        The description, and how tensors are renamed.

    Raises:
        CheckpointError: the filter has an option that was removed.
    """
    name, old, system = description["filter"], description["config"], description["system"]
    try:
        if name == "order_tracking":
            result = _order_tracking(description)
        elif name in ("fwnkf", "fwnkf_adaptive", "fwnkf_hypotheses"):
            _check_options(old, f"{where}: filter {name}")
            result = _fwnkf(description, old, system, where)
        else:
            result = Migrated(dict(description), {})
    except (TypeError, KeyError, ArithmeticError) as error:  # values of another type than fwnkf 0.2 wrote
        raise CheckpointError(
            f"{where}: filter {name}: its options are not those of fwnkf 0.2: {shown(error)}"
        ) from error
    tensors = {} if system is None else SYSTEM_TENSORS.get(system["name"], {})
    moved = {f"system.{before}": f"system.{after}" for before, after in tensors.items()}
    result = result._replace(names=result.names | moved)
    preprocess = result.description.get("preprocess")
    if not preprocess or not preprocess.get("filter"):
        return result
    inner = migrate(preprocess["filter"], where)
    prefix = "preprocess.inner."
    return Migrated(
        {**result.description, "preprocess": {**preprocess, "filter": inner.description}},
        result.names | {prefix + before: prefix + after for before, after in inner.names.items()},
        (*result.dropped, *(prefix + item for item in inner.dropped)),
        (*result.added, *(prefix + item for item in inner.added)),
    )


def renamed(name: str, migrated: Migrated) -> str | None:
    """The present name of a tensor; None if it has no counterpart."""
    if any(name.startswith(prefix) for prefix in migrated.dropped):
        return None
    fitting = max((prefix for prefix in migrated.names if name.startswith(prefix)), key=len, default=None)
    return name if fitting is None else migrated.names[fitting] + name[len(fitting) :]


def _check_options(old: dict[str, Any], where: str) -> None:
    """Raise CheckpointError for what the new description would leave out without a word."""
    unknown = sorted(set(old) - set(DEFAULTS) - {"state_dim", "observation_dim"})
    if unknown:
        raise CheckpointError(f"{where}: no option {listed(unknown)} in fwnkf 0.2")
    for name, choices in CHOICES.items():
        if name in old and old[name] not in choices:
            raise CheckpointError(f"{where}: {name} = {shown(old[name])}; wanted one of {', '.join(choices)}")


def _fwnkf(description: dict[str, Any], old: dict[str, Any], system: Any, where: str) -> Migrated:
    option = DEFAULTS | old
    for removed, left in (("gate", "low_rank"), ("adapt", 6.0)):
        if option[removed] != left and (removed != "gate" or option["transition"] == "locally_linear"):
            raise CheckpointError(
                f"{where}: {removed} = {option[removed]!r} was removed in 0.3.0; read this filter with fwnkf 0.2"
            )
    names: dict[str, str] = {"transition.network.": "residual."}
    dropped: list[str] = []
    if system is None:
        system = {"name": "learned", "config": _learned(option)}
        names |= {"base_Q.": "system.Q.", "base_R.": "system.R.", "observation.": "system.observation."}
    noise, moved, gone = _noise(option)
    names |= moved
    dropped += gone
    phi = None
    if option["shaping"] == "innovation" and option["gain"] == "joint":
        dropped.append("shaper.")  # the optimal gain on innovation and memory of Φ is that of the Kalman filter
    elif option["shaping"] == "innovation":
        phi = {
            "sections": option["sections"],
            "shared": option["shared_shaper"],
            "pole_radius": option["pole_radius"],
            "covariance": option["covariance"],
            "gain": option["gain"],
        }
    local = option["transition"] == "locally_linear"
    width, units = option["residual_width"], option["hidden"]
    encoder = {"units": units, "layers": option["layers"], "reads": option["encoder_reads"]} if units else None
    config: dict[str, Any] = {
        "noise": noise,
        "level": _level(option),
        "encoder": encoder,
        "residual": None if local or not width else {"width": width, "order": option["residual_order"]},
        "transition": {"rank": option["rank"]} if local else None,
        "phi": phi,
        "moments": option["moments"],
        "jump": option["jump"],
        "solve": option["solve"],
    }
    if description["filter"] == "fwnkf_hypotheses":
        config["hypotheses"] = {
            "frequencies": option["hypotheses"],
            **{name: option[name] for name in ("fallback", "levels", "dwell", "onsets")},
        }
    return Migrated({**description, "filter": "fwnkf", "config": config, "system": system}, names, tuple(dropped))


def _learned(option: dict[str, Any]) -> dict[str, Any]:
    """The options of a system that is a random walk."""
    sizes = {name: option[name] for name in ("state_dim", "observation_dim", "control_dim", "layout", "dt")}
    observation = {name: option[name] for name in ("observation", "observation_width")}
    diagonal = {name: option[name] for name in ("diagonal_noise", "diagonal_process")}
    return {**sizes, **observation, **diagonal, "width": 0}


def _noise(option: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, str], list[str]]:
    if option["shaping"] != "noise":
        return [], {}, []
    shared, radius = option["shared_shaper"], option["pole_radius"]
    sections, modes = option["sections"], option["modes"]
    lines = {"part": "lines", "count": sections, "shared": shared, "pole_radius": radius}
    shared_modes = {"part": "modes", "count": modes, "pole_radius": radius}
    if not modes:
        return [lines], {}, []
    first, second = ("noise_states.parts.0.", "noise_states.parts.1.") if sections else ("", "noise_states.")
    names = {
        "noise_states.raw_mode_frequency": second + "raw_frequency",
        "noise_states.raw_mode_radius": second + "raw_radius",
        "noise_states.mixing": second + "mixing",
    }
    own = ("raw_frequency", "raw_radius", "amplitude")
    if not sections:
        return [shared_modes], names, [f"noise_states.{name}" for name in own]
    return [lines, shared_modes], names | {f"noise_states.{name}": first + name for name in own}, []


def _level(option: dict[str, Any]) -> dict[str, Any] | None:
    if option["half_life"] is not None:  # in steps
        return {"of": "all", "seconds": option["half_life"] * option["dt"] / math.log(2)}
    if option["track_level"] == "none":
        return None
    return {"of": {"common": "noise", "separate": "each"}[option["track_level"]], "seconds": option["level_memory"]}


def _order_tracking(description: dict[str, Any]) -> Migrated:
    old = dict(description["config"])
    of, seconds = old.pop("level", "fixed"), old.pop("level_time", 0.1)
    level = None if of == "fixed" else {"of": of, "seconds": seconds}
    config = {"noise": [{"part": "orders", **old}], "level": level}
    names = {"log_std": "noise_states.log_std", "log_bandwidth": "noise_states.log_bandwidth"}
    return Migrated({**description, "filter": "fwnkf", "config": config}, names, added=("head_bias",))


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

DEFAULTS: dict[str, Any] = {
    "control_dim": 0,
    "layout": (),
    "dt": 1.0,
    "transition": "locally_linear",
    "gate": "low_rank",
    "rank": 1,
    "residual_width": 64,
    "residual_order": 1,
    "moments": "linear",
    "observation": "given_matrix",
    "observation_width": 64,
    "shaping": "innovation",
    "sections": 1,
    "modes": 0,
    "shared_shaper": True,
    "pole_radius": 0.999,
    "covariance": "joseph",
    "gain": "kalman",
    "encoder_reads": "previous",
    "hidden": 64,
    "layers": 1,
    "adapt": 6.0,
    "diagonal_noise": True,
    "diagonal_process": True,
    "solve": "auto",
    "jump": 0.0,
    "track_level": "none",
    "level_memory": 5.0,
    "half_life": None,
    "hypotheses": 8,
    "fallback": False,
    "levels": (1.0,),
    "dwell": None,
    "onsets": 0,
}
"""Options of 0.2, which saved filters may lack if they are older than the option."""
CHOICES: dict[str, tuple[str, ...]] = {
    "shaping": ("none", "innovation", "noise"),
    "transition": ("locally_linear", "residual"),
    "track_level": ("none", "common", "separate"),
}
