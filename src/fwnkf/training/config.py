"""One experiment as data: frozen dataclasses that hold everything a run needs.

The same experiment gives the same bits. :mod:`fwnkf.training.experiments` fills them from YAML and overrides.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from typing import Any, Literal

from ..errors import ConfigError
from ..registry import at_least, limited

LOGGERS = {
    "tensorboard": "TensorBoardLogger",
    "csv": "CSVLogger",
    "wandb": "WandbLogger",
    "mlflow": "MLFlowLogger",
    "comet": "CometLogger",
    "neptune": "NeptuneLogger",
}
"""Lightning's loggers by their short names."""


def _raise(faults: list[str]) -> None:
    if faults:
        raise ConfigError("\n".join(faults))


@dataclass(frozen=True)
class DataSection:
    """Which records: a benchmark by name, or ``tables``, a folder of your own CSV or Parquet files.

    ``state``, ``observe``, ``control``, ``angles``, ``time`` and ``window`` are for tables; ``train``, ``val`` and
    ``test`` count records of simulated data (default: as many as the paper).
    """

    name: Literal["lorenz", "pendulum", "tables"]
    protocol: Literal["paper", "strict"] = "strict"
    scenario: Literal["white", "tone", "high_band", "drift", "pink"] = "white"
    train: int | None = at_least(1, None)
    val: int | None = at_least(1, None)
    test: int | None = at_least(1, None)
    folder: str | None = None
    state: tuple[str, ...] = ()
    observe: tuple[str, ...] = ()
    control: tuple[str, ...] = ()
    angles: tuple[str, ...] = ()
    time: str | None = None
    window: int | None = at_least(2, None)
    dtype: Literal["float32", "float64"] = "float32"

    def __post_init__(self) -> None:
        faults = []
        own = {name: getattr(self, name) for name in ("state", "observe", "control", "angles", "time", "window")}
        counts = {name: getattr(self, name) for name in ("train", "val", "test")}
        if self.name == "tables":
            if self.folder is None:
                faults.append("data.folder is missing: the folder (or file) your tables lie in")
            faults += [f"data.{name} is missing: name the columns" for name in ("state", "observe") if not own[name]]
            faults += [
                f"data.{name} = {value!r} is for simulated data; leave it out for tables"
                for name, value in counts.items()
                if value is not None
            ]
            if self.protocol != "strict":
                faults.append("data.protocol = 'paper' is for benchmarks; tables are split without overlap: 'strict'")
            if self.scenario != "white":
                faults.append(f"data.scenario = {self.scenario!r} is for simulated data; leave it out for tables")
            for name in ("state", "observe", "control"):
                twice = sorted({column for column in own[name] if own[name].count(column) > 1})
                if twice:
                    faults.append(f"data.{name} names {', '.join(twice)} more than once")
            stray = [column for column in self.angles if column not in self.state]
            if stray:
                faults.append(f"data.angles = {stray}: not among the columns of data.state")
        else:
            faults += [
                f"data.{name} = {value!r} is for data.name = 'tables'; leave it out for {self.name!r}"
                for name, value in {**own, "folder": self.folder}.items()
                if value
            ]
        _raise(faults)


@dataclass(frozen=True)
class FilterSection:
    """Which filter, with which options, and whether it is told the equations of motion of the data.

    With ``equations: false`` it is given the observation matrix alone; noise levels are measured on training data.
    ``process_share`` is the part of one step's motion (its mean square) that it takes for noise before training.
    ``start`` is a folder of a saved filter whose weights training goes on from.
    """

    name: str = "fwnkf"
    equations: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    process_share: float = limited(1.0, above=0.0)
    noise_from_spectrum: bool = False
    """Whether noise states start from the spectrum of the noise on training records, rather than from nothing."""
    start: str | None = None


