"""A sensor from a plain function of parts of the state."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..errors import ConfigError, ShapeError
from ..registry import SENSORS, parse_config
from .constants import NamedConstants
from .functions import (
    Argument,
    NamedFunction,
    Parts,
    Values,
    config_class,
    covariance,
    is_diagonal,
    join,
    parse_parts,
    plain,
)
from .layout import Layout
from .motion import Linearity
from .sensor_definition import SensorDefinition, SensorState


@dataclass(eq=False)
class FunctionTemplate:
    """A sensor by functions, without its numbers: what is registered under its name."""

    functions: Mapping[str, Callable[..., Any]]
    """``h``; ``R`` and ``H`` where they are functions."""
    arguments: tuple[str, ...]
    """Names of the arguments of ``h`` that are parts of the state."""
    channels: Layout
    states: tuple[SensorState, ...]
    constants: tuple[str, ...]
    positive: tuple[str, ...]
    linear: bool
    Config: type

    def __post_init__(self) -> None:
        self.__module__ = self.functions["h"].__module__

    def __deepcopy__(self, memo: Any) -> FunctionTemplate:
        return self  # copies of a sensor are of the same kind

    def __call__(self, config: Any) -> Sensor:
        sensor = Sensor.__new__(Sensor)
        sensor._build(self, config)
        return sensor


class Sensor(NamedConstants, SensorDefinition):
    """A sensor from a plain torch function ``h`` of parts of the state.

    What ``h`` takes is read from the names of its arguments, as in :meth:`System.of`: an argument with a default value,
    or in ``constants``, is a constant; every other one is a part of the state, or one of ``states``. ``x`` is the whole
    state of the motion. The function is written for one state: a part of size one is a scalar.

    Args:
        h: the measurement: a tensor, or a value for each part of ``channels``.
        R: variance, variances or covariance of the measurement noise, or a function of constants.
        channels: names, kinds and sizes of what is measured; innovations of angles are wrapped. By default a number for
            each variance in ``R``.
        states: states that the sensor brings with it.
        constants: values of constants by name, instead of the default values of arguments.
        learn: names of the constants, and ``R``, that are parameters.
        positive: names of the constants that remain positive when they are learned.
        linear: whether ``h`` is ``H x``, without a constant term.
        H: a function that returns the Jacobian of ``h`` by its arguments that are no constants, side by side.
        name: registers the sensor, as needed to save filters on it.

    Raises:
        ConfigError: an argument of a function is unknown.

    >>> import torch, fwnkf
    >>> walk = fwnkf.System.of(lambda x: x, lambda x: x, Q=[0.01, 0.01], R=[1.0, 1.0], state={"place": 2})
    >>> def distance(place, scale=1.0):
    ...     return scale * place.norm()
    >>> system = fwnkf.System(walk, sensors={"beacon": Sensor(distance, R=0.04, channels=1)})
    >>> system.observe(torch.tensor([[3.0, 4.0]]))
    tensor([[5.]])
    """

    _kind = "sensor"

    def __init__(
        self,
        h: Callable[..., Any],
        R: Values | Callable[..., Any],
        *,
        channels: Parts | None = None,
        states: Sequence[SensorState] = (),
        constants: Mapping[str, Any] | None = None,
        learn: Sequence[str] = (),
        positive: Sequence[str] = (),
        linear: bool = False,
        H: Callable[..., Any] | None = None,
        name: str | None = None,
    ) -> None:
        functions = {role: item for role, item in (("h", h), ("R", R), ("H", H)) if callable(item)}
        values = {key: plain(value, key) for key, value in (constants or {}).items()}
        used, arguments = set[str](), []
        for role, function in functions.items():
            for key, parameter in inspect.signature(function).parameters.items():
                used.add(key)
                if parameter.default is not parameter.empty and key not in values:
                    values[key] = plain(parameter.default, f"{role}: {key}")
                elif key not in values and role == "h":
                    arguments.append(key)
                elif key not in values and (role == "R" or key not in arguments):
                    raise ConfigError(
                        f"{role} takes {key!r}, which h does not take and which has no value; give the argument a "
                        f"default value, or constants={{{key!r}: …}}"
                    )
        if unknown := [key for key in (*(constants or ()), *positive) if key not in used]:
            raise ConfigError(f"no function has a constant {', '.join(map(repr, unknown))} among its arguments")
        if idle := [state.name for state in states if state.name not in arguments]:
            raise ConfigError(f"h has no argument {', '.join(map(repr, idle))}, which is a state of the sensor")
        noise = {} if callable(R) else {"R": plain(R, "R")}
        if channels is None:
            if not isinstance(noise.get("R"), tuple):
                raise ConfigError("the size of the measurement is not known; give channels=…: a size, or names")
            channels = len(noise["R"])  # type: ignore[arg-type]
        title = name or str(getattr(h, "__name__", "sensor"))
        config = config_class(title, {**values, **noise, "learn": tuple(learn)}, (*values, *noise), positive, "sensor")
        template = FunctionTemplate(
            functions,
            tuple(arguments),
            parse_parts(channels, "y"),
            tuple(states),
            tuple(values),
            tuple(positive),
            linear,
            config,
        )
        if name is not None:
            SENSORS.register(name, again=True)(template)
        self._build(template, parse_config(config, {}, f"sensor {title}"))

    def _build(self, template: FunctionTemplate, config: Any) -> None:
        SensorDefinition.__init__(self, config, template.channels)
        self.template, self._exact = template, {}
        self._functions: dict[str, NamedFunction] = {}
        for name in template.constants:
            self._add(name, getattr(config, name), name in config.learn, name in template.positive)
        if "R" in template.functions:
            constant = [Argument(name, "constant") for name in inspect.signature(template.functions["R"]).parameters]
            self._functions["R"] = NamedFunction(template.functions["R"], "R", tuple(constant))
            values = self._values([argument.name for argument in constant])
            self.diagonal_noise = is_diagonal(template.functions["R"](**values))
        else:
            self._add_covariance("R", config.R, self.layout.tangent_size, "R" in config.learn)
            self.diagonal_noise = is_diagonal(config.R)

    @property
    def arguments(self) -> tuple[str, ...]:
        return self.template.arguments

    @property
    def states(self) -> tuple[SensorState, ...]:
        return self.template.states

    @property
    def linearity(self) -> Linearity:
        return "constant" if self.template.linear else "state_dependent"

    @property
    def kind(self) -> Any:
        return self.template

    @torch.no_grad()
    def attach(self, label: str, domain: Layout, sizes: Sequence[int], near: Tensor) -> None:
        super().attach(label, domain, sizes, near)
        places, start = {}, 0
        for name, size in zip(self.arguments, sizes, strict=True):
            whole = name == "x" and len(sizes) == 1  # a vector, also where it has one component
            places[name] = Argument(name, "x", 0 if whole else start, 0 if whole else size)
            start += size
        generator = torch.Generator().manual_seed(0)
        offset = 0.1 * torch.randn(11, 13, domain.tangent_size, generator=generator).to(self.eye)
        x = domain.boxplus(near.to(self.eye).expand(11, 13, -1), offset)
        for role in ("h", "H"):
            if role not in self.template.functions:
                continue
            function = NamedFunction.read(self.template.functions[role], role, places)[0]
            try:
                self._functions[role] = function.with_batches(
                    x, None, None, self._constants(), partial(self._finish, role)
                )
            except Exception as error:  # whatever a user's function may raise
                called = getattr(function.function, "__name__", function.function)
                raise ConfigError(
                    f"sensor {label!r}, {role}: {called} fails for {', '.join(self.arguments)} near {near.tolist()}: "
                    f"{type(error).__name__}: {error}"
                ) from error

    def observe(self, *parts: Tensor) -> Tensor:
        return self.layout.project(self._call("h", torch.cat(parts, -1)))

    def linearize(self, *parts: Tensor) -> tuple[Tensor, Tensor]:
        if "H" not in self._functions:
            return super().linearize(*parts)
        return self.observe(*parts), self._call("H", torch.cat(parts, -1))

    def measurement_covariance(self) -> Tensor:
        return self._call("R", None) if "R" in self._functions else self._covariance("R")

    def _constants(self) -> Mapping[str, Tensor]:
        return self._values(self.template.constants)

    def _call(self, role: str, x: Tensor | None) -> Tensor:
        return self._functions[role](x, None, None, self._constants(), partial(self._finish, role))

    def _finish(self, role: str, value: Any, x: Tensor | None) -> Tensor:
        """The result of a function as a tensor of the right shape."""
        if role == "R":
            return covariance(value, self.layout.tangent_size, self.eye, role)
        assert x is not None
        assert self._domain is not None
        if role == "h":
            return join(value, [part.size for part in self.layout.parts], x, role)
        wanted = (self.layout.tangent_size, self._domain.tangent_size)
        if value.shape[-2:] != wanted:
            raise ShapeError(f"{role} returns {list(value.shape)}; wanted {wanted[0]} x {wanted[1]}")
        return value.to(x)
