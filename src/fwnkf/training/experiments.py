"""Read an :class:`~fwnkf.training.config.Experiment` from YAML and overrides, checked before any data are loaded."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import math
import re
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from ..core.budget import Budget
from ..data import loaders
from ..errors import ConfigError, FwnkfError
from ..extras import need
from ..plain import is_text
from ..registry import DATA, FILTERS, SYSTEMS, Registry, as_tuples, try_config
from .config import LOGGERS, DataSection, Experiment
from .losses import parse_terms
from .pretrain import NOTHING_LEARNED, regression_of
from .setup import Signature, build_filter, build_own_system, is_linear, signature

__all__ = ["parse_experiment", "read_experiment", "shipped"]

FILE_LIMIT = 1 << 16
"""Largest size of an experiment file in bytes; larger files are refused."""
NODE_LIMIT = 10_000
"""Most values of an experiment file, each counted as often as aliases repeat it."""
MODEL_BYTES, MODEL_OPERATIONS = 1 << 27, 20_000
"""Memory and calls of torch that constructing the system, and then the filter, of an experiment may take."""
BRACKET_LIMIT = 2000
"""Most lists and mappings in brackets: the time of PyYAML grows with the square of those within each other."""
MOST_MODULES = 5
"""Modules that a message lists."""
SHIPPED_SECTIONS = ("lorenz", "pendulum", "tables")
"""Data whose options are the fields of the data section."""


def parse_experiment(values: Mapping[str, Any], owner: str = "experiment") -> Experiment:
    """Build an experiment from plain values.

    Args:
        values: sections by name, as in an experiment file.
        owner: what error messages call it.

    Returns:
        The experiment.

    Raises:
        ConfigError: one line for every fault that can be found without loading data.

    >>> parse_experiment({"data": {"name": "lorenz"}, "filter": {"name": "fwnkf"}}).trainer.batch_size
    64
    """
    if "import" in values:
        raise ConfigError(f"{owner}: {_not_imported(values['import'])}")
    experiment, faults = try_config(Experiment, _with_data_options(values), owner)
    faults += _unknown(_section(values, "filter").get("name", "fwnkf"), FILTERS, "filter.name", owner)
    faults += _unknown(_section(values, "data").get("name"), DATA, "data.name", owner)
    faults += _system_faults(values.get("system"), owner)
    terms = values.get("loss", ({"kind": "state"},))
    if isinstance(terms, (list, tuple)):
        faults += parse_terms(terms, owner)[1]
    if experiment is not None and not faults:
        faults += [f"{owner}: {line}" for line in _combinations(experiment)]
    if faults or experiment is None:
        raise ConfigError("\n".join(dict.fromkeys(faults)))
    return experiment


def _not_imported(modules: Any) -> str:
    """What to type instead of the key ``import``, which would run code because a file says so."""
    listed = modules if isinstance(modules, (list, tuple)) else [modules]
    given = all(isinstance(name, str) and re.fullmatch(r"[\w./-]{1,100}", name) for name in listed)
    words = " ".join(f"--import {name}" for name in listed[:MOST_MODULES]) if listed and given else "--import MODULE"
    return (
        "the key import is not read, because a file must not run code. If you trust the code, remove the key and name "
        f"the module on the command line: {words}"
    )


def _section(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = values.get(name)
    return section if isinstance(section, Mapping) else {}


def _unknown(name: Any, registry: Registry[Any], option: str, owner: str) -> list[str]:
    """A fault if this is no name of the registry."""
    names = sorted(registry)
    if not isinstance(name, str) or name in names:
        return []  # a value of another type is a fault of its own
    similar = difflib.get_close_matches(name, names, 1)
    hint = f"; did you mean {similar[0]}?" if similar else "; a module of your own is imported with --import MODULE"
    return [f"{owner}: option {option} = {name!r}: unknown {registry.kind}; choose one of: {', '.join(names)}{hint}"]


def _with_data_options(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values with options of the user's own data, which are written beside its name, in ``data.options``."""
    data = _section(values, "data")
    if data.get("name") in SHIPPED_SECTIONS or data.get("name") not in list(DATA):
        return values
    if not isinstance(data.get("options", {}), Mapping):
        return values  # a fault of its own
    fields = {entry.name for entry in dataclasses.fields(DataSection)}
    own = {name: value for name, value in data.items() if name not in fields}
    section = {name: value for name, value in data.items() if name in fields}
    return {**values, "data": {**section, "options": {**section.get("options", {}), **own}}}


def _system_faults(section: Any, owner: str) -> list[str]:
    """Faults of the system section: its name, and the options of its config."""
    if not isinstance(section, Mapping):
        return []  # absent, or of a wrong type, which is a fault of its own
    name = section.get("name")
    if not isinstance(name, str):
        return [f"{owner}: option system.name is missing; choose one of: {', '.join(sorted(SYSTEMS))}"]
    unknown = _unknown(name, SYSTEMS, "system.name", owner)
    options = {key: value for key, value in section.items() if key != "name"}
    return unknown or try_config(SYSTEMS[name].Config, options, owner, "system.")[1]


