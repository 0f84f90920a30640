"""Binary formats read here without the libraries that write them: both agree, and no file can make ours misbehave."""

from __future__ import annotations

import collections
import io
import pickle
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch

from fwnkf.data._mat5 import read_mat
from fwnkf.data._pickle_free import read_npz, read_pt
from fwnkf.errors import DataError

from ..tolerances import assert_same_bits

HERE = Path("test.mat")


# -- MAT --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compressed", [True, False])
def test_mat_agrees_with_scipy(rng, compressed):
    content = {
        "numbers": rng.normal(size=(7, 3)),
        "single": rng.normal(size=(2, 5)).astype(np.float32),
        "whole": np.arange(-6, 6, dtype=np.int16).reshape(3, 4),
        "flags": np.array([[True, False, True]]),
        "cube": rng.normal(size=(2, 3, 4)),
        "small": np.array([[3]], dtype=np.uint8),
        "empty": np.zeros((0, 3)),
        "text": "wörter: µT, m/s²",
        "cells": np.array([[1, "two"]], dtype=object),
        "struct": {"inner": 3.0},
        "complex": np.array([[1 + 2j]]),
    }
    file = io.BytesIO()
    scipy.io.savemat(file, content, do_compression=compressed)
    oracle = scipy.io.loadmat(io.BytesIO(file.getvalue()))
    found = read_mat(file.getvalue(), HERE)
    assert sorted(found) == ["cube", "empty", "flags", "numbers", "single", "small", "text", "whole"]
    for name, value in found.items():
        if isinstance(value, str):
            assert value == content[name]
        else:
            np.testing.assert_array_equal(value, oracle[name])
            assert value.dtype == oracle[name].dtype


def mat(*elements: bytes) -> bytes:
    return b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM" + b"".join(elements)


def element(kind: int, content: bytes, claimed: int | None = None) -> bytes:
    size = len(content) if claimed is None else claimed
    return struct.pack("<II", kind, size) + content + bytes(-len(content) % 8)


def matrix(shape: tuple[int, ...], content: bytes, kind: int = 9, name: bytes = b"x") -> bytes:
    parts = element(6, struct.pack("<II", 6, 0)) + element(5, struct.pack(f"<{len(shape)}i", *shape))
    return element(14, parts + element(1, name) + element(kind, content))


def bomb(size: int) -> bytes:
    packer = zlib.compressobj(9)
    return b"".join([packer.compress(bytes(1 << 20)) for _ in range(size >> 20)] + [packer.flush()])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "too few"),
        (b"\x89HDF".ljust(200), "7.3"),
        (b"x" * 200, "no MAT file"),
        (mat(b"\x0e\x00\x00"), "ends within a tag"),
        (mat(element(14, b"12345678", 1 << 31)), "claims 2,147,483,648 bytes"),
        (mat(element(9, bytes(8))), "type 9 where a variable"),
        (mat(element(14, b"")), "ends within a tag"),
        (mat(element(14, element(6, b""))), "no flags"),
        (mat(matrix((2**31 - 1, 2**31 - 1), bytes(16))), "claims shape"),
        (mat(matrix((-1, -2), bytes(16))), "claims shape"),
        (mat(matrix((2, 1), bytes(16), kind=77)), "of type 77"),
        (mat(matrix((1,) * 9, bytes(8))), "no proper shape"),
        (mat(matrix((2, 1), bytes(16)), matrix((2, 1), bytes(16))), "'x' twice"),
        (mat(*[matrix((0, 0), b"", name=str(i).encode()) for i in range(300)]), "more than 256"),
        (mat(element(15, b"nonsense")), "damaged"),
        (mat(element(15, zlib.compress(matrix((2, 1), bytes(16)))[:-8])), "cut short"),
        (mat(struct.pack("<HH", 14, 9) + bytes(12)), "small element of 9"),
    ],
)
def test_a_damaged_mat_is_refused(data, message):
    with pytest.raises(DataError, match=message):
        read_mat(data, HERE)


def test_a_compression_bomb_is_stopped(monkeypatch):
    monkeypatch.setattr("fwnkf.data._mat5.UNPACKED_LIMIT", 1 << 22)
    packed = bomb(1 << 23)
    with pytest.raises(DataError, match="unpacks to more than"):
        read_mat(mat(element(15, packed)), HERE)


