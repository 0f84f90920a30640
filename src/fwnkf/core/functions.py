"""Plain functions as parts of a system: what a function takes is read from the names of its arguments.

A function is written for one state and called for batches by ``torch.vmap``: ``x`` is ``[n]``, a part of size one is a
scalar. A function that gives the same for leading axes of its own accord is called directly, which is faster.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor

from ..errors import ConfigError, ShapeError
from ..registry import as_tuples, limited
from ..shapes import Float
from .layout import Kind, Layout, Part

Parts = int | Layout | Mapping[str, Any] | Sequence[Any]
"""Sizes, names, kinds: ``3``, ``["px", "py"]`` or ``{"position": 3, "heading": "angle", "bearing": ("angle", 4)}``; or
parts, which may have an origin."""
Values = float | Tensor | Sequence[Any]


def parse_parts(parts: Parts, name: str) -> Layout:
    """The layout of a short description; a part is a size, a kind, or both.

    >>> parse_parts({"position": 2, "heading": "angle"}, "x").describe()
    (('position', 'euclidean', 2), ('heading', 'angle', 1))
    """
    if isinstance(parts, Layout):
        return parts
    if isinstance(parts, int):
        return Layout.euclidean(parts, name)
    items = parts.items() if isinstance(parts, Mapping) else [_name_and_form(part) for part in parts]
    layout = []
    for part_name, form in items:
        if isinstance(form, Part):
            layout.append(form)
            continue
        words = (form,) if isinstance(form, (str, int)) else tuple(form)
        kind = next((word for word in words if isinstance(word, str)), "euclidean")
        size = next((word for word in words if not isinstance(word, str)), 4 if kind == "quaternion" else 1)
        if kind not in get_args(Kind):
            raise ConfigError(f"part {part_name!r}: kind {kind!r} is none of {get_args(Kind)}")
        layout.append(Part(str(part_name), kind, int(size)))  # type: ignore[arg-type]
    repeated = sorted({part.name for part in layout if [other.name for other in layout].count(part.name) > 1})
    if repeated:
        raise ConfigError(f"{', '.join(repeated)}: named more than once; parts need different names")
    return Layout(tuple(layout))


def _name_and_form(part: Any) -> tuple[str, Any]:
    if isinstance(part, Part):
        return part.name, part
    return (part, 1) if isinstance(part, str) else (part[0], tuple(part[1:]) or 1)


class Argument(NamedTuple):
    """The source of one argument: ``x``, ``u``, ``dt`` or a constant, and the columns of a part of ``x`` or ``u``."""

    name: str
    source: str
    start: int = 0
    size: int = 0
    """Zero: all of the source."""

    def pick(self, inputs: Mapping[str, Tensor | None], constants: Mapping[str, Tensor]) -> Tensor | None:
        if self.source == "constant":
            return constants[self.name]
        value = inputs[self.source]
        if not self.size or value is None:
            return value
        return value[..., self.start] if self.size == 1 else value[..., self.start : self.start + self.size]


def sources(state: Layout, control: Layout | None, names: Iterable[str]) -> dict[str, Argument]:
    """The arguments that a function may have besides constants; ``names`` are those of ``x``, ``u``, ``dt``."""
    known = {name: Argument(name, name) for name in names}
    for source, layout in (("x", state), ("u", control)):
        if source not in known or layout is None:
            continue
        start = 0
        for part in layout.parts:
            # a layout without names of its own has one part, with the name of the whole
            if part.name in ("x", "u", "dt") and len(layout.parts) > 1:
                raise ConfigError(f"a part cannot be called {part.name!r}, which is an argument of its own; rename it")
            if part.name in known and part.name != source:
                raise ConfigError(f"{part.name!r} is a part of the state and a control; rename one of them")
            known.setdefault(part.name, Argument(part.name, source, start, part.size))
            start += part.size
    return known


@dataclass(frozen=True, eq=False)
class NamedFunction:
    """A function with the sources of its arguments; ``role`` is the name of the option it was given as."""

    function: Callable[..., Any]
    role: str
    arguments: tuple[Argument, ...]
    batched: bool = False
    """Whether the function takes leading axes itself."""

    @classmethod
    def read(
        cls, function: Callable[..., Any], role: str, known: Mapping[str, Argument]
    ) -> tuple[NamedFunction, dict[str, Any]]:
        """The function, and its constants with their default values (``inspect.Parameter.empty`` without one)."""
        arguments, constants = [], {}
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise ConfigError(f"{role}: argument {parameter} has no name that a value could be found by; name it")
            if name not in known:
                constants[name] = parameter.default
            arguments.append(known.get(name, Argument(name, "constant")))
        return cls(function, role, tuple(arguments)), constants

    def uses(self, source: str) -> bool:
        return any(argument.source == source for argument in self.arguments)

    def __call__(
        self,
        x: Float[Tensor, "*B n"] | None,
        u: Float[Tensor, "*B p"] | None,
        dt: Float[Tensor, "*C"] | None,
        constants: Mapping[str, Tensor],
        finish: Callable[[Any, Any], Tensor],
    ) -> Tensor:
        """``finish(result, x)`` of the function, for every item of the batch."""

        def evaluate(*values: Tensor) -> Tensor:
            inputs: dict[str, Tensor | None] = {"x": None, "u": None, "dt": None}
            inputs.update(zip(given, values, strict=True))
            result = self.function(**{item.name: item.pick(inputs, constants) for item in self.arguments})
            return finish(result, inputs["x"])

        given = {name: value for name, value in (("x", x), ("u", u), ("dt", dt)) if value is not None}
        lead = x.shape[:-1] if x is not None else dt.shape if dt is not None else ()
        if self.batched or not lead:
            return evaluate(*given.values())
        rows, axes = [], []
        for name, value in given.items():
            single = value.ndim == (0 if name == "dt" else 1)
            shape = lead if name == "dt" else (*lead, value.shape[-1])
            rows.append(value if single else value.expand(shape).flatten(0, len(lead) - 1))
            axes.append(None if single else 0)
        result = torch.vmap(evaluate, in_dims=tuple(axes))(*rows)
        return result if len(lead) == 1 else result.unflatten(0, lead)

    def with_batches(
        self,
        x: Float[Tensor, "A B n"],
        u: Float[Tensor, "A B p"] | None,
        dt: Float[Tensor, "A B"] | None,
        constants: Mapping[str, Tensor],
        finish: Callable[[Any, Any], Tensor],
    ) -> NamedFunction:
        """The function, called directly if this gives the same as ``vmap`` for two leading axes of these inputs."""
        direct = dataclasses.replace(self, batched=True)
        expected = self(x, u, dt, constants, finish)
        try:
            result = direct(x, u, dt, constants, finish)
        except Exception:  # whatever a function raises for shapes it is not written for
            return self
        # a wrong axis gives other numbers, not rounding errors
        close = result.shape == expected.shape and torch.allclose(result, expected, rtol=1e-4, atol=1e-6)
        return direct if close else self


def join(value: Any, sizes: Sequence[int], like: Tensor, role: str) -> Float[Tensor, "*B n"]:
    """The vector of a function's result: a tensor ``[..., n]``, or a tuple with a value for each part."""
    if isinstance(value, (tuple, list)):
        if len(value) != len(sizes):
            raise ShapeError(f"{role} returns {len(value)} values; wanted one for each of the {len(sizes)} parts")
        pieces = []
        for item, size in zip(value, sizes, strict=True):
            piece = torch.as_tensor(item, dtype=like.dtype, device=like.device)
            pieces.append((piece.unsqueeze(-1) if piece.ndim < like.ndim else piece).expand(*like.shape[:-1], size))
        return torch.cat(pieces, -1)
    if len(sizes) == 1 and isinstance(value, Tensor) and value.ndim == like.ndim - 1:
        value = value.unsqueeze(-1)
    if not isinstance(value, Tensor) or value.ndim < 1 or value.shape[-1] != sum(sizes):
        shape = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ShapeError(
            f"{role} returns {shape}; wanted {sum(sizes)} numbers for one state: a tensor, or a tuple of parts"
        )
    return value.to(like)


