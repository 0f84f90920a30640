"""A system of a motion and sensors: their states, measurements and noise put together."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from ..errors import ConfigError, shown
from ..registry import MOTIONS, SENSORS, SYSTEMS, Registry, parse_config
from ..shapes import Float
from ..types import Gaussian, Statistics
from .gaussian import block_diagonal
from .layout import Layout, Part
from .motion import Linearity, Motion, least_linear
from .sensor_definition import SensorDefinition, SensorState
from .system import System, build_system
from .system_definition import SystemDefinition

C = TypeVar("C")


@dataclass(frozen=True)
class ComposedConfig:
    """Registered names and configs of the motion and the sensors of a :class:`ComposedSystem`.

    >>> gps = {"name": "position", "config": {"std": 2.0}}
    >>> config = ComposedConfig({"name": "constant_velocity", "config": {"dims": 3}}, {"gps": gps})
    >>> ComposedSystem(config).layout.size
    6
    """

    motion: dict[str, Any]
    """``{"name": …, "config": {…}}``; a system that is used as a motion is ``{"system": …, "config": {…}}``."""
    sensors: dict[str, Any] = field(default_factory=dict)
    """``{"name": …, "config": {…}}`` for each sensor, by the name that it has in the system; with ``"reading"`` the
    parts that are called otherwise."""
    observed: bool = False
    """Whether the measurement of a motion that is a system comes first."""


class Place(NamedTuple):
    """Where an argument of a sensor stands in the state."""

    parts: tuple[Part, ...]
    numbers: slice
    tangent: slice


class Wiring(NamedTuple):
    """Where a sensor stands in the state and in the measurement of a system."""

    reads: tuple[Place, ...]
    """What it reads of the state, for each argument."""
    channels: slice
    """Its part of the measurement."""


@SYSTEMS.register("composed")
class ComposedSystem(System):
    """A motion and sensors as one system: what ``fwnkf.System(motion, sensors={…})`` returns.

    The state is that of the motion, followed by the states that sensors bring with them. The measurement is that of all
    sensors in their order. A sensor that measures one thing gives its channels its own name; otherwise they are called
    ``<sensor>_<channel>``. A named system is a subclass that builds its motion and sensors from a config of its own.

    Args:
        motion: how the state moves.
        sensors: the sensors by name.
        config: the config of a named system; None for one that is described by its parts.
        observed: whether the measurement of ``motion``, which is a system then, comes before that of the sensors.

    Raises:
        ConfigError: a sensor reads a part that the state does not have, or two parts have the same name.
    """

    Config: ClassVar[type] = ComposedConfig
    motion: Motion
    eye: Tensor

    def __init__(
        self,
        motion: Motion | ComposedConfig,
        sensors: Mapping[str, SensorDefinition] | None = None,
        *,
        config: Any = None,
        observed: bool = False,
    ) -> None:
        if isinstance(motion, ComposedConfig):  # as every system is built from its config
            parts: ComposedConfig = motion
            motion, sensors, observed = _build_motion(parts.motion), _build_sensors(parts.sensors), parts.observed
        super().__init__(config)
        self.motion, self.sensors, self.observed = motion, _by_name(sensors or {}), observed
        self.dt, self.control_dim, self.discretizes = motion.dt, motion.control_dim, motion.discretizes
        if observed and not isinstance(motion, SystemDefinition):
            raise ConfigError(f"observed=True, but {type(motion).__name__} is no system, so it measures nothing")
        if not observed and not self.sensors:
            raise ConfigError("a system needs at least one sensor: sensors={'name': …}")
        own = [
            Part(name, "euclidean", state.size)
            for label, sensor in self._sensors()
            for name, state in _own(label, sensor)
        ]
        self.layout = Layout((*motion.layout.parts, *own)) if own else motion.layout
        names = [part.name for part in self.layout.parts]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigError(
                f"the state has more than one part {', '.join(map(repr, repeated))}; give that of a sensor another "
                "name with sensor.reading(…='…')"
            )
        self.own_size = sum(part.size for part in own)
        self._wire()
        self.register_buffer("eye", torch.eye(self.layout.tangent_size), persistent=False)

    @property
    def _inner(self) -> SystemDefinition | None:
        """The motion, if its own measurement comes first."""
        return self.motion if self.observed else None  # type: ignore[return-value]  # checked on construction

    def _sensors(self) -> list[tuple[str, SensorDefinition]]:
        return list(self.sensors.items())  # type: ignore[arg-type]

    def _wire(self) -> None:
        """Find for every sensor what it reads, and its channels; try it out."""
        parts = [] if self._inner is None else list(self._inner.observation_layout.parts)
        begin = sum(part.size for part in parts)
        self._wiring: dict[str, Wiring] = {}
        places, near = self._places(), self._typical()
        for label, sensor in self._sensors():
            wanted = sensor.part_names(label)
            if unknown := [name for name in wanted if name not in places]:
                raise ConfigError(
                    f"sensor {label!r} reads {', '.join(map(repr, unknown))}, which the state does not have; there are "
                    f"{', '.join(part.name for part in self.layout.parts)}. Name the part that it stands for with "
                    "sensor.reading(…='…')"
                )
            reads = tuple(places[name] for name in wanted)
            self._wiring[label] = Wiring(reads, slice(begin, begin + sensor.layout.size))
            begin += sensor.layout.size
            if not near.is_meta:  # otherwise built for its shapes only
                pieces = [near[place.numbers] for place in reads]
                domain = Layout(tuple(part for place in reads for part in place.parts))
                sensor.attach(label, domain, [len(piece) for piece in pieces], torch.cat(pieces))
            one = len(sensor.layout.parts) == 1
            parts += [replace(part, name=label if one else f"{label}_{part.name}") for part in sensor.layout.parts]
        self.observation_layout = Layout(tuple(parts))
        measured = [] if self._inner is None else [self._inner.diagonal_noise]
        self.diagonal_noise = all([*measured, *(sensor.diagonal_noise for _, sensor in self._sensors())])

    def _places(self) -> dict[str, Place]:
        """What sensors can read: the parts by name, and the whole state of the motion as ``x``."""
        whole = self.motion.layout
        places = {"x": Place(whole.parts, slice(0, whole.size), slice(0, whole.tangent_size))}
        start = tangent = 0
        for part in self.layout.parts:
            ends = start + part.size, tangent + part.tangent_size
            places[part.name] = Place((part,), slice(start, ends[0]), slice(tangent, ends[1]))
            start, tangent = ends
        return places

    def _typical(self) -> Float[Tensor, " n"]:
        """A state near which sensors are tried out."""
        prior = self.motion.prior()
        like = torch.zeros(())
        mean = self.motion.layout.origin(like) if prior is None else prior.mean.detach().to(like)
        return torch.cat((mean, *(state.numbers("mean", like).detach() for state in self.sensor_states())))

    # ---- description ----------------------------------------------------------------------------------------

    @property
    def config(self) -> Any:
        """That of a named system, or the names and configs of motion and sensors.

        Raises:
            ConfigError: the motion or a sensor is not registered.
        """
        if self._config is not None:
            return self._config
        motion, kind = MOTIONS.name_of(type(self.motion)), "name"
        if motion is None:
            motion, kind = SYSTEMS.name_of(type(self.motion)), "system"
        if motion is None:
            raise ConfigError(
                f"motion {type(self.motion).__name__} is not registered, so that it could not be rebuilt on loading; "
                "put @fwnkf.register_motion('…') on the class and give it a Config of plain values, or give "
                "System.of(…) a name=…"
            )
        sensors = {}
        for label, sensor in self._sensors():
            name = SENSORS.name_of(sensor.kind)
            if name is None:
                raise ConfigError(
                    f"sensor {label!r} is not registered, so that it could not be rebuilt on loading; give "
                    "fwnkf.Sensor(…) a name=…, or put @fwnkf.register_sensor('…') on its class"
                )
            sensors[label] = {"name": name, "config": asdict(sensor.config)}
            if sensor.parts:
                sensors[label]["reading"] = dict(sensor.parts)
        return ComposedConfig({kind: motion, "config": asdict(self.motion.config)}, sensors, self.observed)

    @config.setter
    def config(self, config: Any) -> None:
        if "motion" in self._modules:  # options of a named system that is built already: hand them on
            motion, sensors = self.part_configs(config)
            self.motion.config = motion
            for label, options in sensors.items():
                self.sensors[label].config = options
        self._config = config

    @classmethod
    def part_configs(cls, config: Any) -> tuple[Any, dict[str, Any]]:
        """Of a named system: the configs of its motion and of its sensors that its own config stands for.

        Args:
            config: the config of the system.

        Returns:
            That of the motion, and those of the sensors by name.

        Raises:
            ConfigError: the system is no named one.
        """
        raise ConfigError("a system of a motion and sensors has no options of its own; change those of its parts")

    def with_sensor(self, name: str, sensor: SensorDefinition) -> ComposedSystem:
        if name in self.sensor_channels:
            raise ConfigError(f"the system has a sensor {name!r} already; give it another name")
        kept = {label: copy.deepcopy(item) for label, item in self._sensors()}
        system = ComposedSystem(copy.deepcopy(self.motion), {**kept, name: sensor}, observed=self.observed)
        return system.to(self.eye)

    @property
    def sensor_channels(self) -> dict[str, slice]:
        """The channels of each sensor by its name."""
        own = {} if self._inner is None else self._inner.sensor_channels
        return {**own, **{label: wiring.channels for label, wiring in self._wiring.items()}}

    def sensor_states(self) -> list[SensorState]:
        """The states that sensors bring with them.

        Returns:
            One after the other as they are in the state.
        """
        return [state for _, sensor in self._sensors() for state in sensor.states]

    @property
    def control_layout(self) -> Layout:
        return self.motion.control_layout

    @property
    def takes_dt(self) -> bool:
        return self.motion.takes_dt

    @property
    def transition_linearity(self) -> Linearity:
        return self.motion.transition_linearity

    @property
    def observation_linearity(self) -> Linearity:
        own = [] if self._inner is None else [self._inner.observation_linearity]
        return least_linear(*own, *(sensor.linearity for _, sensor in self._sensors()))

    # ---- beliefs --------------------------------------------------------------------------------------------

    @property
    def initial_steps(self) -> int:  # type: ignore[override]
        """Number of steps that :meth:`initial_belief` reads; 0 for a system that needs a prior."""
        if self.observed or not isinstance(self.motion, SystemDefinition):
            return self.motion.initial_steps
        # the belief of a system may be read from its own measurement, which is not part of this one
        return int(self.motion.prior() is not None)

    def initial_belief(self, y: Tensor, weight: Tensor, u: Tensor | None) -> Gaussian:
        """That of the motion, and of the states of sensors what they say of themselves."""
        if isinstance(self.motion, SystemDefinition) and not self.observed:
            prior = self.motion.prior()
            assert prior is not None  # because initial_steps is 1
            d = self.motion.layout.tangent_size
            first = Gaussian(prior.mean.expand(len(y), -1), prior.cov.expand(len(y), d, d))
        else:
            own = y.shape[-1] if self._inner is None else self._inner.observation_layout.size
            first = self.motion.initial_belief(y[..., :own], weight[..., :own], u)
        return self._with_own(first)

    def prior(self) -> Gaussian | None:
        prior = self.motion.prior()
        return None if prior is None else self._with_own(prior)

    def complete_prior(self, prior: Gaussian) -> Gaussian:
        """A belief about the first parts, completed by the motion, and by what sensors say of their own states."""
        if prior.mean.shape[-1] < self.motion.layout.size:
            prior = self.motion.complete_prior(prior)
        return self._with_own(prior) if prior.mean.shape[-1] == self.motion.layout.size else prior

    def _with_own(self, belief: Gaussian) -> Gaussian:
        if not self.own_size:
            return belief
        states, like = self.sensor_states(), belief.mean
        mean = torch.cat([state.numbers("mean", like) for state in states])
        std = torch.cat([state.numbers("std", like) for state in states])
        mean = torch.cat((belief.mean, mean.expand(*belief.mean.shape[:-1], -1)), -1)
        return Gaussian(mean, block_diagonal(belief.cov, torch.diag_embed(std.square())))

    def normalize(self, statistics: Statistics) -> None:
        """The motion's part of the scales of training data; nothing if the sensors see other channels than it does."""
        if self.own_size or not (self.observed or not isinstance(self.motion, SystemDefinition)):
            return
        self.motion.normalize(statistics)

    # ---- motion ---------------------------------------------------------------------------------------------

    def transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> Tensor:
        if not self.own_size:
            return self.motion.transition(x, u, dt)
        n = self.motion.layout.size
        return torch.cat((self.motion.transition(x[..., :n], u, dt), self._moved(x[..., n:], dt)), -1)

    def linearize_transition(self, x: Tensor, u: Tensor | None, dt: Tensor | None) -> tuple[Tensor, Tensor]:
        if not self.own_size:
            return self.motion.linearize_transition(x, u, dt)
        n = self.motion.layout.size
        moved, F = self.motion.linearize_transition(x[..., :n], u, dt)
        decay = torch.diag_embed(self._decay(dt))
        return torch.cat((moved, self._moved(x[..., n:], dt)), -1), block_diagonal(F, decay)

    def process_noise(self, dt: Tensor | None) -> Tensor:
        Q = self.motion.process_noise(dt)
        if not self.own_size:
            return Q
        step = self._step(dt)
        own = torch.cat([state.variance(step) for state in self.sensor_states()], -1)
        return block_diagonal(Q, torch.diag_embed(own))

    def process_noise_at(self, Q: Tensor, x: Tensor, u: Tensor | None) -> Tensor:
        if not self.own_size:
            return self.motion.process_noise_at(Q, x, u)
        n, d = self.motion.layout.size, self.motion.layout.tangent_size
        before = Q[..., :d, :d]
        block = self.motion.process_noise_at(before, x[..., :n], u)
        return Q if block is before else block_diagonal(block, Q[..., d:, d:])

    def residual_step(self, statistics: Statistics) -> Tensor:
        d = self.motion.layout.tangent_size
        motion = self.motion.residual_step(statistics._replace(step=statistics.step[:d]))
        return torch.cat((motion, statistics.step[d:]))

    def _step(self, dt: Tensor | None) -> Float[Tensor, "*B 1"]:
        return self.eye.new_tensor([self.dt]) if dt is None else dt.unsqueeze(-1)

    def _decay(self, dt: Tensor | None) -> Float[Tensor, "*B k"]:
        step = self._step(dt)
        return torch.cat([state.decay(step).expand(*step.shape[:-1], state.size) for state in self.sensor_states()], -1)

    def _moved(self, own: Tensor, dt: Tensor | None) -> Tensor:
        constant = all(state.seconds is None for state in self.sensor_states())
        return own if constant else own * self._decay(dt)

    # ---- observation ----------------------------------------------------------------------------------------

    def observe(self, x: Tensor) -> Tensor:
        seen = [] if self._inner is None else [self._inner.observe(x[..., : self.motion.layout.size])]
        seen += [sensor.observe(*self._read(label, x)) for label, sensor in self._sensors()]
        return seen[0] if len(seen) == 1 else torch.cat(seen, -1)

    def linearize_observation(self, x: Tensor) -> tuple[Tensor, Tensor]:
        pairs = []
        if self._inner is not None:
            seen, H = self._inner.linearize_observation(x[..., : self.motion.layout.size])
            pairs.append((seen, nn.functional.pad(H, (0, self.own_size))))
        pairs += [self.linearize_sensor(label, x) for label in self.sensors]
        if len(pairs) == 1:
            return pairs[0]
        lead = torch.broadcast_shapes(*(H.shape[:-2] for _, H in pairs))
        rows = [H.expand(*lead, *H.shape[-2:]) for _, H in pairs]
        return torch.cat([seen for seen, _ in pairs], -1), torch.cat(rows, -2)

    def linearize_sensor(
        self, name: str, x: Float[Tensor, "B n"]
    ) -> tuple[Float[Tensor, "B m"], Float[Tensor, "*B m d"]]:
        """The measurement of one sensor, and its Jacobian in the tangent space of the whole state.

        Args:
            name: the name of the sensor.
            x: the state.

        Returns:
            The measurement without noise and its rows of ``H``, which may lack the batch axis.
        """
        sensor: SensorDefinition = self.sensors[name]  # type: ignore[assignment]
        seen, slopes = sensor.linearize(*self._read(name, x))
        columns = [place.tangent for place in self._wiring[name].reads]
        return seen, _placed(slopes, columns, self.layout.tangent_size)

    def measurement_covariance(self) -> Tensor:
        blocks = [] if self._inner is None else [self._inner.measurement_covariance()]
        blocks += [sensor.measurement_covariance() for _, sensor in self._sensors()]
        whole = blocks[0]
        for block in blocks[1:]:
            whole = block_diagonal(whole, block)
        return whole

    def _read(self, label: str, x: Tensor) -> list[Tensor]:
        return [x[..., place.numbers] for place in self._wiring[label].reads]


