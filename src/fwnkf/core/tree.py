"""Operations on nested tuples of tensors, the form of every filter state. Strings and layouts stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from ..shapes import Bool
from .layout import Layout

CONSTANT = (str, Layout)
"""What a tree may hold besides tensors."""


def _rebuild(like: tuple[Any, ...], items: list[Any]) -> Any:
    return type(like)(*items) if hasattr(like, "_fields") else tuple(items)


def tree_map(function: Callable[[Tensor], Tensor], tree: Any) -> Any:
    """Apply ``function`` to every tensor; the nesting stays the same."""
    if isinstance(tree, tuple):
        return _rebuild(tree, [tree_map(function, item) for item in tree])
    return tree if isinstance(tree, CONSTANT) else function(tree)


def named_leaves(tree: Any, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor with its dotted name: ``belief.mean``, ``hidden.0``."""
    if not isinstance(tree, tuple):
        if not isinstance(tree, CONSTANT):
            yield prefix, tree
        return
    fields = getattr(tree, "_fields", range(len(tree)))
    for name, item in zip(fields, tree, strict=True):
        yield from named_leaves(item, f"{prefix}.{name}" if prefix else str(name))


def tree_leaves(tree: Any) -> list[Tensor]:
    """Every tensor, in the order of :func:`named_leaves`; None is left out.

    >>> import torch
    >>> tree_leaves((torch.zeros(1), (torch.ones(1), None)))
    [tensor([0.]), tensor([1.])]
    """
    found, waiting = [], [tree]
    while waiting:
        item = waiting.pop()
        if isinstance(item, tuple):
            waiting.extend(reversed(item))
        elif item is not None and not isinstance(item, CONSTANT):
            found.append(item)
    return found


def tree_unflatten(like: Any, leaves: Iterator[Tensor]) -> Any:
    """New tensors, in the order of :func:`named_leaves`, in the nesting of ``like``."""
    if isinstance(like, tuple):
        return _rebuild(like, [tree_unflatten(item, leaves) for item in like])
    return like if isinstance(like, CONSTANT) else next(leaves)


def tree_select(condition: Bool[Tensor, " B"], yes: Any, no: Any) -> Any:
    """Each batch item from one of two trees of tensors."""
    if isinstance(no, tuple):
        return _rebuild(no, [tree_select(condition, a, b) for a, b in zip(yes, no, strict=True)])
    if yes is no or yes is None or isinstance(yes, CONSTANT):
        return yes
    return torch.where(condition.view(-1, *[1] * (yes.ndim - 1)), yes, no)


class Template:
    """The nesting of a tree, found once, for a loop in which looking at it again would cost more than the tensors.

    >>> import torch
    >>> tree = (torch.zeros(1), (torch.ones(1), None))
    >>> template = Template(tree)
    >>> leaves = template.leaves(tree)
    >>> len(leaves), template.tree([leaf + 1 for leaf in leaves])
    (2, (tensor([1.]), (tensor([2.]), None)))
    """

    def __init__(self, like: Any) -> None:
        self._paths: list[tuple[int, ...]] = []
        self.tree: Callable[[Sequence[Tensor]], Any] = self._builder(like, ())

    @property
    def count(self) -> int:
        """Number of tensors."""
        return len(self._paths)

    def leaves(self, tree: Any) -> list[Tensor]:
        """The tensors of a tree of this nesting, in order."""
        found = []
        for path in self._paths:
            item = tree
            for index in path:
                item = item[index]
            found.append(item)
        return found

    def _builder(self, like: Any, path: tuple[int, ...]) -> Callable[[Sequence[Tensor]], Any]:
        if like is None:
            return lambda leaves: None
        if not isinstance(like, tuple):
            self._paths.append(path)
            return itemgetter(len(self._paths) - 1)
        parts = [self._builder(item, (*path, index)) for index, item in enumerate(like)]
        if not hasattr(like, "_fields"):
            return lambda leaves: tuple([part(leaves) for part in parts])
        kind = type(like)
        return lambda leaves: kind(*[part(leaves) for part in parts])


def flat_function(function: Callable[..., Any], given: Template) -> tuple[Callable[..., list[Tensor]], list[Template]]:
    """A function of trees as one of their tensors, for compilers; the list holds the nesting of its last result.

    >>> import torch
    >>> flat, results = flat_function(lambda a, b: (a[0] + b, None), Template(((torch.ones(1),), torch.ones(1))))
    >>> flat(torch.ones(1), torch.ones(1)), results[0].count
    ([tensor([2.])], 1)
    """
    results: list[Template] = []

    def flat(*tensors: Tensor) -> list[Tensor]:
        found = function(*given.tree(tensors))
        results[:] = [Template(found)]
        return [leaf.contiguous() for leaf in results[0].leaves(found)]

    return flat, results
