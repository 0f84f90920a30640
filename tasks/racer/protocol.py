"""Twenty flights of one racing quadrotor (Betaflight blackbox): splits, windows with a gap, and what the task asks.

The log has the gyro after the filters of the craft (rad/s) and the motor commands (0 to 1) at 967 frames per second.
A frame that the log skips is a frame that was not measured. These logs skip none: the loop counter of the craft grows
by the same number from frame to frame, and the steps between stamps, 1.0 to 1.5 ms, are jitter.

Task ``gap``: the gyro is missing for a time, the motor commands go on; what is the rate at the end of the gap? The
truth is the gyro that was withheld. Flights 1, 5, 9, 13, 17 in the order of their numbers test, flight 0 validates,
the others train; the first and last two seconds in the air are left out. A filter takes steps of four frames: the
gyro is low-pass filtered on board at 100 Hz, so that every fourth frame has all of it. Gaps are the nearest number of
whole steps. Windows begin with a context in which everything is measured, so that windows of all flights run as one
batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from fwnkf.data.log_recording import recording
from fwnkf.data.sets import catalogue
from fwnkf.errors import DataError
from fwnkf.logs import open_log
from fwnkf.shapes import Bool, Float

FLIGHTS = 20
TEST, VALIDATION = (1, 5, 9, 13, 17), (0,)
TRAIN = tuple(i for i in range(FLIGHTS) if i not in (*TEST, *VALIDATION))
STEP = 1.034e-3
"""Mean seconds from frame to frame."""
BLOCK = 4
"""Frames in a step of a filter."""
LEFT_OUT = 2.0
"""Seconds after take-off and before landing that are left out."""
IN_THE_AIR = 0.05
"""Mean motor command above which the craft is in the air."""
COLLISION = 16.0
"""Rates (rad/s) beyond what this craft flies: it hit something."""
AXES = ("x", "y", "z")
MOTORS = 4
HOVER = 0.4
"""A motor command near the mean of all flights."""
GAPS_MS = (20, 50, 100, 200)
AHEAD_MS = (5, 10, 20)
CONTEXT = 256
"""Frames before a gap that a filter sees."""
STRIDE = 50
"""Frames from one window to the next."""


@dataclass(frozen=True, eq=False)
class Flight:
    """The part of one flight that is used: gyro (rad/s), accelerometer (m/s²), motor commands (0 to 1).

    Gyro and accelerometer are NaN in frames that the log skips; the motor commands are those of the frame before.
    """

    name: str
    rate: Float[Tensor, "T 3"]
    force: Float[Tensor, "T 3"]
    motors: Float[Tensor, "T 4"]

    def __len__(self) -> int:
        return len(self.rate)


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows of several flights: ``CONTEXT`` frames, and what follows. ``flight`` numbers the flight of each."""

    y: Float[Tensor, "N T 3"]
    force: Float[Tensor, "N T 3"]
    motors: Float[Tensor, "N T 4"]
    flight: Tensor
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.y)

    @property
    def quiet(self) -> Bool[Tensor, " N"]:
        """Windows without a collision."""
        return self.y.abs().amax((-1, -2)) <= COLLISION

    def rows(self, rows: Tensor) -> Windows:
        """Some of the windows."""
        return Windows(self.y[rows], self.force[rows], self.motors[rows], self.flight[rows], self.names)

    def until(self, ahead: int) -> Windows:
        """The same windows with so many frames behind the context."""
        part = slice(CONTEXT + ahead)
        return Windows(self.y[:, part], self.force[:, part], self.motors[:, part], self.flight, self.names)


def frames(milliseconds: float) -> int:
    """A time as frames, in whole steps of a filter.

    >>> [frames(time) for time in GAPS_MS]
    [20, 48, 96, 192]
    """
    return BLOCK * round(milliseconds * 1e-3 / (BLOCK * STEP))


def find(folder: Path | None = None) -> list[Path]:
    """The logs in the order of their numbers, in ``$FWNKF_DATA/logs/blackbox_racer`` unless a folder is given."""
    place = catalogue.data_folder() / "logs" / "blackbox_racer" if folder is None else folder
    return sorted(place.glob("*.BFL"))


