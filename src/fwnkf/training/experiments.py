"""Read an :class:`~fwnkf.training.config.Experiment` from YAML and overrides, checked before any data are loaded."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..extras import need
from ..filters.base import Filter
from ..registry import FILTERS, as_tuples, try_config
from .config import LOGGERS, Experiment
from .losses import parse_terms
from .setup import build_filter, signature

FILE_LIMIT = 1 << 20
"""Largest size of an experiment file in bytes; larger files are refused."""


def parse_experiment(values: Mapping[str, Any], owner: str = "experiment") -> Experiment:
    """Build an experiment; raises one ConfigError that lists every fault found without loading data, one line each."""
    experiment, faults = try_config(Experiment, values, owner)
    name = experiment.filter.name if experiment else _section(values, "filter").get("name", "fwnkf")
    if isinstance(name, str) and name not in list(FILTERS):
        similar = difflib.get_close_matches(name, list(FILTERS), 1)
        faults.append(
            f"{owner}: option filter.name = {name!r}: unknown filter; "
            f"choose one of: {', '.join(sorted(FILTERS))}" + (f"; did you mean {similar[0]}?" if similar else "")
        )
    terms = values.get("loss", ({"kind": "state"},))
    if isinstance(terms, (list, tuple)):
        faults += parse_terms(terms, owner)[1]
    if experiment is not None and not faults:
        faults += [f"{owner}: {line}" for line in _combinations(experiment)]
    if faults or experiment is None:
        raise ConfigError("\n".join(dict.fromkeys(faults)))
    return experiment


def _section(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = values.get(name)
    return section if isinstance(section, Mapping) else {}


def _combinations(experiment: Experiment) -> list[str]:
    """Faults between sections: a filter that cannot be built for the data, a loss that the filter does not support."""
    faults = [
        f"trainer.loggers: unknown logger {name!r}; choose one of: {', '.join(LOGGERS)}"
        for name in experiment.trainer.loggers
        if name not in LOGGERS
    ]
    try:
        model = build_filter(experiment, signature(experiment.data))
    except (ConfigError, ValueError, TypeError, RuntimeError) as error:
        return [*faults, *(f"filter.options: {line}" for line in str(error).splitlines())]
    for term in parse_terms(experiment.loss, "")[0]:
        faults += [f"loss: {fault}" for fault in term.check(model)]
    latent = type(model).observe is Filter.observe
    if latent and experiment.trainer.monitor == "val_innovation_nll":
        faults.append(f"trainer.monitor = 'val_innovation_nll': filter {model.name!r} has no measurement innovations")
    if experiment.trainer.pretrain and (model.name != "fwnkf" or model.system is not None):
        faults.append(
            f"trainer.pretrain = {experiment.trainer.pretrain} trains the transition of an fwnkf without equations; "
            "set it to 0"
        )
    if experiment.filter.noise_from_spectrum and experiment.filter.options.get("shaping") != "noise":
        faults.append("filter.noise_from_spectrum = true needs noise states; set filter.options.shaping: noise")
    faults += _rates(experiment.optimizer.rates, [name for name, _ in model.named_parameters()])
    if not any(parameter.requires_grad for parameter in model.parameters()):
        faults.append(
            f"filter.name = {experiment.filter.name!r} with these options has no trainable parameters; "
            "evaluate it with `fwnkf bench references`, set filter.options.learn, or choose another filter"
        )
    return faults


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

    Overrides are ``section.field=value``, with the value read as YAML: ``optimizer.learning_rate=1e-3``,
    ``loss.1.weight=0.1``.
    """
    values, owner = (dict(source), "experiment") if isinstance(source, Mapping) else (read_values(source), str(source))
    for text in overrides:
        _override(values, text)
    return parse_experiment(values, owner)


def shipped() -> dict[str, str]:
    """The shipped experiments: name and first comment line."""
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

    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d[\d_]*(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
    )
    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"{where}{line}: invalid YAML: {getattr(error, 'problem', None) or error}") from error


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
