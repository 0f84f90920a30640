"""Mutated files: a named error or a valid recording, never a hang, a crash, or a byte outside the target.

200 mutants a reader here; ``pytest -m slow`` runs 5,000.
"""

from __future__ import annotations

import io
import resource
import signal
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from fwnkf.data.recording import Recording
from fwnkf.data.sets import broad, dido, euroc, uipdb
from fwnkf.data.sets.archives import extract
from fwnkf.errors import FwnkfError

from . import miniatures
from .test_archives import tarred, zipped

Mutation = Callable[[bytes, np.random.Generator], bytes]
SECONDS = 20
"""Largest time to read one mutant of a few kilobytes."""
MEMORY = 1 << 30
"""Largest growth of the process over all mutants, in bytes."""


class Hang(BaseException):
    """Not an ``Exception``, so that a reader does not catch it as a damaged file."""


@contextmanager
def alarm() -> Iterator[None]:
    def ring(*_: object) -> None:
        raise Hang(f"a mutant took more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# -- mutations of bytes ------------------------------------------------------------------------------------------------


def truncate(data: bytes, rng: np.random.Generator) -> bytes:
    return data[: int(rng.integers(0, len(data) + 1))]


def flip_bits(data: bytes, rng: np.random.Generator) -> bytes:
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 9))):
        if out:
            out[int(rng.integers(len(out)))] ^= 1 << int(rng.integers(8))
    return bytes(out)


def overwrite(data: bytes, rng: np.random.Generator) -> bytes:
    """Extreme values of four or eight bytes, the length of sizes and counts."""
    word = [
        b"\xff" * 4,
        b"\x00" * 4,
        b"\xff\xff\xff\x7f",
        b"\x00\x00\x00\x80",
        b"\xff" * 8,
        b"\x00" * 64,
        b"\x01\x00\x00\x00",
    ]
    at = int(rng.integers(0, max(1, len(data))))
    put = word[int(rng.integers(len(word)))]
    return data[:at] + put + data[at + len(put) :]


def insert(data: bytes, rng: np.random.Generator) -> bytes:
    at = int(rng.integers(0, len(data) + 1))
    return data[:at] + rng.bytes(int(rng.integers(1, 40))) + data[at:]


def cut_out(data: bytes, rng: np.random.Generator) -> bytes:
    a, b = sorted(int(x) for x in rng.integers(0, len(data) + 1, 2))
    return data[:a] + data[min(b, a + 200) :]


def double_up(data: bytes, rng: np.random.Generator) -> bytes:
    a, b = sorted(int(x) for x in rng.integers(0, len(data) + 1, 2))
    return data[:b] + data[a:]


BINARY: list[Mutation] = [truncate, flip_bits, overwrite, insert, cut_out, double_up]

# -- mutations of tables -----------------------------------------------------------------------------------------------

CELLS = [
    "nan", "-inf", "1e400", "1e30", "-1e18", "", "x", "0x10", "1_000", "99999999999999999999", "1e-400", " ", "\x00",
    "١٢", "1,2", "-0", "\u2028", "'1'", "0", "1e99999999", "." * 50,
]  # fmt: skip


def spoil_cell(data: bytes, rng: np.random.Generator) -> bytes:
    lines = data.split(b"\n")
    row = int(rng.integers(len(lines)))
    cells = lines[row].split(b",")
    cells[int(rng.integers(len(cells)))] = CELLS[int(rng.integers(len(CELLS)))].encode()
    lines[row] = b",".join(cells)
    return b"\n".join(lines)


def spoil_lines(data: bytes, rng: np.random.Generator) -> bytes:
    lines = data.split(b"\n")
    a, b = (int(x) for x in rng.integers(0, len(lines), 2))
    how = int(rng.integers(6))
    if how == 0:
        lines[a], lines[b] = lines[b], lines[a]
    elif how == 1:
        lines.insert(a, lines[b])
    elif how == 2:
        del lines[a]
    elif how == 3:
        lines[a] = b""
    elif how == 4:
        lines[a] = lines[a] * 300
    else:
        lines = lines[::-1]
    return b"\n".join(lines)


def spoil_column(data: bytes, rng: np.random.Generator) -> bytes:
    """Scale, remove, repeat or erase one column in every row."""
    lines = data.split(b"\n")
    header = [lines[0]] if not lines[0][:1].isdigit() else []
    width = lines[-2].count(b",") + 1
    column, how = int(rng.integers(width)), int(rng.integers(6))
    factor = float(rng.choice([57.29578, 0.0174533, 9.80665, 0.10197, 1000.0, 1e-3, 1e9, 1e-9, -1.0, 0.0]))
    out = []
    for line in lines[len(header) :]:
        cells = line.split(b",")
        if len(cells) == width:
            if how <= 2:
                cells[column] = repr(float(cells[column]) * factor).encode()
            elif how == 3:
                del cells[column]
            elif how == 4:
                cells.insert(column, cells[column])
            else:
                cells[column] = b"nan"
        out.append(b",".join(cells))
    return b"\n".join(header + out)


