"""Held-out ranges on the part of UIP-DB at hand: predict what was measured but hidden, subjects apart.

The part has no truth, so a filter is scored on measured ranges it was not shown: one in five at random (``random``), or
every range for whole seconds, one second in five (``block``). Ranges come at 20 Hz, so a step is 50 ms; what the two
inertial sensors read since the step before comes as control. A prediction may use the present and the past only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from fwnkf.core import rotation
from fwnkf.data import catalogue, uipdb
from fwnkf.data.recording import Recording
from fwnkf.errors import DataError
from fwnkf.shapes import Bool, Float

Masking = Literal["random", "block"]
MASKINGS: tuple[Masking, ...] = ("random", "block")
SUBJECTS = {"train": ("05", "06"), "val": ("04",), "test": ("07", "09")}
"""Seven sessions, two and three. Sizes and habits of the test subjects are seen nowhere in training."""
HELD = 3
"""Frames a range is held for: 60 frames a second, 20 ranges."""
STEP = HELD / uipdb.RATE
BLOCK = round(1 / STEP)
"""Steps in a second."""
SHARE = 0.2
MASK_SEED = 20260601
CONTROL_DIM = 30
ACCELERATION_LIMIT = 30.0
"""m/s²: a stamp of the foot reads more, and says nothing more about the next 50 ms."""


@dataclass(frozen=True)
class Record:
    """One session at 20 Hz."""

    name: str
    y: Float[Tensor, "T 15"]
    u: Float[Tensor, "T 30"]

    def part(self, start: int, stop: int) -> Record:
        return replace(self, y=self.y[start:stop], u=self.u[start:stop])


def sessions(split: Literal["train", "val", "test"], folder: Path | None = None) -> list[Record]:
    """The sessions of a split in order of name; ``folder`` is ``$FWNKF_DATA/uipdb_arm_trunk`` unless given."""
    place = catalogue.folder_of("uipdb") if folder is None else folder
    found = {name: path for name, path in uipdb.find(place).items() if name[:2] in SUBJECTS[split]}
    missing = [subject for subject in SUBJECTS[split] if not any(name.startswith(subject) for name in found)]
    if missing:
        raise DataError(f"{place}: no session of subject(s) {', '.join(missing)}. {catalogue.info('uipdb').manual}")
    return [as_record(uipdb.read_session(path, mask_held=False)) for _, path in sorted(found.items())]


def as_record(session: Recording) -> Record:
    """Every third frame of the ranges, and the inertial sensors of the three frames up to each."""
    acceleration, ranges = session.observations[:, :6].unflatten(-1, (2, 3)), session.observations[::HELD, 6:]
    matrices = rotation.to_matrix(session.extras["orientation"])
    root = matrices[:, 1]
    # in the frame of the root the direction of the wrist does not depend on where the subject looks
    turned = (root.mT.unsqueeze(1) @ acceleration.unsqueeze(-1)).squeeze(-1)
    turned = turned.clamp(-ACCELERATION_LIMIT, ACCELERATION_LIMIT).flatten(1)
    lagged = torch.cat((turned[:1].expand(HELD - 1, -1), turned))
    recent = torch.cat([lagged[i : i + len(turned)] for i in range(HELD)], -1)
    u = torch.cat((recent, (root.mT @ matrices[:, 0]).flatten(1), root[:, 1]), -1)[::HELD]
    if not bool(u.isfinite().all() & ranges.isfinite().all()):
        raise DataError(f"{session.name}: a sample of the ranges or of the inertial sensors is not finite")
    return Record(session.name, ranges.float(), u.float())


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
