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


def observed(*tensors: Tensor) -> bool:
    """Whether something besides the CPU or GPU follows the operators on tensors: a tracer, ``torch.func``, a mode.

    >>> observed(torch.ones(2)), torch.func.vmap(lambda x: x * observed(x))(torch.ones(2))
    (False, tensor([1., 1.]))
    """
    return (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None
        or any(type(item) not in (Tensor, torch.nn.Parameter) or item.is_meta for item in tensors)
    )
