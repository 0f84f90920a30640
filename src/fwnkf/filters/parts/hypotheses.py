"""Noise whose frequency or level is not known beforehand: several noise models run side by side.

A tone of unknown frequency is one oscillator, not many at once. Each hypothesis is the filter with lines of its own
frequency and a level of its own; they are weighed by the likelihood of the measurements under their one-step
predictions (multiple-model adaptive estimation, Magill 1965), and the output is the mean and covariance of the mixture.

With ``dwell``, noise may change while it is measured (interacting multiple models, Blom and Bar-Shalom 1988). In a step
of length ``dt`` the noise stays as it is with probability ``exp(-dt / dwell)``; else a hypothesis is drawn anew from
the prior. A hypothesis therefore begins each step with a mixture: of its own belief, of that of all hypotheses of the
same frequency, whose oscillators go on, and of that of all others, from which it takes the state alone. Such a mixture
forgets where the state was before the noise began. With ``onsets``, copies of a hypothesis keep the likeliest
beginnings apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...core.gaussian import log_prob
from ...core.layout import Layout
from ...core.linearize import mix
from ...core.mixture import Joint, interact
from ...core.tree import tree_map
from ...errors import ConfigError
from ...registry import PARTS, at_least, limited
from ...shapes import Float, Int
from ...types import StepOutput
from .part import Part

FALLBACK_PRIOR = 0.01
"""Probability of each hypothesis of ``fallback`` before anything is measured: a few samples can overrule it."""
ENDING = 0.5
"""Probability that a change is the end of the disturbance; were it as small as the prior, filters would see it late."""


@PARTS.register("hypotheses")
@dataclass(frozen=True)
class Hypotheses(Part):
    """Copies of a filter with lines of different frequencies and levels, weighed by their likelihood.

    Args:
        frequencies: number of frequencies; 1 for those of the lines themselves.
        fallback: adds two hypotheses without parameters of their own: that the disturbance is absent, and the classical
            filter, without anything learned. They limit the error where the noise differs from that of training.
        levels: factors of the variance of all measurement noise; each frequency is a hypothesis with each of them,
            the less probable the larger the level.
        usual: probability of the level one before anything is measured, the other levels share the rest; None: by the
            rule above. Near one, noise as it was in training costs next to nothing, and other levels are found later.
        floor: factor of the variance of white noise where the disturbance is absent. Broad lines may have taken up the
            white noise that stays when the disturbance ends; ``fwnkf.training.noise_start.noise_floor`` measures it.
        dwell: seconds for which noise stays as it is, on average; None: for ever, and the weights never forget.
        onsets: copies of each hypothesis with a disturbance, for the likeliest times at which it may have begun. Needs
            ``dwell``; four are about as good as one for every step. Time and memory grow by as many hypotheses.

    >>> import torch, fwnkf
    >>> one = torch.eye(1)
    >>> system = fwnkf.LinearSystem.of(F=one, H=one, Q=one, R=one, dt=0.01)
    >>> filter = fwnkf.FWNKF(system, noise=fwnkf.Lines(), hypotheses=Hypotheses(frequencies=3))
    >>> filter.run(torch.zeros(4, 10, 1)).state.log_weight.shape
    torch.Size([4, 3])
    """

    kind = "hypotheses"
    frequencies: int = at_least(1, 1)
    fallback: bool = False
    levels: tuple[float, ...] = limited((1.0,), above=0.0)
    dwell: float | None = limited(None, above=0.0)
    onsets: int = at_least(0, 0)
    usual: float | None = limited(None, above=0.0, max=0.999)
    floor: float = limited(1.0, above=0.0)

    def __post_init__(self) -> None:
        if not self.levels:
            raise ConfigError("hypotheses: levels is empty; give positive factors of the variance")
        if self.usual is not None and (1.0 not in self.levels or len(set(self.levels)) == 1):
            raise ConfigError(
                f"hypotheses: usual = {self.usual} is of the level 1.0 among others; levels are {self.levels}"
            )
        if self.floor != 1 and not self.fallback:
            raise ConfigError(f"hypotheses: floor = {self.floor} is of the hypotheses that fallback adds")
        if self.onsets and self.dwell is None:
            raise ConfigError(f"hypotheses: onsets = {self.onsets}; noise begins anew only with dwell")

    # ---- order: by frequency, then by level, each followed by its copies; those without a disturbance last ----------

    @property
    def silent(self) -> int:
        """Number of hypotheses without a disturbance."""
        return 2 if self.fallback else 0

    @property
    def copies(self) -> int:
        """Each hypothesis and its copies."""
        return 1 + self.onsets

    @property
    def count(self) -> int:
        """Number of hypotheses, those of ``fallback`` included."""
        return self.frequencies * len(self.levels) * self.copies + self.silent

    def families(self, device: torch.device) -> Int[Tensor, " K"]:
        """A number for the frequency of each hypothesis, and one for those without a disturbance.

        Args:
            device: where they go.

        Returns:
            The numbers, from 0.
        """
        own = torch.arange(self.frequencies, device=device).repeat_interleave(len(self.levels) * self.copies)
        return torch.cat((own, own.new_full((self.silent,), self.frequencies)))

    def level(self, like: Tensor) -> Float[Tensor, " K"]:
        """Factor of the variance of the white noise of each hypothesis.

        Args:
            like: a tensor with dtype and device.

        Returns:
            The factors.
        """
        levels = torch.tensor(self.levels * self.frequencies, dtype=like.dtype, device=like.device)
        silent = like.new_tensor([self.floor, 1.0][: self.silent])
        return torch.cat((levels.repeat_interleave(self.copies), silent))

    def power(self, like: Tensor) -> Float[Tensor, " K"]:
        """Variance of the noise states of each hypothesis: its level, or zero where there is no disturbance.

        Args:
            like: a tensor with dtype and device.

        Returns:
            The variances.
        """
        level = self.level(like)
        level[len(level) - self.silent :] = 0
        return level

    def learned(self, like: Tensor) -> Float[Tensor, " K"] | None:
        """Zero for the classical filter, one for all others; None without it.

        Args:
            like: a tensor with dtype and device.

        Returns:
            One number for each hypothesis, or None.
        """
        if not self.fallback:
            return None
        return torch.cat((like.new_ones(self.count - 1), like.new_zeros(1)))

    def each_frequency(self, frequency: Float[Tensor, "L c"]) -> Float[Tensor, "K c"]:
        """The frequencies of each hypothesis; those without a disturbance have the first.

        Args:
            frequency: one row for each set of frequencies.

        Returns:
            The same with one row for each hypothesis.
        """
        own = frequency.repeat_interleave(len(self.levels) * self.copies, 0)
        return torch.cat((own, frequency[:1].expand(self.silent, -1)))

    def prior(self, like: Tensor) -> Float[Tensor, " K"]:
        """Probability of each hypothesis before anything is measured.

        That of a level falls with its root: errors grow with about the root of the level, so that all levels have about
        the same loss relative to their error.

        Args:
            like: a tensor with dtype and device.

        Returns:
            The probabilities.
        """
        disturbed = self.count - self.silent
        level = self.level(like)[:disturbed]
        share = level.rsqrt()
        if self.usual is not None:
            one = level == 1
            share = torch.where(one, self.usual / one.sum(), (1 - self.usual) / (~one).sum())
        own = (1 - FALLBACK_PRIOR * self.silent) * share / share.sum()
        return torch.cat((own, like.new_full((self.silent,), FALLBACK_PRIOR)))

    def after_a_change(self, like: Tensor) -> Float[Tensor, " K"]:
        """Probability of each hypothesis, with its copies, when the noise has changed.

        Args:
            like: a tensor with dtype and device.

        Returns:
            The probabilities.
        """
        prior, silent = self.prior(like), self.silent
        disturbed = self.copies * prior[: self.count - silent]
        if not silent:
            return disturbed
        ended = like.new_full((silent,), ENDING / silent)
        return torch.cat((disturbed * (1 - ENDING) / prior[:-silent].sum(), ended))

    def copy_matrix(self, like: Tensor) -> Float[Tensor, "K K"] | None:
        """One where the hypothesis of a column is a copy of that of the row; None without copies.

        Args:
            like: a tensor with dtype and device.

        Returns:
            The matrix, or None.
        """
        if self.copies == 1:
            return None
        pairs = like.new_zeros(self.copies, self.copies)
        pairs[0, 1:] = 1
        blocks = [pairs] * (self.frequencies * len(self.levels))
        return torch.block_diag(*blocks, like.new_zeros(2 * [self.silent]))


class HypothesesState(NamedTuple):
    """The states of all hypotheses, ``[B, K, …]``, and the logarithm of their probabilities."""

    members: Any
    log_weight: Float[Tensor, "B K"]


def each(rows: Any, count: int) -> Any:
    """Every row ``count`` times, once for each hypothesis; None stays None."""
    return tree_map(lambda leaf: None if leaf is None else leaf.repeat_interleave(count, 0), rows)


def flat(members: Any) -> Any:
    """States ``[B, K, …]`` as rows ``[B K, …]``."""
    return tree_map(lambda leaf: leaf.flatten(0, 1), members)


def apart(rows: Any, count: int) -> Any:
    """Rows as states of each hypothesis."""
    return tree_map(lambda leaf: leaf.unflatten(0, (-1, count)), rows)


def mixed(options: Hypotheses, layout: Layout, state: HypothesesState, dt: Float[Tensor, " B"]) -> HypothesesState:
    """The belief of each hypothesis at the start of a step in which the noise may have changed."""
    if options.dwell is None:
        return state
    members, drawn = state.members, options.after_a_change(state.log_weight)
    belief, weight = interact(
        layout,
        state.log_weight.exp(),
        drawn,
        -torch.expm1(-dt / options.dwell),
        Joint(members.mean, members.noise, members.cov),
        options.families(drawn.device),
        options.power(drawn),
        options.copy_matrix(drawn),
    )
    return HypothesesState(members._replace(**belief._asdict()), weight.log())


def weighed(
    layouts: tuple[Layout, Layout], log_weight: Float[Tensor, "B K"], out: StepOutput, weight: Float[Tensor, "R m"]
) -> tuple[Float[Tensor, "B K"], StepOutput]:
    """Probabilities after a measurement, and the output of the mixture; rows of ``out`` are hypotheses."""
    count = log_weight.shape[-1]
    likelihood, _ = log_prob(out.innovation, out.innovation_cov, weight)
    posterior = torch.log_softmax(log_weight + apart(likelihood, count), -1)
    before, after = log_weight.exp(), posterior.exp()
    members = apart(StepOutput(*out), count)
    prior = mix(layouts[0], before, members.prior_mean, members.prior_cov)
    estimate = mix(layouts[0], after, members.mean, members.cov)
    innovation = mix(layouts[1], before, members.innovation, members.innovation_cov)
    return posterior, StepOutput(
        *estimate, *prior, innovation.mean, innovation.mean, innovation.cov, members.status.amax(-1)
    )
