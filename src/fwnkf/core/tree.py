"""Operations on nested tuples of tensors, the form of every filter state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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


class Template:
    """The nesting of a tree as straight code, for a loop in which a recursion would cost more than the tensors.

    >>> import torch
    >>> tree = (torch.zeros(1), (torch.ones(1), None))
    >>> template = Template(tree)
    >>> leaves = template.leaves(tree)
    >>> len(leaves), template.tree([leaf + 1 for leaf in leaves])
    (2, (tensor([1.]), (tensor([2.]), None)))
    """

    def __init__(self, like: Any) -> None:
        self._kinds: dict[str, Any] = {}
        self._places: list[str] = []
        built = self._code(like, "tree")
        # only indices and names made here are evaluated
        self.leaves: Callable[[Any], list[Tensor]] = eval(f"lambda tree: [{', '.join(self._places)}]")
        self.tree: Callable[[Sequence[Tensor]], Any] = eval(f"lambda leaf: {built}", self._kinds)

    def _code(self, like: Any, place: str) -> str:
        if like is None:
            return "None"
        if not isinstance(like, tuple):
            self._places.append(place)
            return f"leaf[{len(self._places) - 1}]"
        items = "".join(f"{self._code(item, f'{place}[{i}]')}, " for i, item in enumerate(like))
        if not hasattr(like, "_fields"):
            return f"({items})"
        name = f"kind_{len(self._kinds)}"
        self._kinds[name] = type(like)
        return f"{name}({items})"
