"""Train several filters of one experiment together: the same architecture, other seeds or weights of the loss.

A step of a small filter takes its time in the overhead of its kernels, not in arithmetic. Members of a group share the
kernels (:class:`fwnkf.filters.stacked.FilterStack`), so that several train in little more than the time of one. Each
has its own records, batches, gradient norm, validation and best parameters, as :func:`fwnkf.training.fit.fit` has.

Each has its own learning rate too, and ends by its own validation (:class:`Plateau`), so that a grid of rates is one
group, and filters that learn at other speeds are trained as long as each needs.

A group writes nothing and is not resumed in the middle: it is repeated if it was stopped.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fwnkf.core.tree import Template
from fwnkf.data.protocols import Protocol, Records
from fwnkf.errors import ConfigError
from fwnkf.filters.base import Filter
from fwnkf.filters.stacked import CompiledSteps, FilterStack
from fwnkf.filters.steps import dt_for
from fwnkf.metrics.accuracy import mse, residual
from fwnkf.training.batches import Piece, Plan, gather
from fwnkf.training.config import Experiment
from fwnkf.training.fit import prepare_filter
from fwnkf.training.losses import Batch, WeightedSum, parse_terms
from fwnkf.training.module import VALIDATION_BATCH, make_optimizer, noise_seed
from fwnkf.training.setup import load_data
from fwnkf.types import Gaussian

__all__ = ["Member", "Plateau", "fit_together"]

Say = Callable[[str], None]
Rebuild = Callable[[Sequence[Tensor]], tuple[Batch, Tensor | None]]
"""Makes the batch and ``dt`` of one member of its tensors."""
Prepared = dict[str, tuple[Protocol, Filter, float]]
"""Records, untrained filter and CPU seconds of preparing it, by what they depend on."""
NARROWED = 10
"""Where only one in so many members still trains, those that have ended are no longer carried along. Before that it
costs more than it saves: other sizes are compiled anew, and half of a step is the overhead of its kernels."""
UNPREPARED = ("steps", "batch_size", "validate_every")
"""Options of the trainer on which the untrained filter does not depend."""
UNSUPPORTED = {"chunk": None, "recompute": None, "compile": False, "patience": None, "devices": 1, "monitor": "val_mse"}
"""Options of the trainer that a group does not have, with the values at which they do nothing."""


@dataclass(frozen=True)
class Plateau:
    """When the learning rate of a member falls, and when its training ends.

    An evaluation counts as an improvement if the validation error is below ``1 - gain`` of the best so far. After
    ``patience`` evaluations without one, the member goes back to its best parameters with ``factor`` of its rate; where
    that has happened ``falls`` times (none at 0), its training has converged. The rate rises over the first ``warmup``
    steps.

    >>> Plateau(patience=4).patience
    4
    """

    patience: int = 4
    falls: int = 1
    factor: float = 0.2
    gain: float = 0.005
    warmup: int = 20
    steps: int | None = None
    """The training ends here if it has not converged before; by default with the group."""


@dataclass(eq=False)
class Member:
    """One filter of a group: its experiment and data, the best parameters by validation, and how it went.

    >>> "model" in Member.__dataclass_fields__
    True
    """

    experiment: Experiment
    """What was asked for."""
    data: Protocol
    """The records."""
    model: Filter
    """The filter, with its best parameters."""
    preparation_seconds: float
    """CPU seconds of building and pretraining this filter."""
    training_seconds: float = 0.0
    """CPU seconds of training and validation, an equal part of those of the group."""
    best: float = math.inf
    """Least validation error."""
    best_step: int = -1
    """The step at which it was reached."""
    steps: int = 0
    """Steps of the training."""
    failed_at: int | None = None
    """The step at which loss or gradient were first not finite; the member keeps its best parameters until then."""
    history: list[dict[str, float]] = field(default_factory=list)
    """Figures of each validation."""
    rate: float = 0.0
    """The learning rate at the start, if it is the member's own."""
    converged: bool | None = None
    """Whether the training ended by :class:`Plateau`, and not by the number of steps; None without that rule."""
    ended_at: int | None = None
    """The step after which the member was trained no more."""