TABLE: list[Mutation] = [
    *BINARY,
    spoil_cell,
    spoil_cell,
    spoil_cell,
    spoil_lines,
    spoil_lines,
    spoil_column,
    spoil_column,
]

# -- mutations inside archives -----------------------------------------------------------------------------------------


def inside(data: bytes, rng: np.random.Generator) -> bytes:
    """Mutate one member of a zip archive and write it again with a correct checksum."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(out, "w") as sink:
        names = source.namelist()
        # pickles and array headers more often than values
        weights = np.array([8.0 if name.endswith(("data.pkl", ".npy")) else 1.0 for name in names])
        chosen = int(rng.choice(len(names), p=weights / weights.sum()))
        for index, name in enumerate(names):
            part = source.read(name)
            if index == chosen:
                if rng.random() < 0.5 and len(part) > 300:  # the header of an array, the beginning of a pickle
                    part = BINARY[int(rng.integers(len(BINARY)))](part[:300], rng) + part[300:]
                else:
                    part = BINARY[int(rng.integers(len(BINARY)))](part, rng)
            sink.writestr(name, part)
    return out.getvalue()


# -- readers -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """Files to mutate, and the functions that create and read them."""

    make: Callable[[Path], object]
    files: tuple[str, ...]
    read: Callable[[Path], Recording | list[Recording]]
    mutations: list[Mutation]
    limits: tuple[float, ...]
    """Largest absolute value of the observations, for equal parts of the channels."""


TARGETS = {
    "euroc": Target(
        lambda folder: miniatures.euroc(folder / "s", 60),
        ("s/mav0/imu0/data.csv", "s/mav0/state_groundtruth_estimate0/data.csv"),
        lambda folder: euroc.read(folder / "s", mask_jumps=0.01),
        TABLE,
        (100.0, 500.0),
    ),
    "dido": Target(
        lambda folder: miniatures.dido(folder / "s", 60),
        ("s/imu_data.csv", "s/groundTruthPoses.csv"),
        lambda folder: dido.read(folder / "s"),
        TABLE,
        (100.0, 500.0),
    ),
    "broad": Target(
        lambda folder: miniatures.broad(folder / "01_x.mat", 60),
        ("01_x.mat",),
        lambda folder: broad.read(folder / "01_x.mat"),
        BINARY,
        (100.0, 500.0, 1e5),
    ),
    "broad uncompressed": Target(
        lambda folder: miniatures.broad(folder / "01_x.mat", 60, compressed=False),
        ("01_x.mat",),
        lambda folder: broad.read(folder / "01_x.mat"),
        BINARY,
        (100.0, 500.0, 1e5),
    ),
    "uipdb session": Target(
        lambda folder: miniatures.session(folder / "0_session1.npz", 30, compressed=False),
        ("0_session1.npz",),
        lambda folder: uipdb.read(folder / "0_session1.npz"),
        [*BINARY, inside, inside, inside, inside, inside, inside],
        (500.0,),
    ),
    "uipdb processed": Target(
        lambda folder: miniatures.processed(folder / "train.pt", (20, 10)),
        ("train.pt",),
        lambda folder: uipdb.read(folder / "train.pt"),
        [*BINARY, inside, inside, inside, inside, inside, inside],
        (500.0,),
    ),
}


def assert_sane(recording: Recording, limits: tuple[float, ...]) -> None:
    """Properties of every recording, independently of its own checks."""
    assert bool((recording.time.diff() > 0).all())
    assert 1.0 <= recording.rate <= 1e5
    values = torch.where(recording.mask, recording.observations, 0.0)
    assert bool(values.isfinite().all())
    for limit, part in zip(limits, values.split(max(3, values.shape[1] // len(limits)), -1), strict=False):
        assert float(part.abs().max()) <= limit
    if recording.truth is not None and recording.truth_mask is not None and recording.layout is not None:
        known = recording.truth[recording.truth_mask]
        assert bool(known.isfinite().all())
        assert float(known.abs().max()) <= 1e4
        assert bool(recording.truth[~recording.truth_mask].isnan().all())


def attack(target: Target, folder: Path, count: int, seed: int) -> dict[str, int]:
    target.make(folder)
    originals = {name: (folder / name).read_bytes() for name in target.files}
    rng = np.random.default_rng(seed)
    outcomes = {"read": 0, "refused": 0}
    begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(count):
        name = target.files[int(rng.integers(len(target.files)))]
        data = originals[name]
        for _ in range(int(rng.integers(1, 3))):
            try:
                data = target.mutations[int(rng.integers(len(target.mutations)))](data, rng)
            except Exception:  # the second mutation may not apply to the result of the first
                break
        (folder / name).write_bytes(data)
        with alarm():
            try:
                recordings = target.read(folder)
            except FwnkfError as error:
                outcomes["refused"] += 1
                message = str(error)
            else:
                for recording in recordings if isinstance(recordings, list) else [recordings]:
                    assert_sane(recording, target.limits)
                outcomes["read"] += 1
                message = None
        assert message is None or 20 < len(message) < 2000
        (folder / name).write_bytes(originals[name])
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - begun) * 1024
    assert grown < MEMORY
    return outcomes


@pytest.mark.parametrize("name", TARGETS)
def test_mutants_are_refused_or_read(tmp_path, name):
    outcomes = attack(TARGETS[name], tmp_path, 200, seed=1)
    assert outcomes["refused"] > 50


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_many_mutants_are_refused_or_read(tmp_path, name):
    outcomes = attack(TARGETS[name], tmp_path, 5000, seed=2)
    print(name, outcomes)
    assert outcomes["refused"] > 1000


# -- archives ----------------------------------------------------------------------------------------------------------

FILES = {"a/one.csv": b"1,2,3\n" * 50, "a/b/two.csv": b"4,5\n" * 50, "c.zip": b""}
ARCHIVES = {
    "zip": lambda: zipped({**FILES, "c.zip": zipped({"d/three.csv": b"6"})}),
    "stored": lambda: zipped({**FILES, "c.zip": zipped({"d/three.csv": b"6"})}, zipfile.ZIP_STORED),
    "tar": lambda: tarred({**FILES, "c.zip": zipped({"d/three.csv": b"6"})}),
}
NAMES = [b"../x", b"/tmp/fwnkf-fuzz", b"a/../../x", b"..\\x", b"a/one.csv", b"c.zip"]


def rename(data: bytes, rng: np.random.Generator) -> bytes:
    """Overwrite a name with another, with a correct checksum of the tar header."""
    old = [b"a/one.csv", b"a/b/two.csv", b"c.zip", b"d/three.csv"][int(rng.integers(4))]
    new = NAMES[int(rng.integers(len(NAMES)))]
    out = bytearray(data.replace(old, new[: len(old)].ljust(len(old), b"x")))
    for at in range(0, len(out) - 511, 512):
        if out[at + 257 : at + 262] == b"ustar":
            if rng.random() < 0.2:
                out[at + 156] = int(rng.choice(list(b"0123456789LKxgSV")))
            if rng.random() < 0.2:
                out[at + 124 : at + 136] = [b"\xff" * 12, b"77777777777\0", b"\x80" + b"\xff" * 11][
                    int(rng.integers(3))
                ]
            out[at + 148 : at + 156] = b" " * 8
            out[at + 148 : at + 156] = b"%06o\0 " % (sum(out[at : at + 512]) & 0o777777)
    return bytes(out)


def attack_archive(kind: str, folder: Path, count: int, seed: int) -> int:
    rng = np.random.default_rng(seed)
    original = ARCHIVES[kind]()
    (folder / "beside.txt").write_text("mine")
    refused = 0
    for number in range(count):
        data = original
        for _ in range(int(rng.integers(1, 3))):
            data = [*BINARY, rename, rename, rename][int(rng.integers(9))](data, rng)
        (folder / "archive").write_bytes(data)
        target = folder / "room" / str(number)
        with alarm():
            try:
                written = extract(folder / "archive", target, nested=2, max_bytes=1 << 22)
            except FwnkfError:
                refused += 1
                assert not any(target.rglob("*"))
            else:
                assert {path for path in target.rglob("*") if path.is_file()} == set(written)
                assert not any(path.is_symlink() for path in target.rglob("*"))
        assert sorted(path.name for path in folder.iterdir()) == ["archive", "beside.txt", "room"]
        assert (folder / "beside.txt").read_text() == "mine"
    assert {path.name for path in (folder / "room").iterdir()} <= {str(number) for number in range(count)}
    assert not Path("/tmp/fwnkf-fuzz").exists()
    return refused


@pytest.mark.parametrize("kind", ARCHIVES)
def test_mutated_archives_stay_inside(tmp_path, kind):
    assert attack_archive(kind, tmp_path, 200, seed=3) > 50


@pytest.mark.slow
@pytest.mark.parametrize("kind", ARCHIVES)
def test_many_mutated_archives_stay_inside(tmp_path, kind):
    print(kind, refused := attack_archive(kind, tmp_path, 5000, seed=4))
    assert refused > 1000
