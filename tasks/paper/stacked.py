"""Train several filters of one experiment together: the same architecture, other seeds or weights of the loss.

A step of a small filter takes its time in the overhead of its kernels, not in arithmetic. Members of a group share the
kernels (:class:`fwnkf.filters.stacked.FilterStack`), so that several train in little more than the time of one. Each
has its own records, batches, optimizer, gradient norm, validation and best parameters, as
:func:`fwnkf.training.fit.fit` has.

Each has its own learning rate too, and ends by its own validation (:class:`Plateau`), so that a grid of rates is one
group, and filters that learn at other speeds are trained as long as each needs. A group has a fixed number of slots,
which is the number of filters that its kernels are compiled for; where a member ends, the next one takes its slot.
Where none is left and few go on, they move to a stack with fewer slots.

A group saves its state after validations, at most every ``trainer.save_seconds``, and goes on from it with the same
bits if it was stopped. A member that has ended can go on too, with more patience or steps, as if it had had them.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

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
from fwnkf.training.resume import read_state, write_state
from fwnkf.training.setup import load_data
from fwnkf.types import Gaussian
from tasks.paper.regressions import prepare
from tasks.paper.store import short_name

__all__ = ["Cache", "Member", "Plateau", "fit_together"]

Say = Callable[[str], None]
Rebuild = Callable[[Sequence[Tensor]], tuple[Batch, Tensor | None]]
"""Makes the batch and ``dt`` of one member of its tensors."""
UNPREPARED = ("steps", "batch_size", "validate_every")
"""Options of the trainer on which the untrained filter does not depend."""
UNSUPPORTED = {"chunk": None, "recompute": None, "compile": False, "patience": None, "devices": 1, "monitor": "val_mse"}
"""Options of the trainer that a group does not have, with the values at which they do nothing."""
PROGRESS_OF_MEMBER = (
    "training_seconds", "best", "best_step", "steps", "failed_at", "history", "rate", "converged", "restarts", "ended",
)  # fmt: skip
PROGRESS_OF_RUN = ("step", "rate", "wanted", "waited", "falls")
"""Attributes that change during a training, beside tensors."""


@dataclass(frozen=True)
class Plateau:
    """When the learning rate of a member falls, and when its training ends.

    An evaluation counts as an improvement if the validation error is below ``1 - gain`` of the best so far. After
    ``patience`` evaluations without one, the member goes back to its best parameters with ``factor`` of its rate; where
    that has happened ``falls`` times (none at 0), its training has converged. Where its loss or gradient is not finite,
    it does the same, at most ``restarts`` times. The rate rises over the first ``warmup`` steps.

    >>> Plateau(patience=4).patience
    4
    """

    patience: int = 4
    falls: int = 1
    factor: float = 0.2
    gain: float = 0.005
    warmup: int = 20
    restarts: int = 0


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
    """CPU seconds of training and validation, an equal part with those that train beside it."""
    best: float = math.inf
    """Least validation error."""
    best_step: int = -1
    """The step at which it was reached."""
    steps: int = 0
    """Steps of the training."""
    failed_at: int | None = None
    """The step at which the training ended because loss or gradient were not finite; its best parameters are kept."""
    history: list[dict[str, float]] = field(default_factory=list)
    """Figures of each validation."""
    rate: float = 0.0
    """The learning rate at the start, if it is the member's own."""
    converged: bool | None = None
    """Whether the training ended by :class:`Plateau`, and not by the number of steps; None without that rule."""
    restarts: int = 0
    """How often it went back to its best parameters because loss or gradient were not finite."""
    ended: dict[str, Any] | None = None
    """The state of its training at the end, from which it can go on."""

    def kept(self) -> Member:
        """As it is now; the member itself may go on."""
        return dataclasses.replace(self, history=list(self.history))

    def progress(self) -> dict[str, Any]:
        """What changes during the training."""
        return {"model": self.model.state_dict(), **{name: getattr(self, name) for name in PROGRESS_OF_MEMBER}}

    def restore(self, progress: Mapping[str, Any]) -> None:
        """Be as when :meth:`progress` was called."""
        for name in PROGRESS_OF_MEMBER:
            setattr(self, name, progress[name])
        self.model = _with_values(self.model, progress["model"])


