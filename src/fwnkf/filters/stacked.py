"""Several filters that differ only in the values of their parameters, run together.

A small network leaves most of a processor idle between its kernels. Filters with the same config and data of the same
shape can share every kernel: parameters are stacked along a new first axis, and ``torch.vmap`` runs over it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

from ..errors import ConfigError
from .base import Filter

Result = TypeVar("Result")


class FilterStack:
    """Filters of one config with stacked parameters and buffers.

    >>> import fwnkf
    >>> eye = torch.eye(2)
    >>> system = fwnkf.LinearSystem.of(F=eye, H=eye, Q=eye, R=eye)
    >>> stack = FilterStack([fwnkf.build("kalmannet", system=system) for seed in range(3)])
    >>> stack.map(lambda model, y: model.run(y).mean, torch.zeros(3, 1, 5, 2)).shape
    torch.Size([3, 1, 5, 2])
    """

    def __init__(self, models: Sequence[Filter]) -> None:
        first = models[0]
        for number, model in enumerate(models):
            if type(model) is not type(first) or model.config != first.config:
                raise ConfigError(f"filter {number} of a stack has another config than the first; run it by itself")
        self.model = copy.deepcopy(first)
        """The filter that calls are made on; its own values are not used."""
        self._call = _Call(self.model)
        parameters, self._buffers = stack_module_state([_Call(model) for model in models])
        fixed = {name for name, parameter in self._call.named_parameters() if not parameter.requires_grad}
        self._parameters = {
            name: value.detach().requires_grad_(name not in fixed) for name, value in parameters.items()
        }
        self.size = len(models)

    def named_parameters(self) -> dict[str, Tensor]:
        """The stacked parameters, by the names they have in one filter."""
        return {name.removeprefix(PREFIX): value for name, value in self._parameters.items()}

    def map(self, function: Callable[..., Result], *inputs: Tensor) -> Result:
        """``function(model, *inputs)`` for every member; inputs and results have a first axis over members.

        ``function`` returns tensors, or tuples or dicts of them. Random numbers differ between members.
        """

        def single(parameters: dict[str, Tensor], buffers: dict[str, Tensor], *own: Tensor) -> Any:
            return functional_call(self._call, (parameters, buffers), (function, *own))

        mapped = torch.vmap(single, randomness="different")
        result: Result = mapped(self._parameters, self._buffers, *inputs)
        return result

    def values(self, member: int) -> dict[str, Tensor]:
        """A copy of the parameters of one member."""
        return {name: value[member].detach().clone() for name, value in self.named_parameters().items()}


PREFIX = "model."


class _Call(nn.Module):
    """Makes any function of a filter the ``forward`` of a module, which is what ``functional_call`` replaces."""

    def __init__(self, model: Filter) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Callable[..., Any], *inputs: Tensor) -> Any:
        return function(self.model, *inputs)