def part_config(kind: type[C], config: Any, **changed: Any) -> C:
    """The config of a part of a named system: the fields that both have, and others by name."""
    common = {item.name: getattr(config, item.name) for item in fields(kind) if hasattr(config, item.name)}  # type: ignore[arg-type]
    return kind(**{**common, **changed})


def _by_name(sensors: Mapping[str, SensorDefinition]) -> nn.ModuleDict:
    known = nn.ModuleDict()
    for label, sensor in sensors.items():
        if not isinstance(sensor, SensorDefinition):
            raise ConfigError(f"sensor {shown(label)} is a {type(sensor).__name__}; wanted fwnkf.Sensor(…) or its like")
        if not isinstance(label, str) or not label.isidentifier() or hasattr(known, label):
            raise ConfigError(f"a sensor cannot be called {shown(label)}; letters, digits and _ make a name, as 'gps'")
        known[label] = sensor
    return known


def _own(label: str, sensor: SensorDefinition) -> list[tuple[str, SensorState]]:
    """The states of a sensor with the names that they have in the state of a system."""
    return [(sensor.parts.get(state.name, f"{label}_{state.name}"), state) for state in sensor.states]


def _placed(slopes: Float[Tensor, "*B m e"], columns: Sequence[slice], d: int) -> Float[Tensor, "*B m d"]:
    """Derivatives by some coordinates as derivatives by all: zero where a sensor does not look."""
    runs: list[tuple[slice, slice]] = []  # neighbouring parts together
    at = 0
    for place in columns:
        size = place.stop - place.start
        if runs and runs[-1][0].stop == place.start:
            runs[-1] = (slice(runs[-1][0].start, place.stop), slice(runs[-1][1].start, at + size))
        else:
            runs.append((place, slice(at, at + size)))
        at += size
    if len(runs) == 1:
        return nn.functional.pad(slopes, (runs[0][0].start, d - runs[0][0].stop))
    pieces, end = [], 0
    for place, source in sorted(runs, key=lambda run: run[0].start):
        pieces += [slopes.new_zeros(*slopes.shape[:-1], place.start - end), slopes[..., source]]
        end = place.stop
    return torch.cat((*pieces, slopes.new_zeros(*slopes.shape[:-1], d - end)), -1)


