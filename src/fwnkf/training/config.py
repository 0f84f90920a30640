"""One experiment as data: frozen dataclasses, filled from YAML and ``a.b=c`` overrides, checked before anything runs.

Everything a run needs is here, and nothing else is: the same experiment gives the same bits. Faults come one readable
line each, all at once, with the field, its value and what would do.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from ..errors import ConfigError
from ..extras import need
from ..registry import FILTERS, as_tuples, at_least, limited, try_config

LOGGERS = {
    "tensorboard": "TensorBoardLogger",
    "csv": "CSVLogger",
    "wandb": "WandbLogger",
    "mlflow": "MLFlowLogger",
    "comet": "CometLogger",
    "neptune": "NeptuneLogger",
}
"""Lightning's loggers by their short names."""
FILE_LIMIT = 1 << 20
"""An experiment is a page of text; anything larger is refused unread."""


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
        """Plain values, from which :func:`parse_experiment` makes the same experiment again."""
        return dataclasses.asdict(self)


# ---- from text to an experiment -------------------------------------------------------------------------------------


def parse_experiment(values: Mapping[str, Any], owner: str = "experiment") -> Experiment:
    """Check everything that can be checked without data, and tell every fault at once, one line each."""
    from .losses import parse_terms

    made, faults = try_config(Experiment, values, owner)
    found = made.filter.name if made else _section(values, "filter").get("name", "fwnkf")
    if isinstance(found, str) and found not in list(FILTERS):
        near = difflib.get_close_matches(found, list(FILTERS), 1)
        faults.append(
            f"{owner}: option filter.name = {found!r}: no filter is called that; "
            f"there are: {', '.join(sorted(FILTERS))}" + (f"; did you mean {near[0]}?" if near else "")
        )
    terms = values.get("loss", ({"kind": "state"},))
    if isinstance(terms, (list, tuple)):
        faults += parse_terms(terms, owner)[1]
    if made is not None and not faults:
        faults += [f"{owner}: {line}" for line in _combinations(made)]
    if faults or made is None:
        raise ConfigError("\n".join(dict.fromkeys(faults)))
    return made


