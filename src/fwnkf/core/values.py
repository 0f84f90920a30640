"""Values of tensors where Python may read them."""

from __future__ import annotations

import torch
from torch import Tensor

from ..shapes import Bool


def truth(condition: Bool[Tensor, ""]) -> bool:
    """Whether a condition is true; False where it has no value to read: while a program is traced, and in vmap.

    >>> truth(torch.tensor(True)), torch.func.vmap(lambda x: x * truth(x > 0))(torch.ones(2))
    (True, tensor([0., 0.]))
    """
    return readable(condition) and bool(condition)


def readable(value: Tensor) -> bool:
    """Whether Python can read a tensor of one number."""
    if torch.compiler.is_compiling():
        return False
    try:
        value.item()
    except RuntimeError:  # of torch.func.vmap and of tracers, which name no type of their own
        return False
    return True
