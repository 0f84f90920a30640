"""The consumer of the how-to guide: kill -9 at any moment, malformed messages, damaged states, a second consumer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import fwnkf
from fwnkf.systems import LearnedSystem

from ..conformance.cases import shake

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "docs" / "howto" / "keyed_stream.py"

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(shutil.which("redis-server") is None, reason="needs redis-server"),
]


@pytest.fixture(scope="module")
def guide():
    """The module of the guide."""
    pytest.importorskip("redis")
    from docs.howto import keyed_stream

    return keyed_stream


@pytest.fixture(scope="module")
def model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        system = LearnedSystem.of(H=torch.eye(2, 3), Q=0.01 * torch.eye(3), R=torch.eye(2), dt=0.01)
        parts = {"level": fwnkf.Level(seconds=1.0), "encoder": fwnkf.GRU(8), "transition": fwnkf.LocallyLinear()}
        return shake(fwnkf.FWNKF(system, noise=fwnkf.Lines(hz=12.0, std=0.5), **parts), 0.02).eval()


@pytest.fixture(scope="module")
def url(guide, tmp_path_factory):
    server, address = guide.start_server(str(tmp_path_factory.mktemp("server")))
    yield address
    server.kill()
    server.wait()


@pytest.fixture
def client(guide, url):
    connection = guide.connect(url)
    connection.flushall()
    return connection


def drain(guide, client, model):
    consumer = guide.Consumer(client, model)
    while consumer.take():
        pass
    return client.hgetall(guide.STATES)


def letters(guide, client):
    return [fields for _, fields in client.xrange(guide.DEAD)]


def sample(*values: float) -> bytes:
    return np.array(values, np.float32).tobytes()


POISON = {
    "no y": ({"device": "device-00001"}, "y is missing"),
    "no device": ({"y": sample(1, 2)}, "device is missing"),
    "empty device": ({"device": "", "y": sample(1, 2)}, "device is missing"),
    "long device": ({"device": "d" * 5000, "y": sample(1, 2)}, "longer than 256"),
    "short": ({"device": "device-00001", "y": sample(1)}, "4 bytes long; wanted 2"),
    "odd": ({"device": "device-00001", "y": b"1234567"}, "7 bytes long"),
    "empty": ({"device": "device-00001", "y": b""}, "0 bytes long"),
    "large": ({"device": "device-00001", "y": bytes(1_000_000)}, "1000000 bytes long"),
    "infinite": ({"device": "device-00001", "y": sample(np.inf, 0)}, "infinite"),
}


@pytest.mark.parametrize("name", list(POISON))
def test_a_malformed_message_becomes_a_dead_letter_and_changes_nothing_else(guide, client, model, name):
    fields, reason = POISON[name]
    guide.produce(client, 5, 100)
    guide.produce(client, 5, 100, seed=1)
    calm = drain(guide, client, model)
    client.flushall()
    guide.produce(client, 5, 100)
    number = client.xadd(guide.STREAM, fields)
    guide.produce(client, 5, 100, seed=1)
    assert drain(guide, client, model) == calm
    (letter,) = letters(guide, client)
    assert reason in letter[b"reason"].decode()
    assert letter[b"message"] == number
    assert sum(map(len, letter.values())) < 4096
    assert client.get(guide.POSITION) == client.xinfo_stream(guide.STREAM)["last-generated-id"]


def test_nan_is_a_missing_value(guide, client, model):
    """Both values missing is a prediction, one is a step with the other."""
    client.xadd(guide.STREAM, {"device": "a", "y": sample(np.nan, np.nan)})
    client.xadd(guide.STREAM, {"device": "a", "y": sample(np.nan, 2.0)})
    states = drain(guide, client, model)
    codec = guide.StateBytes(model)
    state = model.init(guide.BATCH)
    with torch.no_grad():
        for values in ((np.nan, np.nan), (np.nan, 2.0)):
            y = torch.tensor(values).expand(guide.BATCH, 2)
            state, _ = model.step(state, y.nan_to_num(0.0), mask=~y.isnan())
    assert codec.unseal(states[b"a"], b"a").tobytes() == codec.pack(state)[0].tobytes()
    assert letters(guide, client) == []


@pytest.mark.parametrize("damage", ["short", "empty", "random", "zeros", "bit", "other device"])
def test_a_damaged_state_is_never_used(guide, client, model, damage):
    guide.produce(client, 3, 90)
    good = drain(guide, client, model)
    mine = good[b"device-00001"]
    bit = bytearray(mine)
    bit[5] ^= 1
    bad = {
        "short": b"abc", "empty": b"", "random": os.urandom(len(mine)), "zeros": bytes(len(mine)), "bit": bytes(bit),
        "other device": good[b"device-00002"],
    }[damage]  # fmt: skip
    client.hset(guide.STATES, "device-00001", bad)
    guide.produce(client, 3, 90, seed=1)
    after = drain(guide, client, model)
    assert after[b"device-00001"] == bad  # left as it is, for somebody to look at
    found = letters(guide, client)
    assert {letter[b"field device"] for letter in found} == {b"device-00001"}
    assert all(b"cannot be used" in letter[b"reason"] for letter in found)
    client.flushall()
    guide.produce(client, 3, 90)
    guide.produce(client, 3, 90, seed=1)
    calm = drain(guide, client, model)
    assert {name: after[name] for name in after if name != b"device-00001"} == {
        name: calm[name] for name in calm if name != b"device-00001"
    }


def test_a_state_that_would_not_be_finite_is_not_committed(guide, client, model):
    guide.produce(client, 2, 40)
    before = drain(guide, client, model)
    broken = guide.Consumer(client, model)
    step = broken.model.step

    class Overflow:
        """The filter, with a step that overflows for large values."""

        def __getattr__(self, name):
            return getattr(model, name)

        def step(self, state, y, **rest):
            new, out = step(state, y, **rest)
            wrong = (y > 1e30).any(1)
            return new._replace(mean=torch.where(wrong[:, None], torch.nan, new.mean)), out

    broken.model = Overflow()
    client.xadd(guide.STREAM, {"device": "device-00001", "y": sample(3e38, 0)})
    while broken.take():
        pass
    assert client.hgetall(guide.STATES) == before
    assert [letter[b"reason"] for letter in letters(guide, client)] == [
        b"the state is not finite after this sample; it was left as before"
    ]


def test_a_consumer_that_was_overtaken_commits_nothing(guide, client, url, model):
    """One has read and computed; another reads the same, commits, and goes on; then the first commits."""
    guide.produce(client, 5, 300)
    calm = drain(guide, client, model)
    client.delete(guide.STATES, guide.POSITION)
    slow, fast = guide.Consumer(guide.connect(url), model), guide.Consumer(client, model)
    original = slow._step

    def overtaken(*arguments):
        original(*arguments)
        slow._step = original
        fast.take(), fast.take()
        slow.seen = client.get(guide.POSITION), client.hgetall(guide.STATES)

    slow._step = overtaken
    slow.take()
    assert (client.get(guide.POSITION), client.hgetall(guide.STATES)) == slow.seen
    while slow.take() + fast.take():
        pass
    assert client.hgetall(guide.STATES) == calm
    assert letters(guide, client) == []


def kill(devices: int, messages: int, kills: int) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("redis")
    words = [sys.executable, str(SCRIPT), "kill", "--devices", str(devices), "--messages", str(messages)]
    return subprocess.run([*words, "--kills", str(kills)], capture_output=True, text=True, check=False, cwd=ROOT)


def test_three_kills_leave_the_states_of_a_run_without_kills():
    result = kill(devices=10, messages=600, kills=3)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "'kills': 3, 'same_states': True" in result.stdout


@pytest.mark.slow
def test_fifty_kills_over_100_000_messages():
    result = kill(devices=1000, messages=100_000, kills=50)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "'kills': 50, 'same_states': True" in result.stdout