# -- .pt and .npz -----------------------------------------------------------------------------------------------------


def test_pt_agrees_with_torch(tmp_path, generator):
    base = torch.randn(6, 8, generator=generator)
    content = {
        "view": base.T[1:5, ::2],
        "shared": [base, base[2]],
        "kinds": [base.to(dtype) for dtype in (torch.float64, torch.float16, torch.int64, torch.uint8, torch.bool)],
        "nested": {"list": [1, -2, 2.5, 10**12, True, None, "text"], "tuple": (1, (2, 3, 4, 5), ())},
        "ordered": collections.OrderedDict(),
        7: torch.zeros(0, 3),
        "scalar": torch.tensor(3.5),
    }
    path = tmp_path / "x.pt"
    torch.save(content, path)
    oracle = torch.load(path, weights_only=True)
    for protocol in (2, 3, 4, 5):
        torch.save(content, path, pickle_protocol=protocol)
        found = read_pt(path)
        assert found.keys() == oracle.keys()
        assert found["nested"] == oracle["nested"]
        for name in ("view", 7, "scalar"):
            assert_same_bits(found[name], oracle[name])
        for name in ("shared", "kinds"):
            for one, other in zip(found[name], oracle[name], strict=True):
                assert_same_bits(one, other)


def write_pt(path: Path, program: bytes, parts: dict[str, bytes] | None = None, **options: int) -> Path:
    with zipfile.ZipFile(path, "w", **options) as archive:
        archive.writestr("archive/data.pkl", program)
        for name, data in (parts or {}).items():
            archive.writestr(f"archive/data/{name}", data)
    return path


def tensor(shape: tuple, stride: tuple, offset: int = 0, count: int = 4, kind: str = "FloatStorage") -> bytes:
    """A program that builds one tensor."""
    program = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storage"
    program += f"ctorch\n{kind}\n".encode() + b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpu" + number(count) + b"tQ"
    program += number(offset)
    for sizes in (shape, stride):
        program += b"(" + b"".join(number(size) for size in sizes) + b"t"
    return program + b"\x89ccollections\nOrderedDict\n)RtR."