def fit_together(
    experiments: Sequence[Experiment],
    *,
    rates: Sequence[float] | None = None,
    rules: Sequence[Plateau] | None = None,
    compiled: bool = False,
    average: int = 0,
    rows: int | None = None,
    prepared: Prepared | None = None,
    say: Say = lambda text: None,
) -> list[Member]:
    """Train one filter for each experiment; all must be equal but for name, seed, batch size and weights of the loss.

    The filter of a member is the one with the least validation error (``trainer.monitor: val_mse``), that before
    training included. The figures equal those of single runs up to rounding, except for filters that draw random
    numbers.

    Args:
        experiments: what to train; equal but for name, seed, batch size and weights of the loss.
        rates: a learning rate for each, instead of that of the optimizer.
        rules: when the rate of each falls and its training ends, instead of the schedule of the optimizer;
            ``trainer.steps`` is then the largest number of steps. Needs ``rates``.
        compiled: run compiled steps (:class:`fwnkf.filters.stacked.CompiledSteps`), for long trainings.
        average: validate and keep the mean of the parameters over about so many steps, instead of those of the last
            step, whose error varies with the batches. Over fewer of the first steps.
        rows: repeat the records of a batch up to this number, a multiple of every batch size; by default the largest
            one. The gradient stays the same, and groups with other batches share compiled steps.
        prepared: records and untrained filters of earlier calls, to which those of this one are added. Experiments
            that differ in the length of the training or in its batches share them.
        say: called with status lines.

    Returns:
        One member for each experiment.

    Raises:
        ConfigError: the experiments differ in more, or cannot be trained together.

    >>> from fwnkf.training.experiments import parse_experiment
    >>> data = {"name": "simulated", "train": 2, "val": 1, "test": 1, "steps": 5}
    >>> values = {"data": data, "system": {"name": "pendulum"}, "trainer": {"steps": 1, "batch_size": 2}}
    >>> values["filter"] = {"options": {"residual": {"width": 4}}}
    >>> members = fit_together([parse_experiment({**values, "seed": seed}) for seed in (0, 1)])
    >>> [member.experiment.seed for member in members]
    [0, 1]
    """
    rows = max(experiment.trainer.batch_size for experiment in experiments) if rows is None else rows
    _check(experiments, rows)
    options = experiments[0].trainer
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    members = _prepare(experiments, {} if prepared is None else prepared, say)
    stack = FilterStack([member.model for member in members])
    plans = [
        Plan(
            len(member.data.split.train),
            member.data.split.train.y.shape[1],
            member.experiment.trainer.batch_size,
            None,
            member.experiment.seed,
        )
        for member in members
    ]
    mean = Average(stack, average) if average else None
    own = None if rates is None else Rates(rates, rules, stack, members, mean)
    parameters = stack.named_parameters()
    optimizer, schedule = make_optimizer(experiments[0].optimizer, parameters, options.steps)
    trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    objective = Objective(experiments, stack, compiled)
    running = members
    begin = time.process_time()
    _validate(stack, members, 0)
    for step in range(options.steps):
        batches = [_batch(member, plan, step, rows) for member, plan in zip(running, plans, strict=True)]
        losses = objective(batches, step)
        optimizer.zero_grad()
        losses.sum().backward()
        _clip(trained, losses.detach(), experiments[0].optimizer.clip, running, step)
        if own is None:
            optimizer.step()
            schedule.step()
        else:
            own.step(optimizer, step)
        if mean is not None:
            mean.update(step)
        if (step + 1) % options.validate_every == 0 or step + 1 == options.steps:
            with contextlib.nullcontext() if mean is None else mean.in_place():
                _validate(stack, running, step + 1)
            if own is not None:
                own.after_validation(step + 1)
            best = ", ".join(f"{member.best:.4g}" for member in members)
            say(f"{experiments[0].name}: step {step + 1} of {options.steps}, best validation MSE {best}")
        left = [row for row, m in enumerate(running) if m.failed_at is None and m.ended_at is None]
        if not left:
            break
        if own is not None and len(left) * NARROWED <= len(running):
            running, plans = [running[row] for row in left], [plans[row] for row in left]
            stack = stack.take(left)
            mean = None if mean is None else mean.take(left, stack)
            own = own.take(left, stack, mean)
            optimizer = _taken(optimizer, experiments[0], stack.named_parameters(), left)
            trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            objective = Objective([member.experiment for member in running], stack, compiled)
    seconds = (time.process_time() - begin) / len(members)
    for member in members:
        member.training_seconds = seconds
        ended = step + 1 if member.ended_at is None else member.ended_at
        member.steps = ended if member.failed_at is None else member.failed_at
    return members


