"""The options of the FW-NKF, grouped by the form they belong to.

An option that has no effect in the forms chosen is refused when a filter is built (:func:`unused_options`). The groups
are base classes of one flat config: saved filters, YAML files and constructors name an option without a path.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from torch import Tensor

from ..core.system import System
from ..errors import ConfigError
from ..registry import at_least, limited


@dataclass(frozen=True)
class Sizes:
    """Sizes of state, measurement and control, and the nominal step in seconds; a system determines all of them."""

    state_dim: int
    observation_dim: int
    control_dim: int = 0
    layout: tuple[Any, ...] = ()
    dt: float = limited(1.0, above=0.0)


@dataclass(frozen=True)
class TransitionOptions:
    """Options of the transition, described in :class:`~fwnkf.FWNKF` as all others."""

    transition: Literal["locally_linear", "residual"] = "locally_linear"
    gate: Literal["diagonal", "low_rank", "full"] = "low_rank"
    rank: int = at_least(1, 1)
    residual_width: int = at_least(0, 64)
    residual_order: Literal[1, 2] = 1
    moments: Literal["linear", "second_order"] = "linear"

    def transition_faults(self) -> list[str]:
        """Choices that exclude each other, one sentence each."""
        if self.moments != "linear" and self.transition != "residual":
            return ["moments='second_order' needs a transition that bends: set transition='residual'"]
        return []


@dataclass(frozen=True)
class ObservationOptions:
    """Options of the observation."""

    observation: Literal["given_matrix", "given_function", "learned_matrix", "learned_network"] = "given_matrix"
    observation_width: int = at_least(1, 64)


@dataclass(frozen=True)
class ShapingOptions:
    """Options of the shaping of innovation or noise."""

    shaping: Literal["none", "innovation", "noise"] = "innovation"
    sections: int = at_least(0, 1)
    modes: int = at_least(0, 0)
    shared_shaper: bool = True
    pole_radius: float = 0.999
    covariance: Literal["joseph", "augmented"] = "joseph"
    gain: Literal["kalman", "shaped", "joint"] = "kalman"

    def shaping_faults(self) -> list[str]:
        """Choices that exclude each other, one sentence each."""
        faults = []
        if self.covariance == "augmented" and self.shaping != "innovation":
            faults.append(
                "covariance='augmented' is the exact covariance of shaping='innovation'; set that, or 'joseph'"
            )
        if self.gain != "kalman" and self.covariance != "augmented":
            faults.append(f"gain={self.gain!r} needs the joint covariance: set covariance='augmented'")
        if self.modes and self.shaping != "noise":
            faults.append(f"modes = {self.modes} are noise states; set shaping='noise'")
        if not self.sections and (self.shaping == "innovation" or (self.shaping == "noise" and not self.modes)):
            faults.append(
                f"sections = 0 leaves nothing of shaping={self.shaping!r}; set at least 1, or modes for noise"
            )
        if not 0 < self.pole_radius < 1:
            faults.append(f"pole_radius = {self.pole_radius} must lie strictly between 0 and 1")
        return faults


@dataclass(frozen=True)
class EncoderOptions:
    """Options of the GRU."""

    encoder_reads: Literal["previous", "current"] = "previous"
    hidden: int = at_least(0, 64)
    layers: int = at_least(1, 1)
    adapt: float = 6.0


@dataclass(frozen=True)
class NoiseOptions:
    """Which base covariances are diagonal, as the matrices or the system say, and how small systems are solved.

    ``jump``: an innovation beyond this many standard deviations is a jump of what is measured, such as a collision, and
    says no more about the other states than one of that size; 0 takes every innovation as it is.
    """

    diagonal_noise: bool = True
    diagonal_process: bool = True
    solve: Literal["auto", "cholesky", "unrolled", "sequential", "square_root"] = "auto"
    jump: float = at_least(0.0, 0.0)

    def noise_faults(self) -> list[str]:
        """Choices that exclude each other, one sentence each."""
        if self.solve == "sequential" and not self.diagonal_noise:
            return ["solve='sequential' needs independent channels: diagonal_noise=True"]
        return []


@dataclass(frozen=True)
class LevelOptions:
    """Which levels of noise follow the innovations, and for how many seconds they are remembered."""

    track_level: Literal["none", "common", "separate"] = "none"
    level_memory: float = limited(5.0, above=0.0)


# the fields of a dataclass follow those of its bases, from the last base to the first
@dataclass(frozen=True)
class FWNKFConfig(
    LevelOptions, NoiseOptions, EncoderOptions, ShapingOptions, ObservationOptions, TransitionOptions, Sizes
):
    """All options of an FW-NKF; every option is a plain value."""

    def __post_init__(self) -> None:
        faults = [*self.transition_faults(), *self.shaping_faults(), *self.noise_faults()]
        if self.solve == "square_root" and self.covariance == "augmented":
            faults.append("solve='square_root' has no form for covariance='augmented'; set 'joseph', or another solve")
        if self.jump and self.shaping != "none":
            faults.append("jump reads plain innovations: set shaping='none', or leave it out")
        if self.track_level != "none" and (self.shaping != "noise" or self.solve == "square_root"):
            faults.append(
                f"track_level = {self.track_level!r} needs noise states and a dense covariance: "
                "set shaping='noise', and another solve than 'square_root'"
            )
        if faults:
            raise ConfigError("\n".join(f"filter fwnkf: {fault}" for fault in faults))


EFFECTIVE_WITH: dict[str, tuple[str, tuple[Any, ...]]] = {
    "gate": ("transition", ("locally_linear",)),
    "rank": ("gate", ("low_rank",)),
    "residual_width": ("transition", ("residual",)),
    "residual_order": ("transition", ("residual",)),
    "observation_width": ("observation", ("learned_network",)),
    "sections": ("shaping", ("innovation", "noise")),
    "shared_shaper": ("shaping", ("innovation", "noise")),
    "pole_radius": ("shaping", ("innovation", "noise")),
    "level_memory": ("track_level", ("common", "separate")),
}
"""Options that have an effect with some choices of another option only."""


def unused_options(config: FWNKFConfig, given: Mapping[str, Any]) -> list[str]:
    """A sentence for each option in ``given`` that differs from its default and has no effect in this config."""
    defaults = {field.name: field.default for field in fields(config)}
    changed = {name: value for name, value in given.items() if value != defaults.get(name)}
    faults = []
    for name, (form, choices) in EFFECTIVE_WITH.items():
        if name in changed and getattr(config, form) not in choices:
            wanted = " or ".join(f"{form}={choice!r}" for choice in choices)
            faults.append(
                f"{name} = {changed[name]!r} has no effect with {form}={getattr(config, form)!r}; "
                f"it belongs to {wanted}: set that, or leave {name} out"
            )
    for name in ("layers", "encoder_reads"):
        if name in changed and not config.hidden:
            faults.append(
                f"{name} = {changed[name]!r} has no effect without an encoder (hidden = 0); "
                f"set hidden to its size, or leave {name} out"
            )
    return faults


def infer_options(options: dict[str, Any], arrays: dict[str, Tensor], system: System | None) -> dict[str, Any]:
    """The options, completed with what a system or the matrices determine."""
    inferred: dict[str, Any] = {}
    if system is not None:
        inferred = {
            "state_dim": system.layout.size,
            "observation_dim": system.observation_layout.size,
            "control_dim": system.control_dim,
            "layout": system.layout.describe(),
            "dt": system.dt,
            "transition": "residual",
            "observation": "given_function",
            "diagonal_noise": system.diagonal_noise,
            "diagonal_process": False,
        }
    for name, axis, field in (
        ("Q", -1, "state_dim"),
        ("H", -1, "state_dim"),
        ("H", -2, "observation_dim"),
    ):
        if name in arrays and options.get("layout") is None and system is None:
            inferred[field] = arrays[name].shape[axis]
    for name, field in (("Q", "diagonal_process"), ("R", "diagonal_noise")):
        if name in arrays:
            inferred[field] = not bool((arrays[name] - arrays[name].diagonal().diag()).any())
    return {**inferred, **options}
