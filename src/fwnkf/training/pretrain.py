"""Pretraining: fit a learned transition, and a learned observation, by regression on true states.

Training through the filter learns dynamics and gains together, by backpropagation through a hundred steps. With true
states in the training records, one-step prediction is an ordinary regression, a thousand times cheaper; the filter then
only has to learn the noise levels. No equations of motion are used. Every filter with a learned transition takes the
same steps on the same batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..core.observation import NetworkObservation, ObservationModel
from ..data.protocols import Records
from ..errors import ConfigError
from ..filters.base import Filter
from ..filters.fwnkf import FrequencyWeightedNeuralKalmanFilter
from ..filters.one_step import predict_one_step
from ..shapes import Float
from ..systems.learned import LearnedSystem
from .batches import Plan
from .setup import step_sizes

PAIRS = 4096
"""Pairs of consecutive time steps in one regression batch."""
REFINED_PAIRS = 5 * PAIRS
"""Pairs of consecutive time steps on which the quasi-Newton iterations run, and a quarter as many that judge them."""
ROUND = 25
"""Quasi-Newton iterations after which the gain is looked at."""
GAIN = 1e-3
"""Smallest part by which the error must fall in a round for another one to follow."""
RATE = 1e-2
NOISE_FLOOR = 1e-8
"""Smallest process variance as a fraction of the mean square of one step, at the resolution of float32."""
NOTHING_LEARNED = (
    "filter {name!r} has no learned transition to pretrain; set trainer.pretrain: 0, or filter.equations: false for a "
    "filter that takes a system"
)


class Regression(NamedTuple):
    """What the regression needs of a filter."""

    transition: list[nn.Parameter]
    predict: Callable[[Tensor, Tensor, Tensor | None, Tensor], Tensor]
    """The states ``x[:, 1:]`` predicted from ``x[:, :-1]``, given ``x, y, u, dt``."""
    observation: ObservationModel
    measurement_covariance: Callable[[], Tensor]
    set_noise: Callable[[Tensor, Tensor | None], None]


def regression_of(model: Filter) -> Regression | None:
    """The learned parts of a filter, or None if its transition is not learned."""
    system = model.system
    if isinstance(system, LearnedSystem) and system.network is not None:
        return Regression(
            list(system.network.parameters()),
            lambda x, y, u, dt: _predict(system, x, u, dt),
            system.observation,
            system.measurement_covariance,
            system.set_noise,
        )
    if not isinstance(model, FrequencyWeightedNeuralKalmanFilter) or not isinstance(system, LearnedSystem):
        return None
    trained: list[nn.Parameter] = []
    if model.residual is not None:
        trained += model.residual.parameters()
    if model.transition is not None:
        trained += [] if model.encoder is None else list(model.encoder.parameters())
        trained += [parameter for parameter in (model.head_weight, model.head_bias) if parameter is not None]
    if not trained:
        return None
    return Regression(
        trained,
        lambda x, y, u, dt: predict_one_step(model, x, y, u, dt),
        system.observation,
        system.measurement_covariance,
        system.set_noise,
    )


def pretrain(model: Filter, records: Records, steps: int, share: float, seed: int, refine: int = 0) -> str:
    """Fit the learned parts, and set the process noise to ``share`` times the mean square of the prediction error.

    A learned network of the observation is fitted in the same steps, and the measurement noise set to the mean square
    of what it does not explain; a learned matrix alone is the result of a regression already.

    ``steps`` of Adam are followed by at most ``refine`` quasi-Newton iterations (L-BFGS) on a fixed part of the
    records. Without process noise the error of Adam falls with the number of its steps for a very long time; the
    iterations reach the same one several times sooner. They are kept if they lower the error on other records.

    Returns a status line with the part of the motion in one step that is not predicted.
    """
    regression = regression_of(model)
    if regression is None:
        raise ConfigError(f"trainer.pretrain = {steps}: {NOTHING_LEARNED.format(name=model.name)}")
    network = regression.observation.network if isinstance(regression.observation, NetworkObservation) else None
    trained = [*regression.transition, *([] if network is None else network.parameters())]
    length = records.y.shape[1]
    batch_size = max(1, PAIRS // (length - 1))
    scale, noise = step_sizes(records), regression.measurement_covariance().detach().diagonal().sqrt()

    def loss_on(rows: Tensor) -> Tensor:
        errors = _errors(model, regression, records, rows)
        loss = ((errors.step / scale).square().mean(-1) * errors.known).sum() / errors.known.sum().clamp_min(1)
        if network is not None:
            loss = loss + (errors.observed / noise).square().sum() / errors.present.sum().clamp_min(1)
        return loss

    optimizer = torch.optim.Adam(trained, RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: 0.5 * (1 + math.cos(math.pi * min(k / steps, 1))))
    plan = Plan(len(records), length, batch_size, None, seed + 500_009)
    for step in range(steps):
        loss = loss_on(plan.at(step).rows)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    if refine:
        order = torch.randperm(len(records), generator=torch.Generator().manual_seed(seed + 500_010))
        held_out = order[: max(1, min(len(records) // 5, REFINED_PAIRS // 4 // (length - 1)))]
        used = order[len(held_out) :][: max(1, REFINED_PAIRS // (length - 1))]
        _quasi_newton(trained, loss_on, used if len(used) else order, held_out, refine)
    model.zero_grad()
    with torch.no_grad():
        parts = [
            _errors(model, regression, records, torch.arange(first, min(first + batch_size, len(records))))
            for first in range(0, len(records), batch_size)
        ]
        squares = torch.stack([(part.step.square() * part.known.unsqueeze(-1)).sum((0, 1)) for part in parts]).sum(0)
        residual = squares / torch.stack([part.known.sum() for part in parts]).sum()
        Q = (share * residual).maximum(NOISE_FLOOR * scale.square()).diag()
        R = None
        if network is not None:
            squares = torch.stack([part.observed.square().sum((0, 1)) for part in parts]).sum(0)
            count = torch.stack([part.present.sum((0, 1)) for part in parts]).sum(0)
            R = torch.where(count > 0, squares / count.clamp_min(1), noise.square()).clamp_min(1e-12).diag()
        regression.set_noise(Q, R)
    return (
        f"pretrained: {float((residual / scale.square()).mean().sqrt()):.2g} of the motion in one step is not predicted"
    )


def _quasi_newton(
    trained: Sequence[nn.Parameter], loss_on: Callable[[Tensor], Tensor], rows: Tensor, held_out: Tensor, limit: int
) -> None:
    """At most ``limit`` iterations of L-BFGS on some records, kept if they lower the loss on others."""

    @torch.no_grad()
    def judged() -> float:
        return float(loss_on(held_out))

    optimizer = torch.optim.LBFGS(
        trained, max_iter=ROUND, history_size=2 * ROUND, tolerance_grad=0.0, tolerance_change=0.0,
        line_search_fn="strong_wolfe",
    )  # fmt: skip

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = loss_on(rows)
        loss.backward()
        return loss

    kept, least = [parameter.detach().clone() for parameter in trained], judged()
    before = math.inf
    for done in range(0, limit, ROUND):
        optimizer.param_groups[0]["max_iter"] = min(ROUND, limit - done)
        loss = float(optimizer.step(closure).detach())  # that of the start of the round
        error = judged()
        if error < least:
            kept, least = [parameter.detach().clone() for parameter in trained], error
        if not loss < (1 - GAIN) * before:
            break
        before = loss
    with torch.no_grad():
        for parameter, value in zip(trained, kept, strict=True):
            parameter.copy_(value)


class Errors(NamedTuple):
    """Errors of the regression, zero where nothing is known, and masks of what is."""

    step: Float[Tensor, "B S d"]
    known: Float[Tensor, "B S"]
    observed: Float[Tensor, "B T m"]
    present: Float[Tensor, "B T m"]


def _errors(model: Filter, regression: Regression, records: Records, rows: Tensor) -> Errors:
    """One-step prediction errors between two known states, and errors of the observation of a known state."""
    truth, y = records.truth[rows], records.y[rows]
    valid = truth.isfinite().all(-1)
    origin = records.layout.origin(truth)
    truth = torch.where(valid.unsqueeze(-1), truth, origin)
    seen = regression.observation.observe(truth)
    measured = records.mask[rows] & y.isfinite()
    y = torch.where(measured, y, seen.detach())
    u = records.u[rows] if records.u is not None and model.control_dim else None
    predicted = regression.predict(truth, y, u, records.dt[rows])
    known = valid[:, 1:] & valid[:, :-1] & (records.dt[rows][:, 1:] > 0)
    present = (measured & valid.unsqueeze(-1)).to(truth.dtype)
    return Errors(
        records.layout.boxminus(predicted, truth[:, 1:]),
        known.to(truth.dtype),
        model.observation_layout.boxminus(y, seen) * present,
        present,
    )


def _predict(
    system: LearnedSystem, x: Float[Tensor, "B T n"], u: Float[Tensor, "B T p"] | None, dt: Float[Tensor, "B T"]
) -> Float[Tensor, "B S n"]:
    """One-step predictions of a learned system from known states."""
    before = x[:, :-1]
    control = None if u is None else u[:, 1:].flatten(0, 1)
    return system.transition(before.flatten(0, 1), control, dt[:, 1:].flatten()).unflatten(0, before.shape[:2])
