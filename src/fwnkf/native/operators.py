"""The table of ATen operators, and those that are elementwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .builder import Builder
from .pointwise import as_value, pointwise
from .values import KINDS, Lazy, Value

Handler = Callable[..., Any]
HANDLERS: dict[str, Handler] = {}
"""Handlers by the name of the operator; arguments are the builder and the arguments of the operator."""


def handles(*names: str, library: str = "aten") -> Callable[[Handler], Handler]:
    def add(function: Handler) -> Handler:
        for name in names:
            HANDLERS[f"{library}.{name}"] = function
        return function

    return add


def _direct(name: str) -> Handler:
    return lambda build, *arguments, **_: pointwise(build, name, *arguments)


def _of_truth(name: str) -> Handler:
    def handler(build: Builder, *arguments: Any) -> Value:
        return pointwise(build, name, *(_truth(build, item) for item in arguments))

    return handler


def _truth(build: Builder, x: Any) -> Any:
    return x if as_value(x).kind == "bool" else pointwise(build, "to_bool", x)


for _name in ("neg", "abs", "sqrt", "exp", "log", "log1p", "expm1", "sin", "cos", "tan", "asin", "acos", "atan"):
    handles(f"{_name}.default")(_direct(_name))
for _name in ("atan2", "tanh", "sigmoid", "round", "floor", "relu", "minimum", "maximum"):
    handles(f"{_name}.default")(_direct(_name))
for _name in ("mul", "lt", "le", "gt", "ge", "eq", "ne"):
    handles(f"{_name}.Tensor", f"{_name}.Scalar")(_direct(_name))
for _name in ("and", "or", "xor"):
    handles(f"bitwise_{_name}.Tensor", f"bitwise_{_name}.Scalar")(_direct(_name))
    handles(f"logical_{_name}.default")(_of_truth(_name))
handles("div.Tensor", "div.Scalar")(_direct("div"))
handles("where.self", "where.ScalarOther", "where.ScalarSelf")(_direct("where"))
handles("logical_not.default")(_of_truth("not"))
handles("lerp.Tensor", "lerp.Scalar")(_direct("lerp"))
handles("isfinite.default")(_direct("isfinite"))


@handles("bitwise_not.default")
def _bitwise_not(build: Builder, x: Value) -> Value:
    return pointwise(build, "not", x) if x.kind == "bool" else pointwise(build, "xor", x, -1)


@handles("add.Tensor", "add.Scalar")
def _add(build: Builder, x: Any, y: Any, alpha: float = 1) -> Value:
    return pointwise(build, "add", x, y if alpha == 1 else pointwise(build, "mul", y, alpha))


@handles("sub.Tensor", "sub.Scalar")
def _sub(build: Builder, x: Any, y: Any, alpha: float = 1) -> Value:
    return pointwise(build, "sub", x, y if alpha == 1 else pointwise(build, "mul", y, alpha))


@handles("rsub.Scalar", "rsub.Tensor")
def rsub(build: Builder, x: Any, y: Any, alpha: float = 1) -> Value:
    return _sub(build, y, x, alpha)


@handles("addcmul.default")
def _addcmul(build: Builder, x: Any, y: Any, z: Any, value: float = 1) -> Value:
    product = pointwise(build, "mul", y, z)
    if value == -1:
        return pointwise(build, "sub", x, product)
    return pointwise(build, "add", x, product if value == 1 else pointwise(build, "mul", product, value))


@handles("reciprocal.default")
def _reciprocal(build: Builder, x: Value) -> Value:
    return pointwise(build, "div", 1.0, x)


@handles("rsqrt.default")
def _rsqrt(build: Builder, x: Value) -> Value:
    return pointwise(build, "div", 1.0, pointwise(build, "sqrt", x))


@handles("square.default")
def _square(build: Builder, x: Value) -> Value:
    return _pow(build, x, 2)


@handles("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def _pow(build: Builder, x: Any, y: Any) -> Value:
    if isinstance(y, int | float) and y in (1, 2, 3, 4):
        x = once(build, x)
        result = x
        for _ in range(int(y) - 1):
            result = pointwise(build, "mul", result, x)
        return result
    if isinstance(y, int | float) and y in (0.5, -0.5, -1):
        root = pointwise(build, "sqrt", x) if abs(y) == 0.5 else x
        return root if y > 0 else pointwise(build, "div", 1.0, root)
    return pointwise(build, "pow", x, y)


def once(build: Builder, x: Any) -> Any:
    """A value that is used several times, computed once."""
    return build.realize(x) if isinstance(x, Lazy) else x


@handles("clamp.default", "clamp_min.default", "clamp.Tensor", "clamp_min.Tensor")
def _clamp(build: Builder, x: Value, low: Any = None, high: Any = None) -> Value:
    x = x if low is None else pointwise(build, "maximum", x, low)
    return x if high is None else pointwise(build, "minimum", x, high)


@handles("clamp_max.default", "clamp_max.Tensor")
def _clamp_max(build: Builder, x: Value, high: Any) -> Value:
    return pointwise(build, "minimum", x, high)


@handles("elu.default")
def _elu(build: Builder, x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    if (alpha, scale, input_scale) != (1, 1, 1):
        raise NotImplementedError("elu with scales")
    return pointwise(build, "elu", x)


@handles("softplus.default")
def _softplus(build: Builder, x: Value, beta: float = 1, threshold: float = 20) -> Value:
    if beta != 1:
        raise NotImplementedError("softplus with a scale")
    x = once(build, x)
    grown = pointwise(build, "log1p", pointwise(build, "exp", pointwise(build, "minimum", x, threshold)))
    return pointwise(build, "where", pointwise(build, "gt", x, threshold), x, grown)


@handles("remainder.Scalar", "remainder.Tensor")
def _remainder(build: Builder, x: Value, y: Any) -> Value:
    integers = x.kind != "real" and as_value(y).kind != "real"
    return pointwise(build, "int_remainder" if integers else "remainder", x, y)


@handles("tanh_backward.default")
def _tanh_backward(build: Builder, gradient: Value, result: Value) -> Value:
    result = once(build, result)
    return pointwise(build, "mul", gradient, rsub(build, pointwise(build, "mul", result, result), 1.0))


@handles("sigmoid_backward.default")
def _sigmoid_backward(build: Builder, gradient: Value, result: Value) -> Value:
    result = once(build, result)
    slope = pointwise(build, "mul", result, rsub(build, result, 1.0))
    return pointwise(build, "mul", gradient, slope)


@handles("logit.default")
def _logit(build: Builder, x: Value, eps: float | None = None) -> Value:
    if eps is not None:
        x = _clamp(build, x, eps, 1 - eps)
    x = once(build, x)
    return pointwise(build, "log", pointwise(build, "div", x, rsub(build, x, 1.0)))


@handles("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(build: Builder, x: Value, mask: Value, value: Any) -> Value:
    return pointwise(build, "where", mask, value, x)


@handles("_to_copy.default")
def _to_copy(build: Builder, x: Value, dtype: torch.dtype | None = None, **_: Any) -> Value:
    wanted = x.kind if dtype is None else KINDS[dtype]
    return x if wanted == x.kind else pointwise(build, f"to_{wanted}", x)


@handles("clone.default", "alias.default", "detach.default", "lift_fresh_copy.default", "contiguous.default")
def _same(build: Builder, x: Value, **_: Any) -> Value:
    return x
