"""Build the parts of an experiment: the signature of the data, the records, the filter and its statistics."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core.composed import ComposedSystem
from ..core.layout import Layout, Part
from ..core.linear import LinearSystem
from ..core.system import System, build_system
from ..data import loaders, tables
from ..data.protocols import SIMULATED_SIZES, Protocol, Records
from ..errors import ConfigError
from ..filters.base import Filter
from ..filters.factory import build
from ..identify import fit_observation, fit_regression
from ..registry import FILTERS, SYSTEMS, as_tuples, parse_config
from ..shapes import Float
from ..systems.learned import LearnedConfig, LearnedSystem
from ..types import Statistics
from .config import DataSection, Experiment, FilterSection
from .process_floor import with_process_floor

_DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True, eq=False)
class Signature:
    """Dimensions that a filter must match, known before any record is read.

    For tables, ``system`` is a placeholder for the linear model that is fitted to the records.
    """

    layout: Layout
    observation_dim: int
    control_dim: int
    system: System | None
    dt: float | None


class Measured(NamedTuple):
    """Matrices estimated from training data, for a filter without equations; ``F`` and ``B`` for a linear one."""

    H: Float[Tensor, "m n"]
    Q: Float[Tensor, "d d"]
    R: Float[Tensor, "m m"]
    F: Float[Tensor, "*k n n"] | None = None
    B: Float[Tensor, "n p"] | None = None
    step_cov: Float[Tensor, "n n"] | None = None
    """Covariance of the change in one step, for the lagged states of an autoregression."""
    system: ComposedSystem | None = None
    """Motion and observation by regression on true states."""


def build_own_system(experiment: Experiment) -> System | None:
    """The system that the experiment names, in the dtype of its data."""
    if experiment.system is None:
        return None
    options = {name: value for name, value in experiment.system.items() if name != "name"}
    return build_system(experiment.system["name"], options).to(_DTYPES[experiment.data.dtype])


def signature(data: DataSection, system: System | None = None) -> Signature | None:
    """The signature of a data section, without reading any data; None where only the records can tell.

    ``system`` is the one that the experiment names.
    """
    if system is not None:
        return signature_of_system(system)
    if data.name == "tables":
        columns = tables.Columns(data.state, data.observe, data.control, data.time, data.angles)
        kinds = ["angle" if name in columns.angles else "euclidean" for name in columns.state]
        layout = Layout(tuple(Part(name, kind, 1) for name, kind in zip(columns.state, kinds, strict=True)))  # type: ignore[arg-type]
        n, m, p = len(data.state), len(data.observe), len(data.control)
        if layout.flat:  # a placeholder for the model that will be fitted to the records
            eye = torch.eye(n)
            system = LinearSystem.of(0 * eye, torch.eye(m, n), eye, torch.eye(m), torch.zeros(n, p), continuous=True)
        return Signature(layout, m, p, system, None)
    if data.name not in SIMULATED_SIZES:
        return None
    return signature_of_system(build_system(data.name, {}).to(_DTYPES[data.dtype]))


def signature_of_system(system: System) -> Signature:
    """The signature of records of a known system."""
    return Signature(system.layout, system.observation_layout.size, system.control_dim, system, system.dt)


def signature_of_records(records: Records) -> Signature:
    """The signature of loaded records, with their system."""
    step = float(records.dt[:, 1:].median()) if records.dt.shape[1] > 1 else 1.0
    if records.system is not None:
        shape = signature_of_system(records.system)
        # the system's own step is preferred, because it does not have the rounding of float32
        same_step = shape.dt is not None and abs(shape.dt / step - 1) < 1e-3
        return shape if same_step else replace(shape, dt=step)
    return Signature(records.layout, records.y.shape[-1], 0 if records.u is None else records.u.shape[-1], None, step)


def load_data(experiment: Experiment) -> Protocol:
    """The split records of an experiment; equal experiments give bit-identical records."""
    data = experiment.data
    system, dtype = build_own_system(experiment), _DTYPES[data.dtype]
    return loaders.load(data.name, data.given(), seed=experiment.seed, dtype=dtype, system=system)


def load_tables(experiment: Experiment) -> tuple[Protocol, tables.Survey]:
    """Records from tables, and the survey of their files."""
    data = experiment.data
    assert data.folder is not None
    columns = tables.Columns(data.state, data.observe, data.control, data.time, data.angles)
    system, dtype = build_own_system(experiment), _DTYPES[data.dtype]
    return tables.load(data.folder, columns, window=data.window, seed=experiment.seed, dtype=dtype, system=system)


def build_filter(experiment: Experiment, shape: Signature, measured: Measured | None = None) -> Filter:
    """The untrained filter of an experiment; without ``measured`` it has unit noise, enough to check the options."""
    section = experiment.filter
    options = dict(section.options)
    cls = FILTERS[section.name]
    reserved = [name for name in ("system", *cls.arrays) if name in options]
    if reserved:
        raise ConfigError(f"{', '.join(reserved)} cannot be set in filter.options: they are determined from the data")
    if section.learned_system is not None and (section.equations or not cls.takes_system):
        reason = "filter.equations = true" if section.equations else f"filter {section.name!r} takes no system"
        raise ConfigError(f"filter.learned_system = {section.learned_system} has no effect: {reason}; remove it")
    if section.equations:
        if not cls.takes_system:
            raise ConfigError(f"filter {section.name!r} does not use equations of motion; set filter.equations: false")
        if shape.system is None:
            raise ConfigError(
                "filter.equations = true, but these data have no equations of motion; set filter.equations: false"
            )
        # a copy: training changes the parameters of a system, but not those of the records' system
        return build(section.name, system=copy.deepcopy(shape.system), **options)
    if section.regression is not None:
        if section.learned_system is not None or not cls.takes_system:
            reason = "filter.learned_system is given too" if section.learned_system else f"{section.name} has no system"
            raise ConfigError(f"filter.regression = {section.regression} has no effect: {reason}; remove one of them")
        if measured is not None and measured.system is not None:
            return build(section.name, system=measured.system, **options)
    derived: dict[str, Any] = {
        "state_dim": shape.layout.size,
        "observation_dim": shape.observation_dim,
        "control_dim": shape.control_dim,
        "layout": () if shape.layout.flat else shape.layout.describe(),
        "dt": 1.0 if shape.dt is None else shape.dt,
        "observation": "given_matrix" if shape.layout.flat else "learned_network",
    }
    if uses_learned_system(section):
        chosen = dict(section.learned_system or {})
        if cls.learns_transition:
            chosen.setdefault("width", 0)
        reserved = sorted({"observed_by", *derived}.difference({"observation"}) & set(chosen))
        if reserved:
            raise ConfigError(f"{', '.join(reserved)} cannot be set in filter.learned_system: the data determine it")
        system = _learned_system({**derived, **chosen}, shape, measured, section.process_share)
        return build(section.name, system=system, **options)
    fields = {field.name for field in dataclasses.fields(cls.Config)}
    if is_linear(section):
        derived["learn"] = ("F", "H", "Q", "R", *(("B",) if shape.control_dim else ()))
    options = {**{name: value for name, value in derived.items() if name in fields}, **options}
    columns = shape.layout.size if is_linear(section) else shape.layout.feature_size
    arrays = _arrays(options.get("observation"), shape, measured, section.process_share, columns)
    return build(section.name, **options, **{name: arrays[name] for name in cls.arrays if name in arrays})


def uses_learned_system(section: FilterSection) -> bool:
    """Whether the filter is built on the system ``learned``: it needs a system, or options of this one are given."""
    cls = FILTERS[section.name]
    needs_system = all(field.name != "state_dim" for field in dataclasses.fields(cls.Config))
    return not section.equations and cls.takes_system and (needs_system or section.learned_system is not None)


def is_linear(section: FilterSection) -> bool:
    """Whether the filter is built from the matrices of a linear model that is fitted to the records."""
    return not section.equations and "F" in FILTERS[section.name].arrays


def _learned_system(
    options: dict[str, Any], shape: Signature, measured: Measured | None, process_share: float
) -> LearnedSystem:
    """The untrained system ``learned``, with the observation function of the data's system where it is asked for."""
    observed_by = None
    if options["observation"] == "given_function":
        name = None if shape.system is None else SYSTEMS.name_of(type(shape.system))
        if shape.system is None or name is None:
            raise ConfigError(
                "learned_system: observation = 'given_function', but these data have no registered system with one; "
                "use 'learned_matrix' or 'learned_network'"
            )
        observed_by = copy.deepcopy(shape.system)
        options["observed_by"] = {"name": name, "config": dataclasses.asdict(observed_by.config)}
    config = parse_config(LearnedConfig, options, "filter.learned_system")
    arrays = _arrays(config.observation, shape, measured, process_share, shape.layout.feature_size)
    system = LearnedSystem(
        config, None if observed_by is not None else arrays["H"], arrays["Q"], arrays["R"], observed_by
    )
    return system.to(arrays["Q"].dtype)


