"""The likelihood of measurements under a filter, with its gradient and information in the learned parameters.

The innovations of a filter with the right model are independent and Gaussian, so that their density is the likelihood
of the measurements; no true state is needed. Derivatives of innovations and their covariances give the gradient and
Fisher's information matrix at once (Åström 1980; Cavanaugh and Shumway 1996). They are differences over small changes
of the parameters, and all changed models run side by side as one batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from ..core.gaussian import block_diagonal, dense, factored_density, safe_cholesky
from ..core.riccati import linear_filter, transient
from ..errors import NumericalFailureError
from ..filters import engines
from ..filters.base import Filter, PriorAt
from ..filters.engines import Engine
from ..filters.fwnkf import FrequencyWeightedNeuralKalmanFilter
from ..shapes import Bool, Float
from ..types import Gaussian
from .parameters import Parameters

Result = TypeVar("Result")

DIFFERENCE = 1e-6
"""Change of a raw parameter for its derivative; rounding and curvature are then both below 1e-5."""

TRACED_SAMPLES = 200
"""Steps of all records together from which on the step of a nonlinear filter is compiled for a fit."""

SAME_STEP = 1e-9
"""Relative difference up to which steps have the length of the system's own."""


@dataclass(frozen=True, eq=False)
class Measurements:
    """What ``filter.run`` takes, complete: ``present`` is True where a channel was measured; ``truth`` may be NaN."""

    y: Float[Tensor, "N T m"]
    present: Bool[Tensor, "N T m"]
    u: Float[Tensor, "N T p"] | None
    dt: Float[Tensor, "N T"] | None
    prior: Gaussian
    truth: Float[Tensor, "N T n"] | None = None
    prior_at: PriorAt = "first_measurement"
    outputs: tuple[str, ...] = ("innovation", "innovation_cov")
    """What runs return: more than is needed, where one compilation serves other runs too."""

    def take(self, rows: Tensor) -> Measurements:
        def part(item: Tensor | None) -> Tensor | None:
            return None if item is None else item[rows]

        prior = Gaussian(*(item[rows] for item in self.prior))
        u, dt, truth = part(self.u), part(self.dt), part(self.truth)
        return Measurements(self.y[rows], self.present[rows], u, dt, prior, truth, self.prior_at, self.outputs)

    def first(self, steps: int) -> dict[str, Any]:
        """The keyword arguments of ``filter.run`` for the first steps."""
        u, dt = (None if item is None else item[:, :steps] for item in (self.u, self.dt))
        y, mask = self.y[:, :steps], self.present[:, :steps]
        return {"y": y, "mask": mask, "u": u, "dt": dt, "prior": self.prior, "prior_at": self.prior_at}

    def even_steps(self) -> tuple[float | None, float | None]:
        """The length of all steps but the first, and of the first, if the data have neither gaps nor controls.

        None stands for the nominal step, NaN for data that are not regular. Missing samples at the end of a record are
        no gap. All records must start from the same covariance.
        """
        whole = self.present.all(-1)
        regular = bool((whole == self.present.any(-1)).all()) and bool((whole[:, 1:] <= whole[:, :-1]).all())
        regular = regular and bool((self.prior.cov == self.prior.cov[0]).all()) and self.y.shape[1] > 1
        if self.u is not None or not regular:
            return math.nan, math.nan
        if self.dt is None:
            return None, None
        step, first = self.dt[:, 1:], self.dt[:, 0]
        even = bool(((step - step[0, 0]).abs() <= 1e-9 * step[0, 0]).all()) and bool((first == first[0]).all())
        return (float(step[0, 0]), float(first[0])) if even else (math.nan, math.nan)


class Predictions(NamedTuple):
    """Residuals with their stated covariances and the weights of their coordinates, for ``V`` parameter vectors."""

    residual: Float[Tensor, "V N T m"]
    cov: Float[Tensor, "V N T m m"]
    """Of all records, or ``[V, 1, T, m, m]`` where they share it, because no sample of any is missing."""
    weight: Float[Tensor, "N T m"]


