"""A limit on the memory and the number of operations that the construction of a module may take.

A configuration from outside can ask for a network of a million layers or a state of a billion components. Inside a
:class:`Budget` every call of torch is counted, and tensors are not allocated if they exceed what is left.

The meta device would compute all shapes without any memory, but importing its operators takes two seconds, and a
constructor that reads a value of a tensor fails on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..errors import FwnkfError

SIZED = (torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn)
SIZED_LIKE = (Tensor.new_empty, Tensor.new_zeros, Tensor.new_ones, Tensor.new_full)
SQUARED = (torch.diag, Tensor.diag, torch.diag_embed, Tensor.diag_embed, torch.outer, Tensor.outer)
LARGEST_ELEMENT = 8
"""Bytes of the largest dtype that is counted."""


class BudgetExceededError(FwnkfError):
    """A construction asked for more memory or operations than allowed."""


class Budget(TorchFunctionMode):
    """Count the calls of torch inside the ``with`` block and the bytes of their results; raise above the limits.

    >>> with Budget(100_000, 100):
    ...     tensor = torch.zeros(10**6, 10**6)
    Traceback (most recent call last):
        ...
    fwnkf.core.budget.BudgetExceededError: it would take more than 100,000 bytes of memory
    """

    def __init__(self, bytes_limit: int, operations_limit: int) -> None:
        super().__init__()
        self.bytes_limit, self.operations_limit = bytes_limit, operations_limit
        self.bytes = self.operations = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.operations += 1
        if self.operations > self.operations_limit:
            raise BudgetExceededError(f"it would take more than {self.operations_limit:,} operations to construct")
        if self.bytes + LARGEST_ELEMENT * requested(func, args, kwargs) > self.bytes_limit:
            raise BudgetExceededError(f"it would take more than {self.bytes_limit:,} bytes of memory")
        result = func(*args, **kwargs)
        if isinstance(result, Tensor):
            # the size of the storage, which views do not add to; not a method of the tensor, which would be counted
            self.bytes += 0 if result._base is not None else math.prod(result.shape) * LARGEST_ELEMENT
        return result


def requested(func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> int:
    """An upper estimate of the number of elements that a call allocates, without making it.

    >>> requested(torch.eye, (3,), {}), requested(torch.zeros, (2, 5), {}), requested(torch.zeros, ((2, 5),), {})
    (9, 10, 10)
    """
    if func in SIZED:
        return _count(kwargs.get("size", args))
    if func in SIZED_LIKE:
        return _count(kwargs.get("size", args[1:]))
    if func is torch.eye:
        sizes = (*args, *(kwargs[name] for name in ("n", "m") if name in kwargs))
        return sizes[0] * sizes[-1] if sizes else 0
    if func in (torch.arange, torch.linspace, torch.logspace):
        return max((abs(item) for item in (*args, *kwargs.values()) if isinstance(item, int)), default=0)
    if func in (torch.tril_indices, torch.triu_indices):
        return 2 * _count(args)
    inputs = [math.prod(item.shape) for item in args if isinstance(item, Tensor)]
    if func in SQUARED:
        return max(inputs, default=0) ** 2
    if func is Tensor.repeat:
        return inputs[0] * _count(args[1:])
    return max(inputs, default=0)  # also the copy of an expanded view


def _count(sizes: Any) -> int:
    """The number of elements of a tensor of these sizes, given one by one or as a sequence."""
    first = sizes[0] if isinstance(sizes, (tuple, list)) and sizes else sizes
    sequence = first if isinstance(first, (tuple, list)) else sizes if isinstance(sizes, (tuple, list)) else (sizes,)
    return math.prod(abs(size) for size in sequence if isinstance(size, int))