def _taken(
    optimizer: torch.optim.Optimizer, experiment: Experiment, parameters: Mapping[str, Tensor], rows: list[int]
) -> torch.optim.Optimizer:
    """The optimizer of some members with their parameters, and with what it has seen of their gradients."""
    taken, _ = make_optimizer(experiment.optimizer, parameters, experiment.trainer.steps)
    for group, own in zip(optimizer.param_groups, taken.param_groups, strict=True):
        for before, now in zip(group["params"], own["params"], strict=True):
            taken.state[now] = {
                name: value[rows] if getattr(value, "shape", None) == before.shape else copy.deepcopy(value)
                for name, value in optimizer.state[before].items()
            }
    return taken


class Average:
    """Exponential means of the parameters of all members over the last steps.

    >>> import fwnkf
    >>> eye = torch.eye(2)
    >>> system = fwnkf.LinearSystem.of(F=eye, H=eye, Q=eye, R=eye)
    >>> stack = FilterStack([fwnkf.build("kalmannet", system=system)])
    >>> Average(stack, 50).steps
    50
    """

    def __init__(self, stack: FilterStack, steps: int) -> None:
        self.stack, self.steps = stack, steps
        self.values = {name: value.detach().clone() for name, value in stack.named_parameters().items()}

    def take(self, rows: Sequence[int], stack: FilterStack) -> Average:
        """Those of some members, which ``stack`` holds."""
        taken = Average(stack, self.steps)
        taken.values = {name: value[list(rows)] for name, value in self.values.items()}
        return taken

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Add the parameters after a step; the mean is over a tenth of the steps so far, and at most over ``steps``."""
        weight = max(1 / self.steps, 10 / (10 + step))
        for name, value in self.stack.named_parameters().items():
            self.values[name].lerp_(value, weight)

    def assign(self, member: int, values: Mapping[str, Tensor]) -> None:
        for name, value in self.values.items():
            value[member] = values[name].detach()

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Within it the stack holds the means."""
        with torch.no_grad():
            parameters = self.stack.named_parameters()
            kept = {name: value.detach().clone() for name, value in parameters.items()}
            for name, value in parameters.items():
                value.copy_(self.values[name])
        try:
            yield
        finally:
            with torch.no_grad():
                for name, value in parameters.items():
                    value.copy_(kept[name])


class Rates:
    """The learning rate of each member, which falls and ends by its own validation."""

    def __init__(
        self,
        rates: Sequence[float],
        rules: Sequence[Plateau] | None,
        stack: FilterStack,
        members: Sequence[Member],
        mean: Average | None = None,
    ) -> None:
        self.rules, self.stack, self.members, self.mean = rules, stack, members, mean
        self.rates = torch.tensor(rates, dtype=stack.model.dtype)
        self.counts = [(math.inf, 0, 0)] * len(members)
        """For each member the error to improve on, evaluations since it was, and how often the rate has fallen."""
        for member, rate in zip(members, rates, strict=True):
            member.rate = float(rate)

    def take(self, rows: Sequence[int], stack: FilterStack, mean: Average | None) -> Rates:
        """Those of some members, which ``stack`` holds."""
        taken = copy.copy(self)
        taken.stack, taken.mean, taken.rates = stack, mean, self.rates[list(rows)]
        taken.members, taken.counts = [self.members[row] for row in rows], [self.counts[row] for row in rows]
        taken.rules = None if self.rules is None else [self.rules[row] for row in rows]
        return taken

    @torch.no_grad()
    def step(self, optimizer: torch.optim.Optimizer, step: int) -> None:
        """A step of the optimizer, whose update is proportional to the rate: made with rate one, then scaled."""
        warmup = self.rules[0].warmup if self.rules else Plateau().warmup
        scale = self.rates * min(1.0, (step + 1) / warmup)
        groups = optimizer.param_groups
        usual = max(group["lr"] for group in groups)
        factors = [group["lr"] / usual for group in groups]
        before = [[parameter.clone() for parameter in group["params"]] for group in groups]
        for group, factor in zip(groups, factors, strict=True):
            group["lr"] = factor
        optimizer.step()
        for group, factor, old in zip(groups, factors, before, strict=True):
            group["lr"] = factor * usual
            for parameter, value in zip(group["params"], old, strict=True):
                shape = (-1,) + (1,) * (parameter.ndim - 1)
                # lerp would add the two roundings of a step of rate one to parameters that are held
                parameter.copy_(
                    torch.where(scale.view(shape) > 0, value + scale.view(shape) * (parameter - value), value)
                )

    def after_validation(self, step: int) -> None:
        """Lower the rates of members that no longer improve, and end those that have converged."""
        if self.rules is None:
            return
        for number, (member, rule) in enumerate(zip(self.members, self.rules, strict=True)):
            if member.failed_at is not None or member.ended_at is not None:
                continue
            wanted, waited, falls = self.counts[number]
            error = member.history[-1]["val_mse"]
            improved = error < wanted
            waited = 0 if improved else waited + 1
            wanted = (1 - rule.gain) * min(error, member.best) if improved else wanted
            member.converged = waited >= rule.patience and falls >= rule.falls
            if member.converged or (rule.steps is not None and step >= rule.steps):
                self.rates[number] = 0.0
                member.ended_at = step
            elif waited >= rule.patience:
                waited, falls = 0, falls + 1
                self.rates[number] *= rule.factor
                best = dict(member.model.named_parameters())
                self.stack.assign(number, best)
                if self.mean is not None:
                    self.mean.assign(number, best)
            self.counts[number] = wanted, waited, falls


