"""Bayesian KalmanNet: an ensemble of gain networks sampled by dropout; its spread is the covariance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from ...core.constrain import inverse_soft_clamp, soft_clamp
from ...core.gaussian import Noise, dense, matvec, symmetrize
from ...core.linearize import SigmaRule, sigma_moments
from ...core.system import System
from ...errors import ConfigError
from ...registry import FILTERS, at_least, limited
from ...shapes import Float, Int
from ...types import Gaussian, StepOutput
from ..base import Prediction, adopt, arguments
from ..extended import SystemFilter
from ..networks import GRUCell, scale_weights
from ..outputs import step_output
from .gain_features import applied_correction, last_seen, observation_change, unit

TEMPERATURE = 0.1
"""Temperature of the relaxed Bernoulli masks (Gal et al. 2017): small enough that a mask is nearly 0 or 1."""
LOGIT_RANGE = 20.0
"""Bound on the dropout logits: beyond ±20 float32 cannot distinguish ``1 - p`` from 0."""
UNIFORM_EDGE = 1e-7
"""Uniform samples are kept at this distance from 0 and 1, where their logit is infinite."""
MASKS = 2
"""Parts of the network whose inputs are dropped: the layer before the GRU and the layers after it."""
MODULUS, MULTIPLIER, INCREMENT = 2**32, 1664525, 1013904223
"""Linear congruential generator (Knuth, Lewis) whose products fit 64 bits: the next samples of the masks of a state."""


@dataclass(frozen=True)
class BayesianKalmanNetConfig:
    """The options of :class:`BayesianKalmanNet`, which describes them."""

    members: int = at_least(1, 20)
    dropout: Literal["concrete", "fixed"] = "concrete"
    probability: tuple[float, ...] = limited((0.5, 0.8), min=0.0)
    redraw: Literal["step", "trajectory"] = "step"
    unit_features: bool = False
    weight_regularizer: float = at_least(0.0, 1e-6)
    dropout_regularizer: float = at_least(0.0, 1e-6)
    in_mult: int = at_least(1, 80)
    hidden_mult: int = at_least(1, 4)
    out_mult: int = at_least(1, 4)
    gru_layers: int = at_least(1, 2)
    gain_factor: float = at_least(0.0, 0.01)
    seed: int = 0


class BayesianKalmanNetState(NamedTuple):
    members: Float[Tensor, "B J n"]
    """The estimate of every member."""
    motion: Float[Tensor, "B J d"]
    """``x̂_{t-1} ⊟ x̂_{t-2}`` of every member."""
    correction: Float[Tensor, "B J d"]
    """``x̂_{t-1} ⊟ x̂⁻_{t-1}`` of every member."""
    hidden: Float[Tensor, "B J l h"]
    """The hidden states of the GRU layers."""
    seen: Float[Tensor, "B m"]
    """The last measurement of each channel, the same for all members."""
    samples: Int[Tensor, "B J w"]
    previous: Float[Tensor, "B J n"]
    """The sample of every member's dropout masks: for each unit that can be dropped, 2³² times a uniform number."""


class Prepared(NamedTuple):
    R: Noise
    logit: Float[Tensor, " w"]
    """Logit of the dropout probability of each unit."""


class GainNetwork(nn.Module):
    """KalmanNet's architecture #1: linear, ReLU, GRU, linear, ReLU, linear; dropout of features and GRU output."""

    def __init__(self, d: int, m: int, config: BayesianKalmanNetConfig) -> None:
        super().__init__()
        read, hidden = (d + m) * config.in_mult, (d * d + m * m) * config.hidden_mult
        self.fc_in = nn.Linear(2 * d + 2 * m, read)
        self.gru = nn.ModuleList(GRUCell(hidden if layer else read, hidden) for layer in range(config.gru_layers))
        self.fc_hidden = nn.Linear(hidden, d * m * config.out_mult)
        self.fc_out = nn.Linear(d * m * config.out_mult, d * m)
        self.hidden_size = hidden
        scale_weights(self.fc_out, config.gain_factor)

    @property
    def dropped_units(self) -> tuple[int, int]:
        """Number of units that can be dropped: features, and outputs of the GRU."""
        return self.fc_in.in_features, self.fc_hidden.in_features

    @property
    def dropped_layers(self) -> tuple[tuple[nn.Linear, ...], ...]:
        """The layers that read each mask."""
        return (self.fc_in,), (self.fc_hidden, self.fc_out)

    def forward(
        self, features: Float[Tensor, "B i"], hidden: Float[Tensor, "B l h"], scale: Float[Tensor, "B w"]
    ) -> tuple[Float[Tensor, "B k"], Float[Tensor, "B l h"]]:
        """Gain entries and GRU states; ``scale`` multiplies the features and the output of the GRU."""
        on_features, on_hidden = scale.split(self.dropped_units, -1)
        x = self.fc_in(features * on_features).relu()
        states = []
        for cell, state in zip(self.gru, hidden.unbind(-2), strict=True):
            x = cell(x, state)
            states.append(x)
        return self.fc_out(self.fc_hidden(x * on_hidden).relu()), torch.stack(states, -2)