def _section(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = values.get(name)
    return found if isinstance(found, Mapping) else {}


def _combinations(experiment: Experiment) -> list[str]:
    """What only shows when sections meet: a filter that cannot be built for these data, a loss it cannot serve."""
    from ..filters.base import Filter
    from .losses import parse_terms
    from .setup import build_filter, signature

    faults = [
        f"trainer.loggers: no logger is called {name!r}; there are: {', '.join(LOGGERS)}"
        for name in experiment.trainer.loggers
        if name not in LOGGERS
    ]
    try:
        model = build_filter(experiment, signature(experiment.data))
    except (ConfigError, ValueError, TypeError, RuntimeError) as error:
        return [*faults, *(f"filter.options: {line}" for line in str(error).splitlines())]
    for term in parse_terms(experiment.loss, "")[0]:
        faults += [f"loss: {fault}" for fault in term.unfit(model)]
    blind = type(model).observe is Filter.observe
    if blind and experiment.trainer.monitor == "val_innovation_nll":
        faults.append(f"trainer.monitor = 'val_innovation_nll': filter {model.name!r} has no innovations of the sensor")
    if experiment.trainer.pretrain and (model.name != "fwnkf" or model.system is not None):
        faults.append(
            f"trainer.pretrain = {experiment.trainer.pretrain} fits the transition of an fwnkf without equations; "
            "set it to 0"
        )
    if experiment.filter.noise_from_spectrum and experiment.filter.options.get("shaping") != "noise":
        faults.append("filter.noise_from_spectrum = true sets noise states; set filter.options.shaping: noise")
    faults += _rates(experiment.optimizer.rates, [name for name, _ in model.named_parameters()])
    if not any(parameter.requires_grad for parameter in model.parameters()):
        faults.append(
            f"filter.name = {experiment.filter.name!r} with these options has nothing to train; "
            "evaluate it with `fwnkf bench references`, or let it learn (filter.options.learn, or another filter)"
        )
    return faults


def _rates(rates: Mapping[str, Any], names: list[str]) -> list[str]:
    """What is wrong with the factors on the learning rate."""
    parts = ", ".join(sorted({name.split(".")[0] for name in names}))
    faults = [
        f"optimizer.rates: no parameter's name begins with {given!r}; there are: {parts}"
        for given in rates
        if not any(name.startswith(given) for name in names)
    ]
    return faults + [
        f"optimizer.rates.{given} = {factor!r} must be a number of at least 0"
        for given, factor in rates.items()
        if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 0 <= factor < math.inf
    ]


def read_experiment(source: str | Path | Mapping[str, Any], overrides: Iterable[str] = ()) -> Experiment:
    """An experiment from a YAML file, the name of one that ships with the package, or plain values.

    Overrides are ``section.field=value``, read as YAML: ``optimizer.learning_rate=1e-3``, ``loss.1.weight=0.1``.
    """
    values, owner = (dict(source), "experiment") if isinstance(source, Mapping) else (read_values(source), str(source))
    for text in overrides:
        _override(values, text)
    return parse_experiment(values, owner)


def shipped() -> dict[str, str]:
    """The experiments that come with the package: name and first line."""
    folder = resources.files("fwnkf") / "experiments"
    found = {}
    for entry in sorted(folder.iterdir(), key=lambda item: item.name):
        if entry.name.endswith(".yaml"):
            found[entry.name.removesuffix(".yaml")] = entry.read_text().splitlines()[0].lstrip("# ")
    return found


def read_values(source: str | Path) -> dict[str, Any]:
    """The plain values of a YAML file, or of an experiment that ships with the package; not checked yet."""
    path = Path(source)
    if path.suffix in (".yaml", ".yml"):
        try:
            data = path.read_bytes()[: FILE_LIMIT + 1]
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
        if len(data) > FILE_LIMIT:
            raise ConfigError(f"{path} is larger than {FILE_LIMIT:,} bytes; that is no experiment")
        text = data.decode("utf-8", errors="replace")
    else:
        known = shipped()
        if str(source) not in known:
            near = difflib.get_close_matches(str(source), known, 1)
            hint = f"Did you mean {near[0]}?" if near else "One of your own is a file that ends in .yaml"
            if path.is_dir() or path.suffix in (".csv", ".parquet"):
                hint = f"To train on your own tables: fwnkf train --data {source} --state … --observe … --time …"
            raise ConfigError(f"no experiment is called {str(source)!r}; there are: {', '.join(known)}. {hint}")
        text = (resources.files("fwnkf") / "experiments" / f"{source}.yaml").read_text(encoding="utf-8")
    found = parse_yaml(text, str(source))
    if not isinstance(found, dict):
        raise ConfigError(f"{source}: an experiment is a mapping of sections (name, data, filter, loss, …)")
    return found


def parse_yaml(text: str, where: str) -> Any:
    """YAML's plain values (no tags, so no objects), with ``1e-3`` read as the number it is."""
    yaml = need("yaml", "train")

    class Loader(yaml.SafeLoader):  # type: ignore[misc, name-defined]
        """YAML 1.1 takes 1e-3 for text, because it has no point."""

    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d[\d_]*(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
    )
    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"{where}{place}: this is not YAML: {getattr(error, 'problem', None) or error}") from error


def _override(values: dict[str, Any], text: str) -> None:
    """Set one value in place, making the sections on the way."""
    path, sign, raw = text.partition("=")
    keys = path.strip().split(".")
    if not sign or not all(keys):
        raise ConfigError(f"--set {text!r}: write section.field=value, e.g. optimizer.learning_rate=1e-3")
    value = as_tuples(parse_yaml(raw, f"--set {path}"))
    at: Any = values
    for depth, key in enumerate(keys):
        last = depth == len(keys) - 1
        if isinstance(at, (list, tuple)):
            if not key.isdigit() or int(key) >= len(at):
                raise ConfigError(
                    f"--set {text!r}: {'.'.join(keys[:depth])} has entries 0 to {len(at) - 1}, not {key!r}"
                )
            index: Any = int(key)
        elif isinstance(at, dict):
            index = key
            if not last and not isinstance(at.get(key), (dict, list, tuple)):
                at[key] = {}
            if not last and isinstance(at[key], tuple):
                at[key] = list(at[key])
        else:
            raise ConfigError(f"--set {text!r}: {'.'.join(keys[:depth])} is {at!r}, which has no parts")
        if last:
            at[index] = value
        else:
            at = at[index]