class Local(NamedTuple):
    """The log-likelihood at one parameter vector, its gradient, and the information matrix."""

    value: float
    gradient: Float[Tensor, " p"]
    information: Float[Tensor, "p p"]


class StepMatrices(NamedTuple):
    """``x⁺ = F x + N(0, Q)``, ``y = H x + N(0, R)`` of state and noise states together, for one step."""

    F: Float[Tensor, "n n"]
    H: Float[Tensor, "m n"]
    Q: Float[Tensor, "n n"]
    R: Float[Tensor, "m m"]


def linearized(model: Filter, at: Float[Tensor, "1 n"], dt: Float[Tensor, "1"] | None) -> StepMatrices:
    """The matrices of a filter at one state, noise states included, for a step of ``dt``."""
    stated = model.linear_model(dt=None if dt is None else dt[0])
    if stated.kind == "constant":
        assert stated.R is not None
        return StepMatrices(stated.F, stated.H, stated.Q, dense(stated.R))  # type: ignore[arg-type]  # of a constant model
    system, prepared = model.system, model.prepare()
    assert system is not None
    _, F, Q = system.linearized_step(system.nominal(), at, None, dt)
    _, H = system.linearize_observation(at)
    R = dense(prepared.R)
    F, H, Q, R = (item[0] if item.ndim == 3 else item for item in (F, H, Q, R))
    states = model.noise_states if isinstance(model, FrequencyWeightedNeuralKalmanFilter) else None
    if states is not None:
        ratio = None if dt is None else dt / system.dt
        _, A, drive = states.move(prepared.noise, at.new_zeros(1, states.size), None, ratio)
        A, drive = (item[0] if item.ndim == 3 else item for item in (A, drive))
        F, Q = block_diagonal(F, A), block_diagonal(Q, drive)
        H = torch.cat((H, prepared.noise.C), -1)
    return StepMatrices(F, H, Q, R)


def is_time_invariant(model: Filter, dt: Float[Tensor, "1"] | None) -> bool:
    """Whether a filter states that it has the same matrices at every state and step."""
    return model.preprocess is None and model.linear_model(dt=None if dt is None else dt[0]).kind == "constant"


