"""A Kalman filter whose process noise follows the innovations (innovation-based adaptive estimation).

After R. K. Mehra, On the identification of variances and adaptive Kalman filtering, IEEE Trans. Automatic Control 15,
1970, and A. H. Mohamed, K. P. Schwarz, Adaptive Kalman filtering for INS/GPS, Journal of Geodesy 73, 1999. The moments
are those of expectation maximisation, so channels that are missing enter by their conditional mean and covariance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ..core.forms import measured_precisely
from ..core.gaussian import (
    DiagonalNoise,
    FullNoise,
    Noise,
    condition,
    congruence,
    matvec,
    prediction_keeps_digits,
    propagate,
    solve_psd,
    symmetrize,
)
from ..core.layout import Layout
from ..core.preprocess import Inputs
from ..core.smoothing import LinearStep, Measurement
from ..core.system import System
from ..errors import ConfigError
from ..registry import FILTERS, at_least, limited
from ..shapes import Float, Int
from ..types import Gaussian, StepOutput
from .base import Filter, Prediction, arguments
from .kalman import infer_sizes
from .outputs import step_output


@dataclass(frozen=True)
class AdaptiveConfig:
    """The options of :class:`AdaptiveKalmanFilter`, which describes them."""

    state_dim: int
    observation_dim: int
    control_dim: int = 0
    half_life: float | None = limited(None, above=0.0)
    update_every: int = at_least(1, 1)
    shrink: float = limited(0.0, min=0.0, max=1.0)
    nugget: float = at_least(0.0, 0.0)
    diagonal_noise: bool = False
    solve: Literal["auto", "cholesky", "unrolled", "sequential"] = "auto"


class AdaptiveState(NamedTuple):
    """The belief, ``Σ``, and what has been gathered since ``Σ`` last moved."""

    mean: Float[Tensor, "B n"]
    cov: Float[Tensor, "B n n"]
    noise_cov: Float[Tensor, "B m m"]
    """``Σ``."""
    moment: Float[Tensor, "B m m"]
    """Sum of the expected ``e eᵀ`` over measured steps."""
    measured: Int[Tensor, " B"]
    """How many of those there were."""
    steps: Int[Tensor, " B"]
    """Steps since ``Σ`` last moved."""
    predicted: Int[Tensor, " B"]
    """Predictions since the last measurement."""


class Matrices(NamedTuple):
    """What no step changes."""

    F: Tensor
    B: Tensor
    c: Tensor
    G: Tensor
    H: Tensor
    R: Noise


@FILTERS.register("adaptive_kf")
class AdaptiveKalmanFilter(Filter):
    """Kalman filter for ``x⁺ = F x + B u + c + G e``, ``y = H x + v`` with ``e ~ N(0, Σ_t)``, ``v ~ N(0, R)``.

    ``Σ_t`` starts at ``S`` and follows the innovations: it is part of the state. ``G`` is scaled such that ``H G = I``,
    so one step's ``e`` is what it adds to each channel (innovations form of ARMA models), and ``Σ`` has the units of
    the measurements squared. Without a prior the filter starts at the first measurement, ``H x = y_0``, with covariance
    ``P0``; a channel missing there starts at zero with its variance raised by one.

    Args:
        F: transition ``[n, n]``; by default the identity.
        B: control input ``[n, p]``.
        H: observation ``[m, n]``; by default the first ``m`` components.
        G: noise input ``[n, m]`` with ``H G = I``.
        S: ``Σ`` at the start ``[m, m]``; by default the identity.
        R: covariance of the measurement noise ``[m, m]``; by default the identity.
        c: constant input ``[n]``; by default zero.
        P0: covariance of the initial belief ``[n, n]``; by default the identity.
        state_dim, observation_dim, control_dim: ``n``, ``m`` and ``p``; they follow from the matrices.
        half_life: measured steps in which the weight of the past in ``Σ`` halves; None keeps ``Σ`` as given.
        update_every: steps that are gathered before ``Σ`` moves.
        shrink: share of the correlations taken off before use, for a covariance of few samples overstates them.
        nugget: share of every variance of ``G Σ Gᵀ`` that is added as independent noise: it keeps the covariances
            definite in float32.
        diagonal_noise: whether the channels are independent.
        solve: implementation of the small linear solve (see :mod:`fwnkf.core.gaussian`).

    >>> import torch, fwnkf
    >>> eye = torch.eye(2)
    >>> model = fwnkf.build("adaptive_kf", F=eye, H=eye, S=0.1 * eye, R=0.01 * eye, half_life=20.0, update_every=10)
    >>> calm, rough = torch.zeros(1, 100, 2), torch.randn(1, 100, 2).cumsum(1)
    >>> variances = [model.run(y).state.noise_cov[0, 0, 0] for y in (calm, rough)]
    >>> bool(variances[0] < 0.1 < variances[1])
    True
    """

    Config = AdaptiveConfig
    arrays = ("F", "B", "H", "G", "S", "R", "c", "P0")
    takes_system = False
    instead_of_system = "matrices F, H, G, S, R"
    F: Tensor
    B: Tensor
    H: Tensor
    G: Tensor
    S: Tensor
    R: Tensor
    c: Tensor
    P0: Tensor

    def __init__(
        self,
        *,
        F: Tensor | None = None,
        B: Tensor | None = None,
        H: Tensor | None = None,
        G: Tensor | None = None,
        S: Tensor | None = None,
        R: Tensor | None = None,
        c: Tensor | None = None,
        P0: Tensor | None = None,
        state_dim: int | None = None,
        observation_dim: int | None = None,
        control_dim: int | None = None,
        half_life: float | None = None,
        update_every: int = 1,
        shrink: float = 0.0,
        nugget: float = 0.0,
        diagonal_noise: bool | None = None,
        solve: Literal["auto", "cholesky", "unrolled", "sequential"] = "auto",
    ) -> None:
        super().__init__(**arguments(locals()))

    def setup(self, config: AdaptiveConfig, system: System | None, arrays: dict[str, Tensor]) -> None:
        n, m, p = config.state_dim, config.observation_dim, config.control_dim
        defaults = {
            "F": torch.eye(n),
            "B": torch.zeros(n, p),
            "H": torch.eye(m, n),
            "G": torch.eye(n, m),
            "S": torch.eye(m),
            "R": torch.eye(m),
            "c": torch.zeros(n),
            "P0": torch.eye(n),
        }
        for name, default in defaults.items():
            value = arrays.get(name, default)
            if value.shape != default.shape:
                raise ConfigError(f"{name} has shape {tuple(value.shape)}, wanted {tuple(default.shape)}")
            self.register_buffer(name, value.detach().clone().to(value.dtype))
        self.layout, self.observation_layout = Layout.euclidean(n), Layout.euclidean(m, "y")
        self.control_dim = p
        product = self.H.double() @ self.G.double()
        if not torch.allclose(product, torch.eye(m, dtype=product.dtype, device=product.device), atol=1e-5):
            raise ConfigError(
                "H G must be the identity: scale the columns of G so that one step's e is what it adds to each channel"
            )

    @classmethod
    def infer_options(cls, options: dict[str, Any], arrays: dict[str, Tensor], system: System | None) -> dict[str, Any]:
        return {**infer_sizes(options, arrays), **options}

    @property
    def takes_dt(self) -> bool:
        return False

    @property
    def initial_steps(self) -> int:
        return 1

    def belief_from(self, inputs: Inputs) -> Gaussian:
        """The smallest state that shows the first measurement, with covariance ``P0``."""
        y, weight = inputs.y[:, 0], inputs.weight[:, 0]
        coordinates = solve_psd(self.H @ self.H.mT, y.mT)[0].mT
        unknown = congruence(self.H.mT, torch.diag_embed(1 - weight), torch.zeros_like(self.P0))
        return Gaussian(coordinates @ self.H, self.P0 + unknown)

    def init_state(self, belief: Gaussian, generator: torch.Generator | None) -> AdaptiveState:
        batch = len(belief.mean)
        noise = self.S.expand(batch, -1, -1).clone()
        counter = torch.zeros(batch, dtype=torch.int64, device=noise.device)
        return AdaptiveState(*belief, noise, torch.zeros_like(noise), counter, counter.clone(), counter.clone())

    def prepare(self) -> Matrices:
        noise = DiagonalNoise(self.R.diagonal()) if self.config.diagonal_noise else FullNoise(self.R)
        return Matrices(self.F, self.B, self.c, self.G, self.H, noise)

    def observe(self, x: Tensor) -> Tensor:
        return matvec(self.H, x)

    def predict_state(
        self,
        prepared: Matrices,
        state: AdaptiveState,
        u: Tensor | None,
        dt: Tensor | None,
        measured: tuple[Tensor, Tensor] | None = None,
    ) -> Prediction:
        if dt is not None:
            raise ConfigError("filter 'adaptive_kf' is discrete: its matrices are those of one step; leave dt out")
        F, B, c = prepared.F, prepared.B, prepared.c
        mean = matvec(F, state.mean) + c
        mean = mean if u is None else mean + matvec(B, u)
        Q = self._process_noise(prepared, state.noise_cov)
        cov = propagate(state.cov, F, Q)
        moved = state._replace(mean=mean, cov=cov, predicted=state.predicted + 1)
        return Prediction(moved, F, Q, prediction_keeps_digits(state.cov, F, cov))

    def update_state(
        self, prepared: Matrices, ahead: Prediction, y: Tensor, weight: Tensor
    ) -> tuple[AdaptiveState, StepOutput, LinearStep]:
        state: AdaptiveState = ahead.state
        mean, cov, H, R = state.mean, state.cov, prepared.H, prepared.R
        innovation = (y - matvec(H, mean)) * weight
        update = condition(cov, innovation, H, R, weight, self.config.solve)
        prior, posterior = Gaussian(mean, cov), Gaussian(mean + update.correction, update.cov)
        added = self._moment(prepared, state.noise_cov, update.correction, update.cov, cov)
        # without a prediction there is no e that Σ could follow
        moved = state.predicted > 0
        measured = (weight > 0).any(-1) & update.ok & moved
        following = state._replace(
            mean=posterior.mean, cov=posterior.cov, predicted=torch.zeros_like(state.predicted),
            moment=state.moment + torch.where(measured[:, None, None], added, 0.0),
            measured=state.measured + measured,
            steps=state.steps + moved,
        )  # fmt: skip
        following = self._follow(following)
        precise = ahead.keeps_digits(measured_precisely(update.precise, y, R, weight))
        out = step_output(prior, posterior, innovation, update.innovation_cov, update.ok, precise)
        measurement = Measurement(innovation, H, R, weight, update.ok)
        return following, out, LinearStep(ahead.F, ahead.Q, measurement, update.correction, posterior.mean)

    def _process_noise(self, prepared: Matrices, noise_cov: Tensor) -> Float[Tensor, "B n n"]:
        """``G Σ Gᵀ`` of the shrunk ``Σ``, and the nugget."""
        shrink, nugget = self.config.shrink, self.config.nugget
        diagonal = torch.diag_embed(noise_cov.diagonal(dim1=-2, dim2=-1))
        Q = symmetrize(prepared.G @ ((1 - shrink) * noise_cov + shrink * diagonal) @ prepared.G.mT)
        return Q + nugget * torch.diag_embed(Q.diagonal(dim1=-2, dim2=-1))

    def _moment(
        self, prepared: Matrices, noise_cov: Tensor, correction: Tensor, cov: Tensor, prior_cov: Tensor
    ) -> Float[Tensor, "B m m"]:
        """The moment of one step's ``e`` as the measurement tells it; its variances are those of ``Σ`` on average.

        What the channels were moved by, and what is left unknown of them, add up to the prior's ``H P⁻ Hᵀ`` on average.
        That holds more than one step's ``e``, after a gap much more, and is scaled to the share of one step.
        """
        H = prepared.H
        moved = matvec(H, correction)
        left = symmetrize(H @ cov @ H.mT)
        expected = ((H @ prior_cov) * H).sum(-1)
        own = noise_cov.diagonal(dim1=-2, dim2=-1)
        # never less than that of one step, unless rounding took it: a NaN here would stay in the state for good
        share = (own / torch.maximum(expected, own).clamp_min(torch.finfo(own.dtype).tiny)).sqrt()
        whole = moved.unsqueeze(-1) * moved.unsqueeze(-2) + left
        return whole * (share.unsqueeze(-1) * share.unsqueeze(-2))

    def _follow(self, state: AdaptiveState) -> AdaptiveState:
        """Move ``Σ`` towards the mean of the gathered moments, where enough steps have passed."""
        half_life = self.config.half_life
        if half_life is None:
            return state._replace(moment=torch.zeros_like(state.moment))
        due = state.steps >= self.config.update_every
        count = state.measured.to(state.moment)[:, None, None]
        kept = 0.5 ** (count / half_life)
        moved = kept * state.noise_cov + (1 - kept) * state.moment / count.clamp_min(1.0)
        wide = due[:, None, None]
        return state._replace(
            noise_cov=torch.where(wide, moved, state.noise_cov),
            moment=torch.where(wide, 0.0, state.moment),
            measured=torch.where(due, 0, state.measured),
            steps=torch.where(due, 0, state.steps),
        )
