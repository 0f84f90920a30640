"""The filter of the FW-NKF paper's public code, which is not that of the paper's text."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...core import iir
from ...core.forms import measured_precisely
from ...core.gaussian import FullNoise, condition, joseph, prediction_keeps_digits, propagate
from ...core.smoothing import LinearStep, Measurement
from ...core.system import System
from ...registry import FILTERS, at_least
from ...shapes import Float
from ...types import Gaussian, StepOutput
from ..base import Prediction, adopt, arguments
from ..extended import SystemFilter
from ..networks import CellWeights, GRUStack, Hidden, gru_step
from ..outputs import step_output
from ..parts.locally_linear import LocallyLinearTransition

GATE = 0.1
"""What ``tanh(U) tanh(V)ᵀ`` is multiplied by."""
FLOOR = 1e-5
"""Smallest variance of ``Q_t`` and ``R_t``."""
POLE_RADIUS = 0.999
"""Bound on every pole of ``Φ``, as in :class:`~fwnkf.Phi`."""


@dataclass(frozen=True)
class PublicCodeConfig:
    """The options of :class:`PublicCodeFWNKF`, which describes them."""

    units: int = at_least(1, 256)
    layers: int = at_least(1, 2)
    rank: int = at_least(1, 4)
    q_rank: int = at_least(0, 2)
    r_rank: int = at_least(0, 1)
    order: int = at_least(1, 3)


class PublicCodeState(NamedTuple):
    mean: Float[Tensor, "B n"]
    cov: Float[Tensor, "B d d"]
    memory: Float[Tensor, "B m r"]
    """That of ``Φ``."""
    hidden: Hidden
    """That of the GRU."""
    read: Float[Tensor, " B"]
    """One if the GRU was advanced by a prediction whose measurement has not arrived yet."""


class PreparedPublicCode(NamedTuple):
    """What no step changes."""

    cells: tuple[CellWeights, ...]
    shaper: Float[Tensor, "s s"]


class Heads(NamedTuple):
    """The outputs of the GRU for one step."""

    gate: Float[Tensor, "B g"]
    """``U`` and ``V`` before ``tanh``."""
    offset: Float[Tensor, "B d"]
    q: Float[Tensor, "B d"]
    q_factor: Float[Tensor, "B k"]
    r: Float[Tensor, "B m"]
    r_factor: Float[Tensor, "B l"]


class StableShaper(nn.Module):
    """``Φ`` of a given order for all channels, with as many parameters as coefficients: ``2 · order + 1``.

    A cascade of biquads, with a section of first order at its end where the order is odd. Every stable filter of this
    order with real coefficients and ``b₀ ≠ 0`` is such a cascade, and every value of the parameters is a stable one.
    One section has a gain and the others begin with 1, because only the product of their gains counts. Zeros are the
    identity.

    Args:
        order: of numerator and denominator.
    """

    places: Tensor

    def __init__(self, order: int) -> None:
        super().__init__()
        self.raw = nn.Parameter(torch.zeros(2 * order + 1))
        self.count = (order + 1) // 2
        used = torch.ones(self.count, 5, dtype=torch.bool)  # (α, β, b0 - 1, b1, b2) of iir.sections
        used[1:, 2] = False
        if order % 2:
            used[-1, [1, 4]] = False
        # read with an index, as torch.vmap over parameters allows no writing; the last place is a zero behind the raw
        places = torch.full((self.count, 5), 2 * order + 1)
        places[used] = torch.arange(2 * order + 1)
        self.register_buffer("places", places, persistent=False)

    @property
    def memory_size(self) -> int:
        """Numbers that the cascade remembers for each channel."""
        return 2 * self.count

    def sections(self) -> iir.Sections:
        """The cascade."""
        return iir.sections(nn.functional.pad(self.raw, (0, 1))[self.places], POLE_RADIUS)

    def forward(self) -> Float[Tensor, "s s"]:
        """The matrix that :func:`fwnkf.core.iir.step` applies."""
        return iir.state_space(self.sections())


@FILTERS.register("fwnkf_public_code")
class PublicCodeFWNKF(SystemFilter):
    """The FW-NKF as its authors published it in code, which is not that of the paper's text.

    It is ``models/deep_kf.py`` of eth-siplab/Frequency-weighted-neural-Kalman-filters.
    A GRU reads ``[x̂_{t-1}, y_t]``, and the control if there is one. Linear layers on its output are the whole model of
    a step but the observation: ``x⁻ = A_t x + b_t`` with ``A_t = I + 0.1 tanh(U_t) tanh(V_t)ᵀ``, and ``Q_t`` and
    ``R_t``, each a diagonal (softplus and a floor of 1e-5) plus a factor of low rank times its transpose. The
    innovation passes ``Φ``, which all channels share. The gain is Kalman's, but no gradient goes through the ``P⁻`` in
    it; the covariance is the Joseph form of that gain, which knows nothing of ``Φ``. Of the system only the observation
    is used: its transition, ``Q`` and ``R`` have no effect. Networks work in the units of the data, which nothing
    scales.

    The estimates depend on ``Q_t`` through ``P⁻`` alone, so a loss that reads nothing but estimates has no gradient in
    ``Q_t``: train with a likelihood if the covariance matters.

    Different from that code: ``Φ`` is stable for every value of its parameters. There the feedback coefficients are
    ``tanh`` of the parameters, which bounds coefficients but not poles: ``1 - 0.9 z⁻¹ - 0.9 z⁻² - 0.9 z⁻³`` is within
    reach and grows without bound. A measurement may lack single channels, and is then conditioned on the others exactly
    (there it is present or missing as a whole); the GRU reads for them what the last estimate predicts, and ``Φ`` a
    zero. In a step of another length ``A_t - I``, ``b_t`` and ``Q_t`` are in proportion. On angles and rotations the
    step is that of :class:`~fwnkf.LocallyLinear`.

    Args:
        system: the observation, and the sizes.
        units: of each layer of the GRU.
        layers: of the GRU.
        rank: of ``A_t - I``.
        q_rank, r_rank: of what is added to the diagonals of ``Q_t`` and ``R_t``; 0 for nothing.
        order: of ``Φ``.

    >>> import torch, fwnkf
    >>> system = fwnkf.systems.LearnedSystem.of(H=torch.eye(2, 3))
    >>> model = fwnkf.FWNKF.paper(system, variant="public_code")
    >>> model.run(torch.zeros(4, 10, 2)).mean.shape
    torch.Size([4, 10, 3])
    >>> sum(parameter.numel() for parameter in model.parameters())  # the number in the paper
    607023
    """

    Config = PublicCodeConfig
    predicts_from_measurement = True
    learns_transition = True

    def __init__(
        self,
        system: System,
        *,
        units: int = 256,
        layers: int = 2,
        rank: int = 4,
        q_rank: int = 2,
        r_rank: int = 1,
        order: int = 3,
    ) -> None:
        super().__init__(**arguments(locals()))

    def setup(self, config: PublicCodeConfig, system: System | None, arrays: dict[str, Tensor]) -> None:
        self.system = adopt(self, system)
        d, m = self.layout.tangent_size, self.observation_dim
        self.encoder = GRUStack(self.layout.feature_size + m + self.control_dim, config.units, config.layers)
        self.transition = LocallyLinearTransition(self.layout, config.rank)
        gate = self.transition.head_size - d
        self.head_sizes = [gate, d, d, d * config.q_rank, m, m * config.r_rank]
        self.head = nn.Linear(config.units, sum(self.head_sizes))
        self.shaper = StableShaper(config.order)

    def head_rows(self, name: str) -> slice:
        """The rows of the last layer that are one field of :class:`Heads`.

        Args:
            name: of the field.

        Returns:
            The rows.
        """
        place, ends = Heads._fields.index(name), list(accumulate(self.head_sizes, initial=0))
        return slice(ends[place], ends[place + 1])

    def init_state(self, belief: Gaussian, generator: torch.Generator | None) -> Any:
        mean, batch = belief.mean, len(belief.mean)
        memory = mean.new_zeros(batch, self.observation_dim, self.shaper.memory_size)
        return PublicCodeState(mean, belief.cov, memory, self.encoder.start(mean), mean.new_zeros(batch))

    def prepare(self) -> PreparedPublicCode:
        return PreparedPublicCode(self.encoder.weights(), self.shaper())

    def _read(
        self,
        prepared: PreparedPublicCode,
        state: PublicCodeState,
        u: Tensor | None,
        measured: tuple[Tensor, Tensor] | None,
    ) -> Hidden:
        """The memory of the GRU after it read; for missing channels it reads what the last estimate predicts."""
        expected = self.observe(state.mean)
        inputs = [self.layout.features(state.mean), expected if measured is None else torch.lerp(expected, *measured)]
        if self.control_dim:
            inputs.append(expected.new_zeros(len(expected), self.control_dim) if u is None else u)
        return gru_step(prepared.cells, torch.cat(inputs, -1), state.hidden)

    def heads(self, hidden: Hidden) -> Heads:
        """What the GRU says about a step.

        Args:
            hidden: its memory.

        Returns:
            The outputs of its heads.
        """
        return Heads(*self.head(hidden[-1]).split(self.head_sizes, -1))

    def gain_covariance(self, cov: Float[Tensor, "B d d"]) -> Float[Tensor, "B d d"]:
        """The covariance that the gain is computed from, as a constant.

        Args:
            cov: of the prediction.

        Returns:
            The same numbers, without a gradient.
        """
        return cov.detach()

    def predict_state(
        self,
        prepared: PreparedPublicCode,
        state: PublicCodeState,
        u: Tensor | None,
        dt: Tensor | None,
        measured: tuple[Tensor, Tensor] | None = None,
    ) -> Prediction:
        hidden = self._read(prepared, state, u, measured)
        heads = self.heads(hidden)
        ratio = None if dt is None else dt / self.system.dt
        bounded = GATE**0.5 * torch.tanh(heads.gate)
        mean, F = self.transition(state.mean, torch.cat((bounded, heads.offset), -1), ratio)
        Q = _covariance(heads.q, heads.q_factor)
        Q = Q if ratio is None else Q * ratio[..., None, None]
        cov = propagate(state.cov, F, Q)
        ahead = PublicCodeState(mean, cov, state.memory, hidden, torch.ones_like(state.read))
        R = FullNoise(_covariance(heads.r, heads.r_factor))
        return Prediction(ahead, F, Q, prediction_keeps_digits(state.cov, F, cov), noise=R)

    def hold(
        self,
        prepared: PreparedPublicCode,
        state: PublicCodeState,
        u: Tensor | None,
        measured: tuple[Tensor, Tensor] | None = None,
    ) -> Prediction:
        due = (state.read == 0).unsqueeze(-1)  # unless a prediction has advanced the GRU already
        after = self._read(prepared, state, u, measured)
        hidden = tuple(torch.where(due, new, old) for new, old in zip(after, state.hidden, strict=True))
        return Prediction(state._replace(hidden=hidden))

    def update_state(
        self, prepared: PreparedPublicCode, ahead: Prediction, y: Tensor, weight: Tensor
    ) -> tuple[PublicCodeState, StepOutput, LinearStep]:
        state: PublicCodeState = ahead.state
        noise = ahead.noise
        if noise is None:  # nothing was predicted, or it was before
            heads = self.heads(state.hidden)
            noise = FullNoise(_covariance(heads.r, heads.r_factor))
        predicted, H = self.system.linearize_observation(state.mean)
        innovation = self.innovation(y, predicted, weight)
        shaped, memory = iir.step(prepared.shaper, innovation, state.memory)
        update = condition(self.gain_covariance(state.cov), shaped, H, noise, weight)
        assert update.gain is not None
        # the same numbers as update.cov; the gradient goes through this covariance, but not through that of the gain
        posterior = Gaussian(
            self.layout.boxplus(state.mean, update.correction), joseph(state.cov, update.gain, H, noise)
        )
        precise = ahead.keeps_digits(measured_precisely(update.precise, y, noise, weight))
        prior = Gaussian(state.mean, state.cov)
        out = step_output(prior, posterior, innovation, update.innovation_cov, update.ok, precise, shaped * weight)
        following = PublicCodeState(*posterior, memory, state.hidden, torch.zeros_like(state.read))
        measurement = Measurement(shaped, H, noise, weight, update.ok)
        return following, out, LinearStep(ahead.F, ahead.Q, measurement, update.correction, posterior.mean)


def _covariance(diagonal: Float[Tensor, "B n"], factor: Float[Tensor, "B k"]) -> Float[Tensor, "B n n"]:
    """``diag(softplus + floor) + L Lᵀ``, positive definite for every value."""
    cov = torch.diag_embed(nn.functional.softplus(diagonal) + FLOOR)
    if not factor.shape[-1]:
        return cov
    L = factor.unflatten(-1, (diagonal.shape[-1], -1))
    return cov + L @ L.mT
