"""An FW-NKF for noise whose frequency or level is not known beforehand: several noise models run side by side.

A tone of unknown frequency is one oscillator, not many at once. Each hypothesis is an FW-NKF with noise states of its
own frequency and a level of its own; they are weighed by the likelihood of the measurements under their one-step
predictions (multiple-model adaptive estimation, Magill 1965), and the output is the mean and covariance of the mixture.

With ``dwell``, noise may change while it is measured (interacting multiple models, Blom and Bar-Shalom 1988). In a step
of length ``dt`` the noise stays as it is with probability ``exp(-dt / dwell)``; else a hypothesis is drawn anew from
the prior. A hypothesis therefore begins each step with a mixture: of its own belief, of that of all hypotheses of the
same frequency, whose oscillators go on, and of that of all others, from which it takes the state alone. Such a mixture
forgets where the state was before the noise began. With ``onsets``, copies of a hypothesis keep the likeliest
beginnings apart.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from ..core import constrain, oscillators
from ..core.gaussian import log_prob
from ..core.linearize import mix
from ..core.mixture import Joint, interact
from ..core.smoothing import LinearStep
from ..core.system import System
from ..core.tree import tree_map
from ..errors import ConfigError
from ..registry import FILTERS
from ..shapes import Float, Int
from ..types import Gaussian, StepOutput
from .base import Filter
from .fwnkf import FrequencyWeightedNeuralKalmanFilter
from .fwnkf_state import FWState, Prepared
from .hypotheses_config import HypothesesConfig
from .options import arguments
from .shaping import NoiseStates

FALLBACK_PRIOR = 0.01
"""Probability of each hypothesis of ``fallback`` before anything is measured: a few samples can overrule it."""
ENDING = 0.5
"""Probability that a change is the end of the disturbance; were it as small as the prior, filters would see it late."""


class HypothesesState(NamedTuple):
    """The states of all hypotheses, ``[B, K, …]``, and the logarithm of their probabilities."""

    members: FWState
    log_weight: Float[Tensor, "B K"]


class HypothesisStates(NoiseStates):
    """Noise states whose frequency and power differ from hypothesis to hypothesis; dampings and amplitudes are shared.

    Hypotheses are ordered by frequency, then by level; each is followed by its copies, one for each of the beginnings
    that are kept apart. The last ``silent`` ones are that there is no disturbance: their states start at zero and have
    no noise.
    """

    def __init__(
        self,
        channels: int,
        count: int,
        shared: bool,
        radius: float,
        hypotheses: int,
        levels: tuple[float, ...],
        silent: int,
        onsets: int,
    ) -> None:
        super().__init__(channels, count, shared, radius)
        self.hypotheses, self.levels, self.silent, self.copies = hypotheses, levels, silent, 1 + onsets
        lead = self.raw_radius.shape[0]
        spread = (torch.arange(hypotheses * count) + 0.5) / (hypotheses * count)
        self.raw_frequency = nn.Parameter(torch.logit(spread).reshape(hypotheses, 1, count).repeat(1, lead, 1))

    def frequency(self) -> Float[Tensor, "K m k"]:
        """Radians per nominal step, in ``(0, π)``, for each frequency."""
        return constrain.bounded(self.raw_frequency, 0.0, torch.pi).expand(-1, self.channels, -1)

    def transition(self, ratio: Float[Tensor, "R"] | None) -> tuple[Tensor, Tensor]:
        """For rows that cycle through the hypotheses; without ``ratio`` the first one's, which no step uses."""
        frequency, radius = self.frequency().flatten(1), self.radius().flatten()
        if ratio is None:
            return oscillators.transition(radius, frequency[0])
        first = frequency[:1].expand(self.silent, -1)
        frequency = torch.cat((frequency.repeat_interleave(len(self.levels) * self.copies, 0), first))
        records = ratio.shape[0] // len(frequency)
        A, Q = oscillators.transition(radius, frequency.repeat(records, 1), ratio)
        return A, Q * self.power(Q).repeat(records)[:, None, None]

    def power(self, like: Tensor) -> Float[Tensor, " K"]:
        """Variance of the noise states of each hypothesis: its level, or zero where there is no disturbance."""
        level = self.level(like)
        level[len(level) - self.silent :] = 0
        return level

    def level(self, like: Tensor) -> Float[Tensor, " K"]:
        """Factor of the variance of the white noise of each hypothesis."""
        levels = torch.tensor(self.levels * self.hypotheses, dtype=like.dtype, device=like.device)
        return torch.cat((levels.repeat_interleave(self.copies), like.new_ones(self.silent)))

    def families(self, device: torch.device) -> Int[Tensor, " K"]:
        """A number for the frequency of each hypothesis, and one for those without a disturbance."""
        own = torch.arange(self.hypotheses, device=device).repeat_interleave(len(self.levels) * self.copies)
        return torch.cat((own, own.new_full((self.silent,), self.hypotheses)))

    def copy_matrix(self, like: Tensor) -> Float[Tensor, "K K"] | None:
        """One where the hypothesis of a column is a copy of that of the row; None without copies."""
        if self.copies == 1:
            return None
        pairs = like.new_zeros(self.copies, self.copies)
        pairs[0, 1:] = 1
        return torch.block_diag(*[pairs] * (self.hypotheses * len(self.levels)), like.new_zeros(2 * [self.silent]))


