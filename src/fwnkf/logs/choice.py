"""Columns of a log as the user names them: one grammar for all commands, ``[NAME=]PLACE[*FACTOR]``.

``NAME`` is a signal of the log (``gyro_x``, see :data:`fwnkf.logs.log.ROLES`) or any name of one's own. ``PLACE`` is a
column of a table, or a field of a topic as ``TOPIC.FIELD``; the topic may be left out where one topic alone has it.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

from ..errors import ConfigError, DataError
from .log import BLOCK, OWN, ROLES, Log, Source, Stream, own_name
from .table import split_unit

_ITEM = re.compile(r"(?P<place>.+?)(?:\s*(?P<sign>[*/])\s*(?P<factor>[-+]?[0-9.]+(?:[eE][-+]?\d+)?))?")
_STANDARD = re.compile(
    r"(?P<kind>gyro|accel|position|velocity|vibration|peak)_[xyz]|(?P<turn>orientation)_[wxyz]"
    r"|(?P<number>rotor|motor)_\d+|(?P<innovation>innovation)_.+"
)
_ROLE = {"gyro": "imu", "accel": "imu", "position": "pose", "orientation": "pose"}
FILE = "columns.json"
FILE_LIMIT = 1 << 20
NOT_MEASURED = ("estimate", "truth")
"""Roles of references and estimates, which are no measurements."""


class Pick(NamedTuple):
    """A column under a name, times a factor.

    >>> Pick.parse("height=alt_cm*0.01")
    Pick(name='height', place='alt_cm', factor=0.01)
    >>> Pick.parse("gyro_x=/imu.rates.x/57.3").place
    '/imu.rates.x'
    """

    name: str
    place: str
    factor: float = 1.0

    @classmethod
    def parse(cls, text: str) -> Pick:
        """From ``NAME=PLACE*FACTOR`` or ``NAME=PLACE/DIVISOR``. Raises ConfigError."""
        name, equals, rest = (part.strip() for part in text.partition("="))
        match = _ITEM.fullmatch(rest)
        if not equals or not name or match is None:
            raise ConfigError(f"field {text!r}: give it as NAME=COLUMN, NAME=TOPIC.FIELD or NAME=COLUMN*FACTOR")
        if not match["factor"]:
            return cls(name, rest)
        try:
            factor = float(match["factor"])
            return cls(name, match["place"].strip(), factor if match["sign"] == "*" else 1.0 / factor)
        except (ValueError, ZeroDivisionError) as error:
            raise ConfigError(f"field {text!r}: {match['factor']!r} is not a factor") from error

    def __str__(self) -> str:
        return f"{self.name}={self.place}" + ("" if self.factor == 1.0 else f"*{self.factor!r}")


def split_items(text: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names in a list with commas, and the definitions of those that are written as ``NAME=PLACE*FACTOR``.

    >>> split_items("height=alt*0.01, vz")
    (('height', 'vz'), ('height=alt*0.01',))
    """
    items = [item.strip() for item in (text or "").split(",") if item.strip()]
    fields = tuple(item for item in items if "=" in item)
    return tuple(item.partition("=")[0].strip() for item in items), fields


@dataclass(frozen=True)
class Choice:
    """The columns that a user chose for a filter; saved beside it, so that another command finds them again.

    >>> Choice.parse(channels="height=alt*0.01", time="stamp").fields
    ('height=alt*0.01',)
    """

    channels: tuple[str, ...] = ()
    """Names for the measurements, in the order of the filter's channels."""
    controls: tuple[str, ...] = ()
    """Names for the control inputs."""
    state: tuple[str, ...] = ()
    """Names of the true state, where it is known."""
    fields: tuple[str, ...] = ()
    """``NAME=PLACE*FACTOR``."""
    topics: tuple[str, ...] = ()
    """``ROLE=TOPIC``."""
    time: str = ""
    """The column with the time; empty: it is found."""

    @classmethod
    def parse(
        cls,
        channels: str | None = None,
        controls: str | None = None,
        state: str | None = None,
        fields: Sequence[str] = (),
        topics: Sequence[str] = (),
        time: str | None = None,
    ) -> Choice:
        """From lists with commas, whose items may be definitions too."""
        lists = [split_items(text) for text in (channels, controls, state)]
        further = [field for _, defined in lists for field in defined]
        (measured, _), (given, _), (true, _) = lists
        return cls(measured, given, true, tuple(dict.fromkeys((*fields, *further))), tuple(topics), time or "")

    def completed(self, other: Choice | None) -> Choice:
        """With what ``other`` says where this says nothing."""
        if other is None:
            return self
        mine = {Pick.parse(text).name for text in self.fields}
        fields = (*self.fields, *(text for text in other.fields if Pick.parse(text).name not in mine))
        return Choice(
            self.channels or other.channels, self.controls or other.controls, self.state or other.state, fields,
            self.topics or other.topics, self.time or other.time,
        )  # fmt: skip

    def save(self, folder: str | Path) -> Path:
        """Write ``columns.json`` beside a filter."""
        path = Path(folder) / FILE
        path.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")
        return path

    @classmethod
    def load(cls, folder: str | Path) -> Choice | None:
        """What :meth:`save` wrote; None if there is none. Raises ConfigError for anything else."""
        path = Path(folder) / FILE
        if not path.is_file():
            return None
        try:
            if path.stat().st_size > FILE_LIMIT:
                raise ValueError(f"larger than {FILE_LIMIT:,} bytes")
            values = json.loads(path.read_text(encoding="utf-8"))
            lists = {name: values.pop(name, []) for name in ("channels", "controls", "state", "fields", "topics")}
            time = values.pop("time", "")
            texts = [time, *(item for items in lists.values() for item in items)]
            if values or not all(isinstance(text, str) for text in texts):
                raise ValueError("it has other fields than names of columns")
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise ConfigError(f"{path} is damaged ({error}); remove it, and name the columns again") from error
        return cls(**{name: tuple(items) for name, items in lists.items()}, time=time)


