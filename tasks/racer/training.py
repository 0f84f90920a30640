"""Training on streams of flights: windows follow each other, and the filter keeps its memory from one to the next.

Each window has a measured part and a gap to its end; in a quarter of the windows the motor commands of the gap are
withheld as well, as for a prediction without knowledge of what is to come. Two stages: the means alone with a constant
gain, which is cheap and has most of what is to be learned; then, with the whole filter, the process noise by the
likelihood of every measurement, in the gap and before it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fwnkf import Filter, Gaussian
from fwnkf.core.gaussian import factored_density
from fwnkf.core.linear import LinearSystem
from fwnkf.core.tree import named_leaves, tree_map, tree_unflatten
from fwnkf.filters.fwnkf import FrequencyWeightedNeuralKalmanFilter
from fwnkf.filters.networks import gru_step
from fwnkf.metrics.consistency import nees
from fwnkf.shapes import Float
from tasks.interface import Say
from tasks.racer.filter import CONTROLS, Options, linear_model, new_filter, steps, without_collisions
from tasks.racer.gaps import gap_errors
from tasks.racer.protocol import BLOCK, CONTEXT, Flight, Windows, control, frames

MEASURED, GAP = 12, 28
"""Steps of a window before and in its gap: 50 and 116 ms."""
HELD_STEPS, HELD_WEIGHT = 8, 0.6
"""Steps ahead that count where the commands of the gap are withheld, and their weight."""
NEW_STREAM = 0.05
"""Share of streams that begin elsewhere after a window."""
OUTLIER = 6.0
"""Errors beyond this many of the standard deviations counted with are weighted down in training the means."""
COLLISION = 15.0
"""The same for the likelihood, where it must not touch what makes the variance."""
LEVEL_LENGTHS = (BLOCK, *(frames(time) for time in (20, 50, 100)))
"""Lengths of gaps that the level of the covariances is set on: one step, and three gaps."""
MEASURED_WEIGHT, ONE_STEP = 0.1, 0.3
"""Weights of the one-step predictions before the gap, in training the means and in the likelihood."""
SPREAD = 0.35
"""Errors counted with, in units of those of holding the last rate."""


@dataclass(frozen=True)
class Plan:
    """Numbers of windows, batches and learning rates of the two stages."""

    batch: int = 256
    mean_steps: int = 900
    likelihood_batch: int = 128
    likelihood_steps: int = 60
    rate: float = 3e-3
    likelihood_rate: float = 1e-2
    matrices: float = 0.03
    """Learning rate of the matrices of the linear system, in units of that of the networks."""
    fine: float = 0.05
    """Learning rate of the networks in the second stage, in units of that of the covariances."""


class Window(NamedTuple):
    """One batch: measurement, control, which streams begin anew, and whose commands are withheld in the gap."""

    y: Float[Tensor, "B T 3"]
    u: Float[Tensor, "B T p"]
    fresh: Tensor
    held: Tensor


class Streams:
    """Windows of training flights that follow each other, a stream for each row of the batch."""

    def __init__(self, group: Sequence[Flight], batch: int, seed: int) -> None:
        # collisions stay in, steps that were not measured do not
        flown = (steps(one, phase) for one in group for phase in range(0, BLOCK, 2))
        parts = [part for y, u in flown for part in without_collisions(y, u, math.inf)]
        self.y, self.u = (torch.cat(values) for values in zip(*parts, strict=True))
        self.ends = torch.tensor([len(y) for y, _ in parts]).cumsum(0)
        self.generator = torch.Generator().manual_seed(seed)
        self.batch = batch

    def _begin(self, count: int) -> tuple[Tensor, Tensor]:
        length = MEASURED + GAP
        at = torch.randint(len(self.y) - length, (count,), generator=self.generator)
        end = self.ends[torch.bucketize(at, self.ends, right=True)]
        return torch.minimum(at, end - length), end

    def windows(self, count: int) -> Iterator[Window]:
        at, end = self._begin(self.batch)
        fresh = torch.ones(self.batch, dtype=torch.bool)
        held = torch.arange(self.batch) < self.batch // 4
        for _ in range(count):
            index = at.unsqueeze(-1) + torch.arange(MEASURED + GAP)
            u = self.u[index]
            last = u[held, MEASURED - 1].unflatten(-1, (BLOCK, CONTROLS))[:, -1:].expand(-1, BLOCK, -1).clone()
            last[..., -1] = 0.0
            u[held, MEASURED:] = last.flatten(1).unsqueeze(1)
            yield Window(self.y[index], u, fresh, held)
            at = at + MEASURED
            fresh = torch.rand(self.batch, generator=self.generator) < NEW_STREAM
            fresh |= at + MEASURED + GAP > end
            at[fresh], end[fresh] = self._begin(int(fresh.sum()))
            held = held[torch.randperm(self.batch, generator=self.generator)]


def train(
    group: Sequence[Flight], options: Options, plan: Plan, seed: int, say: Say, linear: LinearSystem | None = None
) -> FrequencyWeightedNeuralKalmanFilter:
    """A filter from training flights: linear model, means, likelihood."""
    linear = linear_model(group) if linear is None else linear
    model = new_filter(linear, options, group, seed)
    streams = Streams(group, plan.batch, seed)
    begin = time.process_time()
    if options.hidden:
        gain = train_means(model, streams, plan, say)
        set_gain(model, gain, streams)
    say(f"seed {seed}: means {time.process_time() - begin:.0f} CPU s")
    second_stage(model, group, options, plan, seed, say)
    say(f"seed {seed}: likelihood {time.process_time() - begin:.0f} CPU s")
    return model.requires_grad_(False)


def second_stage(
    model: FrequencyWeightedNeuralKalmanFilter,
    group: Sequence[Flight],
    options: Options,
    plan: Plan,
    seed: int,
    say: Say,
) -> None:
    """The whole filter by likelihood: covariances, and with a small learning rate the networks."""
    assert isinstance(model.system, LinearSystem)
    noises, means = list(model.system.Q.parameters()), []
    if model.residual is not None:
        means += list(model.residual.parameters())
    if options.adaptive:
        noises += [value for value in (model.head_weight, model.head_bias) if value is not None]
    if model.noise_states is not None:
        noises += list(model.noise_states.parameters())
    if model.encoder is not None:
        means += list(model.encoder.parameters())
    train_likelihood(model, Streams(group, plan.likelihood_batch, seed), plan, say, noises, means)


@torch.no_grad()
def set_level(model: Filter, data: Windows) -> float:
    """Scale all covariances alike so that the NEES over gaps of other flights is one; gains do not change."""
    assert isinstance(model.system, LinearSystem)
    found = gap_errors(model, data.y, control(data.motors) if model.control_dim else None, CONTEXT, LEVEL_LENGTHS)
    values = nees(*found)
    # collisions apart: one of them would set the level alone
    level = float(values[values < COLLISION**2 / 3].mean())
    for noise in (model.system.Q, model.system.R):
        noise.assign(level * noise())
    return level


# ---- the means, with a constant gain --------------------------------------------------------------------------------


class Mean(NamedTuple):
    """State, what the encoder has seen last, and its memory."""

    x: Tensor
    seen: Tensor
    hidden: Tensor


def start(model: FrequencyWeightedNeuralKalmanFilter, y: Float[Tensor, "B 3"]) -> Mean:
    """The rate as measured, and nothing known of the rest."""
    empty = y.new_zeros(len(y), model.layout.size - y.shape[-1])
    assert model.encoder is not None
    (memory,) = model.encoder.start(y)
    return Mean(torch.cat((y, empty), -1), y, memory)


def rollout(
    model: FrequencyWeightedNeuralKalmanFilter, gain: Tensor, state: Mean, y: Tensor, u: Tensor | None, measured: int
) -> tuple[Float[Tensor, "B T 3"], Mean]:
    """Predicted rates of a window whose first steps are measured, and the state behind those.

    The equations of the filter's means, with ``x̂ = x̂⁻ + K (y - H x̂⁻)`` for a constant ``K`` whose part on the rate is
    the identity: the gyro has next to no noise of its own.
    """
    assert isinstance(model.system, LinearSystem)
    assert model.encoder is not None
    assert model.residual is not None
    cells, (x, seen, hidden), behind, predicted = model.encoder.weights(), state, state, []
    F = model.system.F.mT
    driven = None if u is None else u @ model.system.B.mT
    for t in range(y.shape[1]):
        read = (x, seen) if u is None else (x, seen, u[:, t])
        (hidden,) = gru_step(cells, torch.cat(read, -1), (hidden,))
        x = (x @ F if driven is None else torch.addmm(driven[:, t], x, F)) + model.residual(x, hidden)
        predicted.append(x[:, :3])
        if t < measured:
            seen = y[:, t]
            innovation = seen - x[:, :3]
            x = torch.cat((seen, x[:, 3:] + innovation @ gain.mT), -1)
        else:
            seen = x[:, :3]
        if t == measured - 1:
            behind = Mean(x, seen, hidden)
    return torch.stack(predicted, 1), behind


def train_means(model: FrequencyWeightedNeuralKalmanFilter, streams: Streams, plan: Plan, say: Say) -> Tensor:
    """Train transition and GRU on the errors of all steps of the gaps; returns the gain of the hidden states."""
    assert isinstance(model.system, LinearSystem)
    Q = model.system.Q().detach()
    gain = nn.Parameter(Q[3:, :3] @ torch.linalg.inv(Q[:3, :3]))
    matrices = [gain, model.system.F, *([model.system.B] if model.control_dim else [])]
    assert model.encoder is not None
    assert model.residual is not None
    networks = [*model.encoder.parameters(), *model.residual.parameters()]
    optimizer, schedule = _optimizer(networks, matrices, plan.rate, plan.matrices, plan.mean_steps)
    spread = SPREAD * _spread_of_hold(streams)
    state: Any = None
    mean_loss = 0.0
    for number, window in enumerate(streams.windows(plan.mean_steps)):
        first = start(model, window.y[:, 0])
        state = _streams_state(first, state, window.fresh)
        u = window.u if model.control_dim else None
        predicted, behind = rollout(model, gain, state, window.y, u, MEASURED)
        error = predicted - window.y
        loss = _gap_loss(error[:, MEASURED:] / spread, window.held)
        loss = loss + MEASURED_WEIGHT * _log_power((error[:, :MEASURED] / spread[0]).flatten(0, 1)).mean()
        _descend(optimizer, schedule, loss, [*networks, *matrices])
        state = tree_map(Tensor.detach, behind)
        mean_loss += (float(loss.detach()) - mean_loss) / min(number + 1, 50)
        if (number + 1) % 250 == 0:
            say(f"means, step {number + 1} of {plan.mean_steps}: loss {mean_loss:.3f}")
    return gain.detach()


def _spread_of_hold(streams: Streams) -> Float[Tensor, "G 3"]:
    """Standard deviation of the change of the rate over each number of steps of a gap, collisions clipped."""
    y = streams.y[::7]
    ahead = [streams.y[number::7][: len(y)] for number in range(1, GAP + 1)]
    return torch.stack([(one - y[: len(one)]).clamp(-5, 5).square().mean(0).sqrt() for one in ahead])


def _gap_loss(error: Float[Tensor, "B G 3"], held: Tensor) -> Tensor:
    """The errors of gaps with commands at all steps, and of those without at the first."""
    loss = _log_power(error[~held]).mean()
    return loss + HELD_WEIGHT * _log_power(error[held, :HELD_STEPS]).mean() if bool(held.any()) else loss


def _log_power(error: Float[Tensor, "B *T 3"]) -> Tensor:
    """Logarithm of the mean square over the batch, so that every horizon and axis counts alike; outliers linearly."""
    square = 2 * OUTLIER**2 * ((1 + (error / OUTLIER).square()).sqrt() - 1)
    return (square.mean(0) + 1e-2).log()


@torch.no_grad()
def set_gain(model: FrequencyWeightedNeuralKalmanFilter, gain: Tensor, streams: Streams) -> None:
    """A process noise with which the Kalman gain in steady state is the constant gain of the first stage."""
    assert isinstance(model.system, LinearSystem)
    errors: list[Tensor] = []
    state: Any = None
    for window in streams.windows(8):
        first = start(model, window.y[:, 0])
        state = _streams_state(first, state, window.fresh)
        u = window.u[:, :MEASURED] if model.control_dim else None
        predicted, state = rollout(model, gain, state, window.y[:, :MEASURED], u, MEASURED)
        errors.append((predicted - window.y[:, :MEASURED])[:, MEASURED // 2 :].clamp(-0.5, 0.5).flatten(0, 1))
    error = torch.cat(errors[4:])
    rate = error.mT @ error / len(error)
    on_all = torch.cat((torch.eye(3), gain))
    Q = on_all @ rate @ on_all.mT
    model.system.Q.assign(Q + 0.02 * Q.diagonal().diag())


# ---- the whole filter -----------------------------------------------------------------------------------------------


def train_likelihood(
    model: Filter, streams: Streams, plan: Plan, say: Say, noises: Sequence[Tensor], means: Sequence[Tensor] = ()
) -> None:
    """Train parameters by the likelihood of the measurements, in gaps given those before the gap.

    ``noises`` are what the covariances are made of, ``means`` what the means are made of. These have a learning rate of
    their own, and the errors they are trained on count as in the first stage as well: the likelihood alone would give
    up where the variance is large, which is where most of the error is.
    """
    optimizer, schedule = _optimizer(noises, means, plan.likelihood_rate, plan.fine, plan.likelihood_steps)
    trained = [*noises, *means]
    spread = SPREAD * _spread_of_hold(streams)
    state: Any = None
    mean_loss = 0.0
    for number, window in enumerate(streams.windows(plan.likelihood_steps)):
        first = model.init(len(window.y), start_belief(model, window.y[:, 0]))
        state = _streams_state(first, state, window.fresh)
        u = window.u if model.control_dim else None
        mask = torch.zeros_like(window.y[:, MEASURED:], dtype=torch.bool)
        before = model.run(window.y[:, :MEASURED], None if u is None else u[:, :MEASURED], state=state)
        gap = model.run(window.y[:, MEASURED:], None if u is None else u[:, MEASURED:], mask, state=before.state)
        error = model.observe(gap.prior_mean) - window.y[:, MEASURED:]
        value = _surprise(error, gap.innovation_cov)
        counted = torch.ones_like(value)
        counted[window.held, HELD_STEPS:] = 0.0
        loss = (value * counted).sum() / counted.sum()
        loss = loss + ONE_STEP * _surprise(before.innovation, before.innovation_cov)[:, 2:].mean()
        if means:
            loss = loss + _gap_loss(error / spread, window.held)
        _descend(optimizer, schedule, loss, trained)
        state = tree_map(Tensor.detach, before.state)
        mean_loss += (float(loss.detach()) - mean_loss) / min(number + 1, 20)
        if (number + 1) % 20 == 0:
            say(f"likelihood, step {number + 1} of {plan.likelihood_steps}: loss {mean_loss:.3f}")


def start_belief(model: Filter, y: Float[Tensor, "B 3"]) -> Gaussian:
    """The rate as measured, and unit variance."""
    empty = y.new_zeros(len(y), model.layout.size - y.shape[-1])
    return Gaussian(torch.cat((y, empty), -1), torch.eye(model.layout.size).to(y))


def _surprise(error: Float[Tensor, "B T 3"], cov: Float[Tensor, "B T 3 3"]) -> Float[Tensor, "B T"]:
    """Negative log-likelihood less a constant; linear instead of quadratic beyond outliers."""
    density = factored_density(error, cov)
    square = density.white.square().sum(-1)
    bound = COLLISION**2
    kept = torch.where(square < bound, square, 2 * COLLISION * (square + 1e-12).sqrt() - bound)
    return 0.5 * kept + density.factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


# ---- common ---------------------------------------------------------------------------------------------------------


def _optimizer(
    networks: Sequence[Tensor], matrices: Sequence[Tensor], rate: float, share: float, count: int
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    groups = [(list(networks), rate), (list(matrices), share * rate)]
    optimizer = torch.optim.Adam([{"params": values, "lr": own} for values, own in groups if values])
    rates = [own for values, own in groups if values]
    return optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, rates, total_steps=count, pct_start=0.1)


def _descend(optimizer: torch.optim.Optimizer, schedule: Any, loss: Tensor, parameters: Sequence[Tensor]) -> None:
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(parameters, 5.0)
    if bool(norm.isfinite()):
        optimizer.step()
    schedule.step()


def _renewed(first: Tensor, going: Tensor, fresh: Tensor) -> Tensor:
    return torch.where(fresh.view(-1, *(1,) * (going.ndim - 1)), first, going)


def _streams_state(first: Any, going: Any, fresh: Tensor) -> Any:
    """The state of streams that go on, and a first state for those that begin anew."""
    if going is None:
        return first
    pairs = zip(named_leaves(first), named_leaves(going), strict=True)
    return tree_unflatten(first, iter([_renewed(one, other, fresh) for (_, one), (_, other) in pairs]))
