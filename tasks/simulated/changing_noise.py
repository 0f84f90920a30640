"""Noise whose level or presence changes: filters that follow it beside those that are told, and what autopilots do.

The trained Lorenz filters meet the noise of their training at a quarter to four times its variance, and a disturbance
that stops and comes back within a record. Nothing is trained for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fwnkf import FWNKF, Filter, Gaussian, Level, build, load
from fwnkf.core.linearize import mix
from fwnkf.data.simulated import Simulated, generate, tone_frequencies
from fwnkf.diagnosis.autopilots import moving_notch
from fwnkf.diagnosis.notch import low_pass
from fwnkf.evaluation.rows import Row
from fwnkf.metrics.accuracy import summarize
from fwnkf.systems import noise
from fwnkf.systems.lorenz import Lorenz, LorenzConfig
from fwnkf.systems.noise import Scenario
from tasks.bootstrap import paired_ratio
from tasks.simulated.fallback import with_fallback
from tasks.simulated.robustness import FILTERS

LEVELS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Factors of the variance; the bank has the same."""
DWELL = 5.0
"""Seconds for which the bank expects noise to stay as it is."""
ONSETS = 4
"""Beginnings of the disturbance that the bank for switches keeps apart."""
MEMORY = 5.0
"""Seconds over which the filter with a level inside forgets."""
FIRST_SEED = 880_000
"""Of the records; no filter is trained or selected on them."""
DTYPE = torch.float64
"""Of all runs: in float32 some covariances of small noise are not positive definite."""
PERIOD = 80
"""Steps for which the disturbance is on, then off, then on."""
WINDOW = 10
"""Steps over which errors are averaged to say whether a filter has recovered."""
RECOVERED = 1.1
"""Times the error of the filter told the switches."""
ERROR_LIMIT, COVERAGE, NEES_TOLERANCE, SWITCH_LIMIT, RECOVERY = 1.03, (0.93, 0.97), 0.10, 1.05, 0.5


class Records(NamedTuple):
    """Records of several seeds together, ``of_seed`` of each."""

    y: Tensor
    truth: Tensor
    dt: Tensor
    start: Gaussian
    frequency: Tensor | None
    """Of a tone in each record, as a fraction of Nyquist."""
    of_seed: int


class Estimate(NamedTuple):
    """Means and covariances of all records."""

    mean: Tensor
    cov: Tensor


# ---- records --------------------------------------------------------------------------------------------------------


def at_levels(name: str, seeds: int, count: int) -> Records:
    """Records in noise of each level times the variance of the training: seed after seed of a level after the other.

    All levels have the same trajectories, and are filtered together.
    """
    scenario = noise.scenario(name, LorenzConfig().variance)
    numbers = range(FIRST_SEED, FIRST_SEED + seeds)
    data = [
        generate("lorenz", count, scenario=replace(scenario, variance=level * scenario.total), seed=seed, dtype=DTYPE)
        for level in LEVELS
        for seed in numbers
    ]
    tone = torch.cat([tone_frequencies(count, seed) for seed in numbers]).repeat(len(LEVELS))
    return _together(data, count, tone if name == "tone" else None)


