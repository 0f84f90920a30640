"""An FW-NKF whose noise level follows its innovations (variance discounting).

After M. West, J. Harrison, Bayesian Forecasting and Dynamic Models, 1997, section 10.8. All covariances share a factor
``λ_t``, the level, which is not known and changes slowly. Gains do not depend on it, so the estimates are those of the
FW-NKF with ``λ = 1``; the covariances that are stated are ``λ`` times its own. The level is a running mean of the NIS:

    λ_t = k λ_{t-1} + (1 - k) νᵀ S⁻¹ ν / m,      k = 2^{-1 / half_life}

with ``ν`` and ``S`` of the filter at ``λ = 1``, and ``m`` the number of channels measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ..core.gaussian import factored_density
from ..core.smoothing import LinearStep, StatedCovariance
from ..core.system import System
from ..errors import ConfigError
from ..registry import FILTERS, limited
from ..shapes import Float
from ..types import Gaussian, Status, StepOutput
from .base import Filter
from .fwnkf import FrequencyWeightedNeuralKalmanFilter
from .fwnkf_config import FWNKFConfig
from .fwnkf_state import FWState, Prepared
from .options import arguments

LOWEST, HIGHEST = 1e-6, 1e6
"""Bounds of the level: a sensor that repeats a value must not make a filter certain, nor a shock overflow float32."""


@dataclass(frozen=True)
class AdaptiveLevelConfig(FWNKFConfig):
    """The options of an FW-NKF, and how its noise level follows the innovations; see :class:`AdaptiveLevelFilter`."""

    half_life: float | None = limited(None, above=0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.half_life is not None and self.track_level != "none":
            raise ConfigError("filter fwnkf_adaptive: half_life and track_level follow the same level; set one of them")


class AdaptiveLevelState(NamedTuple):
    """The state of the filter at the level one, and the level."""

    base: FWState
    level: Float[Tensor, " B"]


@FILTERS.register("fwnkf_adaptive")
class AdaptiveLevelFilter(FrequencyWeightedNeuralKalmanFilter):
    """An FW-NKF that states covariances as large as its innovations have lately been.

    All options but one are those of :class:`~fwnkf.FWNKF`.

    Args:
        half_life: measured steps in which the weight of the past in the level halves; None keeps the level at one.

    >>> import torch, fwnkf
    >>> eye = torch.eye(1)
    >>> filter = fwnkf.build("fwnkf_adaptive", H=eye, Q=eye, R=eye, shaping="none", hidden=0, half_life=5.0)
    >>> calm, rough = 0.1 * torch.randn(1, 40, 1), 10 * torch.randn(1, 40, 1)
    >>> levels = [filter.run(y).state.level.item() for y in (calm, rough)]
    >>> levels[0] < 1 < levels[1]
    True
    """

    Config = AdaptiveLevelConfig

    def __init__(
        self,
        system: System | None = None,
        *,
        H: Tensor | None = None,
        Q: Tensor | None = None,
        R: Tensor | None = None,
        state_dim: int | None = None,
        observation_dim: int | None = None,
        control_dim: int | None = None,
        layout: tuple[Any, ...] | None = None,
        dt: float | None = None,
        transition: Literal["locally_linear", "residual"] | None = None,
        gate: Literal["diagonal", "low_rank", "full"] = "low_rank",
        rank: int = 1,
        residual_width: int = 64,
        residual_order: Literal[1, 2] = 1,
        moments: Literal["linear", "second_order"] = "linear",
        observation: Literal["given_matrix", "given_function", "learned_matrix", "learned_network"] | None = None,
        observation_width: int = 64,
        shaping: Literal["none", "innovation", "noise"] = "innovation",
        sections: int = 1,
        modes: int = 0,
        shared_shaper: bool = True,
        pole_radius: float = 0.999,
        covariance: Literal["joseph", "augmented"] = "joseph",
        gain: Literal["kalman", "shaped", "joint"] = "kalman",
        encoder_reads: Literal["previous", "current"] = "previous",
        hidden: int = 64,
        layers: int = 1,
        adapt: float = 6.0,
        diagonal_noise: bool | None = None,
        diagonal_process: bool | None = None,
        solve: Literal["auto", "cholesky", "unrolled", "sequential", "square_root"] = "auto",
        jump: float = 0.0,
        track_level: Literal["none", "common", "separate"] = "none",
        level_memory: float = 5.0,
        half_life: float | None = None,
    ) -> None:
        Filter.__init__(self, **arguments(locals()))  # not the parent's, which has not all of these options

    def init_state(self, belief: Gaussian, generator: torch.Generator | None) -> AdaptiveLevelState:  # type: ignore[override]
        base = super().init_state(belief, generator)
        return AdaptiveLevelState(base, base.mean.new_ones(len(base.mean)))

    def joint_covariance(self, state: AdaptiveLevelState) -> Tensor:  # type: ignore[override]
        return super().joint_covariance(state.base) * _wide(state.level)

    def advance_linearized(  # type: ignore[override]
        self,
        prepared: Prepared,
        state: AdaptiveLevelState,
        y: Tensor,
        weight: Tensor,
        u: Tensor | None,
        dt: Tensor | None,
    ) -> tuple[AdaptiveLevelState, StepOutput, LinearStep]:
        base, out, linear = super().advance_linearized(prepared, state.base, y, weight, u, dt)
        if self.config.half_life is None:
            return AdaptiveLevelState(base, state.level), out, linear
        before, after = _wide(state.level), _wide(self._next_level(state.level, out, weight))
        following = AdaptiveLevelState(base, after[..., 0, 0])
        out = out._replace(
            cov=after * out.cov, prior_cov=before * out.prior_cov, innovation_cov=before * out.innovation_cov
        )
        # a posterior whose level moved is not that of a Kalman gain: it is stated instead
        linear = linear._replace(Q=before * linear.Q, update=StatedCovariance(self.joint_covariance(following)))
        return following, out, linear

    def _next_level(self, level: Tensor, out: StepOutput, weight: Tensor) -> Float[Tensor, " B"]:
        density = factored_density(out.innovation, out.innovation_cov, weight)
        known = density.ok & ((out.status & int(Status.FACTORIZATION_FAILED)) == 0)
        channels = weight.sum(-1)
        nis = torch.where(known, density.white.square().sum(-1), 0.0) / channels.clamp_min(1.0)
        # a step that measures some of the channels counts for as much of a step
        share = torch.where(known, channels / weight.shape[-1], 0.0)
        kept = 0.5 ** (share / self.config.half_life)
        return (kept * level + (1 - kept) * nis.clamp_max(HIGHEST)).clamp(LOWEST, HIGHEST)


def _wide(level: Float[Tensor, " B"]) -> Float[Tensor, "B 1 1"]:
    return level[:, None, None]
