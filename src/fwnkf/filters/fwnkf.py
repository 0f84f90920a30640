"""The Frequency-Weighted Neural Kalman Filter, composed of parts.

``FWNKF(system)`` is the extended Kalman filter. Everything else is added to it: coloured noise as states of the filter,
a level of the noise that is tracked, an encoder and a residual that are learned, and ``Φ`` of the paper
(:meth:`FrequencyWeightedNeuralKalmanFilter.paper`). Reasons are in ``docs/design/fwnkf.md``.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, overload

import torch
from torch import Tensor, nn

from ..core import iir
from ..core import levels as scored
from ..core.forms import CovarianceForm, covariance_form, measured_precisely, points_resolved
from ..core.gaussian import (
    DiagonalNoise,
    FullNoise,
    Noise,
    Update,
    block_diagonal,
    condition,
    dense,
    matvec,
    prediction_keeps_digits,
)
from ..core.jumps import jump_noise
from ..core.levels import Levels
from ..core.linear_run import Continuous
from ..core.linearize import repeated, second_order_correction
from ..core.motion import Nominal
from ..core.networks import JacobianNetwork, add_residual
from ..core.preprocess import Inputs
from ..core.shaped import Shaper, condition_shaped, shaper_blocks
from ..core.smoothing import LinearStep, Measurement, StatedCovariance
from ..core.system import System
from ..core.trajectory import Trajectory
from ..errors import ConfigError, shown
from ..registry import FILTERS, at_least
from ..shapes import Float
from ..types import Gaussian, Statistics, Status, StepOutput
from . import engines
from .base import Filter, LinearModel, Prediction, adopt, arguments, stated_model
from .baselines.fwnkf_public_code import PublicCodeFWNKF
from .engines import Engine
from .networks import CellWeights, GRUStack
from .outputs import step_output
from .parts import correction as correcting
from .parts import encoder as encoding
from .parts import hypotheses as bank
from .parts import level as discounting
from .parts.correction import Correction, InnovationBank, PreparedCorrection
from .parts.encoder import GRU, EncoderState
from .parts.hypotheses import Hypotheses, HypothesesState
from .parts.level import Level
from .parts.lines import Lines, LineStates, PreparedLines
from .parts.locally_linear import LocallyLinear, LocallyLinearTransition
from .parts.part import NoisePart, NoiseStates
from .parts.phi import InnovationShaper, Phi
from .parts.residual import MLP
from .parts.stacked import StackedNoise

ADAPT = 6.0
"""Bound on how far the log-variances of ``Q_t`` and ``R_t`` move from their base."""


@dataclass(frozen=True)
class FWNKFConfig:
    """The parts of a :class:`FrequencyWeightedNeuralKalmanFilter`, which describes them."""

    noise: tuple[NoisePart, ...] = ()
    level: Level | None = None
    encoder: GRU | None = None
    residual: MLP | None = None
    transition: LocallyLinear | None = None
    phi: Phi | None = None
    hypotheses: Hypotheses | None = None
    correction: Correction | None = None
    moments: Literal["linear", "second_order"] = "linear"
    jump: float = at_least(0.0, 0.0)
    solve: Literal["auto", "cholesky", "unrolled", "sequential", "square_root"] = "auto"

    def __post_init__(self) -> None:
        tracked = self.level is not None and self.level.of != "all"
        rooted, several = self.solve == "square_root", self.hypotheses
        faults = [
            (self.phi and self.noise, "phi and noise both model coloured noise: use one of them"),
            (self.phi and self.phi.covariance == "augmented" and rooted, "phi with its exact covariance has no form "
             "for solve='square_root'; set covariance='joseph', or another solve"),
            (self.jump and (self.phi or self.noise), "jump reads innovations of white noise: leave noise and phi out"),
            (tracked and (self.phi or rooted), "a level of the noise needs the Kalman gain and a dense covariance: "
             "leave phi out, and use another solve than 'square_root'"),
            (self.transition and self.residual, "residual adds to the transition of the system, which transition "
             "replaces: use one of them"),
            (self.transition and self.moments != "linear", "moments='second_order' needs a nonlinear transition, and "
             "that of Algorithm 3 is linear: leave one of them out"),
            (several and not (len(self.noise) == 1 and isinstance(self.noise[0], Lines)), "hypotheses are about the "
             "frequencies of lines: give noise=Lines(...) and no other noise"),
            (several and any(part.sensor is not None for part in self.noise), "hypotheses are about lines of all "
             "channels: leave the sensor out"),
            (several and several.dwell is not None and rooted, "dwell mixes covariances, so solve cannot be "
             "'square_root'"),
            (several and several.dwell is not None and tracked, "hypotheses with dwell and a tracked level both follow "
             "changes of the level: use one of them"),
            (several and self.level is not None and not tracked, "hypotheses have no level of all covariances: use "
             "Level(of='noise')"),
            (self.correction and (self.phi or several), "correction reads the innovations of one filter with its "
             "Kalman gain: leave phi and hypotheses out"),
        ]  # fmt: skip
        found = [f"filter fwnkf: {sentence}" for wrong, sentence in faults if wrong]
        if found:
            raise ConfigError("\n".join(found))


class FWState(NamedTuple):
    """Everything the next step needs; what a filter does not have is empty."""

    mean: Float[Tensor, "B n"]
    cov: Float[Tensor, "B j j"]
    """Over the state, ``[state; noise states]``, or ``[state error; memory of Φ]``; factors with ``"square_root"``."""
    noise: Float[Tensor, "B s"]
    memory: Float[Tensor, "B m r"]
    """That of ``Φ``."""
    encoder: EncoderState | tuple[()] = ()
    levels: Levels | tuple[Tensor, Tensor] | tuple[()] = ()
    """Those of the noise; or that of all covariances, and the seconds since it last moved."""
    correction: Float[Tensor, "B k 2 m"] | tuple[()] = ()
    """The oscillators that the innovations drive."""


class Prepared(NamedTuple):
    """What no step changes, from raw parameters once per run; with hypotheses some tensors have one row for each."""

    cells: tuple[CellWeights, ...]
    nominal: Nominal
    R: Noise
    """Without an encoder that of every step; else what the encoder scales."""
    base: Float[Tensor, "*K e"]
    """Factors of the variances of ``Q`` and ``R`` before what the encoder says."""
    factor: Float[Tensor, "*K d d"] | None
    """What multiplies ``Q`` in every step; None where the encoder says it."""
    noise: Any
    """Of the noise states."""
    shaper: Tensor | None
    blocks: Shaper | None
    learned: Float[Tensor, " K"] | None = None
    """Zero for hypotheses without anything learned."""
    owners: Float[Tensor, "L s"] | None = None
    """One where a noise state has a level, if levels are tracked."""
    correction: PreparedCorrection | None = None


@FILTERS.register("fwnkf")
class FrequencyWeightedNeuralKalmanFilter(Filter):
    """FW-NKF: the extended Kalman filter, and the parts that are added to it.

    Args:
        system: motion, sensors and white noise. :meth:`fwnkf.systems.LearnedSystem.of` is a system without equations.
        noise: coloured noise as states of the filter, with exact gain and covariance: one part
            (:class:`~fwnkf.Lines`, :class:`~fwnkf.Modes`, :class:`~fwnkf.Drift`, :class:`~fwnkf.Orders`), several, or
            a mapping of sensors to parts.
        level: a level of the noise that follows the innovations.
        encoder: a network that reads estimates and measurements and adapts ``Q_t``, ``R_t`` and learned transitions.
        residual: a network that is added to the transition of the system.
        transition: the locally linear transition of Algorithm 3, in place of that of the system.
        phi: ``Φ``, the paper's filter of the innovation.
        hypotheses: copies with other frequencies or levels of the lines, weighed by their likelihood.
        correction: what the innovations of the last steps say about the errors of the estimates, taken off.
        moments: ``"second_order"`` adds what the transition's curvature does to mean and covariance.
        jump: an innovation beyond this many standard deviations is a jump of what is measured; 0 for no limit.
        solve: implementation of the small linear solve, as in :class:`ExtendedKalmanFilter`.

    >>> import torch, fwnkf
    >>> one = torch.eye(1)
    >>> system = fwnkf.LinearSystem.of(F=one, H=one, Q=one, R=one, dt=0.01)
    >>> y = torch.randn(4, 10, 1)
    >>> torch.equal(fwnkf.FWNKF(system).run(y).mean, fwnkf.EKF(system).run(y).mean)
    True
    >>> vibrating = fwnkf.FWNKF(system, noise=fwnkf.Lines(hz=23.0, std=2.0), level=fwnkf.Level(seconds=1.0))
    >>> vibrating.run(y).mean.shape
    torch.Size([4, 10, 1])
    """

    Config = FWNKFConfig
    implements = ("square_root", "second_order")
    learns_transition = True
    system: System

    def __init__(
        self,
        system: System,
        *,
        noise: NoisePart | Sequence[NoisePart] | Mapping[str, NoisePart | Sequence[NoisePart]] | None = None,
        level: Level | None = None,
        encoder: GRU | None = None,
        residual: MLP | None = None,
        transition: LocallyLinear | None = None,
        phi: Phi | None = None,
        hypotheses: Hypotheses | None = None,
        correction: Correction | None = None,
        moments: Literal["linear", "second_order"] = "linear",
        jump: float = 0.0,
        solve: Literal["auto", "cholesky", "unrolled", "sequential", "square_root"] = "auto",
    ) -> None:
        super().__init__(**arguments(locals()))

    @overload
    @classmethod
    def paper(
        cls,
        system: System,
        *,
        variant: Literal["paper"] = "paper",
        units: int | None = None,
        rank: int | None = None,
        sections: int = 1,
    ) -> FrequencyWeightedNeuralKalmanFilter: ...

    @overload
    @classmethod
    def paper(
        cls,
        system: System,
        *,
        variant: Literal["public_code"],
        units: int | None = None,
        rank: int | None = None,
    ) -> PublicCodeFWNKF: ...

    @classmethod
    def paper(
        cls,
        system: System,
        *,
        variant: Literal["paper", "public_code"] = "paper",
        units: int | None = None,
        rank: int | None = None,
        sections: int = 1,
    ) -> FrequencyWeightedNeuralKalmanFilter | PublicCodeFWNKF:
        """The filter as Algorithms 1 to 3 of the paper write it, or as its authors' public code has it.

        Args:
            system: observation and base noise; its transition is replaced by a learned one.
            variant: ``"public_code"`` is the filter ``fwnkf_public_code``, which has more options of its own.
            units: of the GRU encoder; by default 64, in the public code 256 (and two layers).
            rank: of the gate; by default the size of the state, in the public code 4.
            sections: biquads of ``Φ``; that of the public code has order 3.

        Returns:
            The filter.

        >>> import torch, fwnkf
        >>> system = fwnkf.systems.LearnedSystem.of(H=torch.eye(2, 3))
        >>> fwnkf.FWNKF.paper(system).run(torch.zeros(4, 10, 2)).mean.shape
        torch.Size([4, 10, 3])
        >>> fwnkf.FWNKF.paper(system, variant="public_code", units=64).name
        'fwnkf_public_code'
        """
        if variant == "public_code":
            if sections != 1:
                raise ConfigError(
                    f"FWNKF.paper: sections = {sections} belongs to variant='paper'; the Φ of the public code has an "
                    "order: fwnkf.build('fwnkf_public_code', system=…, order=…)"
                )
            sizes = {"units": units, "rank": rank}
            return PublicCodeFWNKF(system, **{name: size for name, size in sizes.items() if size is not None})
        if variant != "paper":
            raise ConfigError(f"FWNKF.paper: variant = {shown(variant)}: wanted 'paper' or 'public_code'")
        return cls(
            system,
            encoder=GRU(64 if units is None else units, reads="current"),
            transition=LocallyLinear(system.layout.tangent_size if rank is None else rank),
            phi=Phi(sections),
        )

    @classmethod
    def infer_options(cls, options: dict[str, Any], arrays: dict[str, Tensor], system: System | None) -> dict[str, Any]:
        return {**options, "noise": _listed(options.get("noise", ()))}

    def setup(self, config: FWNKFConfig, system: System | None, arrays: dict[str, Tensor]) -> None:
        self.system = adopt(self, system)
        d, m = self.layout.tangent_size, self.observation_dim
        units = 0 if config.encoder is None else config.encoder.units
        self.encoder: GRUStack | None = None
        self.transition: LocallyLinearTransition | None = None
        self.residual: JacobianNetwork | None = None
        if config.transition is not None:
            self.transition = LocallyLinearTransition(self.layout, config.transition.rank)
        if config.residual is not None:
            inputs, width = self.layout.feature_size, config.residual.width
            self.residual = JacobianNetwork(inputs, units, width, d, config.residual.order)
        self.split = 0 if self.transition is None else self.transition.head_size
        if config.encoder is not None:
            inputs = self.layout.feature_size + m + self.system.control_dim
            self.encoder = GRUStack(inputs, units, config.encoder.layers)
        head = self.split + d + m
        self.head_weight = nn.Parameter(torch.zeros(head, units)) if units else None
        self.head_bias = nn.Parameter(torch.zeros(head))
        if self.transition is not None:
            with torch.no_grad():
                self.transition.start_head(self.head_bias)
        self.shaper = None if config.phi is None else InnovationShaper(config.phi, m)
        self.noise_states = self._build_noise(config)
        self.correction = None if config.correction is None else InnovationBank(config.correction, self.system)
        self.control_dim = self.system.control_dim + (0 if self.noise_states is None else self.noise_states.controls)
        self.takes_missing_controls = self.control_dim > self.system.control_dim  # a rotor without telemetry
        self.predicts_from_measurement = config.encoder is not None and config.encoder.reads == "current"
        if config.level is not None and config.level.of == "all":
            self.freedom = discounting.freedom(config.level, self.system.dt, m)

    def _build_noise(self, config: FWNKFConfig) -> NoiseStates | None:
        sensors, everything = self.system.sensor_channels, slice(0, self.observation_dim)
        unknown = sorted({part.sensor for part in config.noise if part.sensor is not None} - set(sensors))
        if unknown:
            raise ConfigError(
                f"filter fwnkf: noise of sensor {', '.join(map(repr, unknown))}; the system has: {', '.join(sensors)}"
            )
        if config.hypotheses is not None:
            (lines,) = config.noise
            assert isinstance(lines, Lines)
            return LineStates(lines, everything, self.system, config.hypotheses.frequencies)
        parts = [
            part.build(everything if part.sensor is None else sensors[part.sensor], self.system)
            for part in config.noise
        ]
        if len(parts) == 1 and parts[0].width == self.observation_dim:
            return parts[0]
        return StackedNoise(parts, everything, self.system) if parts else None

    def noise_parts(self) -> list[NoiseStates]:
        """The modules of all parts of coloured noise, in their order.

        Returns:
            None, one or several.
        """
        if self.noise_states is None:
            return []
        return list(self.noise_states) if isinstance(self.noise_states, StackedNoise) else [self.noise_states]

    def with_parts(self, **parts: Any) -> FrequencyWeightedNeuralKalmanFilter:
        """A copy with other parts, which keeps what was trained of all parts that stay.

        Args:
            **parts: arguments of the constructor that change, such as ``level=Level()`` or ``solve="square_root"``.

        Returns:
            The copy.

        >>> import torch, fwnkf
        >>> one = torch.eye(1)
        >>> filter = fwnkf.FWNKF(fwnkf.LinearSystem.of(F=one, H=one, Q=one, R=one), noise=fwnkf.Lines())
        >>> filter.with_parts(level=fwnkf.Level(seconds=9.0)).config.level.seconds
        9.0
        """
        given = {field.name: getattr(self.config, field.name) for field in dataclasses.fields(self.config)}
        config, _ = self.parse(self.system, given | parts)
        changed = type(self).from_config(config, copy.deepcopy(self.system)).to(self._like())
        before, own = self.state_dict(), changed.state_dict()
        kept = {name: before[name] for name, value in own.items() if name in before}
        # one set of frequencies has no axis without hypotheses
        fitting = {
            name: value.reshape(own[name].shape) for name, value in kept.items() if value.numel() == own[name].numel()
        }
        changed.load_state_dict(own | fitting)
        changed.preprocess = copy.deepcopy(self.preprocess)
        changed.calibrate_covariance(self.covariance_scale)
        return changed.train(self.training)

    # ---- contract -------------------------------------------------------------------------------------------

    @property
    def form(self) -> CovarianceForm:
        """How the covariance is carried from step to step."""
        return covariance_form(self.config.solve)

    @property
    def smooths(self) -> bool:  # type: ignore[override]
        """Not where hypotheses interact, speeds of rotors are measured beside ``y``, or estimates are corrected."""
        interacting = self.config.hypotheses is not None and self.config.hypotheses.dwell is not None
        return not interacting and self.control_dim == self.system.control_dim and self.correction is None

    def _not_smoothed(self) -> str:
        if self.config.hypotheses is not None:
            return f"filter {self.name!r} cannot be smoothed with dwell: its hypotheses interact"
        if self.correction is not None:
            return (
                f"filter {self.name!r} cannot be smoothed with a correction, which follows from no model of the state; "
                "smooth filter.with_parts(correction=None)"
            )
        return f"filter {self.name!r} cannot be smoothed with orders: speeds of rotors are measured beside y"

    def observe(self, x: Tensor) -> Tensor:
        return self.system.observe(x)

    @torch.no_grad()
    def normalize(self, statistics: Statistics) -> None:
        super().normalize(statistics)
        feature, spread = statistics.feature_mean, statistics.feature_std
        if self.transition is not None:
            self.transition.normalize(spread, statistics.step)
        if self.residual is not None:
            self.residual.normalize(feature, spread, self.system.residual_step(statistics))
        if self.encoder is not None:
            self.encoder.normalize(
                torch.cat((feature, statistics.observation_mean, statistics.control_mean)),
                torch.cat((spread, statistics.observation_std, statistics.control_std)),
            )

    def init_state(self, belief: Gaussian, generator: torch.Generator | None) -> Any:
        mean, cov = belief
        batch, m, hypotheses = len(mean), self.observation_dim, self.config.hypotheses
        noise = mean.new_zeros(batch, 0)
        memory = mean.new_zeros(batch, m, 0 if self.shaper is None else self.shaper.memory_size)
        if self.noise_states is not None:
            first, variance = self.noise_states.begin(mean)
            noise, cov = first.expand(batch, -1).clone(), block_diagonal(cov, variance.diag())
        elif self.config.phi is not None and self.config.phi.covariance == "augmented":
            cov = nn.functional.pad(cov, (0, memory[0].numel(), 0, memory[0].numel()))
        encoder = () if self.encoder is None else encoding.start(self.encoder, self.observe(mean))
        oscillating = () if self.correction is None else self.correction.begin(batch, mean)
        state = FWState(mean, self.form.start(cov), noise, memory, encoder, self._start_levels(cov), oscillating)
        if hypotheses is None:
            return state
        members: FWState = bank.each(state, hypotheses.count)
        known, d = torch.ones_like(cov[:1]).repeat(hypotheses.count, 1, 1), self.layout.tangent_size
        known[:, d:, d:] = hypotheses.power(known)[:, None, None]
        dense_cov = self.form.covariance(members.cov) * known.repeat(batch, 1, 1)
        members = members._replace(cov=self.form.start(dense_cov), levels=self._start_levels(dense_cov))
        weight = hypotheses.prior(mean).log().expand(batch, -1).clone()
        return HypothesesState(bank.apart(members, hypotheses.count), weight)

    def joint_covariance(self, state: Any) -> Tensor:
        if self.config.hypotheses is not None:
            return self.form.covariance(bank.flat(state.members).cov)
        # of the covariance of error and memory of Φ the part of the state, as for the linear step below
        d, cov = self.layout.tangent_size, self.form.covariance(state.cov)
        cov = cov if self.shaper is None else cov[..., :d, :d]
        return cov * state.levels[0][:, None, None] if self._discounts else cov

    def prepare(self) -> Prepared:
        nominal, noise, hypotheses = self.system.nominal(), self.system.measurement_noise(), self.config.hypotheses
        d, m = self.layout.tangent_size, self.observation_dim
        states = None
        if self.noise_states is not None:
            states = self.noise_states.prepare(dense(noise).diagonal().sqrt())
        shaper = None if self.shaper is None else self.shaper()
        blocks = None
        if shaper is not None and self.config.phi is not None and self.config.phi.covariance == "augmented":
            blocks = shaper_blocks(shaper, m)
        base, learned = nominal.Q.new_ones(d + m), None
        if hypotheses is not None:
            base = base.repeat(hypotheses.count, 1)
            base[:, d:] = hypotheses.level(base).unsqueeze(-1)
            learned = hypotheses.learned(base)
            assert isinstance(states, PreparedLines)
            frequency = hypotheses.each_frequency(states.frequency)
            states = states._replace(frequency=frequency, power=hypotheses.power(base))
        cells = () if self.encoder is None else self.encoder.weights()
        owners = self._owners(base) if self.config.level is not None and not self._discounts else None
        correction = None if self.correction is None else self.correction.prepare()
        prepared = Prepared(cells, nominal, noise, base, None, states, shaper, blocks, learned, owners, correction)
        if self.encoder is not None:
            return prepared
        head = self._head(prepared, (), 1 if learned is None else len(learned)).squeeze(0)
        q, noise = self.noise_scales(prepared, head)
        return prepared._replace(factor=_outer_root(q), R=noise)

    def predict_state(
        self,
        prepared: Prepared,
        state: Any,
        u: Tensor | None,
        dt: Tensor | None,
        measured: tuple[Tensor, Tensor] | None = None,
    ) -> Prediction:
        hypotheses = self.config.hypotheses
        if hypotheses is None:
            return self._predict(prepared, state, u, dt, measured)
        step = torch.full_like(state.log_weight[:, 0], self.system.dt) if dt is None else dt
        state = bank.mixed(hypotheses, self.layout, state, step)
        rows, each = self._rows(prepared, state), hypotheses.count
        ahead = self._predict(rows, bank.flat(state.members), *bank.each((u, dt, measured), each))
        return ahead._replace(state=HypothesesState(bank.apart(ahead.state, each), state.log_weight))

    def hold(
        self, prepared: Prepared, state: Any, u: Tensor | None, measured: tuple[Tensor, Tensor] | None = None
    ) -> Prediction:
        hypotheses = self.config.hypotheses
        if hypotheses is None:
            return Prediction(self._hold(prepared, state, u, measured))
        if self.encoder is None:
            return Prediction(state)
        rows, each = self._rows(prepared, state), hypotheses.count
        members = self._hold(rows, bank.flat(state.members), *bank.each((u, measured), each))
        return Prediction(state._replace(members=bank.apart(members, each)))

    def update_state(
        self, prepared: Prepared, ahead: Prediction, y: Tensor, weight: Tensor
    ) -> tuple[Any, StepOutput, LinearStep]:
        hypotheses, state = self.config.hypotheses, ahead.state
        if hypotheses is None:
            return self._update(prepared, ahead, y, weight)
        rows, each = self._rows(prepared, state), hypotheses.count
        ys, weights = bank.each((y, weight), each)
        following, out, linear = self._update(rows, ahead._replace(state=bank.flat(state.members)), ys, weights)
        log_weight, out = bank.weighed((self.layout, self.observation_layout), state.log_weight, out, weights)
        state = HypothesesState(bank.apart(following, each), log_weight)
        return state, out, linear._replace(log_weight=log_weight)

    def linear_model(self, prepared: Prepared | None = None, dt: Tensor | None = None) -> LinearModel:
        config, states = self.config, self.noise_states
        learned = config.encoder or config.residual or config.transition or config.phi or config.hypotheses
        changing = (
            config.level
            or config.correction
            or config.jump
            or config.moments != "linear"
            or not (states is None or states.linear)
        )
        if learned or changing:
            return LinearModel("state_dependent")
        prepared = self.prepare() if prepared is None else prepared
        model = stated_model(self.system, prepared.R, dt)
        _, F, B, H, Q, _, continuous = model
        if F is None or B is None or H is None or Q is None:
            return model
        assert prepared.factor is not None
        Q = Q * prepared.factor
        if states is not None:
            ratio = None if dt is None else (dt / self.system.dt).reshape(-1)
            zero = F.new_zeros(1 if ratio is None else len(ratio), states.size)
            _, A, drive = states.move(prepared.noise, zero, None, ratio)
            A, drive = (item if dt is None else item.reshape(*dt.shape, *item.shape[-2:]) for item in (A, drive))
            F, Q = block_diagonal(F, A), block_diagonal(Q, drive)
            B = nn.functional.pad(B, (0, 0, 0, states.size))
            H = torch.cat((H, prepared.noise.C), -1)
        if continuous is not None:
            continuous = self._in_continuous_time(prepared, continuous)
        return model._replace(F=F, B=B, H=H, Q=Q, continuous=continuous)

    def _in_continuous_time(self, prepared: Prepared, motion: Continuous) -> Continuous | None:
        """State and noise states together; None where a part of the noise has no such form."""
        assert prepared.factor is not None
        motion = motion._replace(factor=prepared.factor)
        if self.noise_states is None:
            return motion
        own = self.noise_states.continuous(prepared.noise)
        if own is None:
            return None
        size = self.noise_states.size
        return Continuous(
            block_diagonal(motion.A, own[0]),
            nn.functional.pad(motion.B, (0, 0, 0, size)),
            block_diagonal(motion.density, own[1]),
            nn.functional.pad(prepared.factor - 1, (0, size, 0, size)) + 1,
        )

    def joint_belief(self, state: Any) -> Gaussian:
        mean = state.mean if self.noise_states is None else torch.cat((state.mean, state.noise), -1)
        return Gaussian(mean, self.joint_covariance(state))

    def with_joint_belief(self, state: Any, belief: Gaussian) -> Any:
        mean, noise = belief.mean.tensor_split([self.layout.size], -1)
        return state._replace(mean=mean, noise=noise, cov=self.form.start(belief.cov))

    # ---- prediction -----------------------------------------------------------------------------------------

    def _predict(
        self,
        prepared: Prepared,
        state: FWState,
        u: Tensor | None,
        dt: Tensor | None,
        measured: tuple[Tensor, Tensor] | None,
    ) -> Prediction:
        ratio = None if dt is None else dt / self.system.dt
        own, speeds = self._controls(u)
        if speeds is not None:
            state = self._heard(state, speeds)
        encoder = self._read(prepared, state, own, measured) if state.encoder else ()
        mean, F, Q, R, drawn = self._moved(prepared, state, encoder, own, dt, ratio)
        noise, levels, d = state.noise, state.levels, self.layout.tangent_size
        if self.noise_states is not None:
            variance = None
            if self.noise_states.reads_variance:
                variance = torch.diagonal(self.form.covariance(state.cov), dim1=-2, dim2=-1)[..., d:]
            noise, A, drive = self.noise_states.move(prepared.noise, noise, variance, ratio)
            if isinstance(levels, Levels):
                # one where no level scales a state
                owned = prepared.owners
                assert owned is not None
                drive = drive * (levels.log.exp() @ owned + (1 - owned.sum(0))).unsqueeze(-1)
            F, Q = block_diagonal(F, A), block_diagonal(Q, drive)
        elif prepared.blocks is not None:
            # the memory of Φ waits for the innovation
            still = torch.eye(state.cov.shape[-1] - d, dtype=F.dtype, device=F.device)
            F, Q = block_diagonal(F, still), block_diagonal(Q, torch.zeros_like(still))
        if levels:
            levels = self._pass_time(prepared.owners, levels, F, Q, dt)
        cov = self.form.propagate(state.cov, F, Q)
        if prepared.blocks is None:
            precise = self.form.predicts_precisely(state.cov, F, cov)
        else:
            F, Q = F[..., :d, :d], Q[..., :d, :d]
            precise = prediction_keeps_digits(state.cov[..., :d, :d], F, cov[..., :d, :d])
        oscillating = state.correction
        if prepared.correction is not None:
            assert isinstance(oscillating, Tensor)
            oscillating = correcting.moved(prepared.correction, oscillating, ratio)
        state = FWState(mean, cov, noise, state.memory, encoder, levels, oscillating)
        return Prediction(state, F, Q, precise, drawn=drawn, noise=R)

    def _controls(self, u: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """The control of the system, and that of noise states."""
        size = self.system.control_dim
        if u is None or self.control_dim == size:
            return u, None
        return (u[..., :size] if size else None), u[..., size:]

    def _heard(self, state: FWState, control: Tensor) -> FWState:
        """The state conditioned on what the control says about noise states, such as the speeds of rotors."""
        assert self.noise_states is not None
        d, cov = self.layout.tangent_size, self.form.covariance(state.cov)
        variance = torch.diagonal(cov, dim1=-2, dim2=-1)[..., d:]
        measured = self.noise_states.own_measurement(state.noise, variance, control)
        assert measured is not None
        H = nn.functional.pad(measured.H, (d, 0))
        update = condition(cov, measured.innovation, H, DiagonalNoise(measured.variance), measured.weight)
        levels = state.levels
        if isinstance(levels, Levels):
            # parts of the covariance go through the same gain; a speed says nothing of the level of the noise
            none = torch.zeros_like(measured.weight[:, 0])
            R = levels.log.new_zeros(*levels.log.shape, *update.innovation_cov.shape[-2:])
            levels, _ = scored.follow(levels, R, cov, update, measured.innovation, H, measured.weight, none)
        return state._replace(
            mean=self.layout.boxplus(state.mean, update.correction[..., :d]),
            noise=self.noise_states.bounded(state.noise + update.correction[..., d:]),
            cov=self.form.start(update.cov),
            levels=levels,
        )

    def _read(
        self, prepared: Prepared, state: FWState, u: Tensor | None, measured: tuple[Tensor, Tensor] | None = None
    ) -> EncoderState | tuple[()]:
        """The encoder after it read the last estimate and measurement."""
        if not isinstance(state.encoder, EncoderState):
            return ()
        seen = state.encoder.seen
        if self.predicts_from_measurement:
            # the paper's order: z_t = [x̂_{t-1}, y_t]; missing channels read what the last estimate predicts
            expected = self.observe(state.mean)
            seen = expected if measured is None else torch.lerp(expected, *measured)
        if self.system.control_dim and u is None:
            u = seen.new_zeros(len(seen), self.system.control_dim)
        return encoding.read(prepared.cells, state.encoder, self.layout.features(state.mean), seen, u)

    def _hold(
        self, prepared: Prepared, state: FWState, u: Tensor | None, measured: tuple[Tensor, Tensor] | None
    ) -> FWState:
        """The state after its encoder has read, unless a prediction has advanced it already."""
        own, speeds = self._controls(u)
        if speeds is not None:
            state = self._heard(state, speeds)
        before, after = state.encoder, self._read(prepared, state, own, measured)
        if not isinstance(before, EncoderState) or not isinstance(after, EncoderState):
            return state
        due = (before.read == 0).unsqueeze(-1)
        hidden = tuple(torch.where(due, new, old) for new, old in zip(after.hidden, before.hidden, strict=True))
        return state._replace(encoder=after._replace(hidden=hidden))

    def _moved(
        self,
        prepared: Prepared,
        state: FWState,
        encoder: EncoderState | tuple[()],
        u: Tensor | None,
        dt: Tensor | None,
        ratio: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor, Noise | None, tuple[Tensor, Tensor] | None]:
        """Mean, ``F`` and ``Q`` of the state after a step, ``R_t`` of an encoder, and where points were drawn."""
        d, context = self.layout.tangent_size, encoder.hidden[-1] if isinstance(encoder, EncoderState) else None
        head: Tensor = self.head_bias
        if self.transition is not None or prepared.factor is None:
            head = self._head(prepared, encoder, len(state.mean))
        if self.transition is not None:
            mean, F = self.transition(state.mean, head[..., : self.split], ratio)
            Q = prepared.nominal.Q if dt is None else self.system.process_noise(dt)
        else:
            mean, F, Q = self.system.linearized_step(prepared.nominal, state.mean, u, dt)
        learned = ratio
        if prepared.learned is not None:
            learned = prepared.learned if ratio is None else ratio * prepared.learned
        if self.residual is not None:
            residual = self.residual.with_jacobian(self.layout.features(state.mean), context)
            mean, F = add_residual(self.layout, state.mean, (mean, F), residual, learned)
        factor, noise = prepared.factor, None
        if factor is None:
            q, noise = self.noise_scales(prepared, head)
            factor = _outer_root(q)
        Q = Q * factor
        if self.config.moments == "linear":
            return mean, F, Q, noise, None

        def move(points: Tensor) -> Tensor:
            count = len(points) // len(state.mean)
            moved = self.system.transition(points, repeated(u, count), repeated(dt, count))
            if self.residual is None:
                return moved
            change = self.residual(self.layout.features(points), repeated(context, count))
            factor = repeated(learned, count)
            return self.layout.boxplus(moved, change if factor is None else change * factor.unsqueeze(-1))

        cov = self.form.covariance(state.cov)[..., :d, :d]
        curved = second_order_correction(move, state.mean, cov, self.layout, self.layout)
        drawn = self.layout.magnitude(state.mean), cov
        return self.layout.boxplus(mean, curved.shift), F, Q + curved.cov, noise, drawn

    # ---- noise ----------------------------------------------------------------------------------------------

    def _head(self, prepared: Prepared, encoder: EncoderState | tuple[()], batch: int) -> Float[Tensor, "B h"]:
        """The outputs of the encoder, for the transition, ``Q`` and ``R``; without an encoder, their bias."""
        if self.head_weight is None or not isinstance(encoder, EncoderState):
            head = self.head_bias.expand(batch, -1)
        else:
            head = nn.functional.linear(encoder.hidden[-1], self.head_weight, self.head_bias)
        return head if prepared.learned is None else head * prepared.learned.unsqueeze(-1)

    def noise_scales(self, prepared: Prepared, head: Float[Tensor, "*B h"]) -> tuple[Float[Tensor, "*K d"], Noise]:
        """Factors of the variances of ``Q``, and ``R_t``: the base values, scaled by ``exp`` of a bounded head.

        Args:
            prepared: what :meth:`prepare` returned.
            head: the outputs of the encoder, or their bias.

        Returns:
            Factors of the variances of the state, and the measurement noise.
        """
        # a product, not a sum of logarithms: at the start the factor is exactly one and the base keeps every bit
        scale = prepared.base * torch.exp(ADAPT * torch.tanh(head[..., self.split :]))
        q, r = scale.split([self.layout.tangent_size, self.observation_dim], -1)
        if isinstance(prepared.R, DiagonalNoise):
            return q, DiagonalNoise(prepared.R.variance * r)
        return q, FullNoise(prepared.R.cov * _outer_root(r))

    def measurement_noise_of(self, prepared: Prepared, ahead: Prediction) -> Noise:
        """``R_t``, with which a prediction is conditioned on its measurement.

        Args:
            prepared: what :meth:`prepare` returned.
            ahead: the prediction.

        Returns:
            The white measurement noise.
        """
        state, noise = ahead.state, ahead.noise
        if prepared.factor is not None:
            noise = prepared.R
        elif noise is None:  # the prediction was made before
            noise = self.noise_scales(prepared, self._head(prepared, state.encoder, len(state.mean)))[1]
        return _scaled_noise(noise, state.levels.log[..., 0]) if isinstance(state.levels, Levels) else noise

    # ---- update ---------------------------------------------------------------------------------------------

    def _update(
        self, prepared: Prepared, ahead: Prediction, y: Tensor, weight: Tensor
    ) -> tuple[FWState, StepOutput, LinearStep]:
        state: FWState = ahead.state
        form, d = self.form, self.layout.tangent_size
        observed, H = self.system.linearize_observation(state.mean)
        noise = self.measurement_noise_of(prepared, ahead)
        expected, joint_H = observed, H
        if self.noise_states is not None:
            C = prepared.noise.C
            expected = observed + matvec(C, state.noise)
            joint_H = torch.cat((H, C.expand(*H.shape[:-2], *C.shape)), -1)
        innovation = self.observation_layout.boxminus(y, expected) * weight
        encoder = state.encoder
        if isinstance(encoder, EncoderState):
            encoder = EncoderState(encoder.hidden, torch.lerp(observed, y, weight), torch.zeros_like(encoder.read))
        if prepared.blocks is not None:
            return self._update_exactly(prepared.blocks, ahead, innovation, H, noise, y, weight, encoder)

        carried, Q, stated = state.cov, ahead.Q, None
        prior = Gaussian(state.mean, form.covariance(carried)[..., :d, :d])
        if self.config.jump:
            added, stated = jump_noise(prior.cov, innovation, H, noise, self.config.jump)
            eye = torch.eye(d, dtype=added.dtype, device=added.device)
            carried = form.propagate(carried, eye, added)
            Q = added if Q is None else Q + added
        shaped, memory = innovation, state.memory
        if prepared.shaper is not None:
            shaped, memory = iir.step(prepared.shaper, innovation, state.memory)
        update = form.condition(carried, shaped, joint_H, noise, weight)
        measurement: Measurement | StatedCovariance = Measurement(shaped, joint_H, noise, weight, update.ok)
        levels = state.levels
        if isinstance(levels, Levels):
            levels, update = self._follow_levels(prepared, levels, carried, update, innovation, joint_H, noise, weight)
            # a posterior whose levels moved is not that of a Kalman gain: it is stated instead
            measurement = StatedCovariance(update.cov)
        mean = self.layout.boxplus(state.mean, update.correction[..., :d])
        posterior = Gaussian(mean, form.covariance(update.cov)[..., :d, :d])
        precise = ahead.keeps_digits(measured_precisely(update.precise, y, noise, weight))
        if ahead.drawn is not None:
            precise = precise & points_resolved([ahead.drawn], update, innovation)
        stated = update.innovation_cov if stated is None else stated
        out = step_output(prior, posterior, innovation, stated, update.ok, precise, shaped * weight)
        states, extra = state.noise, None
        if self.noise_states is not None:
            states = extra = self.noise_states.bounded(states + update.correction[..., d:])
        oscillating = state.correction
        if prepared.correction is not None:
            assert isinstance(oscillating, Tensor)
            oscillating, out = self._corrected(prepared.correction, oscillating, out, weight)
        following = FWState(mean, update.cov, states, memory, encoder, levels, oscillating)
        linear = LinearStep(ahead.F, Q, measurement, update.correction, mean, extra)
        return self._discounted(following, out, linear, weight) if self._discounts else (following, out, linear)

    def _update_exactly(
        self,
        blocks: Shaper,
        ahead: Prediction,
        innovation: Tensor,
        H: Tensor,
        noise: Noise,
        y: Tensor,
        weight: Tensor,
        encoder: EncoderState | tuple[()],
    ) -> tuple[FWState, StepOutput, LinearStep]:
        """The paper's update with the exact covariance of error and memory of ``Φ`` together."""
        state, d, phi = ahead.state, self.layout.tangent_size, self.config.phi
        assert phi is not None
        update = condition_shaped(state.cov, innovation, state.memory.flatten(1), H, noise, blocks, weight, phi.gain)
        prior = Gaussian(state.mean, state.cov[..., :d, :d])
        posterior = Gaussian(self.layout.boxplus(state.mean, update.correction), update.joint_cov[..., :d, :d])
        precise = ahead.keeps_digits(measured_precisely(update.precise, y, noise, weight))
        out = step_output(
            prior, posterior, innovation, update.innovation_cov, update.ok, precise, update.shaped * weight
        )
        memory = update.memory.unflatten(1, state.memory.shape[1:])
        following = FWState(posterior.mean, update.joint_cov, state.noise, memory, encoder, state.levels)
        # the memory is known, so the belief is about the state alone; its covariance is not that of a Kalman gain
        linear = LinearStep(ahead.F, ahead.Q, StatedCovariance(posterior.cov), update.correction, posterior.mean)
        return self._discounted(following, out, linear, weight) if self._discounts else (following, out, linear)

    # ---- levels ---------------------------------------------------------------------------------------------

    @property
    def _discounts(self) -> bool:
        return self.config.level is not None and self.config.level.of == "all"

    def _start_levels(self, cov: Float[Tensor, "B j j"]) -> Levels | tuple[Tensor, Tensor] | tuple[()]:
        if self.config.level is None:
            return ()
        if self._discounts:
            return cov.new_ones(len(cov)), cov.new_zeros(len(cov))
        # the part of the initial covariance that is due to the noise of each level
        own = nn.functional.pad(self._owners(cov), (self.layout.tangent_size, 0))
        return scored.start(cov.unsqueeze(-3) * (own.unsqueeze(-1) * own.unsqueeze(-2)))

    def _owners(self, like: Tensor) -> Float[Tensor, "L s"]:
        """One where a noise state has a level; the first level is that of the white noise."""
        owners = [] if self.noise_states is None else self.noise_states.levels()
        each = self.config.level is not None and self.config.level.of == "each"
        numbers = [None if owner is None else (1 + owner if each else 0) for owner in owners]
        count = 1 + max([number for number in numbers if number is not None], default=0)
        rows = [[float(number == level) for number in numbers] for level in range(count)]
        return torch.tensor(rows, dtype=like.dtype, device=like.device).reshape(count, len(owners))

    def _pass_time(
        self,
        owners: Tensor | None,
        levels: Levels | tuple[Tensor, Tensor],
        F: Tensor,
        Q: Tensor,
        dt: Tensor | None,
    ) -> Levels | tuple[Tensor, Tensor]:
        """Levels after a prediction; ``Q`` is at their values."""
        level, first = self.config.level, levels[0]
        assert level is not None
        step = torch.full_like(first if first.ndim == 1 else first[:, 0], self.system.dt) if dt is None else dt
        if not isinstance(levels, Levels):
            return levels[0], levels[1] + step
        assert owners is not None
        own = nn.functional.pad(owners, (self.layout.tangent_size, 0))
        return scored.predict(levels, F, Q.unsqueeze(-3) * own.unsqueeze(-1), torch.exp(-step / level.seconds))

    def _follow_levels(
        self,
        prepared: Prepared,
        levels: Levels,
        P: Tensor,
        update: Update,
        innovation: Tensor,
        H: Tensor,
        noise: Noise,
        weight: Tensor,
    ) -> tuple[Levels, Update]:
        """Levels after a measurement, and the update moved to what it would be at those levels."""
        white = torch.zeros_like(levels.log)
        white[..., 0] = 1
        R = dense(noise).unsqueeze(-3) * white[..., None, None]
        free = torch.ones_like(innovation[:, 0]) if prepared.learned is None else prepared.learned
        levels, change = scored.follow(levels, R, P, update, innovation, H, weight, free)
        return levels, update._replace(correction=update.correction + change.mean, cov=update.cov + change.cov)

    def _discounted(
        self, state: FWState, out: StepOutput, linear: LinearStep, weight: Tensor
    ) -> tuple[FWState, StepOutput, LinearStep]:
        """The results at the level of all covariances."""
        level = self.config.level
        assert level is not None
        assert len(state.levels) == 2
        before, elapsed = state.levels
        after = discounting.discounted(level, self.freedom, before, out, weight, elapsed)
        state = state._replace(levels=(after, torch.zeros_like(elapsed)))
        # a posterior whose level moved is not that of a Kalman gain: it is stated instead
        Q = None if linear.Q is None else before[:, None, None] * linear.Q
        linear = linear._replace(Q=Q, update=StatedCovariance(self.joint_covariance(state)))
        return state, discounting.with_level(out, before, after), linear

    def _corrected(
        self, prepared: PreparedCorrection, before: Tensor, out: StepOutput, weight: Tensor
    ) -> tuple[Tensor, StepOutput]:
        """The oscillators of the correction after a measurement, and the output with corrected estimates."""
        drive = correcting.scaled(prepared, out.innovation, out.innovation_cov, weight)
        after = correcting.driven(prepared, before, drive)
        return after, out._replace(
            mean=self.layout.boxplus(out.mean, correcting.correction(prepared, after)),
            prior_mean=self.layout.boxplus(out.prior_mean, correcting.correction(prepared, before)),
        )

    # ---- over time ------------------------------------------------------------------------------------------

    def innermost(self) -> FrequencyWeightedNeuralKalmanFilter | None:
        """The same filter without what only reads its innovations: a level of all covariances, and a correction.

        Returns:
            A filter that shares everything else with this one; None if there is nothing to leave out.
        """
        if not self._discounts and self.correction is None:
            return None
        plain = copy.copy(self)
        level = None if self._discounts else self.config.level
        plain.config = dataclasses.replace(self.config, level=level, correction=None)
        plain._modules = {**self._modules, "correction": None}
        return plain

    def _run_on(
        self,
        engine: Engine,
        prepared: Any,
        state: Any,
        inputs: Inputs,
        predicts_first: bool,
        smoothing: bool,
        outputs: Sequence[str] | None,
        **options: Any,
    ) -> Trajectory:
        """As for other filters, but that what only reads the innovations follows after a run of the filter without."""
        plain = None if engine != "native" or smoothing else engines.innermost(self, prepared)
        if plain is None:
            return super()._run_on(engine, prepared, state, inputs, predicts_first, smoothing, outputs, **options)
        wanted = engines.OUTPUTS if outputs is None else (*outputs, "innovation", "innovation_cov")
        begin = state._replace(levels=(), correction=())
        track = engines.run_linear(plain, prepared, begin, inputs, predicts_first, engine, wanted, False)
        if track is None:  # a system with a constant term
            return super()._run_on(engine, prepared, state, inputs, predicts_first, smoothing, outputs, **options)
        assert track.state is not None
        out = StepOutput(**{name: getattr(track, name) for name in engines.OUTPUTS})
        after = track.state._replace(levels=state.levels, correction=state.correction)
        if prepared.correction is not None:
            after, out = self._corrected_after(prepared.correction, after, out, inputs, predicts_first)
        if self._discounts:
            after, out = self._discounted_after(after, out, inputs, predicts_first)
        out = engines.selected(out, outputs)
        density = None if self._discounts else track.log_density
        return Trajectory(**out._asdict(), state=after, linear=None, weight=track.weight, log_density=density)

    def _corrected_after(
        self, prepared: PreparedCorrection, state: FWState, out: StepOutput, inputs: Inputs, predicts_first: bool
    ) -> tuple[FWState, StepOutput]:
        """The outputs of a run with corrected estimates."""
        assert isinstance(state.correction, Tensor)
        drive = correcting.scaled(prepared, out.innovation, out.innovation_cov, inputs.weight)
        ratio = torch.ones_like(drive[..., 0]) if inputs.dt is None else inputs.dt / self.system.dt
        still = (out.status & int(Status.REJECTED)) != 0
        drive = torch.where(still.unsqueeze(-1), 0.0, drive)
        if not predicts_first:
            still = torch.cat((torch.ones_like(still[:, :1]), still[:, 1:]), 1)
        *added, last = correcting.followed(prepared, state.correction, drive, torch.where(still, 0.0, ratio))
        corrected = {
            name: self.layout.boxplus(getattr(out, name), change)
            for name, change in zip(("prior_mean", "mean"), added, strict=True)
            if getattr(out, name) is not None
        }
        return state._replace(correction=last), out._replace(**corrected)

    def _discounted_after(
        self, state: FWState, out: StepOutput, inputs: Inputs, predicts_first: bool
    ) -> tuple[FWState, StepOutput]:
        """The outputs of a run at the level of all covariances."""
        level = self.config.level
        assert level is not None
        assert len(state.levels) == 2
        start, elapsed = state.levels
        step = torch.full_like(inputs.weight[..., 0], self.system.dt) if inputs.dt is None else inputs.dt.clone()
        step[:, 0] = step[:, 0] * predicts_first + elapsed
        after = discounting.followed(level, self.freedom, start, out, inputs.weight, step)
        before = torch.cat((start.unsqueeze(-1), after[:, :-1]), -1)
        state = state._replace(levels=(after[:, -1], torch.zeros_like(elapsed)))
        return state, discounting.with_level(out, before, after)

    def _rows(self, prepared: Prepared, state: HypothesesState) -> Prepared:
        """What was prepared for each hypothesis, for the rows of a batch."""
        records = len(state.log_weight)
        lines = prepared.noise
        return prepared._replace(
            base=prepared.base.repeat(records, 1),
            factor=None if prepared.factor is None else prepared.factor.repeat(records, 1, 1),
            R=prepared.R if prepared.factor is None else _repeated(prepared.R, records),
            noise=lines._replace(frequency=lines.frequency.repeat(records, 1), power=lines.power.repeat(records)),
            learned=None if prepared.learned is None else prepared.learned.repeat(records),
        )


