"""The step of a filter compiled to native code by ``torch.compile``.

The step has no data-dependent branches and does not use ``nn.GRU``, so it compiles as one graph. The compiled step uses
the parameters at the time of compilation: it is for running a trained filter, not for training.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..filters.base import Filter
from ..types import StepOutput

CompiledStep = Callable[..., tuple[Any, StepOutput]]


def compiler_available() -> bool:
    """Whether there is a C++ compiler, which ``torch.compile`` needs on the CPU."""
    return any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "c++", "clang++", "cl"))


def compile_step(model: Filter, *, dynamic: bool = False) -> CompiledStep:
    """Compile the step of a trained filter, for streams of measurements.

    Returns a function ``step(state, y, u=None, mask=None, dt=None)`` that computes the same as ``model.step``, without
    gradients. It is compiled on the first call, which takes tens of seconds for each batch size; ``dynamic=True``
    compiles once for all batch sizes and runs slower. On the CPU a C++ compiler is needed.

    >>> import torch, fwnkf
    >>> eye = torch.eye(2)
    >>> model = fwnkf.build("kf", F=eye, H=eye, Q=0.1 * eye, R=eye)
    >>> step, state = fwnkf.compile_step(model), model.init(1)
    >>> for y in torch.zeros(3, 1, 2):  # doctest: +SKIP
    ...     state, output = step(state, y)
    """
    with torch.no_grad():
        prepared = model.prepare()

    def step(
        state: Any, y: Tensor, u: Tensor | None = None, mask: Tensor | None = None, dt: Tensor | None = None
    ) -> tuple[Any, StepOutput]:
        return model.step(state, y, u, mask, dt, prepared=prepared)

    return compiled_function(step, model, dynamic=dynamic)


def compiled_function(function: Callable[..., Any], model: Filter, *, dynamic: bool = False) -> Callable[..., Any]:
    """A pure function of tensors on the device of a filter, compiled as one graph and called without gradients."""
    # the C++ wrapper avoids Python calls between kernels, a third of the time at batch size 1; CPU only
    options: dict[str, Any] = {"cpp_wrapper": True} if model.device.type == "cpu" else {}
    compiled = torch.compile(function, fullgraph=True, dynamic=dynamic, options=options)

    def call(*arguments: Any, **named: Any) -> Any:
        with torch.no_grad():
            return compiled(*arguments, **named)

    return call
