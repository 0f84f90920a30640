"""Tensors from a PyTorch ``.pt`` file and arrays from an ``.npz`` file, without running anything they contain.

A ``.pt`` file is a zip archive with ``data.pkl``, a program for the pickle machine, and the raw numbers in ``data/0``,
``data/1``, …. The program is parsed (``pickletools.genops`` only parses) and followed by a machine that knows the few
instructions which build lists, dicts, texts, numbers and tensors. A name in the program is a name here, never an
import; what is not on the list is an error. Every size is checked against the bytes that are there.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from pickletools import genops
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import DataError
from ._files import brief

FILE_LIMIT = 1 << 32
PROGRAM_LIMIT = 1 << 24
STEP_LIMIT = 2_000_000
MEMBER_LIMIT = 100_000
ARRAY_LIMIT = 1 << 30
_STORAGES = {
    "DoubleStorage": torch.float64, "FloatStorage": torch.float32, "HalfStorage": torch.float16,
    "LongStorage": torch.int64, "IntStorage": torch.int32, "ShortStorage": torch.int16, "CharStorage": torch.int8,
    "ByteStorage": torch.uint8, "BoolStorage": torch.bool,
}  # fmt: skip
_ALLOWED = {("torch._utils", "_rebuild_tensor_v2"), ("collections", "OrderedDict")} | {
    ("torch", name) for name in _STORAGES
}


class _Mark:
    """Where a group of values begins on the stack."""


@dataclass(frozen=True)
class _Name:
    """A name the program spoke of; it stands for nothing but itself."""

    module: str
    name: str


@dataclass(frozen=True)
class _Storage:
    """Raw numbers in the archive: ``count`` of one type under a key."""

    dtype: torch.dtype
    key: str
    count: int


def _open(path: Path) -> zipfile.ZipFile:
    try:
        if not path.is_file():
            raise DataError(f"{path} does not exist, or is no file")
        if path.stat().st_size > FILE_LIMIT:
            raise DataError(f"{path} is larger than {FILE_LIMIT:,} bytes; that is no file of this kind")
        archive = zipfile.ZipFile(path)
    except DataError:
        raise
    except Exception as error:  # a damaged archive makes zipfile raise almost anything
        raise DataError(f"{path} is no zip archive, or a damaged one: {brief(error)}") from error
    if len(archive.infolist()) > MEMBER_LIMIT:
        archive.close()
        raise DataError(f"{path} holds more than {MEMBER_LIMIT:,} parts; that is no file of this kind")
    return archive


def _member(archive: zipfile.ZipFile, name: str, limit: int, path: Path) -> bytes:
    try:
        with archive.open(name) as file:
            data = file.read(limit + 1)  # not what the archive claims: what is there; checks the CRC at the end
    except Exception as error:
        raise DataError(f"{path}, part {name}: missing or damaged ({brief(error)}); get the file again") from error
    if len(data) > limit:
        raise DataError(f"{path}, part {name}: larger than {limit:,} bytes; that is no file of this kind")
    return data


def read_npz(path: Path, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Named arrays of plain numbers from an ``.npz`` file."""
    with _open(path) as archive:
        return {name: _array(_member(archive, f"{name}.npy", ARRAY_LIMIT, path), name, path) for name in names}


def _array(data: bytes, name: str, path: Path) -> NDArray[Any]:
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
    except Exception as error:  # the header is a text that numpy parses; a damaged one raises almost anything
        raise DataError(f"{path}, array {name}: no readable header ({brief(error)})") from error
    rest = len(data) - file.tell()
    if dtype.hasobject or dtype.kind not in "fiub":
        raise DataError(f"{path}, array {name}: {dtype} is no plain number; refused")
    if any(size < 0 for size in shape) or math.prod(shape) * dtype.itemsize != rest:
        raise DataError(
            f"{path}, array {name}: shape {shape} of {dtype} does not fit its {rest:,} bytes; it is damaged"
        )
    flat = np.frombuffer(data, dtype, math.prod(shape), file.tell())
    return flat.reshape(shape, order="F" if fortran else "C")


def read_pt(path: Path) -> Any:
    """What a ``.pt`` file describes: dicts, lists, tuples, texts, numbers and tensors, and nothing else."""
    with _open(path) as archive:
        programs = [name for name in archive.namelist() if name.count("/") == 1 and name.endswith("/data.pkl")]
        if len(programs) != 1:
            raise DataError(f"{path}: {len(programs)} programs 'data.pkl', wanted one; is this a .pt file of PyTorch?")
        root = programs[0].removesuffix("data.pkl")
        order = f"{root}byteorder"
        if order in archive.namelist() and _member(archive, order, 16, path) != b"little":
            raise DataError(f"{path}: not written in little-endian order; save it again on an ordinary machine")
        return _Machine(archive, root, path).run(_member(archive, programs[0], PROGRAM_LIMIT, path))