class Likelihood:
    """The log-likelihood of measurements as a function of the raw parameters of a filter."""

    def __init__(self, model: Filter, parameters: Parameters, data: Measurements) -> None:
        self.model, self.parameters, self.data = model, parameters, data
        step, first = data.even_steps()
        regular = step is None or not math.isnan(step)
        self.dt, self.first_dt = (
            data.y.new_tensor([item]) if regular and item is not None else None for item in (step, first)
        )
        self.time_invariant = regular and is_time_invariant(model, self.dt)
        self.nominal = self._is_nominal(step) and (data.prior_at == "first_measurement" or first == 0)
        truth = data.truth
        self.knows_truth = truth is not None and bool(truth.isfinite().all(-1).any())
        self.compiled = engines.compiles() and engines.is_linear(model, None)
        # compiled code takes one parameter vector after the other
        self.traced = not self.compiled and not self.time_invariant and self._can_trace()
        self.side_by_side = not self.compiled and not self.traced and self._can_batch()
        if self.compiled:
            parameters.as_numbers()

    def _is_nominal(self, step: float | None) -> bool:
        """Whether all steps after the first have the length of the system's own, to rounding."""
        system = self.model.system
        return step is not None and system is not None and abs(step / system.dt - 1) < SAME_STEP

    @property
    def engine(self) -> Engine:
        """What runs the filter."""
        return "native" if self.compiled or self.traced else "loop"

    def gather(self, function: Callable[..., Result], raw: Float[Tensor, " p"], *arguments: Any) -> list[Result]:
        """``function(likelihood, raw, *arguments)`` for each part in which the records are evaluated; here one."""
        return [function(self, raw, *arguments)]

    @torch.no_grad()
    def value(self, raw: Float[Tensor, " p"]) -> float:
        """The log-likelihood; minus infinity where the filter fails."""
        return sum(self.value_of(part) for part in self.predictions(raw.unsqueeze(0)))

    def value_of(self, part: Predictions) -> float:
        """The summed log density of residuals at the first parameter vector."""
        return _density(part)[0]

    @torch.no_grad()
    def local(self, raw: Float[Tensor, " p"]) -> Local:
        """The log-likelihood with its derivatives."""
        around = torch.cat((raw.unsqueeze(0), raw + DIFFERENCE * torch.eye(len(raw)).to(raw)))
        return local_of(self.predictions(around))

    def predictions(self, raws: Float[Tensor, "V p"]) -> list[Predictions]:
        """Innovations, and errors of the state where the truth is known, for several parameter vectors."""
        if self.compiled:
            try:
                return self._runs(raws, self.data.y.shape[1], engine="native")
            except engines.EngineError:  # too many states, or a compiler that fails
                self.compiled = False
        if not self.time_invariant:
            return self._runs(raws, self.data.y.shape[1], engine="native" if self.traced else "loop")
        y, prior = self.data.y.nan_to_num(), self.data.prior
        F, H, Q, R = self._matrices(raws, self.dt)
        extra = F.shape[-1] - prior.mean.shape[-1]  # noise states start from their stationary distribution
        cov = block_diagonal(prior.cov[0], torch.eye(extra).to(y)).expand_as(F)
        x = torch.nn.functional.pad(prior.mean, (0, extra)).expand(len(raws), -1, -1)
        first = StepMatrices(torch.eye(F.shape[-1]).to(F).expand_as(F), H, torch.zeros_like(Q), R)
        if self.data.prior_at == "before_first_step":
            first = self._matrices(raws, self.first_dt)
        begin = transient(*first, cov, 1)
        rest = transient(F, H, Q, R, begin.cov[:, 0], y.shape[1] - 1)
        starts = linear_filter(first[0], H, begin.gain, y[:, :1], x)
        rests = linear_filter(F, H, rest.gain, y[:, 1:], starts[0][:, :, 0])
        means, innovations = (torch.cat(pair, 2) for pair in zip(starts, rests, strict=True))
        _, covs, state_covs = (torch.cat(pair, 1).unsqueeze(1) for pair in zip(begin, rest, strict=True))
        present, count = self.data.present.to(y), len(y)
        parts = [Predictions(innovations * present, covs.expand(-1, count, -1, -1, -1), present)]
        if self.knows_truth:
            d = self.model.layout.size
            error, weight = self._errors(means[..., :d], None)
            parts.append(Predictions(error, state_covs[..., :d, :d].expand(-1, count, -1, -1, -1), weight))
        return parts

    def _matrices(self, raws: Tensor, dt: Tensor | None) -> StepMatrices:
        at = self.model.layout.origin(raws).unsqueeze(0)

        def matrices(raw: Tensor) -> StepMatrices:
            self.parameters.install(raw)
            return linearized(self.model, at, dt)

        return StepMatrices(*self._each(matrices, raws))

    def _runs(self, raws: Tensor, steps: int, engine: Engine = "loop") -> list[Predictions]:
        inputs = self.data.first(steps)
        if self.nominal and engine == "native" and not self.traced:
            # one discretisation for all steps, and covariances that records share; no time passes before the first
            inputs |= {"dt": None, "prior_at": "first_measurement"}
        outputs = ("innovation", "innovation_cov", *(("mean", "cov") if self.knows_truth else ()))
        kept = tuple(dict.fromkeys((*outputs, *self.data.outputs)))

        def run(raw: Tensor) -> tuple[Tensor, ...]:
            if self.traced:
                key = (self.model, self.parameters)  # with other data the same code serves
                track = self.model.run_with(self.parameters.install, raw, key, **inputs, outputs=kept)
            else:
                self.parameters.install(raw)
                track = self.model.run(**inputs, engine=engine, outputs=outputs)
            assert track.weight is not None
            return (track.weight, *(getattr(track, name) for name in outputs))

        if engine == "loop":
            weight, innovation, cov, *states = self._each(run, raws)
        else:
            rows = [run(raw) for raw in raws]
            # compiled code states covariances that records share once
            if all(row[2].stride(0) == 0 and bool((row[0] == 1).all()) for row in rows):
                rows = [(*row[:2], row[2][:1], *row[3:]) for row in rows]
            weight, innovation, cov, *states = (torch.stack(items) for items in zip(*rows, strict=True))
        parts = [Predictions(innovation, cov, weight[0])]
        if self.knows_truth:
            error, known = self._errors(states[0], innovation.shape[2])
            parts.append(Predictions(error, states[1], known))
        return parts

    def _errors(self, mean: Tensor, end: int | None) -> tuple[Tensor, Tensor]:
        assert self.data.truth is not None
        truth = self.data.truth[:, :end]
        known = truth.isfinite().all(-1, keepdim=True)
        truth = torch.where(known, truth, self.model.layout.origin(truth))
        error = self.model.layout.boxminus(mean, truth.expand_as(mean))
        weight = known.expand(*error.shape[1:]).to(error)
        return error * weight, weight

    def _each(self, function: Callable[[Tensor], tuple[Tensor, ...]], raws: Tensor) -> tuple[Tensor, ...]:
        if self.side_by_side:
            try:
                return tuple(torch.func.vmap(function)(raws))
            finally:  # tensors of a batch do not live longer than vmap
                self.parameters.install(raws[0])
        return tuple(torch.stack(items) for items in zip(*map(function, raws), strict=True))

    @torch.no_grad()
    def _can_trace(self) -> bool:
        """Whether compiled code takes the parameters as numbers of each run; compared with the loop.

        A step is traced and compiled once for all parameter vectors, which takes seconds.
        """
        records, steps = self.data.y.shape[:2]
        if self.model.preprocess is not None or records * steps < TRACED_SAMPLES or not engines.compiles():
            return False
        raws = self.parameters.start + torch.tensor([[0.0], [0.1]]).to(self.parameters.start)
        few, self.side_by_side = min(3, steps), False
        self.parameters.as_numbers(False)
        try:
            self.traced = True
            traced = self._runs(raws, few, engine="native")
        except Exception:  # whatever a system does with its numbers that cannot be traced
            traced = None
        self.traced = False
        self.parameters.as_numbers()
        alone = self._runs(raws, few)
        agree = _agree(traced, alone)
        self.parameters.as_numbers(not agree)
        return agree

    @torch.no_grad()
    def _can_batch(self) -> bool:
        """Whether the model runs with a batch of parameter vectors; compared with one run for each."""
        raws = self.parameters.start + torch.tensor([[0.0], [0.1]]).to(self.parameters.start)
        steps = min(3, self.data.y.shape[1])
        if self.model.preprocess is not None:
            steps = min(3 * self.model.preprocess.block, self.data.y.shape[1])
        self.side_by_side = True
        try:
            batched = self._runs(raws, steps)
        except Exception:  # whatever a system does that cannot be batched, such as new_tensor of its constants
            batched = None
        self.side_by_side = False
        self.parameters.as_numbers()
        alone = self._runs(raws, steps)
        agree = _agree(batched, alone)
        if agree:
            self.parameters.as_numbers(False)
        return agree


