"""From a traced graph to statements."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from ..errors import ConfigError
from . import linear_algebra, reductions, views  # noqa: F401  # they add their operators to the table
from .builder import REFERENCE, VARIABLE, Builder, Statement
from .graph import Field, Graph
from .operators import HANDLERS
from .values import KINDS, Array, Constant, Lazy, Scalars, Value


@dataclass
class Lowered:
    """The statements of a function, and its results by name; each is in memory or a set of scalars."""

    build: Builder
    results: list[tuple[Field, Scalars | Array]]
    statements: list[Statement]


def lower(graph: Graph, names: dict[str, str], build: Builder) -> Lowered:
    """Statements that compute the results of a graph; ``names`` are the C expressions of its arguments."""
    values: dict[Node, Any] = {}
    inputs = iter(graph.inputs)
    for node in graph.module.graph.nodes:
        if node.op == "placeholder":
            field = next(inputs)
            buffer = build.buffer(field.size, KINDS[field.dtype], names[field.name])
            values[node] = buffer.whole((1, *field.shape))
        elif node.op == "get_attr":
            item = graph.constant(str(node.target))
            values[node] = Constant(item.detach()) if isinstance(item, torch.Tensor) else item
        elif node.op == "call_function":
            values[node] = _call(build, node, values)
        else:
            results = [values[item] for item in node.args[0]]
    finished: list[tuple[Field, Scalars | Array]] = []
    for field, value in zip(graph.outputs, results, strict=True):
        formed = build.form(value)
        finished.append((field, build.realize(formed) if isinstance(formed, Lazy) else formed))
    return Lowered(build, finished, build.statements)


def _call(build: Builder, node: Node, values: dict[Node, Any]) -> Any:
    arguments: Any = torch.fx.node.map_arg(node.args, lambda item: values[item])
    options: Any = torch.fx.node.map_arg(node.kwargs, lambda item: values[item])
    if node.target is operator.getitem:
        return arguments[0][arguments[1]]
    found = _tensors((*arguments, *options.values()))
    target: Any = node.target
    if all(isinstance(item, Constant) for item in found):
        plain: Any = torch.fx.node.map_aggregate((arguments, options), _plain)
        return _constant(target(*plain[0], **plain[1]))
    handler = HANDLERS.get(str(target))
    if handler is None:
        raise ConfigError(
            f"the step uses the operator {target}, for which there is no C here; "
            "write it with other operators, or export to onnx"
        )
    try:
        result = handler(build, *arguments, **options)
    except NotImplementedError as error:
        raise ConfigError(f"the step uses {target} in a form for which there is no C here: {error}") from error
    if isinstance(result, Lazy) and len(node.users) > 1:
        return build.realize(result)
    return result


def _tensors(items: Any) -> list[Value]:
    found = []
    for item in items:
        if isinstance(item, list | tuple):
            found += _tensors(item)
        elif isinstance(item, Constant | Scalars | Array | Lazy):
            found.append(item)
    return found


def _plain(item: Any) -> Any:
    return item.tensor if isinstance(item, Constant) else item


def _constant(result: Any) -> Any:
    if isinstance(result, tuple | list):
        return tuple(_constant(item) for item in result)
    return Constant(result.detach())


def live(statements: list[Statement], used: set[str], buffers: set[int]) -> list[Statement]:
    """The statements that the given variables and buffers depend on."""
    kept = []
    for statement in reversed(statements):
        needed = statement.defines in used if statement.defines else any(key in buffers for key in statement.writes)
        if needed:
            kept.append(statement)
            used |= set(VARIABLE.findall(statement.text))
            buffers |= {int(key) for key in REFERENCE.findall(statement.text)}
    return kept[::-1]


def allocate(statements: list[Statement], sizes: dict[int, int], end: set[int]) -> tuple[dict[int, int], int]:
    """Places of buffers in one scratch array, reused after their last use, and its size; ``end`` live to the end."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for place, statement in enumerate(statements):
        for key in statement.reads() & set(sizes):
            first.setdefault(key, place)
            last[key] = place
    for key in end & set(first):
        last[key] = len(statements)
    placed: dict[int, int] = {}
    total = 0
    # largest first: small buffers fill the gaps between large ones
    for key in sorted(first, key=lambda key: (-sizes[key], key)):
        taken = sorted(
            (placed[other], placed[other] + sizes[other])
            for other in placed
            if first[other] <= last[key] and first[key] <= last[other]
        )
        offset = 0
        for begin, stop in taken:
            if offset + sizes[key] <= begin:
                break
            offset = max(offset, stop)
        placed[key] = offset
        total = max(total, offset + sizes[key])
    return placed, total
