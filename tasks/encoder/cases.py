"""Filters of three real data sets without their networks, and the records they are fitted to and tested on.

Records are those that the filter itself sees, after its preprocessing. Test records are of other recordings: other
trials of BROAD, other flights of EuRoC, other subjects of UIP-DB.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

import fwnkf
from fwnkf import Filter, Gaussian
from fwnkf.core.preprocess import Inputs
from fwnkf.shapes import Float
from tasks.broad.inclination import Inclination
from tasks.broad.trials import SEARCH_BLOCKS, TEST, TRAIN, side_by_side, trials
from tasks.euroc.protocol import euroc
from tasks.euroc.strict import HEADLINE, StrictData, beliefs, scored
from tasks.uipdb import baselines
from tasks.uipdb.protocol import RANGES, STEP, sessions, test_masks

SESSION_STEPS = 1000
"""Of each session of UIP-DB: the first 50 s."""
WALK = 1e-3
"""m, standard deviation of what a range moves in a step besides its velocity."""


class Case(NamedTuple):
    """A filter with what it is fitted to. Rows of all inputs: training records first, then ``names`` of the test."""

    filter: Filter
    y: Float[Tensor, "N T m"]
    mask: Tensor
    u: Tensor | None
    dt: Tensor | None
    prior: Gaussian | None
    names: tuple[str, ...]
    """The recording of each test record."""
    errors: Callable[[Filter], Mapping[str, float]]
    """The error of a filter on each test recording, with truth."""
    unit: str


def broad(models: Path) -> Case:
    """Inclination without a magnetometer: the filter of ``models/broad``; test trials tap and shake the sensor."""
    shipped = fwnkf.load(models / "broad")
    task, recordings = Inclination(), [*trials(TRAIN, SEARCH_BLOCKS), *trials(TEST, SEARCH_BLOCKS)]
    test = recordings[len(TRAIN) :]
    assert shipped.preprocess is not None
    samples = side_by_side(recordings)[..., : shipped.preprocess.observation_dim].to(shipped.dtype)

    def errors(model: Filter) -> Mapping[str, float]:
        return task.evaluate(_behind(shipped, model), test).by_recording

    return _case(shipped, samples, None, None, tuple(TEST), errors, "inclination, degrees")


def euroc_strict(models: Path) -> Case:
    """Inertial navigation with rotor drag: the filter of ``models/euroc-strict`` on windows of 5 s."""
    shipped = fwnkf.load(models / "euroc-strict")
    split = euroc("strict", horizon=float(HEADLINE)).split
    data = StrictData({}, {}, {}, {HEADLINE: split.test}, {})

    def errors(model: Filter) -> Mapping[str, float]:
        return scored(data, beliefs(_behind(shipped, model), data), 0.0).by_recording

    y, dt = (torch.cat((getattr(split.train, name), getattr(split.test, name))) for name in ("y", "dt"))
    prior = Gaussian(torch.cat((split.train.start.mean, split.test.start.mean)), split.train.start.cov)
    names = tuple(span.source for span in split.test.spans)
    return _case(shipped, y.to(shipped.dtype), dt.to(shipped.dtype), prior, names, errors, "position, m")


def uipdb(models: Path) -> Case:
    """Fifteen ranges with velocities; their noise depends on the body in between. A fifth of the seconds is hidden."""
    train, test = sessions("train"), sessions("test")
    q, R = baselines.fit_noise(baselines.constant_velocity, train)
    count, eye, zero = len(RANGES), torch.eye(len(RANGES)).double(), torch.zeros(len(RANGES), len(RANGES)).double()
    filter_of_ranges = fwnkf.build(
        "kf",
        F=torch.cat((torch.cat((eye, STEP * eye), 1), torch.cat((zero, eye), 1))),
        H=torch.cat((eye, zero), 1),
        Q=torch.cat((torch.full((count,), WALK**2).double(), q * STEP)).diag(),
        R=R.diag(),
    ).double()
    records = [record.part(0, SESSION_STEPS) for record in (*train, *test)]
    length = max(len(record.y) for record in records)
    y = torch.full((len(records), length, count), torch.nan, dtype=torch.float64)
    mask = torch.zeros(y.shape, dtype=torch.bool)
    shown = [torch.ones(record.y.shape, dtype=torch.bool) for record in train]
    for row, (record, visible) in enumerate(zip(records, [*shown, *test_masks(test, "block")], strict=True)):
        y[row, : len(record.y)] = record.y.double()
        mask[row, : len(record.y)] = visible[: len(record.y)]
    start = torch.cat((y[:, 0], torch.zeros_like(y[:, 0])), 1)
    prior = Gaussian(start, torch.cat((R, torch.ones_like(R))).diag())

    @torch.no_grad()
    def errors(model: Filter) -> Mapping[str, float]:
        rows = slice(len(train), None)
        begin = Gaussian(start[rows].to(model.dtype), prior.cov.to(model.dtype))
        track = model.run(y[rows].to(model.dtype), mask=mask[rows], prior=begin)
        error = (track.mean[..., :count].double() - y[rows]).square()
        hidden = ~mask[rows] & y[rows].isfinite()
        return {record.name: 1e3 * float(error[row][hidden[row]].mean().sqrt()) for row, record in enumerate(test)}

    names = tuple(record.name for record in test)
    return Case(filter_of_ranges, y, mask, None, None, prior, names, errors, "hidden ranges, mm")


def _behind(front: Filter | None, model: Filter) -> Filter:
    """A copy of a filter with the preprocessing of another, or with none."""
    copied = copy.deepcopy(model)
    copied.preprocess = None if front is None else front.preprocess
    return copied


def _case(
    shipped: Filter,
    samples: Tensor,
    dt: Tensor | None,
    prior: Gaussian | None,
    names: tuple[str, ...],
    errors: Callable[[Filter], Mapping[str, float]],
    unit: str,
) -> Case:
    """The inputs behind the preprocessing of a filter, and the filter without it."""
    inside = shipped.preprocessed(Inputs(samples, torch.ones_like(samples), None, dt))
    plain = _behind(None, shipped)
    return Case(plain, inside.y, inside.weight.bool(), inside.u, inside.dt, prior, names, errors, unit)


CASES: dict[str, Callable[[Path], Case]] = {"broad": broad, "euroc-strict": euroc_strict, "uipdb": uipdb}
