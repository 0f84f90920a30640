"""Options of :class:`~fwnkf.filters.hypotheses.FrequencyHypotheses`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..errors import ConfigError
from ..registry import at_least, limited
from .fwnkf_config import FWNKFConfig


@dataclass(frozen=True)
class HypothesesConfig(FWNKFConfig):
    """The options of an FW-NKF with ``shaping="noise"``, and those of :class:`FrequencyHypotheses`."""

    shaping: Literal["none", "innovation", "noise"] = "noise"
    hypotheses: int = at_least(1, 8)
    fallback: bool = False
    levels: tuple[float, ...] = (1.0,)
    dwell: float | None = limited(None, above=0.0)
    onsets: int = at_least(0, 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.levels or min(self.levels) <= 0:
            raise ConfigError(f"filter fwnkf_hypotheses: levels = {self.levels}; give positive factors of the variance")
        if self.onsets and self.dwell is None:
            raise ConfigError(f"filter fwnkf_hypotheses: onsets = {self.onsets}; noise begins anew only with dwell")
        if self.dwell is not None and self.solve == "square_root":
            raise ConfigError("filter fwnkf_hypotheses: dwell mixes covariances, so solve cannot be 'square_root'")
        if self.dwell is not None and self.track_level != "none":
            raise ConfigError(
                "filter fwnkf_hypotheses: track_level lets a level change without a switch; leave dwell out, or set "
                "levels and dwell instead"
            )
        if self.shaping != "noise":
            raise ConfigError(
                f"filter fwnkf_hypotheses: shaping = {self.shaping!r}; its hypotheses are noise states, so set 'noise'"
            )
        if self.modes:
            raise ConfigError(
                f"filter fwnkf_hypotheses: modes = {self.modes}; hypotheses are about the oscillators of each channel. "
                "Use filter fwnkf for shared modes"
            )
