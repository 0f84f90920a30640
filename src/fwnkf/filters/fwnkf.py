"""The Frequency-Weighted Neural Kalman Filter.

As the paper writes it (Algorithms 1 to 3): ``shaping="innovation"``, ``transition="locally_linear"``,
``covariance="joseph"``, ``encoder_reads="current"``. The forms beyond the paper sit behind the same class; the reasons
are in ``docs/design/fwnkf.md``.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from ..core import levels as levels_of
from ..core.covariance import Covariance
from ..core.gaussian import DiagonalNoise, FullNoise, Noise, block_diagonal
from ..core.linearize import SecondOrderCorrection, repeated, second_order_correction
from ..core.observation import NetworkObservation, ObservationModel, make_observation
from ..core.shaped import shaper_blocks
from ..core.smoothing import LinearStep
from ..core.system import System, as_layout
from ..errors import ConfigError
from ..registry import FILTERS
from ..shapes import Float
from ..types import Gaussian, Statistics, StepOutput
from .fwnkf_config import FWNKFConfig, infer_options, unused_options
from .fwnkf_state import FWState, Prediction, Prepared
from .fwnkf_updates import ShapedUpdates
from .networks import GRUStack, Hidden, gru_step
from .options import arguments
from .shaping import InnovationShaper, NoiseStates
from .transition import LocallyLinearTransition, ResidualTransition, Transition

FWNKFType = TypeVar("FWNKFType", bound="FrequencyWeightedNeuralKalmanFilter")


@FILTERS.register("fwnkf")
class FrequencyWeightedNeuralKalmanFilter(ShapedUpdates):
    """FW-NKF: an encoder conditions ``A_t, b_t, Q_t, R_t``; a learned spectrum shapes innovation or noise.

    Untrained, it equals the classical filter it extends: residuals start at zero, ``Φ`` as the identity.

    Args:
        system: the equations of motion, to which a residual network is added; None if the transition is learned.
        H: observation ``[m, n]`` for ``observation="given_matrix"``.
        Q: base covariance of the process noise ``[d, d]``, for a filter without a system; by default the identity.
        R: base covariance of the measurement noise ``[m, m]``, likewise.
        state_dim, observation_dim, control_dim: sizes of state, measurement and control; a system or the matrices
            determine them.
        layout: name, kind and size of the parts of the state; that of the system, or Euclidean.
        dt: the nominal step in seconds; that of the system, or 1.
        transition: ``"locally_linear"`` is Algorithm 3 of the paper; ``"residual"`` is a system, or the identity, plus
            a network.
        gate: form of the encoder's part of a locally linear transition.
        rank: of a low-rank gate.
        residual_width: width of the residual network; 0 leaves it out.
        residual_order: 2 lets the residual network read products of state coordinates.
        moments: ``"second_order"`` adds what the transition's curvature does to mean and covariance.
        observation: a given matrix or function, a learned matrix, or a learned network.
        observation_width: width of the observation network.
        shaping: ``"innovation"`` is the paper's ``Φ``; ``"noise"`` are noise states, with exact covariance.
        sections: biquads of ``Φ``, or oscillators of each channel alone.
        modes: oscillators that all channels share, each with a gain and a phase for every channel (noise states only).
        shared_shaper: whether all channels have the same shaping parameters.
        pole_radius: bound on every pole that is learned.
        covariance: ``"augmented"`` is the exact covariance of the paper's ``Φ``, ``"joseph"`` that of the paper.
        gain: with ``"augmented"``: the Kalman gain of white noise, the optimal gain for the shaped innovation, or that
            for innovation and memory together (``"joint"``).
        encoder_reads: the ``"previous"`` measurement, or the ``"current"`` one as in the paper.
        hidden: units in each layer of the GRU encoder; 0 leaves it out.
        layers: number of GRU layers.
        adapt: bound on how far the log-variances of ``Q_t`` and ``R_t`` move from their base, by the encoder or,
            without it, by training.
        diagonal_noise, diagonal_process: whether the base of ``R`` and ``Q`` is diagonal; follows from the matrices or
            the system.
        solve: implementation of the small linear solve, as in :class:`ExtendedKalmanFilter`.
        jump: an innovation beyond this many standard deviations is a jump of what is measured; 0 for no limit.
        track_level: ``"common"`` lets the level of all measurement noise follow the innovations, ``"separate"`` those
            of the white noise and of each oscillator; they need noise states.
        level_memory: seconds in which what was learned of a level falls to ``1/e``.

    >>> import torch, fwnkf
    >>> filter = fwnkf.build("fwnkf", H=torch.eye(2, 3), Q=torch.eye(3), R=torch.eye(2))
    >>> filter.run(torch.zeros(4, 10, 2)).mean.shape
    torch.Size([4, 10, 3])
    """

    Config = FWNKFConfig
    arrays = ("H", "Q", "R")
    system: System | None

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
        shaping: Literal["none", "innovation", "noise"] = "innovation",
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
    ) -> None:
        super().__init__(**arguments(locals()))

    def setup(self, config: FWNKFConfig, system: System | None, arrays: dict[str, Tensor]) -> None:
        self.system = system
        if system is None:
            self.layout = as_layout(config.layout, config.state_dim)
            self.observation_layout = as_layout((), config.observation_dim)
            self.base_Q = Covariance(arrays.get("Q", torch.eye(self.layout.tangent_size)), learn=False)
            self.base_R = Covariance(arrays.get("R", torch.eye(config.observation_dim)), learn=False)
        else:
            self.layout, self.observation_layout = system.layout, system.observation_layout
            if "Q" in arrays or "R" in arrays:
                raise ConfigError("filter fwnkf: Q and R come from the system; leave the arrays out")
        self.control_dim = config.control_dim
        d, m = self.layout.tangent_size, config.observation_dim
        self.transition: Transition
        if config.transition == "locally_linear":
            self.transition = LocallyLinearTransition(self.layout, config.gate, config.rank)
        else:
            self.transition = ResidualTransition(
                self.layout, system, config.hidden, config.residual_width, config.residual_order
            )
        self.observation: ObservationModel = make_observation(
            config.observation, self.layout, m, arrays.get("H"), system, config.observation_width
        )
        self.head_size = self.transition.head_size + d + m
        self.encoder = (
            GRUStack(self.layout.feature_size + m + config.control_dim, config.hidden, config.layers)
            if config.hidden
            else None
        )
        self.head_weight = nn.Parameter(torch.zeros(self.head_size, config.hidden)) if config.hidden else None
        self.head_bias = nn.Parameter(torch.zeros(self.head_size))
        with torch.no_grad():
            self.transition.start_head(self.head_bias)
        self.shaper = (
            InnovationShaper(m, config.sections, config.shared_shaper, config.pole_radius)
            if config.shaping == "innovation"
            else None
        )
        self.noise_states = (
            NoiseStates(m, config.sections, config.shared_shaper, config.pole_radius, config.modes)
            if config.shaping == "noise"
            else None
        )
        if self.noise_states is not None:
            self.noise_states.owner = (self,)

    @classmethod
    def infer_options(cls, options: dict[str, Any], arrays: dict[str, Tensor], system: System | None) -> dict[str, Any]:
        return infer_options(options, arrays, system)

    @classmethod
    def unused_options(cls, config: FWNKFConfig, given: Mapping[str, Any]) -> list[str]:
        return unused_options(config, given)

    # ---- contract -------------------------------------------------------------------------------------------

    def observe(self, x: Tensor) -> Tensor:
        return self.observation.observe(x)

    @torch.no_grad()
    def normalize(self, statistics: Statistics) -> None:
        super().normalize(statistics)
        feature, spread = statistics.feature_mean, statistics.feature_std
        self.transition.normalize(feature, spread, statistics.step)
        if self.encoder is not None:
            self.encoder.normalize(
                torch.cat((feature, statistics.observation_mean, statistics.control_mean)),
                torch.cat((spread, statistics.observation_std, statistics.control_std)),
            )
        if isinstance(self.observation, NetworkObservation):
            self.observation.normalize(statistics)

    def init_state(self, belief: Gaussian, generator: torch.Generator | None) -> FWState:
        mean, cov = belief
        batch, m = mean.shape[0], self.config.observation_dim
        noise = mean.new_zeros(batch, 0 if self.noise_states is None else self.noise_states.size)
        memory = mean.new_zeros(batch, m, 0 if self.shaper is None else self.shaper.memory_size)
        extra = noise.shape[-1]
        if self.config.covariance == "augmented":
            cov = nn.functional.pad(cov, (0, memory[0].numel(), 0, memory[0].numel()))
        elif extra:
            # oscillators have the identity as stationary covariance, and nothing is known of their phase
            cov = block_diagonal(cov, torch.eye(extra).to(cov))
        hidden = () if self.encoder is None else self.encoder.start(mean)
        levels = () if self.config.track_level == "none" else levels_of.start(self._level_shares(cov))
        return FWState(mean, self.form.start(cov), noise, memory, self.observe(mean), hidden, levels)

    def joint_covariance(self, state: FWState) -> Tensor:
        # of the covariance of error and shaper memory the part of the state, as for the linear step below
        d, cov = self.layout.tangent_size, self.form.covariance(state.cov)
        return cov if self.shaper is None else cov[..., :d, :d]

    def prepare(self) -> Prepared:
        if self.system is None:
            Q, R = self.base_Q(), self.base_R()
            noise: Noise = DiagonalNoise(R.diagonal()) if self.config.diagonal_noise else FullNoise(R)
        else:
            Q, noise = self.system.process_noise(None), self.system.measurement_noise()
        variance = noise.variance if isinstance(noise, DiagonalNoise) else noise.cov.diagonal()
        # variances where the noise is diagonal, one where a full matrix is scaled instead
        base_q = Q.diagonal() if self._plain_process else torch.ones_like(Q[..., 0])
        base_r = variance if self.config.diagonal_noise else torch.ones_like(variance)
        shaper = None if self.shaper is None else self.shaper()
        states = None if self.noise_states is None else self.noise_states(variance.sqrt())
        blocks = None
        if shaper is not None and self.config.covariance == "augmented":
            blocks = shaper_blocks(shaper, self.config.observation_dim)
        return Prepared(
            () if self.encoder is None else self.encoder.weights(),
            Q,
            noise,
            torch.cat((base_q, base_r)),
            shaper,
            blocks,
            states,
        )

    def advance_linearized(
        self, prepared: Prepared, state: FWState, y: Tensor, weight: Tensor, u: Tensor | None, dt: Tensor | None
    ) -> tuple[FWState, StepOutput, LinearStep]:
        ratio = None if dt is None else dt / self.config.dt
        hidden, head = self._encode(prepared, state, y, weight, u)
        split = self.transition.head_size
        Q, noise = self._noises(prepared, head[..., split:], dt, ratio)
        residual = self._residual_ratio(ratio)
        mean, F = self.transition(state.mean, head[..., :split], hidden[-1] if hidden else None, u, dt, residual)
        if self.config.moments == "second_order":
            bent = self._second_order(state, hidden, u, dt, residual)
            mean, Q = self.layout.boxplus(mean, bent.shift), Q + bent.cov
        ahead = Prediction(mean, F, Q, *self.observation.linearize(mean), noise, hidden)
        if prepared.oscillators is not None:
            return self._with_noise_states(prepared.oscillators, state, ahead, y, weight, ratio)
        if prepared.blocks is not None:
            return self._with_joint_covariance(prepared.blocks, state, ahead, y, weight)
        return self._plainly(prepared, state, ahead, y, weight)

    @torch.no_grad()
    def set_noise(self, Q: Float[Tensor, "d d"], R: Float[Tensor, "m m"] | None = None) -> None:
        """Set the base values of ``Q`` and ``R`` of a filter without a system.

        Args:
            Q: covariance of the process noise.
            R: covariance of the measurement noise; None keeps it.

        Raises:
            ConfigError: the filter has a system, which has its own.
        """
        if self.system is not None:
            raise ConfigError("filter fwnkf: Q and R come from the system; change them there")
        self.base_Q.assign(Q)
        if R is not None:
            self.base_R.assign(R)

    def at_rest(self, prepared: Prepared, y: Tensor) -> tuple[Any, Prepared, Tensor | None]:
        still, prepared, dt = super().at_rest(prepared, y)
        if isinstance(self.transition, ResidualTransition):
            still._modules["transition"] = self.transition.on(still.system)
        return still, prepared, dt

    @property
    def nominal_step(self) -> float:
        return float(self.config.dt)

    # ---- parts of a step ------------------------------------------------------------------------------------

    @property
    def _plain_process(self) -> bool:
        return bool(self.config.diagonal_process) and self.system is None

    def _encode(
        self, prepared: Prepared, state: FWState, y: Tensor, weight: Tensor, u: Tensor | None
    ) -> tuple[Hidden, Tensor]:
        """Advance the encoder and read the head; without an encoder the head is its bias."""
        if self.head_weight is None:
            return (), self.head_bias.expand(y.shape[0], -1)
        seen = state.seen
        if self.config.encoder_reads == "current":
            # the paper's order: z_t = [x̂_{t-1}, y_t]; missing channels read what the last estimate predicts
            seen = torch.lerp(self.observe(state.mean), y, weight)
        inputs = [self.layout.features(state.mean), seen]
        if self.control_dim:
            inputs.append(seen.new_zeros(seen.shape[0], self.control_dim) if u is None else u)
        hidden = gru_step(prepared.cells, torch.cat(inputs, -1), state.hidden)
        return hidden, nn.functional.linear(hidden[-1], self.head_weight, self.head_bias)

    def _residual_ratio(self, ratio: Tensor | None) -> Tensor | None:
        """Factor of what is learned about the transition, in units of the nominal step."""
        return ratio

    def _noises(
        self, prepared: Prepared, head: Tensor, dt: Tensor | None, ratio: Tensor | None
    ) -> tuple[Tensor, Noise]:
        """``Q_t`` and ``R_t``: the base values with variances scaled by ``exp`` of a bounded head."""
        d = self.layout.tangent_size
        adapt = self.config.adapt
        # a product, not a sum of logarithms: at the start the factor is exactly one and the base keeps every bit
        scale = prepared.base * torch.exp(adapt * torch.tanh(head))
        q, r = scale[..., :d], scale[..., d:]
        if self._plain_process:
            Q = torch.diag_embed(q if ratio is None else q * ratio.unsqueeze(-1))
        else:
            base = prepared.Q
            if ratio is not None:
                base = base * ratio[..., None, None] if self.system is None else self.system.process_noise(dt)
            Q = base * _outer_root(q)
        if isinstance(prepared.R, DiagonalNoise):
            return Q, DiagonalNoise(r)
        return Q, FullNoise(prepared.R.cov * _outer_root(r))

    def _second_order(
        self, state: FWState, hidden: Hidden, u: Tensor | None, dt: Tensor | None, ratio: Tensor | None
    ) -> SecondOrderCorrection:
        """What the transition's curvature does to the belief about the state."""
        assert isinstance(self.transition, ResidualTransition)
        d, batch, move = self.layout.tangent_size, state.mean.shape[0], self.transition.move
        context = hidden[-1] if hidden else None

        def moved(points: Tensor) -> Tensor:
            count = points.shape[0] // batch
            return move(points, *(repeated(item, count) for item in (context, u, dt, ratio)))

        cov = self.form.covariance(state.cov)[..., :d, :d]
        return second_order_correction(moved, state.mean, cov, self.layout, self.layout)


