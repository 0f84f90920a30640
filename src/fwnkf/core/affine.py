"""Affine recursions ``x_t = A_t x_{t-1} + u_t`` over all steps at once, without a loop of one step after the other.

Steps are cut into chunks that run side by side. With one ``A`` for all steps a chunk is one product with its impulse
response; otherwise it is a recursion of ``[A | u]`` over the steps inside the chunks. What a chunk makes of the value
before it then connects the chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from ..shapes import Float

RESPONSE = 16
"""Steps of the impulse response that one matrix product applies."""

CACHED = 30_000
"""Entries of a tensor up to which it stays in the cache of a core, and its memory is used again without new pages."""

AT_ONCE = 2**22
"""Entries of a tensor that other devices compute at once, which bounds the memory beside that of the result."""


def groups(steps: int, entries: int, like: Tensor) -> list[slice]:
    """Steps in groups that are computed at once, where a step has tensors of so many ``entries``."""
    length = max(1, (4 * CACHED if like.device.type == "cpu" else AT_ONCE) // entries)
    return [slice(start, min(start + length, steps)) for start in range(0, steps, length)]


def constant_recursion(
    A: Float[Tensor, "n n"], u: Float[Tensor, "B T n"], start: Float[Tensor, "B n"]
) -> Float[Tensor, "B T n"]:
    """``x_t = A x_{t-1} + u_t`` from ``x_{-1} = start``, by products with blocks of the impulse response.

    >>> constant_recursion(torch.full((1, 1), 0.5), torch.zeros(1, 3, 1), torch.ones(1, 1)).flatten()
    tensor([0.5000, 0.2500, 0.1250])
    """
    batch, steps, n = u.shape
    size = min(RESPONSE, steps)
    powers = _powers(A.mT, size)  # of rows times matrices: A to the 0 … size
    count = -(-steps // size)
    blocks = torch.nn.functional.pad(u, (0, 0, 0, count * size - steps)).reshape(batch * count, size * n)
    place = torch.arange(size, device=A.device)
    lag = place - place.unsqueeze(-1)  # from the row of the input to the column of the output
    response = torch.where((lag >= 0)[..., None, None], powers[lag.clamp_min(0)], 0.0)
    inside = (blocks @ response.transpose(1, 2).reshape(size * n, size * n)).view(batch, count, size, n)
    if count == 1:
        before = start.unsqueeze(1)
    else:
        ends = constant_recursion(powers[-1].mT, inside[:, :-1, -1], start)
        before = torch.cat((start.unsqueeze(1), ends), 1)
    ahead = (before @ powers[1:].transpose(0, 1).reshape(n, size * n)).view_as(inside)
    return (inside + ahead).view(batch, count * size, n)[:, :steps]


def _powers(A: Float[Tensor, "n n"], count: int) -> Float[Tensor, "k n n"]:
    """``A`` to the power of 0 … count, by doubling."""
    powers = torch.stack((torch.eye(A.shape[-1], dtype=A.dtype, device=A.device), A))
    while len(powers) <= count:
        powers = torch.cat((powers, powers[1:] @ powers[-1]))
    return powers[: count + 1]


class Chunks(NamedTuple):
    """How steps are cut: ``number`` chunks of ``length`` steps, of which the last one may be filled up."""

    number: int
    length: int

    def cut(self, item: Tensor) -> Tensor:
        """``[B, T, …]`` with time as chunks and steps inside them; what fills up the last chunk is zero."""
        missing = self.number * self.length - item.shape[1]
        if missing:
            item = torch.cat((item, item.new_zeros(item.shape[0], missing, *item.shape[2:])), 1)
        return item.unflatten(1, (self.number, self.length))


def chunks_of(steps: int, wide: bool, entries: int, connecting: float = 0.2) -> Chunks:
    """A number of chunks for which the calls inside chunks and those that connect them take about as long.

    ``connecting`` is the time to connect two chunks in units of that of one step inside. A batch that is ``wide``
    already keeps one chunk: side by side it would compute twice as much for nothing. ``entries`` is the size of what
    one step of one chunk computes, of which at most :data:`CACHED` are computed at once.
    """
    most = max(1, CACHED // entries)
    count = 1 if wide or steps < 16 else max(1, min(most, round((steps / connecting) ** 0.5)))
    length = -(-steps // count)
    return Chunks(-(-steps // length), length)


def varying_recursion(
    A: Float[Tensor, "b T n n"], u: Float[Tensor, "b T n k"], start: Float[Tensor, "b n k"]
) -> Float[Tensor, "b T n k"]:
    """``x_t = A_t x_{t-1} + u_t`` for ``k`` columns that share their ``A``, from ``x_{-1} = start``."""
    batch, steps, n, width = u.shape
    if A.device.type != "cpu":
        prefix = prefixes(_connect, Affine(A.transpose(0, 1), u.transpose(0, 1)))
        return (prefix.A @ start + prefix.u).transpose(0, 1)
    chunks = chunks_of(steps, wide=batch * width > 4 * n or batch >= 64, entries=batch * n * (n + width))
    if chunks.number == 1:
        x, found = start, []
        for factor, term in zip(A.unbind(1), u.unbind(1), strict=True):
            x = torch.baddbmm(term, factor, x)
            found.append(x)
        return torch.stack(found, 1)
    A, u = chunks.cut(A), chunks.cut(u)
    state = torch.cat((A[:, :, 0], u[:, :, 0]), -1).flatten(0, 1)
    inside = [state]
    for step in range(1, chunks.length):
        term = torch.nn.functional.pad(u[:, :, step], (n, 0)).flatten(0, 1)
        state = torch.baddbmm(term, A[:, :, step].flatten(0, 1), state)
        inside.append(state)
    before = [start]
    for end in state.unflatten(0, (batch, chunks.number)).unbind(1)[:-1]:
        before.append(torch.baddbmm(end[..., n:], end[..., :n], before[-1]))
    all_inside = torch.stack([item.unflatten(0, (batch, chunks.number)) for item in inside], 2)
    x = all_inside[..., :n] @ torch.stack(before, 1).unsqueeze(2) + all_inside[..., n:]
    return x.flatten(1, 2)[:, :steps]


class Affine(NamedTuple):
    """``x ↦ A x + u``."""

    A: Float[Tensor, "*T n n"]
    u: Float[Tensor, "*T n k"]


def _connect(first: Affine, then: Affine) -> Affine:
    return Affine(then.A @ first.A, then.A @ first.u + then.u)


Elements = TypeVar("Elements", bound=tuple[Tensor, ...])


def prefixes(combine: Callable[[Elements, Elements], Elements], elements: Elements) -> Elements:
    """The combinations of the first 1, 2, … of the elements on axis 0, in a depth that grows with the logarithm.

    Pairs of neighbours are combined, their prefixes found likewise, and the others follow from those by one more
    combination each: twice as many combinations as elements.
    """
    count = len(elements[0])
    if count == 1:
        return elements
    kind: Any = type(elements)
    make: Callable[..., Elements] = kind._make  # of a NamedTuple
    pair = count // 2 * 2
    even = make(item[0:pair:2] for item in elements)
    odd = make(item[1:pair:2] for item in elements)
    at_odd = prefixes(combine, combine(even, odd))
    at_even = elements
    if count > 2:
        ahead = make(item[2::2] for item in elements)
        at_even = combine(make(item[: len(ahead[0])] for item in at_odd), ahead)
    found = []
    for k, (one, odds) in enumerate(zip(elements, at_odd, strict=True)):
        evens = torch.cat((one[:1], at_even[k])) if count > 2 else one[:1]
        joined = torch.stack((evens[: len(odds)], odds), 1).flatten(0, 1)
        found.append(torch.cat((joined, evens[len(odds) :])) if count % 2 else joined)
    return make(found)
