"""Binary formats: what scipy, torch and numpy write is read back, and a crafted file is refused within the limits."""

from __future__ import annotations

import collections
import os
import pickle
import struct
import sys
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse
import torch

from fwnkf.data.sets import _files
from fwnkf.data.sets._files import read_mat, read_npz, read_pt
from fwnkf.errors import ConfigError, DataError

from ..tolerances import assert_same_bits


@pytest.fixture
def memory():
    """The Python allocations of a test, numpy's included, must stay below 32 MB."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20


# -- MAT --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compressed", [True, False])
def test_mat_agrees_with_what_scipy_wrote(tmp_path, rng, compressed):
    numeric = {
        "numbers": rng.normal(size=(7, 3)),
        "single": rng.normal(size=(2, 5)).astype(np.float32),
        "integers": np.arange(-6, 6, dtype=np.int16).reshape(3, 4),
        "flags": np.array([[True, False, True]]),
        "cube": rng.normal(size=(2, 3, 4)),
        "small": np.array([[3]], dtype=np.uint8),
        "empty": np.zeros((0, 3)),
    }
    other = {
        "text": "µT, m/s²",
        "cells": np.array([[1, "two"]], dtype=object),
        "no_cells": np.empty((0, 0), dtype=object),
        "sparse": scipy.sparse.eye_array(3, format="csc"),
        "struct": {"inner": 3.0},
        "complex": np.array([[1 + 2j]]),
    }
    path = tmp_path / "x.mat"
    scipy.io.savemat(path, {**numeric, **other}, do_compression=compressed)
    arrays, _ = read_mat(path, (*numeric, *other, "absent"))
    assert arrays.keys() == numeric.keys()
    for name, value in numeric.items():
        np.testing.assert_array_equal(arrays[name], value)
        assert arrays[name].dtype.itemsize == value.dtype.itemsize


def mat(*elements: bytes) -> bytes:
    return b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM" + b"".join(elements)


def element(kind: int, content: bytes, claimed: int | None = None) -> bytes:
    size = len(content) if claimed is None else claimed
    return struct.pack("<II", kind, size) + content + bytes(-len(content) % 8)


def matrix(
    shape: tuple[int, ...], content: bytes, kind: int = 9, array_class: int = 6, claimed: int | None = None
) -> bytes:
    parts = element(6, struct.pack("<II", array_class, 0)) + element(5, struct.pack(f"<{len(shape)}i", *shape))
    return element(14, parts + element(1, b"x") + element(kind, content, claimed))


def nested_cells(depth: int) -> bytes:
    cell = b""
    for level in range(depth):
        parts = element(6, struct.pack("<II", 1, 0)) + element(5, struct.pack("<2i", 1, 1))
        cell = element(14, parts + element(1, b"x" if level == depth - 1 else b"") + (cell or element(14, b"")))
    return cell


def test_a_handmade_mat_is_read(tmp_path):
    (tmp_path / "x.mat").write_bytes(mat(matrix((2, 1), struct.pack("<2d", 1.5, -2.0))))
    assert read_mat(tmp_path / "x.mat", ("x",))[0]["x"].tolist() == [[1.5], [-2.0]]


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no header"),
        (b"\x89HDF".ljust(200), "no header"),
        (b"x" * 200, "no header"),
        (mat(b"\x0e\x00\x00"), "unpack_from"),
        (mat(element(14, b"12345678", 1 << 31)), "unpack_from"),
        (mat(element(14, b"")), "unpack_from"),
        (mat(matrix((2**31 - 1, 2**31 - 1), bytes(16))), "reshape|ValueError"),
        (mat(matrix((2, 1), bytes(16), claimed=1 << 31)), "is truncated"),
        (mat(matrix((1,) * 40, bytes(8))), "Unexpected amount|dimensions"),
        (mat(matrix((2, 1), bytes(16), kind=77)), "unknown number type"),  # scipy: a segmentation fault
        (mat(matrix((2, 1), bytes(16), kind=8)), "unknown number type"),
        (mat(element(15, b"nonsense")), "zlib.error|Error -3"),
        (mat(element(15, zlib.compress(matrix((2, 1), bytes(16)))[:-8])), "truncated"),
        (mat(struct.pack("<HH", 14, 9) + bytes(12)), "unpack_from|SDE"),
    ],
)
def test_a_damaged_mat_is_refused(tmp_path, data, message):
    (tmp_path / "x.mat").write_bytes(data)
    with pytest.raises(DataError, match=rf"x\.mat.*({message})"):
        read_mat(tmp_path / "x.mat", ("x",))


@pytest.mark.parametrize(
    "variable",
    [
        nested_cells(20_000),  # scipy reads them by recursion
        matrix((2, 1), bytes(16), array_class=0x806),
        element(9, bytes(64)),
    ],
    ids=["nested cells", "complex", "no matrix"],
)
def test_variables_that_scipy_cannot_read_safely_are_left_out(tmp_path, variable):
    (tmp_path / "x.mat").write_bytes(mat(variable))
    assert read_mat(tmp_path / "x.mat", ("x",))[0] == {}


def test_compressed_variables_are_limited(tmp_path, monkeypatch, memory):
    monkeypatch.setattr(_files, "MAT_INFLATED_LIMIT", 1 << 20)
    variable = zlib.compress(matrix((1 << 20, 8), bytes(8 << 23)), 9)
    (tmp_path / "x.mat").write_bytes(mat(element(15, variable)))
    tracemalloc.reset_peak()
    with pytest.raises(DataError, match="more than 1,048,576 bytes"):
        read_mat(tmp_path / "x.mat", ("x",))


def test_a_mat_beyond_the_limit_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(_files, "MAT_LIMIT", 100)
    (tmp_path / "x.mat").write_bytes(mat())
    with pytest.raises(DataError, match="larger than the limit of 100 bytes"):
        read_mat(tmp_path / "x.mat", ("x",))


def test_without_scipy_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    (tmp_path / "x.mat").write_bytes(mat())
    with pytest.raises(ConfigError, match=r"pip install 'fwnkf\[data\]'"):
        read_mat(tmp_path / "x.mat", ("x",))


# -- .pt --------------------------------------------------------------------------------------------------------------


def test_pt_agrees_with_what_torch_saved(tmp_path, generator):
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
    torch.save(content, tmp_path / "x.pt")
    loaded = read_pt(tmp_path / "x.pt")
    assert loaded.keys() == content.keys()
    assert loaded["nested"] == content["nested"]
    for name in ("view", 7, "scalar"):
        assert_same_bits(loaded[name], content[name])
    for name in ("shared", "kinds"):
        for one, other in zip(loaded[name], content[name], strict=True):
            assert_same_bits(one, other)


def write_pt(path: Path, program: bytes, parts: dict[str, bytes] | None = None, **options: int) -> Path:
    with zipfile.ZipFile(path, "w", **options) as archive:
        archive.writestr("archive/data.pkl", program)
        archive.writestr("archive/version", b"3\n")
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
    values = np.arange(4, dtype="<f4")
    loaded = read_pt(write_pt(tmp_path / "x.pt", tensor((2, 2), (1, 2)), {"0": values.tobytes()}))
    assert loaded.tolist() == [[0.0, 2.0], [1.0, 3.0]]


class Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple:
        return (exec, (f"open({str(self.marker)!r}, 'w').close()",))


def test_the_bomb_works(tmp_path):
    """Otherwise the test below would prove nothing."""
    pickle.loads(pickle.dumps(Bomb(tmp_path / "executed")))
    assert (tmp_path / "executed").exists()


@pytest.mark.parametrize("protocol", range(2, 6))
def test_nothing_is_executed(tmp_path, protocol):
    marker, path = tmp_path / "executed", tmp_path / "x.pt"
    torch.save({"acc": [Bomb(marker)]}, path, pickle_protocol=protocol)
    with pytest.raises(DataError, match=r"x\.pt .*(exec|None); refused, nothing was executed"):
        read_pt(path)
    path.write_bytes(pickle.dumps(Bomb(marker), protocol))
    with pytest.raises(DataError, match=r"x\.pt .*BadZipFile"):
        read_pt(path)
    np.savez(tmp_path / "x.npz", acc=np.array([Bomb(marker)], dtype=object))
    with pytest.raises(DataError, match=r"x\.npz .*array 'acc' of object"):
        read_npz(tmp_path / "x.npz", ("acc",))
    assert not marker.exists()


GOOD = {"0": bytes(16)}
CALL = b"\x80\x02c%b\n%b\n%b\x85R."
"""One call with one argument."""


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize(
    ("program", "parts", "message"),
    [
        (b"", {}, "ValueError|EOFError"),
        (b"\x80\x02}(", {}, "ValueError|EOFError"),
        (CALL % (b"os", b"system", b"X\x02\x00\x00\x00ls"), {}, "uses os system"),
        (b"\x80\x02X\x02\x00\x00\x00osX\x06\x00\x00\x00system\x93.", {}, "uses None"),
        (CALL % (b"torch", b"load", b"X\x01\x00\x00\x00x"), {}, "uses torch load"),
        (CALL % (b"builtins", b"bytearray", number(10**10)), {}, "uses builtins bytearray"),
        (CALL % (b"torch", b"Tensor", number(10**10)), {}, "uses torch Tensor"),
        (CALL % (b"torch.storage", b"UntypedStorage", number(10**10)), {}, "uses torch.storage UntypedStorage"),
        (b"\x80\x02(ios\nsystem\n.", {}, "Unsupported operand"),
        (b"\x80\x02ccollections\nOrderedDict\n)\x81}b\x82\x01.", {}, "Unsupported operand"),
        (b"\x80\x02)K\x01a.", {}, "append to lists"),
        (b"\x80\x02h\x09.", {}, "KeyError"),
        (b"\x80\x02K\x01Q.", {}, "AssertionError|saved_id"),
        (b"\x80\x02]]R.", {}, "reduce"),
        (tensor((2, 2), (2, 1)), {}, "RuntimeError"),
        (tensor((2, 3), (3, 1)), GOOD, "RuntimeError"),
        (tensor((2, 2), (2, 1), offset=1), GOOD, "RuntimeError"),
        (tensor((2, 2), (2, 1), offset=-1), GOOD, "RuntimeError"),
        (tensor((2, 2), (-1, 1)), GOOD, "RuntimeError"),
        (tensor((10**12,), (1,), count=10**12), GOOD, "RuntimeError"),
        (tensor((2,), (1, 1)), GOOD, "RuntimeError"),
        (tensor((2, 2), (2, 1), count=-4), GOOD, "RuntimeError"),
    ],
)
def test_a_crafted_program_is_refused(tmp_path, program, parts, message):
    with pytest.raises(DataError, match=rf"x\.pt .*({message})"):
        read_pt(write_pt(tmp_path / "x.pt", program, parts))


def test_damaged_archives_are_refused(tmp_path):
    path = tmp_path / "x.pt"
    for data in (b"", b"PK\x03\x04 nonsense", pickle.dumps({})):
        path.write_bytes(data)
        with pytest.raises(DataError, match=r"x\.pt is not a file of tensors"):
            read_pt(path)
    with pytest.raises(DataError, match="does not exist"):
        read_pt(tmp_path / "nowhere.pt")
    write_pt(path, tensor((4,), (1,)), GOOD, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(DataError, match="compressed or overlapping"):
        read_pt(path)
    torch.save({"x": torch.arange(1000.0)}, path)
    data = bytearray(path.read_bytes())
    data[data.index(struct.pack("<3f", 7.0, 8.0, 9.0))] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"checksum of .*data/0 is wrong"):
        read_pt(path)


# -- .npz -------------------------------------------------------------------------------------------------------------


def npy(header: str, data: bytes) -> bytes:
    text = header.encode().ljust(118)
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "magic string"),
        (npy("{'descr': '<f8', 'fortran_order': False, 'shape': (3,)}", bytes(16)), r"shape \(3,\) in 144 bytes"),
        (npy("{'descr': '<f8', 'fortran_order': False, 'shape': (10**9,)}", bytes(16)), "malformed"),
        (npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000,)}", bytes(16)), "in 144 bytes"),
        (npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-2, -1)}", bytes(16)), "dimension"),
        (npy("{'descr': '|O', 'fortran_order': False, 'shape': (2,)}", bytes(16)), "of object"),
        (npy("{'descr': '<c16', 'fortran_order': False, 'shape': (1,)}", bytes(16)), "of complex128"),
        (npy("__import__('os').system('ls')", b""), "malformed"),
    ],
)
def test_a_crafted_array_is_refused(tmp_path, data, message):
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", data)
    with pytest.raises(DataError, match=rf"x\.npz .*{message}"):
        read_npz(path, ("x",))
    with pytest.raises(DataError, match=r"no item named 'y\.npy'"):
        read_npz(path, ("y",))


def test_decompressed_arrays_are_limited(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros(1 << 16))
    monkeypatch.setattr(_files, "ARRAY_LIMIT", 1 << 18)
    with pytest.raises(DataError, match="in 524,416 bytes"):
        read_npz(tmp_path / "x.npz", ("x",))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_agree_with_what_numpy_saved(tmp_path, rng, save):
    arrays = {"x": rng.normal(size=(3, 4)), "y": np.asfortranarray(rng.integers(0, 9, (3, 2))), "z": np.float32(2.5)}
    save(tmp_path / "x.npz", **arrays, other=np.array("text"))
    loaded = read_npz(tmp_path / "x.npz", tuple(arrays))
    for name, value in arrays.items():
        np.testing.assert_array_equal(loaded[name], value)
        assert loaded[name].dtype == value.dtype


def test_a_stream_is_not_a_file(tmp_path):
    os.mkfifo(tmp_path / "x.npz")
    with pytest.raises(DataError, match="not a file"):
        read_npz(tmp_path / "x.npz", ("x",))
