"""Data of experiments by name: functions with keyword options that return training, validation and test records.

``@fwnkf.register_data("my_logs")`` registers a function, and ``data: {name: my_logs, …}`` in an experiment calls it.
Its options are its keyword arguments with their annotations; ``seed``, ``dtype`` and ``system`` are passed if it has
arguments of these names.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_type_hints

import torch

from ..core.system import System
from ..errors import ConfigError
from ..registry import DATA, SYSTEMS
from . import protocols, tables
from .protocols import Protocol, ProtocolName, Records, Split
from .simulate import RandomControl, simulate

PASSED = ("seed", "dtype", "system")
"""Arguments of a loader that are no options of the data section."""
ScenarioName = Literal["white", "tone", "high_band", "drift", "pink"]


def options_class(loader: Callable[..., Any], name: str) -> type:
    """A dataclass of the options of a loader, against which a data section is checked."""
    hints = get_type_hints(loader)
    fields: list[Any] = []
    for parameter in inspect.signature(loader).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise ConfigError(f"data {name!r}: argument {parameter} of its loader needs a name")
        if parameter.name in PASSED:
            continue
        hint = hints.get(parameter.name, Any)
        if parameter.default is parameter.empty:
            fields.append((parameter.name, hint))
        else:
            default = dataclasses.field(default=parameter.default)
            fields.append((parameter.name, hint, default))
    fields.sort(key=len)  # those without a default first
    return dataclasses.make_dataclass(f"{name}Options", fields, frozen=True)


def load(
    name: str,
    options: Mapping[str, Any],
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    system: System | None = None,
) -> Protocol:
    """Call a registered loader; ``system``, if given, is also the system of its records."""
    loader = DATA[name]
    passed = {"seed": seed, "dtype": dtype, "system": system}
    taken = inspect.signature(loader).parameters
    result = loader(**options, **{key: value for key, value in passed.items() if key in taken})
    if isinstance(result, tuple) and len(result) == 3 and all(isinstance(item, Records) for item in result):
        result = Protocol("strict", name, seed, Split(*result))
    if not isinstance(result, Protocol):
        raise ConfigError(
            f"data {name!r}: its loader returns {type(result).__name__}; wanted a Protocol, or training, validation "
            "and test Records"
        )
    if system is None:
        return result
    for records in result.split:
        described = records.layout.size, records.y.shape[-1], 0 if records.u is None else records.u.shape[-1]
        wanted = system.layout.size, system.observation_layout.size, system.control_dim
        if described != wanted:
            raise ConfigError(
                f"data {name!r}: {records.name} has {described[0]} states, {described[1]} measurements and "
                f"{described[2]} controls; system {SYSTEMS.name_of(type(system))!r} has {wanted[0]}, {wanted[1]} and "
                f"{wanted[2]}"
            )
    return dataclasses.replace(
        result, split=Split(*(dataclasses.replace(records, system=system) for records in result.split))
    )


@DATA.register("lorenz")
def lorenz(
    *,
    protocol: ProtocolName = "strict",
    scenario: ScenarioName = "white",
    train: int | None = None,
    val: int | None = None,
    test: int | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> Protocol:
    """Lorenz-63 as in the paper, simulated with its own equations."""
    options: dict[str, Any] = {"scenario": scenario, "train": train, "val": val, "test": test}
    return protocols.simulated("lorenz", protocol, seed=seed, dtype=dtype, **options)


@DATA.register("pendulum")
def pendulum(
    *,
    protocol: ProtocolName = "strict",
    scenario: ScenarioName = "white",
    train: int | None = None,
    val: int | None = None,
    test: int | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> Protocol:
    """The driven pendulum of the paper, simulated with its own equations."""
    options: dict[str, Any] = {"scenario": scenario, "train": train, "val": val, "test": test}
    return protocols.simulated("pendulum", protocol, seed=seed, dtype=dtype, **options)


@DATA.register("simulated")
def simulated(
    *,
    system: System,
    scenario: ScenarioName = "white",
    train: int | None = None,
    val: int | None = None,
    test: int | None = None,
    steps: int = 100,
    control_mean: tuple[float, ...] = (),
    control_std: tuple[float, ...] = (),
    control_hold: int = 1,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> Protocol:
    """The system of the experiment, simulated; the test records are the same for every seed."""
    control = RandomControl(control_mean, control_std, control_hold)
    splits = []
    for kind, count in {"train": train or 200, "val": val or 50, "test": test or 200}.items():
        own = protocols.split_seed(kind, seed)
        data = simulate(system, count, steps, control=control, scenario=scenario, seed=own, dtype=dtype)
        splits.append(protocols.records_of(f"simulated {kind}", data, data.start, scenario, own))
    return Protocol("strict", "simulated", seed, Split(*splits))


@DATA.register("tables")
def own_tables(
    *,
    folder: str,
    state: tuple[str, ...],
    observe: tuple[str, ...],
    control: tuple[str, ...] = (),
    angles: tuple[str, ...] = (),
    time: str | None = None,
    window: int | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    system: System | None = None,
) -> Protocol:
    """Your own recordings: CSV or Parquet files in a folder."""
    columns = tables.Columns(state, observe, control, time, angles)
    return tables.load(folder, columns, window=window, seed=seed, dtype=dtype, system=system)[0]