@dataclass(frozen=True)
class OptimizerSection:
    """Adam, how fast, and how the rate moves over the run; ``clip`` bounds the norm of a gradient."""

    name: Literal["adam", "adamw"] = "adamw"
    learning_rate: float = limited(3e-3, above=0.0)
    rates: dict[str, Any] = field(default_factory=dict)
    """Factors on the rate, by how parameters' names begin; those with 0 stay as they are."""
    weight_decay: float = at_least(0.0, 0.0)
    schedule: Literal["one_cycle", "cosine", "constant"] = "one_cycle"
    warmup: float = limited(0.2, min=0.0, max=0.9)
    """Share of the run in which the rate rises."""
    final: float = limited(1e-3, min=0.0, max=1.0)
    """The last rate, as a share of the highest."""
    clip: float | None = limited(1.0, above=0.0)


@dataclass(frozen=True)
class TrainerSection:
    """How long, in which pieces, and where.

    ``truncate`` cuts gradients every so many steps of time. ``chunk`` cuts records into pieces of so many steps, with
    an optimizer step each and the filter's state carried from piece to piece. ``recompute`` trades time for memory.
    """

    steps: int = at_least(1, 1200)
    batch_size: int = at_least(1, 64)
    truncate: int | None = at_least(1, None)
    chunk: int | None = at_least(2, None)
    recompute: int | None = at_least(1, None)
    compile: bool = False
    """Compile the filter's step: two to three times faster, after a minute; needs a C++ compiler."""
    pretrain: int = at_least(0, 0)
    """Steps of plain regression of an ``fwnkf`` transition on known states, before it is trained within the filter."""
    validate_every: int = at_least(1, 50)
    patience: int | None = at_least(1, None)
    """Stop after so many validations without a better ``monitor``."""
    monitor: Literal["val_mse", "val_nll", "val_innovation_nll", "val_loss"] = "val_mse"
    accelerator: Literal["auto", "cpu", "gpu"] = "auto"
    devices: int = at_least(1, 1)
    threads: int | None = at_least(1, 1)
    """Threads of one process; null leaves torch's own choice. Bits are equal only for equal numbers of threads."""
    loggers: tuple[str, ...] = ("tensorboard",)
    save_seconds: float = at_least(0.0, 30.0)
    """How often the state to resume from is written, besides after every validation."""
    memory_limit: float | None = limited(None, above=0.0)
    """Refuse to start above so many GB; null: above nine tenths of what is free."""

    def __post_init__(self) -> None:
        faults = []
        if self.truncate is not None and self.chunk is not None and self.truncate >= self.chunk:
            faults.append(
                f"trainer.truncate = {self.truncate} does nothing within chunks of {self.chunk}: shorten it, or null"
            )
        if self.patience is not None and self.patience * self.validate_every > self.steps:
            faults.append(
                f"trainer.patience = {self.patience} validations of {self.validate_every} steps is longer than the run "
                f"of {self.steps}; lower it, or leave it out"
            )
        if self.devices > 1 and self.batch_size % self.devices:
            faults.append(
                f"trainer.batch_size = {self.batch_size} must be a multiple of trainer.devices = {self.devices}"
            )
        _raise(faults)


@dataclass(frozen=True)
class Experiment:
    """Everything a run needs. ``loss`` is a list of terms ``{kind, weight, …}``; see ``fwnkf list losses``."""

    data: DataSection
    name: str = "experiment"
    seed: int = limited(0, min=0, max=2**31 - 1)
    filter: FilterSection = FilterSection()
    loss: tuple[Any, ...] = ({"kind": "state"},)
    optimizer: OptimizerSection = OptimizerSection()
    trainer: TrainerSection = TrainerSection()

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][\w.+-]*", self.name):
            _raise([f"name = {self.name!r} names the run's folder: letters, digits, and . _ + - after the first"])

    def as_dict(self) -> dict[str, Any]:
        """Plain values; :func:`fwnkf.training.experiments.parse_experiment` makes the same experiment of them."""
        return dataclasses.asdict(self)
