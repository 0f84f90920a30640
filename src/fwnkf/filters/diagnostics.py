"""Diagnostics of an FW-NKF: its noise covariances over time, and its error dynamics in the steady state."""

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
from .base import Filter, PriorAt
from .fwnkf import FrequencyWeightedNeuralKalmanFilter
from .fwnkf_state import FWState, Prepared
from .hypotheses import FrequencyHypotheses
from .inputs import clean
from .level import AdaptiveLevelFilter
from .networks import Hidden

BLOCK, BLOCKS = 100, 5
"""Steps between two checks for a steady state, and the number of checks before an error is raised."""
STEADY = 1e-4
"""Largest change of gain and Jacobians over half a block in the steady state, relative to the largest entry."""


@torch.no_grad()
def noise_over_time(
    model: Filter,
    y: Float[Tensor, "B T m"],
    u: Float[Tensor, "B T p"] | None = None,
    mask: Bool[Tensor, "B T m"] | None = None,
    dt: Float[Tensor, "B T"] | None = None,
    prior: Gaussian | None = None,
    *,
    prior_at: PriorAt = "first_measurement",
) -> tuple[Float[Tensor, "B T d"], Float[Tensor, "B T m"]]:
    """The diagonals of ``Q_t`` and ``R_t`` that an FW-NKF uses in each step of ``model.run`` on the same inputs.

    A first step that does not predict has no process noise.

    >>> import fwnkf
    >>> model = fwnkf.build("fwnkf", H=torch.eye(1, 2), Q=torch.eye(2), R=torch.eye(1))
    >>> Q, R = noise_over_time(model, torch.zeros(4, 10, 1))
    >>> Q.shape, R.shape
    (torch.Size([4, 10, 2]), torch.Size([4, 10, 1]))
    """
    fwnkf = _with_fixed_level(model)
    fwnkf._check(y, u, mask, dt, time_axes=1)
    rests_first = prior is not None and prior_at == "first_measurement"
    prior = fwnkf.initial_belief(y, u, mask, dt) if prior is None else prior
    y, weight, _ = clean(y, mask)
    inputs, state = Inputs(y, weight, u, dt), fwnkf.init(y.shape[0], prior)
    if fwnkf.preprocess is not None:
        inputs, state = fwnkf.preprocessed(inputs), state.filter
    prepared = fwnkf.prepare()

    def body(state: FWState, inputs: Sequence[Any]) -> tuple[FWState, tuple[Tensor, Tensor]]:
        return noise_of_step(fwnkf, state, *inputs)

    def first(state: FWState, inputs: Sequence[Any]) -> tuple[FWState, tuple[Tensor, Tensor]]:
        still, _, no_time = fwnkf.at_rest(prepared, inputs[0])
        return noise_of_step(still, state, *inputs[:3], no_time)

    def noise_of_step(
        moving: FrequencyWeightedNeuralKalmanFilter, state: FWState, *inputs: Any
    ) -> tuple[FWState, tuple[Tensor, Tensor]]:
        conditions = _conditions(moving, prepared, state, *inputs)
        state, _ = moving.advance(prepared, state, *inputs)
        return state, (_diagonal(conditions.Q), _diagonal(dense(conditions.noise)))

    _, (Q, R) = scan(body, state, inputs, first=first if rests_first else None)
    return Q, R


@torch.no_grad()
def nominal_noise(model: Filter) -> tuple[Float[Tensor, " d"], Float[Tensor, " m"]]:
    """The diagonals of ``Q`` and ``R`` of one nominal step with the encoder at its initial state (``h = 0``).

    Without an encoder these are the covariances of all steps; those of a filter with a changing level are at level one.
    """
    fwnkf = _as_fwnkf(model)
    head = fwnkf.head_bias[fwnkf.transition.head_size :].unsqueeze(0)
    Q, noise = fwnkf._noises(fwnkf.prepare(), head, None, None)
    return _diagonal(Q)[0], _diagonal(dense(noise))[0]


class Loop(NamedTuple):
    """The steady-state dynamics of the error and the shaper memory, linearised."""

    matrix: Float[Tensor, "j j"]
    gain: Float[Tensor, "d m"]
    at: Float[Tensor, " n"]
    """The state of the linearisation."""