def covariance(value: Any, size: int, like: Tensor, role: str) -> Float[Tensor, "n n"]:
    """A covariance from a scalar or a vector of variances, or a matrix."""
    if isinstance(value, (tuple, list)):
        value = torch.stack([torch.as_tensor(item, dtype=like.dtype, device=like.device) for item in value])
    matrix = torch.as_tensor(value, dtype=like.dtype, device=like.device)
    if matrix.ndim < 2:
        matrix = torch.diag_embed(matrix.expand(size)) if matrix.ndim == 0 or len(matrix) == size else matrix
    if matrix.shape != (size, size):
        raise ShapeError(
            f"{role} has shape {list(matrix.shape)}; wanted a variance, {size} variances or a {size} x {size} matrix"
        )
    return matrix


def is_diagonal(value: Any) -> bool:
    """Whether a covariance is given as a variance or variances, and not as a matrix."""
    if isinstance(value, Tensor):
        return value.ndim < 2
    return not (isinstance(value, (tuple, list)) and isinstance(value[0], (tuple, list)))


def is_diagonal_matrix(value: Float[Tensor, "n n"]) -> bool:
    """Whether all entries off the diagonal are zero."""
    return not bool((value - value.diagonal().diag()).any())


def plain(value: Any, role: str) -> float | tuple[Any, ...]:
    """Numbers as they are stored in a config: a float, or nested tuples of floats."""
    try:
        numbers = torch.as_tensor(value, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{role} = {value!r}: wanted a number, an array of numbers, or a function") from error
    if not bool(numbers.isfinite().all()):
        raise ConfigError(f"{role} = {value!r} has entries that are not finite")
    return as_tuples(numbers.tolist())


def config_class(
    name: str, defaults: Mapping[str, Any], learnable: Sequence[str], positive: Sequence[str], kind: str = "system"
) -> type:
    """A frozen dataclass with these options; numbers stay numbers, arrays become tuples."""
    fields: list[Any] = []
    for option, value in defaults.items():
        limits = {"above": 0.0} if option in positive or option == "dt" else {}
        if option in ("Q", "R", "initial_mean", "initial_std"):
            form: Any = float | tuple[Any, ...] if value is not None else float | tuple[Any, ...] | None
        elif option == "learn":
            form = tuple[str, ...]
        else:
            form = type(value) if isinstance(value, (int, float)) else tuple[Any, ...]
        limits = {"min": 1, "max": 1000} if option == "substeps" else limits
        fields.append((option, form, limited(value, **limits) if limits else field(default=value)))

    def check(self: Any) -> None:
        unknown = [entry for entry in self.learn if entry not in learnable]
        if unknown:
            raise ConfigError(
                f"{kind} {name}: learn = {list(self.learn)}: {', '.join(unknown)} cannot be learned; "
                f"there are: {', '.join(learnable)}"
            )

    return dataclasses.make_dataclass(f"{name}Config", fields, frozen=True, namespace={"__post_init__": check})


@dataclass(frozen=True, eq=False)
class Definition:
    """Functions and layouts of a system: what is the same for all values of its config."""

    functions: Mapping[str, NamedFunction]
    """``f`` and ``h``; ``F``, ``H``, ``Q`` and ``R`` where they are functions."""
    state: Layout
    measurement: Layout
    control: Layout | None
    constants: tuple[str, ...]
    positive: tuple[str, ...]
    continuous: bool
    linear: bool = False
    """Whether ``f`` and ``h`` are said to be linear, without constant terms."""

    @property
    def takes_dt(self) -> bool:
        return self.continuous or self.functions["f"].uses("dt")


def define(
    functions: Mapping[str, Any],
    parts: Mapping[str, Parts | None],
    constants: Mapping[str, Any],
    positive: Sequence[str],
    continuous: bool,
) -> tuple[Definition, dict[str, Any]]:
    """Read the functions of a system; returns the definition and the numbers that are options of its config.

    ``Q`` and ``R`` among the functions may be numbers; a state or measurement without parts has as many components as
    they have.
    """
    noise = {key: plain(functions[key], key) for key in ("Q", "R") if not callable(functions[key])}
    state = _layout(parts["state"], noise.get("Q"), "state", "x")
    measurement = _layout(parts["measurement"], noise.get("R"), "measurement", "y")
    control = parse_parts(parts["control"], "u") if parts["control"] else None
    if control is not None and not control.flat:
        raise ConfigError("controls are Euclidean; give their names and sizes only")
    if continuous and functions["F"] is not None:
        raise ConfigError("F is the Jacobian of a discrete f; with continuous=True leave it out")
    moving = sources(state, control, ("x", "u") if continuous else ("x", "u", "dt"))
    seeing = sources(state, None, ("x",))
    spread = {} if continuous else sources(state, None, ("dt",))
    known_by_role = {"f": moving, "h": seeing, "F": moving, "H": seeing, "Q": spread, "R": {}}
    read, values = {}, {name: plain(value, name) for name, value in constants.items()}
    for role, known in known_by_role.items():
        if not callable(functions[role]):
            continue
        read[role], defaults = NamedFunction.read(functions[role], role, known)
        for name, default in defaults.items():
            if name in constants:
                continue
            if default is inspect.Parameter.empty:
                raise ConfigError(
                    f"{role} takes {name!r}, which is none of its inputs ({', '.join(known) or 'none'}) and has no "
                    f"value; give the argument a default value, or constants={{{name!r}: …}}"
                )
            value = plain(default, f"{role}: {name}")
            if values.setdefault(name, value) != value:
                raise ConfigError(f"constant {name!r} has two default values: {values[name]} and {value}")
    unused = [name for name in constants if not any(name == a.name for f in read.values() for a in f.arguments)]
    unknown = [name for name in positive if name not in values]
    if unused or unknown:
        raise ConfigError(f"no function has a constant {', '.join(map(repr, unused or unknown))} among its arguments")
    definition = Definition(read, state, measurement, control, tuple(values), tuple(positive), continuous)
    return definition, {**values, **noise, **({"substeps": 1} if continuous else {})}


def _layout(parts: Parts | None, numbers: Any, key: str, name: str) -> Layout:
    """The layout of state or measurement, if need be from the size of its noise."""
    if parts is None and not isinstance(numbers, tuple):
        raise ConfigError(f"the size of the {key} is not known; give {key}=…: a size, or its parts by name")
    return parse_parts(len(numbers) if parts is None else parts, name)


def examples(
    mean: Float[Tensor, " n"], std: Float[Tensor, " d"], definition: Definition, dt: float
) -> tuple[Float[Tensor, "A B n"], Float[Tensor, "A B p"] | None, Float[Tensor, "A B"]]:
    """States near a mean, controls and steps, with two leading axes of unusual sizes."""
    generator, shape = torch.Generator().manual_seed(0), (11, 13)
    offset = torch.randn(*shape, len(std), generator=generator).to(mean)
    x = definition.state.boxplus(mean.expand(*shape, -1), 0.1 * offset * std)
    size = 0 if definition.control is None else definition.control.size
    u = torch.randn(*shape, size, generator=generator).to(mean) if size else None
    return x, u, dt * (1 + torch.rand(shape, generator=generator).to(mean))
