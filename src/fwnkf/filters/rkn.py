"""Recurrent Kalman Network: a Kalman filter in a learned latent space with elementwise algebra."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..core.gaussian import matvec
from ..core.layout import Layout
from ..core.system import System, as_layout
from ..errors import ConfigError
from ..registry import FILTERS, at_least
from ..shapes import Float
from ..types import Gaussian, Statistics, StepOutput
from .base import Filter
from .options import arguments
from .outputs import step_output

MIN_VARIANCE = 1e-6
"""Added to every learned variance: ``elu + 1`` reaches zero in float32."""


@dataclass(frozen=True)
class RKNConfig:
    """Sizes: the latent state has ``2 latent_dim`` components, ``bandwidth`` diagonals on each side."""

    state_dim: int
    observation_dim: int
    latent_dim: int = at_least(1, 16)
    basis: int = at_least(1, 8)
    bandwidth: int = at_least(0, 3)
    hidden: tuple[int, ...] = (64,)
    initial_variance: float = at_least(MIN_VARIANCE, 10.0)
    layout: tuple[tuple[str | int, ...], ...] = ()


class Latent(NamedTuple):
    """A latent belief: mean ``[z_u; z_l]`` and the diagonals of the blocks ``[Σ_u Σ_s; Σ_s Σ_l]``."""

    mean: Float[Tensor, "B z"]
    upper: Float[Tensor, "B l"]
    lower: Float[Tensor, "B l"]
    side: Float[Tensor, "B l"]


class Prepared(NamedTuple):
    basis: Float[Tensor, "k 4 l l"]
    """Banded blocks ``B11, B12, B21, B22`` of every basis matrix."""
    process_variance: Float[Tensor, " z"]


def positive(raw: Tensor) -> Tensor:
    """``elu + 1`` and a lower bound: the paper's map to variances."""
    return nn.functional.elu(raw) + 1 + MIN_VARIANCE


def predict(latent: Latent, blocks: Float[Tensor, "B 4 l l"], process_variance: Float[Tensor, " z"]) -> Latent:
    """``z⁻ = A z``, and the diagonals of the blocks of ``A Σ Aᵀ + diag(q)``, without forming the full matrix.

    The diagonals are exact; the approximation of the paper is that only these three diagonals are propagated.
    """
    B11, B12, B21, B22 = blocks.unbind(1)
    z_upper, z_lower = latent.mean.chunk(2, -1)
    mean = torch.cat((matvec(B11, z_upper) + matvec(B12, z_lower), matvec(B21, z_upper) + matvec(B22, z_lower)), -1)
    q_upper, q_lower = process_variance.chunk(2, -1)

    def diagonal(remaining: Tensor, variance: Tensor, right: Tensor) -> Tensor:
        """``diag(L diag(v) Rᵀ)``."""
        return matvec(remaining * right, variance)

    upper = diagonal(B11, latent.upper, B11) + 2 * diagonal(B11, latent.side, B12) + diagonal(B12, latent.lower, B12)
    lower = diagonal(B21, latent.upper, B21) + 2 * diagonal(B21, latent.side, B22) + diagonal(B22, latent.lower, B22)
    side = (
        diagonal(B21, latent.upper, B11)
        + diagonal(B22, latent.side, B11)
        + diagonal(B21, latent.side, B12)
        + diagonal(B22, latent.lower, B12)
    )
    # the quadratic forms are non-negative except for rounding
    return Latent(mean, upper.clamp_min(0) + q_upper, lower.clamp_min(0) + q_lower, side)


def update(prior: Latent, innovation: Float[Tensor, "B l"], variance: Float[Tensor, "B l"]) -> Latent:
    """The Kalman update for ``H = [I 0]``; with diagonal blocks every inverse is a division."""
    total = prior.upper + variance
    gain_upper, gain_lower = prior.upper / total, prior.side / total
    remaining = variance / total  # 1 - gain_upper, without the cancellation
    mean = prior.mean + torch.cat((gain_upper * innovation, gain_lower * innovation), -1)
    # Σ_l given z_u is at least the process variance, so the lower bound is reached only by rounding
    lower = (prior.lower - gain_lower * prior.side).clamp_min(MIN_VARIANCE)
    return Latent(mean, remaining * prior.upper, lower, remaining * prior.side)


