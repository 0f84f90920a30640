"""An FW-NKF for noise whose frequency is not known beforehand: several noise models run side by side.

A tone of unknown frequency is one oscillator, not many at once. Each hypothesis is an FW-NKF with noise states of its
own frequency; they are weighed by how well they foretell the measurements (multiple-model adaptive estimation, Magill
1965), and the output is the mixture's mean and covariance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..core import constrain, cycles
from ..core.gaussian import log_prob
from ..core.layout import Layout
from ..core.system import System
from ..core.tree import tree_map
from ..errors import ConfigError
from ..registry import FILTERS, at_least
from ..shapes import Float
from ..types import Gaussian, StepOutput
from .fwnkf import FrequencyWeightedNeuralKalmanFilter, FWNKFConfig, FWState, Prepared
from .shaping import NoiseStates


@dataclass(frozen=True)
class HypothesesConfig(FWNKFConfig):
    """The options of an FW-NKF with ``shaping="noise"``, and how many frequencies are held possible."""

    hypotheses: int = at_least(1, 8)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shaping != "noise":
            raise ConfigError(
                f"filter fwnkf_hypotheses: shaping = {self.shaping!r}; hypotheses are noise states: 'noise'"
            )


class HypothesesState(NamedTuple):
    """The states of all hypotheses, ``[B, K, …]``, and the logarithm of their probabilities."""

    members: FWState
    log_weight: Float[Tensor, "B K"]


class HypothesisStates(NoiseStates):
    """Noise states whose frequencies differ from hypothesis to hypothesis; dampings and amplitudes are shared."""

    def __init__(self, channels: int, count: int, shared: bool, radius: float, hypotheses: int) -> None:
        super().__init__(channels, count, shared, radius)
        self.hypotheses = hypotheses
        lead = self.raw_radius.shape[0]
        spread = (torch.arange(hypotheses * count) + 0.5) / (hypotheses * count)
        self.raw_frequency = nn.Parameter(torch.logit(spread).reshape(hypotheses, 1, count).repeat(1, lead, 1))

    def frequency(self) -> Float[Tensor, "K m k"]:
        """Radians per nominal step, in ``(0, π)``, for each hypothesis."""
        return constrain.bounded(self.raw_frequency, 0.0, torch.pi).expand(-1, self.channels, -1)

    def transition(self, ratio: Float[Tensor, "R"] | None) -> tuple[Tensor, Tensor]:
        """For rows that run through the hypotheses in turn; without ``ratio`` the first one's, which no step uses."""
        frequency, radius = self.frequency().flatten(1), self.radius().flatten()
        if ratio is None:
            return cycles.transition(radius, frequency[0])
        return cycles.transition(radius, frequency.repeat(ratio.shape[0] // self.hypotheses, 1), ratio)


@FILTERS.register("fwnkf_hypotheses")
class FrequencyHypotheses(FrequencyWeightedNeuralKalmanFilter):
    """FW-NKFs with noise states of different frequencies, weighed by their likelihood.

    >>> import torch, fwnkf
    >>> eye = {"H": torch.eye(1, 2), "Q": torch.eye(2), "R": torch.eye(1)}
    >>> filter = fwnkf.build("fwnkf_hypotheses", **eye, shaping="noise", hypotheses=3)
    >>> filter.run(torch.zeros(4, 10, 1)).mean.shape
    torch.Size([4, 10, 2])
    """

    Config = HypothesesConfig

    def __init__(self, config: HypothesesConfig, system: System | None = None, **arrays: Tensor) -> None:
        super().__init__(config, system, **arrays)
        self.noise_states = HypothesisStates(
            config.observation_dim, config.sections, config.shared_shaper, config.pole_radius, config.hypotheses
        )

    def init_state(self, belief: Gaussian, generator: torch.Generator | None) -> HypothesesState:  # type: ignore[override]
        count = self.config.hypotheses
        one = super().init_state(belief, generator)
        members = tree_map(lambda leaf: leaf.unsqueeze(1).repeat(1, count, *(1,) * (leaf.ndim - 1)), one)
        return HypothesesState(
            members, belief.mean.new_full((len(belief.mean), count), -torch.tensor(count).log().item())
        )

    def advance(  # type: ignore[override]
        self,
        prepared: Prepared,
        state: HypothesesState,
        y: Tensor,
        weight: Tensor,
        u: Tensor | None,
        dt: Tensor | None,
    ) -> tuple[HypothesesState, StepOutput]:
        count = self.config.hypotheses
        if dt is None:
            dt = torch.full_like(y[:, 0], self.config.dt)

        def each(item: Tensor) -> Tensor:
            return item.repeat_interleave(count, 0)

        def apart(leaf: Tensor) -> Tensor:
            return leaf.unflatten(0, (-1, count))

        flat = tree_map(lambda leaf: leaf.flatten(0, 1), state.members)
        following, out = super().advance(
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
        )


def mix(
    layout: Layout, weight: Float[Tensor, "B K"], mean: Float[Tensor, "B K n"], cov: Float[Tensor, "B K d d"]
) -> Gaussian:
    """Mean and covariance of a mixture, taken in the tangent space at its likeliest member."""
    place = weight.argmax(-1)[:, None, None].expand(-1, 1, mean.shape[-1])
    reference = mean.gather(1, place)
    apart = layout.boxminus(mean, reference.expand_as(mean))
    share = weight.unsqueeze(-1)
    centre = (share * apart).sum(1)
    spread = apart - centre.unsqueeze(1)
    whole = cov + spread.unsqueeze(-1) * spread.unsqueeze(-2)
    return Gaussian(layout.boxplus(reference.squeeze(1), centre), (share.unsqueeze(-1) * whole).sum(1))
