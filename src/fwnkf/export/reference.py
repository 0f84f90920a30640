"""Inputs with gaps and irregular steps, and what the filter in PyTorch computes from them."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core.gaussian import safe_cholesky
from ..core.tree import named_leaves
from ..filters.base import Filter
from ..types import StepOutput
from .trace import StepProgram, example_inputs, state_names

GOLDEN_STEPS = 50
MASKED = 0.2
"""Share of the channels that are missing; half of these are NaN, which must not be read."""
LARGEST = 1e6
"""A filter that is fed with its own predictions may grow without bound; it starts anew here."""


class Sample(NamedTuple):
    """The inputs of one step, the state after it and its outputs, all in one precision."""

    inputs: dict[str, Tensor]
    state: list[tuple[str, Tensor]]
    out: StepOutput
    fresh: bool
    """Whether it is the first one after ``init``, which is an update."""


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
    nominal = float(getattr(model.config, "dt", None) or getattr(model.system, "dt", None) or 0.01)
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
            state, out = (model.update if fresh else model.step)(state, **inputs, prepared=prepared)
            if follows:
                predicted = torch.where(mask, given(y) - out.innovation, predicted).double()
                factor = safe_cholesky(out.innovation_cov.double())[0]
            leaves = [leaf for _, leaf in named_leaves(state)]
            yield Sample(inputs, list(zip(names, leaves, strict=True)), out, fresh)
            fresh = not all(bool((leaf.abs() <= LARGEST).all()) for leaf in leaves if leaf.is_floating_point())
            if fresh:
                state, predicted, factor = model.init(1), torch.zeros_like(predicted), None


def golden(program: StepProgram, dtype: torch.dtype = torch.float64) -> list[Sample]:
    """A few steps from ``init`` on, for files."""
    samples = run(program, GOLDEN_STEPS, dtype=dtype)
    return [next(samples), *itertools.takewhile(lambda sample: not sample.fresh, samples)]