def _build_motion(description: Mapping[str, Any]) -> Motion:
    """A motion, or a system as one, from its registered name and config."""
    kind = "system" if "system" in description else "name"
    _check_description(description, {kind, "config"}, "motion")
    if kind == "system":
        return build_system(description["system"], dict(description["config"]))
    return build_part(MOTIONS, "motion", description["name"], description["config"])


def _build_sensors(descriptions: Mapping[str, Any]) -> dict[str, SensorDefinition]:
    sensors = {}
    for label, description in descriptions.items():
        reading = description.get("reading", {}) if isinstance(description, Mapping) else {}
        _check_description(description, {"name", "config", *(["reading"] if reading else [])}, f"sensor {shown(label)}")
        sensor = build_part(SENSORS, "sensor", description["name"], description["config"])
        sensors[label] = sensor.reading(**reading)
    return sensors


def build_part(registry: Registry[Any], kind: str, name: str, config: Mapping[str, Any]) -> Any:
    """A registered motion or sensor from its plain config; its tensors are loaded afterwards."""
    cls = registry[name]
    return cls(parse_config(cls.Config, config, f"{kind} {name}"))


def _check_description(description: Any, fields: set[str], what: str) -> None:
    if (
        not isinstance(description, Mapping)
        or set(description) != fields
        or not isinstance(description["config"], Mapping)
        or not all(isinstance(description[name], str) for name in fields & {"name", "system"})
        or not isinstance(description.get("reading", {}), Mapping)
        or not all(isinstance(name, str) for name in description.get("reading", {}).values())
    ):
        raise ConfigError(f"system composed: {what} = {shown(description)}; wanted {{'name': …, 'config': {{…}}}}")
