"""The two evaluation protocols: ``paper`` and ``strict``.

``paper`` is the protocol of the paper and its public code, for comparison with published figures: every filter starts
from the true initial state, and windows of all recordings are pooled and split at random, although they overlap. It
favours every method that relies on its initial state. In ``strict`` the initial belief has the covariance of its error,
splits have no sample in common, and all methods are tested on the same fixed test set.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..core.layout import Layout
from ..core.system import System
from ..errors import ConfigError
from ..shapes import Bool, Float
from ..types import Gaussian
from .recording import Span, assert_disjoint

if TYPE_CHECKING:
    from .simulated import Simulated

__all__ = ["Protocol", "Records", "Split", "simulated"]

ProtocolName = Literal["paper", "strict"]

SIMULATED_SIZES = {"lorenz": 1000, "pendulum": 30_000}
"""Number of trajectories of each simulated system in the paper."""
STRICT_TEST = 1000
"""Number of test trajectories in ``strict``; with 100 the standard error of the optimal filter is 14 %."""


@dataclass(frozen=True, eq=False)
class Records:
    """Records of equal length for ``filter.run``, with their truth and the initial belief of a filter.

    >>> records = simulated("lorenz", "strict", train=4, val=1, test=1).split.train
    >>> len(records), records.take([0, 2]).y.shape
    (4, torch.Size([2, 100, 2]))
    """

    name: str
    """Name, for messages and tables."""
    y: Float[Tensor, "N T m"]
    """Measurements, NaN where missing."""
    truth: Float[Tensor, "N T n"]
    """True states."""
    mask: Bool[Tensor, "N T m"]
    """True where a channel was measured."""
    dt: Float[Tensor, "N T"]
    """Lengths of the steps in seconds."""
    u: Float[Tensor, "N T p"] | None
    """Controls; ``u[:, t]`` acts from ``t - 1`` to ``t``."""
    start: Gaussian
    """The initial belief, at the time of the first sample (``dt[:, 0]`` is zero)."""
    layout: Layout
    """Parts of the state."""
    spans: tuple[Span, ...]
    """The source and samples of each record."""
    system: System | None = None
    """The system with its true parameters, if there is one."""
    tone: Float[Tensor, " N"] | None = None
    """The true frequency of each record's tone (fraction of Nyquist), for oracles that know the noise."""

    def __len__(self) -> int:
        return len(self.y)

    def inputs(self) -> dict[str, Any]:
        """The keyword arguments of ``filter.run``.

        Returns:
            Arguments by name.
        """
        return {"y": self.y, "u": self.u, "mask": self.mask, "dt": self.dt, "prior": self.start}

    def take(self, index: Sequence[int] | Tensor) -> Records:
        """A selection of the records.

        Args:
            index: which ones.

        Returns:
            The selection.
        """
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


def digest(*splits: Records) -> str:
    """SHA-256 of all inputs, initial beliefs and truths."""
    sha256 = hashlib.sha256()
    for records in splits:
        for tensor in (records.y, records.truth, records.mask, records.dt, records.u, *records.start):
            if tensor is not None:
                sha256.update(tensor.contiguous().numpy().tobytes())
    return sha256.hexdigest()


class Split(NamedTuple):
    """Training, validation and test records.

    >>> split = simulated("lorenz", "strict", train=4, val=1, test=2).split
    >>> len(split.whole())
    7
    """

    train: Records
    """For the optimizer."""
    val: Records
    """For choosing among training steps."""
    test: Records
    """For figures."""

    def whole(self) -> Records:
        """All records together, for methods that are not trained.

        Returns:
            The records.
        """
        joined = {
            name: torch.cat([getattr(records, name) for records in self]) for name in ("y", "truth", "mask", "dt")
        }
        first = self.train
        return Records(
            first.name.split()[0],
            **joined,
            u=None if first.u is None else torch.cat([records.u for records in self if records.u is not None]),
            start=Gaussian(torch.cat([records.start.mean for records in self]), first.start.cov)
            if first.start.mean.ndim == 2 and first.start.cov.ndim == 2
            else first.start,
            layout=first.layout,
            spans=tuple(span for records in self for span in records.spans),
            system=first.system,
        )


