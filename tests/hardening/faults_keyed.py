"""Faults of the keyed consumer of the how-to guide, on a Redis server of its own."""

from __future__ import annotations

import atexit
import os
import random
import signal
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import torch

import fwnkf
from docs.howto import keyed_stream as guide
from fwnkf.systems import LearnedSystem

from .children import DONE, start, stop, wait

LONGEST = 0.4
"""Seconds that a consumer takes, about."""


@cache
def server() -> str:
    torch.set_num_threads(1)
    process, url = guide.start_server(tempfile.mkdtemp(prefix="fwnkf-redis-"))
    owner = os.getpid()
    atexit.register(lambda: process.kill() if os.getpid() == owner else None)
    return url


@cache
def model() -> fwnkf.Filter:
    torch.manual_seed(0)
    walk = LearnedSystem.of(H=torch.eye(2, 3), Q=0.01 * torch.eye(3), R=torch.eye(2))
    return fwnkf.FWNKF(walk, encoder=fwnkf.GRU(8), transition=fwnkf.LocallyLinear(), phi=fwnkf.Phi()).eval()


def drain(client: Any) -> dict[bytes, bytes]:
    consumer = guide.Consumer(client, model())
    while consumer.take():
        pass
    return client.hgetall(guide.STATES)


def consume() -> bool:
    drain(guide.connect(server()))
    return True


def begin(dice: random.Random) -> tuple[Any, dict[bytes, bytes]]:
    """A stream with messages that are not filtered yet, and the states that are wanted."""
    client = guide.connect(server())
    client.flushall()
    guide.produce(client, dice.randint(1, 8), dice.randint(100, 500), seed=dice.randrange(1000))
    wanted = drain(client)
    client.delete(guide.STATES, guide.POSITION)
    return client, wanted


def finish(client: Any, wanted: dict[bytes, bytes], letters: int = 0) -> None:
    assert drain(client) == wanted, "other states than the undisturbed consumer"
    found = client.xlen(guide.DEAD)
    assert found == letters, f"{found} dead letters, wanted {letters}"


def kill(dice: random.Random, folder: Path) -> str:
    """SIGKILL at any moment, up to four times."""
    client, wanted = begin(dice)
    killed = 0
    for _ in range(dice.randint(1, 4)):
        child = start(consume)
        time.sleep(dice.random() * LONGEST)
        stop(child)
        killed += wait(child) == -signal.SIGKILL
    finish(client, wanted)
    return f"killed {killed}, same bytes"


def two_owners(dice: random.Random, folder: Path) -> str:
    """Two or three consumers at once, of which one may be paused and wake up when the others have gone on."""
    client, wanted = begin(dice)
    children = [start(consume) for _ in range(dice.randint(2, 3))]
    if dice.random() < 0.5:
        time.sleep(dice.random() * LONGEST)
        stop(children[0], signal.SIGSTOP)
        assert wait(children.pop()) == DONE
        stop(children[0], signal.SIGCONT)
    assert {wait(child) for child in children} == {DONE}
    finish(client, wanted)
    return "same bytes"


def poison(dice: random.Random, folder: Path) -> str:
    """Malformed messages among the others."""
    client, wanted = begin(dice)
    messages = [fields for _, fields in client.xrange(guide.STREAM)]
    client.flushall()
    bad = 0
    for fields in messages:
        while dice.random() < 0.1:
            bad += 1
            mine = dict(fields)
            how = dice.choice(("no y", "no device", "length", "infinite", "name"))
            if how.startswith("no"):
                del mine[how.split()[1].encode()]
                mine[b"other"] = b"x"
            elif how == "length":
                mine[b"y"] = dice.randbytes(dice.choice((0, 1, 4, 7, 9, 5000)))
            elif how == "infinite":
                mine[b"y"] = b"\x00\x00\x80\x7f" + mine[b"y"][4:]
            else:
                mine[b"device"] = dice.randbytes(dice.choice((0, 300)))
            client.xadd(guide.STREAM, mine)
        client.xadd(guide.STREAM, fields)
    finish(client, wanted, bad)
    return "dead letters, same bytes"


def torn(dice: random.Random, folder: Path) -> str:
    """The state of a device is damaged between two batches: it is never used, and the others go on."""
    client, wanted = begin(dice)
    consumer = guide.Consumer(client, model())
    for _ in range(dice.randint(1, 3)):
        consumer.take()
    states = client.hgetall(guide.STATES)
    device = dice.choice(sorted(states))
    data = bytearray(states[device])
    how = dice.choice(("cut", "bit", "random", "other"))
    if how == "cut":
        del data[dice.randrange(len(data)) :]
    elif how == "bit":
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    elif how == "random":
        data = bytearray(dice.randbytes(len(data)))
    else:
        data = bytearray(states[dice.choice(sorted(states))])
    same = bytes(data) == states[device]
    client.hset(guide.STATES, device, bytes(data))
    later = client.xrange(guide.STREAM, min=b"(" + client.get(guide.POSITION))
    expected = 0 if same else sum(fields[b"device"] == device for _, fields in later)
    finish(client, wanted if same else {**wanted, device: bytes(data)}, expected)
    return "nothing changed" if same else "device named, others same bytes"


def full_memory(dice: random.Random, folder: Path) -> str:
    """The server takes no writes for a while."""
    from redis.exceptions import OutOfMemoryError

    client, wanted = begin(dice)
    consumer = guide.Consumer(client, model())
    for _ in range(dice.randint(0, 2)):
        consumer.take()
    before = client.get(guide.POSITION), client.hgetall(guide.STATES)
    client.config_set("maxmemory", 1)
    refused = 0
    for _ in range(dice.randint(1, 3)):
        try:
            consumer.take()
        except OutOfMemoryError:
            refused += 1
    assert (client.get(guide.POSITION), client.hgetall(guide.STATES)) == before, "half a transaction"
    client.config_set("maxmemory", 0)
    finish(client, wanted)
    return "error, then same bytes" if refused else "same bytes"


CASES = {
    f"keyed-{function.__name__.replace('_', '-')}": function
    for function in (kill, two_owners, poison, torn, full_memory)
}