@FILTERS.register("fwnkf_hypotheses")
class FrequencyHypotheses(FrequencyWeightedNeuralKalmanFilter):
    """FW-NKFs with noise states of different frequencies and levels, weighed by their likelihood.

    The other options are those of :class:`~fwnkf.FWNKF`; ``shaping`` is ``"noise"``.

    Args:
        hypotheses: number of frequencies.
        fallback: adds two hypotheses without parameters of their own: that the disturbance is absent, and the classical
            filter, without anything learned. They limit the error where the noise differs from that of training.
        levels: factors of the variance of all measurement noise; each frequency is a hypothesis with each of them,
            the less probable the larger the level.
        dwell: seconds for which noise stays as it is, on average; None: for ever, and the weights never forget.
        onsets: copies of each hypothesis with a disturbance, for the likeliest times at which it may have begun. Needs
            ``dwell``; four are about as good as one for every step. Time and memory grow by as many hypotheses.

    >>> import torch, fwnkf
    >>> eye = {"H": torch.eye(1, 2), "Q": torch.eye(2), "R": torch.eye(1)}
    >>> filter = fwnkf.build("fwnkf_hypotheses", **eye, shaping="noise", hypotheses=3)
    >>> filter.run(torch.zeros(4, 10, 1)).mean.shape
    torch.Size([4, 10, 2])
    """

    Config = HypothesesConfig

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
        shaping: Literal["none", "innovation", "noise"] = "noise",
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
        hypotheses: int = 8,
        fallback: bool = False,
        levels: tuple[float, ...] = (1.0,),
        dwell: float | None = None,
        onsets: int = 0,
    ) -> None:
        Filter.__init__(self, **arguments(locals()))  # not the parent's, which has not all of these options

    def setup(self, config: Any, system: System | None, arrays: dict[str, Tensor]) -> None:
        super().setup(config, system, arrays)
        self.noise_states = HypothesisStates(
            config.observation_dim,
            config.sections,
            config.shared_shaper,
            config.pole_radius,
            config.hypotheses,
            config.levels,
            silent=self._silent,
            onsets=config.onsets,
        )
        self.noise_states.owner = (self,)

    @property
    def count(self) -> int:
        """Number of hypotheses, those of ``fallback`` included."""
        return int(self.config.hypotheses) * len(self.config.levels) * (1 + self.config.onsets) + self._silent

    @property
    def _silent(self) -> int:
        """Number of hypotheses without a disturbance."""
        return 2 if self.config.fallback else 0

    def prepare(self) -> Prepared:
        """As the FW-NKF, with base variances for each hypothesis, by its level."""
        prepared = super().prepare()
        assert isinstance(self.noise_states, HypothesisStates)
        factor = torch.ones(self.count, len(prepared.base)).to(prepared.base)
        factor[:, -self.config.observation_dim :] = self.noise_states.level(factor).unsqueeze(-1)
        return prepared._replace(base=prepared.base * factor)

    def init_state(self, belief: Gaussian, generator: torch.Generator | None) -> HypothesesState:  # type: ignore[override]
        count, d = self.count, self.layout.tangent_size
        single = super().init_state(belief, generator)
        members = tree_map(lambda leaf: leaf.unsqueeze(1).repeat(1, count, *(1,) * (leaf.ndim - 1)), single)
        assert isinstance(self.noise_states, HypothesisStates)
        known = torch.ones_like(members.cov)
        known[..., d:, d:] = self.noise_states.power(known)[:, None, None]
        members = members._replace(cov=members.cov * known)
        if members.levels:
            shares = self._level_shares(members.cov.flatten(0, 1)).unflatten(0, (-1, count))
            members = members._replace(levels=members.levels._replace(cov=shares))
        return HypothesesState(members, self._prior(known).log().expand(len(belief.mean), -1).clone())

    def _prior(self, like: Tensor) -> Float[Tensor, " K"]:
        """Probability of each hypothesis before anything is measured.

        That of a level falls with its root: errors grow with about the root of the level, so that all levels have about
        the same loss relative to their error.
        """
        disturbed = self.count - self._silent
        prior = like.new_full((self.count,), FALLBACK_PRIOR)
        assert isinstance(self.noise_states, HypothesisStates)
        share = self.noise_states.level(like)[:disturbed].rsqrt()
        prior[:disturbed] = (1 - FALLBACK_PRIOR * self._silent) * share / share.sum()
        return prior

    def _after_a_change(self, like: Tensor) -> Float[Tensor, " K"]:
        """Probability of each hypothesis, with its copies, when the noise has changed."""
        prior, silent = self._prior(like), self._silent
        disturbed = (1 + self.config.onsets) * prior[: self.count - silent]
        if not silent:
            return disturbed
        ended = like.new_full((silent,), ENDING / silent)
        return torch.cat((disturbed * (1 - ENDING) / prior[:-silent].sum(), ended))

    def _encode(
        self, prepared: Prepared, state: FWState, y: Tensor, weight: Tensor, u: Tensor | None
    ) -> tuple[Any, Tensor]:
        hidden, head = super()._encode(prepared, state, y, weight, u)
        return hidden, head if not self.config.fallback else head * self._learned(head).unsqueeze(-1)

    def _residual_ratio(self, ratio: Tensor | None) -> Tensor | None:
        return ratio if ratio is None or not self.config.fallback else ratio * self._learned(ratio)

    def _learned(self, rows: Tensor) -> Float[Tensor, " R"]:
        """For rows that cycle through the hypotheses: zero for the classical filter, one for all others."""
        return (torch.arange(len(rows), device=rows.device) % self.count != self.count - 1).to(rows.dtype)

    def _free_levels(self, rows: Tensor) -> Float[Tensor, " R"]:
        return self._learned(rows) if self.config.fallback else super()._free_levels(rows)

    def _interact(self, state: HypothesesState, dt: Float[Tensor, " B"]) -> HypothesesState:
        """The belief of each hypothesis at the start of a step in which the noise may have changed."""
        assert isinstance(self.noise_states, HypothesisStates)
        members, drawn = state.members, self._after_a_change(state.log_weight)
        mixed, weight = interact(
            self.layout,
            state.log_weight.exp(),
            drawn,
            -torch.expm1(-dt / float(self.config.dwell)),
            Joint(members.mean, members.noise, members.cov),
            self.noise_states.families(drawn.device),
            self.noise_states.power(drawn),
            self.noise_states.copy_matrix(drawn),
        )
        return HypothesesState(members._replace(**mixed._asdict()), weight.log())

    def joint_covariance(self, state: HypothesesState) -> Tensor:  # type: ignore[override]
        if self.config.dwell is not None:
            raise ConfigError("filter 'fwnkf_hypotheses' cannot be smoothed with dwell: its hypotheses interact")
        return self.form.covariance(state.members.cov.flatten(0, 1))

    def advance_linearized(  # type: ignore[override]
        self,
        prepared: Prepared,
        state: HypothesesState,
        y: Tensor,
        weight: Tensor,
        u: Tensor | None,
        dt: Tensor | None,
    ) -> tuple[HypothesesState, StepOutput, LinearStep]:
        count = self.count
        if dt is None:
            dt = torch.full_like(y[:, 0], self.config.dt)
        prepared = prepared._replace(base=prepared.base.repeat(len(y), 1))
        if self.config.dwell is not None:
            state = self._interact(state, dt)

        def each(item: Tensor) -> Tensor:
            return item.repeat_interleave(count, 0)

        def apart(leaf: Tensor) -> Tensor:
            return leaf.unflatten(0, (-1, count))

        flat = tree_map(lambda leaf: leaf.flatten(0, 1), state.members)
        following, out, linear = super().advance_linearized(
            prepared, flat, each(y), each(weight), None if u is None else each(u), each(dt)
        )
        likelihood, _ = log_prob(out.innovation, out.innovation_cov, each(weight))
        log_weight = torch.log_softmax(state.log_weight + apart(likelihood), -1)
        before, after = state.log_weight.exp(), log_weight.exp()
        members = tree_map(apart, StepOutput(*out))
        prior = mix(self.layout, before, members.prior_mean, members.prior_cov)
        posterior = mix(self.layout, after, members.mean, members.cov)
        innovation = mix(self.observation_layout, before, members.innovation, members.innovation_cov)
        status = members.status.amax(-1)
        return (
            HypothesesState(tree_map(apart, following), log_weight),
            StepOutput(*posterior, *prior, innovation.mean, innovation.mean, innovation.cov, status),
            linear._replace(log_weight=log_weight),
        )