@dataclass(frozen=True, eq=False)
class Protocol:
    """A data set under one of the two protocols; ``strict`` raises if splits have a sample in common.

    >>> protocol = simulated("lorenz", "strict", seed=1, train=4, val=2, test=3)
    >>> len(protocol.split.train), protocol.split.test.start.mean.shape
    (4, torch.Size([3]))
    """

    name: ProtocolName
    """``"paper"`` or ``"strict"``."""
    data: str
    """Name of the data set."""
    seed: int
    """Seed of the split, and of simulated records."""
    split: Split
    """The records."""
    notes: tuple[str, ...] = field(default=())
    """Remarks, for people."""
    difference: Literal["shortest", "raw"] = "shortest"
    """How the scores compare angles and rotations: along the shortest path, or component by component."""

    def __post_init__(self) -> None:
        if self.name == "strict":
            assert_disjoint(*([_NamedSpan(span) for span in records.spans] for records in self.split))


class _NamedSpan(NamedTuple):
    """A span with the name of its source, as :func:`assert_disjoint` needs it."""

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
    """Lorenz or pendulum under a protocol.

    ``paper``: a set split 80/10/10, with known initial states. ``strict``: three separate sets; the test set has the
    same seed for every ``seed``, so that all methods and training runs are tested on the same 1,000 trajectories.

    Args:
        system: the system.
        protocol: the protocol.
        scenario: the measurement noise, a name of :data:`fwnkf.systems.noise.SCENARIOS` or a composed one.
        seed: of the records.
        train, val, test: numbers of records; by default those of the paper.
        dtype: of the records.

    Returns:
        The records.

    >>> simulated("pendulum", "paper", train=8, val=1, test=1).split.train.y.shape
    torch.Size([8, 100, 2])
    """
    from .simulated import generate  # with the systems of the benchmarks, which records of a log do not need

    total = SIMULATED_SIZES[system]
    if protocol == "paper":
        sizes = [train or int(0.8 * total), val or total // 10, test or total // 10]
        data = generate(system, sum(sizes), scenario=scenario, seed=seed, dtype=dtype)
        whole = records_of(system, data, data.given(), scenario, seed)
        order = torch.from_numpy(np.random.default_rng(seed).permutation(sum(sizes)))
        return Protocol(protocol, system, seed, Split(*(whole.take(rows) for rows in order.split(sizes))))
    splits = []
    for kind, count in zip(
        Split._fields, (train or int(0.8 * total), val or total // 10, test or STRICT_TEST), strict=True
    ):
        own = split_seed(kind, seed)
        data = generate(system, count, scenario=scenario, seed=own, dtype=dtype)
        splits.append(records_of(f"{system} {kind}", data, data.start, scenario, own))
    return Protocol(protocol, system, seed, Split(*splits))


def split_seed(kind: str, seed: int) -> int:
    """The seed of a simulated split: none is used twice, and the test records are the same for every ``seed``."""
    return {"train": 3 * seed + 1_000_001, "val": 3 * seed + 1_000_002, "test": 999_999}[kind]


def records_of(name: str, data: Simulated, start: Gaussian, scenario: Any, seed: int) -> Records:
    """Simulated sequences as records; a tone has the true frequencies of its generator."""
    from .simulated import tone_frequencies

    steps = data.y.shape[1]
    source = f"{name.split()[0]}, seed {seed}"
    return Records(
        name,
        data.y,
        data.truth,
        data.mask,
        data.dt,
        data.u,
        start,
        data.system.layout,
        tuple(Span(source, "", i * steps, (i + 1) * steps) for i in range(len(data))),
        data.system,
        tone_frequencies(len(data), seed) if scenario == "tone" else None,
    )


def load(data: str, protocol: ProtocolName, **options: Any) -> Protocol:
    """A simulated data set, ``lorenz`` or ``pendulum``, under a protocol."""
    if protocol not in ("paper", "strict"):
        raise ConfigError(f"no protocol {protocol!r}; there are: 'paper' and 'strict'")
    if data in SIMULATED_SIZES:
        return simulated(data, protocol, **options)  # type: ignore[arg-type]
    raise ConfigError(f"no simulated data set {data!r}; there are: {', '.join(SIMULATED_SIZES)}")
