"""Recurrent Kalman Network: a Kalman filter in a learned latent space with elementwise algebra."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from ...core.gaussian import matvec
from ...core.layout import Layout
from ...core.system import System, as_layout
from ...core.tree import tree_select
from ...errors import ConfigError, ShapeError
from ...registry import FILTERS, at_least
from ...shapes import Bool, Float
from ...types import Gaussian, Statistics, StepOutput
from ..base import Filter, Prediction, arguments
from ..outputs import step_output

MIN_VARIANCE = 1e-6
"""Added to every learned variance: ``elu + 1`` reaches zero in float32."""


@dataclass(frozen=True)
class RKNConfig:
    """The options of :class:`RecurrentKalmanNetwork`, which describes them."""

    state_dim: int
    observation_dim: int
    latent_dim: int = at_least(1, 15)
    basis: int = at_least(1, 15)
    bandwidth: int = at_least(0, 3)
    hidden: tuple[int, ...] = (64, 30)
    decoder_hidden: tuple[int, ...] = (30,)
    coefficient_hidden: tuple[int, ...] = ()
    normalization: Literal["hidden", "output", "none"] = "hidden"
    initial_variance: float = at_least(2 * MIN_VARIANCE, 10.0)
    learn_initial_variance: bool = True
    process_variance: float = at_least(2 * MIN_VARIANCE, 0.1)
    layout: tuple[tuple[str | int, ...], ...] = ()
    with_observation: bool = False


class Latent(NamedTuple):
    """A latent belief: mean ``[z_u; z_l]`` and the diagonals of the blocks ``[Σ_u Σ_s; Σ_s Σ_l]``."""

    mean: Float[Tensor, "B z"]
    upper: Float[Tensor, "B l"]
    lower: Float[Tensor, "B l"]
    side: Float[Tensor, "B l"]


class RKNState(NamedTuple):
    """The latent belief, and whether a step has been taken: the learned initial belief is that of the first one."""

    latent: Latent
    begun: Bool[Tensor, " B"]


class Prepared(NamedTuple):
    basis: Float[Tensor, "k 4 e"]
    """Blocks ``B11, B12, B21, B22`` of every basis matrix, as the entries of their band."""
    process_variance: Float[Tensor, " z"]
    band: Band


class Band(NamedTuple):
    """Where the entries of a banded matrix are, as matrices of zeros and ones: products with them are fast."""

    row: Float[Tensor, "e l"]
    column: Float[Tensor, "l e"]

    @staticmethod
    def of(size: int, bandwidth: int, like: Tensor) -> Band:
        rows, columns = banded(size, bandwidth).nonzero().unbind(-1)
        eye = torch.eye(size).to(like)
        return Band(eye[rows.to(like.device)], eye[columns.to(like.device)].mT)


def banded(size: int, bandwidth: int) -> Tensor:
    """True within so many diagonals of the main one."""
    return torch.ones(size, size, dtype=torch.bool).tril(bandwidth).triu(-bandwidth)


def positive(raw: Tensor) -> Tensor:
    """``elu + 1`` and a lower bound: the paper's map to variances."""
    return nn.functional.elu(raw) + 1 + MIN_VARIANCE


def inverse_positive(variance: Tensor) -> Tensor:
    bounded = variance - MIN_VARIANCE
    return torch.where(bounded < 1, bounded.log(), bounded - 1)


def unit_length(vector: Tensor) -> Tensor:
    return nn.functional.normalize(vector, dim=-1, eps=1e-8)


