"""Libraries are compiled once and kept, whatever happens to compilers, processes and folders."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fwnkf.errors import ConfigError
from fwnkf.native import compilers
from fwnkf.native.compilers import c_compiler, shared_library

SOURCE = "int answer(void) {{ return {}; }}\n"

pytestmark = pytest.mark.skipif(c_compiler() is None, reason="no C compiler (cc, gcc, clang) on this machine")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and a process that has loaded nothing."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("FWNKF_CACHE", str(folder))
    forget(monkeypatch)
    return folder


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilers, "_loaded", {})
    monkeypatch.setattr(compilers, "_stopped", set())


def calls(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The calls of compilers from now on."""
    made: list[list[str]] = []
    real = compilers._called

    def called(call: list[str], compiler: compilers.Compiler) -> tuple[int, str]:
        made.append(call)
        return real(call, compiler)

    monkeypatch.setattr(compilers, "_called", called)
    return made


def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A compiler that does what a script says."""
    path = tmp_path / "fake-cc"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    monkeypatch.setenv("CC", str(path))


def test_the_same_source_is_compiled_once(cache: Path, monkeypatch: pytest.MonkeyPatch):
    made = calls(monkeypatch)
    assert shared_library(SOURCE.format(1)).answer() == 1
    assert shared_library(SOURCE.format(1)).answer() == 1
    assert len(made) == 1
    forget(monkeypatch)  # as in another process
    assert shared_library(SOURCE.format(1)).answer() == 1
    assert len(made) == 1
    assert shared_library(SOURCE.format(2)).answer() == 2
    assert len(made) == 2
    assert cache.stat().st_mode & 0o077 == 0


def test_another_processor_or_compiler_is_another_library(cache: Path, monkeypatch: pytest.MonkeyPatch):
    made = calls(monkeypatch)
    shared_library(SOURCE.format(1))
    monkeypatch.setattr(compilers, "_processor", lambda: "another")
    shared_library(SOURCE.format(1))
    monkeypatch.setenv("CC", f"{c_compiler()} -g0")
    shared_library(SOURCE.format(1))
    assert len(made) == 3
    assert "-g0" in made[-1]


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "link", "writable by others"])
def test_a_damaged_library_is_compiled_again(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str):
    # a file that is mapped must not be damaged: this process compiles now, and loads after the damage
    monkeypatch.setattr(ctypes, "CDLL", lambda path: path)
    kept = Path(str(shared_library(SOURCE.format(1))))
    content = kept.read_bytes()
    if damage == "link":
        kept.rename(tmp_path / "elsewhere.so")
        kept.symlink_to(tmp_path / "elsewhere.so")
    elif damage == "writable by others":
        kept.chmod(0o722)
    else:
        changed = bytes([content[0], *content[1:-1], content[-1] ^ 1])
        kept.write_bytes({"cut": content[: len(content) // 2], "changed": changed, "empty": b""}[damage])
    monkeypatch.undo()
    monkeypatch.setenv("FWNKF_CACHE", str(cache))
    forget(monkeypatch)
    made = calls(monkeypatch)
    assert shared_library(SOURCE.format(1)).answer() == 1
    assert len(made) == 1


def test_folders_that_others_could_write_to_are_not_used(cache: Path, monkeypatch: pytest.MonkeyPatch):
    cache.mkdir()
    cache.chmod(0o777)
    assert shared_library(SOURCE.format(1)).answer() == 1
    assert list(cache.iterdir()) == []
    cache.chmod(0o700)
    forget(monkeypatch)
    monkeypatch.setattr(os, "getuid", lambda: cache.stat().st_uid + 1)
    assert shared_library(SOURCE.format(1)).answer() == 1
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("kind", ["a file", "read-only", "below a file"])
def test_without_a_cache_folder_a_temporary_one_is_used(cache: Path, monkeypatch: pytest.MonkeyPatch, kind: str):
    if kind == "a file":
        cache.write_text("")
    elif kind == "below a file":
        cache.write_text("")
        monkeypatch.setenv("FWNKF_CACHE", str(cache / "folder"))
    else:
        # root may write everywhere, so the refusal is the operating system's answer
        access = os.access
        monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != cache and access(path, mode))
    assert shared_library(SOURCE.format(1)).answer() == 1
    assert not cache.is_dir() or list(cache.iterdir()) == []


def test_a_full_disk_is_no_error(cache: Path, monkeypatch: pytest.MonkeyPatch):
    real = compilers._stored

    def stored(folder: Path, key: str, content: bytes) -> Path:
        if folder == cache:
            raise OSError(28, "No space left on device")
        return real(folder, key, content)

    monkeypatch.setattr(compilers, "_stored", stored)
    assert shared_library(SOURCE.format(1)).answer() == 1


def test_a_compiler_that_fails(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fake(tmp_path, monkeypatch, "echo 'licence expired' >&2; exit 3")
    made = calls(monkeypatch)
    for _ in range(2):
        with pytest.raises(ConfigError, match="licence expired"):
            shared_library(SOURCE.format(1))
    assert len(made) == 2  # with the flags of this processor and without, and not again
    fake(tmp_path, monkeypatch, "exit 0")  # and leaves nothing
    with pytest.raises(ConfigError, match="failed"):
        shared_library(SOURCE.format(2))
    monkeypatch.delenv("CC")
    with pytest.raises(ConfigError, match="error"):
        shared_library("this is no C")


def test_a_compiler_that_hangs(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    mark = tmp_path / "child"
    fake(tmp_path, monkeypatch, f"sleep 600 & echo $! > {mark}; wait")
    monkeypatch.setattr(compilers, "COMPILE_SECONDS", 0.5)
    begin = time.monotonic()
    for number in (1, 2):
        with pytest.raises(ConfigError, match=r"stopped after 0\.5 s"):
            shared_library(SOURCE.format(number))
    assert time.monotonic() - begin < 5
    child = int(mark.read_text())
    for _ in range(50):  # what it had started was stopped too
        if not Path(f"/proc/{child}").exists() or "\nState:\tZ" in Path(f"/proc/{child}/status").read_text():
            break
        time.sleep(0.1)
    else:
        raise AssertionError("the compiler's child is still running")


def test_the_folder_does_not_grow_without_end(cache: Path, monkeypatch: pytest.MonkeyPatch):
    shared_library(SOURCE.format(0))
    size = sum(path.stat().st_size for path in cache.iterdir())
    monkeypatch.setattr(compilers, "CACHE_BYTES", 3 * size + size // 2)
    first = next(cache.iterdir())
    for number in range(1, 6):
        for age, path in enumerate(sorted(cache.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)):
            os.utime(path, (time.time() - 60 - age, time.time() - 60 - age))
        assert shared_library(SOURCE.format(number)).answer() == number
    assert len(list(cache.iterdir())) == 3
    assert not first.exists()


def test_no_compiler(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"fwnkf\[native\]"):
        shared_library(SOURCE.format(1))


def test_the_compiler_of_the_extra(cache: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("ziglang")
    which = compilers.shutil.which
    monkeypatch.setattr("shutil.which", lambda name: None if name in ("cc", "gcc", "clang") else which(name))
    monkeypatch.delenv("CC", raising=False)
    assert "ziglang" in compilers.library_compiler().command
    assert shared_library(SOURCE.format(1)).answer() == 1


@pytest.mark.parametrize("times", [5, pytest.param(100, marks=pytest.mark.slow)])
def test_two_processes_compile_at_once(cache: Path, times: int):
    program = (
        "import sys; from fwnkf.native.compilers import shared_library\n"
        f"for i in range({times}):\n"
        f"    assert shared_library({SOURCE!r}.format(i)).answer() == i\n"
        "print('done')"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in processes:
        out, told = process.communicate(timeout=300)
        assert out == "done\n", told
    assert len({path.name.split("-")[0] for path in cache.iterdir()}) == times
    assert not [path for path in cache.iterdir() if path.suffix == ".part"]
