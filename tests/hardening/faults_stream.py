"""Faults of a stream: kills, damaged snapshots, duplicates, shuffled samples, clock jumps and a second owner."""

from __future__ import annotations

import math
import random
from functools import cache
from pathlib import Path

import torch

import fwnkf
from fwnkf.core.system import build_system
from fwnkf.errors import CheckpointError, FwnkfError
from fwnkf.runtime.health import Reason

STEP = 0.1
HISTORY = 1.0

Sample = tuple[int, list[float]]
"""Its number, and the values of both channels; NaN is missing."""


@cache
def model() -> fwnkf.Filter:
    torch.set_num_threads(1)
    return fwnkf.EKF(build_system("constant_velocity", {"dims": 2, "dt": STEP}))


@cache
def fixed() -> fwnkf.Filter:
    """A filter that counts in steps."""
    eye = torch.eye(2)
    return fwnkf.KF(F=eye, H=eye, Q=0.1 * eye, R=eye)


def stream(chosen: fwnkf.Filter | None = None) -> fwnkf.Stream:
    return fwnkf.Stream(chosen or model(), history=HISTORY, step=STEP)


def samples(dice: random.Random) -> list[Sample]:
    count = dice.randint(12, 40)
    return [(k, [math.nan if dice.random() < 0.1 else dice.gauss(0, 1) for _ in range(2)]) for k in range(count)]


def feed(target: fwnkf.Stream, items: list[Sample]) -> fwnkf.Stream:
    for number, values in items:
        target.step(values, t=STEP * number)
    return target


def bits(target: fwnkf.Stream) -> tuple[bytes, ...]:
    """The newest estimate, asked for by a step that measures nothing."""
    estimate = target.step(None, t=target.time + STEP)
    return estimate.mean.tobytes(), estimate.cov.tobytes()


def same(found: fwnkf.Stream, items: list[Sample]) -> None:
    assert bits(found) == bits(feed(stream(found.filter), items)), "other bits than the undisturbed stream"


def kill(dice: random.Random, folder: Path) -> str:
    """The process ends after any sample; another one goes on from the last snapshot, with the samples since then."""
    items = samples(dice)
    kept, since = stream().snapshot(), 0
    running = stream()
    for place, item in enumerate(items, 1):
        feed(running, [item])
        if dice.random() < 0.3:
            kept, since = running.snapshot(), place
        if dice.random() < 0.2:
            running = feed(fwnkf.Stream.restore(model(), kept), items[since:place])
    same(running, items)
    return "same bits"


def torn(dice: random.Random, folder: Path) -> str:
    """A snapshot that was not written completely, or lost bits, is refused."""
    items = samples(dice)
    running = feed(stream(), items)
    data = bytearray(running.snapshot())
    how = dice.choice(("cut", "bits", "zeros", "block"))
    place = dice.randrange(len(data))
    if how == "cut":
        del data[place:]
    elif how == "bits":
        for _ in range(dice.choice((1, 2, 10))):
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    elif how == "zeros":
        data[place:] = bytes(len(data) - place)
    else:
        data[place : place + 64] = dice.randbytes(len(data[place : place + 64]))
    if bytes(data) == running.snapshot():
        return "nothing changed"
    try:
        fwnkf.Stream.restore(model(), bytes(data))
    except CheckpointError:
        return "refused"
    raise AssertionError(f"a damaged snapshot ({how}) was restored")


def duplicate(dice: random.Random, folder: Path) -> str:
    """Samples come again, at once or later."""
    items = samples(dice)
    running = stream()
    for place, item in enumerate(items):
        feed(running, [item])
        while dice.random() < 0.3:
            feed(running, [items[max(0, place - dice.randint(0, 15))]])
    same(running, items)
    return "same bits"


def reorder(dice: random.Random, folder: Path) -> str:
    """Samples come late by less than the history."""
    items = samples(dice)
    width = HISTORY / STEP / 2
    shuffled = sorted(items, key=lambda item: item[0] + dice.uniform(0, width))
    running = feed(stream(), shuffled)
    late = running.late
    same(running, items)
    assert not late
    return "same bits"


def clock_jump(dice: random.Random, folder: Path) -> str:
    """Stamps far in the future or the past, or not finite: refused or named, and nothing else changes."""
    items = samples(dice)
    running = stream(fixed())
    for item in items:
        feed(running, [item])
        if running.time > 2 * HISTORY and dice.random() < 0.2:
            t = dice.choice(
                (running.time + 10 ** dice.uniform(6, 300), -(10 ** dice.uniform(1, 300)), math.nan, math.inf)
            )
            late = running.late
            try:
                estimate = running.step(dice.choice(([1.0, 1.0], None)), t=t)
                assert running.late > late or Reason.OFF_CLOCK in estimate.reasons, f"a sample of t = {t} was taken"
            except FwnkfError:
                pass
    same(running, items)
    return "same bits"


def two_owners(dice: random.Random, folder: Path) -> str:
    """Two processes go on from one snapshot, one of them through further snapshots."""
    items = samples(dice)
    place = dice.randrange(1, len(items))
    data = feed(stream(), items[:place]).snapshot()
    first, second = (fwnkf.Stream.restore(model(), data) for _ in range(2))
    for item in items[place:]:
        feed(first, [item])
        second = fwnkf.Stream.restore(model(), feed(second, [item]).snapshot())
    assert bits(first) == bits(second), "the two differ"
    same(fwnkf.Stream.restore(model(), feed(fwnkf.Stream.restore(model(), data), items[place:]).snapshot()), items)
    return "same bits"


CASES = {
    f"stream-{function.__name__.replace('_', '-')}": function
    for function in (kill, torn, duplicate, reorder, clock_jump, two_owners)
}
