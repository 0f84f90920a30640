"""The model of a system: transition, observation and their noise.

The EKF, the UKF, KalmanNet and the FW-NKF all work on a :class:`System`. Jacobians are computed by automatic
differentiation unless the system defines its own, which are faster. :meth:`System.of` builds one from functions.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import ConfigError, ShapeError
from ..registry import SYSTEMS, parse_config
from ..shapes import Float
from ..summary import about, html_card, learned_words, one_line, step_words
from ..types import Gaussian
from . import linearize
from .constants import NamedConstants
from .functions import Definition, Parts, Values, config_class, covariance, define, examples, is_diagonal, join, plain
from .integrate import discretize, error_drift, runge_kutta
from .layout import Layout
from .motion import Linearity
from .sensor_definition import SensorDefinition
from .system_definition import SystemDefinition

SYSTEMS.declare("fwnkf.core", composed="composed")  # a subclass of System, which System(motion, sensors) makes


class System(SystemDefinition):
    """A motion and sensors: transition, observation and noise.

    ``System(motion, sensors={"gps": …, "baro": …})`` puts a :class:`Motion` and any number of sensors together;
    :meth:`of` builds a system from two functions. A subclass with equations of its own implements ``transition``,
    ``observe``, ``process_noise`` and ``measurement_covariance``, and its own Jacobians where they should be fast;
    register it to save filters on it.

    Args:
        config: the motion, with ``sensors``; of a subclass its options, a frozen dataclass of plain values that is
            saved with every filter on it.
        sensors: the sensors by name.

    >>> import torch, fwnkf
    >>> walk = fwnkf.System.of(lambda x: x, lambda x: x, Q=[0.01], R=[1.0])
    >>> fwnkf.EKF(walk).run(torch.zeros(1, 5, 1)).mean.shape
    torch.Size([1, 5, 1])
    """

    def __new__(cls, *args: Any, **options: Any) -> System:
        if cls is not System:
            return super().__new__(cls)
        composed: type[System] = SYSTEMS["composed"]
        return super().__new__(composed)

    def __init__(self, config: Any, sensors: Mapping[str, SensorDefinition] | None = None) -> None:
        assert sensors is None, "System(motion, sensors=…) makes a ComposedSystem"
        super().__init__(config)

    def __repr__(self) -> str:
        known = hasattr(self, "layout") and hasattr(self, "observation_layout")  # not while a constructor runs
        return one_line(f"system {system_name(self)}", self._facts()) if known else super().__repr__()

    def _repr_html_(self) -> str:
        return html_card(f"system {system_name(self)}", self._facts(), note=about(type(self)))

    def _facts(self) -> dict[str, str]:
        return {
            "state": self.layout.words(),
            "measures": self.observation_layout.words(),
            "controls": self.control_layout.words() if self.control_dim else "",
            "step": step_words(self.dt, self.takes_dt),
            "learned": learned_words(self),
        }

    def with_sensor(self, name: str, sensor: SensorDefinition) -> System:
        """The same system with one more sensor, whose channels come last; this system does not change.

        Args:
            name: the name of the sensor.
            sensor: the sensor.

        Returns:
            A new system.

        Raises:
            ConfigError: the name is taken, or the sensor reads a part that the state does not have.

        >>> import fwnkf
        >>> from fwnkf.systems import ConstantVelocity, ConstantVelocityConfig
        >>> system = ConstantVelocity(ConstantVelocityConfig(dims=2))
        >>> speed = fwnkf.Sensor(lambda velocity: velocity.norm(), R=0.01, channels=1)
        >>> system.with_sensor("speed", speed).sensor_channels
        {'position': slice(0, 2, None), 'speed': slice(2, 3, None)}
        """
        if name in self.sensor_channels:
            raise ConfigError(f"the system has a sensor {name!r} already; give it another name")
        like = next((item for item in (*self.parameters(), *self.buffers()) if item.is_floating_point()), None)
        system: System = SYSTEMS["composed"](copy.deepcopy(self), {name: sensor}, observed=True)
        return system if like is None else system.to(like)

    @staticmethod
    def of(
        f: Callable[..., Any],
        h: Callable[..., Any],
        *,
        Q: Values | Callable[..., Any],
        R: Values | Callable[..., Any],
        dt: float | None = None,
        state: Parts | None = None,
        measurement: Parts | None = None,
        control: Parts | None = None,
        constants: Mapping[str, Any] | None = None,
        learn: Sequence[str] = (),
        positive: Sequence[str] = (),
        continuous: bool = False,
        linear: bool = False,
        F: Callable[..., Any] | None = None,
        H: Callable[..., Any] | None = None,
        initial_mean: Values | None = None,
        initial_std: Values | None = None,
        name: str | None = None,
    ) -> FunctionSystem:
        """A system from plain torch functions: ``f`` moves the state, ``h`` gives the measurement.

        What a function takes is read from the names of its arguments: ``x`` or parts of the state by name, ``u`` or
        controls by name, ``dt``; every other argument is a constant, whose value is its default or is in ``constants``.
        Functions are written for one state, ``x`` of shape ``[n]``, and return a tensor or a value for each part.
        Batches are computed by ``torch.vmap``, or directly if a function broadcasts over leading axes (faster).

        Args:
            f: the next state or, with ``continuous``, its derivative, integrated by Runge-Kutta (the derivative of a
                quaternion is the angular rate in the body frame). A discrete ``f`` without ``dt`` has a fixed step.
            h: the measurement.
            Q: variance, variances or covariance of the process noise in one step of ``dt``, in proportion for other
                steps; or a function of ``dt`` and constants. With ``continuous`` the spectral density: discretised
                exactly where ``f`` is linear, otherwise with the derivative of ``f`` at ``initial_mean``.
            R: variance, variances or covariance of the measurement noise, or a function of constants.
            dt: the nominal step in seconds.
            state: names, kinds and sizes, e.g. ``{"position": 3, "heading": "angle", "attitude": "quaternion"}``.
            measurement, control: likewise; innovations of angles are wrapped.
            constants: values of constants by name, instead of the default values of arguments.
            learn: names of the constants, and ``Q`` and ``R``, that are parameters.
            positive: names of the constants that remain positive when they are learned.
            continuous: whether ``f`` is the derivative of the state.
            linear: whether ``f`` is linear in state and control and ``h`` in the state, without constant terms. Filters
                use faster algorithms then. It is checked at a few states.
            F, H: functions that return the Jacobians of ``f`` and ``h``; by default they are differentiated.
            initial_mean, initial_std: the belief that filters start from without a prior.
            name: registers the system, as needed to save filters on it and to use it in experiment files.

        Returns:
            The system.

        Raises:
            ConfigError: an argument of a function is unknown, or a function fails for states near ``initial_mean``.

        >>> def move(position, velocity, dt, drag=0.1):
        ...     return position + dt * velocity, (1 - drag * dt) * velocity
        >>> parts = ["position", "velocity"]
        >>> system = System.of(move, lambda position: position, state=parts, Q=(0.0, 0.01), R=[0.04], dt=0.1)
        >>> system.transition(torch.tensor([[0.0, 1.0]]), None, None)
        tensor([[0.1000, 0.9900]])
        """
        functions = {"f": f, "h": h, "F": F, "H": H, "Q": Q, "R": R}
        parts = {"state": state, "measurement": measurement, "control": control}
        definition, defaults = define(functions, parts, constants or {}, positive, continuous)
        definition = dataclasses.replace(definition, linear=linear)
        if dt is None and (definition.takes_dt or any(item.uses("dt") for item in definition.functions.values())):
            raise ConfigError("dt is missing: give the nominal step in seconds, dt=…")
        title = name or str(getattr(f, "__name__", "system"))
        values = {**defaults, "dt": 1.0 if dt is None else float(dt), "learn": tuple(learn)}
        values["initial_mean"] = None if initial_mean is None else plain(initial_mean, "initial_mean")
        values["initial_std"] = None if initial_std is None else plain(initial_std, "initial_std")
        learnable = (*definition.constants, *(key for key in ("Q", "R") if key in defaults))
        about = inspect.getdoc(f) or f"Functions {title} and {getattr(h, '__name__', 'h')} of module {f.__module__}."
        members = {
            "definition": definition,
            "Config": config_class(title, values, learnable, positive),
            "__doc__": about,
            "__module__": f.__module__,
        }
        built = type(title, (FunctionSystem,), members)
        system: FunctionSystem = built(parse_config(built.Config, {}, f"system {title}"))  # type: ignore[attr-defined]
        if name is not None:
            SYSTEMS.register(name, again=True)(built)
        tensors = [item for item in (Q, R) if isinstance(item, Tensor) and item.is_floating_point()]
        return system.to(tensors[0].dtype) if tensors else system


class FunctionSystem(NamedConstants, System):
    """The system of :meth:`System.of`; each definition is a class of its own, whose config holds the numbers.

    Args:
        config: the numbers of the system.
    """

    definition: ClassVar[Definition]

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        definition = self.definition
        self.layout, self.observation_layout = definition.state, definition.measurement
        self.control_dim, self.dt = 0 if definition.control is None else definition.control.size, config.dt
        self._exact: dict[str, Tensor] = {}
        self._functions = dict(definition.functions)
        for name in definition.constants:
            self._add(name, getattr(config, name), name in config.learn, name in definition.positive)
        d = self.layout.tangent_size
        exact = torch.zeros((), dtype=torch.float64, device="cpu")
        for name, size in (("Q", d), ("R", self.observation_layout.tangent_size)):
            if name not in definition.functions:
                self._add_covariance(name, getattr(config, name), size, name in config.learn)
        R, constants = definition.functions.get("R"), self.constants()
        if R is None:
            self.diagonal_noise = is_diagonal(config.R)
        else:
            self.diagonal_noise = is_diagonal(R.function(**{item.name: constants[item.name] for item in R.arguments}))
        self.initial_steps = int(config.initial_mean is not None or config.initial_std is not None)
        mean = self.layout.origin(exact) if config.initial_mean is None else exact.new_tensor(config.initial_mean)
        self._add("initial_mean", join(mean, [self.layout.size], exact, "initial_mean"))
        std = covariance(1.0 if config.initial_std is None else config.initial_std, d, exact, "initial_std")
        self._add("initial_std", std.diagonal())
        self._check()

    @torch.no_grad()
    def _check(self) -> None:
        """Call every function once, so that faults are found before a filter runs."""
        if torch.empty(0).is_meta:  # built for its shapes only
            return
        x, u, dt = examples(self.get_buffer("initial_mean"), self.get_buffer("initial_std"), self.definition, self.dt)
        for role, function in self._functions.items():
            try:
                if role in "QR":
                    self._noise(role, dt[0])
                else:
                    steps = None if role in "hH" or self.definition.continuous else dt
                    controls = u if role in "fF" else None
                    finish = partial(self._finish, role)
                    self._functions[role] = function.with_batches(x, controls, steps, self.constants(), finish)
            except Exception as error:  # whatever a user's function may raise
                called = getattr(function.function, "__name__", function.function)
                raise ConfigError(
                    f"{role}: {called} fails for states near {self._exact['initial_mean'].tolist()}: "
                    f"{type(error).__name__}: {error}"
                ) from error
        if self.definition.linear:
            self._check_linear(x[0], None if u is None else u[0], dt[0] if self.takes_dt else None)
        if not self.definition.continuous:
            return
        constants = {name: self._exact.get(name, value.double()) for name, value in self.constants().items()}
        drift = self._drift_at(self._exact["initial_mean"], constants)
        if not bool(drift.isfinite().all()):
            raise ConfigError(
                "the derivative of f, which Q is discretised with, is not finite at the state "
                f"{self._exact['initial_mean'].tolist()}; give initial_mean=…, a typical state"
            )
        if not any(item.name in self.config.learn for item in self._functions["f"].arguments):
            self._add("_fixed_drift", drift)  # once and for all, because it takes longer than a step

    def _check_linear(self, x: Float[Tensor, "B n"], u: Float[Tensor, "B p"] | None, dt: Tensor | None) -> None:
        """Raise ConfigError if ``f`` or ``h`` is not linear, although it is said to be."""
        other, other_u = x.roll(1, 0), None if u is None else u.roll(1, 0)
        step = None if dt is None else dt[:1].expand_as(dt)

        def added(function: Callable[[Tensor, Tensor | None], Tensor]) -> bool:
            both = function(x + other, None if u is None or other_u is None else u + other_u)
            return torch.allclose(both, function(x, u) + function(other, other_u), rtol=1e-4, atol=1e-5)

        linear = {"f": added(lambda z, v: self.transition(z, v, step)), "h": added(lambda z, _: self.observe(z))}
        wrong = [role for role, holds in linear.items() if not holds]
        if wrong:
            raise ConfigError(f"linear=True, but {', '.join(wrong)}: not linear, or with a constant term; leave it out")

    @property
    def transition_linearity(self) -> Linearity:
        return "constant" if self.definition.linear else "state_dependent"

    @property
    def observation_linearity(self) -> Linearity:
        return "constant" if self.definition.linear else "state_dependent"

    @property
    def control_layout(self) -> Layout:
        return super().control_layout if self.definition.control is None else self.definition.control

    @property
    def takes_dt(self) -> bool:
        return self.definition.takes_dt

    def replace(self, **options: Any) -> FunctionSystem:
        """The same functions with other values in the config; learned values start from the config again.

        Args:
            **options: fields of the config and their new values.

        Returns:
            A new system.
        """
        values = {field.name: getattr(self.config, field.name) for field in dataclasses.fields(self.config)}
        config: Any = parse_config(self.Config, {**values, **options}, f"system {type(self).__name__}")
        return type(self)(config).to(self.get_buffer("initial_mean"))

    def constants(self) -> dict[str, Tensor]:
        """The values of all constants by name, learned ones included.

        Returns:
            A tensor for each name.
        """
        return dict(self._values(self.definition.constants))

    def prior(self) -> Gaussian | None:
        if not self.initial_steps:
            return None
        return Gaussian(self.get_buffer("initial_mean"), torch.diag_embed(self.get_buffer("initial_std").square()))

    def transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> Tensor:
        step, u, constants = self._step(x, dt), self._control(x, u), self.constants()
        if self.definition.continuous:
            rate = partial(self._call, "f", u=u, dt=None, constants=constants)
            return runge_kutta(rate, x, step, self.layout, self.config.substeps)
        return self.layout.project(self._call("f", x, u, step, constants))

    def linearize_transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        if "F" not in self._functions:
            return super().linearize_transition(x, u, dt)
        F = self._call("F", x, self._control(x, u), self._step(x, dt), self.constants())
        return self.transition(x, u, dt), F

    def observe(self, x: Tensor) -> Tensor:
        return self.observation_layout.project(self._call("h", x, None, None, self.constants()))

    def linearize_observation(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if "H" not in self._functions:
            return super().linearize_observation(x)
        return self.observe(x), self._call("H", x, None, None, self.constants())

    def process_noise(self, dt: Tensor | None) -> Tensor:
        step = self._step(self.get_buffer("initial_mean"), dt)
        Q = self._noise("Q", step)
        if self.definition.continuous:
            drift = self._drift()
            return discretize(drift, drift.new_zeros(len(drift), 0), Q, step)[2]
        if dt is None or "Q" in self.definition.functions:
            return Q
        return Q * (step / self.dt)[..., None, None]

    def measurement_covariance(self) -> Tensor:
        return self._noise("R", None)

    def _noise(self, role: str, step: Tensor | None) -> Tensor:
        """``Q`` or ``R`` from its function, parameters or constant."""
        function = self._functions.get(role)
        if function is not None:
            return self._call(role, None, None, step if function.uses("dt") else None, self.constants())
        return self._covariance(role)

    def _call(
        self, role: str, x: Tensor | None, u: Tensor | None, dt: Tensor | None, constants: Mapping[str, Tensor]
    ) -> Tensor:
        return self._functions[role](x, u, dt, constants, partial(self._finish, role))

    def _finish(self, role: str, value: Any, x: Tensor | None) -> Tensor:
        """The result of a function as a tensor of the right shape."""
        layout = self.observation_layout if role in "hHR" else self.layout
        if role in "QR":
            return covariance(value, layout.tangent_size, self.get_buffer("initial_mean"), role)
        assert x is not None
        if role in "fh":
            tangent = role == "f" and self.definition.continuous
            return join(value, [part.tangent_size if tangent else part.size for part in layout.parts], x, role)
        if value.shape[-2:] != (layout.tangent_size, self.layout.tangent_size):
            raise ShapeError(
                f"{role} returns {list(value.shape)}; wanted {layout.tangent_size} x {self.layout.tangent_size}"
            )
        return value.to(x)

    def _drift(self) -> Float[Tensor, "d d"]:
        if "_fixed_drift" in self._exact:
            return self.get_buffer("_fixed_drift")
        return self._drift_at(self.get_buffer("initial_mean"), self.constants())

    def _drift_at(self, x: Float[Tensor, " n"], constants: Mapping[str, Tensor]) -> Float[Tensor, "d d"]:
        """The matrix of the error's derivative at a state, without control."""
        rate = partial(self._call, "f", u=self._control(x.unsqueeze(0), None), dt=None, constants=constants)
        tangent = Layout.euclidean(self.layout.tangent_size)
        value, slope = linearize.jacobian(rate, x.unsqueeze(0), self.layout, tangent)
        return error_drift(value[0], slope[0], self.layout)

    def _step(self, like: Tensor, dt: Tensor | None) -> Tensor:
        if dt is not None and not self.takes_dt:
            raise ConfigError(
                "this system has a step of fixed length, because f has no argument dt; leave dt out, or let f take dt"
            )
        return like.new_full((), self.dt) if dt is None else dt

    def _control(self, x: Tensor, u: Tensor | None) -> Tensor | None:
        return x.new_zeros(*x.shape[:-1], self.control_dim) if u is None and self.control_dim else u


def system_name(system: System) -> str:
    """The name under which a system is registered, or that of its class."""
    return SYSTEMS.name_of(type(system)) or type(system).__name__


def build_system(name: str, config: dict[str, Any]) -> System:
    """Build a registered system from its name and plain configuration; its tensors are loaded afterwards."""
    cls = SYSTEMS[name]
    return cls(parse_config(cls.Config, config, f"system {name}"))


def as_layout(parts: Sequence[Any], state_dim: int) -> Layout:
    """The layout of a config: its named parts if there are any, otherwise Euclidean."""
    layout = Layout.parse(parts) if parts else Layout.euclidean(state_dim)
    if layout.size != state_dim:
        raise ConfigError(f"the layout has {layout.size} components, but state_dim = {state_dim}; make them equal")
    return layout