def _arrays(
    observation: str | None, shape: Signature, measured: Measured | None, process_share: float, columns: int
) -> dict[str, Tensor]:
    """The tensors of a filter or a system without equations, by name; without ``measured`` placeholders.

    ``columns`` is the number of columns of ``H``: of the state in a linear filter, of its features elsewhere.
    """
    if not shape.layout.flat and observation == "given_matrix":
        raise ConfigError(
            "observation = 'given_matrix' needs a Euclidean state, but this state has angles or rotations; use "
            "'learned_network'"
        )
    if shape.layout.linear() != shape.layout and observation == "learned_matrix":
        raise ConfigError(
            "observation = 'learned_matrix' needs a state without angles, where a matrix is not continuous; use "
            "'learned_network'"
        )
    if measured is None:
        d, m = shape.layout.tangent_size, shape.observation_dim
        measured = Measured(torch.eye(m, columns), torch.eye(d), torch.eye(m))
    arrays = measured._replace(Q=measured.Q * process_share, system=None)._asdict()
    return {name: value for name, value in arrays.items() if value is not None}


# ---- estimates from training data -----------------------------------------------------------------------------------


def measure_for(experiment: Experiment, records: Records) -> Measured | None:
    """What the filter of an experiment is given of the training records: nothing if it has equations."""
    section = experiment.filter
    if section.equations:
        return None
    if section.regression is not None:
        moments = section.options.get("moments", "linear")
        return measure(records)._replace(system=regressed_system(records, moments, **section.regression))
    if not is_linear(section):
        return measure(records)
    cls = FILTERS[section.name]
    orders = {field.name: field.default for field in dataclasses.fields(cls.Config)}
    order = section.options.get("order", orders.get("order"))
    regression = tables.fit_steps(records, 1 if order is None else order)
    # before angles become plain numbers: a jump of 2π is no change
    step_cov = step_sizes(records).square().diag()
    if not records.layout.flat:  # angles as plain numbers, of which the measurements are no exact linear function
        records = replace(records, layout=Layout.euclidean(records.layout.size), system=None)
    plain = measure(records)
    F = regression.F[0] if order is None else regression.F
    B = regression.B if regression.B.shape[-1] else None
    return plain._replace(F=F, Q=regression.Q, B=B, step_cov=step_cov)


