"""The step of a filter compiled to native code.

The step has no data-dependent branches and does not use ``nn.GRU``, so it compiles as one graph. The compiled step uses
the parameters at the time of compilation: it is for running a trained filter, not for training.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..core.tree import Template, flat_function
from ..filters.base import Filter
from ..types import StepOutput

CompiledStep = Callable[..., tuple[Any, StepOutput]]
SMALL = 512
"""Products with at most this many multiplications become part of the kernels around them: a call would cost more."""


def compile_step(model: Filter, *, dynamic: bool = False) -> CompiledStep:
    """Compile the step of a trained filter, for streams of measurements.

    It is compiled on the first call, which takes tens of seconds for each batch size. On the CPU a C++ compiler is
    needed.

    Args:
        model: the filter; its parameters are those at the time of compilation.
        dynamic: compile once for all batch sizes, which runs slower.

    Returns:
        A function ``step(state, y, u=None, mask=None, dt=None)`` that computes the same as ``model.step``, without
        gradients.

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

    # torch keeps eight versions of a code object at most: each filter has a copy of its own
    step.__code__ = step.__code__.replace()
    compiled = torch.compile(step, fullgraph=True, dynamic=dynamic, options=_options(model))

    def call(*arguments: Any, **named: Any) -> tuple[Any, StepOutput]:
        with torch.no_grad():
            return compiled(*arguments, **named)

    return call


def _options(model: Filter) -> dict[str, Any]:
    # the C++ wrapper avoids Python calls between kernels, a third of the time at batch size 1; CPU only. Frozen weights
    # are laid out once as the products want them, which takes a tenth of the time at batch size 128.
    return {"cpp_wrapper": True, "freezing": True} if model.device.type == "cpu" else {}


class CompiledTree:
    """A pure function of trees of tensors, compiled for each signature of its arguments: which are None, and shapes.

    The function is traced to a flat graph and compiled without a look at Python objects in every call, which takes a
    quarter of the time of ``torch.compile`` at batch size 1; and small products are written out.
    """

    def __init__(self, function: Callable[..., Any], model: Filter) -> None:
        self.function, self.model = function, model
        self._known: dict[Any, tuple[Callable[..., Any], Template, Template]] = {}

    @torch.no_grad()
    def __call__(self, *arguments: Any) -> Any:
        key = tuple([_shape(item) for item in arguments])
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._compile(arguments)
        compiled, given, result = known
        # compiled for these strides
        leaves = [leaf if leaf.is_contiguous() else leaf.contiguous() for leaf in given.leaves(arguments)]
        return result.tree(compiled(*leaves))

    def _compile(self, arguments: tuple[Any, ...]) -> tuple[Callable[..., Any], Template, Template]:
        from torch._inductor import compile as compile_graph
        from torch.fx.experimental.proxy_tensor import make_fx

        given = Template(arguments)
        flat, results = flat_function(self.function, given)
        leaves = [leaf.contiguous() for leaf in given.leaves(arguments)]
        graph = make_fx(flat, decomposition_table=_small_products())(*leaves)
        for node in graph.graph.nodes:
            node.meta.clear()  # shapes under a tracing mode of its own, which the compiler does not accept
        examples: list[Any] = list(leaves)
        return compile_graph(graph, examples, options=_options(self.model)), given, results[0]


def _shape(tree: Any) -> Any:
    """The shape of the first leaf: all parts of a state have the same batch."""
    while isinstance(tree, tuple):
        tree = tree[0] if tree else None
    return None if tree is None else tree.shape


def _small_products() -> dict[Any, Callable[..., Any]]:
    def product(a: Tensor, b: Tensor) -> Any:
        if a.shape[-2] * a.shape[-1] * b.shape[-1] > SMALL:
            return NotImplemented
        return (a.unsqueeze(-1) * b.unsqueeze(-3)).sum(-2)

    def added(c: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
        result = product(a, b)
        return result if result is NotImplemented else beta * c + alpha * result

    aten = torch.ops.aten
    return {aten.mm.default: product, aten.bmm.default: product, aten.baddbmm.default: added}
