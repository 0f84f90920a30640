"""Configuration of an experiment: frozen dataclasses that hold everything a run needs.

Equal experiments give bit-identical results. :mod:`fwnkf.training.experiments` reads them from YAML and overrides.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from typing import Any, Literal

from ..errors import ConfigError
from ..registry import as_tuples, at_least, limited

LOGGERS = {
    "tensorboard": "TensorBoardLogger",
    "csv": "CSVLogger",
    "wandb": "WandbLogger",
    "mlflow": "MLFlowLogger",
    "comet": "CometLogger",
    "neptune": "NeptuneLogger",
}
"""Lightning's loggers by short name."""


def _raise(faults: list[str]) -> None:
    if faults:
        raise ConfigError("\n".join(faults))


@dataclass(frozen=True)
class DataSection:
    """The data by name: ``lorenz``, ``pendulum``, ``simulated`` (the experiment's system), ``tables``, or your own.

    ``state``, ``observe``, ``control``, ``angles``, ``time`` and ``window`` apply to tables only; ``train``, ``val``
    and ``test`` are numbers of simulated records (default: those of the paper). Further options of other data are in
    ``options``; in an experiment file they are written beside the name.
    """

    name: str
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
    options: dict[str, Any] = field(default_factory=dict)

    def given(self) -> dict[str, Any]:
        """The options of the data that differ from the defaults of this section."""
        own = {entry.name for entry in dataclasses.fields(self)} - {"name", "dtype", "options"}
        defaults = {entry.name: entry.default for entry in dataclasses.fields(self)}
        changed = {name: getattr(self, name) for name in sorted(own) if getattr(self, name) != defaults[name]}
        return {**changed, **{name: as_tuples(value) for name, value in self.options.items()}}

    def __post_init__(self) -> None:
        faults = []
        table_fields = {
            name: getattr(self, name) for name in ("state", "observe", "control", "angles", "time", "window")
        }
        counts = {name: getattr(self, name) for name in ("train", "val", "test")}
        if self.name == "tables":
            if self.folder is None:
                faults.append("data.folder is missing: set it to the folder (or file) of your tables")
            faults += [
                f"data.{name} is missing: name the columns" for name in ("state", "observe") if not table_fields[name]
            ]
            faults += [
                f"data.{name} = {value!r} applies to simulated data only; remove it for tables"
                for name, value in counts.items()
                if value is not None
            ]
            if self.protocol != "strict":
                faults.append("data.protocol = 'paper' applies to simulated data only; set it to 'strict' for tables")
            if self.scenario != "white":
                faults.append(f"data.scenario = {self.scenario!r} applies to simulated data only; remove it for tables")
            for name in ("state", "observe", "control"):
                columns = table_fields[name]
                repeated = sorted({column for column in columns if columns.count(column) > 1})
                if repeated:
                    faults.append(f"data.{name} lists {', '.join(repeated)} more than once")
            unknown = [column for column in self.angles if column not in self.state]
            if unknown:
                faults.append(f"data.angles = {unknown}: not among the columns of data.state")
        elif self.name in ("lorenz", "pendulum"):
            faults += [
                f"data.{name} = {value!r} applies to data.name = 'tables' only; remove it for {self.name!r}"
                for name, value in {**table_fields, "folder": self.folder}.items()
                if value
            ]
        _raise(faults)


@dataclass(frozen=True)
class FilterSection:
    """The filter, its options, and whether it uses the equations of motion of the data.

    With ``equations: false`` the filter gets the observation matrix only, and noise levels are estimated from training
    data. A filter that needs a system then gets the system ``learned``, whose options are in ``learned_system``, and a
    linear filter the matrices of a least-squares fit; with ``regression`` the system is a motion fitted to the true
    states of the training records, and networks are added to that. ``process_share`` is the initial process noise as a
    fraction of the mean square of the motion in one step. ``start`` is the folder of a saved filter whose weights
    training starts from.
    """

    name: str = "fwnkf"
    equations: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    learned_system: dict[str, Any] | None = None
    """Options of the learned system: ``{width: 64, order: 2, observation: learned_network}``; null: its defaults."""
    regression: dict[str, Any] | None = None
    """Options of :func:`fwnkf.identify.fit_regression`: ``{degree: [1, 2], threshold: auto}``; ``{}``: its defaults."""
    process_share: float = limited(1.0, above=0.0)
    noise_from_spectrum: bool = False
    """Initialise noise states from the spectrum of the noise on training records instead of at zero amplitude."""
    start: str | None = None


