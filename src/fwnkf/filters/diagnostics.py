"""What an FW-NKF makes of its conditions: the noise it believed at every step, and the loop it settles into."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core.gaussian import Noise, dense, gain
from ..core.preprocess import Inputs
from ..core.scan import scan
from ..core.shaped import loop_matrix, shaper_blocks
from ..errors import ConfigError, NumericalFailureError
from ..shapes import Bool, Float
from ..types import Gaussian
from .base import Filter
from .fwnkf import FrequencyWeightedNeuralKalmanFilter, FWState, Prepared
from .hypotheses import FrequencyHypotheses
from .networks import Hidden
from .outputs import clean

BLOCK, BLOCKS = 100, 5
"""Steps between two looks at a settling gain, and how often to look before giving up."""
SETTLED = 1e-4
"""By how much, relative to the largest, gain and Jacobians may still move over half a block."""


@torch.no_grad()
def noise_over_time(
    model: Filter,
    y: Float[Tensor, "B T m"],
    u: Float[Tensor, "B T p"] | None = None,
    mask: Bool[Tensor, "B T m"] | None = None,
    dt: Float[Tensor, "B T"] | None = None,
    prior: Gaussian | None = None,
) -> tuple[Float[Tensor, "B T d"], Float[Tensor, "B T m"]]:
    """The diagonals of ``Q_t`` and ``R_t`` that an FW-NKF used at every step of ``model.run`` on the same inputs.

    >>> import fwnkf
    >>> model = fwnkf.build("fwnkf", H=torch.eye(1, 2), Q=torch.eye(2), R=torch.eye(1))
    >>> Q, R = noise_over_time(model, torch.zeros(4, 10, 1))
    >>> Q.shape, R.shape
    (torch.Size([4, 10, 2]), torch.Size([4, 10, 1]))
    """
    known = _conditioned(model)
    known._check(y, u, mask, dt, time_axes=1)
    y, weight, _ = clean(y, mask)
    inputs, state = Inputs(y, weight, u, dt), known.init(y.shape[0], prior)
    if known.preprocess is not None:
        inputs, state = known.preprocessed(inputs), state.filter
    prepared = known.prepare()

    def body(state: FWState, inputs: Sequence[Any]) -> tuple[FWState, tuple[Tensor, Tensor]]:
        read = _read(known, prepared, state, *inputs)
        state, _ = known.advance(prepared, state, *inputs)
        return state, (_diagonal(read.Q), _diagonal(dense(read.noise)))

    _, (Q, R) = scan(body, state, inputs)
    return Q, R


@torch.no_grad()
def nominal_noise(model: Filter) -> tuple[Float[Tensor, " d"], Float[Tensor, " m"]]:
    """The diagonals of ``Q`` and ``R`` over one nominal step while the encoder is at rest (``h = 0``).

    Without an encoder these are the noises of every step.
    """
    known = _conditioned(model)
    head = known.head_bias[known.transition.head_size :].unsqueeze(0)
    Q, noise = known._noises(known.prepare(), head, None, None)
    return _diagonal(Q)[0], _diagonal(dense(noise))[0]


class Loop(NamedTuple):
    """How the error and the shaper's memory go from one step to the next, once the gain has settled."""

    matrix: Float[Tensor, "j j"]
    gain: Float[Tensor, "d m"]
    at: Float[Tensor, " n"]
    """The state around which it is linearised."""


@torch.no_grad()
def steady_state_loop(model: Filter) -> Loop:
    """The loop ``[e; σ]`` of ``shaping="innovation"`` where a run without noise from the origin settles.

    For a linear system without an encoder it is *the* loop, with the gain of the Riccati equation; otherwise the loop
    near that one state. A spectral radius above one means that errors grow there. Raises NumericalFailureError if the
    gain does not settle.
    """
    known = _conditioned(model)
    if known.shaper is None or known.config.gain != "kalman":
        raise ConfigError(
            f"shaping={known.config.shaping!r} with gain={known.config.gain!r} has no loop of one gain and a shaper; "
            "it is there for shaping='innovation' with gain='kalman'"
        )
    prepared, state = known.prepare(), known.init(1)
    if known.preprocess is not None:
        state = state.filter
    silent = state.mean.new_zeros(1, BLOCK, known.observation_dim)

    def body(state: FWState, inputs: Sequence[Any]) -> tuple[FWState, tuple[Tensor, ...]]:
        (nothing,) = inputs
        # an encoder that reads the current measurement reads here what the last estimate predicts: at rest the same
        read = _read(known, prepared, state, nothing, nothing, None, None)
        context = read.hidden[-1] if read.hidden else None
        ahead, F = known.transition(state.mean, read.gate, context, None, None, None)
        # what is measured is what is predicted: no innovation, so the shaper stays empty and only the gain moves
        y, weight = known.observe(ahead), torch.ones_like(nothing)
        state, out = known.advance(prepared, state, y, weight, None, None)
        _, H = known.observation.linearize(out.prior_mean)
        K, _, ok = gain(out.prior_cov, H, read.noise, weight)
        return state, (F.expand(1, *F.shape[-2:]), H.expand(1, *H.shape[-2:]), K, ok)

    for _ in range(BLOCKS):
        state, (F, H, K, ok) = scan(body, state, (silent,))
        if not bool(ok.all() & K.isfinite().all()):
            raise NumericalFailureError("the innovation covariance of a run without noise lost definiteness")
        late = torch.cat((K.flatten(2), F.flatten(2), H.flatten(2)), -1)[0, BLOCK // 2 :]
        if bool((late - late[-1]).abs().max() <= SETTLED * late[-1].abs().max()):
            matrix = loop_matrix(F[0, -1], K[0, -1], H[0, -1], shaper_blocks(known.shaper(), known.observation_dim))
            return Loop(matrix, K[0, -1], state.mean[0])
    raise NumericalFailureError(
        f"the gain does not settle within {BLOCK * BLOCKS} steps of a run without noise from the origin"
    )


def _conditioned(model: Filter) -> FrequencyWeightedNeuralKalmanFilter:
    if not isinstance(model, FrequencyWeightedNeuralKalmanFilter):
        raise ConfigError(
            f"filter {model.name!r} does not condition its noise: Q and R are what it was given, or it has none. "
            "Only the FW-NKF has noises that change from step to step: build('fwnkf', …)"
        )
    if isinstance(model, FrequencyHypotheses):
        raise ConfigError(f"filter {model.name!r} has noises of its own in every hypothesis, not one over time")
    return model


class _Read(NamedTuple):
    """What ``advance`` reads off its encoder: memory, the transition's share of the head, and the noises."""

    hidden: Hidden
    gate: Tensor
    Q: Tensor
    noise: Noise


def _read(
    model: FrequencyWeightedNeuralKalmanFilter,
    prepared: Prepared,
    state: FWState,
    y: Tensor,
    weight: Tensor,
    u: Tensor | None,
    dt: Tensor | None,
) -> _Read:
    hidden, head = model._encode(prepared, state, y, weight, u)
    split = model.transition.head_size
    ratio = None if dt is None else dt / model.config.dt
    return _Read(hidden, head[..., :split], *model._noises(prepared, head[..., split:], dt, ratio))


def _diagonal(matrix: Tensor) -> Tensor:
    return torch.diagonal(matrix, dim1=-2, dim2=-1)
