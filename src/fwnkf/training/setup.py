"""From an experiment to its parts: what the data look like, the records themselves, the filter, its scales."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core.layout import Layout, Part
from ..core.system import LinearSystem, System
from ..data import protocols, tables
from ..data.protocols import Protocol, Records
from ..errors import ConfigError
from ..filters.base import Filter, Statistics, build
from ..registry import FILTERS
from ..shapes import Float
from ..systems.lorenz import Lorenz, LorenzConfig
from ..systems.pendulum import Pendulum, PendulumConfig
from .config import DataSection, Experiment

_DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True, eq=False)
class Signature:
    """What a filter must fit: known before any record is read, but for a system that is fitted to them."""

    layout: Layout
    observation_dim: int
    control_dim: int
    system: System | None
    dt: float | None


class Measured(NamedTuple):
    """What training data say about a filter that is not told the equations: observation matrix and noise levels."""

    H: Float[Tensor, "m n"]
    Q: Float[Tensor, "d d"]
    R: Float[Tensor, "m m"]


def signature(data: DataSection) -> Signature:
    """The shape of the records of a data section; reads nothing."""
    if data.name == "tables":
        kinds = ["angle" if name in data.angles else "euclidean" for name in data.state]
        layout = Layout(tuple(Part(name, kind, 1) for name, kind in zip(data.state, kinds, strict=True)))  # type: ignore[arg-type]
        n, m, p = len(data.state), len(data.observe), len(data.control)
        system: System | None = None
        if layout.flat:  # stands for the one that will be fitted
            eye = torch.eye(n)
            system = LinearSystem.of(0 * eye, torch.eye(m, n), eye, torch.eye(m), torch.zeros(n, p), continuous=True)
        return Signature(layout, m, p, system, None)
    system = Lorenz(LorenzConfig()) if data.name == "lorenz" else Pendulum(PendulumConfig())
    return of_system(system.to(_DTYPES[data.dtype]))


def of_system(system: System) -> Signature:
    return Signature(system.layout, system.observation_layout.size, system.control_dim, system, system.dt)


def of_task(task: Records) -> Signature:
    """The shape of loaded records, with the system that came with them."""
    step = float(task.dt[:, 1:].median()) if task.dt.shape[1] > 1 else 1.0
    if task.system is not None:
        shape = of_system(task.system)
        known = shape.dt is not None and abs(shape.dt / step - 1) < 1e-3  # then without the rounding of float32
        return shape if known else dataclasses.replace(shape, dt=step)
    return Signature(task.layout, task.y.shape[-1], 0 if task.u is None else task.u.shape[-1], None, step)


def load_data(experiment: Experiment) -> Protocol:
    """The records of an experiment, split; the same experiment gives the same bits."""
    data = experiment.data
    if data.name == "tables":
        return load_tables(experiment)[0]
    return protocols.simulated(
        data.name,
        data.protocol,
        scenario=data.scenario,
        seed=experiment.seed,
        train=data.train,
        val=data.val,
        test=data.test,
        dtype=_DTYPES[data.dtype],
    )


def load_tables(experiment: Experiment) -> tuple[Protocol, tables.Survey]:
    """Your own records, and what was found in them."""
    data = experiment.data
    assert data.folder is not None
    columns = tables.Columns(data.state, data.observe, data.control, data.time, data.angles)
    return tables.load(data.folder, columns, window=data.window, seed=experiment.seed, dtype=_DTYPES[data.dtype])


def build_filter(experiment: Experiment, shape: Signature, measured: Measured | None = None) -> Filter:
    """The filter of an experiment, untrained; without measurements it only shows that it can be built."""
    section = experiment.filter
    options = dict(section.options)
    cls = FILTERS[section.name]
    taken = [name for name in ("system", *cls.arrays) if name in options]
    if taken:
        raise ConfigError(
            f"{', '.join(taken)} cannot be given in filter.options: they are measured, or come with the data"
        )
    if section.equations:
        if not cls.takes_system:
            raise ConfigError(f"filter {section.name!r} takes no equations of motion; set filter.equations: false")
        if shape.system is None:
            raise ConfigError(
                "filter.equations = true, but these data come without equations of motion; set filter.equations: false"
            )
        return build(section.name, system=shape.system, **options)
    known: dict[str, Any] = {
        "state_dim": shape.layout.size,
        "observation_dim": shape.observation_dim,
        "control_dim": shape.control_dim,
        "layout": () if shape.layout.flat else shape.layout.describe(),
        "dt": 1.0 if shape.dt is None else shape.dt,
        "observation": "given_matrix" if shape.layout.flat else "learned_network",
    }
    fields = {field.name for field in dataclasses.fields(cls.Config)}
    if "state_dim" not in fields:
        raise ConfigError(
            f"filter.equations = false, but filter {section.name!r} works on a given system; set filter.equations: true"
        )
    options = {**{name: value for name, value in known.items() if name in fields}, **options}
    if not shape.layout.flat and options.get("observation") in ("given_matrix", "learned_matrix"):
        raise ConfigError(
            f"observation = {options['observation']!r} is a matrix on plain numbers, but this state has angles or "
            "rotations; use 'learned_network'"
        )
    if measured is None:
        d, m = shape.layout.tangent_size, shape.observation_dim
        columns = shape.layout.feature_size if options.get("observation") == "learned_network" else shape.layout.size
        measured = Measured(torch.eye(m, columns), torch.eye(d), torch.eye(m))
    given = measured._replace(Q=measured.Q * section.process_share)._asdict()
    return build(section.name, **options, **{name: given[name] for name in cls.arrays if name in given})


# ---- what training data say -----------------------------------------------------------------------------------------


def measure(task: Records) -> Measured:
    """Observation matrix and noise variances for a filter that starts as a random walk, from training records.

    The matrix is that of the data's system where the observation is linear in the state, and otherwise the least
    squares fit of the measurements to the state's features. ``Q`` holds the mean square of what one step adds.
    """
    features, present = _features(task)
    y = task.y[present]
    if task.layout.flat and task.system is not None:
        H = task.system.linearize_observation(task.truth[present][:1])[1]
        H = H[0] if H.ndim == 3 else H
    else:
        H = torch.linalg.lstsq(features[present].double(), y.double()).solution.mT.to(y)
    residual = y - features[present] @ H.mT
    R = residual.square().mean(0).clamp_min(1e-12).diag()
    return Measured(H.clone(), step_sizes(task).square().diag(), R)


def statistics(task: Records) -> Statistics:
    """Scales of the training records, for networks inside filters."""
    features, present = _features(task)
    valid = task.truth.isfinite().all(-1)
    control = task.y.new_zeros(1, 0) if task.u is None else task.u[task.u.isfinite().all(-1)]
    return Statistics(
        *_centre(features[valid]),
        *_centre(task.y[present]),
        *_centre(control),
        step_sizes(task),
    )


def _features(task: Records) -> tuple[Tensor, Tensor]:
    """Features of the true states, and where both they and all channels of the measurement are there."""
    valid = task.truth.isfinite().all(-1)
    origin = task.layout.origin(task.truth)
    features = task.layout.features(torch.where(valid.unsqueeze(-1), task.truth, origin))
    present = valid & (task.mask & task.y.isfinite()).all(-1)
    if not bool(present.any()):
        raise ConfigError(
            f"{task.name}: no step has a true state and a whole measurement; nothing can be learned from it"
        )
    return features, present


def _centre(values: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation; a coordinate that never moves has the scale one."""
    if values.shape[-1] == 0:
        return values.new_zeros(0), values.new_zeros(0)
    std = values.double().std(0, correction=0)
    return values.double().mean(0).to(values), torch.where(std > 1e-12, std, 1.0).to(values)


def step_sizes(task: Records) -> Tensor:
    """Root mean square of what one step adds to each tangent coordinate."""
    valid = task.truth.isfinite().all(-1)
    both = valid[:, 1:] & valid[:, :-1] & (task.dt[:, 1:] > 0)
    added = task.layout.boxminus(task.truth[:, 1:][both], task.truth[:, :-1][both])
    if not len(added):
        raise ConfigError(f"{task.name}: no two steps that follow each other have a true state")
    size = added.double().square().mean(0).sqrt()
    return torch.where(size > 1e-12, size, 1.0).to(task.truth)
