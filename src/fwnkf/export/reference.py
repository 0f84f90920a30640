"""Inputs with gaps and irregular steps, and what the filter in float64 computes from them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core.tree import named_leaves
from ..filters.base import Filter
from ..types import StepOutput
from .trace import StepProgram, example_inputs

MASKED = 0.2
"""Share of the channels that are missing; half of these are NaN, which must not be read."""


class Sample(NamedTuple):
    """The inputs of one step, the state after it and its outputs, all in float64."""

    inputs: dict[str, Tensor]
    state: list[tuple[str, Tensor]]
    out: StepOutput


def run(program: StepProgram, steps: int, seed: int = 0) -> Iterator[Sample]:
    """``update``, then ``step``, of the traced filter in float64, from the default prior.

    A measurement is the predicted one plus a sample of the innovation's covariance, so that the filter stays where it
    is meant to be; where a preprocessing reads raw samples, or the innovation is latent, it is standard normal.
    """
    model: Filter = copy.deepcopy(program.model).double()
    shapes = {name: value.shape for name, value in example_inputs(model).items()}
    generator = torch.Generator().manual_seed(seed)

    def normal(shape: Any) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    follows = model.preprocess is None and not model.latent_innovations
    nominal = float(getattr(model.config, "dt", None) or getattr(model.system, "dt", None) or 0.01)
    with torch.no_grad():
        state, prepared = model.init(1), model.prepare()
        predicted, factor = torch.zeros(shapes["y"], dtype=torch.float64), None
        for count in range(steps):
            y = normal(shapes["y"])
            if follows and factor is not None:
                y = predicted + (factor @ y.unsqueeze(-1)).squeeze(-1)
            mask = torch.rand(shapes["y"], generator=generator) >= MASKED
            hidden = ~mask & (torch.rand(shapes["y"], generator=generator) < 0.5)
            inputs = {"y": torch.where(hidden, torch.nan, y.float().double()), "mask": mask}
            if program.takes_control:
                inputs["u"] = normal(shapes["u"]).float().double()
            if program.takes_dt:
                spread = torch.rand(shapes["dt"], generator=generator, dtype=torch.float64)
                inputs["dt"] = (nominal * (0.5 + spread)).float().double()
            method = model.step if count else model.update
            state, out = method(state, **inputs, prepared=prepared)
            if follows:
                predicted = torch.where(mask, y.float().double() - out.innovation, predicted)
                factor = torch.linalg.cholesky_ex(out.innovation_cov)[0]
            yield Sample(inputs, [(name.replace(".", "_"), leaf) for name, leaf in named_leaves(state)], out)
