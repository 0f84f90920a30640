"""The options of the FW-NKF."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ..errors import ConfigError
from ..registry import at_least


@dataclass(frozen=True)
class FWNKFConfig:
    """Sizes and choices of an FW-NKF; every option is a plain value.

    ``hidden=0`` leaves the encoder out (``Φ`` or noise states alone), ``residual_width=0`` the network of a residual
    transition. ``adapt`` bounds how far the encoder may move the log-variances of ``Q_t`` and ``R_t`` from their base.
    With ``shaping="noise"``, ``sections`` counts the oscillators of each channel alone and ``modes`` those that all
    channels share, each with a gain and a phase for every channel. ``pole_radius`` bounds every pole that is learned.
    ``residual_order=2`` lets a residual transition read products of state coordinates. ``moments="second_order"`` adds
    what the transition's curvature does to mean and covariance.
    """

    state_dim: int
    observation_dim: int
    control_dim: int = 0
    layout: tuple[Any, ...] = ()
    dt: float = 1.0
    transition: Literal["locally_linear", "residual"] = "locally_linear"
    gate: Literal["diagonal", "low_rank", "full"] = "low_rank"
    rank: int = at_least(1, 1)
    residual_width: int = at_least(0, 64)
    residual_order: Literal[1, 2] = 1
    moments: Literal["linear", "second_order"] = "linear"
    observation: Literal["given_matrix", "given_function", "learned_matrix", "learned_network"] = "given_matrix"
    observation_width: int = at_least(1, 64)
    shaping: Literal["none", "innovation", "noise"] = "innovation"
    sections: int = at_least(0, 1)
    modes: int = at_least(0, 0)
    shared_shaper: bool = True
    pole_radius: float = 0.999
    covariance: Literal["joseph", "augmented"] = "joseph"
    gain: Literal["kalman", "shaped", "joint"] = "kalman"
    encoder_reads: Literal["previous", "current"] = "previous"
    hidden: int = at_least(0, 64)
    layers: int = at_least(1, 1)
    adapt: float = 6.0
    diagonal_noise: bool = True
    diagonal_process: bool = True
    solve: Literal["auto", "cholesky", "unrolled", "sequential"] = "auto"

    def __post_init__(self) -> None:
        faults = []
        if self.covariance == "augmented" and self.shaping != "innovation":
            faults.append(
                "covariance='augmented' is the exact covariance of shaping='innovation'; set that, or 'joseph'"
            )
        if self.gain != "kalman" and self.covariance != "augmented":
            faults.append(f"gain={self.gain!r} needs the joint covariance: set covariance='augmented'")
        if self.solve == "sequential" and not self.diagonal_noise:
            faults.append("solve='sequential' needs independent channels: diagonal_noise=True")
        if self.modes and self.shaping != "noise":
            faults.append(f"modes = {self.modes} are noise states; set shaping='noise'")
        if not self.sections and (self.shaping == "innovation" or (self.shaping == "noise" and not self.modes)):
            faults.append(
                f"sections = 0 leaves nothing of shaping={self.shaping!r}; set at least 1, or modes for noise"
            )
        if self.moments != "linear" and self.transition != "residual":
            faults.append("moments='second_order' needs a transition that bends: set transition='residual'")
        if not 0 < self.pole_radius < 1:
            faults.append(f"pole_radius = {self.pole_radius} must lie strictly between 0 and 1")
        if faults:
            raise ConfigError("\n".join(f"filter fwnkf: {fault}" for fault in faults))
