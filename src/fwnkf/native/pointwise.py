"""Elementwise operators: their C, what is known of them during export, and the choice between entries and loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .builder import SCALAR_LIMIT, Builder
from .values import Array, Constant, Kind, Lazy, Scalars, Value, is_number, literal

SPARSE_SHARE = 0.25
"""Share of entries that may be unknown where scalars are added to an array entry by entry."""


class Operator(NamedTuple):
    """An elementwise operator: C with ``{0}``, ``{1}``; its value for numbers; the kind of its result."""

    template: str
    compute: Callable[..., Any]
    kind: Kind | None = None
    """None: that of the arguments."""


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def _power(x: float, y: float) -> float:
    return float(np.power(np.float64(x), y))


def _divide(x: float, y: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.float64(x) / np.float64(y))


OPERATORS: dict[str, Operator] = {
    "add": Operator("{0} + {1}", lambda x, y: x + y),
    "sub": Operator("{0} - {1}", lambda x, y: x - y),
    "mul": Operator("{0} * {1}", lambda x, y: x * y),
    "div": Operator("{0} / {1}", _divide, "real"),
    "neg": Operator("-{0}", lambda x: -x),
    "abs": Operator("FABS({0})", abs),
    "sqrt": Operator("SQRT({0})", lambda x: math.sqrt(x) if x >= 0 else math.nan, "real"),
    "exp": Operator("EXP({0})", lambda x: math.exp(min(x, 709.0)), "real"),
    "log": Operator("LOG({0})", lambda x: math.log(x) if x > 0 else -math.inf if x == 0 else math.nan, "real"),
    "log1p": Operator("LOG1P({0})", math.log1p, "real"),
    "expm1": Operator("EXPM1({0})", math.expm1, "real"),
    "sin": Operator("SIN({0})", math.sin, "real"),
    "cos": Operator("COS({0})", math.cos, "real"),
    "tan": Operator("TAN({0})", math.tan, "real"),
    "asin": Operator("ASIN({0})", math.asin, "real"),
    "acos": Operator("ACOS({0})", math.acos, "real"),
    "atan": Operator("ATAN({0})", math.atan, "real"),
    "atan2": Operator("ATAN2({0}, {1})", math.atan2, "real"),
    "tanh": Operator("TANH({0})", math.tanh, "real"),
    "sigmoid": Operator("SIGMOID({0})", _sigmoid, "real"),
    "round": Operator("RINT({0})", round),
    "floor": Operator("FLOOR({0})", math.floor),
    "relu": Operator("larger({0}, R(0.0))", lambda x: max(x, 0.0)),
    "elu": Operator("elu({0})", lambda x: x if x > 0 else math.expm1(x), "real"),
    "minimum": Operator("smaller({0}, {1})", min),
    "maximum": Operator("larger({0}, {1})", max),
    "pow": Operator("POW({0}, {1})", _power, "real"),
    "remainder": Operator("modulo({0}, {1})", lambda x, y: x % y),
    "int_remainder": Operator("int_modulo({0}, {1})", lambda x, y: x % y),
    "lerp": Operator("lerp({0}, {1}, {2})", lambda a, b, w: a + w * (b - a) if abs(w) < 0.5 else b - (b - a) * (1 - w)),
    "where": Operator("{0} ? {1} : {2}", lambda c, x, y: x if c else y),
    "lt": Operator("{0} < {1}", lambda x, y: x < y, "bool"),
    "le": Operator("{0} <= {1}", lambda x, y: x <= y, "bool"),
    "gt": Operator("{0} > {1}", lambda x, y: x > y, "bool"),
    "ge": Operator("{0} >= {1}", lambda x, y: x >= y, "bool"),
    "eq": Operator("{0} == {1}", lambda x, y: x == y, "bool"),
    "ne": Operator("{0} != {1}", lambda x, y: x != y, "bool"),
    "and": Operator("{0} & {1}", lambda x, y: x & y),
    "or": Operator("{0} | {1}", lambda x, y: x | y),
    "xor": Operator("{0} ^ {1}", lambda x, y: x ^ y),
    "not": Operator("!{0}", lambda x: not x, "bool"),
    "to_real": Operator("(real){0}", float, "real"),
    "to_int": Operator("(int64_t){0}", int, "int"),
    "to_bool": Operator("{0} != 0", bool, "bool"),
    "isfinite": Operator("({0} - {0}) == 0", math.isfinite, "bool"),
}


def promoted(*kinds: Kind) -> Kind:
    """The kind of an expression of several."""
    return "real" if "real" in kinds else "int" if "int" in kinds else "bool"


def as_value(item: Any) -> Value:
    """A tensor as it is, a number as one without axes."""
    return item if isinstance(item, Constant | Scalars | Array | Lazy) else scalar(item)


def scalar(item: Any) -> Scalars:
    """A number or a name as a tensor without axes."""
    kind: Kind = "bool" if isinstance(item, bool) else "int" if isinstance(item, int) else "real"
    items = np.empty((), object)
    items[()] = item
    return Scalars(items, kind)


def pointwise(build: Builder, name: str, *arguments: Any) -> Value:
    """An operator on tensors and numbers, broadcast to one shape."""
    operator = OPERATORS[name]
    values = [build.form(as_value(item)) for item in arguments]
    shape = np.broadcast_shapes(*(value.shape for value in values))
    operands = values[1:] if name == "where" else values
    inner = promoted(*(value.kind for value in operands))
    if name in ("sub", "add", "mul", "neg") and inner == "bool":
        inner = "int"
    kind = operator.kind or inner
    size = int(np.prod(shape))
    if size == 0:
        return Scalars(np.empty(shape, object), kind)
    known = [value for value in values if isinstance(value, Scalars)]
    count = size
    if name == "mul":
        full = [np.broadcast_to(value.nonzero, shape) for value in known]
        count = int(np.count_nonzero(np.logical_and.reduce(full))) if full else size
    elif len(known) == len(values):
        count = _unknown(name, known, shape)
    if count <= SCALAR_LIMIT:
        return _by_entry(build, name, values, shape, inner, kind)
    if name in ("add", "sub") and len(values) == 2 and len(known) == 1:
        dense = np.count_nonzero(np.broadcast_to(known[0].nonzero, shape))
        if dense <= SPARSE_SHARE * size and known[0].single is None:
            return _sparse_sum(build, name, values, shape)
    leaves: list[Scalars | Array | Lazy] = []
    for value in values:
        if isinstance(value, Scalars):
            # without axes: views of expressions change the strides of their arrays
            same = value.single is not None
            leaves.append(Scalars(scalar(value.single).items, inner) if same else build.array(value))
        else:
            leaves.append(value)
    if all(isinstance(value, Scalars) for value in leaves):  # large, but the same everywhere
        return _by_entry(build, name, leaves, (), inner, kind).view(lambda a: np.broadcast_to(a, shape))
    return Lazy(operator.template, tuple(leaves), tuple(shape), kind)


def _unknown(name: str, values: list[Scalars], shape: tuple[int, ...]) -> int:
    """Number of entries for which code must be written."""
    items = [np.broadcast_to(value.items, shape).flat for value in values]
    return sum(isinstance(folded(name, list(entry)), Call) for entry in zip(*items, strict=True))


class Call(NamedTuple):
    """An operator with arguments of which the value is not known."""

    name: str
    arguments: tuple[Any, ...]


def folded(name: str, arguments: list[Any]) -> Any:
    """A number or a name if the result is known to be one, else a :class:`Call`."""
    if all(is_number(item) for item in arguments):
        return OPERATORS[name].compute(*arguments)
    if name == "where" and is_number(arguments[0]):
        return arguments[1] if arguments[0] else arguments[2]
    if name == "where" and arguments[1] is arguments[2]:
        return arguments[1]
    if name == "lerp" and is_number(arguments[2]) and arguments[2] in (0, 1):
        return arguments[1] if arguments[2] else arguments[0]
    if len(arguments) == 2:
        first, second = arguments
        zero = [is_number(item) and item == 0 for item in arguments]
        one = [is_number(item) and item == 1 for item in arguments]
        if name == "mul" and any(zero):
            return 0.0
        if name == "mul" and any(one):
            return second if one[0] else first
        if name == "mul" and any(is_number(item) and item == -1 for item in arguments):
            return Call("neg", (second if is_number(first) else first,))
        if name == "add" and any(zero):
            return second if zero[0] else first
        if name == "sub" and zero[1]:
            return first
        if name == "sub" and zero[0]:
            return Call("neg", (second,))
        if name == "div" and zero[0]:
            return 0.0
        if name == "div" and one[1]:
            return first
        if name in ("and", "or") and any(isinstance(item, bool) for item in arguments):
            number, other = (first, second) if is_number(first) else (second, first)
            return (other if number else False) if name == "and" else (True if number else other)
    return Call(name, tuple(arguments))


def entry(build: Builder, name: str, arguments: list[Any], inner: Kind, kind: Kind) -> Any:
    """One entry of an operator: a number, or the name of a variable."""
    result = folded(name, arguments)
    if not isinstance(result, Call):
        return result
    parts = [
        literal(item, "bool" if result.name == "where" and place == 0 else inner)
        for place, item in enumerate(result.arguments)
    ]
    return build.define(OPERATORS[result.name].template.format(*parts), kind)


def _by_entry(build: Builder, name: str, values: list[Any], shape: tuple[int, ...], inner: Kind, kind: Kind) -> Scalars:
    items = np.empty(shape, object)
    sources = []
    for value in values:
        if name == "mul" and not isinstance(value, Scalars):
            sources.append(value)  # entries that are multiplied by zero are never read
        else:
            sources.append(np.broadcast_to(build.scalars(value).items, shape))
    if any(not isinstance(source, np.ndarray) for source in sources):
        wanted = np.logical_and.reduce(
            [np.broadcast_to(value.nonzero, shape) for value in values if isinstance(value, Scalars)]
            or [np.ones(shape, bool)]
        )
        sources = [source if isinstance(source, np.ndarray) else _chosen(build, source, wanted) for source in sources]
    for place in np.ndindex(*shape):
        items[place] = entry(build, name, [source[place] for source in sources], inner, kind)
    return Scalars(items, kind)


def _chosen(build: Builder, value: Array | Lazy, wanted: np.ndarray) -> np.ndarray:
    """The entries where ``wanted``, zero elsewhere."""
    items = np.zeros(wanted.shape, object)
    full = value.view(lambda a: np.broadcast_to(a, wanted.shape))
    for place in zip(*np.nonzero(wanted), strict=True) if wanted.shape else [()]:
        items[place] = build.scalars(full.view(lambda a, place=place: a[(*place, ...)])).items[()]  # type: ignore[misc]
    return items


def _sparse_sum(build: Builder, name: str, values: list[Any], shape: tuple[int, ...]) -> Array:
    """A sum where one term is zero nearly everywhere: the other one, then the few entries that differ."""
    scalars_first = isinstance(values[0], Scalars)
    known, other = (values[0], values[1]) if scalars_first else (values[1], values[0])
    other = other.view(lambda a: np.broadcast_to(a, shape))
    if name == "sub" and scalars_first:
        other = Lazy("-{0}", (other,), tuple(shape), "real")
    result = build.realize(other)
    sign = "-" if name == "sub" and not scalars_first else "+"
    items = np.broadcast_to(known.items, shape)
    lines = [
        f"@{result.buffer.key}[{result.index[place]}] {sign}= {literal(items[place], 'real')};"
        for place in zip(*np.nonzero(np.broadcast_to(known.nonzero, shape)), strict=True)
    ]
    build.block("\n".join(lines), result.buffer)
    return result
