"""Saved states and snapshots: every changed bit is a named error; those of 0.2 have no checksum and are read."""

from __future__ import annotations

import json
import random
from functools import cache

import pytest
import torch
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes

import fwnkf
from fwnkf.checkpoint import metadata_of
from fwnkf.core.tree import named_leaves
from fwnkf.errors import CheckpointError
from fwnkf.scale.states import StateBytes

from .conformance.cases import CASES
from .tolerances import assert_same_bits


@cache
def model() -> fwnkf.Filter:
    return CASES["kf"].build(torch.float32)


def stream_bytes() -> bytes:
    stream = fwnkf.Stream(model(), step=0.1, history=0.5)
    for k in range(12):
        stream.step([0.1 * k, 1.0], t=0.1 * k)
    return stream.snapshot()


def state_bytes() -> bytes:
    kf = model()
    return fwnkf.dump_state(kf, kf.run(torch.ones(2, 5, 2)).state)


READERS = {
    "state": (state_bytes, lambda data: fwnkf.load_state(model(), data)),
    "snapshot": (stream_bytes, lambda data: fwnkf.Stream.restore(model(), data)),
}


@pytest.mark.parametrize("kind", list(READERS))
def test_any_single_bit_is_noticed(kind):
    write, read = READERS[kind]
    data = write()
    read(data)
    bits = random.Random(0).sample(range(8 * len(data)), 1000)
    for bit in bits:
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CheckpointError):
            read(bytes(changed))


@pytest.mark.parametrize("kind", list(READERS))
def test_torn_and_longer_bytes_are_noticed(kind):
    write, read = READERS[kind]
    data = write()
    for length in (0, 1, 7, 8, 9, len(data) // 2, len(data) - 1):
        with pytest.raises(CheckpointError):
            read(data[:length])
        with pytest.raises(CheckpointError):
            read(data[:length] + bytes(len(data) - length))
    with pytest.raises(CheckpointError):
        read(data + b"\0")


def unsealed(data: bytes, kind: str, number: str) -> bytes:
    """The bytes as version 0.2 wrote them."""
    metadata = {key: value for key, value in metadata_of(data).items() if key != "sha256"}
    return tensors_to_bytes(tensors_from_bytes(data), metadata={**metadata, kind: number})


def test_states_and_snapshots_of_0_2_are_read():
    old = unsealed(state_bytes(), "fwnkf_state", "2")
    for (name, mine), (_, other) in zip(
        fwnkf.load_state(model(), old)._asdict().items(),
        fwnkf.load_state(model(), state_bytes())._asdict().items(),
        strict=True,
    ):
        assert_same_bits(mine, other), name
    data = stream_bytes()
    old = fwnkf.Stream.restore(model(), unsealed(data, "fwnkf_stream", "1"))
    new = fwnkf.Stream.restore(model(), data)
    assert (old.step([1.0, 1.0], t=1.2).mean == new.step([1.0, 1.0], t=1.2).mean).all()


def test_the_new_format_without_its_checksum_is_refused():
    with pytest.raises(CheckpointError, match="'3' without a checksum"):
        fwnkf.load_state(model(), unsealed(state_bytes(), "fwnkf_state", "3"))
    with pytest.raises(CheckpointError, match="'2' without a checksum"):
        fwnkf.Stream.restore(model(), unsealed(stream_bytes(), "fwnkf_stream", "2"))


def test_they_stay_files_that_safetensors_reads():
    data = state_bytes()
    assert set(tensors_from_bytes(data)) == set(model().init(1)._fields)
    assert len(metadata_of(data)["sha256"]) == 64
    assert json.loads(metadata_of(stream_bytes())["facts"])["history"] == 0.5


def test_rows_of_states_are_sealed_with_their_device():
    kf = model()
    codec = StateBytes(kf)
    row = codec.pack(kf.init(1))[0]
    data = codec.seal(row, b"a")
    assert (codec.unseal(data, b"a") == row).all()
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CheckpointError, match="damaged"):
            codec.unseal(bytes(changed), b"a")
    for other in (b"", data[:-1], data + b"\0", bytes(len(data)), random.Random(0).randbytes(len(data))):
        with pytest.raises(CheckpointError, match="damaged"):
            codec.unseal(other, b"a")
    with pytest.raises(CheckpointError, match="not that of"):
        codec.unseal(data, b"b")
    same_size = StateBytes(CASES["kf"].build(torch.float32).double())
    with pytest.raises(CheckpointError):
        same_size.unseal(data, b"a")


@pytest.mark.parametrize("name", ["kf", "level-noise", "level-each", "level-all", "hypotheses", "everything"])
@pytest.mark.parametrize("count", [1, 3])
def test_rows_of_states_of_every_shape_come_back(name: str, count: int):
    """Numbers, vectors and matrices for each item; of a single item torch keeps strides of any size."""
    model = CASES[name].build(torch.float32)
    codec, state = StateBytes(model), model.init(count)
    again = codec.unpack(codec.pack(state))
    for (leaf, mine), (_, theirs) in zip(named_leaves(state), named_leaves(again), strict=True):
        assert torch.equal(mine, theirs), leaf