def switched(name: str, seeds: int, count: int) -> tuple[Records, Tensor]:
    """Records whose disturbance is on, off and on again, and whether it is on at each step; the floor stays."""
    coloured, floor = noise.scenario(name, LorenzConfig().variance).scaled()
    active = (torch.arange(3 * PERIOD) // PERIOD) % 2 == 0
    data = []
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        one = generate("lorenz", count, 3 * PERIOD, Scenario((floor,)), seed, DTYPE)
        drawn = coloured.sample((count, 3 * PERIOD, one.y.shape[-1]), np.random.default_rng((seed, 1)))
        data.append(replace(one, y=one.y + torch.from_numpy(drawn).to(DTYPE) * active.unsqueeze(-1)))
    return _together(data, count, None), active


def _together(data: Sequence[Simulated], count: int, tone: Tensor | None) -> Records:
    y, truth, dt = (torch.cat([getattr(one, name) for one in data]) for name in ("y", "truth", "dt"))
    return Records(y, truth, dt, data[0].start, tone, count)


# ---- filters --------------------------------------------------------------------------------------------------------


def estimates(model: FWNKF, name: str, records: Records) -> Iterator[tuple[str, Estimate]]:
    """Every method on records of all levels, the filter told the level first."""
    yield "told", told_levels(model, records)
    yield "bank", _run(with_fallback(model, levels=LEVELS, dwell=DWELL), records)
    yield "tracked", _run(model.with_parts(level=Level(MEMORY)), records)
    yield "trained", _run(model, records)
    yield from _classical(name, records)


def switching_estimates(model: FWNKF, name: str, records: Records, active: Tensor) -> Iterator[tuple[str, Estimate]]:
    """Every method on records with a disturbance that switches, the filter told the switches first."""
    switching = with_fallback(model, dwell=DWELL)
    yield "told", told_switches(switching, records, active)
    yield "switching", _run(switching, records)
    yield "onsets", _run(with_fallback(model, dwell=DWELL, onsets=ONSETS), records)
    yield "tracked", _run(model.with_parts(level=Level(MEMORY / 10, of="each")), records)
    yield "trained", _run(model, records)
    yield from _classical(name, records)


@torch.no_grad()
def told_levels(model: FWNKF, records: Records) -> Estimate:
    """The filter with its noise at the true level of each record: a bank whose other levels have no probability.

    Without ``dwell`` hypotheses do not touch each other, so this is ``with_fallback(model, levels=(level,))``.
    """
    bank = with_fallback(model, levels=LEVELS)
    alone: Any = with_fallback(model)  # has the probabilities of one level
    state: Any = bank.init(len(records.y), records.start)
    prior = alone.init(1, records.start).log_weight[0]
    spread = torch.cat((prior[:-2].repeat_interleave(len(LEVELS)), prior[-2:]))
    level = torch.arange(len(records.y)) // (len(records.y) // len(LEVELS))
    own = (torch.arange(state.log_weight.shape[-1]) % len(LEVELS)) == level.unsqueeze(-1)
    own[:, -2:] = True
    # no probability, by a number: a state that is not finite would be rejected
    state = state._replace(log_weight=torch.where(own, spread, -1e6))
    track = bank.run(records.y, dt=records.dt, state=state)
    return Estimate(track.mean, track.cov)


@torch.no_grad()
def told_switches(model: FWNKF, records: Records, active: Tensor) -> Estimate:
    """The bank with the hypotheses that are false at each step ruled out."""
    state: Any = model.init(len(records.y), records.start)
    prepared, count = model.prepare(), state.log_weight.shape[-1]
    silent, disturbed = torch.arange(count) == count - 2, torch.arange(count) < count - 2
    means, covs, d = [], [], model.layout.tangent_size
    for k, on in enumerate(active.tolist()):
        advance = model.step if k else model.update
        state, _ = advance(state, records.y[:, k], dt=records.dt[:, k], prepared=prepared)
        weight = torch.where(disturbed if on else silent, state.log_weight, -torch.inf).log_softmax(-1)
        # as small as float32 takes it: what is ruled out must be able to come back
        state = state._replace(log_weight=weight.clamp_min(-80.0))
        belief = mix(model.layout, weight.exp(), state.members.mean, state.members.cov[..., :d, :d])
        means.append(belief.mean)
        covs.append(belief.cov)
    return Estimate(torch.stack(means, 1), torch.stack(covs, 1))


def _classical(name: str, records: Records) -> Iterator[tuple[str, Estimate]]:
    ekf = build("ekf", system=Lorenz(LorenzConfig()).to(DTYPE))
    yield "ekf", _run(ekf, records)
    filtered = autopilot(name, records)
    if filtered is not None:
        yield "autopilot", _run(ekf, records._replace(y=filtered))


def autopilot(name: str, records: Records) -> Tensor | None:
    """The measurements after the filter that an autopilot has for such noise, with its defaults; None if it has none.

    A tone: the notch of PX4 (bandwidth 15 Hz) at the true frequency, as if the rotor speed were measured. The high
    band: the low-pass of ArduPilot (20 Hz, second order). Nothing is made for drift or pink noise.
    """
    step, y = LorenzConfig().dt, records.y.numpy()
    if name == "tone" and records.frequency is not None:
        centre = (records.frequency / (2 * step)).numpy()
        made = [moving_notch(one, np.full(len(one), hz), step, "PX4") for one, hz in zip(y, centre, strict=True)]
        return torch.from_numpy(np.stack(made))
    if name == "high_band":
        return torch.from_numpy(low_pass(20.0, 1 / step).apply(y.swapaxes(0, 1))).transpose(0, 1)
    return None


@torch.no_grad()
def _run(model: Filter, records: Records) -> Estimate:
    track = model.run(records.y, dt=records.dt, prior=records.start)
    return Estimate(track.mean, track.cov)


# ---- rows -----------------------------------------------------------------------------------------------------------


def changing_noise(
    models: Path, parts: Sequence[str] = ("levels", "switches"), *, seeds: int = 5, records: int = 60
) -> Iterator[Row]:
    """One row for each filter, condition and method: means over seeds, and standard deviations between them.

    The error is that of all records over the told filter's on the same, with an interval over records.
    """
    present = {task: name for task, name in FILTERS.items() if (models / task / "config.json").is_file()}
    for measure in (_MEASURES[part] for part in parts):
        for task, name in sorted(present.items(), key=lambda item: item[1] == "tone"):  # the tone takes longest
            model: Any = load(models / task).to(DTYPE)
            # a filter with eight frequencies is eight filters
            yield from measure(model, task, name, seeds, math.ceil(records / (4 if name == "tone" else 1)))


def _levels(model: FWNKF, task: str, name: str, seeds: int, records: int) -> Iterator[Row]:
    data, told = at_levels(name, seeds, records), None
    for method, estimate in estimates(model, name, data):
        told = estimate if told is None else told
        for k, level in enumerate(LEVELS):
            part = slice(k * seeds * records, (k + 1) * seeds * records)
            at = [Estimate(one.mean[part], one.cov[part]) for one in (estimate, told)]
            yield _row(model, task, f"x{level:g}", method, data._replace(truth=data.truth[part]), *at)


def _switches(model: FWNKF, task: str, name: str, seeds: int, records: int) -> Iterator[Row]:
    (data, active), told = switched(name, seeds, records), None
    for method, estimate in switching_estimates(model, name, data, active):
        told = estimate if told is None else told
        yield {**_row(model, task, "switches", method, data, estimate, told), **_recovery(data, estimate, told)}


_MEASURES: dict[str, Callable[..., Iterator[Row]]] = {"levels": _levels, "switches": _switches}


def _row(
    model: Filter, task: str, condition: str, method: str, data: Records, estimate: Estimate, told: Estimate
) -> Row:
    """Figures of a method relative to the told filter's, for each seed and then over them."""
    figures: dict[str, list[float]] = {}
    for part in torch.arange(len(data.truth)).split(data.of_seed):
        ours, theirs = (
            summarize(model.layout, (one.mean[part], one.cov[part]), data.truth[part]) for one in (estimate, told)
        )
        for name, value in (
            ("ratio", ours["mse"] / theirs["mse"]),
            ("ratio_from_10", ours["mse_from_10"] / theirs["mse_from_10"]),
            ("nees", ours["nees"] / theirs["nees"]),
            ("coverage95", ours["coverage95"]),
            ("mse", ours["mse"]),
        ):
            figures.setdefault(name, []).append(float(value))
    row: Row = {"task": task, "condition": condition, "method": method, "records": data.of_seed}
    for name, values in figures.items():
        spread = torch.tensor(values, dtype=torch.float64)
        row |= {name: float(spread.mean()), f"{name}_std": float(spread.std()) if len(values) > 1 else 0.0}
    row["seeds"] = len(values)
    interval = paired_ratio(*(_by_record(one, data.truth) for one in (estimate, told)))
    row |= {"pooled": interval.value, "pooled_low": interval.low, "pooled_high": interval.high}
    return row | verdict(row)


def _by_record(estimate: Estimate, truth: Tensor, steps: slice = slice(None)) -> dict[str, float]:
    """Mean squared error of each record."""
    errors = (estimate.mean - truth)[:, steps].square().mean((1, 2))
    return {str(number): float(error) for number, error in enumerate(errors)}


def _recovery(data: Records, estimate: Estimate, told: Estimate) -> Row:
    """What is left of each of two switches.

    Seconds until the error of all records together is nearly that of the told filter, and the ratio of the two after
    ``RECOVERY`` with its interval: the windows of the first have few records with large errors that decide.
    """
    errors = [
        (one.mean - data.truth).double().square().mean((0, 2)).unfold(0, WINDOW, 1).mean(-1) for one in (estimate, told)
    ]
    close = errors[0] <= RECOVERED * errors[1]
    row: Row = {}
    for name, switch in (("off", PERIOD), ("on", 2 * PERIOD)):
        afterwards = slice(switch + round(RECOVERY / LorenzConfig().dt), switch + PERIOD)
        rest = paired_ratio(*(_by_record(one, data.truth, afterwards) for one in (estimate, told)))
        row |= {f"rest_{name}": rest.value, f"rest_{name}_low": rest.low, f"rest_{name}_high": rest.high}
        after = close[switch : switch + PERIOD - WINDOW]
        # for good: the last window that is not close decides
        late = (~after).nonzero()
        row[f"recovery_{name}"] = float(late[-1] + 1) * LorenzConfig().dt if len(late) else 0.0
    return row | {"recovered": max(row["recovery_off"], row["recovery_on"]) <= RECOVERY}


def verdict(row: Row) -> dict[str, bool]:
    """Each criterion, and whether all are met; that of error by all records together.

    >>> row = {"condition": "x2", "pooled": 1.02, "nees": 1.15, "coverage95": 0.95}
    >>> verdict(row)
    {'error_ok': True, 'coverage_ok': True, 'nees_ok': False, 'ok': False}
    """
    limit = SWITCH_LIMIT if row["condition"] == "switches" else ERROR_LIMIT
    met = {
        "error_ok": bool(row["pooled"] <= limit),
        "coverage_ok": bool(COVERAGE[0] <= row["coverage95"] <= COVERAGE[1]),
        "nees_ok": bool(abs(row["nees"] - 1) <= NEES_TOLERANCE),
    }
    return {**met, "ok": all(met.values())}