@lru_cache(maxsize=1)
def _paths() -> tuple[Path, ...]:
    paths = find()
    if len(paths) != FLIGHTS:
        raise DataError(
            f"{len(paths)} logs of the racing quadrotor in {catalogue.data_folder() / 'logs' / 'blackbox_racer'}, "
            f"wanted {FLIGHTS}: LOG00014.BFL to LOG00038.BFL of https://github.com/hedlesschkn/BetaflightLogs"
        )
    return tuple(paths)


@lru_cache(maxsize=FLIGHTS)
def flight(number: int) -> Flight:
    """One flight by its place in the order of numbers; a log is read once."""
    return read(_paths()[number])


def flights(numbers: Sequence[int]) -> list[Flight]:
    return [flight(number) for number in numbers]


def read(path: Path) -> Flight:
    """The time in the air of a log, without its first and last two seconds."""
    log = recording(open_log(path), "imu", extras=("motor",))
    values, motors = on_grid(log.time, log.observations.float(), log.extras["motor"].float())
    flying = (motors.mean(-1) > IN_THE_AIR).nonzero().flatten()
    left_out = frames(1e3 * LEFT_OUT)
    first, last = (int(flying[0]) + left_out, int(flying[-1]) - left_out) if len(flying) else (0, 0)
    if last - first < CONTEXT:
        raise DataError(f"{path} has no flight of {2 * LEFT_OUT:g} s and more")
    part = slice(first, last)
    return Flight(path.stem, values[part, :3], values[part, 3:], motors[part])


def on_grid(
    time: Float[Tensor, " T"], values: Float[Tensor, "T k"], motors: Float[Tensor, "T 4"]
) -> tuple[Float[Tensor, "G k"], Float[Tensor, "G 4"]]:
    """Measurements and commands of every frame there was: NaN and the last command where the log skips frames.

    >>> time = torch.tensor([0.0, 1.0, 2.1, 4.0, 5.0])
    >>> on_grid(time, torch.ones(5, 1), torch.arange(20.0).view(5, 4))[0].flatten()
    tensor([1., 1., 1., nan, 1., 1.])
    """
    usual = time.diff().median()
    at = torch.cat((torch.zeros(1), (time.diff() / usual).round().clamp_min(1).cumsum(0))).long()
    grid = values.new_full((int(at[-1]) + 1, values.shape[-1]), torch.nan)
    grid[at] = values
    last = torch.searchsorted(at, torch.arange(len(grid)), right=True) - 1
    return grid, motors[last]


def windows(
    group: Sequence[Flight], ahead: int = 192, *, stride: int = STRIDE, context: int = CONTEXT, limit: int | None = None
) -> Windows:
    """Windows of ``context + ahead`` frames; ``limit`` takes the first of each flight only.

    Windows with skipped frames are left out, because regressions cannot read them.
    """
    parts = []
    for number, one in enumerate(group):
        starts = torch.arange(0, len(one) - context - ahead + 1, stride)[:limit]
        at = starts.unsqueeze(-1) + torch.arange(context + ahead)
        whole = one.rate[:, 0].isfinite()[at].all(-1)
        starts, at = starts[whole], at[whole]
        parts.append((one.rate[at], one.force[at], one.motors[at], torch.full((len(starts),), number)))
    y, force, motors, numbers = (torch.cat(values) for values in zip(*parts, strict=True))
    return Windows(y, force, motors, numbers, tuple(one.name for one in group))


def control(motors: Float[Tensor, "*B 4"], known: Tensor | bool = True) -> Float[Tensor, "*B 5"]:
    """The control of a filter: motor commands less 0.4, and 1 where they are known, 0 where the last are repeated."""
    flag = torch.as_tensor(known, dtype=motors.dtype).expand(motors.shape[:-1])
    return torch.cat((motors - HOVER, flag.unsqueeze(-1)), -1)


def held(motors: Float[Tensor, "N T 4"], context: int = CONTEXT) -> Float[Tensor, "N T 5"]:
    """The control where commands are known up to the end of the context only."""
    last = motors[:, context - 1 : context].expand(-1, motors.shape[1] - context, -1)
    known = (torch.arange(motors.shape[1]) < context).expand(motors.shape[:-1])
    return control(torch.cat((motors[:, :context], last), 1), known)
