"""The loop over time, used by every filter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint as recompute

from ..errors import ConfigError
from .tree import named_leaves, tree_map, tree_unflatten

Body = Callable[[Any, Sequence[Tensor | None]], tuple[Any, Any]]


def scan(
    body: Body,
    state: Any,
    inputs: Sequence[Tensor | None],
    *,
    first: Body | None = None,
    truncate: int | None = None,
    checkpoint: int | None = None,
) -> tuple[Any, Any]:
    """Call ``state, out = body(state, inputs_t)`` for every step and stack the outputs along axis 1.

    ``first`` replaces ``body`` in the first step.

    ``inputs`` are tensors ``[B, T, …]`` or None (passed on). ``truncate=k`` detaches the state between blocks of
    ``k`` steps. ``checkpoint=k`` stores only the state between blocks of ``k`` steps and recomputes the others in the
    backward pass, which takes the memory of one block and about twice the time; more where Jacobians are derived
    automatically, because they are then computed in forward mode.
    """
    length = length_of(inputs)
    for name, value in (("truncate", truncate), ("checkpoint", checkpoint)):
        if value is not None and value < 1:
            raise ConfigError(f"{name} = {value} is not a number of steps; use a positive integer or None")
    columns = [None if item is None else item.unbind(1) for item in inputs]
    steps = [[None if column is None else column[t] for column in columns] for t in range(length)]

    outputs: list[Any] = []
    bodies = (body if first is None else first, body)
    block = checkpoint or truncate or length
    for start in range(0, length, block):
        if truncate is not None and start > 0 and start % truncate == 0:
            state = tree_map(torch.Tensor.detach, state)
        chunk = steps[start : start + block]
        if checkpoint is not None and torch.is_grad_enabled():
            state, collected = recompute(_run_block, bodies, state, chunk, truncate, start, use_reentrant=False)
        else:
            state, collected = _run_block(bodies, state, chunk, truncate, start)
        outputs += collected
    leaves = zip(*([leaf for _, leaf in named_leaves(out)] for out in outputs), strict=True)
    # outputs that are None (no control, no dt) stay None
    stacked: list[Any] = [None if leaf[0] is None else torch.stack(leaf, 1) for leaf in leaves]
    return state, tree_unflatten(outputs[0], iter(stacked))


def length_of(inputs: Sequence[Tensor | None]) -> int:
    """The number of steps of tensors ``[B, T, …]``; raises ConfigError if there is none, or if they differ."""
    lengths = {item.shape[1] for item in inputs if item is not None}
    if len(lengths) != 1:
        raise ConfigError(f"all inputs must have the same number of steps (axis 1); got {sorted(lengths)}")
    (length,) = lengths
    if length == 0:
        raise ConfigError("the inputs have no steps (axis 1 is empty); give at least one sample")
    return length


def _run_block(
    bodies: tuple[Body, Body], state: Any, steps: Sequence[Sequence[Tensor | None]], truncate: int | None, start: int
) -> tuple[Any, list[Any]]:
    collected = []
    for offset, inputs in enumerate(steps):
        if truncate is not None and offset > 0 and (start + offset) % truncate == 0:
            state = tree_map(torch.Tensor.detach, state)
        state, out = bodies[start + offset > 0](state, inputs)
        collected.append(out)
    return state, collected
