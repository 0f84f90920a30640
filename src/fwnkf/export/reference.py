"""Inputs of a comparison, drawn or recorded, and what the filter in PyTorch computes from them."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core.gaussian import safe_cholesky
from ..core.tree import named_leaves
from ..errors import ConfigError, ShapeError
from ..filters.base import Filter
from ..filters.inputs import batched_prior
from ..shapes import Bool, Float
from ..types import Gaussian, StepOutput
from .trace import StepProgram, example_inputs, state_names

GOLDEN_STEPS = 50
MASKED = 0.2
"""Share of the channels that are missing; half of these are NaN, which must not be read."""
LARGEST = 1e6
"""A filter that is fed with its own predictions may grow without bound; it starts anew here."""


class Record(NamedTuple):
    """Consecutive samples of a recording."""

    y: Float[Tensor, "T m"]
    mask: Bool[Tensor, "T m"] | None = None
    """True where a channel was measured; by default everywhere."""
    u: Float[Tensor, "T p"] | None = None
    dt: Float[Tensor, " T"] | None = None
    """Seconds since the sample before; by default the nominal step of the filter."""
    prior: Gaussian | None = None
    """Belief at the first sample; by default that of the filter one step before, from the first samples if it can."""


class Sample(NamedTuple):
    """The inputs of one step, the state after it and its outputs, all in one precision."""

    inputs: dict[str, Tensor]
    state: list[tuple[str, Tensor]]
    out: StepOutput
    fresh: bool
    """Whether it is the first one after ``init``."""
    method: str
    """``update`` or ``step``."""
    prior: Gaussian | None = None
    """What ``init`` starts from, if it is not the default prior."""


def run(program: StepProgram, steps: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Iterator[Sample]:
    """``update``, then ``step``, of the traced filter in PyTorch, from the default prior.

    A measurement is the predicted one plus a sample of the innovation's covariance, so that the filter stays where it
    is meant to be; where a preprocessing reads raw samples, or the innovation is latent, it is standard normal. Where a
    number of the state exceeds ``LARGEST``, the filter starts anew from its prior.
    """
    model: Filter = copy.deepcopy(program.model).to(dtype)
    shapes = {name: value.shape for name, value in example_inputs(model).items()}
    generator = torch.Generator().manual_seed(seed)

    def normal(shape: Any) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    def given(value: Tensor) -> Tensor:
        return value.float().to(dtype)  # the same numbers in both precisions

    follows = model.preprocess is None and not model.latent_innovations
    nominal = _nominal(model)
    with torch.no_grad():
        state, prepared = model.init(1), model.prepare()
        names = state_names(state)
        predicted, factor, fresh = torch.zeros(shapes["y"], dtype=torch.float64), None, True
        for _ in range(steps):
            y = normal(shapes["y"])
            if follows and factor is not None:
                y = predicted + (factor @ y.unsqueeze(-1)).squeeze(-1)
            mask = torch.rand(shapes["y"], generator=generator) >= MASKED
            hidden = ~mask & (torch.rand(shapes["y"], generator=generator) < 0.5)
            inputs = {"y": torch.where(hidden, torch.nan, given(y)), "mask": mask}
            if program.takes_control:
                inputs["u"] = given(normal(shapes["u"]))
            if program.takes_dt:
                spread = torch.rand(shapes["dt"], generator=generator, dtype=torch.float64)
                inputs["dt"] = given(nominal * (0.5 + spread))
            method = "update" if fresh else "step"
            state, out = getattr(model, method)(state, **inputs, prepared=prepared)
            if follows:
                predicted = torch.where(mask, given(y) - out.innovation, predicted).double()
                factor = safe_cholesky(out.innovation_cov.double())[0]
            leaves = [leaf for _, leaf in named_leaves(state)]
            yield Sample(inputs, list(zip(names, leaves, strict=True)), out, fresh, method)
            fresh = not all(bool((leaf.abs() <= LARGEST).all()) for leaf in leaves if leaf.is_floating_point())
            if fresh:
                state, predicted, factor = model.init(1), torch.zeros_like(predicted), None


def replay(
    program: StepProgram, steps: int, records: Sequence[Record], dtype: torch.dtype = torch.float64
) -> Iterator[Sample]:
    """The filter over at most ``steps`` steps of recordings, as :meth:`~fwnkf.Filter.run` starts it with each."""
    model: Filter = copy.deepcopy(program.model).to(dtype)
    shapes = {name: value.shape[1:] for name, value in example_inputs(model).items()}
    count = 0
    with torch.no_grad():
        prepared = model.prepare()
        for record in records:
            prior = _prior(model, record)
            state = model.init(1, prior)
            names = state_names(state)
            for t, inputs in enumerate(_steps_of(program, record, shapes, _nominal(model), dtype)):
                if count == steps:
                    return
                method = "step" if t or record.prior is None else "update"
                state, out = getattr(model, method)(state, **inputs, prepared=prepared)
                leaves = [leaf for _, leaf in named_leaves(state)]
                yield Sample(inputs, list(zip(names, leaves, strict=True)), out, t == 0, method, prior)
                count += 1


def _prior(model: Filter, record: Record) -> Gaussian | None:
    """Where a record starts, in numbers that single precision has too; None for the default prior."""
    prior = record.prior
    if prior is None:
        u, dt = (None if item is None else item.float().to(model.dtype)[None] for item in (record.u, record.dt))
        mask = None if record.mask is None else record.mask[None]
        prior = model.initial_belief(record.y.float().to(model.dtype)[None], u, mask, dt)
    if prior is None:
        return None
    prior = Gaussian(*(part.detach().cpu().float().to(model.dtype) for part in prior))
    if prior.mean.shape[-1] < model.layout.size and model.system is not None:
        prior = model.system.complete_prior(prior)
    single = batched_prior(model.name, prior, 1, model.layout, prior.mean)
    return Gaussian(single.mean[0], single.cov[0])


def _steps_of(
    program: StepProgram, record: Record, shapes: dict[str, torch.Size], nominal: float, dtype: torch.dtype
) -> Iterator[dict[str, Tensor]]:
    """The inputs of each step of a record, in single precision: the same numbers in both."""
    shape = shapes["y"]
    block = shape[0] if len(shape) > 1 else 1
    mask = torch.ones_like(record.y, dtype=torch.bool) if record.mask is None else record.mask
    given = {"y": record.y, "mask": mask}
    if program.takes_control:
        if record.u is None:
            raise ConfigError("the filter has control inputs, and the recording has none: u is missing")
        given["u"] = record.u
    if program.takes_dt:
        given["dt"] = torch.full((len(record.y),), nominal / block) if record.dt is None else record.dt
    length = len(record.y) // block
    steps: dict[str, Tensor] = {}
    for name, value in given.items():
        wanted = (len(record.y), *shapes[name][1 if block > 1 else 0 :])
        if value.shape != wanted:
            raise ShapeError(f"{name} of the recording has the shape {list(value.shape)}; wanted {list(wanted)}")
        rows = value[: length * block].detach().cpu().reshape(length, *shapes[name])
        steps[name] = rows if name == "mask" else rows.float().to(dtype)
    for t in range(length):
        yield {name: value[t : t + 1] for name, value in steps.items()}


def _nominal(model: Filter) -> float:
    return float(getattr(model.config, "dt", None) or getattr(model.system, "dt", None) or 0.01)


def golden(program: StepProgram, dtype: torch.dtype = torch.float64) -> list[Sample]:
    """A few steps from ``init`` on, for files."""
    samples = run(program, GOLDEN_STEPS, dtype=dtype)
    return [next(samples), *itertools.takewhile(lambda sample: not sample.fresh, samples)]