@FILTERS.register("bayesian_kalmannet")
class BayesianKalmanNet(SystemFilter):
    """Bayesian KalmanNet (Dahan et al., arXiv 2309.03058) on a given system.

    From the paper: KalmanNet's features and architecture #1 with dropout; ``J`` members start from the prior mean; the
    mean of the members is the estimate and their covariance ``1/J Σ δδᵀ`` its uncertainty. Dropout is concrete (Gal,
    Hron and Kendall 2017: the probability of each layer is learned) or fixed. It is active in both ``train()`` and
    ``eval()``, because the ensemble is the estimator. From the authors' code: masks on the features and on the output
    of the GRU, drawn anew in every step, the range of their initial probabilities, two GRU layers, features that are
    not scaled. It is trained on the ``state`` and ``empirical_variance`` losses.

    Choices of this implementation: the samples of the masks are part of the state and each step computes the next ones
    from them, so a step is pure; the relaxed mask is computed from them differentiably with respect to the probability.
    With a generator every trajectory of the batch has its own samples; without one all share those of
    ``config.seed``, so that the estimate of a stream does not depend on the others in the batch. *Training needs a
    generator*: without one every run has the same few masks. GRU states start at zero. On manifolds the mean is
    computed in the tangent space. The innovation is ``y ⊟`` the mean of the members' predicted measurements, on a flat
    layout the mean of their innovations; its covariance is the covariance of these predictions plus the system's
    ``R``. Masked channels are treated as in KalmanNet.

    The covariance measures only the disagreement of the networks: it is zero before the first measurement whatever the
    prior covariance, does not include process noise, and has rank below ``J``.

    Args:
        system: the equations of motion.
        members: ``J``, the size of the ensemble.
        dropout: ``"concrete"`` learns the probability of each mask, ``"fixed"`` does not.
        probability: the initial dropout probability: one number, or two between which the initial logit of each mask is
            drawn, as in the authors' code. Fixed dropout needs one number.
        redraw: when masks are drawn: anew in every step, as in the authors' code, or once for a trajectory, so that a
            member is one network.
        unit_features: scale each feature to length one as KalmanNet does; the authors' code does not.
        weight_regularizer, dropout_regularizer: weights of the two parts of :meth:`regularization`.
        in_mult, hidden_mult, out_mult: widths of the layer before the GRU, of the GRU and of the layer after it.
        gru_layers: number of GRU layers.
        gain_factor: multiplies the initial weights of the last layer; 1 is the authors' initialisation.
        seed: of the masks when ``init`` has no generator.

    >>> import torch, fwnkf
    >>> eye = torch.eye(1)
    >>> net = fwnkf.BayesianKalmanNet(fwnkf.LinearSystem.of(F=eye, H=eye, Q=eye, R=eye), members=5, in_mult=2)
    >>> net.run(torch.zeros(1, 5, 1)).mean.shape
    torch.Size([1, 5, 1])
    """

    Config = BayesianKalmanNetConfig
    smooths = False

    def __init__(
        self,
        system: System,
        *,
        members: int = 20,
        dropout: Literal["concrete", "fixed"] = "concrete",
        probability: tuple[float, ...] = (0.5, 0.8),
        redraw: Literal["step", "trajectory"] = "step",
        unit_features: bool = False,
        weight_regularizer: float = 1e-6,
        dropout_regularizer: float = 1e-6,
        in_mult: int = 80,
        hidden_mult: int = 4,
        out_mult: int = 4,
        gru_layers: int = 2,
        gain_factor: float = 0.01,
        seed: int = 0,
    ) -> None:
        super().__init__(**arguments(locals()))

    def setup(self, config: BayesianKalmanNetConfig, system: System | None, arrays: dict[str, Tensor]) -> None:
        self.system = adopt(self, system)
        self.network = GainNetwork(self.layout.tangent_size, self.observation_dim, config)
        if config.dropout == "concrete":
            low, high = torch.logit(torch.tensor(self._range(), dtype=torch.float64))
            logits = torch.lerp(low, high, torch.rand(MASKS).double())
            raw = inverse_soft_clamp(logits.clamp(-0.99 * LOGIT_RANGE, 0.99 * LOGIT_RANGE), LOGIT_RANGE)
            self.raw_logits = nn.Parameter(raw.to(self.network.fc_in.weight.dtype))
        else:
            self._range()

    def _range(self) -> tuple[float, float]:
        """The lowest and the highest initial dropout probability."""
        given, learned = self.config.probability, self.config.dropout == "concrete"
        wanted = "one number, or two increasing ones, above 0 and below 1" if learned else "one number below 1"
        if (
            len(given) not in ((1, 2) if learned else (1,))
            or given[-1] >= 1
            or (learned and not 0 < given[0] <= given[-1])
        ):
            raise ConfigError(
                f"{self.name}: probability = {list(given)} with dropout {self.config.dropout!r}; wanted {wanted}"
            )
        return given[0], given[-1]

    def layer_logits(self) -> Float[Tensor, " 2"]:
        """Logits of the dropout probabilities.

        Returns:
            One for each mask.
        """
        if self.config.dropout == "concrete":
            return soft_clamp(self.raw_logits, LOGIT_RANGE)
        return torch.logit(self._like().new_full((MASKS,), self.config.probability[0]))

    def probabilities(self) -> Float[Tensor, " 2"]:
        """The dropout probabilities.

        Returns:
            One for each mask.
        """
        return self.layer_logits().sigmoid()

    def regularization(self) -> Float[Tensor, ""]:
        """The KL term of concrete dropout, up to a constant, in the form of Gal, Hron and Kendall (2017).

        ``Σ weight_regularizer ‖W‖² / (1-p) + dropout_regularizer · units · (p log p + (1-p) log(1-p))`` over the
        masks, with the weights and biases of the linear layers behind each. The first part favours small weights and
        little dropout, the second (minus the entropy of the masks) a ``p`` near one half. Both weights should be
        inversely proportional to the number of training samples. With fixed dropout the second part is constant and
        omitted.
        """
        logits = self.layer_logits()
        squares = torch.stack(
            [
                torch.stack([parameter.square().sum() for layer in layers for parameter in layer.parameters()]).sum()
                for layers in self.network.dropped_layers
            ]
        )
        weights = self.config.weight_regularizer * (squares * (1 + logits.exp())).sum()  # 1/(1-p) = 1 + e^logit
        if self.config.dropout == "fixed":
            return weights
        units = logits.new_tensor(self.network.dropped_units)
        log_sigmoid = nn.functional.logsigmoid
        p = logits.sigmoid()
        entropy = -(p * log_sigmoid(logits) + (1 - p) * log_sigmoid(-logits))
        return weights - self.config.dropout_regularizer * (units * entropy).sum()

    def init_state(self, belief: Gaussian, generator: torch.Generator | None) -> Any:
        batch, members = len(belief.mean), self.config.members
        units = sum(self.network.dropped_units)
        shared = generator is None
        if generator is None:
            generator = torch.Generator().manual_seed(self.config.seed)
        # integers for every dtype of the filter, so that the same seed gives the same members in either precision
        shape = (1 if shared else batch, members, units)
        samples = torch.randint(MODULUS, shape, generator=generator, device=generator.device)
        zeros = belief.mean.new_zeros
        d = self.layout.tangent_size
        return BayesianKalmanNetState(
            belief.mean.unsqueeze(1).repeat(1, members, 1),
            zeros(batch, members, d),
            zeros(batch, members, d),
            zeros(batch, members, self.config.gru_layers, self.network.hidden_size),
            self.system.observe(belief.mean),
            samples.to(belief.mean.device).expand(batch, members, units).clone(),
            belief.mean.unsqueeze(1).repeat(1, members, 1),
        )

    def prepare(self) -> Prepared:
        logits = zip(self.layer_logits(), self.network.dropped_units, strict=True)
        return Prepared(self.system.measurement_noise(), torch.cat([logit.expand(units) for logit, units in logits]))

    def dropout_scale(self, samples: Int[Tensor, "*B w"], logit: Float[Tensor, " w"]) -> Float[Tensor, "*B w"]:
        """The factor of each unit: 0 where dropped, ``1/(1-p)`` where kept, in between for a relaxed mask.

        Args:
            samples: 2³² times a uniform number for each unit.
            logit: logit of the dropout probability of each unit.

        Returns:
            The factors.
        """
        scale = 1 + logit.exp()
        uniforms = (samples.to(logit.dtype) + 0.5) / MODULUS
        if self.config.dropout == "fixed":
            return (uniforms <= 1 - logit.sigmoid()) * scale
        relaxed_mask = torch.sigmoid(-(logit + torch.logit(uniforms, eps=UNIFORM_EDGE)) / TEMPERATURE)
        return relaxed_mask * scale

    def predict_state(
        self,
        prepared: Prepared,
        state: BayesianKalmanNetState,
        u: Tensor | None,
        dt: Tensor | None,
        measured: tuple[Tensor, Tensor] | None = None,
    ) -> Prediction:
        members = self.config.members
        control, length = (None if item is None else item.repeat_interleave(members, 0) for item in (u, dt))
        moved = self.system.transition(state.members.flatten(0, 1), control, length)
        return Prediction(state._replace(members=moved.unflatten(0, (-1, members))))

    def update_state(
        self, prepared: Prepared, ahead: Prediction, y: Tensor, weight: Tensor
    ) -> tuple[BayesianKalmanNetState, StepOutput, None]:
        members, state = self.config.members, ahead.state

        def for_members(x: Tensor) -> Tensor:
            return x.repeat_interleave(members, 0)

        def by_trajectory(x: Tensor) -> Tensor:
            return x.unflatten(0, (-1, members))

        samples = state.samples
        if self.config.redraw == "step":
            samples = (samples * MULTIPLIER + INCREMENT) % MODULUS
        prior, previous, motion, correction, hidden = (
            leaf.flatten(0, 1) for leaf in (state.members, state.previous, state.motion, state.correction, state.hidden)
        )
        weights = for_members(weight)
        predicted = self.system.observe(prior)
        innovation = self.innovation(for_members(y), predicted, weights)
        change = for_members(observation_change(self.observation_layout, y, state.seen, weight))
        parts = (change, innovation, motion, correction)
        features = torch.cat([unit(part) for part in parts] if self.config.unit_features else parts, -1)
        scale = self.dropout_scale(samples.flatten(0, 1), prepared.logit)
        entries, hidden = self.network(features, hidden, scale)
        K = entries.unflatten(-1, (self.layout.tangent_size, -1)) * weights.unsqueeze(-2)
        posterior = self.layout.boxplus(prior, matvec(K, innovation))

        next_state = BayesianKalmanNetState(
            by_trajectory(posterior),
            by_trajectory(self.layout.boxminus(posterior, previous)),
            by_trajectory(applied_correction(self.layout, posterior, prior, weights)),
            by_trajectory(hidden),
            last_seen(state.seen, y, weight),
            samples,
            by_trajectory(posterior),
        )
        equal = SigmaRule(1.0, 1 / members, 1 / members, 1 / members)  # all members have the same weight
        prior_mean, _, prior_cov = sigma_moments(by_trajectory(prior), self.layout, equal)
        mean, _, cov = sigma_moments(next_state.members, self.layout, equal)
        centre, _, spread = sigma_moments(by_trajectory(predicted), self.observation_layout, equal)
        ok = torch.ones_like(weight[:, 0], dtype=torch.bool)  # no factorisation that could fail, nor digits to lose
        out = step_output(
            Gaussian(prior_mean, symmetrize(prior_cov)),
            Gaussian(mean, symmetrize(cov)),
            self.innovation(y, centre, weight),
            symmetrize(spread + dense(prepared.R)),
            ok,
            ok,
        )
        return next_state, out, None