def _data_faults(experiment: Experiment) -> list[str]:
    """Faults of the options of the data, and of data and system together."""
    data, section = experiment.data, experiment.system
    loader = DATA[data.name]
    taken = inspect.signature(loader).parameters
    if section is not None and "system" not in taken and data.name in SHIPPED_SECTIONS:
        return [f"system: data {data.name!r} has equations of its own; remove the section, or use data.name: simulated"]
    system = taken.get("system")
    if section is None and system is not None and system.default is system.empty:
        return [
            f"data.name = {data.name!r} needs a system: add a section system: {{name: …}}; see `fwnkf list systems`"
        ]
    if data.name == "tables" and section is not None and data.angles:
        return ["data.angles: the system says which states are angles; remove data.angles"]
    faults = try_config(loaders.options_class(loader, data.name), data.given(), "", "data.")[1]
    return [line.removeprefix(": ") for line in faults]


def _combinations(experiment: Experiment) -> list[str]:
    """Faults between sections: a filter that cannot be built for the data, a loss that the filter does not support."""
    faults = _data_faults(experiment)
    if faults:
        return faults
    faults = [
        f"trainer.loggers: unknown logger {name!r}; choose one of: {', '.join(LOGGERS)}"
        for name in experiment.trainer.loggers
        if name not in LOGGERS
    ]
    try:
        with Budget(MODEL_BYTES, MODEL_OPERATIONS):
            system = build_own_system(experiment)
    except (FwnkfError, ValueError, TypeError, ArithmeticError, RuntimeError) as error:
        return [*faults, *(f"system: {line}" for line in str(error).splitlines())]
    shape = signature(experiment.data, system)
    if shape is None:  # records of the user's own loader, without equations: their sizes are known once loaded
        return faults
    faults += _column_faults(experiment, shape)
    try:
        with Budget(MODEL_BYTES, MODEL_OPERATIONS):
            model = build_filter(experiment, shape)
    except (FwnkfError, ValueError, TypeError, ArithmeticError, RuntimeError) as error:
        return [*faults, *(f"filter.options: {line}" for line in str(error).splitlines())]
    for term in parse_terms(experiment.loss, "")[0]:
        faults += [f"loss: {fault}" for fault in term.check(model)]
    if (model.latent_innovations or not model.observes) and experiment.trainer.monitor == "val_innovation_nll":
        faults.append(f"trainer.monitor = 'val_innovation_nll': filter {model.name!r} has no measurement innovations")
    if experiment.trainer.pretrain and not is_linear(experiment.filter) and regression_of(model) is None:
        faults.append(f"trainer.pretrain = {experiment.trainer.pretrain}: {NOTHING_LEARNED.format(name=model.name)}")
    if experiment.filter.noise_from_spectrum and not experiment.filter.options.get("noise"):
        faults.append("filter.noise_from_spectrum = true needs lines; set filter.options.noise: {part: lines}")
    faults += _rates(experiment.optimizer.rates, [name for name, _ in model.named_parameters()])
    if not any(parameter.requires_grad for parameter in model.parameters()):
        faults.append(
            f"filter.name = {experiment.filter.name!r} with these options has no trainable parameters; "
            "evaluate it with `fwnkf bench references`, set filter.options.learn, or choose another filter"
        )
    return faults


def _column_faults(experiment: Experiment, shape: Signature) -> list[str]:
    """Numbers of columns of tables that are not those of the system."""
    data = experiment.data
    if data.name != "tables":
        return []
    sizes = {"state": shape.layout.size, "observe": shape.observation_dim, "control": shape.control_dim}
    return [
        f"data.{name} = {list(getattr(data, name))}: the system needs {size} column(s), here are "
        f"{len(getattr(data, name))}"
        for name, size in sizes.items()
        if len(getattr(data, name)) != size
    ]


def _rates(rates: Mapping[str, Any], names: list[str]) -> list[str]:
    """Faults in the factors on the learning rate."""
    parts = ", ".join(sorted({name.split(".")[0] for name in names}))
    faults = [
        f"optimizer.rates: no parameter name starts with {prefix!r}; modules: {parts}"
        for prefix in rates
        if not any(name.startswith(prefix) for name in names)
    ]
    return faults + [
        f"optimizer.rates.{prefix} = {factor!r} must be a number of at least 0"
        for prefix, factor in rates.items()
        if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 0 <= factor < math.inf
    ]


def read_experiment(source: str | Path | Mapping[str, Any], overrides: Iterable[str] = ()) -> Experiment:
    """An experiment from a YAML file, the name of a shipped experiment, or plain values.

    Nothing is imported because a file says so: modules of the user, which register systems, data or filters, are
    imported before, with ``--import`` or in Python.

    Args:
        source: a file, a name of :func:`shipped`, or sections by name.
        overrides: ``section.field=value``, with the value read as YAML: ``optimizer.learning_rate=1e-3``,
            ``loss.1.weight=0.1``.

    Returns:
        The experiment.

    Raises:
        ConfigError: one line for every fault that can be found without loading data.

    >>> read_experiment("lorenz", ["trainer.steps=10"]).trainer.steps
    10
    """
    values, owner = (dict(source), "experiment") if isinstance(source, Mapping) else (read_values(source), str(source))
    for text in overrides:
        _override(values, text)
    return parse_experiment(values, owner)


