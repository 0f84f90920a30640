"""Baselines that learn nothing: from methods that ignore the sensor to the oracle, on the same records, in one table.

A figure of a learned filter means nothing without them. Every row names its method, data, protocol,
scenario, seed and how many records it was measured on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from ..core import oscillators
from ..core.gaussian import log_prob
from ..core.system import System
from ..data.protocols import SIMULATED_SIZES, Protocol, Records
from ..errors import ConfigError, DataError
from ..filters.base import Filter, build
from ..filters.shaping import NoiseStates
from ..registry import SYSTEMS
from ..shapes import Float
from ..systems import noise
from .evaluate import evaluate
from .particle import particle_filter
from .rows import Row, known_steps, row

NOTCH_RADIUS = 0.9
"""Pole radius of a notch: a width of about a tenth of the sampling rate over π."""


def baselines(made: Protocol, *, scenario: str = "white", particles: int = 0) -> Iterator[Row]:
    """Rows of methods that learn nothing, cheapest first; ``scenario`` is the noise a simulated set was made with."""
    yield from _simulated(made, scenario, particles) if made.data in SIMULATED_SIZES else _without_equations(made)


def hold(task: Records) -> Float[Tensor, "N T n"]:
    """The initial state, for ever."""
    return task.start.mean.expand(len(task), -1).unsqueeze(1).expand_as(task.truth)


# ---- own data -------------------------------------------------------------------------------------------------------


def _without_equations(made: Protocol) -> Iterator[Row]:
    """Where the equations are not known: the start for ever, the mean of the training states, the best linear model."""
    task = made.split.test
    begin = time.perf_counter()
    yield row(made, task, "hold", hold(task), None, begin)
    begin = time.perf_counter()
    yield row(made, task, "mean", mean_state(made.split.train).expand_as(task.truth), None, begin)
    if task.system is not None:  # a state with angles has no linear model
        yield evaluate(build("ekf", system=task.system), made, "linear_kf")


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


def _simulated(made: Protocol, scenario: str, particles: int) -> Iterator[Row]:
    task = made.split.test
    if task.system is None:
        raise ConfigError(f"{made.data} comes without its system")
    system = task.system
    extra = {"scenario": scenario}
    for name, method in {"hold": hold, "open_loop": open_loop}.items():
        begin = time.perf_counter()
        yield row(made, task, name, method(task), None, begin, **extra)
    filters: dict[str, Callable[[], tuple[Filter, Records]]] = {
        "ekf": lambda: (build("ekf", system=system), task),
        "ukf": lambda: (build("ukf", system=system), task),
        "ekf_fitted": lambda: (fitted_noise(system, made.split.train), task),
        "notch_ekf": lambda: (build("ekf", system=system), notched(task, torch.full((len(task),), 0.3 * math.pi))),
        "tracked_notch_ekf": lambda: (build("ekf", system=system), notched(task, strongest_tone(task))),
        "noise_state_ekf": lambda: (oracle_filter(system, scenario, task), task),
    }
    if scenario not in ("tone",):  # a notch is for tones; elsewhere it only takes signal away
        del filters["notch_ekf"], filters["tracked_notch_ekf"]
    for name, make in filters.items():
        begin = time.perf_counter()
        model, fed = make()
        with torch.no_grad():
            track = model.run(**fed.inputs())
        yield row(made, task, name, track.mean, track.cov, begin, **extra)
    if particles:
        begin = time.perf_counter()
        yield row(made, task, f"particle_{particles}", particle_filter(task, particles), None, begin, **extra)


def open_loop(task: Records) -> Tensor:
    """The initial belief moved by the true equations; no sensor."""
    if task.system is None:
        raise ConfigError(f"task {task.name!r} has no equations to follow")
    x = task.start.mean.expand(len(task), -1)
    path = [x]
    for t in range(1, task.y.shape[1]):
        x = task.system.transition(x, None if task.u is None else task.u[:, t], task.dt[:, t])
        path.append(x)
    return torch.stack(path, 1)


def fitted_noise(system: System, train: Records, records: int = 64, rounds: int = 3) -> Filter:
    """An EKF whose ``Q`` and ``R`` are scaled to the greatest likelihood of training innovations; needs no truth.

    One factor each, found by turns on a grid that is refined: the likelihood of a filter that may diverge has no slope
    to follow.
    """
    model = build("fwnkf", system=system, shaping="none", hidden=0)
    task = train.take(torch.arange(min(records, len(train))))
    d, adapt = system.layout.tangent_size, float(model.config.adapt)

    def set_scales(logs: list[float]) -> None:
        raw = torch.atanh(torch.tensor(logs, dtype=torch.float64) / adapt).to(task.y)
        with torch.no_grad():
            bias = model.get_parameter("head_bias")
            bias[:d], bias[d:] = raw[0], raw[1]

    def likelihood(logs: list[float]) -> float:
        set_scales(logs)
        with torch.no_grad():
            track = model.run(**task.inputs())
        found = float(log_prob(track.innovation, track.innovation_cov, task.mask.to(task.y.dtype))[0].mean())
        return found if math.isfinite(found) else -math.inf

    best, step = [0.0, 0.0], 2.0
    for _ in range(rounds):
        for axis in (0, 1):
            tried = []
            for k in (-2, -1, 0, 1, 2):
                logs = list(best)
                logs[axis] = min(max(best[axis] + k * step, -0.99 * adapt), 0.99 * adapt)
                tried.append((likelihood(logs), logs))
            best = max(tried)[1]
        step /= 2.5
    set_scales(best)
    return model


class KnownTones(NoiseStates):
    """Noise states that turn at a known rate of their own in each record."""

    def __init__(self, channels: int, radius: float, omega: Tensor) -> None:
        super().__init__(channels, 1, True, radius)
        self.register_buffer("omega", omega.unsqueeze(-1).expand(-1, channels).clone())

    def transition(self, ratio: Tensor | None) -> tuple[Tensor, Tensor]:
        if ratio is None:  # only for the nominal matrices, which a run with dt does not use
            return super().transition(None)
        return oscillators.transition(self.radius().flatten(), self.get_buffer("omega"), ratio)


def oracle_filter(system: System, scenario: str, task: Records) -> Filter:
    """The EKF with the scenario's true noise model as extra states; of a tone it knows each record's frequency."""
    variance = float(system.measurement_covariance()[0, 0])
    told = noise.oscillators(scenario, variance, None if task.tone is None else float(task.tone[0]))
    whiter = SYSTEMS[SYSTEMS.name_of(type(system)) or ""](replace(system.config, variance=told.floor))
    frequency, radius, amplitude = told.states
    model = build(
        "fwnkf", system=whiter.to(task.y), shaping="noise", hidden=0, sections=frequency.shape[1], pole_radius=0.99999
    )
    if task.tone is not None:
        model.noise_states = KnownTones(task.y.shape[-1], 0.99999, math.pi * task.tone).to(task.y)
    states = model.get_submodule("noise_states")
    assert isinstance(states, NoiseStates)
    states.set_oscillators(frequency, radius, amplitude)
    return model


def strongest_tone(task: Records) -> Tensor:
    """Angular frequency of the strongest line above a tenth of Nyquist in each record's spectrum."""
    centred = task.y - task.y.mean(1, keepdim=True)
    power = torch.fft.rfft(torch.where(task.mask, centred, 0.0), dim=1).abs().square().sum(-1)
    length = task.y.shape[1]
    first = max(1, round(0.05 * length))
    return 2 * math.pi * (power[:, first:].argmax(-1) + first) / length


def notched(task: Records, omega: Tensor) -> Records:
    """The task with every record's measurements through a causal notch at its own frequency."""
    cosine, r = omega.cos().to(task.y), NOTCH_RADIUS
    b1, a1, a2 = -2 * cosine, -2 * r * cosine, r * r
    scale = (1 + a1 + a2) / (2 + b1)  # unit gain at frequency zero, where the signal is
    y = torch.where(task.mask, task.y, 0.0)
    rest = (y[:, 0] / (1 + a1 + a2).unsqueeze(-1)).clone()  # start as if the first sample had always been there
    lag1, lag2, path = rest, rest, []
    for t in range(y.shape[1]):
        s = y[:, t] - a1.unsqueeze(-1) * lag1 - a2 * lag2
        path.append(scale.unsqueeze(-1) * (s + b1.unsqueeze(-1) * lag1 + lag2))
        lag1, lag2 = s, lag1
    return replace(task, y=torch.stack(path, 1))