def _agree(found: list[Predictions] | None, alone: list[Predictions]) -> bool:
    """Whether another way to run a filter gives the same as one run of the loop for each parameter vector."""
    return found is not None and all(
        torch.allclose(a.residual, b.residual, rtol=1e-7) and torch.allclose(a.cov, b.cov, rtol=1e-7)
        for a, b in zip(found, alone, strict=True)
    )


def local_of(parts: Sequence[Predictions]) -> Local:
    """The log-likelihood of predictions and its derivatives.

    Args:
        parts: for the parameter vector itself, and for one with each parameter larger by :data:`DIFFERENCE`.

    Returns:
        Value, gradient and Fisher's information.
    """
    count = parts[0].residual.shape[0] - 1
    gradient = parts[0].residual.new_zeros(count)
    information = gradient.new_zeros(count, count)
    value = 0.0
    for part in parts:
        density, factor, white = _density(part)
        value += density
        residual, cov, weight = part
        repeated = weight.shape[0] // cov.shape[1]
        mask = weight[: cov.shape[1]]
        slope = _solved(factor, ((residual[1:] - residual[0]) / DIFFERENCE * weight).unsqueeze(-1)).squeeze(-1)
        change = (cov[1:] - cov[0]) / DIFFERENCE * (mask.unsqueeze(-1) * mask.unsqueeze(-2))
        change = _solved(factor, _solved(factor, change).mT)
        by_cov = 0.5 * ((change @ white.unsqueeze(-1)).squeeze(-1) * white - change.diagonal(dim1=-2, dim2=-1))
        gradient += (by_cov - slope * white).flatten(1).sum(-1)
        flat, of_cov = slope.flatten(1), change.flatten(1)
        information += flat @ flat.mT + 0.5 * repeated * (of_cov @ of_cov.mT)
    return Local(value, gradient, information)


