"""UIP-DB in an experiment: ``data: {name: uipdb, …}`` after ``--import tasks.uipdb``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch

import fwnkf
from fwnkf import Gaussian
from fwnkf.core.layout import Layout
from fwnkf.data.protocols import Protocol, ProtocolName, Records, Split
from fwnkf.data.recording import Span
from fwnkf.errors import ConfigError
from tasks.uipdb import official
from tasks.uipdb.protocol import MASK_SEED, MASKINGS, STEP, Masking, Record, sessions, test_masks, visible
from tasks.windows import subset

WINDOW = 100
LAYOUT = Layout.parse([("range", "euclidean", 15)])
START = 0.1
"""m, standard deviation of a measured range: the initial state is the first one measured."""
KINDS: tuple[Literal["train", "val", "test"], ...] = ("train", "val", "test")


@fwnkf.register_data("uipdb")
def uipdb(
    *,
    protocol: ProtocolName = "strict",
    files: Literal["part", "official"] = "part",
    masking: Masking = "block",
    window: int = WINDOW,
    train: int | None = None,
    val: int | None = None,
    test: int | None = None,
    folder: str | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> Protocol:
    """UIP-DB: ranges hidden from the filter (``files: part``), or the paper's setting (``files: official``).

    ``part``: 15 ranges at 20 Hz, of which a share is hidden (whole seconds, or single ranges with ``masking: random``);
    the state is the ranges. There is no ground truth: the scores compare with ranges that were measured, of the hidden
    seconds alone, or of all steps with ``random``. ``official``: accelerometers, gyroscopes and ranges of six sensors
    as measurement, their acceleration, rotation and distances as state, from the authors' files. ``window`` is in
    steps.
    """
    if files == "official":
        data = official.official(protocol, window, seed=seed, dtype=dtype, folder=folder)
    elif protocol == "paper":
        raise ConfigError(
            "data.protocol = 'paper' needs the official files, with their ground truth: data.files: official"
        )
    else:
        data = _part(masking, window, seed, dtype, folder)
    return replace(data, split=subset(data.split, (train, val, test), seed))


def _part(masking: Masking, window: int, seed: int, dtype: torch.dtype, folder: str | None) -> Protocol:
    place = None if folder is None else Path(folder)
    groups = []
    for kind in KINDS:
        group = sessions(kind, place)
        if kind == "test":
            shown = test_masks(group, masking)
        else:
            generator = torch.Generator().manual_seed(MASK_SEED + 100 + 2 * seed + MASKINGS.index(masking))
            shown = [visible(len(record.y), masking, generator) for record in group]
        whole = kind == "train" or masking == "random"
        groups.append(_windows(f"uipdb {kind}", group, shown, whole, window, dtype))
    return Protocol("strict", "uipdb", seed, Split(*groups))


def _windows(
    name: str, group: list[Record], shown: list[torch.Tensor], whole: bool, window: int, dtype: torch.dtype
) -> Records:
    """Windows that begin with a measurement of every range and contain a hidden one.

    The truth is what was measured: of every step (``whole``), or of the hidden ones alone.
    """
    y, truth, mask, spans = [], [], [], []
    for record, visible_ranges in zip(group, shown, strict=True):
        first = 0
        while first + window <= len(record.y):
            rows = slice(first, first + window)
            if not bool(visible_ranges[first].all()):
                first += 1
                continue
            if not bool(visible_ranges[rows].all()):
                y.append(record.y[rows])
                mask.append(visible_ranges[rows])
                truth.append(record.y[rows] if whole else torch.where(visible_ranges[rows], torch.nan, record.y[rows]))
                spans.append(Span(record.name, "", first, first + window))
            first += window
    if not spans:
        raise ConfigError(f"data.window = {window}: no window of {name} has a hidden range; set it to fewer steps")
    stacked = torch.stack(y).to(dtype)
    dt = torch.full(stacked.shape[:2], STEP, dtype=dtype)
    dt[:, 0] = 0.0
    start = Gaussian(stacked[:, 0], START**2 * torch.eye(15, dtype=dtype))
    return Records(
        name, stacked, torch.stack(truth).to(dtype), torch.stack(mask), dt, None, start, LAYOUT, tuple(spans)
    )
