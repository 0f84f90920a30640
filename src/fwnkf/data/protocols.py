"""Two honest ways to split and start: ``paper`` and ``strict``.

``paper`` is what the paper and its public code do, so that figures can be compared: the true initial state is given,
and windows of all sequences are pooled and split at random, although they overlap. It flatters every method that trusts
its initial state. ``strict`` is what a user can believe: the initial state is as uncertain as it says, splits share no
sample, and one fixed test set serves all methods.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence as Many
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..core.layout import Layout
from ..core.system import System
from ..errors import ConfigError, DataError
from ..shapes import Bool, Float
from ..types import Gaussian
from . import catalogue
from .sequence import Sequence, Span, assert_disjoint
from .simulated import Simulated, generate, tone_frequencies

ProtocolName = Literal["paper", "strict"]

EUROC_TEN = (
    "MH_02_easy",
    "MH_03_medium",
    "MH_04_difficult",
    "MH_05_difficult",
    "V1_01_easy",
    "V1_02_medium",
    "V1_03_difficult",
    "V2_01_easy",
    "V2_02_medium",
    "V2_03_difficult",
)
"""The ten sequences of the paper."""
EUROC_STRICT = {
    "train": ("MH_01_easy", "MH_03_medium", "MH_05_difficult", "V2_01_easy", "V2_03_difficult"),
    "val": ("V1_02_medium",),
    "test": ("MH_02_easy", "MH_04_difficult", "V1_01_easy", "V1_03_difficult", "V2_02_medium"),
}
"""The split by sequence that AirIO uses, one of its training sequences held back for validation."""
EUROC_WINDOW, EUROC_STRIDE = 200, 50
EUROC_START = (0.01, 0.01, float(np.deg2rad(0.5)))
"""Standard deviations of the given position (m), velocity (m/s) and attitude (rad) in ``strict``."""
START_SEED = 20260601
"""Draws the errors of the given initial states in ``strict``, the same for every method."""
SIMULATED_SIZES = {"lorenz": 1000, "pendulum": 30_000}
"""Trajectories of the paper."""
STRICT_TEST = 1000
"""On 100 trajectories even the optimal filter has a standard error of 14 %."""


@dataclass(frozen=True, eq=False)
class Task:
    """Equally long records for ``filter.run``, what is true of them, and what a filter may start from."""

    name: str
    y: Float[Tensor, "N T m"]
    truth: Float[Tensor, "N T n"]
    mask: Bool[Tensor, "N T m"]
    dt: Float[Tensor, "N T"]
    u: Float[Tensor, "N T p"] | None
    start: Gaussian
    """The initial belief, at the time of the first sample (``dt[:, 0]`` is zero)."""
    layout: Layout
    spans: tuple[Span, ...]
    """Which samples of which source each record is."""
    system: System | None = None
    """The system with its true parameters, where there is one."""
    tone: Float[Tensor, " N"] | None = None
    """The true frequency of each record's tone (fraction of Nyquist), for references that are told the noise."""

    def __len__(self) -> int:
        return len(self.y)

    def inputs(self) -> dict[str, Any]:
        """What ``filter.run`` takes, by its names."""
        return {"y": self.y, "u": self.u, "mask": self.mask, "dt": self.dt, "prior": self.start}

    def take(self, index: Many[int] | Tensor) -> Task:
        """Some of the records, by number."""
        rows = torch.as_tensor(index)
        start = self.start
        if start.mean.ndim == 2:
            start = Gaussian(start.mean[rows], start.cov[rows] if start.cov.ndim == 3 else start.cov)
        return replace(
            self,
            y=self.y[rows],
            truth=self.truth[rows],
            mask=self.mask[rows],
            dt=self.dt[rows],
            u=None if self.u is None else self.u[rows],
            tone=None if self.tone is None else self.tone[rows],
            start=start,
            spans=tuple(self.spans[int(i)] for i in rows),
        )


def digest(*tasks: Task) -> str:
    """SHA-256 over everything a filter is given or scored by."""
    found = hashlib.sha256()
    for task in tasks:
        for tensor in (task.y, task.truth, task.mask, task.dt, task.u, *task.start):
            if tensor is not None:
                found.update(tensor.contiguous().numpy().tobytes())
    return found.hexdigest()


class Split(NamedTuple):
    train: Task
    val: Task
    test: Task

    def whole(self) -> Task:
        """All records together: for methods that train on none of them."""
        joined = {name: torch.cat([getattr(task, name) for task in self]) for name in ("y", "truth", "mask", "dt")}
        first = self.train
        return Task(
            first.name.split()[0],
            **joined,
            u=None if first.u is None else torch.cat([task.u for task in self if task.u is not None]),
            start=Gaussian(torch.cat([task.start.mean for task in self]), first.start.cov)
            if first.start.mean.ndim == 2 and first.start.cov.ndim == 2
            else first.start,
            layout=first.layout,
            spans=tuple(span for task in self for span in task.spans),
            system=first.system,
        )


@dataclass(frozen=True, eq=False)
class Protocol:
    """A data set under one of the two protocols; ``strict`` refuses splits that share a sample.

    >>> made = simulated("lorenz", "strict", seed=1, train=4, val=2, test=3)
    >>> len(made.split.train), made.split.test.start.mean.shape
    (4, torch.Size([3]))
    """

    name: ProtocolName
    data: str
    seed: int
    split: Split
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if self.name == "strict":
            assert_disjoint(*([_Named(span) for span in task.spans] for task in self.split))


class _Named(NamedTuple):
    """A span under the name of what it came from, as :func:`assert_disjoint` wants it."""

    span: Span

    @property
    def name(self) -> str:
        return f"{self.span.source}[{self.span.start}:{self.span.stop}]"


# ---- simulated ------------------------------------------------------------------------------------------------------