def predict(
    latent: Latent, blocks: Float[Tensor, "B 4 e"], process_variance: Float[Tensor, " z"], band: Band
) -> Latent:
    """``z⁻ = A z``, and the diagonals of the blocks of ``A Σ Aᵀ + diag(q)``, without forming the full matrices.

    The diagonals are exact; the approximation of the paper is that only these three diagonals are propagated.
    """
    A = blocks.unflatten(1, (2, 2))  # [B, row, column, entry]
    at_columns = torch.cat((latent.mean.unflatten(1, (2, -1)), torch.stack(latent[1:], 1)), 1) @ band.column
    z, (u, l, s) = at_columns[:, None, :2], at_columns[:, None, 2:].unbind(2)
    left, right = A.unbind(2)
    A_cov = torch.stack((left * u + right * s, left * s + right * l), 2)  # the blocks of A Σ
    products = torch.cat(((A * z).sum(2), (A_cov * A).sum(2), (A_cov[:, 1:] * A[:, :1]).sum(2)), 1)
    mean, variances, side = (products @ band.row).split((2, 2, 1), 1)
    # the quadratic forms are non-negative except for rounding
    upper, lower = (variances.clamp_min(0) + process_variance.unflatten(0, (2, -1))).unbind(1)
    return Latent(mean.flatten(1), upper, lower, side.squeeze(1))


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
    softmax of a network; decoders map latent mean and covariance to a state and its variances (``elu + 1``).

    From the authors' code (the defaults): sizes of the pendulum experiment, the last hidden layer of the encoder scaled
    to length one (``normalization="output"`` scales ``w``, as in the paper), a learned initial variance, ``softplus``
    for the process variance, ``tanh`` in the decoders. The initial belief is that of the first measurement, so a state
    of this filter is the latent belief *predicted* for the next measurement.

    Choices of this implementation: the encoder reads ``[y, mask]``, because single channels can be missing; without
    missing channels the mask is a constant input, a bias, as in the paper. If all channels are missing there is no
    update. On a manifold the decoder returns ``origin ⊞ δ``. Every variance is at least 1e-6.

    Differences from the other filters: ``init`` ignores the prior belief; ``innovation`` is the latent ``w - z_u⁻`` of
    length ``l`` and ``innovation_cov`` its diagonal covariance; there is no control and no ``dt``. Given ``H [m, f]``
    on the features of the state, ``observe`` is ``H f(x)``, for losses that compare with measurements; the filter
    itself does not use it.

    Args:
        state_dim: number of components of the state.
        observation_dim: number of channels.
        H: observation ``[m, f]`` on the features of the state, see above.
        latent_dim: ``l``, half the size of the latent state.
        basis: number of matrices ``A_k``.
        bandwidth: diagonals on each side of the main one in the blocks of ``A_k``.
        hidden, decoder_hidden, coefficient_hidden: widths of the hidden layers of encoder, decoders and the network of
            ``α``.
        normalization: which vector of the encoder is scaled to length one.
        initial_variance: of the latent state before the first measurement.
        learn_initial_variance: whether it is a parameter.
        process_variance: of the latent state, at the start of training.
        layout: name, kind and size of the parts of the state; by default Euclidean.
        with_observation: set by the filter itself where ``H`` is given.

    >>> import torch, fwnkf
    >>> rkn = fwnkf.RKN(state_dim=3, observation_dim=2)
    >>> rkn.run(torch.zeros(1, 5, 2)).mean.shape
    torch.Size([1, 5, 3])
    """

    Config = RKNConfig
    smooths = False
    arrays = ("H",)
    takes_system = False
    instead_of_system = "state_dim and observation_dim (it learns its model)"
    latent_innovations = True
    H: Tensor | None
    shift: Tensor
    scale: Tensor
    centre: Tensor
    spread: Tensor
    raw_initial_variance: Tensor

    def __init__(
        self,
        state_dim: int,
        observation_dim: int,
        *,
        H: Tensor | None = None,
        latent_dim: int = 15,
        basis: int = 15,
        bandwidth: int = 3,
        hidden: tuple[int, ...] = (64, 30),
        decoder_hidden: tuple[int, ...] = (30,),
        coefficient_hidden: tuple[int, ...] = (),
        normalization: Literal["hidden", "output", "none"] = "hidden",
        initial_variance: float = 10.0,
        learn_initial_variance: bool = True,
        process_variance: float = 0.1,
        layout: tuple[tuple[str | int, ...], ...] = (),
        with_observation: bool | None = None,
    ) -> None:
        super().__init__(**arguments(locals()))

    def setup(self, config: RKNConfig, system: System | None, arrays: dict[str, Tensor]) -> None:
        self.layout = as_layout(config.layout, config.state_dim)
        self.observation_layout = Layout.euclidean(config.observation_dim, "y")
        l, m, d = config.latent_dim, config.observation_dim, self.layout.tangent_size
        self.encoder = perceptron(2 * m, config.hidden, nn.ReLU)
        width = (2 * m, *config.hidden)[-1]
        self.encoded_mean, self.encoded_variance = nn.Linear(width, l), nn.Linear(width, l)
        self.decoder = perceptron(2 * l, config.decoder_hidden, nn.Tanh, d)
        self.variance_decoder = perceptron(3 * l, config.decoder_hidden, nn.Tanh, d)
        self.coefficients = perceptron(2 * l, config.coefficient_hidden, nn.Tanh, config.basis)
        start = torch.tensor([0.0, 0.2, -0.2, 0.0]).unsqueeze(-1) * torch.eye(l)[banded(l, config.bandwidth)]
        self.blocks = nn.Parameter(start.repeat(config.basis, 1, 1))
        process_variance = torch.full((2 * l,), config.process_variance - MIN_VARIANCE)
        self.raw_process_variance = nn.Parameter(process_variance.expm1().log())
        initial = inverse_positive(torch.full((2 * l,), config.initial_variance))
        if config.learn_initial_variance:
            self.raw_initial_variance = nn.Parameter(initial)
        else:
            self.register_buffer("raw_initial_variance", initial)
        self.register_buffer("shift", torch.zeros(m))
        self.register_buffer("scale", torch.ones(m))
        self.register_buffer("centre", torch.zeros(d))
        self.register_buffer("spread", torch.ones(d))
        shape = (m, self.layout.feature_size)
        H = arrays.get("H", torch.zeros(shape)) if config.with_observation else None
        if H is not None and H.shape != shape:
            raise ShapeError(f"H has shape {tuple(H.shape)}, wanted {shape}: measurements by features of the state")
        self.register_buffer("H", H if H is None else H.clone())

    @classmethod
    def infer_options(cls, options: dict[str, Any], arrays: dict[str, Tensor], system: System | None) -> dict[str, Any]:
        return {**options, "with_observation": "H" in arrays}

    @torch.no_grad()
    def normalize(self, statistics: Statistics) -> None:
        """Normalise measurements, and the Euclidean parts of decoded states, by their means and deviations."""
        self.shift.copy_(statistics.observation_mean)
        self.scale.copy_(statistics.observation_std)
        centre, spread = self.layout.tangent_scales(statistics.feature_mean, statistics.feature_std)
        self.centre.copy_(centre)
        self.spread.copy_(spread)

    @property
    def takes_dt(self) -> bool:
        return False

    @property
    def observes(self) -> bool:
        return self.H is not None

    def observe(self, x: Tensor) -> Tensor:
        return super().observe(x) if self.H is None else matvec(self.H, self.layout.features(x))

    def init_state(self, belief: Gaussian, generator: torch.Generator | None) -> Any:
        batch, l = len(belief.mean), self.config.latent_dim
        upper, lower = positive(self.raw_initial_variance).expand(batch, -1).chunk(2, -1)
        zeros = belief.mean.new_zeros
        latent = Latent(zeros(batch, 2 * l), upper, lower, zeros(batch, l))
        return RKNState(latent, torch.zeros(batch, dtype=torch.bool, device=upper.device))

    def prepare(self) -> Prepared:
        band = Band.of(self.config.latent_dim, self.config.bandwidth, self.blocks)
        eye = (band.row * band.column.mT).sum(-1)
        # the coefficients sum to one, so the identity may be added to every matrix of the basis
        basis = self.blocks + eye.new_tensor([1, 0, 0, 1]).unsqueeze(-1) * eye
        return Prepared(basis, nn.functional.softplus(self.raw_process_variance) + MIN_VARIANCE, band)

    def encode(
        self, y: Float[Tensor, "B m"], weight: Float[Tensor, "B m"]
    ) -> tuple[Float[Tensor, "B l"], Float[Tensor, "B l"]]:
        """The latent observation and its variance.

        Args:
            y: the measurement, zero where missing.
            weight: 1 where a channel was measured, else 0.

        Returns:
            ``w`` and ``σ²``.
        """
        normalized = (y - self.shift) / self.scale
        hidden = self.encoder(torch.cat((normalized * weight, weight), -1))
        if self.config.normalization == "hidden":
            hidden = unit_length(hidden)
        mean = self.encoded_mean(hidden)
        if self.config.normalization == "output":
            mean = unit_length(mean)
        return mean, positive(self.encoded_variance(hidden))

    def mix(self, basis: Float[Tensor, "k 4 e"], mean: Float[Tensor, "B z"]) -> Float[Tensor, "B 4 e"]:
        """The blocks of ``A``: the basis, weighted by a softmax of the latent mean.

        Args:
            basis: the entries of the blocks of all ``A_k``.
            mean: the latent mean.

        Returns:
            The entries of the blocks of ``A``.
        """
        return torch.einsum("bk,kce->bce", self.coefficients(mean).softmax(-1), basis)

    def decode(self, latent: Latent) -> Gaussian:
        """The state and its diagonal covariance.

        Args:
            latent: the latent belief.

        Returns:
            Mean and covariance of the state.
        """
        moved = self.centre + self.spread * self.decoder(latent.mean)
        origin = self.layout.origin(moved).expand(*moved.shape[:-1], -1)
        variance = positive(self.variance_decoder(torch.cat(latent[1:], -1))) * self.spread.square()
        return Gaussian(self.layout.boxplus(origin, moved), torch.diag_embed(variance))

    def predict_state(
        self,
        prepared: Prepared,
        state: RKNState,
        u: Tensor | None,
        dt: Tensor | None,
        measured: tuple[Tensor, Tensor] | None = None,
    ) -> Prediction:
        if dt is not None:
            raise ConfigError(
                "filter 'rkn' is discrete: its learned transition has no length in seconds. "
                "Leave dt out, and resample an irregular recording first"
            )
        blocks = self.mix(prepared.basis, state.latent.mean)
        moved = predict(state.latent, blocks, prepared.process_variance, prepared.band)
        return Prediction(RKNState(tree_select(state.begun, moved, state.latent), state.begun))

    def update_state(
        self, prepared: Prepared, ahead: Prediction, y: Tensor, weight: Tensor
    ) -> tuple[RKNState, StepOutput, None]:
        prior = ahead.state.latent
        latent_observation, variance = self.encode(y, weight)
        present = weight.any(-1, keepdim=True)
        innovation = (latent_observation - prior.mean.chunk(2, -1)[0]) * present
        updated = update(prior, innovation, variance)
        posterior = Latent(*(torch.where(present, new, old) for new, old in zip(updated, prior, strict=True)))
        ok = torch.ones_like(weight[:, 0], dtype=torch.bool)  # no factorisation that could fail
        innovation_cov = torch.diag_embed(prior.upper + variance)
        mean, cov = self.decode(Latent(*(torch.stack(pair) for pair in zip(prior, posterior, strict=True))))
        before, after = Gaussian(mean[0], cov[0]), Gaussian(mean[1], cov[1])
        out = step_output(before, after, innovation, innovation_cov, ok, ok)
        return RKNState(posterior, ok), out, None


def perceptron(
    inputs: int, hidden: tuple[int, ...], activation: type[nn.Module], outputs: int | None = None
) -> nn.Sequential:
    """Hidden layers, each with its activation, and a linear layer for the outputs, if any."""
    layers: list[nn.Module] = []
    for a, b in pairwise((inputs, *hidden)):
        layers += [nn.Linear(a, b), activation()]
    if outputs is not None:
        layers.append(nn.Linear((inputs, *hidden)[-1], outputs))
    return nn.Sequential(*layers)