@dataclass(eq=False)
class Cache:
    """What calls of :func:`fit_together` for filters of one architecture share.

    >>> Cache().prepared
    {}
    """

    prepared: dict[str, tuple[Protocol, Filter, float]] = field(default_factory=dict)
    """Records, untrained filter and CPU seconds of preparing it, by what they depend on."""
    stacks: dict[int, tuple[FilterStack, CompiledSteps]] = field(default_factory=dict)
    """The filters in so many slots, and their compiled steps."""
    regressions: Path | None = None
    """The folder of regressed systems, which calls of other architectures share too (tasks/paper/regressions.py)."""


def fit_together(
    experiments: Sequence[Experiment],
    *,
    rates: Sequence[float] | None = None,
    rules: Sequence[Plateau] | None = None,
    compiled: bool = False,
    average: int = 0,
    slots: Sequence[int] | None = None,
    cache: Cache | None = None,
    state: Path | None = None,
    ended: Sequence[Member] | None = None,
    say: Say = lambda text: None,
) -> list[Member]:
    """Train one filter for each experiment; all must be equal but for name, seed, steps and weights of the loss.

    The filter of a member is the one with the least validation error (``trainer.monitor: val_mse``), that before
    training included. The figures equal those of single runs up to rounding, except for filters that draw random
    numbers.

    Args:
        experiments: what to train; equal but for name, seed, steps and weights of the loss.
        rates: a learning rate for each, instead of that of the optimizer.
        rules: when the rate of each falls and its training ends, instead of the schedule of the optimizer;
            ``trainer.steps`` is then the largest number of steps. Needs ``rates``.
        compiled: run compiled steps (:class:`fwnkf.filters.stacked.CompiledSteps`), for long trainings.
        average: validate and keep the mean of the parameters over about so many steps, instead of those of the last
            step, whose error varies with the batches. Over fewer of the first steps.
        slots: how many filters may train at a time; by default all. Those with the most steps begin. Of several
            numbers it is the smallest one that has a slot for each filter that is not yet trained, or the largest.
        cache: what earlier calls for filters of this architecture prepared and compiled, to which this one adds.
        state: a file from which the training goes on where it was stopped, and to which it is saved on the way. Needs
            ``rates``.
        ended: members of an earlier call, which go on instead of new ones; their experiments and rules may have more
            steps and patience now. They are what is returned.
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
    cache = Cache() if cache is None else cache
    _check(experiments)
    if state is not None and rates is None:
        raise ConfigError("the state of a training is saved with rates of its own only: give `rates`")
    options = experiments[0].trainer
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    members = _prepare(experiments, cache, say) if ended is None else _again(ended, experiments)
    budgets = [
        Budget(None if rates is None else rates[number], None if rules is None else rules[number], average)
        for number in range(len(members))
    ]
    waiting = deque(sorted(range(len(members)), key=lambda number: -experiments[number].trainer.steps))
    sizes = [len(members)] if slots is None else sorted(slots)
    size, running, step = 0, dict[int, Run](), 0
    what = short_name([[one.as_dict() for one in experiments], [dataclasses.asdict(budget) for budget in budgets]])
    saved = None if state is None else _read(state, what, say)
    if saved is not None:
        waiting, size, step = deque(saved["waiting"]), saved["size"], saved["step"]
        for member, values in zip(members, saved["members"], strict=True):
            member.restore(values)
        for slot, values in saved["running"].items():
            number = values["number"]
            running[slot] = Run(number, members[number], budgets[number])
            running[slot].restore(values)
        if waiting or running:
            say(f"{experiments[0].name}: goes on at pass {step}, from {state}")
        else:  # random numbers of what the caller does next
            torch.set_rng_state(saved["random"])
    stack: FilterStack | None = None
    clock, written = time.process_time(), time.monotonic()
    while waiting or running:
        left = len(waiting) + len(running)
        fitting = next((some for some in sizes if some >= left), sizes[-1])
        if stack is None or fitting != size:
            if fitting != size:  # a training that goes on keeps the slots it had: random numbers depend on them
                running = dict(enumerate(running.values()))
            size = fitting
            stack, steps = _stack(cache, members, size)
            objective = Objective(experiments, stack, steps if compiled else None)
            batches: list[Batch | None] = [None] * size
            for slot, run in running.items():
                run.move(stack, slot)
                objective.place(slot, run.number)
            if saved is not None:
                torch.set_rng_state(saved["random"])
                saved = None
        new = [slot for slot in range(size) if slot not in running][: len(waiting)]
        untrained = []
        for slot in new:
            number = waiting.popleft()
            running[slot] = run = Run(number, members[number], budgets[number])
            before = members[number].ended
            if before is None:
                untrained.append(slot)
            else:
                run.restore(before)
            run.move(stack, slot)
            objective.place(slot, number)
        if untrained:
            _validate(stack, running, untrained)
        for slot, run in running.items():
            batches[slot] = run.batch()
        # slots that no member is left for repeat the batches of others: their results are not used
        spare = next(own for own in batches if own is not None)
        filled = [spare if own is None else own for own in batches]
        for parameter in stack.named_parameters().values():
            parameter.grad = None
        losses = objective(filled, step)
        losses.sum().backward()
        losses = losses.detach()
        for slot, run in running.items():
            run.advance(losses[slot])
        step += 1
        due = [slot for slot, run in running.items() if run.is_due()]
        if due:
            _validate(stack, running, due)
        used = (time.process_time() - clock) / len(running)
        clock = time.process_time()
        for run in running.values():
            run.member.training_seconds += used
        for slot in [slot for slot in due if running[slot].has_ended()]:
            running.pop(slot).finish()
        if due:
            best = ", ".join(f"{member.best:.4g}" for member in members)
            say(f"{experiments[0].name}: pass {step}, {len(waiting)} waiting, best validation MSE {best}")
        if (
            state is not None
            and due
            and (not (waiting or running) or time.monotonic() - written >= options.save_seconds)
        ):
            values = {
                "what": what, "step": step, "size": size, "waiting": list(waiting), "random": torch.get_rng_state(),
                "running": {slot: run.progress() for slot, run in running.items()},
                "members": [member.progress() for member in members],
            }  # fmt: skip
            write_state(values, state)
            written = time.monotonic()
    return members


def _read(path: Path, what: str, say: Say) -> dict[str, Any] | None:
    """The saved state of a training; None if there is none of this training."""
    if not path.is_file():
        return None
    saved = read_state(path)
    if saved["what"] != what:
        say(f"{path} is the state of another training: starting anew")
        return None
    return saved


@dataclass(frozen=True)
class Budget:
    """How one member is trained.

    >>> Budget(1e-3, Plateau()).average
    0
    """

    rate: float | None = None
    """The learning rate, instead of that of the optimizer with its schedule."""
    rule: Plateau | None = None
    """When that rate falls, and when the training ends."""
    average: int = 0
    """The steps over which parameters are averaged for validation."""


class Run:
    """The training of one member in a slot: its optimizer, its mean parameters, and its way by its rule."""

    def __init__(self, number: int, member: Member, budget: Budget) -> None:
        experiment = member.experiment
        trainer, records = experiment.trainer, member.data.split.train
        self.number, self.member, self.budget = number, member, budget
        self.plan = Plan(len(records), records.y.shape[1], trainer.batch_size, None, experiment.seed)
        self.step = 0
        self.parameters = {
            name: nn.Parameter(value.detach().clone(), requires_grad=value.requires_grad)
            for name, value in member.model.named_parameters()
        }
        self.optimizer, self.schedule = make_optimizer(experiment.optimizer, self.parameters, trainer.steps)
        self.rate = budget.rate
        if budget.rate is not None:
            member.rate = float(budget.rate)
        self.means = {name: value.detach().clone() for name, value in self.parameters.items() if budget.average}
        self.wanted, self.waited, self.falls = math.inf, 0, 0
        """The error to improve on, evaluations since it was, and how often the rate has fallen."""

    def progress(self) -> dict[str, Any]:
        """What changes during the training."""
        return {
            "number": self.number, "parameters": self.parameters, "means": self.means,
            "optimizer": self.optimizer.state_dict(), **{name: getattr(self, name) for name in PROGRESS_OF_RUN},
        }  # fmt: skip

    @torch.no_grad()
    def restore(self, progress: Mapping[str, Any]) -> None:
        """Be as when :meth:`progress` was called."""
        for name in PROGRESS_OF_RUN:
            setattr(self, name, progress[name])
        self.optimizer.load_state_dict(progress["optimizer"])
        for own, values in ((self.parameters, progress["parameters"]), (self.means, progress["means"])):
            for name, value in own.items():
                value.copy_(values[name])

    @torch.no_grad()
    def move(self, stack: FilterStack, slot: int) -> None:
        """Go on in a slot, with the parameters as they are."""
        self.stack, self.slot = stack, slot
        stack.place(slot, self.member.model)  # its buffers
        for name, values in stack.named_parameters().items():
            # storage that is shared with the stack, so that a step of the optimizer is one of the stack
            own = values.detach()[slot]
            own.copy_(self.parameters[name])
            self.parameters[name].data = own

    def batch(self) -> Batch:
        """The records of the next step."""
        return gather(self.member.data.split.train, self.plan.at(self.step))

    def advance(self, loss: Tensor) -> None:
        """A step of the optimizer, with the gradients that the stack has; none if loss or gradient are not finite."""
        member, options, rule = self.member, self.member.experiment.optimizer, self.budget.rule
        step = self.step
        self.step += 1
        if member.failed_at is not None:
            return
        for name, value in self.stack.named_parameters().items():
            self.parameters[name].grad = None if value.grad is None else value.grad[self.slot]
        norm = nn.utils.clip_grad_norm_(
            [parameter for group in self.optimizer.param_groups for parameter in group["params"]],
            math.inf if options.clip is None else options.clip,
        )
        if not bool(loss.isfinite() & norm.isfinite()):
            if rule is not None and self.rate is not None and member.restarts < rule.restarts:
                member.restarts += 1
                self._return(self.rate * rule.factor)
            else:
                member.failed_at = step
            return
        if self.rate is not None:
            warmup = Plateau().warmup if rule is None else rule.warmup
            for group in self.optimizer.param_groups:
                factor = group["initial_lr"] / options.learning_rate
                group["lr"] = factor * self.rate * min(1.0, (step + 1) / warmup)
        self.optimizer.step()
        if self.rate is None:
            self.schedule.step()
        # over a tenth of the steps so far, and at most over those of the budget
        weight = max(1 / max(1, self.budget.average), 10 / (10 + step))
        with torch.no_grad():
            for name, mean in self.means.items():
                mean.lerp_(self.parameters[name], weight)

    def is_due(self) -> bool:
        """Whether this is a step after which the member is validated."""
        trainer = self.member.experiment.trainer
        return self.step % trainer.validate_every == 0 or self.step >= trainer.steps

    def note(self, error: float) -> None:
        """A validation error: keep the parameters if it is the least one, and follow the rule of the budget."""
        member = self.member
        if member.failed_at is not None:
            return
        member.history.append({"step": self.step, "val_mse": error})
        if error < member.best:
            member.best, member.best_step = error, self.step
            if self.step:
                member.model = _with_values(member.model, self.means or self.parameters)
        rule = self.budget.rule
        if rule is None or not self.step:
            return
        improved = error < self.wanted
        self.waited = 0 if improved else self.waited + 1
        self.wanted = (1 - rule.gain) * min(error, member.best) if improved else self.wanted
        member.converged = self.waited >= rule.patience and self.falls >= rule.falls
        if not member.converged and self.waited >= rule.patience and self.rate is not None:
            self.falls += 1
            self._return(self.rate * rule.factor)

    @torch.no_grad()
    def _return(self, rate: float) -> None:
        """Back to the best parameters, with another rate."""
        self.waited, self.rate = 0, rate
        best = dict(self.member.model.named_parameters())
        for values in (self.parameters, self.means):
            for name, value in values.items():
                value.copy_(best[name])

    def has_ended(self) -> bool:
        member = self.member
        return self.step >= member.experiment.trainer.steps or bool(member.converged) or member.failed_at is not None

    def finish(self) -> None:
        self.member.steps = self.step if self.member.failed_at is None else self.member.failed_at
        # copies: its parameters are part of the stack, where the slot is used again
        self.member.ended = copy.deepcopy(self.progress())

    @contextlib.contextmanager
    def averaged(self) -> Iterator[None]:
        """Within it the stack holds the means of the parameters."""
        kept = {name: self.parameters[name].detach().clone() for name in self.means}
        try:
            self._hold(self.means)
            yield
        finally:
            self._hold(kept)

    @torch.no_grad()
    def _hold(self, values: dict[str, Tensor]) -> None:
        for name, value in values.items():
            self.parameters[name].copy_(value)


def _stack(cache: Cache, members: Sequence[Member], size: int) -> tuple[FilterStack, CompiledSteps]:
    """The stack with so many slots: that of an earlier call if there is one."""
    config = members[0].model.config
    if any(stack.model.config != config for stack, _ in cache.stacks.values()):
        cache.stacks.clear()
    if size not in cache.stacks:
        stack = FilterStack([members[0].model] * size)  # the members take their places when they begin
        cache.stacks[size] = stack, CompiledSteps(stack)
    return cache.stacks[size]


def _check(experiments: Sequence[Experiment]) -> None:
    def common(experiment: Experiment) -> str:
        terms = [{**dict(term), "weight": None} for term in experiment.loss]
        trainer = dataclasses.replace(experiment.trainer, steps=1)
        plain = dataclasses.replace(experiment, seed=0, name="group", trainer=trainer).as_dict()
        return json.dumps({**plain, "loss": terms}, sort_keys=True, default=str)

    first = experiments[0]
    for experiment in experiments:
        if common(experiment) != common(first):
            raise ConfigError(
                f"experiments {first.name!r} and {experiment.name!r} differ in more than seed, steps and weights "
                "of the loss; train them one by one"
            )
    options = first.trainer
    faults = [
        f"trainer.{name} = {getattr(options, name)!r}"
        for name, neutral in UNSUPPORTED.items()
        if getattr(options, name) != neutral
    ]
    if faults:
        raise ConfigError(f"filters cannot be trained together with {', '.join(faults)}; train them one by one")


def _prepare(experiments: Sequence[Experiment], cache: Cache, say: Say) -> list[Member]:
    """Members with their records and untrained filters; those that differ in loss or batches share both."""
    members = []
    for experiment in experiments:
        values = {**experiment.as_dict(), "loss": None, "name": None}
        values["trainer"] = {name: value for name, value in values["trainer"].items() if name not in UNPREPARED}
        same = json.dumps(values, sort_keys=True, default=str)
        if same not in cache.prepared:
            data = load_data(experiment)
            begin = time.process_time()
            train, folder = data.split.train, cache.regressions
            model = (
                prepare_filter(experiment, train, say) if folder is None else prepare(experiment, train, folder, say)
            )
            cache.prepared[same] = data, model, time.process_time() - begin
        data, model, seconds = cache.prepared[same]
        members.append(Member(experiment, data, model, seconds))
        if model.config != members[0].model.config:
            raise ConfigError(f"the filter of experiment {experiment.name!r} has another config than the first")
    return members


def _again(members: Sequence[Member], experiments: Sequence[Experiment]) -> list[Member]:
    """Members that have ended, with the experiments they go on with."""
    for member, experiment in zip(members, experiments, strict=True):
        member.experiment = experiment
    return list(members)


class Objective:
    """The losses of the members in the slots of a stack on their batches, each with its own weights."""

    def __init__(
        self, experiments: Sequence[Experiment], stack: FilterStack, steps: CompiledSteps | None = None
    ) -> None:
        terms = [parse_terms(experiment.loss, experiment.name)[0] for experiment in experiments]
        # a term that some member uses is computed for all, also where its weight is zero
        used = [max(column, key=lambda term: term.weight) for column in zip(*terms, strict=True)]
        columns = [number for number, term in enumerate(used) if term.weight > 0]
        self.terms = WeightedSum([(str(number), used[number]) for number in columns])
        self.own = torch.tensor([[own[number].weight for number in columns] for own in terms], dtype=stack.model.dtype)
        self.weights = self.own[torch.arange(stack.size) % len(experiments)]
        """Weights of the terms for each slot."""
        self.stack, self.experiments, self.steps = stack, experiments, steps
        if steps is not None and experiments[0].trainer.truncate is not None:
            raise ConfigError("trainer.truncate is not for compiled steps")

    def place(self, slot: int, number: int) -> None:
        """Let a slot have the weights of an experiment."""
        self.weights[slot] = self.own[number]

    def __call__(self, batches: Sequence[Batch], step: int) -> Tensor:
        """The loss of each slot on its batch."""
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


def _validate(stack: FilterStack, running: Mapping[int, Run], slots: Sequence[int]) -> None:
    """Let the members in some slots note their validation errors."""
    other = next(iter(running.values()))
    records = [running.get(slot, other).member.data.split.val for slot in range(stack.size)]
    with contextlib.ExitStack() as held:
        for slot in slots:
            held.enter_context(running[slot].averaged())
        estimates = _estimates(stack, records)
    for slot in slots:
        val = records[slot]
        valid = val.truth.isfinite().all(-1)
        errors = residual(val.layout, estimates[slot].double(), val.truth.double())
        running[slot].note(float(mse(errors[valid])))


def _with_values(model: Filter, values: Mapping[str, Tensor]) -> Filter:
    copied = copy.deepcopy(model)
    copied.load_state_dict({**copied.state_dict(), **values})
    return copied


@torch.no_grad()
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