def number(value: int) -> bytes:
    data = value.to_bytes(9, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def test_a_handmade_program_works(tmp_path):
    numbers = np.arange(4, dtype="<f4")
    found = read_pt(write_pt(tmp_path / "x.pt", tensor((2, 2), (1, 2)), {"0": numbers.tobytes()}))
    assert found.tolist() == [[0.0, 2.0], [1.0, 3.0]]


class Bomb:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple:
        return (exec, (f"open({str(self.marker)!r}, 'w').close()",))


def test_nothing_is_ever_executed(tmp_path):
    marker = tmp_path / "executed"
    for protocol in range(2, 6):
        program = pickle.dumps({"acc": Bomb(marker)}, protocol)
        with pytest.raises(DataError, match=r"asks for .*builtin.*exec.*refused.*Nothing was executed"):
            read_pt(write_pt(tmp_path / "x.pt", program))
    torch.save(Bomb(marker), tmp_path / "y.pt")
    with pytest.raises(DataError, match="refused"):
        read_pt(tmp_path / "y.pt")
    assert not marker.exists()


GOOD = {"0": bytes(16)}


@pytest.mark.parametrize(
    ("program", "parts", "message"),
    [
        (b"", {}, "damaged|no end"),
        (b"\x80\x02", {}, "damaged|no end"),
        (b"\x80\x02}(", {}, "damaged|no end"),
        (b"\x80\x02}}.", {}, "ends in the middle"),
        (b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R.", {}, "asks for os.system"),
        (b"\x80\x02X\x02\x00\x00\x00osX\x06\x00\x00\x00system\x93.", {}, "asks for os.system"),
        (b"\x80\x02ctorch\nload\n.", {}, "asks for torch.load"),
        (b"\x80\x02(ios\nsystem\n.", {}, "instruction INST"),
        (b"\x80\x02}}b.", {}, "instruction BUILD"),
        (b"\x80\x02ccollections\nOrderedDict\n)\x81.", {}, "instruction NEWOBJ"),
        (b"\x80\x02\x82\x01.", {}, "instruction EXT1"),
        (b"\x80\x02)a.", {}, "damaged"),
        (b"\x80\x02]}}s.", {}, "sets an item"),
        (b"\x80\x02}]]s.", {}, "sets an item"),
        (b"\x80\x02)K\x01a.", {}, "appends to tuple"),
        (b"\x80\x02h\x09.", {}, "damaged"),
        (b"\x80\x02K\x01Q.", {}, "in a way unknown"),
        (b"\x80\x02]]R.", {}, "calls something unknown"),
        (b"\x80\x02\x86.", {}, "too few"),
        (b"\x80\x02t.", {}, "damaged"),
        (tensor((2, 2), (2, 1)), {}, "is missing"),
        (tensor((2, 2), (2, 1)), {"0": bytes(15)}, "not the 16"),
        (tensor((2, 3), (3, 1)), GOOD, "more numbers"),
        (tensor((2, 2), (2, 1), offset=1), GOOD, "more numbers"),
        (tensor((2, 2), (2, 1), offset=-1), GOOD, "makes no sense"),
        (tensor((2, 2), (-1, 1)), GOOD, "makes no sense"),
        (tensor((10**9,), (0,)), GOOD, "more numbers"),
        (tensor((2,), (1, 1)), GOOD, "makes no sense"),
        (tensor((2, 2), (2, 1), count=-4), GOOD, "in a way unknown"),
        (tensor((2, 2), (2, 1), count=10**15), GOOD, "in a way unknown"),
        (tensor((2, 2), (2, 1), kind="UntypedStorage"), GOOD, "asks for torch.UntypedStorage"),
    ],
)
def test_a_strange_program_is_refused(tmp_path, program, parts, message):
    with pytest.raises(DataError, match=message):
        read_pt(write_pt(tmp_path / "x.pt", program, parts))


def test_strange_archives_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "x.pt"
    for data, message in ((b"", "no zip"), (b"PK\x03\x04 nonsense", "no zip"), (pickle.dumps({}), "no zip")):
        path.write_bytes(data)
        with pytest.raises(DataError, match=message):
            read_pt(path)
    with pytest.raises(DataError, match="does not exist"):
        read_pt(tmp_path / "nowhere.pt")
    write_pt(path, tensor((4,), (1,)), {"0": bytes(16)}, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(DataError, match="compressed"):
        read_pt(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", b"")
        archive.writestr("b/data.pkl", b"")
    with pytest.raises(DataError, match="2 programs"):
        read_pt(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", b"\x80\x02}.")
        archive.writestr("a/byteorder", b"big")
    with pytest.raises(DataError, match="little-endian"):
        read_pt(path)
    monkeypatch.setattr("fwnkf.data._pickle_free.STEP_LIMIT", 1000)
    with pytest.raises(DataError, match="more than 1,000 steps"):
        read_pt(write_pt(path, b"\x80\x02" + b"N" * 2000 + b"."))


def test_a_list_that_contains_itself_does_no_harm(tmp_path):
    found = read_pt(write_pt(tmp_path / "x.pt", b"\x80\x02]q\x00h\x00a."))
    assert found[0] is found


def npy(header: str, data: bytes) -> bytes:
    text = header.encode().ljust(118)
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no readable header"),
        (npy("{'descr': '<f8', 'fortran_order': False, 'shape': (3,)}", bytes(16)), "does not fit its 16 bytes"),
        (npy("{'descr': '<f8', 'fortran_order': False, 'shape': (10**9,)}", bytes(16)), "no readable header"),
        (npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,)}", bytes(16)), "does not fit"),
        (npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-2, -1)}", bytes(16)), "does not fit"),
        (npy("{'descr': '|O', 'fortran_order': False, 'shape': (2,)}", bytes(16)), "no plain number"),
        (npy("__import__('os').system('ls')", b""), "no readable header"),
    ],
)
def test_a_strange_array_is_refused(tmp_path, data, message):
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", data)
    with pytest.raises(DataError, match=message):
        read_npz(path, ("x",))
    with pytest.raises(DataError, match=r"part y\.npy: missing"):
        read_npz(path, ("y",))


def test_arrays_come_back(tmp_path, rng):
    x, y = rng.normal(size=(3, 4)), np.asfortranarray(rng.integers(0, 9, (3, 2)))
    np.savez_compressed(tmp_path / "x.npz", x=x, y=y)
    found = read_npz(tmp_path / "x.npz", ("x", "y"))
    np.testing.assert_array_equal(found["x"], x)
    np.testing.assert_array_equal(found["y"], y)
