"""Bayesian KalmanNet: an ensemble of gain networks sampled by dropout; its spread is the covariance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from ..core.constrain import inverse_soft_clamp, soft_clamp
from ..core.gaussian import Noise, dense, matvec, symmetrize
from ..core.linearize import SigmaRule, sigma_moments
from ..core.system import System
from ..errors import ConfigError
from ..registry import FILTERS, at_least
from ..shapes import Float
from ..types import Gaussian, StepOutput
from .base import adopt
from .extended import SystemFilter
from .gain_features import applied_correction, last_seen, observation_change, unit
from .options import arguments
from .outputs import step_output

TEMPERATURE = 0.1
"""Temperature of the relaxed Bernoulli masks (Gal et al. 2017): small enough that a mask is nearly 0 or 1."""
LOGIT_RANGE = 20.0
"""Bound on the dropout logits: beyond ±20 float32 cannot distinguish ``1 - p`` from 0."""
UNIFORM_EDGE = 1e-7
"""Uniform samples are kept at this distance from 0 and 1, where their logit is infinite."""


@dataclass(frozen=True)
class BayesianKalmanNetConfig:
    """Members of the ensemble, kind of dropout, weights of its KL term, and widths of the network.

    ``probability`` is the initial dropout probability of learned (``"concrete"``) dropout, or the constant one of
    ``"fixed"`` dropout. ``seed`` is used when ``init`` has no generator.
    """

    members: int = at_least(1, 20)
    dropout: Literal["concrete", "fixed"] = "concrete"
    probability: float = at_least(0.0, 0.1)
    weight_regularizer: float = at_least(0.0, 1e-6)
    dropout_regularizer: float = at_least(0.0, 1e-5)
    in_mult: int = at_least(1, 80)
    hidden_mult: int = at_least(1, 4)
    out_mult: int = at_least(1, 4)
    seed: int = 0


class BayesianKalmanNetState(NamedTuple):
    members: Float[Tensor, "B J n"]
    """The estimate of every member."""
    motion: Float[Tensor, "B J d"]
    """``x̂_{t-1} ⊟ x̂_{t-2}`` of every member."""
    correction: Float[Tensor, "B J d"]
    """``x̂_{t-1} ⊟ x̂⁻_{t-1}`` of every member."""
    hidden: Float[Tensor, "B J h"]
    seen: Float[Tensor, "B m"]
    """The last measurement of each channel, the same for all members."""
    uniforms: Float[Tensor, "B J w"]
    """The sample of every member's dropout masks: one uniform number per unit that can be dropped."""


class Prepared(NamedTuple):
    R: Noise
    logit: Float[Tensor, " w"]
    """Logit of the dropout probability of each unit."""


class GainNetwork(nn.Module):
    """KalmanNet's architecture #1: linear, ReLU, GRU, linear, ReLU, linear; dropout before each linear."""

    def __init__(self, d: int, m: int, config: BayesianKalmanNetConfig) -> None:
        super().__init__()
        read, hidden = (d + m) * config.in_mult, (d * d + m * m) * config.hidden_mult
        self.fc_in = nn.Linear(2 * d + 2 * m, read)
        self.gru = nn.GRUCell(read, hidden)
        self.fc_hidden = nn.Linear(hidden, d * m * config.out_mult)
        self.fc_out = nn.Linear(d * m * config.out_mult, d * m)

    @property
    def dropped_layers(self) -> tuple[nn.Linear, nn.Linear, nn.Linear]:
        """The layers whose inputs are dropped, in the order of the masks."""
        return self.fc_in, self.fc_hidden, self.fc_out

    def forward(
        self, features: Float[Tensor, "B i"], hidden: Float[Tensor, "B h"], scale: Float[Tensor, "B w"]
    ) -> tuple[Float[Tensor, "B k"], Float[Tensor, "B h"]]:
        """Gain entries and GRU state; ``scale`` multiplies the concatenated inputs of the linear layers."""
        on_features, on_hidden, on_out = scale.split([layer.in_features for layer in self.dropped_layers], -1)
        hidden = self.gru(self.fc_in(features * on_features).relu(), hidden)
        return self.fc_out(self.fc_hidden(hidden * on_hidden).relu() * on_out), hidden