def _listed(noise: Any) -> tuple[Any, ...]:
    """The parts of the argument ``noise``, each with its sensor; parts from files are still mappings."""
    if isinstance(noise, NoisePart) or (isinstance(noise, Mapping) and "part" in noise):
        return (noise,)
    if isinstance(noise, list | tuple) and all(isinstance(part, NoisePart | Mapping) for part in noise):
        return tuple(noise)
    if not isinstance(noise, Mapping):
        raise ConfigError(
            f"filter fwnkf: noise = {shown(noise)}: wanted a part by its name, as {{part: lines, hz: [23.0]}}, a list "
            "of parts, or a mapping of sensors to parts"
        )
    parts: list[Any] = []
    for sensor, given in noise.items():
        for part in _listed(given):
            own = isinstance(part, NoisePart)
            parts.append(dataclasses.replace(part, sensor=sensor) if own else {**part, "sensor": sensor})
    return tuple(parts)


def _outer_root(scale: Tensor) -> Tensor:
    """``√s √sᵀ``: scales variances by ``s`` and keeps correlations."""
    root = scale.sqrt()
    return root.unsqueeze(-1) * root.unsqueeze(-2)


def _repeated(noise: Noise, times: int) -> Noise:
    """Noise with a row for each hypothesis, for the rows of a batch."""
    if isinstance(noise, DiagonalNoise):
        return DiagonalNoise(noise.variance.repeat(times, 1))
    return FullNoise(noise.cov.repeat(times, 1, 1))


def _scaled_noise(noise: Noise, log_level: Float[Tensor, " B"]) -> Noise:
    factor = log_level.exp()
    if isinstance(noise, DiagonalNoise):
        return DiagonalNoise(noise.variance * factor[:, None])
    return FullNoise(noise.cov * factor[:, None, None])