def with_fallback(
    model: FrequencyWeightedNeuralKalmanFilter,
    *,
    levels: tuple[float, ...] = (1.0,),
    dwell: float | None = None,
    onsets: int = 0,
) -> FrequencyHypotheses:
    """A trained FW-NKF with noise states, as a hypothesis beside those of ``fallback``; its weights are copied.

    Args:
        model: the filter, with ``shaping="noise"``.
        levels: factors of the variance of its measurement noise, each a hypothesis.
        dwell: seconds for which noise stays as it is, on average; None: for ever.
        onsets: copies of each hypothesis, for times at which the disturbance may have begun.

    Returns:
        The filter with its hypotheses.

    >>> import torch, fwnkf
    >>> eye = {"H": torch.eye(1, 2), "Q": torch.eye(2), "R": torch.eye(1)}
    >>> with_fallback(fwnkf.build("fwnkf", **eye, shaping="noise"), levels=(0.25, 1.0, 4.0), dwell=2.0).count
    5
    """
    if model.noise_states is None:
        raise ConfigError("a fallback needs a filter with noise states: build it with shaping='noise'")
    options = {field.name: getattr(model.config, field.name) for field in fields(model.config)}
    if not isinstance(model, FrequencyHypotheses):
        options["hypotheses"] = 1
    options |= {"fallback": True, "levels": levels, "dwell": dwell, "onsets": onsets}
    mixture = FrequencyHypotheses.from_config(HypothesesConfig(**options), model.system)
    weights = model.state_dict()
    own = mixture.state_dict()
    mixture.load_state_dict({name: weights[name].reshape(own[name].shape) for name in own})
    like = next(model.parameters())
    return mixture.to(device=like.device, dtype=like.dtype)