@FILTERS.register("bayesian_kalmannet")
class BayesianKalmanNet(SystemFilter):
    """Bayesian KalmanNet (Dahan et al., arXiv 2309.03058) on a given system.

    From the paper: KalmanNet's features and architecture #1 with dropout; ``J`` members, each with one sample of the
    masks for a complete trajectory, start from the prior mean; the mean of the members is the estimate and their
    covariance ``1/J Σ δδᵀ`` its uncertainty. Dropout is concrete (Gal, Hron and Kendall 2017: the probability of each
    layer is learned) or fixed. It is active in both ``train()`` and ``eval()``, because the ensemble is the estimator.

    Choices of this implementation: masks act on the inputs of the three linear layers. The samples are part of the
    state, so a step is pure, and the relaxed mask is computed from them in every step, differentiably with respect to
    the probability. With a generator every trajectory of the batch has its own samples; without one all share those of
    ``config.seed``, so that the estimate of a stream does not depend on the others in the batch. *Training needs a
    generator*: without one every run has the same few masks. GRU states start at zero. On manifolds the mean is
    computed in the tangent space. The innovation is ``y ⊟`` the mean of the members' predicted measurements, on a flat
    layout the mean of their innovations; its covariance is the covariance of these predictions plus the system's
    ``R``. Masked channels are treated as in KalmanNet.

    The covariance measures only the disagreement of the networks: it is zero before the first measurement whatever the
    prior covariance, does not include process noise, and has rank below ``J``.
    """

    Config = BayesianKalmanNetConfig

    def __init__(
        self,
        system: System,
        *,
        members: int = 20,
        dropout: Literal["concrete", "fixed"] = "concrete",
        probability: float = 0.1,
        weight_regularizer: float = 1e-6,
        dropout_regularizer: float = 1e-5,
        in_mult: int = 80,
        hidden_mult: int = 4,
        out_mult: int = 4,
        seed: int = 0,
    ) -> None:
        super().__init__(**arguments(locals()))

    def setup(self, config: BayesianKalmanNetConfig, system: System | None, arrays: dict[str, Tensor]) -> None:
        self.system = adopt(self, system)
        self.network = GainNetwork(self.layout.tangent_size, self.observation_dim, config)
        if config.probability >= 1 or (config.dropout == "concrete" and config.probability == 0):
            raise ConfigError(
                f"{self.name}: probability = {config.probability} with dropout {config.dropout!r}; "
                "wanted below 1, and above 0 for concrete dropout, which learns its logit"
            )
        if config.dropout == "concrete":
            logit = torch.logit(torch.tensor(config.probability, dtype=torch.float64))
            raw = inverse_soft_clamp(logit.clamp(-0.99 * LOGIT_RANGE, 0.99 * LOGIT_RANGE), LOGIT_RANGE)
            self.raw_logits = nn.Parameter(raw.to(self.network.fc_in.weight.dtype).repeat(3))

    def layer_logits(self) -> Float[Tensor, " 3"]:
        """Logit of the dropout probability of each linear layer."""
        if self.config.dropout == "concrete":
            return soft_clamp(self.raw_logits, LOGIT_RANGE)
        return torch.logit(self._like().new_full((3,), self.config.probability))

    def probabilities(self) -> Float[Tensor, " 3"]:
        """The dropout probability of each linear layer."""
        return self.layer_logits().sigmoid()

    def regularization(self) -> Float[Tensor, ""]:
        """The KL term of concrete dropout, up to a constant, in the form of Gal, Hron and Kendall (2017).

        ``Σ weight_regularizer ‖W‖² / (1-p) + dropout_regularizer · inputs · (p log p + (1-p) log(1-p))`` over the
        linear layers. The first part favours small weights and little dropout, the second (minus the entropy of the
        masks) a ``p`` near one half. Both weights should be inversely proportional to the number of training samples.
        With fixed dropout the second part is constant and omitted.
        """
        logits = self.layer_logits()
        squares = torch.stack([layer.weight.square().sum() for layer in self.network.dropped_layers])
        weights = self.config.weight_regularizer * (squares * (1 + logits.exp())).sum()  # 1/(1-p) = 1 + e^logit
        if self.config.dropout == "fixed":
            return weights
        inputs = logits.new_tensor([layer.in_features for layer in self.network.dropped_layers])
        log_sigmoid = nn.functional.logsigmoid
        p = logits.sigmoid()
        entropy = -(p * log_sigmoid(logits) + (1 - p) * log_sigmoid(-logits))
        return weights - self.config.dropout_regularizer * (inputs * entropy).sum()

    def init_state(self, belief: Gaussian, generator: torch.Generator | None) -> Any:
        batch, members = len(belief.mean), self.config.members
        units = sum(layer.in_features for layer in self.network.dropped_layers)
        shared = generator is None
        if generator is None:
            generator = torch.Generator().manual_seed(self.config.seed)
        # in float32 for every dtype of the filter, so that the same seed gives the same members in either precision
        shape = (1 if shared else batch, members, units)
        uniforms = torch.rand(shape, generator=generator, dtype=torch.float32, device=generator.device)
        zeros = belief.mean.new_zeros
        d = self.layout.tangent_size
        return BayesianKalmanNetState(
            belief.mean.unsqueeze(1).repeat(1, members, 1),
            zeros(batch, members, d),
            zeros(batch, members, d),
            zeros(batch, members, self.network.gru.hidden_size),
            self.system.observe(belief.mean),
            uniforms.to(belief.mean).expand(batch, members, units).clone(),
        )

    def prepare(self) -> Prepared:
        inputs = [layer.in_features for layer in self.network.dropped_layers]
        logit = torch.cat([layer.expand(n) for layer, n in zip(self.layer_logits(), inputs, strict=True)])
        return Prepared(self.system.measurement_noise(), logit)

    def dropout_scale(self, uniforms: Float[Tensor, "*B w"], logit: Float[Tensor, " w"]) -> Float[Tensor, "*B w"]:
        """The factor of each unit: 0 where dropped, ``1/(1-p)`` where kept, in between for a relaxed mask."""
        scale = 1 + logit.exp()
        if self.config.dropout == "fixed":
            return (uniforms <= 1 - logit.sigmoid()) * scale
        relaxed_mask = torch.sigmoid(-(logit + torch.logit(uniforms, eps=UNIFORM_EDGE)) / TEMPERATURE)
        return relaxed_mask * scale

    def advance(
        self,
        prepared: Prepared,
        state: BayesianKalmanNetState,
        y: Tensor,
        weight: Tensor,
        u: Tensor | None,
        dt: Tensor | None,
    ) -> tuple[BayesianKalmanNetState, StepOutput]:
        members = self.config.members

        def for_members(x: Tensor) -> Tensor:
            return x.repeat_interleave(members, 0)

        def by_trajectory(x: Tensor) -> Tensor:
            return x.unflatten(0, (-1, members))

        previous, motion, correction, hidden, uniforms = (
            leaf.flatten(0, 1) for leaf in (state.members, state.motion, state.correction, state.hidden, state.uniforms)
        )
        weights = for_members(weight)
        prior = self.system.transition(
            previous, None if u is None else for_members(u), None if dt is None else for_members(dt)
        )
        predicted = self.system.observe(prior)
        innovation = self.innovation(for_members(y), predicted, weights)
        change = for_members(observation_change(self.observation_layout, y, state.seen, weight))
        features = torch.cat([unit(part) for part in (change, innovation, motion, correction)], -1)
        scale = self.dropout_scale(uniforms, prepared.logit)
        entries, hidden = self.network(features, hidden, scale)
        K = entries.unflatten(-1, (self.layout.tangent_size, -1)) * weights.unsqueeze(-2)
        posterior = self.layout.boxplus(prior, matvec(K, innovation))

        next_state = BayesianKalmanNetState(
            by_trajectory(posterior),
            by_trajectory(self.layout.boxminus(posterior, previous)),
            by_trajectory(applied_correction(self.layout, posterior, prior, weights)),
            by_trajectory(hidden),
            last_seen(state.seen, y, weight),
            state.uniforms,
        )
        equal = SigmaRule(1.0, 1 / members, 1 / members, 1 / members)  # all members have the same weight
        prior_mean, _, prior_cov = sigma_moments(by_trajectory(prior), self.layout, equal)
        mean, _, cov = sigma_moments(next_state.members, self.layout, equal)
        centre, _, spread = sigma_moments(by_trajectory(predicted), self.observation_layout, equal)
        out = step_output(
            Gaussian(prior_mean, symmetrize(prior_cov)),
            Gaussian(mean, symmetrize(cov)),
            self.innovation(y, centre, weight),
            symmetrize(spread + dense(prepared.R)),
            torch.ones_like(weight[:, 0], dtype=torch.bool),  # no factorisation that could fail
        )
        return next_state, out