@FILTERS.register("rkn")
class RecurrentKalmanNetwork(Filter):
    """Recurrent Kalman Network (Becker et al. 2019, arXiv 1905.07357): no system model, everything is learned.

    From the paper: an encoder maps ``y`` to a latent observation ``w`` with variance ``σ²``; the latent state ``z`` has
    ``2 l`` components and is observed as ``w = [I 0] z``; its covariance is stored as three vectors; its transition is
    ``A = Σ α_k(z⁺) A_k``, with ``A_k`` of four banded blocks initialised as ``I, 0.2 I, -0.2 I, I`` and ``α`` the
    softmax of a linear layer; decoders map latent mean and covariance to a state and its variances (``elu + 1``).

    Choices of this implementation: the encoder reads ``[y, mask]``, because single channels can be missing; without
    missing channels the mask is a constant input, a bias, as in the paper. If all channels are missing there is no
    update. As in all filters here a step predicts and then updates, so the initial belief (zero mean,
    ``initial_variance``) is predicted once before the first measurement. On a manifold the decoder returns
    ``origin ⊞ δ``. Every variance is at least 1e-6.

    Differences from the other filters: ``init`` ignores the prior belief; ``innovation`` is the latent ``w - z_u⁻`` of
    length ``l`` and ``innovation_cov`` its diagonal covariance; there is no ``observe``, no control and no ``dt``.
    """

    Config = RKNConfig
    takes_system = False
    instead_of_system = "state_dim and observation_dim (it learns its model)"
    shift: Tensor
    scale: Tensor
    centre: Tensor
    spread: Tensor

    def __init__(
        self,
        state_dim: int,
        observation_dim: int,
        *,
        latent_dim: int = 16,
        basis: int = 8,
        bandwidth: int = 3,
        hidden: tuple[int, ...] = (64,),
        initial_variance: float = 10.0,
        layout: tuple[tuple[str | int, ...], ...] = (),
    ) -> None:
        super().__init__(**arguments(locals()))

    def setup(self, config: RKNConfig, system: System | None, arrays: dict[str, Tensor]) -> None:
        self.layout = as_layout(config.layout, config.state_dim)
        self.observation_layout = Layout.euclidean(config.observation_dim, "y")
        l, m, d = config.latent_dim, config.observation_dim, self.layout.tangent_size
        self.encoder = perceptron(2 * m, config.hidden, 2 * l)
        self.decoder = perceptron(2 * l, config.hidden, d)
        self.variance_decoder = perceptron(3 * l, config.hidden, d)
        self.coefficients = nn.Linear(2 * l, config.basis)
        start = torch.tensor([1.0, 0.2, -0.2, 1.0])[:, None, None] * torch.eye(l)
        self.blocks = nn.Parameter(start.repeat(config.basis, 1, 1, 1))
        self.raw_process_variance = nn.Parameter(torch.full((2 * l,), math.log(0.1 - MIN_VARIANCE)))
        self.register_buffer("shift", torch.zeros(m))
        self.register_buffer("scale", torch.ones(m))
        self.register_buffer("centre", torch.zeros(d))
        self.register_buffer("spread", torch.ones(d))

    @torch.no_grad()
    def normalize(self, statistics: Statistics) -> None:
        """Normalise measurements, and the decoded states of a Euclidean layout, by their means and deviations."""
        self.shift.copy_(statistics.observation_mean)
        self.scale.copy_(statistics.observation_std)
        if self.layout.flat:
            self.centre.copy_(statistics.feature_mean)
            self.spread.copy_(statistics.feature_std)

    @property
    def takes_dt(self) -> bool:
        return False

    def init_state(self, belief: Gaussian, generator: torch.Generator | None) -> Any:
        batch, l = len(belief.mean), self.config.latent_dim
        variance = belief.mean.new_full((batch, l), self.config.initial_variance)
        zeros = belief.mean.new_zeros
        return Latent(zeros(batch, 2 * l), variance, variance.clone(), zeros(batch, l))

    def at_rest(self, prepared: Prepared, y: Tensor) -> tuple[Any, Prepared, Tensor | None]:
        """A step as every other: a prior is ignored, and the latent belief is that of a step before, as in training."""
        return self, prepared, None

    def prepare(self) -> Prepared:
        band = torch.ones_like(self.blocks[0, 0]).tril(self.config.bandwidth).triu(-self.config.bandwidth)
        return Prepared(self.blocks * band, positive(self.raw_process_variance))

    def encode(
        self, y: Float[Tensor, "B m"], weight: Float[Tensor, "B m"]
    ) -> tuple[Float[Tensor, "B l"], Float[Tensor, "B l"]]:
        """The latent observation and its variance."""
        normalized = (y - self.shift) / self.scale
        latent_observation, raw = self.encoder(torch.cat((normalized * weight, weight), -1)).chunk(2, -1)
        return latent_observation, positive(raw)

    def mix(self, basis: Float[Tensor, "k 4 l l"], mean: Float[Tensor, "B z"]) -> Float[Tensor, "B 4 l l"]:
        """The blocks of ``A``: the basis, weighted by a softmax of the latent mean."""
        return torch.einsum("bk,kcij->bcij", self.coefficients(mean).softmax(-1), basis)

    def decode(self, latent: Latent) -> Gaussian:
        """The state and its diagonal covariance."""
        moved = self.centre + self.spread * self.decoder(latent.mean)
        origin = self.layout.origin(moved).expand(*moved.shape[:-1], -1)
        variance = positive(self.variance_decoder(torch.cat(latent[1:], -1))) * self.spread.square()
        return Gaussian(self.layout.boxplus(origin, moved), torch.diag_embed(variance))

    def advance(
        self,
        prepared: Prepared,
        state: Latent,
        y: Tensor,
        weight: Tensor,
        u: Tensor | None,
        dt: Tensor | None,
    ) -> tuple[Latent, StepOutput]:
        if dt is not None:
            raise ConfigError(
                "filter 'rkn' is discrete: its learned transition has no length in seconds. "
                "Leave dt out, and resample an irregular recording first"
            )
        prior = predict(state, self.mix(prepared.basis, state.mean), prepared.process_variance)
        latent_observation, variance = self.encode(y, weight)
        present = weight.any(-1, keepdim=True)
        innovation = (latent_observation - prior.mean.chunk(2, -1)[0]) * present
        updated = update(prior, innovation, variance)
        next_state = Latent(*(torch.where(present, new, old) for new, old in zip(updated, prior, strict=True)))
        ok = torch.ones_like(weight[:, 0], dtype=torch.bool)  # no factorisation that could fail
        innovation_cov = torch.diag_embed(prior.upper + variance)
        return next_state, step_output(self.decode(prior), self.decode(next_state), innovation, innovation_cov, ok)


def perceptron(inputs: int, hidden: tuple[int, ...], outputs: int) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    sizes = (inputs, *hidden, outputs)
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
