"""Recordings as records of equal length for an experiment: coarser steps, windows, and a number of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fwnkf import Gaussian
from fwnkf.data.protocols import Records, Split
from fwnkf.data.recording import Recording, Span
from fwnkf.errors import ConfigError, DataError


def coarse(recording: Recording, every: int) -> Recording:
    """The recording in steps of ``every`` samples: means of the measurements, and the truth at the end of each step.

    A sensor of that rate would deliver the means; every ``every``-th sample alone would fold vibration into the band.
    A channel that is missing in one sample of a step is missing in the step.
    """
    if every == 1:
        return recording
    steps = len(recording) // every
    last = slice(every - 1, steps * every, every)

    def blocks(values: Tensor) -> Tensor:
        return values[: steps * every].unflatten(0, (steps, every))

    return replace(
        recording,
        time=recording.time[last],
        observations=blocks(recording.observations).mean(1),
        mask=blocks(recording.mask).all(1),
        truth=None if recording.truth is None else recording.truth[last],
        truth_mask=None if recording.truth_mask is None else recording.truth_mask[last],
        extras={name: extra[last] for name, extra in recording.extras.items()},
        start=recording.start // every,
    )


def in_steps(samples: int, every: int, option: str) -> int:
    """A number of samples in steps of ``every`` samples."""
    if every < 1 or samples < every or samples % every:
        raise ConfigError(f"data.{option} = {samples} samples cannot be divided into steps of data.every = {every}")
    return samples // every


def subset(split: Split, counts: Sequence[int | None], seed: int) -> Split:
    """A number of records of each split (None: all), drawn at random; the draw depends on the seed alone."""
    parts = []
    for i, (records, count) in enumerate(zip(split, counts, strict=True)):
        if count is None:
            parts.append(records)
            continue
        if count > len(records):
            raise DataError(
                f"{records.name}: {count} records wanted, but there are {len(records)}; lower data.train, …"
            )
        generator = torch.Generator().manual_seed(3 * seed + i)
        parts.append(records.take(torch.randperm(len(records), generator=generator)[:count]))
    return Split(*parts)


def cut(records: Records, window: int, stride: int) -> Records:
    """Windows of ``window`` steps of each record, ``stride`` apart; their initial belief is the caller's to set."""
    length = records.y.shape[1]
    starts = range(0, length - window + 1, stride)
    if not starts:
        raise ConfigError(f"{records.name}: {length} steps have no window of {window}; set data.window to fewer")

    def windows(values: Tensor) -> Tensor:
        return torch.cat([values[:, start : start + window] for start in starts])

    dt = windows(records.dt).clone()
    dt[:, 0] = 0.0
    spans = [
        Span(span.source, span.digest, span.start + start, span.start + start + window)
        for start in starts
        for span in records.spans
    ]
    mean, cov = records.start
    return replace(
        records,
        y=windows(records.y),
        truth=windows(records.truth),
        mask=windows(records.mask),
        dt=dt,
        u=None if records.u is None else windows(records.u),
        start=Gaussian(mean.repeat(len(starts), 1) if mean.ndim == 2 else mean, cov),
        spans=tuple(spans),
    )