class Chosen(Log):
    """A log with signals that the user chose in front of those that its reader recognises."""

    def __init__(self, log: Log, sources: Sequence[Source], asked: Sequence[str] = (), time: str = "") -> None:
        self.log = log
        self.path, self.format, self.start_ns, self.stop_ns = log.path, log.format, log.start_ns, log.stop_ns
        self.topics, self.parameters = log.topics, log.parameters
        self.messages, self.dropouts, self.facts = log.messages, log.dropouts, log.facts
        self.asked = tuple(asked) or log.asked
        self._sources = tuple(sources)
        self._time = Pick.parse(f"time={time}") if time else None

    @property
    def notes(self) -> tuple[str, ...]:  # type: ignore[override]  # notes grow while the log is read
        return self.log.notes

    def airborne(self) -> tuple[tuple[float, float], ...]:
        return self.log.airborne()

    def read(self, topic: str, fields: Sequence[str] | None = None) -> Stream:
        return self._timed(self.log.read(topic, self._with_time(topic, fields)), fields)

    def windows(self, topic: str, fields: Sequence[str] | None, spans: Sequence[tuple[float, float]]) -> list[Stream]:
        found = self.log.windows(topic, self._with_time(topic, fields), spans)
        return [self._timed(stream, fields) for stream in found]

    def blocks(self, wanted: Mapping[str, Sequence[str]], samples: int = BLOCK) -> Iterator[Mapping[str, Stream]]:
        asked = {topic: self._with_time(topic, fields) or () for topic, fields in wanted.items()}
        for block in self.log.blocks(asked, samples):
            yield {topic: self._timed(stream, wanted[topic]) for topic, stream in block.items()}

    def sources(self) -> tuple[Source, ...]:
        names = {source.name for source in self._sources}
        return (*self._sources, *(source for source in self.log.sources() if source.name not in names))

    def _with_time(self, topic: str, fields: Sequence[str] | None) -> Sequence[str] | None:
        """The fields to read, with the one that the user calls the time."""
        if self._time is None or fields is None or topic not in self.topics:
            return fields
        place = self._time.place.removeprefix(f"{topic}.")
        return [*fields, place] if place in self.topics[topic].fields else fields

    def _timed(self, stream: Stream, fields: Sequence[str] | None) -> Stream:
        if self._time is None:
            return stream
        place = self._time.place.removeprefix(f"{stream.topic}.")
        if place not in stream.columns:
            return stream
        columns = {name: stream.columns[name] for name in (stream.columns if fields is None else fields)}
        return replace(stream, time=stream.columns[place] * self._time.factor, columns=columns)


