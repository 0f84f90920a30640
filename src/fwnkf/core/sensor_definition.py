"""What a sensor implements: which parts of the state it reads, its function and noise, and states of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from ..errors import ConfigError
from ..shapes import Float
from . import linearize
from .functions import Parts, parse_parts
from .layout import Layout
from .motion import Linearity

S = TypeVar("S", bound="SensorDefinition")


@dataclass(frozen=True, eq=False)
class SensorState:
    """Numbers of a sensor that are estimated too: a bias, an offset, a lever arm, the wind.

    They are constant, or with ``walk`` a random walk, or with ``seconds`` a first-order Gauss-Markov process. Units are
    those of the numbers themselves. In the state of a system the part is called ``<sensor>_<name>``.

    >>> drift = SensorState("offset", std=3.0, walk=0.5)  # of a barometer, in metres
    >>> drift.variance(torch.tensor([4.0]))
    tensor([1.])
    """

    name: str
    """As the function of the sensor calls it."""
    size: int = 1
    """How many numbers."""
    std: float | tuple[float, ...] | Tensor = 1.0
    """Standard deviation before the first measurement; of a Gauss-Markov process at all times."""
    walk: float | tuple[float, ...] | Tensor = 0.0
    """Standard deviation of the change in one second (unit/√s), of a random walk."""
    seconds: float | None = None
    """Correlation time (s) of a Gauss-Markov process around zero; None for a constant or a random walk."""
    mean: float | tuple[float, ...] = 0.0
    """Expected value before the first measurement."""

    def __post_init__(self) -> None:
        if self.seconds is not None and not (_zero(self.walk) and _zero(self.mean)):
            raise ConfigError(
                f"sensor state {self.name!r}: a Gauss-Markov process (seconds = {self.seconds}) has neither a walk nor "
                "a mean; leave them out, or seconds"
            )

    def numbers(self, field: str, like: Tensor) -> Float[Tensor, " k"]:
        """One of the fields ``std``, ``walk`` and ``mean`` as a number for each component.

        Args:
            field: the name of the field.
            like: a tensor with the dtype and device wanted.

        Returns:
            The numbers.
        """
        return as_numbers(getattr(self, field), self.size, like, f"sensor state {self.name!r}: {field}")

    def decay(self, step: Tensor) -> Float[Tensor, "*B 1"]:
        """The factor by which the state is multiplied in a step.

        Args:
            step: the length of the step in seconds.

        Returns:
            One for a constant and a random walk.
        """
        return torch.ones_like(step) if self.seconds is None else (-step / self.seconds).exp()

    def variance(self, step: Float[Tensor, "*B 1"]) -> Float[Tensor, "*B k"]:
        """The variance of the noise of a step.

        Args:
            step: the length of the step in seconds.

        Returns:
            A number for each component.
        """
        if self.seconds is None:
            return self.numbers("walk", step).square() * step
        return self.numbers("std", step).square() * (1 - self.decay(step).square())


@dataclass(frozen=True, eq=False)
class Root:
    """The square root of a tensor, taken when it is used: while a fit installs its values, some are not there yet."""

    square: Tensor


def root(variance: float | Tensor) -> Any:
    """The standard deviation that belongs to a variance, in the form that the config of a sensor takes.

    >>> root(4.0)
    2.0
    """
    return Root(variance) if isinstance(variance, Tensor) else variance**0.5


def as_numbers(value: Any, size: int, like: Tensor, what: str) -> Float[Tensor, " k"]:
    """A number for each of ``size`` components from one number, or from as many; numbers may be tensors."""
    if isinstance(value, tuple):
        numbers = torch.stack([as_numbers(item, 1, like, what)[0] for item in value])
    elif isinstance(value, Root):
        numbers = value.square.to(like).sqrt()
    else:
        numbers = torch.as_tensor(value, dtype=like.dtype, device=like.device)
    if numbers.ndim and len(numbers) != size:
        raise ConfigError(f"{what} has {len(numbers)} numbers; wanted 1 or {size}")
    return numbers.expand(size)


def _zero(value: Any) -> bool:
    return not isinstance(value, Tensor) and not any(value if isinstance(value, tuple) else (value,))


class SensorDefinition(nn.Module):
    """The methods of a sensor. Subclass it for a sensor with options, and register the subclass to save filters on it.

    :class:`Sensor` makes one of a plain function. A subclass states its :attr:`arguments`, which are the parts of the
    state that it reads and its own :attr:`states`, implements ``observe`` and ``measurement_covariance``, and
    ``linearize`` where it should be fast. :meth:`reading` lets it read parts of other names.

    Args:
        config: options of the sensor, a frozen dataclass of plain values.
        channels: names, kinds and sizes of what is measured, as ``measurement`` of :meth:`System.of`.

    >>> import torch, fwnkf
    >>> class Speed(fwnkf.SensorDefinition):
    ...     arguments = ("velocity",)
    ...
    ...     def observe(self, *parts):
    ...         return parts[0].norm(dim=-1, keepdim=True)
    ...
    ...     def measurement_covariance(self):
    ...         return self.independent(0.1)
    >>> system = fwnkf.systems.ConstantVelocity(fwnkf.systems.ConstantVelocityConfig())
    >>> system.with_sensor("speed", Speed(None, channels=1)).observe(torch.tensor([0.0, 0.0, 3.0, 4.0]))
    tensor([0., 0., 5.])
    """

    Config: ClassVar[type]
    layout: Layout
    """Parts of the measurement."""
    diagonal_noise: bool = False
    """Whether the noise of the channels is independent."""
    eye: Tensor
    _domain: Layout | None = None
    _sizes: list[int]

    def __init__(self, config: Any, channels: Parts) -> None:
        super().__init__()
        self.config, self.layout = config, parse_parts(channels, "y")
        self.parts: Mapping[str, str] = {}
        self.register_buffer("eye", torch.eye(self.layout.tangent_size), persistent=False)

    @property
    def arguments(self) -> tuple[str, ...]:
        """What :meth:`observe` takes: names of parts of the state, and of the sensor's own states."""
        raise NotImplementedError

    @property
    def states(self) -> tuple[SensorState, ...]:
        """The states that the sensor brings with it."""
        return ()

    @property
    def linearity(self) -> Linearity:
        """``"constant"`` for ``H x``, ``"time_varying"`` for ``H x + c``, else ``"state_dependent"``."""
        return "state_dependent"

    @property
    def kind(self) -> Any:
        """What is registered under the name of the sensor: a class, or a definition by functions."""
        return type(self)

    def reading(self: S, **parts: str) -> S:
        """Let the sensor read parts of the state that are called otherwise than its arguments.

        Args:
            **parts: the part of the state that an argument stands for, ``position="tip"``; of a state of its own the
                name that it gets.

        Returns:
            The sensor itself.

        Raises:
            ConfigError: the sensor has no such argument.

        >>> import fwnkf
        >>> fwnkf.Sensor(lambda position: position, R=[1.0]).reading(position="tip").part_names("camera")
        ('tip',)
        """
        if unknown := [name for name in parts if name not in self.arguments]:
            raise ConfigError(f"the sensor reads {', '.join(self.arguments)}, but no {', '.join(unknown)}")
        self.parts = {**self.parts, **parts}
        return self

    def part_names(self, label: str) -> tuple[str, ...]:
        """The part of the state that each argument stands for.

        Args:
            label: the name of the sensor in its system.

        Returns:
            A name for each argument.
        """
        own = {state.name for state in self.states}
        return tuple(self.parts.get(name, f"{label}_{name}" if name in own else name) for name in self.arguments)

    def attach(self, label: str, domain: Layout, sizes: Sequence[int], near: Float[Tensor, " n"]) -> None:
        """Called when the sensor becomes part of a system.

        Args:
            label: its name there.
            domain: the parts of the state that it reads, in the order of its arguments.
            sizes: how many numbers each argument has.
            near: a state where it is tried out, in ``domain``.

        Raises:
            ConfigError: the sensor belongs to a system with other parts already.
        """
        if self._domain is not None and (self._domain, self._sizes) != (domain, list(sizes)):
            raise ConfigError(
                f"sensor {label!r} is already part of a system with other parts; give each its own sensor"
            )
        self._domain, self._sizes = domain, list(sizes)

    def observe(self, *parts: Float[Tensor, "*B _"]) -> Float[Tensor, "*B m"]:
        """The measurement without noise, of any number of leading axes.

        Args:
            *parts: the parts of the state it reads.

        Returns:
            What the sensor would measure.
        """
        raise NotImplementedError

    def linearize(self, *parts: Float[Tensor, "*B _"]) -> tuple[Float[Tensor, "*B m"], Float[Tensor, "*C m e"]]:
        """The measurement and its Jacobian, by automatic differentiation unless a sensor defines its own.

        Args:
            *parts: the parts of the state it reads.

        Returns:
            The measurement, and its derivative by the tangent coordinates of the parts, side by side.
        """
        assert self._domain is not None, "a sensor is part of a system"
        read = lambda x: self.observe(*x.split(self._sizes, -1))  # noqa: E731
        return linearize.jacobian(read, torch.cat(parts, -1), self._domain, self.layout)

    def measurement_covariance(self) -> Float[Tensor, "m m"]:
        """The covariance of the measurement noise.

        Returns:
            ``R``.
        """
        raise NotImplementedError

    def independent(self, std: Any) -> Float[Tensor, "m m"]:
        """The covariance of channels with this standard deviation, or one for each.

        Args:
            std: a number, or numbers.

        Returns:
            A diagonal matrix.
        """
        return torch.diag_embed(as_numbers(std, self.layout.tangent_size, self.eye, "std").square())