def shipped() -> dict[str, str]:
    """The shipped experiments.

    Returns:
        The first comment line of each by name.

    >>> "lorenz" in shipped()
    True
    """
    folder = resources.files("fwnkf") / "experiments"
    return {
        entry.name.removesuffix(".yaml"): entry.read_text().splitlines()[0].lstrip("# ")
        for entry in sorted(folder.iterdir(), key=lambda item: item.name)
        if entry.name.endswith(".yaml")
    }


def read_values(source: str | Path) -> dict[str, Any]:
    """The plain, unchecked values of a YAML file or of a shipped experiment."""
    path = Path(source)
    if path.suffix in (".yaml", ".yml"):
        try:
            data = path.read_bytes()[: FILE_LIMIT + 1]
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
        if len(data) > FILE_LIMIT:
            raise ConfigError(f"{path} is larger than {FILE_LIMIT:,} bytes; is it an experiment file?")
        text = data.decode("utf-8", errors="replace")
    else:
        known = shipped()
        if str(source) not in known:
            similar = difflib.get_close_matches(str(source), known, 1)
            hint = (
                f"Did you mean {similar[0]}?"
                if similar
                else "To use your own experiment, give a file that ends in .yaml"
            )
            if path.is_dir() or path.suffix in (".csv", ".parquet"):
                hint = f"To train on your own tables: fwnkf train --data {source} --state … --observe … --time …"
            raise ConfigError(f"unknown experiment {str(source)!r}; shipped experiments: {', '.join(known)}. {hint}")
        text = (resources.files("fwnkf") / "experiments" / f"{source}.yaml").read_text(encoding="utf-8")
    values = parse_yaml(text, str(source))
    if not isinstance(values, dict):
        raise ConfigError(f"{source}: an experiment must be a mapping of sections (name, data, filter, loss, …)")
    return values


def parse_yaml(text: str, where: str) -> Any:
    """Parse YAML into plain values (tags are refused), with ``1e-3`` read as a number."""
    yaml = need("yaml", "train")

    class Loader(yaml.SafeLoader):  # type: ignore[misc, name-defined]
        """YAML 1.1 reads 1e-3 as text because it has no decimal point."""

        def get_single_node(self) -> Any:
            """The document, before any value is made of it: an alias costs nothing here, and every use of it later."""
            node = super().get_single_node()
            if expanded_size(node) > NODE_LIMIT:
                raise ConfigError(
                    f"{where}: more than {NODE_LIMIT:,} values, aliases counted; is it an experiment file?"
                )
            return node

    for tag in ("timestamp", "binary", "set", "omap", "pairs"):  # no experiment has them; a date is a text
        Loader.add_constructor(f"tag:yaml.org,2002:{tag}", Loader.construct_undefined)
    Loader.yaml_implicit_resolvers = {
        letter: [item for item in items if not item[0].endswith(":timestamp")]
        for letter, items in Loader.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d[\d_]*(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
    )
    if text.count("[") + text.count("{") > BRACKET_LIMIT:
        raise ConfigError(f"{where}: more than {BRACKET_LIMIT:,} opening brackets; is it an experiment file?")
    try:
        values = yaml.load(text, Loader)
    except ConfigError:
        raise
    except (yaml.YAMLError, RecursionError, ValueError, LookupError) as error:  # also a number that Python refuses
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"{where}{line}: invalid YAML: {getattr(error, 'problem', None) or error}") from error
    if not is_text(values):
        raise ConfigError(f"{where}: a text has half of a surrogate pair, which is no character")
    return values


def expanded_size(node: Any) -> float:
    """Values below a node of YAML, those of aliases as often as they are used; infinite if one contains itself."""
    sizes: dict[int, float] = {}

    def size(item: Any) -> float:
        if isinstance(item, (list, tuple)):
            return sum(map(size, item))
        known = sizes.get(id(item))
        if known is None:
            sizes[id(item)] = math.inf  # while it is counted: then only itself can ask
            value = getattr(item, "value", None)
            known = sizes[id(item)] = 1 + (size(value) if isinstance(value, list) else 0)
        return known

    return 0 if node is None else size(node)


def _override(values: dict[str, Any], text: str) -> None:
    """Set one value in place; missing sections are created."""
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
                    f"--set {text!r}: {'.'.join(keys[:depth])} has entries 0 to {len(at) - 1}, no entry {key!r}"
                )
            index: Any = int(key)
        elif isinstance(at, dict):
            index = key
            if not last and not isinstance(at.get(key), (dict, list, tuple)):
                at[key] = {}
            if not last and isinstance(at[key], tuple):
                at[key] = list(at[key])
        else:
            raise ConfigError(f"--set {text!r}: {'.'.join(keys[:depth])} is {at!r}, which has no fields")
        if last:
            at[index] = value
        else:
            at = at[index]
