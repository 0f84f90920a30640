"""Operations on nested tuples of tensors, the form of every filter state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor


def _rebuild(like: tuple[Any, ...], items: list[Any]) -> Any:
    return type(like)(*items) if hasattr(like, "_fields") else tuple(items)


def tree_map(function: Callable[[Tensor], Tensor], tree: Any) -> Any:
    """Apply ``function`` to every tensor; the nesting stays the same."""
    if isinstance(tree, tuple):
        return _rebuild(tree, [tree_map(function, item) for item in tree])
    return function(tree)


def named_leaves(tree: Any, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor with its dotted name: ``belief.mean``, ``hidden.0``."""
    if not isinstance(tree, tuple):
        yield prefix, tree
        return
    fields = getattr(tree, "_fields", range(len(tree)))
    for name, item in zip(fields, tree, strict=True):
        yield from named_leaves(item, f"{prefix}.{name}" if prefix else str(name))


def tree_unflatten(like: Any, leaves: Iterator[Tensor]) -> Any:
    """New tensors, in the order of :func:`named_leaves`, in the nesting of ``like``."""
    if isinstance(like, tuple):
        return _rebuild(like, [tree_unflatten(item, leaves) for item in like])
    return next(leaves)