def simulated(
    system: Literal["lorenz", "pendulum"],
    protocol: ProtocolName,
    *,
    scenario: Any = "white",
    seed: int = 0,
    train: int | None = None,
    val: int | None = None,
    test: int | None = None,
    dtype: torch.dtype = torch.float64,
) -> Protocol:
    """Lorenz or pendulum. ``paper``: one set split 80/10/10, initial states given. ``strict``: three sets of their own.

    The strict test set has the same seed whatever ``seed`` is, so that every method and every training run is judged on
    the same 1,000 trajectories.
    """
    total = SIMULATED_SIZES[system]
    if protocol == "paper":
        sizes = [train or int(0.8 * total), val or total // 10, test or total // 10]
        made = generate(system, sum(sizes), scenario=scenario, seed=seed, dtype=dtype)
        whole = _task(system, made, made.given(), scenario, seed)
        order = torch.from_numpy(np.random.default_rng(seed).permutation(sum(sizes)))
        return Protocol(protocol, system, seed, Split(*(whole.take(rows) for rows in order.split(sizes))))
    tasks = []
    for kind, (count, number) in {
        "train": (train or int(0.8 * total), 3 * seed + 1_000_001),
        "val": (val or total // 10, 3 * seed + 1_000_002),
        "test": (test or STRICT_TEST, 999_999),
    }.items():
        made = generate(system, count, scenario=scenario, seed=number, dtype=dtype)
        tasks.append(_task(f"{system} {kind}", made, made.start, scenario, number))
    return Protocol(protocol, system, seed, Split(*tasks))


def _task(name: str, made: Simulated, start: Gaussian, scenario: Any, seed: int) -> Task:
    steps = made.y.shape[1]
    source = f"{name.split()[0]}, seed {seed}"
    return Task(
        name,
        made.y,
        made.truth,
        made.mask,
        made.dt,
        made.u,
        start,
        made.system.layout,
        tuple(Span(source, "", i * steps, (i + 1) * steps) for i in range(len(made))),
        made.system,
        tone_frequencies(len(made), seed) if scenario == "tone" else None,
    )


# ---- EuRoC ----------------------------------------------------------------------------------------------------------


def euroc(
    protocol: ProtocolName,
    *,
    seed: int = 0,
    horizon: float = 1.0,
    folder: str | Path | None = None,
    dtype: torch.dtype = torch.float64,
) -> Protocol:
    """Inertial navigation on EuRoC: observations are the IMU, truth is position, velocity and quaternion.

    ``paper``: windows of 200 samples every 50 of ten sequences, pooled and split at random; initial state given.
    ``strict``: windows of ``horizon`` seconds that do not overlap, split by sequence; the initial pose and velocity are
    off the truth by 1 cm, 1 cm/s and 0.5 degrees at random, and the belief says so.
    """
    names = EUROC_TEN if protocol == "paper" else tuple(name for group in EUROC_STRICT.values() for name in group)
    sequences = {sequence.source: sequence for sequence in catalogue.load("euroc", folder, sequences=names)}
    if protocol == "paper":
        windows = [w for name in names for w in sequences[name].windows(EUROC_WINDOW, EUROC_STRIDE)]
        whole = inertial_task("euroc", windows, (0.0, 0.0, 0.0), dtype)
        order = torch.from_numpy(np.random.default_rng(seed).permutation(len(whole)))
        tenth = len(whole) // 10
        parts = order.split([len(whole) - 2 * tenth, tenth, tenth])
        return Protocol(protocol, "euroc", seed, Split(*(whole.take(rows) for rows in parts)))
    tasks = []
    for kind, group in EUROC_STRICT.items():
        windows = []
        for name in group:
            length = round(horizon * sequences[name].rate) + 1
            windows += sequences[name].windows(length, length)
        tasks.append(inertial_task(f"euroc {kind}", windows, EUROC_START, dtype))
    return Protocol(protocol, "euroc", seed, Split(*tasks))


def inertial_task(name: str, windows: list[Sequence], spread: tuple[float, float, float], dtype: torch.dtype) -> Task:
    """Windows with known truth throughout, started from the truth with the stated standard deviations."""
    known = [w for w in windows if w.truth is not None and w.truth_mask is not None and bool(w.truth_mask.all())]
    if not known:
        raise DataError(f"{name}: no window has truth throughout; are these sequences with ground truth?")
    layout = known[0].layout
    if layout is None:
        raise ConfigError(f"{name}: the windows have no layout")

    def stack(part: str) -> Tensor:
        return torch.stack([getattr(w, part) for w in known])

    truth = stack("truth").to(dtype)
    dt = stack("dt").to(dtype)
    std = torch.tensor([s for s in spread for _ in range(3)], dtype=dtype)
    drawn = torch.from_numpy(np.random.default_rng(START_SEED).standard_normal((len(known), 9))).to(dtype)
    first = layout.boxplus(truth[:, 0], drawn * std) if any(spread) else truth[:, 0]
    return Task(
        name,
        stack("observations").to(dtype),
        truth,
        stack("mask"),
        dt,
        None,
        Gaussian(first, std.square().diag()),
        layout,
        tuple(w.span for w in known),
    )


def load(data: str, protocol: ProtocolName, **options: Any) -> Protocol:
    """A protocol by name: ``lorenz``, ``pendulum`` or ``euroc``."""
    if protocol not in ("paper", "strict"):
        raise ConfigError(f"protocol {protocol!r}: there are 'paper' and 'strict'")
    if data in SIMULATED_SIZES:
        return simulated(data, protocol, **options)  # type: ignore[arg-type]
    if data == "euroc":
        return euroc(protocol, **options)
    raise ConfigError(f"no protocol for {data!r}; there are: lorenz, pendulum, euroc")
