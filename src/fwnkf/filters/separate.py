"""A filter whose channels are not correlated as several small filters: one for each axis, as a device runs them.

A filter of six channels with eight states each multiplies matrices of 48 by 48; six filters of eight states do the same
in a thirty-sixth of the operations and of the memory.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from ..core.linear import LinearSystem
from ..native.kalman import blocks_of
from .base import Filter
from .factory import build
from .fwnkf import FrequencyWeightedNeuralKalmanFilter, FWNKFConfig
from .kalman import KalmanFilter
from .parts.level import Level
from .parts.lines import START, Lines, LineStates

SILENT = 1.01 * START
"""Amplitude of a line over the white noise up to which it is as good as none."""


class Separated(NamedTuple):
    """A part of a filter that is correlated with no other part of it."""

    name: str
    """Of its channels."""
    channels: tuple[int, ...]
    """Their places among those of the whole filter."""
    states: tuple[int, ...]
    """Places of its states in the mean of the whole filter."""
    filter: Filter


@torch.no_grad()
def separate(model: Filter, *, fixed_step: bool = False) -> list[Separated]:
    """The independent parts of a filter, each a filter of its own; the filter itself where it does not fall apart.

    Kalman filters of linear systems fall apart, with lines and a level of all covariances too. Estimates are those of
    the whole filter; lines that are as good as silent are left out. A level is followed by each part alone: over as
    many measurements as before, which takes longer.

    Args:
        model: the filter.
        fixed_step: make parts in discrete time, whose steps all have the nominal length.

    Returns:
        Its parts in the order of their first channels.

    >>> import fwnkf
    >>> eye = torch.eye(2)
    >>> [part.channels for part in separate(fwnkf.KF(F=eye, H=eye, Q=eye, R=eye, channels=("a", "b")))]
    [(0,), (1,)]
    """
    whole = [Separated(model.name, tuple(range(model.observation_dim)), tuple(range(model.layout.size)), model)]
    system = model.system
    if not isinstance(system, LinearSystem) or not _plain(model) or model.layout.origins:
        return whole
    matrices = {name: getattr(system, name) for name in "FH"} | {"Q": system.Q(), "R": system.R()}
    pattern = {name: item != 0 for name, item in matrices.items()}
    blocks = blocks_of([pattern["F"], pattern["Q"]], pattern["H"], pattern["R"])
    whole_in_one = len(blocks) < 2 and not (fixed_step and system.config.continuous)
    if whole_in_one or any(not block.channels or not block.states for block in blocks):
        return whole
    continuous = system.config.continuous and not fixed_step
    if system.config.continuous and fixed_step:
        F, _, Q = system.matrices(None)
        matrices |= {"F": F, "Q": Q}
    names = [part.name for part in system.observation_layout.parts for _ in range(part.size)]
    repeated = len(set(names)) < len(names)
    described = [
        (part.name if part.size == 1 else f"{part.name}_{number}", part.kind, 1)
        for part in system.layout.parts
        for number in range(part.size)
    ]
    found = []
    for block in sorted(blocks, key=lambda item: item.channels):
        states, channels = torch.tensor(block.states), torch.tensor(block.channels)
        own = {
            "F": matrices["F"][states][:, states], "H": matrices["H"][channels][:, states],
            "Q": matrices["Q"][states][:, states], "R": matrices["R"][channels][:, channels],
        }  # fmt: skip
        labels = tuple(f"channel_{place}" if repeated else names[place] for place in block.channels)
        options = {
            "continuous": continuous, "dt": system.dt, "channels": labels,
            "layout": tuple(described[place] for place in block.states),
            "initial_std": tuple(system.config.initial_std[place] for place in block.states if system.initial_steps),
        }  # fmt: skip
        part = _built(model, own, options, block.channels)
        found.append(Separated("_".join(labels), tuple(block.channels), tuple(block.states), part.to(model.dtype)))
    return found


def _plain(model: Filter) -> bool:
    """Whether a filter is a Kalman filter of its linear system, but for lines and a level of all covariances."""
    if model.preprocess is not None or model.covariance_scale is not None or model.control_dim:
        return False
    if type(model) is KalmanFilter:
        return True
    if type(model) is not FrequencyWeightedNeuralKalmanFilter:
        return False
    config = model.config
    bare = FWNKFConfig()
    others = ("encoder", "residual", "transition", "phi", "hypotheses", "correction", "moments", "jump")
    if any(getattr(config, name) != getattr(bare, name) for name in others):
        return False
    noise = model.noise_states
    lines = noise is None or (isinstance(noise, LineStates) and noise.raw_frequency.shape[0] == model.observation_dim)
    return lines and (config.level is None or config.level.of == "all")


def _built(model: Filter, matrices: dict[str, torch.Tensor], options: dict[str, object], channels: list[int]) -> Filter:
    if isinstance(model, KalmanFilter):
        return build("kf", **matrices, **options, solve=model.config.solve)
    system = LinearSystem.of(**matrices, **options)  # type: ignore[arg-type]
    assert isinstance(model, FrequencyWeightedNeuralKalmanFilter)
    level, noise, lines = model.config.level, model.noise_states, None
    if level is not None:
        level = Level(level.seconds * model.observation_dim / len(channels), of="all")
    if isinstance(noise, LineStates):
        loud = (noise.amplitude[channels].abs() > SILENT).any(0)
        if bool(loud.any()):
            hz, width, std = (item[channels][:, loud] for item in (noise.hz, noise.bandwidth_hz, noise.std))
            lines = Lines(int(loud.sum()), hz, width, std, pole_radius=noise.limit)
    if lines is None and level is None:
        return build("kf", **matrices, **options, solve=model.config.solve)
    return FrequencyWeightedNeuralKalmanFilter(system, noise=lines, level=level, solve=model.config.solve)