def regressed_system(records: Records, moments: str = "linear", **options: Any) -> ComposedSystem:
    """Motion and observation fitted to the true states of records, in float64, with a floor of the process noise.

    ``moments`` are those of the filter that will run on it, ``options`` those of
    :func:`fwnkf.identify.fit_regression`.
    """
    allowed = set(inspect.signature(fit_regression).parameters) - {"states", "u", "dt", "layout"}
    unknown = sorted(set(options) - allowed)
    if unknown:
        raise ConfigError(f"filter.regression: {', '.join(unknown)}: there are {', '.join(sorted(allowed))}")
    chosen = {name: as_tuples(value) for name, value in options.items()}
    motion = fit_regression(records.truth, records.u, records.dt, layout=records.layout, **chosen).motion
    sensor = fit_observation(records.truth, records.y, records.mask, layout=records.layout)
    system = ComposedSystem(motion, {"measured": sensor}).double()
    return with_process_floor(system, records, step_sizes(records), moments)


def measure(records: Records) -> Measured:
    """Estimate observation matrix and noise covariances from training records, for a random-walk initial model.

    ``H`` is that of the data's system if the state is Euclidean, and otherwise the least-squares fit of the
    measurements to the features of the state. ``Q`` is the mean square change of the state in one step.
    """
    features, present = _features(records)
    y = records.y[present]
    if records.layout.flat and records.system is not None:
        H = records.system.linearize_observation(records.truth[present][:1])[1]
        H = H[0] if H.ndim == 3 else H
    else:
        H = torch.linalg.lstsq(features[present].double(), y.double()).solution.mT.to(y)
    residual = y - features[present] @ H.mT
    R = residual.square().mean(0).clamp_min(1e-12).diag()
    return Measured(H.clone(), step_sizes(records).square().diag(), R)


def statistics(records: Records) -> Statistics:
    """Means and standard deviations of the training records, which normalise the inputs of networks inside filters."""
    features, present = _features(records)
    valid = records.truth.isfinite().all(-1)
    control = records.y.new_zeros(1, 0) if records.u is None else records.u[records.u.isfinite().all(-1)]
    return Statistics(
        *_centre(features[valid]),
        *_centre(records.y[present]),
        *_centre(control),
        step_sizes(records),
    )


def _features(records: Records) -> tuple[Tensor, Tensor]:
    """Features of the true states, and a mask of steps with a true state and all measurement channels."""
    valid = records.truth.isfinite().all(-1)
    origin = records.layout.origin(records.truth)
    features = records.layout.features(torch.where(valid.unsqueeze(-1), records.truth, origin))
    present = valid & (records.mask & records.y.isfinite()).all(-1)
    if not bool(present.any()):
        raise ConfigError(
            f"{records.name}: no step has both a true state and a complete measurement; check for missing values"
        )
    return features, present


def _centre(values: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation; a constant coordinate gets a standard deviation of one."""
    if values.shape[-1] == 0:
        return values.new_zeros(0), values.new_zeros(0)
    std = values.double().std(0, correction=0)
    return values.double().mean(0).to(values), torch.where(std > 1e-12, std, 1.0).to(values)


def step_sizes(records: Records) -> Tensor:
    """Root mean square change of each tangent coordinate in one step."""
    valid = records.truth.isfinite().all(-1)
    both = valid[:, 1:] & valid[:, :-1] & (records.dt[:, 1:] > 0)
    change = records.layout.boxminus(records.truth[:, 1:][both], records.truth[:, :-1][both])
    if not len(change):
        raise ConfigError(f"{records.name}: no two consecutive steps have a true state; check for missing values")
    size = change.double().square().mean(0).sqrt()
    return torch.where(size > 1e-12, size, 1.0).to(records.truth)