def _batch(member: Member, plan: Plan, step: int, rows: int) -> Batch:
    """The records of a step, each as often as it takes to have so many; their mean is that of the batch."""
    piece = plan.at(step)
    return gather(member.data.split.train, piece._replace(rows=piece.rows.repeat(rows // plan.batch_size)))


def _check(experiments: Sequence[Experiment], rows: int) -> None:
    def common(experiment: Experiment) -> str:
        terms = [{**dict(term), "weight": None} for term in experiment.loss]
        trainer = dataclasses.replace(experiment.trainer, batch_size=1)
        plain = dataclasses.replace(experiment, seed=0, name="group", trainer=trainer).as_dict()
        return json.dumps({**plain, "loss": terms}, sort_keys=True, default=str)

    first = experiments[0]
    for experiment in experiments:
        if common(experiment) != common(first):
            raise ConfigError(
                f"experiments {first.name!r} and {experiment.name!r} differ in more than seed, batch size and weights "
                "of the loss; train them one by one"
            )
        if rows % experiment.trainer.batch_size:
            raise ConfigError(
                f"experiment {experiment.name!r}: batches of {experiment.trainer.batch_size} do not divide {rows} rows"
            )
    options = first.trainer
    faults = [
        f"trainer.{name} = {getattr(options, name)!r}"
        for name, neutral in UNSUPPORTED.items()
        if getattr(options, name) != neutral
    ]
    if faults:
        raise ConfigError(f"filters cannot be trained together with {', '.join(faults)}; train them one by one")


def _prepare(experiments: Sequence[Experiment], prepared: Prepared, say: Say) -> list[Member]:
    """Members with their records and untrained filters; those that differ in loss or batches share both."""
    members = []
    for experiment in experiments:
        values = {**experiment.as_dict(), "loss": None, "name": None}
        values["trainer"] = {name: value for name, value in values["trainer"].items() if name not in UNPREPARED}
        same = json.dumps(values, sort_keys=True, default=str)
        if same not in prepared:
            data = load_data(experiment)
            begin = time.process_time()
            model = prepare_filter(experiment, data.split.train, say)
            prepared[same] = data, model, time.process_time() - begin
        data, model, seconds = prepared[same]
        members.append(Member(experiment, data, model, seconds))
    return members


class Objective:
    """The losses of all members on their batches, each with its own weights."""

    def __init__(self, experiments: Sequence[Experiment], stack: FilterStack, compiled: bool = False) -> None:
        terms = [parse_terms(experiment.loss, experiment.name)[0] for experiment in experiments]
        # a term that some member uses is computed for all, also where its weight is zero
        used = [max(column, key=lambda term: term.weight) for column in zip(*terms, strict=True)]
        columns = [number for number, term in enumerate(used) if term.weight > 0]
        self.terms = WeightedSum([(str(number), used[number]) for number in columns])
        weights = [[own[number].weight for number in columns] for own in terms]
        self.weights = torch.tensor(weights, dtype=stack.model.dtype)
        self.stack, self.experiments = stack, experiments
        self.steps = CompiledSteps(stack) if compiled else None
        if compiled and experiments[0].trainer.truncate is not None:
            raise ConfigError("trainer.truncate is not for compiled steps")

    def __call__(self, batches: Sequence[Batch], step: int) -> Tensor:
        first = self.experiments[0]
        tensors, rebuild = _stacked(self.stack.model, batches)
        generator = torch.Generator().manual_seed(noise_seed(first.seed, step))
        truncate = first.trainer.truncate

        def losses_of_track(model: Filter, weights: Tensor, *own: Tensor) -> Tensor:
            batch, _ = rebuild(own[: len(tensors)])
            track = outputs.tree(own[len(tensors) :])
            values = self.terms.values(model, batch, track)
            return (weights * torch.stack(list(values.values()))).sum() + model.regularization()

        if self.steps is not None:
            batch, dt = rebuild(tensors)
            found = self.steps.run(
                batch.y, batch.u if self.stack.model.control_dim else None, batch.mask, dt, batch.prior, generator
            )
            found = found._replace(engine=None)
            outputs = Template(found)
            return self.stack.map(losses_of_track, self.weights, *tensors, *outputs.leaves(found))

        def losses(model: Filter, weights: Tensor, *own: Tensor) -> Tensor:
            batch, dt = rebuild(own)
            u = batch.u if model.control_dim else None
            track = model.run(batch.y, u, batch.mask, dt, prior=batch.prior, truncate=truncate, generator=generator)
            values = self.terms.values(model, batch, track)
            return (weights * torch.stack(list(values.values()))).sum() + model.regularization()

        return self.stack.map(losses, self.weights, *tensors)


def _stacked(model: Filter, batches: Sequence[Batch]) -> tuple[list[Tensor], Rebuild]:
    """The tensors of batches, stacked, and a function that makes one member's batch and ``dt`` of its own again."""
    fields = [name for name in Batch._fields if isinstance(getattr(batches[0], name), Tensor)]
    tensors = [torch.stack([getattr(batch, name) for batch in batches]) for name in fields]
    tensors += [torch.stack(parts) for parts in zip(*(batch.prior for batch in batches), strict=True)]
    # decided here for all: inside the map a decision on values is not possible
    takes_dt = dt_for(model, torch.cat([batch.dt for batch in batches])) is not None

    def rebuild(own: Sequence[Tensor]) -> tuple[Batch, Tensor | None]:
        values: dict[str, Any] = dict(zip(fields, own[:-2], strict=True))
        batch = batches[0]._replace(**values, prior=Gaussian(*own[-2:]))
        return batch, batch.dt if takes_dt else None

    return tensors, rebuild


@torch.no_grad()
def _clip(
    parameters: Sequence[Tensor], losses: Tensor, limit: float | None, members: Sequence[Member], step: int
) -> None:
    """Limit the norm of each member's gradient; a member whose loss or gradient is not finite is trained no more."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = torch.stack([gradient.reshape(len(gradient), -1).square().sum(-1) for gradient in gradients]).sum(0).sqrt()
    finite = losses.isfinite() & norm.isfinite()
    for number, member in enumerate(members):
        if member.failed_at is None and not bool(finite[number]):
            member.failed_at = step
    running = torch.tensor([member.failed_at is None for member in members])
    # the small number is that of torch.nn.utils.clip_grad_norm_
    factor = torch.ones_like(norm) if limit is None else (limit / (norm + 1e-6)).clamp_max(1.0)
    for gradient in gradients:
        shape = (-1,) + (1,) * (gradient.ndim - 1)
        gradient.copy_(torch.where(running.view(shape), gradient * factor.view(shape), 0.0))


@torch.no_grad()
def _validate(stack: FilterStack, members: Sequence[Member], step: int) -> None:
    """Note each member's validation error, and keep its parameters where they are the best so far."""
    estimates = _estimates(stack, [member.data.split.val for member in members])
    for number, (member, mean) in enumerate(zip(members, estimates, strict=True)):
        val = member.data.split.val
        valid = val.truth.isfinite().all(-1)
        error = float(mse(residual(val.layout, mean.double(), val.truth.double())[valid]))
        if member.failed_at is not None or member.ended_at is not None:
            continue
        member.history.append({"step": step, "val_mse": error})
        if error < member.best:
            member.best, member.best_step = error, step
            if step:
                member.model = _with_values(member.model, stack.values(number))


def _with_values(model: Filter, values: dict[str, Tensor]) -> Filter:
    copied = copy.deepcopy(model)
    copied.load_state_dict({**copied.state_dict(), **values})
    return copied


def _estimates(stack: FilterStack, records: Sequence[Records]) -> list[Tensor]:
    """Posterior means of every member on its own records."""
    stack.model.eval()
    parts: list[Tensor] = []
    for rows in torch.arange(len(records[0])).split(VALIDATION_BATCH):
        batches = [gather(own, Piece(rows, 0, own.y.shape[1])) for own in records]
        tensors, rebuild = _stacked(stack.model, batches)

        def means(model: Filter, *own: Tensor, rebuild: Rebuild = rebuild) -> Tensor:
            batch, dt = rebuild(own)
            return model.run(batch.y, batch.u if model.control_dim else None, batch.mask, dt, prior=batch.prior).mean

        parts.append(stack.map(means, *tensors))
    stack.model.train()
    return list(torch.cat(parts, 1))
