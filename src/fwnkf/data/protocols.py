"""Two honest ways to split and start: ``paper`` and ``strict``.

``paper`` is what the paper and its public code do, so that figures can be compared: the true initial state is given,
and windows of all sequences are pooled and split at random, although they overlap. It flatters every method that trusts
its initial state. ``strict`` is what a user can believe: the initial state is as uncertain as it says, splits share no
sample, and one fixed test set serves all methods.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..core.layout import Layout
from ..core.system import System
from ..errors import ConfigError
from ..shapes import Bool, Float
from ..types import Gaussian
from .recording import Span, assert_disjoint
from .simulated import Simulated, generate, tone_frequencies

ProtocolName = Literal["paper", "strict"]

SIMULATED_SIZES = {"lorenz": 1000, "pendulum": 30_000}
"""Trajectories of the paper."""
STRICT_TEST = 1000
"""On 100 trajectories even the optimal filter has a standard error of 14 %."""


@dataclass(frozen=True, eq=False)
class Records:
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

    def take(self, index: Sequence[int] | Tensor) -> Records:
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


def digest(*tasks: Records) -> str:
    """SHA-256 over everything a filter is given or scored by."""
    found = hashlib.sha256()
    for task in tasks:
        for tensor in (task.y, task.truth, task.mask, task.dt, task.u, *task.start):
            if tensor is not None:
                found.update(tensor.contiguous().numpy().tobytes())
    return found.hexdigest()


class Split(NamedTuple):
    train: Records
    val: Records
    test: Records

    def whole(self) -> Records:
        """All records together: for methods that train on none of them."""
        joined = {name: torch.cat([getattr(task, name) for task in self]) for name in ("y", "truth", "mask", "dt")}
        first = self.train
        return Records(
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
    difference: Literal["shortest", "raw"] = "shortest"
    """How angles and rotations are compared when it is scored: along the shortest way, or number by number."""

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


def _task(name: str, made: Simulated, start: Gaussian, scenario: Any, seed: int) -> Records:
    steps = made.y.shape[1]
    source = f"{name.split()[0]}, seed {seed}"
    return Records(
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


def load(data: str, protocol: ProtocolName, **options: Any) -> Protocol:
    """A protocol by name: ``lorenz`` or ``pendulum``."""
    if protocol not in ("paper", "strict"):
        raise ConfigError(f"protocol {protocol!r}: there are 'paper' and 'strict'")
    if data in SIMULATED_SIZES:
        return simulated(data, protocol, **options)  # type: ignore[arg-type]
    raise ConfigError(f"no protocol for {data!r}; there are: {', '.join(SIMULATED_SIZES)}")
