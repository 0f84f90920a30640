"""Signals of a log that the user chose: topics and fields by name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from ..errors import ConfigError
from .log import BLOCK, ROLES, Log, Source, Stream

_FIELD = re.compile(r"(?P<place>.+?)(?:\s*(?P<sign>[*/])\s*(?P<factor>[-+]?[0-9.]+(?:[eE][-+]?\d+)?))?")


class Chosen(Log):
    """A log with signals that the user chose in front of those that its reader recognises."""

    def __init__(self, log: Log, sources: Sequence[Source]) -> None:
        self.log = log
        self.path, self.format, self.start_ns, self.stop_ns = log.path, log.format, log.start_ns, log.stop_ns
        self.topics, self.parameters = log.topics, log.parameters
        self.messages, self.dropouts, self.facts = log.messages, log.dropouts, log.facts
        self._sources = tuple(sources)

    @property
    def notes(self) -> tuple[str, ...]:  # type: ignore[override]  # notes grow while the log is read
        return self.log.notes

    def airborne(self) -> tuple[tuple[float, float], ...]:
        return self.log.airborne()

    def read(self, topic: str, fields: Sequence[str] | None = None) -> Stream:
        return self.log.read(topic, fields)

    def windows(self, topic: str, fields: Sequence[str] | None, spans: Sequence[tuple[float, float]]) -> list[Stream]:
        return self.log.windows(topic, fields, spans)

    def blocks(self, wanted: Mapping[str, Sequence[str]], samples: int = BLOCK) -> Iterator[Mapping[str, Stream]]:
        return self.log.blocks(wanted, samples)

    def sources(self) -> tuple[Source, ...]:
        names = {source.name for source in self._sources}
        return (*self._sources, *(source for source in self.log.sources() if source.name not in names))


def choose(log: Log, topics: Sequence[str] = (), fields: Sequence[str] = ()) -> Log:
    r"""A log with signals that the user names in front of those that its reader recognises.

    A topic takes the place of the standard signal if the log's reader recognises the type of its messages; else name
    its fields one by one.

    Args:
        log: the log.
        topics: topics by role, as ``imu=/my/imu``.
        fields: fields by standard name, with a factor to the standard unit, as ``gyro_x=/my/imu.rates.x*0.0174533``.

    Returns:
        The log with these signals.

    Raises:
        ConfigError: a role, topic or field is unknown.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from fwnkf.logs import open_log
    >>> path = Path(tempfile.mkdtemp()) / "run.csv"
    >>> _ = path.write_text("t [s],a,b,c\n0.0,90,0,0\n0.01,180,0,0\n")
    >>> fields = [f"gyro_{axis}=run.{column}*0.0174533" for axis, column in zip("xyz", "abc")]
    >>> choose(open_log(path), fields=fields).signal("imu").columns["gyro_x"].round(2)
    array([1.57, 3.14])
    """
    chosen: dict[str, Source] = {}
    for text in topics:
        role, _, topic = text.partition("=")
        if role not in ROLES or not topic:
            raise ConfigError(f"topic {text!r}: give it as role=topic, with one of the roles {', '.join(ROLES)}")
        same = [source for source in log.sources() if source.topic == topic]
        matches = [source for source in same if source.role == role] or [s for s in same if role in s.name]
        if topic not in log.topics:
            raise ConfigError(f"topic {text!r}: no such topic in {log.path}; there are: {_few(log.topics)}")
        if not matches:
            raise ConfigError(
                f"topic {text!r}: messages of type {log.topics[topic].kind} have no known {role}; name its fields, for "
                f"example gyro_x={topic}.{(log.topics[topic].fields or ('field',))[0]}*1.0"
            )
        chosen[role] = matches[0]._replace(name=role, role=role)
    for text in fields:
        name, _, place = text.partition("=")
        role, topic, field, factor = _parse(log, text, name.strip(), place.strip())
        other = chosen.get(role)
        if other is not None and other.topic != topic:
            raise ConfigError(f"field {text!r}: the fields of {role} must be of one topic, {other.topic}")
        columns = dict(other.columns) if other is not None else {}
        chosen[role] = Source(role, role, topic, columns | {name.strip(): (field, factor)})
    return Chosen(log, tuple(chosen.values())) if chosen else log


def _parse(log: Log, text: str, name: str, place: str) -> tuple[str, str, str, float]:
    roles = {"gyro": "imu", "accel": "imu", "position": "pose", "orientation": "pose"}
    role = name.partition("_")[0]
    role = roles.get(role, role)
    if role not in ROLES:
        raise ConfigError(f"field {text!r}: {name!r} is not a standard name (gyro_x, accel_x, position_x, rotor_1, …)")
    match = _FIELD.fullmatch(place)
    if match is None:
        raise ConfigError(f"field {text!r}: give it as name=topic.field or name=topic.field*factor")
    factor = 1.0
    if match["factor"]:
        try:
            factor = float(match["factor"])
            factor = factor if match["sign"] == "*" else 1.0 / factor
        except (ValueError, ZeroDivisionError) as error:
            raise ConfigError(f"field {text!r}: {match['factor']!r} is not a factor") from error
    for topic in sorted(log.topics, key=len, reverse=True):  # a topic may contain points itself
        if match["place"].startswith(topic + "."):
            field = match["place"][len(topic) + 1 :]
            if field not in log.topics[topic].fields:
                raise ConfigError(f"field {text!r}: {topic} has no field {field!r}; {_few(log.topics[topic].fields)}")
            return role, topic, field, factor
    raise ConfigError(f"field {text!r}: it begins with no topic of {log.path}; there are: {_few(log.topics)}")


def _few(names: Mapping[str, object] | Sequence[str]) -> str:
    return ", ".join(list(names)[:20]) or "none"
