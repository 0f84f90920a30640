"""A filter's step compiled to native code by torch.compile.

The step branches on no data and calls no ``nn.GRU``, so it compiles whole. The compiled step holds for the parameters
at the time of the call: it is meant for running a trained filter, not for training one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..filters.base import Filter
from ..types import StepOutput

CompiledStep = Callable[..., tuple[Any, StepOutput]]


def compile_step(model: Filter, *, dynamic: bool = False) -> CompiledStep:
    """``step(state, y, u=None, mask=None, dt=None)`` like ``model.step``, compiled on first call.

    Compilation takes tens of seconds for each batch size (``dynamic=True`` compiles once for all, and runs slower).
    No gradients flow through it.
    """
    with torch.no_grad():
        prepared = model.prepare()
    # the C++ wrapper saves the Python call between fused kernels, a third of the time at batch 1; CPU only
    on_cpu = model._like().device.type == "cpu"
    options: dict[str, Any] = {"cpp_wrapper": True} if on_cpu else {}

    def step(
        state: Any, y: Tensor, u: Tensor | None = None, mask: Tensor | None = None, dt: Tensor | None = None
    ) -> tuple[Any, StepOutput]:
        return model.step(state, y, u, mask, dt, prepared=prepared)

    compiled = torch.compile(step, fullgraph=True, dynamic=dynamic, options=options)

    def call(*arguments: Any, **named: Any) -> tuple[Any, StepOutput]:
        with torch.no_grad():
            return compiled(*arguments, **named)

    return call
