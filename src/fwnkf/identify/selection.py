"""Which parameters of a filter are learned, by name: covariances, constants of the system, noise states."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..core.composed import ComposedSystem
from ..core.covariance import Covariance
from ..core.system import FunctionSystem, System
from ..errors import ConfigError
from ..filters.base import Filter
from ..filters.fwnkf import FrequencyWeightedNeuralKalmanFilter
from ..filters.parts.lines import LineStates
from .parameters import (
    Constants,
    CovarianceFull,
    CovarianceScale,
    Learned,
    Option,
    OscillatorPoles,
    Parameters,
    PositiveConstants,
)

RAW = "raw_"
CHANGE = 0.1
"""Relative change of a constant by which its influence is probed."""


def with_learned(system: System, learn: Sequence[str]) -> System:
    """A system of plain functions built again with its covariances and constants as parameters, by name.

    Other systems are returned as they are.
    """
    if not isinstance(system, FunctionSystem):
        return system
    constants = system.definition.constants
    wanted = set(system.config.learn)
    for name in learn:
        if name in ("Q", "R"):
            wanted |= set(_inside(system, name)) if name in system.definition.functions else {name}
        elif name == "constants":
            wanted |= set(constants)
        elif name in constants:
            wanted.add(name)
    order = tuple(name for name in (*constants, "Q", "R") if name in wanted)
    like = next((tensor for tensor in (*system.parameters(), *system.buffers())), torch.zeros(()))
    built = type(system)(dataclasses.replace(system.config, learn=order)).to(like)
    built.load_state_dict(system.state_dict(), strict=False)
    return built


def _inside(system: FunctionSystem, name: str) -> list[str]:
    """The constants that the function for ``Q`` or ``R`` takes."""
    arguments = system.definition.functions[name].arguments
    return [item.name for item in arguments if item.name in system.definition.constants]


def learned_parameters(model: Filter, learn: Sequence[str]) -> Parameters:
    """The parameters of a filter by name.

    ``Q`` and ``R`` are the variances of the covariances, or the constants of the system's config that set them;
    ``oscillators`` the noise states; ``constants`` everything else that moves the state or the measurement. A name of a
    tensor or of a field of the config selects it alone.
    """
    parts: list[Learned] = []
    system, taken = model.system, set[str]()
    options = {} if system is None else _options(system, model)
    for name in dict.fromkeys(learn):
        if name in ("Q", "R"):
            parts += _noise(model, name, options, taken)
        elif name == "oscillators":
            found = model.noise_parts() if isinstance(model, FrequencyWeightedNeuralKalmanFilter) else []
            parts += [OscillatorPoles(model, states) for states in found if isinstance(states, LineStates)]  # type: ignore[arg-type]
        elif name == "constants":
            if system is None:
                raise ConfigError("learn = constants: this filter has no system")
            parts += [_constants(path, *place) for path, place in _tensors(system).items() if path not in taken]
            wanted = [key for key, role in options.items() if role & {"f", "h"} and key not in taken]
            parts += [Option(key, system, model._like()) for key in wanted]
        elif system is not None and name in _tensors(system):
            parts.append(_constants(name, *_tensors(system)[name]))
        elif system is not None and name in options:
            parts.append(Option(name, system, model._like()))
        else:
            known = [*options, *({} if system is None else _tensors(system))]
            raise ConfigError(
                f"learn = {name}: there is no such parameter; there are Q, R, oscillators, constants"
                + (f", and of this system: {', '.join(known)}" if known else "")
            )
        taken.add(name)
        taken |= {part.name for part in parts if isinstance(part, Option | Constants)}
    return Parameters(parts)


def _tensors(system: System) -> dict[str, tuple[nn.Module, str]]:
    """The parameters of a system by path, those of covariances left out."""
    inside = {f"{path}.{name}" for path, part in system.named_modules() if isinstance(part, Covariance)
              for name, _ in part.named_parameters()}  # fmt: skip
    places = {}
    for path, _ in system.named_parameters():
        if path not in inside:
            owner, _, name = path.rpartition(".")
            # a system of functions stores positive constants under another name
            known = path.removeprefix(RAW) if isinstance(system, FunctionSystem) else path
            places[known] = (system.get_submodule(owner), name)
    return places


def _constants(name: str, module: nn.Module, attribute: str) -> Constants:
    positive = isinstance(module, FunctionSystem) and attribute.startswith(RAW)
    return (PositiveConstants if positive else Constants)(name, module, attribute)


def _noise(model: Filter, name: str, options: dict[str, set[str]], taken: set[str]) -> list[Learned]:
    """How ``Q`` or ``R`` of a filter is learned."""
    system = model.system
    owner = system.motion if isinstance(system, ComposedSystem) and name == "Q" else system
    covariance = None if owner is None else dict(owner.named_children()).get(name)
    if isinstance(covariance, Covariance):
        if covariance.learn:
            diagonal = covariance.diagonal or (name == "R" and system is not None and system.diagonal_noise)
            return [CovarianceFull(name, covariance, diagonal)]
        return [CovarianceScale(name, covariance)]
    if system is None:
        raise ConfigError(f"learn = {name}: filter {model.name!r} has no {name}")
    if isinstance(system, FunctionSystem):
        places = _tensors(system)
        inside = [key for key in _inside(system, name) if key in places] if name in system.definition.functions else []
        if not inside:
            raise ConfigError(f"learn = {name}: build the system with learn=[…] naming it, or give fit the system")
        return [_constants(key, *places[key]) for key in inside if key not in taken]
    keys = [key for key, role in options.items() if name in role and not role & {"f", "h"} and key not in taken]
    if not keys:
        raise ConfigError(
            f"learn = {name}: no number in the config of {type(system).__name__} sets it, nor is there a Covariance "
            f"called {name}; leave it out of learn, or name constants of the system"
        )
    return [Option(key, system, model._like()) for key in keys]


@torch.no_grad()
def _options(system: System, model: Filter) -> dict[str, set[str]]:
    """The numbers of the config of a system, each with what it changes: ``Q``, ``R``, ``f``, ``h``."""
    if type(system) is ComposedSystem:  # its numbers are in the configs of motion and sensors
        return {}
    like = model._like()
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(like)

    d = system.layout.tangent_size
    x = system.layout.boxplus(system.layout.origin(like).expand(3, -1), normal(3, d))
    u = normal(3, system.control_dim) if system.control_dim else None

    def outputs() -> dict[str, Tensor]:
        return {
            "Q": system.process_noise(None),
            "R": system.measurement_covariance(),
            "f": system.transition(x, u, None),
            "h": system.observe(x),
        }

    before, config = outputs(), system.config
    roles: dict[str, set[str]] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        numbers = value if isinstance(value, tuple) else (value,)
        if field.name == "dt" or not numbers or not all(type(item) is float for item in numbers):
            continue
        changed = copy.copy(config)
        moved = tuple(item * (1 + CHANGE) if item else CHANGE for item in numbers)
        object.__setattr__(changed, field.name, moved if isinstance(value, tuple) else moved[0])
        try:
            system.config = changed
            after = outputs()
        except Exception:  # zero says that there is no such state or lever arm: no number to learn
            continue
        finally:
            system.config = config
        roles[field.name] = {key for key in before if not torch.equal(before[key], after[key])}
    return roles
