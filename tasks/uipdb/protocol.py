"""Held-out ranges on a part of UIP-DB: predict what was measured but hidden, with separate subjects for testing.

That part has no ground truth, so a filter is scored on measured ranges that were hidden from it: one in five at random
(``random``), or every range for whole seconds, one second in five (``block``). Ranges come at 20 Hz, so a step is
50 ms. A prediction may use the present and the past only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from fwnkf.data.recording import Recording
from fwnkf.data.sets import catalogue, uipdb
from fwnkf.errors import DataError
from fwnkf.shapes import Bool, Float

Masking = Literal["random", "block"]
MASKINGS: tuple[Masking, ...] = ("random", "block")
SUBJECTS = {"train": ("05", "06"), "val": ("04",), "test": ("07", "09")}
"""Seven sessions, two and three. No session of a test subject is used in training."""
HELD = 3
"""Frames a range is held for: 60 frames a second, 20 ranges."""
STEP = HELD / uipdb.RATE
RANGES = tuple(f"{uipdb.SENSORS[a]}-{uipdb.SENSORS[b]}" for a, b in uipdb.PAIRS)
"""The names of the fifteen ranges."""
BLOCK = round(1 / STEP)
"""Steps in a second."""
SHARE = 0.2
MASK_SEED = 20260601


@dataclass(frozen=True)
class Record:
    """One session at 20 Hz."""

    name: str
    y: Float[Tensor, "T 15"]

    def part(self, start: int, stop: int) -> Record:
        return replace(self, y=self.y[start:stop])


def sessions(split: Literal["train", "val", "test"], folder: Path | None = None) -> list[Record]:
    """The sessions of a split in order of name; ``folder`` is ``$FWNKF_DATA/uipdb_arm_trunk`` unless given."""
    place = catalogue.folder_of("uipdb") if folder is None else folder
    paths = {name: path for name, path in uipdb.find(place).items() if name[:2] in SUBJECTS[split]}
    missing = [subject for subject in SUBJECTS[split] if not any(name.startswith(subject) for name in paths)]
    if missing:
        raise DataError(f"{place}: no session of subject(s) {', '.join(missing)}. {catalogue.info('uipdb').manual}")
    return [as_record(uipdb.read_session(path, mask_held=False)) for _, path in sorted(paths.items())]


def as_record(session: Recording) -> Record:
    """Every third frame of the ranges: a range is held for three frames."""
    ranges = session.observations[::HELD, 6:]
    if not bool(ranges.isfinite().all()):
        raise DataError(f"{session.name}: a range is not finite; this task needs every sample")
    return Record(session.name, ranges.float())


def visible(length: int, masking: Masking, generator: torch.Generator) -> Bool[Tensor, "T 15"]:
    """True where a range is shown; the first second is always."""
    if masking == "random":
        hidden = torch.rand(length, 15, generator=generator) < SHARE
    else:
        blocks = torch.rand(-(-length // BLOCK), generator=generator) < SHARE
        hidden = blocks.repeat_interleave(BLOCK)[:length, None].expand(length, 15).clone()
    hidden[:BLOCK] = False
    return ~hidden


def test_masks(records: list[Record], masking: Masking) -> list[Bool[Tensor, "T 15"]]:
    """What each test session shows: the same for every method, drawn from one seed in order of name."""
    generator = torch.Generator().manual_seed(MASK_SEED + MASKINGS.index(masking))
    return [visible(len(record.y), masking, generator) for record in records]