class _Machine:
    """Follows the program of one file."""

    def __init__(self, archive: zipfile.ZipFile, root: str, path: Path) -> None:
        self.archive, self.root, self.path = archive, root, path
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.numbers: dict[str, Tensor] = {}
        simple: dict[str, Callable[[Any], Any]] = {
            "EMPTY_DICT": lambda _: {}, "EMPTY_LIST": lambda _: [], "EMPTY_TUPLE": lambda _: (),
            "NONE": lambda _: None, "NEWTRUE": lambda _: True, "NEWFALSE": lambda _: False, "MARK": lambda _: _Mark(),
        }  # fmt: skip
        plain = ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE")
        self.push = {**simple, **dict.fromkeys(plain, lambda argument: argument)}

    def fail(self, what: str) -> DataError:
        return DataError(f"{self.path}: {what}. Nothing was executed; get the file from its authors")

    def run(self, program: bytes) -> Any:
        try:
            for step, (operation, argument, position) in enumerate(genops(program)):
                if step > STEP_LIMIT:
                    raise self.fail(f"its program has more than {STEP_LIMIT:,} steps")
                if operation.name == "STOP":
                    if len(self.stack) != 1:
                        raise self.fail("its program ends in the middle")
                    return self.stack[0]
                self.step(operation.name, argument, position or 0)
        except DataError:
            raise
        except Exception as error:  # too few values on the stack, a text that is none: the program is damaged
            raise self.fail(f"its program is damaged ({brief(error)})") from error
        raise self.fail("its program has no end")

    def step(self, name: str, argument: Any, position: int) -> None:
        stack = self.stack
        if name in self.push:
            stack.append(self.push[name](argument))
        elif name in ("PROTO", "FRAME"):
            pass
        elif name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self.memo[len(self.memo) if argument is None else argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self.memo[argument])
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            count = int(name[-1])
            if len(stack) < count:
                raise self.fail("its program is damaged (too few values)")
            stack[-count:] = [tuple(stack[-count:])]
        elif name == "TUPLE":
            stack.append(tuple(self.group()))
        elif name in ("APPEND", "APPENDS"):
            values = self.group() if name == "APPENDS" else [stack.pop()]
            if type(stack[-1]) is not list:
                raise self.fail(f"its program appends to {type(stack[-1]).__name__} at byte {position}")
            stack[-1].extend(values)
        elif name in ("SETITEM", "SETITEMS"):
            values = self.group() if name == "SETITEMS" else [stack.pop(-2), stack.pop()]
            if (
                type(stack[-1]) is not dict
                or len(values) % 2
                or any(type(key) not in (str, int) for key in values[::2])
            ):
                raise self.fail(f"its program sets an item that is none at byte {position}")
            stack[-1].update(zip(values[::2], values[1::2], strict=True))
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            module, known = argument.split(" ", 1) if name == "GLOBAL" else (stack.pop(-2), stack.pop())
            if (module, known) not in _ALLOWED:
                raise self.fail(
                    f"its program asks for {str(module)[:80]}.{str(known)[:80]} at byte {position}; refused"
                )
            stack.append(_Name(module, known))
        elif name == "BINPERSID":
            stack.append(self.storage(stack.pop()))
        elif name == "REDUCE":
            arguments, function = stack.pop(), stack.pop()
            stack.append(self.call(function, arguments))
        else:
            raise self.fail(f"its program uses the instruction {name} at byte {position}; refused")

    def group(self) -> list[Any]:
        """Everything above the last mark, taken off the stack with it."""
        at = next(i for i in range(len(self.stack) - 1, -1, -1) if isinstance(self.stack[i], _Mark))
        values = self.stack[at + 1 :]
        del self.stack[at:]
        return values

    def storage(self, identity: Any) -> _Storage:
        match identity:
            case ("storage", _Name("torch", str() as kind), str() as key, str(), int() as count) if (
                kind in _STORAGES and key.isascii() and key.isalnum() and 0 <= count < FILE_LIMIT
            ):
                return _Storage(_STORAGES[kind], key, count)
        raise self.fail("its program speaks of numbers in a way unknown here")

    def call(self, function: Any, arguments: Any) -> Any:
        match function, arguments:
            case _Name("collections", "OrderedDict"), ():
                return {}
            case (
                _Name("torch._utils", "_rebuild_tensor_v2"),
                (_Storage() as storage, int() as offset, tuple() as shape, tuple() as strides, *_),
            ):
                return self.tensor(storage, offset, shape, strides)
        raise self.fail("its program calls something unknown")

    def tensor(self, storage: _Storage, offset: int, shape: tuple[Any, ...], strides: tuple[Any, ...]) -> Tensor:
        if storage.key not in self.numbers:
            self.numbers[storage.key] = self.load(storage)
        numbers = self.numbers[storage.key]
        plain = all(type(size) is int and 0 <= size <= FILE_LIMIT for size in (offset, *shape, *strides))
        if not plain or len(shape) != len(strides) or len(shape) > 8 or numbers.dtype != storage.dtype:
            raise self.fail(f"a tensor of shape {str(shape)[:80]} makes no sense")
        count = math.prod(shape)
        reach = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + 1
        if count > len(numbers) or (count and reach > len(numbers)):
            raise self.fail(f"a tensor of shape {shape} needs more numbers than its {len(numbers):,}")
        return torch.as_strided(numbers, shape, strides, offset) if count else numbers.new_zeros(shape)

    def load(self, storage: _Storage) -> Tensor:
        name = f"{self.root}data/{storage.key}"
        size = storage.count * storage.dtype.itemsize
        try:
            part = self.archive.getinfo(name)
        except KeyError:
            raise self.fail(f"its part {name} is missing") from None
        if part.compress_type != zipfile.ZIP_STORED or part.file_size != size:
            raise self.fail(f"its part {name} has {part.file_size:,} bytes (compressed, or not the {size:,} it should)")
        data = _member(self.archive, name, size, self.path)
        if len(data) != size:
            raise self.fail(f"its part {name} is cut short")
        return torch.frombuffer(bytearray(data), dtype=storage.dtype) if size else torch.empty(0, dtype=storage.dtype)
