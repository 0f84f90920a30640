"""A filter for each device behind a message broker: states and positions commit together, so that nothing counts twice.

    python docs/howto/keyed_stream.py produce  --url redis://localhost:6379 --devices 1000 --messages 100000
    python docs/howto/keyed_stream.py consume  --url redis://localhost:6379 --filter models/mine
    python docs/howto/keyed_stream.py kill     --devices 20 --messages 2000 --kills 5

``consume`` reads a Redis stream from the position up to which it was filtered. For each batch of messages it loads the
states of their devices, takes the steps, and writes the new states and the new position in one transaction (``WATCH``,
``MULTI`` … ``EXEC``), which fails if the position is not the one it began from. A process that dies before ``EXEC`` has
changed nothing; one that dies after it has changed everything; of two that filter the same messages one commits.

A message that cannot be filtered goes to a dead-letter stream with the reason, in the same transaction, and the others
go on. States have a checksum; a device whose state is damaged gets no further step until somebody has looked at it.

``kill`` starts a server of its own, kills the consumer at random moments with -9, and compares all states with those of
a run that was left alone. docs/howto/keyed_stream.md says what changes for Kafka.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fwnkf
from fwnkf.core.tree import named_leaves
from fwnkf.errors import CheckpointError
from fwnkf.scale.states import StateBytes

STREAM, STATES, POSITION, DEAD = "samples", "states", "position", "dead-letters"
BATCH = 64
"""Messages of a transaction, and rows of every step: with one size the bits do not depend on what comes together."""
LONGEST_NAME, KEPT_BYTES, MOST_DEAD = 256, 1024, 100_000
"""Bytes of the name of a device and of a field in a dead letter, and dead letters that are kept, about."""


Fields = dict[bytes, bytes]
Sample = tuple[bytes, Fields]
"""The number of a message, and its fields."""
Letter = tuple[bytes, Fields, str]
"""A message that was not filtered, and why."""


def connect(url: str) -> Any:
    import redis

    return redis.Redis.from_url(url)


def produce(client: Any, devices: int, messages: int, channels: int = 2, seed: int = 0) -> None:
    """Random samples of random devices; a message is a device and the bytes of its sample."""
    generator = np.random.default_rng(seed)
    names = generator.integers(0, devices, messages)
    values = generator.standard_normal((messages, channels)).astype(np.float32)
    for first in range(0, messages, 1000):
        pipe = client.pipeline(transaction=False)
        for name, sample in zip(names[first : first + 1000], values[first : first + 1000], strict=True):
            pipe.xadd(STREAM, {"device": f"device-{name:05}", "y": sample.tobytes()})
        pipe.execute()


class Consumer:
    """Steps the filter of each device; all it knows is in the broker."""

    def __init__(self, client: Any, model: fwnkf.Filter) -> None:
        self.client, self.model = client, model.eval()
        self.codec, self.prepared = StateBytes(model), model.prepare()
        self.new = self.codec.pack(model.init(1))[0]
        torch.set_num_threads(1)

    def take(self) -> int:
        """Read, filter and commit one batch; returns the number of messages it found.

        Of several consumers that found the same messages one commits; the others have changed nothing.
        """
        from redis.exceptions import WatchError

        with self.client.pipeline(transaction=True) as pipe:
            pipe.watch(POSITION)  # from here on EXEC fails if another consumer commits
            found = pipe.xread({STREAM: pipe.get(POSITION) or b"0"}, count=BATCH)
            messages = found[0][1] if found else []
            if not messages:
                return 0
            samples, letters = self._sorted(messages)
            states = self._states(pipe, samples, letters)
            for round_ in _rounds(samples):
                self._step(states, round_, letters)
            pipe.multi()
            sealed = {device: self.codec.seal(row, device) for device, row in states.items()}
            if sealed:
                pipe.hset(STATES, mapping=sealed)
            for number, fields, reason in letters:
                kept = {b"field " + key[:KEPT_BYTES]: value[:KEPT_BYTES] for key, value in fields.items()}
                pipe.xadd(DEAD, {b"message": number, b"reason": reason, **kept}, maxlen=MOST_DEAD, approximate=True)
            pipe.set(POSITION, messages[-1][0])
            with suppress(WatchError):  # another consumer was faster; the next call goes on from its position
                pipe.execute()
        return len(messages)

    def _sorted(self, messages: list[tuple[bytes, Fields]]) -> tuple[list[Sample], list[Letter]]:
        """Samples that can be filtered, and the other messages with the reason."""
        samples: list[Sample] = []
        letters: list[Letter] = []
        channels = self.model.input_sizes.channels
        for number, fields in messages:
            device, data = fields.get(b"device", b""), fields.get(b"y")
            reason = ""
            if not device or len(device) > LONGEST_NAME:
                reason = f"the field device is missing, empty or longer than {LONGEST_NAME} bytes"
            elif data is None or len(data) != 4 * channels:
                size = "missing" if data is None else f"{len(data)} bytes long"
                reason = f"the field y is {size}; wanted {channels} float32 values"
            elif np.isinf(np.frombuffer(data, np.float32)).any():
                reason = "a value is infinite; send NaN for a missing one"
            if reason:
                letters.append((number, fields, reason))
            else:
                samples.append((number, fields))
        return samples, letters

    def _states(self, pipe: Any, samples: list[Sample], letters: list[Letter]) -> dict[bytes, np.ndarray]:
        """The states of all devices; samples of those with a damaged one are moved to the letters."""
        devices = list(dict.fromkeys(fields[b"device"] for _, fields in samples))
        states, damaged = {}, {}
        for device, data in zip(devices, pipe.hmget(STATES, devices) if devices else [], strict=True):
            try:
                states[device] = self.new if data is None else self.codec.unseal(data, device)
            except CheckpointError as error:
                damaged[device] = f"the state of this device cannot be used: {error}"
        for number, fields in samples:
            if fields[b"device"] in damaged:
                letters.append((number, fields, damaged[fields[b"device"]]))
        samples[:] = [sample for sample in samples if sample[1][b"device"] not in damaged]
        return states

    @torch.no_grad()
    def _step(self, states: dict[bytes, np.ndarray], samples: list[Sample], letters: list[Letter]) -> None:
        """One step of some devices, in a batch filled up to one size; a state must stay finite."""
        devices = [fields[b"device"] for _, fields in samples]
        fill = [0] * (BATCH - len(devices))
        rows = np.stack([states[devices[k]] for k in (*range(len(devices)), *fill)])
        values = [np.frombuffer(fields[b"y"], np.float32) for _, fields in samples]
        y = torch.from_numpy(np.stack([values[k] for k in (*range(len(devices)), *fill)]))
        mask = ~y.isnan()
        state, _ = self.model.step(
            self.codec.unpack(rows), torch.where(mask, y, 0.0), mask=mask, prepared=self.prepared
        )
        leaves = [leaf for _, leaf in named_leaves(state) if leaf.is_floating_point()]
        finite = torch.stack([leaf.reshape(len(leaf), -1).isfinite().all(1) for leaf in leaves]).all(0)
        for device, sample, row, good in zip(devices, samples, self.codec.pack(state), finite.tolist(), strict=False):
            if good:
                states[device] = row
            else:
                letters.append((*sample, "the state is not finite after this sample; it was left as before"))


def _rounds(samples: list[Sample]) -> list[list[Sample]]:
    """Samples of one device are steps after each other: the first of each device, then the second of each ..."""
    rounds: list[list[Sample]] = []
    seen: dict[bytes, int] = {}
    for sample in samples:
        place = seen[sample[1][b"device"]] = seen.get(sample[1][b"device"], -1) + 1
        if place == len(rounds):
            rounds.append([])
        rounds[place].append(sample)
    return rounds


def consume(url: str, folder: str, until: int | None = None) -> int:
    """Filter what comes; with ``until``, end when nothing has come for a while."""
    consumer = Consumer(connect(url), fwnkf.load(folder))
    idle = 0
    while until is None or idle < 3:
        idle = 0 if consumer.take() else idle + 1
        if idle:
            time.sleep(0.05)
    return 0


# ---- the test -------------------------------------------------------------------------------------------------------


def kill_test(devices: int, messages: int, kills: int, seed: int = 0) -> dict[str, Any]:
    """Kill the consumer at random moments; compare its states with those of a run that was left alone."""
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        system = fwnkf.systems.LearnedSystem.of(H=torch.eye(2, 3), Q=0.01 * torch.eye(3))
        model = fwnkf.FWNKF(system, encoder=fwnkf.GRU(8), transition=fwnkf.LocallyLinear(1))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.02 * torch.randn(parameter.shape))
        fwnkf.save(model.eval(), Path(folder) / "filter")
        server, url = start_server(folder)
        try:
            client = connect(url)
            produce(client, devices, messages, seed=seed)
            began = time.perf_counter()
            consumer = Consumer(client, model)
            while consumer.take():
                pass
            seconds = time.perf_counter() - began
            calm = client.hgetall(STATES)
            client.delete(STATES, POSITION)
            pause = 2 * BATCH * seconds / messages  # up to two batches
            killed = _storm(url, folder, client, messages, kills, random.Random(seed), pause)
            stormy = client.hgetall(STATES)
            last = client.xinfo_stream(STREAM)["last-generated-id"]
            return {
                "devices": devices, "messages": messages, "kills": killed, "same_states": calm == stormy,
                "all_read": client.get(POSITION) == last, "states": len(calm),
                "messages_per_second": messages / seconds,
            }  # fmt: skip
        finally:
            server.kill()
            server.wait()


def _storm(url: str, folder: str, client: Any, messages: int, kills: int, dice: random.Random, pause: float) -> int:
    """Consumers, each killed after a random number of further messages, and one that finishes."""
    killed = 0
    places = sorted(dice.sample(range(1, messages), kills))
    last = client.xinfo_stream(STREAM)["last-generated-id"]
    numbers = [entry[0] for entry in client.xrange(STREAM)]
    index = {number: place for place, number in enumerate(numbers)}
    while client.get(POSITION) != last:
        child = os.fork()  # a process of its own, without the seconds that importing torch takes
        if child == 0:
            os._exit(consume(url, f"{folder}/filter", until=0))
        target = places[killed] if killed < kills else None
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            if target is not None and index.get(client.get(POSITION), 0) >= target - BATCH:
                time.sleep(dice.random() * pause)  # anywhere in a batch
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                killed += 1
                break
            time.sleep(0.001)
    return killed


def start_server(folder: str) -> tuple[subprocess.Popen[bytes], str]:
    """A Redis server on a free port of this machine, with its files in a folder."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = shutil.which("redis-server")
    if server is None:
        raise SystemExit("redis-server is not installed")
    options = ["--bind", "127.0.0.1", "--port", str(port), "--dir", folder, "--save", "", "--appendonly", "no"]
    process = subprocess.Popen([server, *options], stdout=subprocess.DEVNULL)
    for _ in range(200):
        try:
            connect(f"redis://127.0.0.1:{port}").ping()
            break
        except Exception:
            time.sleep(0.05)
    return process, f"redis://127.0.0.1:{port}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("produce", "consume", "kill"))
    parser.add_argument("--url", default="redis://127.0.0.1:6379")
    parser.add_argument("--filter")
    parser.add_argument("--devices", type=int, default=20)
    parser.add_argument("--messages", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--until", type=int, help="end when nothing comes any more")
    options = parser.parse_args()
    if options.what == "produce":
        produce(connect(options.url), options.devices, options.messages)
        return 0
    if options.what == "consume":
        return consume(options.url, options.filter, options.until)
    result = kill_test(options.devices, options.messages, options.kills)
    print(result)
    return 0 if result["same_states"] and result["all_read"] else 1


if __name__ == "__main__":
    sys.exit(main())
