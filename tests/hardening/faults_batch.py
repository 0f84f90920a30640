"""Faults of batch runs: every case begins from the output of a calm day and ends with the next one."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import tempfile
import time
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path

import numpy as np
import torch

import fwnkf
from fwnkf.core.system import build_system
from fwnkf.scale import lock
from fwnkf.scale.batch import batch
from fwnkf.scale.store import Store

from ..scale.fleets import CHANNELS, STEP, digest, rows, walks, write
from .children import DONE, NAMED, SYSTEM, WITH_FAULTS, start, stop, wait

DAYS = 3
FILES = ("ab", "cd")
LONGEST = 0.6
"""Seconds that a run takes, about: moments for kills are drawn up to it."""


@cache
def fleet() -> Path:
    """A folder with a filter and the samples of some days."""
    folder = Path(tempfile.mkdtemp(prefix="fwnkf-fleet-"))
    torch.set_num_threads(1)
    fwnkf.save(fwnkf.EKF(build_system("constant_velocity", {"dims": 2, "dt": STEP})), folder / "filter")
    columns = walks(4, 60)
    day = ((columns["time"] - 1000.0) / (20 * STEP) + 1e-6).astype(int)
    for number in range(DAYS):
        for k, name in enumerate(FILES):
            mine = np.isin(columns["device"], [f"device-{2 * k + j:05}" for j in (0, 1)])
            write(folder / "days" / f"{number}" / f"{name}.parquet", rows(columns, mine & (day == number)))
    return folder


def deliver(folder: Path, *days: int) -> None:
    for number in days:
        shutil.copytree(fleet() / "days" / f"{number}", folder / "in" / f"{number}", dirs_exist_ok=True)


def filtered(folder: Path, output: str = "out", resume: bool = True) -> bool:
    """One run, in a process of its own, whose lock is broken sooner than others; whether nothing was set aside."""
    for name, value in (("BEAT", 0.05), ("LEASE", 0.4), ("PAUSE", 0.05)):
        setattr(lock, name, value)
    result = batch(
        str(folder / "in"), str(folder / output), fleet() / "filter", channels=CHANNELS, batch_size=16, resume=resume
    )
    return not result.faults and not any("cannot go on" in note for note in result.notes)


@cache
def calm(*days: int) -> Path:
    """The output after runs day by day."""
    folder = Path(tempfile.mkdtemp(prefix="fwnkf-calm-"))
    for number in days:
        deliver(folder, number)
        assert wait(start(lambda: filtered(folder, resume=False))) == DONE
    return folder / "out"


def begin(dice: random.Random, folder: Path) -> Path:
    """The output of some days, the samples of one more; returns the output that is wanted."""
    day = dice.randrange(DAYS)
    if day:
        shutil.copytree(calm(*range(day)), folder / "out")
    deliver(folder, *range(day + 1))
    return calm(*range(day + 1))


def finish(folder: Path, wanted: Path) -> None:
    """Go on undisturbed, and compare all files."""
    code = wait(start(lambda: filtered(folder)))
    assert code == DONE, f"the run after the fault ended with {code}"
    found, right = digest(folder / "out"), digest(wanted)
    assert found == right, (
        f"other files: {sorted(name for name in found.keys() | right if found.get(name) != right.get(name))}"
    )


class Disturbed:
    """Calls of the system that a run makes for its files; one of them goes wrong.

    A write is a write of bytes to a file of its own (``fsync``), a rename, and a write of the folder (``fsync``).
    """

    def __init__(self, place: int, action) -> None:
        self.place, self.action, self.calls = place, action, count(1)
        self.fsync, self.replace, self.delete = os.fsync, Path.replace, Store.delete
        os.fsync = self._fsync
        Path.replace = lambda path, target: self._at(None) or self.replace(path, target)
        Store.delete = lambda store, name: self._at(None) or self.delete(store, name)

    def _fsync(self, number: int) -> None:
        self._at(number)
        self.fsync(number)

    def _at(self, number: int | None) -> None:
        if next(self.calls) >= self.place:
            self.action(number)


def _tear(dice: random.Random, number: int | None) -> None:
    """Cut the file that is being written."""
    if number is not None:
        with suppress(OSError):  # a folder
            os.ftruncate(number, int(dice.random() * os.fstat(number).st_size))


def kill(dice: random.Random, folder: Path) -> str:
    """SIGKILL at a call of the system, with half a file written, or at any moment; up to three times."""
    wanted, killed = begin(dice, folder), 0
    for _ in range(dice.randint(1, 3)):
        if dice.random() < 0.5:

            def disturbed(place: int = dice.randint(1, 50)) -> bool:
                def die(number: int | None) -> None:
                    _tear(dice, number)
                    os.kill(os.getpid(), signal.SIGKILL)

                Disturbed(place, die)
                return filtered(folder)

            child = start(disturbed)
        else:
            child = start(lambda: filtered(folder))
            time.sleep(dice.random() * LONGEST)
            stop(child)
        killed += wait(child) == -signal.SIGKILL
    finish(folder, wanted)
    return f"killed {killed}, same bytes" if killed else "ended before the kill, same bytes"


def full_disk(dice: random.Random, folder: Path) -> str:
    """No space left from some write on, for some writes or for all."""
    wanted = begin(dice, folder)
    place, length = dice.randint(1, 40), dice.choice((1, 3, 10**9))

    def disturbed() -> bool:
        left = iter(range(length))

        def fail(number: int | None) -> None:
            if number is not None and next(left, None) is not None:
                _tear(dice, number)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        Disturbed(place, fail)
        return filtered(folder)

    code = wait(start(disturbed))
    assert code in (DONE, NAMED, SYSTEM), code
    finish(folder, wanted)
    return "ended before it was full, same bytes" if code == DONE else "error, then same bytes"


def torn(dice: random.Random, folder: Path) -> str:
    """A file of the output loses bytes or bits, after a finished run or after a kill; in the end it is brought back."""
    wanted = begin(dice, folder)
    output = folder / "out"
    if dice.random() < 0.5:
        child = start(lambda: filtered(folder))
        time.sleep(dice.random() * LONGEST)
        stop(child)
        wait(child)
    names = ["_manifest.json", "_finished", "_state/", "_fleet/", "_parts/", "_lock/", "_attempts/", "_filter/"]
    files = [name for name in digest(output) if name.startswith(tuple(names))] if output.exists() else []
    if not files:
        finish(folder, wanted)
        return "nothing to damage, same bytes"
    name = dice.choice(files)
    before = (output / name).read_bytes()
    data = bytearray(before)
    how = dice.choice(("cut", "bit", "zeros", "gone"))
    if how == "bit" and data:
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    elif how == "zeros":
        data[dice.randrange(len(data) + 1) :] = bytes(len(data))
    else:
        del data[dice.randrange(len(data) + 1) :]
    (output / name).write_bytes(data)
    if how == "gone":
        (output / name).unlink()
    code = wait(start(lambda: filtered(folder)))
    assert code in (DONE, NAMED, WITH_FAULTS), code
    right = digest(wanted)
    estimates = {key: value for key, value in digest(output).items() if not key.startswith("_")}
    assert estimates.items() <= right.items(), f"{name} ({how}): other estimates, and the run ended with {code}"
    if code != DONE or (name in right and not name.startswith("_state/")):
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        (output / name).write_bytes(before)
    finish(folder, wanted)
    return {DONE: "not needed, same bytes", NAMED: "named error", WITH_FAULTS: "devices named"}[code]


def clock_jump(dice: random.Random, folder: Path) -> str:
    """The clock of the system jumps at every look, after a run that was killed or beside its lock."""
    wanted = begin(dice, folder)
    child = start(lambda: filtered(folder))
    time.sleep(dice.random() * LONGEST)
    stop(child)
    wait(child)

    def disturbed() -> bool:
        actual = time.time
        time.time = lambda: max(0.0, actual() + dice.choice((-1, 1)) * 10 ** dice.uniform(0, 9))
        return filtered(folder)

    code = wait(start(disturbed))
    assert code == DONE, code
    finish(folder, wanted)
    return "same bytes"


def duplicate(dice: random.Random, folder: Path) -> str:
    """A file comes again under another name, with the next day or after it."""
    day = dice.randrange(DAYS - 1)
    shutil.copytree(calm(*range(day + 1)), folder / "out")
    deliver(folder, *range(day + 1))
    name = dice.choice(FILES)
    again = dice.randrange(day + 1)
    shutil.copy(
        fleet() / "days" / f"{again}" / f"{name}.parquet", folder / "in" / f"{dice.choice(('x', '0'))}-again.parquet"
    )
    if dice.random() < 0.5:
        code = wait(start(lambda: filtered(folder)))
        assert code == WITH_FAULTS, f"samples that came twice were not named: {code}"
    deliver(folder, day + 1)
    code = wait(start(lambda: filtered(folder)))
    assert code == WITH_FAULTS, f"samples that came twice were not named: {code}"
    found, right = digest(folder / "out"), digest(calm(*range(day + 2)))
    other = [key for key in right if key != "_manifest.json" and found.get(key) != right[key]]
    assert not other, f"other files: {other}"
    return "named, same bytes"


def reorder(dice: random.Random, folder: Path) -> str:
    """Days come in any order, one by one or together; those that are too late are named."""
    days = list(range(DAYS))
    dice.shuffle(days)
    taken: list[int] = []
    late = 0
    while days:
        group = [days.pop() for _ in range(dice.randint(1, len(days)))]
        deliver(folder, *group)
        fresh = [day for day in sorted(group) if not taken or day > taken[-1]]
        late += len(group) - len(fresh)
        taken += fresh
        code = wait(start(lambda: filtered(folder)))
        assert code == (WITH_FAULTS if late else DONE), f"{late} days came late, and the run ended with {code}"
    found, right = digest(folder / "out"), digest(calm(*taken))
    other = [key for key in right if key != "_manifest.json" and found.get(key) != right[key]]
    assert not other, f"other files: {other}"
    return "late days named, same bytes" if late else "same bytes"


def two_owners(dice: random.Random, folder: Path) -> str:
    """Two or three runs at the same moment, or one after the other that is still going."""
    wanted = begin(dice, folder)
    children = []
    for _ in range(dice.randint(2, 3)):
        children.append(start(lambda: filtered(folder)))
        time.sleep(dice.choice((0, 0, dice.random() * LONGEST)))
    codes = [wait(child) for child in children]
    assert set(codes) <= {DONE, NAMED}, codes
    finish(folder, wanted)
    return f"{codes.count(NAMED)} refused, same bytes"


def paused_owner(dice: random.Random, folder: Path) -> str:
    """A run is paused; another machine takes over and finishes; the first wakes up."""
    wanted = begin(dice, folder)

    def elsewhere() -> bool:
        lock._machine = lambda: "another"
        return filtered(folder)

    first = start(lambda: filtered(folder))
    time.sleep(dice.random() * LONGEST)
    stop(first, signal.SIGSTOP)
    second = start(elsewhere)
    if dice.random() < 0.3:
        time.sleep(dice.random() * 2 * LONGEST)  # the first may wake up before the other has finished
        stop(first, signal.SIGCONT)
    codes = [wait(second)]
    stop(first, signal.SIGCONT)
    codes.append(wait(first))
    assert set(codes) <= {DONE, NAMED, SYSTEM}, codes
    finish(folder, wanted)
    return f"{2 - codes.count(DONE)} refused, same bytes"


CASES = {
    f"batch-{function.__name__.replace('_', '-')}": function
    for function in (kill, full_disk, torn, clock_jump, duplicate, reorder, two_owners, paused_owner)
}
