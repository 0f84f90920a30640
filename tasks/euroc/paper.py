"""EuRoC in the accuracy table: ``paper`` here (the pooled windows of one second), ``strict`` in ``euroc_strict``.

In ``paper`` windows of one sequence lie in all three splits, and a window comes with the name of its sequence. The
filter is told that name, as the reference "one constant bias for each sequence" is, and holds one calibration for each:
biases, gravity in the frame of the room, scale and misalignment, and the delay of the truth. All are fitted to the
training windows alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from fwnkf import checkpoint
from fwnkf.core.layout import Layout
from fwnkf.data import protocols
from fwnkf.data.protocols import Protocol, Records
from tasks.euroc.protocol import EUROC_TEN, euroc
from fwnkf.evaluation.rows import Row
from fwnkf.filters.base import Filter
from fwnkf.metrics.accuracy import residual, summarize
from fwnkf.shapes import Float
from fwnkf.systems.inertial_calibrated import CALIBRATION, CalibratedStrapdown, CalibratedStrapdownConfig
from tasks.euroc import calibration as euroc_calibration
from tasks.euroc import card as euroc_card
from tasks.euroc import filter as euroc_filter
from tasks.euroc import strapdown as inertial
from tasks.euroc import strict as euroc_strict

TASK = "euroc"
TARGETS = {"mse": 0.00025}
ATTITUDE = 10.0
"""Weight of the quaternion's errors: unweighted, the gyroscope's numbers bend the attitude to mend the velocity."""
QUICK = 60
"""Test windows of the quick subset."""
TEXT = (
    "EuRoC MAV, protocol `paper`: ten sequences, windows of 200 samples every 50, pooled and split 80/10/10 at random "
    "by the seed, true initial state given; `mse` is the mean over steps and the ten numbers of the state, "
    "quaternions as raw differences. The filter is `fwnkf` on the system `calibrated_strapdown`: strapdown "
    "mechanisation with one calibration for each sequence (28 numbers: biases, gravity, delay, two matrices), fitted "
    "by Gauss-Newton to the training windows of that sequence. It is told which sequence a window is from, as the "
    "reference `strapdown_bias` is; `strapdown_fitted` is the same reference with its biases fitted to all training "
    "windows. References are scored on the test windows of seed 0. The model in this folder is that of seed 0."
)
LIMITS = (
    "The calibration is fitted with the attitude weighted up, for unweighted it gave up attitude to mend velocity. "
    "Windows overlap between the splits, so this measures calibration within known flights, not a new flight: see "
    "`euroc-strict`. What is left is noise and jumps of the ground truth's own velocity, from which every window "
    "starts, and in V1_01 a ground truth that is tilted against gravity. Error bars: coverage is about right, but the "
    "mean NEES is ruled by a few windows whose truth jumps in the first samples, where the start counts as exact and "
    "the filter may be sure to a fraction of a millimetre; later it nears one."
)


def measure(models: Path, *, quick: bool = False) -> Iterator[Row]:
    """Rows of both tasks: the shipped filters, measured now, the mean of all seeds as trained, and the references."""
    yield from _measure_paper(models / TASK, quick)
    yield from euroc_strict.measure(models / euroc_strict.TASK, quick=quick)


def train(models: Path, *, seeds: Sequence[int] = (0, 1, 2, 3, 4), say: Callable[[str], None] = print) -> None:
    """Train all seeds of both tasks from scratch and write ``models/euroc`` and ``models/euroc-strict``."""
    train_paper(models / TASK, seeds=seeds, say=say)
    euroc_strict.train(models / euroc_strict.TASK, seeds=seeds, say=say)


# ---- paper ----------------------------------------------------------------------------------------------------------


def train_paper(folder: Path, *, seeds: Sequence[int] = (0, 1, 2, 3, 4), say: Callable[[str], None] = print) -> None:
    """Calibrate on the training windows of each seed's split; write the first seed's filter, all figures and a card."""
    begin = time.process_time()
    found: list[dict[str, float]] = []
    references: dict[str, dict[str, float]] = {}
    quick: dict[str, float] = {}
    records = 0
    for seed in seeds:
        start = time.process_time()
        made = euroc("paper", seed=seed)
        model = calibrated(made.split.train)
        found.append({"seed": seed, **scored(model, made.split.test), "cpu_seconds": time.process_time() - start})
        say(f"euroc paper, seed {seed}: {found[-1]}")
        if seed == seeds[0]:
            checkpoint.save(model, folder)
            references, records = rungs(made), len(made.split.test)
            quick = scored(model, _few(made.split.test))
    figures: euroc_card.Figures = {
        "task": TASK, "protocol": "paper", "records": records, "seeds": found, **euroc_card.summary(found),
        "references": references, "targets": TARGETS, "quick": quick, "cpu_seconds": time.process_time() - begin,
    }  # fmt: skip
    euroc_card.write(folder, figures, "FW-NKF for EuRoC, protocol `paper`", TEXT, LIMITS)


def calibrated(train: Records) -> Filter:
    """The filter with a calibration for each sequence of the training windows, and noise as large as their errors."""
    rows = euroc_calibration.sources(train)
    table = train.y.new_zeros(1 + len(EUROC_TEN), CALIBRATION)
    for i, name in enumerate(EUROC_TEN):
        if name in rows:
            table[1 + i] = euroc_calibration.fit(train.take(rows[name]), most=80, attitude=ATTITUDE)
    spread = euroc_calibration.spread(train, table[1:], [EUROC_TEN.index(span.source) for span in train.spans])
    config = CalibratedStrapdownConfig(
        sites=len(EUROC_TEN), accelerometer_density=spread.accelerometer_density, gyro_density=spread.gyro_density
    )
    system = CalibratedStrapdown(config).to(table)
    with torch.no_grad():
        system.calibration.copy_(table)
        system.bias_spread.copy_(spread.biases)
    return euroc_filter.assemble(system, None)


def site(task: Records) -> Float[Tensor, "N s"]:
    """The sequence of each window as a one-hot row, which is how the filter is told."""
    index = torch.tensor([EUROC_TEN.index(span.source) for span in task.spans])
    return torch.nn.functional.one_hot(index, len(EUROC_TEN)).to(task.y)


def scored(model: Filter, task: Records) -> dict[str, float]:
    """Mean squared error as the paper has it, by part, and whether the error bars hold."""
    track = euroc_filter.run(model, task, site(task), batch=1024)
    return {**_errors(task.layout, track.mean, task.truth), **euroc_filter.honesty(task, track)}


def _errors(layout: Layout, mean: Tensor, truth: Tensor) -> dict[str, float]:
    found = summarize(layout, (mean, None), truth, difference="raw")
    error = residual(layout, mean, truth).unflatten(-1, (3, 3)).square().sum(-1).mean((0, 1)).sqrt()
    return {"mse": float(found["mse"]), **{f"rmse_{name}": float(error[i]) for i, name in enumerate("pvq")}}


def rungs(made: Protocol) -> dict[str, dict[str, float]]:
    """The references on the test windows; biases from all windows of a sequence, and from its training windows."""
    test, whole = made.split.test, made.split.whole()
    biases = dict(zip((span.source for span in whole.spans), inertial.constant_bias(whole), strict=True))
    known = torch.stack([biases[span.source] for span in test.spans])
    rows = euroc_calibration.sources(made.split.train)
    free = ("gyro_bias", "accelerometer_bias")
    fitted = {name: euroc_calibration.fit(made.split.train.take(rows[name]), free)[:6] for name in rows}
    own = torch.stack([fitted[span.source] for span in test.spans])
    paths = {
        "hold": inertial.hold(test),
        "constant_velocity": inertial.constant_velocity(test),
        "strapdown": inertial.strapdown(test),
        "strapdown_bias": inertial.strapdown(test, known),
        "strapdown_fitted": inertial.strapdown(test, own),
    }
    return {name: _errors(test.layout, path, test.truth) for name, path in paths.items()}


def _few(task: Records) -> Records:
    return task.take(torch.arange(QUICK))


def _measure_paper(folder: Path, quick: bool) -> Iterator[Row]:
    begin = time.process_time()
    model, figures = checkpoint.load(folder), euroc_card.read(folder)
    made = euroc("paper", seed=figures["seeds"][0]["seed"])
    test = _few(made.split.test) if quick else made.split.test
    found = scored(model, test)
    spent = time.process_time() - begin
    yield from euroc_card.rows(TASK, "paper", "fwnkf, as shipped", found, TARGETS, len(test), cpu_seconds=spent)
    if quick:
        return
    mean, std = figures["mean"], figures["std"]
    count, cpu = len(figures["seeds"]), mean["cpu_seconds"]
    ours = {name: value for name, value in mean.items() if name != "cpu_seconds"}
    yield from euroc_card.rows(
        TASK, "paper", "fwnkf", ours, TARGETS, figures["records"], spread=std, seeds=count, cpu_seconds=cpu
    )
    for method, values in rungs(made).items():
        yield from euroc_card.rows(TASK, "paper", method, values, TARGETS, len(test))