def with_tracked_level(
    model: FWNKFType, track_level: Literal["common", "separate"] = "common", *, level_memory: float = 5.0
) -> FWNKFType:
    """A copy of a filter with noise states, whose levels follow the innovations; nothing is trained.

    Args:
        model: the filter, with ``shaping="noise"``.
        track_level: one level for all measurement noise, or one for the white noise and one for each oscillator.
        level_memory: seconds in which what was learned of a level falls to ``1/e``.

    Returns:
        The copy.

    >>> import torch, fwnkf
    >>> eye = {"H": torch.eye(1, 2), "Q": torch.eye(2), "R": torch.eye(1)}
    >>> tracked = with_tracked_level(fwnkf.build("fwnkf", **eye, shaping="noise"), level_memory=2.0)
    >>> tracked.run(torch.zeros(4, 10, 1)).state.levels.log.shape
    torch.Size([4, 1])
    """
    tracked = copy.deepcopy(model)
    tracked.config = dataclasses.replace(model.config, track_level=track_level, level_memory=level_memory)
    return tracked


def _outer_root(scale: Tensor) -> Tensor:
    """``√s √sᵀ``: scales variances by ``s`` and keeps correlations."""
    root = scale.sqrt()
    return root.unsqueeze(-1) * root.unsqueeze(-2)
