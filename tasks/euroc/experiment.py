"""EuRoC in an experiment: ``data: {name: euroc, …}`` after ``--import tasks.euroc``.

The setting of the paper: the six channels of the IMU are the *measurement*, and the state is position, velocity and
orientation, of which the IMU sees only derivatives. ``protocol: paper`` has the paper's windows and splits, and the
true initial state is given; ``strict`` splits by flight and gives an initial state with the error its covariance
states.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

import fwnkf
from fwnkf import Gaussian
from fwnkf.core import rotation
from fwnkf.core.layout import Layout
from fwnkf.data.protocols import Protocol, ProtocolName, Records, Split
from fwnkf.data.recording import Recording
from fwnkf.errors import ConfigError
from fwnkf.shapes import Float
from tasks.euroc.protocol import START, STRICT, STRIDE, TEN, WINDOW, inertial_records, recordings
from tasks.windows import coarse, in_steps, subset

Orientation = Literal["quaternion", "plain"]
PLAIN = Layout.parse([("p", "euclidean", 3), ("v", "euclidean", 3), ("q", "euclidean", 4)])
LENGTH_STD = 1e-3
"""Of the length of a quaternion that is four plain numbers: one, as far as rounding and the filter's algebra go."""


@fwnkf.register_data("euroc")
def euroc(
    *,
    protocol: ProtocolName = "strict",
    orientation: Orientation = "quaternion",
    sequences: tuple[str, ...] = (),
    window: int = WINDOW,
    stride: int | None = None,
    every: int = 1,
    train: int | None = None,
    val: int | None = None,
    test: int | None = None,
    folder: str | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> Protocol:
    """EuRoC MAV: the IMU as measurement (6), state position, velocity and orientation (10).

    ``orientation: plain`` has the quaternion as four plain numbers, as in the paper. ``window`` and ``stride`` are in
    samples of 5 ms; steps have ``every`` samples each, whose mean is the measurement. ``train``, ``val`` and ``test``
    limit the number of windows. Without ``sequences``, the paper's ten or all eleven.
    """
    groups = _groups(protocol, sequences)
    flights = recordings([name for group in groups.values() for name in group], folder)
    length = in_steps(window, every, "window")
    step = in_steps(stride or (STRIDE if protocol == "paper" else window), every, "stride")
    if protocol == "strict" and step < length:
        raise ConfigError(f"data.stride = {stride}: windows overlap, which protocol 'strict' excludes")
    deviations = (0.0, 0.0, 0.0) if protocol == "paper" else START
    parts = [
        inertial_records(f"euroc {kind}", _windows(flights, group, length, step, every), deviations, dtype)
        for kind, group in groups.items()
    ]
    if protocol == "paper":
        (whole,) = parts
        order = torch.from_numpy(np.random.default_rng(seed).permutation(len(whole)))
        tenth = len(whole) // 10
        rows = order.split([len(whole) - 2 * tenth, tenth, tenth])
        parts = [replace(whole.take(part), name=f"euroc {kind}") for kind, part in zip(STRICT, rows, strict=True)]
    if orientation == "plain":
        parts = [plain(records) for records in parts]
    split = subset(Split(*parts), (train, val, test), seed)
    return Protocol(protocol, "euroc", seed, split, difference="raw")


def _groups(protocol: ProtocolName, sequences: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Flights by split; those of ``paper`` are pooled."""
    groups: dict[str, tuple[str, ...]] = {"windows": TEN} if protocol == "paper" else STRICT
    if not sequences:
        return groups
    known = {name for group in groups.values() for name in group}
    if unknown := [name for name in sequences if name not in known]:
        raise ConfigError(
            f"data.sequences: {', '.join(unknown)} not in protocol {protocol!r}; there are: {sorted(known)}"
        )
    chosen = {kind: tuple(name for name in group if name in sequences) for kind, group in groups.items()}
    if empty := [kind for kind, group in chosen.items() if not group]:
        raise ConfigError(f"data.sequences leaves no flight for {', '.join(empty)}; protocol 'strict' has {STRICT}")
    return chosen


def _windows(
    flights: Mapping[str, Recording], names: tuple[str, ...], length: int, stride: int, every: int
) -> list[Recording]:
    return [window for name in names for window in coarse(flights[name], every).windows(length, stride)]


def plain(records: Records) -> Records:
    """The same records with quaternions as four plain numbers, so that filters on Euclidean states take them.

    The covariance of the initial attitude is turned into one of the four numbers, ``dq = ½ q ⊗ (0, δ)``; along the
    length of the quaternion it is small instead of zero, so that it has an inverse. A given state stays exact.
    """
    mean, cov = records.start
    if not bool(cov.any()):
        return replace(records, layout=PLAIN, start=Gaussian(mean, cov.new_zeros(10, 10)))
    q = mean[:, 6:]
    turn = torch.nn.functional.pad(_quaternion_jacobian(q), (6, 0, 6, 0))
    turn[:, :6, :6] = torch.eye(6).to(turn)
    length = torch.nn.functional.pad(q.unsqueeze(-1) * q.unsqueeze(-2), (6, 0, 6, 0)) * LENGTH_STD**2
    return replace(records, layout=PLAIN, start=Gaussian(mean, turn @ cov @ turn.mT + length))


def _quaternion_jacobian(q: Float[Tensor, "N 4"]) -> Float[Tensor, "N 4 3"]:
    """The derivative of ``q ⊗ exp(δ)`` by ``δ``."""
    axes = torch.nn.functional.pad(torch.eye(3, dtype=q.dtype), (1, 0))
    return 0.5 * rotation.multiply(q.unsqueeze(-2), axes).mT