def choose(
    log: Log, topics: Sequence[str] = (), fields: Sequence[str] = (), channels: Sequence[str] = (), time: str = ""
) -> Log:
    r"""A log with signals that the user names in front of those that its reader recognises.

    A topic takes the place of the standard signal if the log's reader recognises the type of its messages; else name
    its fields one by one.

    Args:
        log: the log.
        topics: topics by role, as ``imu=/my/imu``.
        fields: columns by name with a factor, as ``gyro_x=/my/imu.rates.x*0.0174533`` or ``load=adc_3*0.002``.
        channels: names of the signals and columns that are wanted, and no others (:attr:`Log.asked`).
        time: the field of messages with their time in seconds, as ``stamp_us*1e-6``; for tables see
            :func:`fwnkf.logs.open_log`.

    Returns:
        The log with these signals.

    Raises:
        ConfigError: a role, topic or field is unknown.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from fwnkf.logs import open_log
    >>> path = Path(tempfile.mkdtemp()) / "run.csv"
    >>> _ = path.write_text("t [s],a,b,c\n0.0,90,0,0\n0.01,180,0,0\n")
    >>> fields = [f"gyro_{axis}={column}*0.0174533" for axis, column in zip("xyz", "abc")]
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
        pick = Pick.parse(text)
        topic, field = find_field(log, pick.place, f"field {text!r}")
        role = role_of(pick.name)
        name = own_name(topic) if role == OWN else role
        other = chosen.get(name)
        if other is not None and other.topic != topic:
            raise ConfigError(f"field {text!r}: the fields of {role} must be of one topic, {other.topic}")
        columns = dict(other.columns) if other is not None else {}
        chosen[name] = Source(name, role, topic, columns | {pick.name: (field, pick.factor)})
    asked = [name for name, source in chosen.items() if source.role == OWN]
    known = Chosen(log, tuple(chosen.values()), asked, time) if chosen or time else log
    if not channels:
        return known
    found = [
        source._replace(columns={name: source.columns[name] for name in names})
        for source, names in find_columns(known, channels)
    ]
    return Chosen(known, found, [source.name if source.role == OWN else source.role for source in found])


def role_of(name: str) -> str:
    """The role of a column by its name; :data:`~fwnkf.logs.log.OWN` for a name of one's own.

    >>> role_of("gyro_x"), role_of("rotor_3"), role_of("gps_x")
    ('imu', 'rotor', 'column')
    """
    match = _STANDARD.fullmatch(name)
    if match is None:
        return OWN
    kind = next(item for item in match.groupdict().values() if item is not None)
    return _ROLE.get(kind, kind)


def find_field(log: Log, place: str, what: str) -> tuple[str, str]:
    """Topic and field of a place; raises ConfigError that begins with ``what``."""
    for topic in sorted(log.topics, key=len, reverse=True):  # a topic may contain points itself
        if place.startswith(topic + "."):
            field = place[len(topic) + 1 :]
            if field in log.topics[topic].fields:
                return topic, field
    bare = split_unit(place)[0]
    having = [topic.name for topic in log.topics.values() if place in topic.fields]
    if not having and bare != place:
        return find_field(log, bare, what)
    if len(having) == 1:
        return having[0], place
    if having:
        raise ConfigError(
            f"{what}: several topics have a field {place!r}; name one of them: "
            + _few([f"{topic}.{place}" for topic in having])
        )
    topic = next((name for name in sorted(log.topics, key=len, reverse=True) if place.startswith(name + ".")), "")
    if topic:
        raise ConfigError(f"{what}: {topic} has no field {place[len(topic) + 1 :]!r}; {_few(log.topics[topic].fields)}")
    if len(log.topics) == 1:
        fields = next(iter(log.topics.values())).fields
        similar = difflib.get_close_matches(place, fields, 3, 0.5)
        hint = f"; did you mean {' or '.join(map(repr, similar))}?" if similar else ";"
        raise ConfigError(f"{what}: {log.path} has no column {place!r}{hint} there are: {_few(fields)}")
    raise ConfigError(f"{what}: it begins with no topic of {log.path}; there are: {_few(log.topics)}")


def find_columns(log: Log, names: Sequence[str]) -> list[tuple[Source, tuple[str, ...]]]:
    """The signals of a log that have the columns with these names, those with most of them first.

    A column is named as in :data:`fwnkf.logs.log.ROLES`, or as in its topic. References and estimates are no
    measurements.
    """
    sources = [source for source in log.sources() if source.role not in NOT_MEASURED]
    missing = list(dict.fromkeys(names))
    for name in missing:
        if not any(name in source.columns for source in sources):
            try:
                topic, field = find_field(log, name, name)
            except ConfigError:
                continue
            own = next((source for source in sources if source.name == own_name(topic)), None)
            columns = {} if own is None else dict(own.columns)
            sources = [source for source in sources if source is not own]
            sources.append(Source(own_name(topic), OWN, topic, columns | {name: (field, 1.0)}))
    chosen: list[tuple[Source, tuple[str, ...]]] = []
    while missing:
        counts = [(sum(name in source.columns for name in missing), source) for source in sources]
        best = max((count for count, _ in counts), default=0)
        if best == 0:
            known = _few(list(dict.fromkeys(name for source in sources for name in source.columns)))
            raise DataError(
                f"{log.path}: no signal and no column is called {', '.join(missing)}; there are: {known}. Name the "
                f"column that has it: --field {missing[0]}=COLUMN*FACTOR, or TOPIC.FIELD in a log with topics"
            )
        source = next(source for count, source in counts if count == best)
        columns_of = tuple(name for name in missing if name in source.columns)
        chosen.append((source, columns_of))
        missing = [name for name in missing if name not in columns_of]
    return chosen


def _few(names: Mapping[str, object] | Sequence[str]) -> str:
    return ", ".join(list(names)[:20]) or "none"
