"""A filter for each device behind a message broker: states and positions commit together, so that nothing counts twice.

    python docs/howto/keyed_stream.py produce  --url redis://localhost:6379 --devices 1000 --messages 100000
    python docs/howto/keyed_stream.py consume  --url redis://localhost:6379 --filter models/mine
    python docs/howto/keyed_stream.py kill     --devices 20 --messages 2000 --kills 5

``consume`` reads a Redis stream as a member of a consumer group. For each batch of messages it loads the states of
their devices, takes the steps, and writes the new states, the position in the stream and the acknowledgements in one
transaction (``MULTI`` … ``EXEC``). A process that dies before ``EXEC`` has changed nothing; one that dies after it has
changed everything. Started again, it goes on behind the position that was committed with the states.

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
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fwnkf
from fwnkf.scale.states import StateBytes

STREAM, GROUP, STATES, POSITION = "samples", "filters", "states", "position"
BATCH = 64
"""Messages of a transaction, and rows of every step: with one size the bits do not depend on what comes together."""


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
        torch.set_num_threads(1)
        try:
            client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
        except Exception as error:
            if "BUSYGROUP" not in str(error):
                raise
        position = client.get(POSITION) or b"0"
        # the group counts a message as delivered when it was read; what counts here is what was committed
        client.xgroup_setid(STREAM, GROUP, id=position)

    def take(self) -> int:
        """Read, filter and commit one batch; returns the number of messages."""
        found = self.client.xreadgroup(GROUP, "one", {STREAM: ">"}, count=BATCH)
        messages = found[0][1] if found else []
        # one device's messages in one batch are steps after each other: they go in rounds
        rounds: list[dict[bytes, bytes]] = []
        seen: dict[bytes, int] = {}
        for _, fields in messages:
            device = fields[b"device"]
            seen[device] = seen.get(device, 0) + 1
            if len(rounds) < seen[device]:
                rounds.append({})
            rounds[seen[device] - 1][device] = fields[b"y"]
        if not messages:
            return 0
        devices = list(seen)
        stored = dict(zip(devices, self.client.hmget(STATES, devices), strict=True))
        new = self.codec.pack(self.model.init(1))[0]
        states = {device: new if data is None else np.frombuffer(data, np.uint8) for device, data in stored.items()}
        for samples in rounds:
            self._step(states, samples)
        pipe = self.client.pipeline(transaction=True)  # MULTI … EXEC: all of this or nothing
        pipe.hset(STATES, mapping={device: states[device].tobytes() for device in devices})
        pipe.set(POSITION, messages[-1][0])
        pipe.xack(STREAM, GROUP, *(number for number, _ in messages))
        pipe.execute()
        return len(messages)

    @torch.no_grad()
    def _step(self, states: dict[bytes, np.ndarray], samples: dict[bytes, bytes]) -> None:
        """One step of some devices, in a batch filled up to one size."""
        devices = list(samples)
        fill = [devices[0]] * (BATCH - len(devices))
        rows = np.stack([states[device] for device in (*devices, *fill)])
        y = np.stack([np.frombuffer(samples[device], np.float32) for device in (*devices, *fill)])
        state, _ = self.model.step(self.codec.unpack(rows), torch.from_numpy(y.copy()), prepared=self.prepared)
        for device, row in zip(devices, self.codec.pack(state), strict=False):
            states[device] = row


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
        model = fwnkf.build("fwnkf", H=torch.eye(2, 3), Q=0.01 * torch.eye(3), R=torch.eye(2), hidden=8)
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
            client.xgroup_destroy(STREAM, GROUP)
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