def _density(part: Predictions) -> tuple[float, Tensor, Tensor]:
    """Summed log density at the first parameter vector, the factor of the covariances, whitened residuals."""
    residual, cov, weight = part.residual[0], part.cov[0], part.weight
    if len(cov) < len(residual):
        factor, ok = safe_cholesky(cov)
        white = _solved(factor, residual.unsqueeze(-1)).squeeze(-1)
        log_det = 2 * len(residual) * factor.diagonal(dim1=-2, dim2=-1).log().sum()
        value = -0.5 * float(white.square().sum() + log_det + residual.numel() * math.log(2 * math.pi))
        return value if math.isfinite(value) and bool(ok.all()) else -math.inf, factor, white
    density = factored_density(residual, cov, weight)
    counted = weight.any(-1)
    value = float(density.log_prob[counted].sum()) if bool(density.ok[counted].all()) else -math.inf
    return value if math.isfinite(value) else -math.inf, density.factor, density.white


def _solved(factor: Float[Tensor, "*B m m"], right: Float[Tensor, "*C m k"]) -> Float[Tensor, "*C m k"]:
    """``L⁻¹ b`` row by row: the matrices are small and many, for which a call of LAPACK each takes most of the time."""
    rows: list[Tensor] = []
    for i, row in enumerate(right.unbind(-2)):
        for j, known in enumerate(rows):
            row = row - factor[..., i, j, None] * known
        rows.append(row / factor[..., i, i, None])
    return torch.stack(rows, -2)


def maximise(
    function: Callable[[Tensor], Local],
    raw: Float[Tensor, " p"],
    *,
    iterations: int,
    tolerance: float = 0.01,
    limit: float = 1.0,
    progress: Callable[[int, float], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> tuple[Float[Tensor, " p"], Local]:
    """Fisher's scoring with the damping of Levenberg and Marquardt, until a step promises less than ``tolerance``.

    No raw parameter moves by more than ``limit`` in one step. Directions without information do not move.
    """
    here, damping = function(raw), 1e-3
    if not math.isfinite(here.value):
        raise NumericalFailureError(
            "the filter fails on these measurements with the parameters it starts from: an innovation covariance is "
            "not positive definite or an innovation not finite; start from a larger R, a larger Q or a narrower prior"
        )
    for number in range(iterations):
        if stop is not None and stop():
            break
        # in NumPy, whose operations on a few numbers take a tenth of the time of PyTorch's
        gradient, information = here.gradient.numpy(), here.information.numpy()
        # a ridge of one part in a million million of the largest entry keeps directions without information in place
        scale = information.diagonal()
        ridge = damping * scale + 1e-12 * scale.max() + 1e-9
        try:
            move = np.linalg.solve(information + np.diag(ridge), gradient)
        except np.linalg.LinAlgError:
            break
        largest = np.abs(move).max()
        move = move * min(limit / largest, 1.0) if largest > 0 else move
        promise = float(move @ gradient - 0.5 * move @ information @ move)
        if not promise > tolerance or damping > 1e8:
            break
        step = torch.from_numpy(move)
        there = function(raw + step)
        if there.value > here.value:
            gain = (there.value - here.value) / promise
            raw, here = raw + step, there
            damping = damping / 10 if gain > 0.5 else damping * 2
        else:
            damping = max(10 * damping, 1e-3)
        if progress is not None:
            progress(number + 1, here.value)
    return raw, here