@dataclass(frozen=True)
class OptimizerSection:
    """The optimizer, its learning rate and its schedule; ``clip`` is the largest norm of the gradient."""

    name: Literal["adam", "adamw", "adabelief"] = "adamw"
    learning_rate: float = limited(3e-3, above=0.0)
    rates: dict[str, Any] = field(default_factory=dict)
    """Factors on the learning rate by prefix of the parameter name; 0 freezes the parameters."""
    weight_decay: float = at_least(0.0, 0.0)
    schedule: Literal["one_cycle", "cosine", "exponential", "constant"] = "one_cycle"
    warmup: float = limited(0.2, min=0.0, max=0.9)
    """Fraction of the run over which the learning rate rises."""
    final: float = limited(1e-3, min=0.0, max=1.0)
    """Final learning rate as a fraction of the highest."""
    clip: float | None = limited(1.0, above=0.0)

    def __post_init__(self) -> None:
        if self.schedule == "exponential" and self.final == 0:
            _raise(["optimizer.final = 0 cannot be reached by optimizer.schedule = 'exponential'; set it above 0"])


@dataclass(frozen=True)
class TrainerSection:
    """Length of the run, batching, validation and hardware.

    ``truncate`` detaches the gradient every so many time steps (truncated backpropagation through time). ``chunk``
    splits records into chunks of so many time steps, with one optimizer step for each and the filter's state carried
    over. ``recompute`` recomputes activations in the backward pass, which saves memory and takes longer.
    """

    steps: int = at_least(1, 1200)
    batch_size: int = at_least(1, 64)
    truncate: int | None = at_least(1, None)
    chunk: int | None = at_least(2, None)
    recompute: int | None = at_least(1, None)
    compile: bool = False
    """Compile the filter's step: two to three times faster after a minute of compilation; needs a C++ compiler."""
    pretrain: int = at_least(0, 0)
    """Steps of regression of a learned transition and observation on true states, before training the filter."""
    refine: int = at_least(0, 0)
    """At most so many quasi-Newton iterations after the steps of the regression."""
    validate_every: int = at_least(1, 50)
    patience: int | None = at_least(1, None)
    """Stop after so many validations without an improvement of ``monitor``."""
    monitor: Literal["val_mse", "val_nll", "val_innovation_nll", "val_loss"] = "val_mse"
    accelerator: Literal["auto", "cpu", "gpu"] = "auto"
    devices: int = at_least(1, 1)
    threads: int | None = at_least(1, 1)
    """Threads of each process; null: torch's default. Results are bit-identical only for equal numbers of threads."""
    loggers: tuple[str, ...] = ("tensorboard",)
    save_seconds: float = at_least(0.0, 30.0)
    """Interval at which the resume state is written, in addition to every validation."""
    memory_limit: float | None = limited(None, above=0.0)
    """Limit in GB above which the run is refused; null: nine tenths of the free memory."""

    def __post_init__(self) -> None:
        faults = []
        if self.truncate is not None and self.chunk is not None and self.truncate >= self.chunk:
            faults.append(
                f"trainer.truncate = {self.truncate} has no effect within chunks of {self.chunk}; lower it, or use null"
            )
        if self.refine and not self.pretrain:
            faults.append(
                f"trainer.refine = {self.refine} has no effect without a regression; set trainer.pretrain too"
            )
        if self.devices > 1 and self.batch_size % self.devices:
            faults.append(
                f"trainer.batch_size = {self.batch_size} must be a multiple of trainer.devices = {self.devices}"
            )
        _raise(faults)


@dataclass(frozen=True)
class Experiment:
    """A complete experiment. ``loss`` is a list of terms ``{kind, weight, …}``; see ``fwnkf list losses``."""

    data: DataSection
    system: dict[str, Any] | None = None
    """The system by name, with options of its config: ``{name: my_car, wheelbase: 2.7}``."""
    name: str = "experiment"
    seed: int = limited(0, min=0, max=2**31 - 1)
    filter: FilterSection = FilterSection()
    loss: tuple[Any, ...] = ({"kind": "state"},)
    optimizer: OptimizerSection = OptimizerSection()
    trainer: TrainerSection = TrainerSection()

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][\w.+-]*", self.name):
            _raise([f"name = {self.name!r} is not a valid name: use letters and digits, and . _ + - after the first"])

    def as_dict(self) -> dict[str, Any]:
        """Plain values, from which :func:`fwnkf.training.experiments.parse_experiment` builds an equal experiment."""
        return dataclasses.asdict(self)
