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
from tasks.uipdb.protocol import RANGES, sessions, test_masks

SESSION_STEPS = 1000
"""Of each session of UIP-DB: the first 50 s."""
PIECE = 250
"""Steps of a piece. Pieces run side by side, so short ones are cheap."""
WINDOW_STEPS, TRAIN_EVERY, TEST_EVERY = 501, 4, 2
"""Of each window of EuRoC the first 2.5 s are learned from; every fourth window trains, every second one tests."""


class Case(NamedTuple):
    """A filter with what it is fitted to. Rows of all inputs: training records first, then ``names`` of the test."""

    filter: Filter
    y: Float[Tensor, "N T m"]
    mask: Tensor
    u: Tensor | None
    dt: Tensor | None
    prior: Gaussian | None
    """Of each record, at its first measurement; None before records are cut: from the first samples."""
    names: tuple[str, ...]
    """The recording of each test record."""
    errors: Callable[[Filter], Mapping[str, float]]
    """The error of a filter on each test recording, with truth."""
    unit: str
    steps: int
    """Training steps of the encoder."""
    learn: tuple[str, ...] = ("Q", "R")
    """What is fitted before."""
    learning_rate: float = 3e-2
    """Of the encoder."""


def broad(models: Path) -> Case:
    """Inclination without a magnetometer: the filter of ``models/broad``; test trials tap and shake the sensor."""
    shipped = fwnkf.load(models / "broad")
    task, recordings = Inclination(), [*trials(TRAIN, SEARCH_BLOCKS), *trials(TEST, SEARCH_BLOCKS)]
    test = recordings[len(TRAIN) :]
    assert shipped.preprocess is not None
    samples = side_by_side(recordings)[..., : shipped.preprocess.observation_dim].to(shipped.dtype)

    def errors(model: Filter) -> Mapping[str, float]:
        return task.evaluate(_behind(shipped, model), test).by_recording

    inside = shipped.preprocessed(Inputs(samples, torch.ones_like(samples), None, None))
    plain, mask = _behind(None, shipped), inside.weight.bool()
    unit = "inclination, degrees"
    return in_pieces(Case(plain, inside.y, mask, inside.u, None, None, tuple(TEST), errors, unit, 60))


def euroc_strict(models: Path) -> Case:
    """Inertial navigation with rotor drag: the filter of ``models/euroc-strict`` on windows of 5 s."""
    shipped = fwnkf.load(models / "euroc-strict")
    split = euroc("strict", horizon=float(HEADLINE)).split
    train = split.train.take(torch.arange(0, len(split.train), TRAIN_EVERY))
    test = split.test.take(torch.arange(0, len(split.test), TEST_EVERY))
    data = StrictData({}, {}, {}, {HEADLINE: test}, {})

    def errors(model: Filter) -> Mapping[str, float]:
        return scored(data, beliefs(_behind(shipped, model), data), 0.0).by_recording

    y, dt = (torch.cat((getattr(train, name), getattr(test, name)))[:, :WINDOW_STEPS] for name in ("y", "dt"))
    samples = y.to(shipped.dtype)
    inside = shipped.preprocessed(Inputs(samples, torch.ones_like(samples), None, dt.to(shipped.dtype)))
    given = Gaussian(torch.cat((train.start.mean, test.start.mean)), train.start.cov)
    plain = _behind(None, shipped)
    assert plain.system is not None
    prior = plain.system.complete_prior(Gaussian(given.mean.to(shipped.dtype), given.cov.to(shipped.dtype)))
    prior = Gaussian(prior.mean, prior.cov.expand(len(y), *prior.cov.shape[-2:]))
    names = tuple(span.source for span in test.spans)
    # at a rate of 3e-2 no step of the training is better than the first on the validation records
    return Case(
        plain, inside.y, inside.weight.bool(), inside.u, inside.dt, prior, names, errors, "position, m", 60,
        learning_rate=3e-3,
    )  # fmt: skip


def uipdb(models: Path) -> Case:
    """Fifteen ranges with velocities; their noise depends on the body in between. A fifth of the seconds is hidden."""
    train, test = sessions("train"), sessions("test")
    q, R = baselines.fit_noise(baselines.constant_velocity, train)
    one = baselines.constant_velocity(q, R)
    filter_of_ranges = fwnkf.build(
        "kf",
        F=torch.cat([torch.cat([one.F[:, row, column].diag() for column in (0, 1)], 1) for row in (0, 1)]),
        H=torch.cat((torch.eye(len(RANGES)), torch.zeros(len(RANGES), len(RANGES))), 1).double(),
        Q=torch.cat([torch.cat([one.Q[:, row, column].diag() for column in (0, 1)], 1) for row in (0, 1)]),
        R=R.diag(),
    ).double()
    records = [record.part(0, SESSION_STEPS) for record in (*train, *test)]
    count, length = len(RANGES), max(len(record.y) for record in records)
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
    # Q and R have the largest likelihood of each range alone already, so that R alone is refined; at a rate of 3e-2 no
    # step of the training is better than the first on the validation records
    whole = Case(filter_of_ranges, y, mask, None, None, prior, names, errors, "hidden ranges, mm", 100, ("R",), 3e-3)
    return in_pieces(whole)


@torch.no_grad()
def in_pieces(case: Case) -> Case:
    """Records of equal length cut into pieces, each of which starts from what the filter predicted there.

    Steps after the last whole piece are dropped.
    """
    track = case.filter.run(case.y, case.u, mask=case.mask, prior=case.prior)
    count = case.y.shape[1] // PIECE

    def cut(item: Tensor) -> Tensor:
        return item[:, : count * PIECE].unflatten(1, (count, PIECE)).flatten(0, 1)

    prior = Gaussian(cut(track.prior_mean)[:, 0], cut(track.prior_cov)[:, 0])
    names = tuple(name for name in case.names for _ in range(count))
    u = None if case.u is None else cut(case.u)
    return case._replace(y=cut(case.y), mask=cut(case.mask), u=u, prior=prior, names=names)


def _behind(front: Filter | None, model: Filter) -> Filter:
    """A copy of a filter with the preprocessing of another, or with none."""
    copied = copy.deepcopy(model)
    copied.preprocess = None if front is None else front.preprocess
    return copied


CASES: dict[str, Callable[[Path], Case]] = {"broad": broad, "euroc-strict": euroc_strict, "uipdb": uipdb}
