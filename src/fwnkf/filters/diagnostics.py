"""Diagnostics of an FW-NKF: its noise covariances over time, and its error dynamics in the steady state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core.gaussian import dense, gain
from ..core.preprocess import Inputs
from ..core.scan import scan
from ..core.shaped import loop_matrix, shaper_blocks
from ..errors import ConfigError, NumericalFailureError
from ..shapes import Bool, Float
from ..types import Gaussian
from .base import Filter, Prediction, PriorAt
from .fwnkf import FrequencyWeightedNeuralKalmanFilter, FWState
from .inputs import clean

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
    >>> model = fwnkf.FWNKF.paper(fwnkf.systems.LearnedSystem.of(H=torch.eye(1, 2)))
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
        y, weight, u, dt = inputs
        measured = (y, weight) if fwnkf.predicts_from_measurement else None
        return noise_of(fwnkf.predict_state(prepared, state, u, dt, measured), y, weight)

    def first(state: FWState, inputs: Sequence[Any]) -> tuple[FWState, tuple[Tensor, Tensor]]:
        y, weight, u, _ = inputs
        measured = (y, weight) if fwnkf.predicts_from_measurement else None
        return noise_of(fwnkf.hold(prepared, state, u, measured), y, weight)

    def noise_of(ahead: Prediction, y: Tensor, weight: Tensor) -> tuple[FWState, tuple[Tensor, Tensor]]:
        d = fwnkf.layout.tangent_size
        R = _diagonal(dense(fwnkf.measurement_noise_of(prepared, ahead)))
        Q = y.new_zeros(len(y), d) if ahead.Q is None else _diagonal(ahead.Q)[..., :d]
        state, _, _ = fwnkf.update_state(prepared, ahead, y, weight)
        return state, (Q.expand(len(y), -1), R.expand(len(y), -1))

    _, (Q, R) = scan(body, state, inputs, first=first if rests_first else None)
    return Q, R


@torch.no_grad()
def nominal_noise(model: Filter) -> tuple[Float[Tensor, " d"], Float[Tensor, " m"]]:
    """The diagonals of ``Q`` and ``R`` of one nominal step with the encoder at its initial state (``h = 0``).

    Without an encoder these are the covariances of all steps; those of a filter with a changing level are at level one.
    """
    fwnkf = _as_fwnkf(model)
    prepared = fwnkf.prepare()
    if prepared.factor is not None:
        return _diagonal(prepared.nominal.Q * prepared.factor), _diagonal(dense(prepared.R))
    q, noise = fwnkf.noise_scales(prepared, fwnkf.head_bias)
    return _diagonal(prepared.nominal.Q) * q, _diagonal(dense(noise))


class Loop(NamedTuple):
    """The steady-state dynamics of the error and the shaper memory, linearised."""

    matrix: Float[Tensor, "j j"]
    gain: Float[Tensor, "d m"]
    at: Float[Tensor, " n"]
    """The state of the linearisation."""


@torch.no_grad()
def steady_state_loop(model: Filter) -> Loop:
    """The dynamics of ``[e; σ]`` for a filter with ``phi`` in the steady state of a noise-free run from the origin.

    For a linear system without an encoder this is exact, with the gain of the Riccati equation; otherwise it is a
    linearisation about one state. Errors grow if the spectral radius exceeds 1. Raises NumericalFailureError if the
    gain does not reach a steady state.
    """
    fwnkf = _with_fixed_level(model)
    if fwnkf.shaper is None or fwnkf.config.phi is None or fwnkf.config.phi.gain != "kalman":
        raise ConfigError("a loop of one gain and Φ is that of a filter with phi=Phi(gain='kalman')")
    prepared, state = fwnkf.prepare(), fwnkf.init(1)
    if fwnkf.preprocess is not None:
        state = state.filter
    no_input = state.mean.new_zeros(1, BLOCK, fwnkf.observation_dim)

    def body(state: FWState, inputs: Sequence[Any]) -> tuple[FWState, tuple[Tensor, ...]]:
        (zeros,) = inputs
        # in the steady state the current measurement that an encoder reads equals the prediction of the last estimate
        ahead = fwnkf.predict_state(prepared, state, None, None)
        # the measurement equals its prediction: with no innovation the memory of Φ stays zero, only the gain changes
        y, weight = fwnkf.observe(ahead.state.mean), torch.ones_like(zeros)
        noise = fwnkf.measurement_noise_of(prepared, ahead)
        state, out, _ = fwnkf.update_state(prepared, ahead, y, weight)
        _, H = fwnkf.system.linearize_observation(out.prior_mean)
        K, _, ok = gain(out.prior_cov, H, noise, weight)
        F = ahead.F
        assert F is not None
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
    if model.config.hypotheses is not None:
        raise ConfigError(f"filter {model.name!r} has noise covariances for each hypothesis, not a single one")
    return model


def _with_fixed_level(model: Filter) -> FrequencyWeightedNeuralKalmanFilter:
    fwnkf = _as_fwnkf(model)
    if fwnkf.config.level is not None:
        raise ConfigError(f"filter {model.name!r} scales its covariances by a level; use with_parts(level=None)")
    return fwnkf


def _diagonal(matrix: Tensor) -> Tensor:
    return torch.diagonal(matrix, dim1=-2, dim2=-1)
