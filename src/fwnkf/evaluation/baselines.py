"""Baselines that learn nothing: from methods that ignore the sensor to the oracle, on the same records, in one table.

A figure of a learned filter means nothing without them. :func:`estimates` gives their estimates, :func:`baselines` one
row for each: its method, data, protocol, scenario, seed, and how many records it was measured on.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from ..core.linear import LinearSystem
from ..core.system import System
from ..data.protocols import SIMULATED_SIZES, Protocol, Records
from ..errors import ConfigError, DataError
from ..filters.base import Filter
from ..filters.factory import build
from ..filters.fwnkf import ADAPT, FrequencyWeightedNeuralKalmanFilter
from ..filters.parts.lines import Lines, LineStates, PreparedLines
from ..registry import SYSTEMS
from ..shapes import Float
from ..systems import noise
from .evaluate import Estimate, estimate, scored
from .particle import particle_filter
from .rows import Row, known_steps

__all__ = ["baselines", "estimates"]

NOTCH_RADIUS = 0.9
"""Pole radius of a notch: a width of about a tenth of the sampling rate over π."""
ORACLE, ORACLE_SECOND_ORDER = "oracle", "oracle_second_order"
"""The EKF that is given the true noise model, with linear and with second-order moments."""


def baselines(protocol: Protocol, *, scenario: str = "white", particles: int = 0) -> Iterator[Row]:
    """Rows of methods that learn nothing, cheapest first.

    Args:
        protocol: the records, and how they are scored.
        scenario: the noise of a simulated set.
        particles: of a particle filter on simulated data; 0 leaves it out.

    Yields:
        One row for each method, see :func:`estimates`.

    >>> from fwnkf.data import protocols
    >>> protocol = protocols.simulated("lorenz", "strict", train=1, val=1, test=2)
    >>> next(baselines(protocol))["method"]
    'hold'
    """
    extra = {"scenario": scenario} if protocol.data in SIMULATED_SIZES else {}
    begin = time.perf_counter()
    for method, estimated in estimates(protocol, scenario=scenario, particles=particles):
        yield scored(protocol, method, estimated, begin, **extra)
        begin = time.perf_counter()


def estimates(
    protocol: Protocol, *, scenario: str = "white", particles: int = 0, without: Collection[str] = ()
) -> Iterator[tuple[str, Estimate]]:
    """The same methods by name with what they estimate on ``protocol.split.test``, for scores of your own.

    - Own data: ``hold``, ``mean``, and ``linear_kf``, the Kalman filter of the linear system fitted to the training
      records (a state with angles has none); on a system of your own ``ekf`` instead.
    - Simulated data, equations known: ``hold``, ``open_loop``, ``ekf``, ``ukf``, ``ekf_fitted``; in a tone
      ``notch_ekf`` and ``tracked_notch_ekf`` too; in coloured noise ``oracle`` and ``oracle_second_order``.

    Args:
        protocol: the records.
        scenario: the noise of a simulated set.
        particles: of a particle filter on simulated data; 0 leaves it out.
        without: filters on simulated data that are not run.

    Yields:
        Name and estimates of each method.

    >>> from fwnkf.data import protocols
    >>> protocol = protocols.simulated("lorenz", "strict", train=1, val=1, test=2)
    >>> next(estimates(protocol))[1].mean.shape
    torch.Size([2, 100, 3])
    """
    if protocol.data in SIMULATED_SIZES:
        yield from _simulated(protocol, scenario, particles, without)
        return
    records = protocol.split.test
    yield "hold", Estimate(hold(records))
    yield "mean", Estimate(mean_state(protocol.split.train).expand_as(records.truth))
    if records.system is not None:
        linear = isinstance(records.system, LinearSystem)
        yield "linear_kf" if linear else "ekf", estimate(build("ekf", system=records.system), records)


def hold(records: Records) -> Float[Tensor, "N T n"]:
    """The mean of the initial belief at every step."""
    return records.start.mean.expand(len(records), -1).unsqueeze(1).expand_as(records.truth)


def mean_state(train: Records, rounds: int = 10) -> Float[Tensor, " n"]:
    """The state with the least mean squared distance to those of the training records, along the shortest way.

    For numbers on a line this is their mean, and found in the first round.
    """
    known = known_steps(train)
    states = train.truth.flatten(0, 1) if known is None else train.truth[known]
    if len(states) == 0:
        raise DataError(f"{train.name}: the truth is not known at any step, so there is no mean of it")
    centre = states[0]
    for _ in range(1 if train.layout.flat else rounds):
        centre = train.layout.boxplus(centre, train.layout.boxminus(states, centre.expand_as(states)).mean(0))
    return centre


# ---- simulated ------------------------------------------------------------------------------------------------------


def _simulated(
    protocol: Protocol, scenario: str, particles: int, without: Collection[str]
) -> Iterator[tuple[str, Estimate]]:
    records = protocol.split.test
    if records.system is None:
        raise ConfigError(f"{protocol.data} comes without its system")
    system = records.system
    yield "hold", Estimate(hold(records))
    yield "open_loop", Estimate(open_loop(records))
    methods: dict[str, Callable[[], tuple[Filter, Records]]] = {
        "ekf": lambda: (build("ekf", system=system), records),
        "ukf": lambda: (build("ukf", system=system), records),
        "ekf_fitted": lambda: (fitted_noise(system, protocol.split.train), records),
    }
    if scenario == "tone":  # elsewhere a notch only takes signal away
        fixed = torch.full((len(records),), 0.3 * math.pi)
        methods["notch_ekf"] = lambda: (build("ekf", system=system), notched(records, fixed))
        methods["tracked_notch_ekf"] = lambda: (build("ekf", system=system), notched(records, strongest_tone(records)))
    if scenario != "white":  # there the EKF itself knows the noise
        methods[ORACLE] = lambda: (oracle(system, scenario, records), records)
        methods[ORACLE_SECOND_ORDER] = lambda: (oracle(system, scenario, records, moments="second_order"), records)
    for name, make in methods.items():
        if name in without:
            continue
        model, given = make()
        # in one batch: the oracle of a tone has a frequency for each record
        yield name, estimate(model, given, batch=len(given))
    if particles:
        yield f"particle_{particles}", Estimate(particle_filter(records, particles))


def open_loop(records: Records) -> Float[Tensor, "N T n"]:
    """The initial belief moved by the true equations; no sensor."""
    if records.system is None:
        raise ConfigError(f"{records.name!r} has no equations to follow")
    x = records.start.mean.expand(len(records), -1)
    path = [x]
    for t in range(1, records.y.shape[1]):
        x = records.system.transition(x, None if records.u is None else records.u[:, t], records.dt[:, t])
        path.append(x)
    return torch.stack(path, 1)


def fitted_noise(system: System, train: Records, records: int = 64, rounds: int = 3) -> Filter:
    """An EKF whose ``Q`` and ``R`` are scaled to the greatest likelihood of training innovations; needs no truth.

    One factor each, found in turn on a grid that is refined: the likelihood of a filter that may diverge has no useful
    gradient.
    """
    model = FrequencyWeightedNeuralKalmanFilter(system)
    some = train.take(torch.arange(min(records, len(train))))
    d, adapt = system.layout.tangent_size, ADAPT

    def set_scales(logs: tuple[float, ...]) -> None:
        raw = torch.atanh(torch.tensor(logs, dtype=torch.float64) / adapt).to(some.y)
        with torch.no_grad():
            bias = model.get_parameter("head_bias")
            bias[:d], bias[d:] = raw[0], raw[1]

    @functools.cache  # the best point of one axis is the middle of the grid on the next
    def likelihood(*logs: float) -> float:
        set_scales(logs)
        with torch.no_grad():
            value = float(model.run(**some.inputs()).step_log_likelihood.mean())
        return value if math.isfinite(value) else -math.inf

    best, step = (0.0, 0.0), 2.0
    for _ in range(rounds):
        for axis in (0, 1):
            grid = [min(max(best[axis] + k * step, -0.99 * adapt), 0.99 * adapt) for k in (-2, -1, 0, 1, 2)]
            candidates = [(value, best[1]) if axis == 0 else (best[0], value) for value in grid]
            best = max(candidates, key=lambda logs: likelihood(*logs))
        step /= 2.5
    set_scales(best)
    return model


class KnownTones(LineStates):
    """Lines with a known frequency for each record."""

    def __init__(self, options: Lines, system: System, omega: Tensor) -> None:
        channels = system.observation_layout.size
        super().__init__(options, slice(0, channels), system)
        self.register_buffer("omega", omega.unsqueeze(-1).expand(-1, channels).clone())

    def prepare(self, white_std: Tensor) -> PreparedLines:
        omega = self.get_buffer("omega")
        return super().prepare(white_std)._replace(frequency=omega, power=torch.ones_like(omega[:, 0]))


def oracle(
    system: System, scenario: str, records: Records, *, moments: Literal["linear", "second_order"] = "linear"
) -> Filter:
    """The EKF with the scenario's true noise model as extra states; of a tone it knows each record's frequency.

    A flat band has no model of finite order: there the oracle has the two broad oscillators of
    :func:`fwnkf.systems.noise.oscillators`, fitted to the band. ``moments="second_order"`` adds the transition's
    curvature to mean and covariance: hardly another error, much better error bars.
    """
    variance = float(system.measurement_covariance()[0, 0])
    model_of_noise = noise.oscillators(scenario, variance, None if records.tone is None else float(records.tone[0]))
    whiter = SYSTEMS[SYSTEMS.name_of(type(system)) or ""](replace(system.config, variance=model_of_noise.floor))
    frequency, radius, amplitude = model_of_noise.states
    lines = Lines(frequency.shape[1], shared=True, pole_radius=0.99999)
    model = FrequencyWeightedNeuralKalmanFilter(whiter.to(records.y), noise=lines, moments=moments)
    if records.tone is not None:
        model.noise_states = KnownTones(lines, model.system, math.pi * records.tone).to(records.y)
    states = model.noise_states
    assert isinstance(states, LineStates)
    states.set_oscillators(frequency, radius, amplitude)
    return model


def strongest_tone(records: Records) -> Float[Tensor, " N"]:
    """Angular frequency of the strongest line above a tenth of Nyquist in each record's spectrum."""
    centred = records.y - records.y.mean(1, keepdim=True)
    power = torch.fft.rfft(torch.where(records.mask, centred, 0.0), dim=1).abs().square().sum(-1)
    length = records.y.shape[1]
    first = max(1, round(0.05 * length))
    return 2 * math.pi * (power[:, first:].argmax(-1) + first) / length


def notched(records: Records, omega: Float[Tensor, " N"]) -> Records:
    """The records with their measurements through a causal notch, at a frequency of its own for each record."""
    cosine, r = omega.cos().to(records.y), NOTCH_RADIUS
    b1, a1, a2 = -2 * cosine, -2 * r * cosine, r * r
    scale = (1 + a1 + a2) / (2 + b1)  # unit gain at frequency zero, where the signal is
    y = torch.where(records.mask, records.y, 0.0)
    rest = (y[:, 0] / (1 + a1 + a2).unsqueeze(-1)).clone()  # start as if the first sample had always been there
    lag1, lag2, path = rest, rest, []
    for t in range(y.shape[1]):
        s = y[:, t] - a1.unsqueeze(-1) * lag1 - a2 * lag2
        path.append(scale.unsqueeze(-1) * (s + b1.unsqueeze(-1) * lag1 + lag2))
        lag1, lag2 = s, lag1
    return replace(records, y=torch.stack(path, 1))
