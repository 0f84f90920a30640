"""Beliefs of hypotheses that interact: the mixing step of interacting multiple models."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..shapes import Float, Int
from .layout import Layout


class Joint(NamedTuple):
    """Beliefs of K hypotheses about the state and their noise states, which share a covariance."""

    mean: Float[Tensor, "B K n"]
    noise: Float[Tensor, "B K s"]
    cov: Float[Tensor, "B K j j"]


class _Moments(NamedTuple):
    centre: Float[Tensor, "B K j"]
    cov: Float[Tensor, "B K j j"]


def interact(
    layout: Layout,
    weight: Float[Tensor, "B K"],
    prior: Float[Tensor, " K"],
    switching: Float[Tensor, " B"],
    belief: Joint,
    family: Int[Tensor, " K"],
    power: Float[Tensor, " K"],
    copies: Float[Tensor, "K K"] | None = None,
) -> tuple[Joint, Float[Tensor, "B K"]]:
    """Mix beliefs for a step in which, with probability ``switching``, a hypothesis is drawn anew from ``prior``.

    A hypothesis begins with a mixture of three beliefs, reduced to its mean and covariance: its own, if nothing
    changed; that of all hypotheses of its family, whose noise states go on; and that of the other families, from which
    it takes the state, while its noise states begin at their stationary covariance ``power``. Differences of states are
    taken in the tangent space at the likeliest hypothesis.

    With ``copies``, what begins in one step is not mixed with what began before: some hypotheses are copies of another,
    each for one beginning. In every step the least probable copy is mixed into its original and makes room for what
    begins now; the other copies go on as they are.

    Args:
        layout: of the state.
        weight: probability of each hypothesis after the last step.
        prior: probability of each hypothesis when one is drawn.
        switching: probability that one is drawn.
        belief: of each hypothesis after the last step.
        family: a number for each hypothesis; equal ones have the same noise states.
        power: stationary variance of the noise states of each hypothesis.
        copies: one where the hypothesis of a column is a copy of that of the row, else zero. ``prior`` is then that of
            an original and its copies together, for each of them.

    Returns:
        Beliefs and probabilities before the step.

    >>> one = torch.ones(1, 2, 1)
    >>> belief = Joint(torch.tensor([[[0.0], [4.0]]]), torch.zeros(1, 2, 0), one.unsqueeze(-1))
    >>> equal = torch.tensor([0.5, 0.5])
    >>> family = torch.zeros(2, dtype=torch.long)
    >>> mixed, _ = interact(Layout.euclidean(1), equal[None], equal, torch.ones(1), belief, family, equal)
    >>> mixed.mean.flatten(), mixed.cov.flatten()
    (tensor([2., 2.]), tensor([5., 5.]))
    """
    d = layout.tangent_size
    drawn = switching.unsqueeze(-1) * prior
    kept = (1 - switching).unsqueeze(-1) * weight
    same = (family[:, None] == family[None]).to(weight.dtype)
    place = weight.argmax(-1)[:, None, None].expand(-1, 1, belief.mean.shape[-1])
    reference = belief.mean.gather(1, place)
    apart = torch.cat((layout.boxminus(belief.mean, reference.expand_as(belief.mean)), belief.noise), -1)

    own = _Moments(apart, belief.cov)
    relatives, share = _mixtures(own, weight, same)
    strangers, foreign = _mixtures(own, weight, 1 - same)
    # of strangers the state alone
    fresh = torch.diag_embed(power[:, None].expand(-1, apart.shape[-1] - d)).expand(len(apart), -1, -1, -1)
    cov = torch.zeros_like(belief.cov)
    cov[..., :d, :d], cov[..., d:, d:] = strangers.cov[..., :d, :d], fresh
    centre = torch.cat((strangers.centre[..., :d], torch.zeros_like(belief.noise)), -1)

    parts = [own, relatives, _Moments(centre, cov)]
    shares = [kept, drawn * share, drawn * foreign]
    if copies is not None:
        replaced, is_copy, has_copies = _least(weight, copies), copies.amax(0), copies.amax(1)
        absorbed, arriving = _mixtures(own, kept * replaced, copies)
        parts.append(absorbed)
        begins = torch.where(is_copy > 0, replaced, 1 - has_copies)
        shares = [kept * (1 - replaced), drawn * share * (1 - is_copy), drawn * foreign * begins, arriving]
    after = torch.stack(shares).sum(0)
    nothing = after <= 0  # in float32 a copy can have no probability left; its belief must be one all the same
    after = torch.where(nothing, torch.finfo(after.dtype).tiny, after)
    shares = [each / after for each in shares]
    shares[0] = torch.where(nothing, 1.0, shares[0])
    mixed = sum(s.unsqueeze(-1) * part.centre for s, part in zip(shares, parts, strict=True))
    assert isinstance(mixed, Tensor)
    whole = torch.zeros_like(belief.cov)
    for s, part in zip(shares, parts, strict=True):
        spread = part.centre - mixed
        whole = whole + s[..., None, None] * (part.cov + spread.unsqueeze(-1) * spread.unsqueeze(-2))
    mean = layout.boxplus(reference.expand_as(belief.mean), mixed[..., :d])
    return Joint(mean, mixed[..., d:], whole), after


def _least(weight: Float[Tensor, "B K"], copies: Float[Tensor, "K K"]) -> Float[Tensor, "B K"]:
    """One for the least probable copy of each original, zero for all other hypotheses."""
    of_copies = torch.where(copies > 0, -weight.unsqueeze(1), -2.0)  # no probability is above one
    place = of_copies.argmax(-1, keepdim=True)
    chosen = torch.arange(weight.shape[-1], device=weight.device) == place
    return (chosen * copies).sum(1)


def _mixtures(own: _Moments, weight: Tensor, among: Float[Tensor, "K K"]) -> tuple[_Moments, Float[Tensor, "B K"]]:
    """For each hypothesis the mixture of those it is ``among``, and their share of all probability."""
    share = weight @ among.mT
    # where a hypothesis has no others the mixture is not used; any weights will do
    each = weight.unsqueeze(1) * among / share.clamp_min(torch.finfo(weight.dtype).tiny).unsqueeze(-1)
    centre = each @ own.centre
    spread = own.centre.unsqueeze(1) - centre.unsqueeze(2)  # [B, K, K, j]
    cov = torch.einsum("bki,bixy->bkxy", each, own.cov) + torch.einsum("bki,bkix,bkiy->bkxy", each, spread, spread)
    return _Moments(centre, cov), share
