"""What all parts of a batch run share, as plain values that travel to the workers."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from .. import load
from ..checkpoint import CONFIG_FILE, TENSOR_FILE
from ..errors import ConfigError
from ..filters.base import Filter
from ..logs.results import component_names
from ..registry import import_modules
from .rows import Clock
from .store import Store

FILTER = "_filter"
TIME = "time"
"""Column of the time that nobody named."""
MOST_ROWS = 1 << 16
"""Largest number of rows of a batch."""


@dataclass(frozen=True)
class Settings:
    """Where samples come from and go to, and how they are filtered."""

    KEPT: ClassVar[frozenset[str]] = frozenset(
        ("digest", "channels", "controls", "device", "time", "stamps", "step", "batch_size")
    )
    """What must not change between runs into the same output, because estimates would."""

    input: str
    output: str
    digest: str
    """Of the filter (:func:`fwnkf.scale.states.filter_digest`)."""
    channels: tuple[str, ...]
    controls: tuple[str, ...] = ()
    device: str = "device"
    """Column with the name of the device."""
    time: str = TIME
    """Column with the time in Parquet files with many devices, and in logs where it was named."""
    stamps: bool = False
    step: float | None = None
    """Time step in seconds; None for a filter without one."""
    batch_size: int = 1024
    topics: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    """``--topic`` and ``--field`` for logs."""
    modules: tuple[str, ...] = ()
    """Modules that register systems or filters."""

    @property
    def clock(self) -> Clock:
        return Clock(self.step, self.stamps)

    @property
    def names(self) -> tuple[str, ...]:
        """Columns of the samples: channels, then controls."""
        return (*self.channels, *self.controls)

    def kept(self) -> dict[str, Any]:
        """The values of :data:`KEPT`."""
        return {name: _plain(getattr(self, name)) for name in sorted(self.KEPT)}

    def as_dict(self) -> dict[str, Any]:
        """Plain values, from which :meth:`of` makes the same settings."""
        return {name: _plain(value) for name, value in dataclasses.asdict(self).items()}

    @staticmethod
    def of(values: Mapping[str, Any]) -> Settings:
        """Settings from the values of :meth:`as_dict`."""
        fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
        return Settings(**fields)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def names_of(
    model: Filter, channels: Sequence[str], controls: Sequence[str], kind: str = "column"
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns for the channels and controls of a filter; raises ConfigError if they are not as many.

    ``kind`` says in errors what is named: a column of a table, or a signal of a log.
    """
    if not channels and model.preprocess is None:
        channels = component_names(model.observation_layout.describe())
    wanted, inputs, _ = model.input_sizes
    if len(channels) != wanted:
        raise ConfigError(f"the filter has {wanted} channels; name a {kind} for each: --channels gyro_x,gyro_y,…")
    if len(controls) != inputs:
        raise ConfigError(f"the filter has {inputs} control inputs; name a {kind} for each: --controls rotor_1,…")
    if len({*channels, *controls}) != wanted + inputs:
        raise ConfigError(f"{kind}s repeat: {', '.join([*channels, *controls])}")
    return tuple(channels), tuple(controls)


def step_of(model: Filter, given: float | None, stamps: bool) -> float | None:
    """Seconds of a step: those given, those of the system, or None for a filter without a time step."""
    if model.input_sizes.block > 1:
        raise ConfigError(
            f"the filter reads blocks of {model.input_sizes.block} samples, and a chunk may end inside one; "
            "use fwnkf run for each log"
        )
    if stamps and not model.takes_dt:
        raise ConfigError("--stamps needs a filter that takes the length of a step, such as one with continuous=True")
    step = given if given is not None else None if model.system is None else model.system.dt
    if step is None and stamps:
        raise ConfigError("--stamps needs --step: the seconds of a step without missing samples")
    if step is not None and not step > 0:
        raise ConfigError(f"--step {step}: expected seconds above zero")
    return step


def put_filter(folder: str | Path, store: Store) -> None:
    """Copy a saved filter into the output, from where workers load it."""
    for name in (CONFIG_FILE, TENSOR_FILE):
        store.write(f"{FILTER}/{name}", (Path(folder) / name).read_bytes())


def get_filter(settings: Settings) -> Filter:
    """The filter of a run, from its output."""
    import_modules(settings.modules)
    store = Store(settings.output)
    with tempfile.TemporaryDirectory() as folder:
        for name in (CONFIG_FILE, TENSOR_FILE):
            (Path(folder) / name).write_bytes(store.read(f"{FILTER}/{name}"))
        return load(folder).eval()