@torch.no_grad()
def steady_state_loop(model: Filter) -> Loop:
    """The dynamics of ``[e; σ]`` for ``shaping="innovation"`` in the steady state of a noise-free run from the origin.

    For a linear system without an encoder this is exact, with the gain of the Riccati equation; otherwise it is a
    linearisation about one state. Errors grow if the spectral radius exceeds 1. Raises NumericalFailureError if the
    gain does not reach a steady state.
    """
    fwnkf = _with_fixed_level(model)
    if fwnkf.shaper is None or fwnkf.config.gain != "kalman":
        raise ConfigError(
            f"shaping={fwnkf.config.shaping!r} with gain={fwnkf.config.gain!r} has no loop of one gain and a shaper; "
            "it is defined for shaping='innovation' with gain='kalman'"
        )
    prepared, state = fwnkf.prepare(), fwnkf.init(1)
    if fwnkf.preprocess is not None:
        state = state.filter
    no_input = state.mean.new_zeros(1, BLOCK, fwnkf.observation_dim)

    def body(state: FWState, inputs: Sequence[Any]) -> tuple[FWState, tuple[Tensor, ...]]:
        (zeros,) = inputs
        # in the steady state the current measurement that an encoder reads equals the prediction of the last estimate
        conditions = _conditions(fwnkf, prepared, state, zeros, zeros, None, None)
        context = conditions.hidden[-1] if conditions.hidden else None
        predicted, F = fwnkf.transition(state.mean, conditions.gate, context, None, None, None)
        # the measurement equals its prediction: with no innovation the shaper memory stays zero, only the gain changes
        y, weight = fwnkf.observe(predicted), torch.ones_like(zeros)
        state, out = fwnkf.advance(prepared, state, y, weight, None, None)
        _, H = fwnkf.observation.linearize(out.prior_mean)
        K, _, ok = gain(out.prior_cov, H, conditions.noise, weight)
        return state, (F.expand(1, *F.shape[-2:]), H.expand(1, *H.shape[-2:]), K, ok)

    for _ in range(BLOCKS):
        state, (F, H, K, ok) = scan(body, state, (no_input,))
        if not bool(ok.all() & K.isfinite().all()):
            raise NumericalFailureError(
                "the innovation covariance of a noise-free run is not positive definite; increase R, or use float64"
            )
        recent = torch.cat((K.flatten(2), F.flatten(2), H.flatten(2)), -1)[0, BLOCK // 2 :]
        if bool((recent - recent[-1]).abs().max() <= STEADY * recent[-1].abs().max()):
            matrix = loop_matrix(F[0, -1], K[0, -1], H[0, -1], shaper_blocks(fwnkf.shaper(), fwnkf.observation_dim))
            return Loop(matrix, K[0, -1], state.mean[0])
    raise NumericalFailureError(
        f"the gain does not reach a steady state within {BLOCK * BLOCKS} steps of a noise-free run from the origin"
    )


def _as_fwnkf(model: Filter) -> FrequencyWeightedNeuralKalmanFilter:
    if not isinstance(model, FrequencyWeightedNeuralKalmanFilter):
        raise ConfigError(
            f"filter {model.name!r} has no noise covariances that change from step to step; use an FW-NKF: "
            "build('fwnkf', …)"
        )
    if isinstance(model, FrequencyHypotheses):
        raise ConfigError(f"filter {model.name!r} has noise covariances for each hypothesis, not a single one")
    return model


def _with_fixed_level(model: Filter) -> FrequencyWeightedNeuralKalmanFilter:
    if isinstance(model, AdaptiveLevelFilter):
        raise ConfigError(f"filter {model.name!r} scales its covariances by a level; use the same filter as 'fwnkf'")
    return _as_fwnkf(model)


class _Conditions(NamedTuple):
    """The outputs of the encoder in one step: its memory, the head of the transition, and the noise covariances."""

    hidden: Hidden
    gate: Tensor
    Q: Tensor
    noise: Noise


def _conditions(
    model: FrequencyWeightedNeuralKalmanFilter,
    prepared: Prepared,
    state: FWState,
    y: Tensor,
    weight: Tensor,
    u: Tensor | None,
    dt: Tensor | None,
) -> _Conditions:
    hidden, head = model._encode(prepared, state, y, weight, u)
    split = model.transition.head_size
    ratio = None if dt is None else dt / model.config.dt
    return _Conditions(hidden, head[..., :split], *model._noises(prepared, head[..., split:], dt, ratio))


def _diagonal(matrix: Tensor) -> Tensor:
    return torch.diagonal(matrix, dim1=-2, dim2=-1)
