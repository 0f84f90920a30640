"""The compilers of this machine, and C that is compiled once and kept.

A library is kept in the user's cache folder under a name made of the source, the flags, the compiler and the processor,
and of the library's own bytes: what was cut off, or changed, is compiled again. What is loaded is code, so the folder
must be the user's own and nobody else may write to it; otherwise, and where nothing can be written, libraries live in a
temporary folder of this process.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import hashlib
import importlib.metadata
import importlib.util
import math
import os
import platform
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from ..errors import ConfigError

FLAGS = ("-std=c99", "-fPIC", "-shared", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")
"""Flags that leave every operation rounded as IEEE 754 says, in the order of the source: which bits come out does not
depend on how a compiler arranges loops. Multiplications and additions are joined only where the source says ``fma``;
errno and floating-point traps, which nobody reads, need not be kept."""
LEVELS = (
    (2_000, ("-O3",)),
    (12_000, ("-O2", "-ftree-vectorize", "-fvect-cost-model=dynamic", "-fno-tree-pre")),
    (math.inf, ("-O1", "-ftree-vectorize", "-fvect-cost-model=dynamic")),
)
"""Optimisation of sources with at most so many lines, so that compilers take seconds. The second one is as fast as the
first where most of a source is written out, and takes half the time to compile."""
COMPILE_SECONDS = 120.0
"""What a compiler may take before it is stopped; this process does not call it again then."""
CACHE_BYTES = 500_000_000
"""Size of all kept libraries above which the oldest are removed."""
SUFFIX = ".dll" if sys.platform == "win32" else ".so"
_loaded: dict[str, ctypes.CDLL | ConfigError] = {}
_stopped: set[tuple[str, ...]] = set()


class Compiler(NamedTuple):
    """A C compiler."""

    command: tuple[str, ...]
    native: tuple[str, ...]
    """Flags that allow all instructions of this processor."""
    identity: str
    """What changes when it is replaced by another one."""


def c_compiler() -> str | None:
    """The first C compiler of this machine, if there is one."""
    return next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)


def compiler_available() -> bool:
    """Whether there is a C++ compiler, which ``torch.compile`` needs on the CPU."""
    return any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "c++", "clang++", "cl"))


def library_compiler() -> Compiler:
    """What libraries are compiled with: ``$CC``, ``cc``, ``gcc``, ``clang``, or the compiler of the extra ``native``.

    Raises:
        ConfigError: there is none.
    """
    named = tuple(shlex.split(os.environ.get("CC", "")))
    for command in (named, ("cc",), ("gcc",), ("clang",)):
        found = shutil.which(command[0]) if command else None
        if found is not None:
            file = Path(found).resolve()
            status = file.stat()
            identity = f"{file} {command[1:]} {status.st_size} {status.st_mtime_ns}"
            return Compiler((found, *command[1:]), ("-march=native",), identity)
    if importlib.util.find_spec("ziglang") is not None:
        identity = f"ziglang {importlib.metadata.version('ziglang')}"
        return Compiler((sys.executable, "-m", "ziglang", "cc"), ("-mcpu=native",), identity)
    raise ConfigError(
        "no C compiler found ($CC, cc, gcc, clang); install one, or: pip install 'fwnkf[native]', which brings one"
    )


def shared_library(source: str, optimisation: tuple[str, ...] = ()) -> ctypes.CDLL:
    """The library made of this C, compiled unless it was before; by default optimised as its length allows.

    Raises:
        ConfigError: there is no compiler, or it fails, or takes longer than :data:`COMPILE_SECONDS`.

    >>> shared_library("int twice(int x) { return 2 * x; }").twice(21)
    42
    """
    compiler = library_compiler()
    lines = source.count("\n")
    flags = (*FLAGS, *(optimisation or next(level for most, level in LEVELS if lines <= most)))
    key = _digest(source, repr(flags), compiler.identity, _processor())
    if key not in _loaded:
        if compiler.command in _stopped:
            raise ConfigError(_too_long(compiler))
        try:
            _loaded[key] = _found_or_made(key, source, compiler, flags)
        except ConfigError as error:
            _loaded[key] = error  # it would fail again
    library = _loaded[key]
    if isinstance(library, ConfigError):
        raise library
    return library


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


@functools.cache
def _processor() -> str:
    """The kind of this machine's processor: code for one need not run on another that shares the home folder."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n")[0].split("\n")
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    told = [line for line in lines if line.split("\t")[0].strip() in ("model name", "flags", "Features", "CPU part")]
    return " ".join((platform.machine(), *told))


def _found_or_made(key: str, source: str, compiler: Compiler, flags: tuple[str, ...]) -> ctypes.CDLL:
    folder = _cache_folder()
    if folder is not None:
        for found in folder.glob(f"{key}-*{SUFFIX}"):
            if _whole(found):
                with contextlib.suppress(OSError):
                    library = ctypes.CDLL(str(found))
                    os.utime(found)  # the oldest are removed first
                    return library
            with contextlib.suppress(OSError):
                found.unlink()
    with tempfile.TemporaryDirectory(prefix="fwnkf-", ignore_cleanup_errors=True) as made:
        built = _compiled(Path(made), source, compiler, flags)
        for home in (folder, _temporary_folder()):
            if home is None:
                continue
            with contextlib.suppress(OSError):  # a full disk, or one from which nothing may be executed
                return ctypes.CDLL(str(_stored(home, key, built)))
    raise ConfigError(f"a library was compiled and can be loaded neither from {folder} nor from a temporary folder")


def _compiled(folder: Path, source: str, compiler: Compiler, flags: tuple[str, ...]) -> bytes:
    text, library = folder / "source.c", folder / f"library{SUFFIX}"
    text.write_text(source, encoding="utf-8")
    # not every compiler knows the processor it runs on, or every flag
    for chosen in ((*flags, *compiler.native), (*flags[:3], "-ffp-contract=off", "-O2")):
        call = [*compiler.command, *chosen, "-o", str(library), str(text), "-lm"]
        code, told = _called(call, compiler)
        if code == 0 and library.exists():
            return library.read_bytes()
    raise ConfigError(f"{' '.join(call)} failed:\n{told[:2000]}")


def _called(call: list[str], compiler: Compiler) -> tuple[int, str]:
    """The exit code of a compiler and what it wrote."""
    own_group = sys.platform != "win32"
    try:
        process = subprocess.Popen(
            call,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=own_group,
        )
    except OSError as error:
        raise ConfigError(f"{compiler.command[0]} cannot be run: {error}") from error
    try:
        _, told = process.communicate(timeout=COMPILE_SECONDS)
    except subprocess.TimeoutExpired:
        _stopped.add(compiler.command)
        raise ConfigError(_too_long(compiler)) from None
    finally:
        if process.poll() is None:
            # a driver has started others, which hold its pipe
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL) if own_group else process.kill()
            process.communicate()
    return process.returncode, told


def _too_long(compiler: Compiler) -> str:
    return (
        f"{' '.join(compiler.command)} was stopped after {COMPILE_SECONDS:g} s without a library and is not called "
        "again by this process; set CC to a compiler that works"
    )


# ---- folders -----------------------------------------------------------------------------------------------------


def cache_home() -> Path:
    """Where libraries are kept: ``$FWNKF_CACHE``, or ``fwnkf/native`` in the user's cache folder."""
    if chosen := os.environ.get("FWNKF_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "win32" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local) / "fwnkf" / "native"
    stated = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(stated) if os.path.isabs(stated) else Path("~/.cache").expanduser()
    return base / "fwnkf" / "native"


def _cache_folder() -> Path | None:
    """The folder of kept libraries; None if it cannot be used, or if others could put code into it."""
    folder = cache_home()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder if _own(folder.stat()) and os.access(folder, os.W_OK | os.X_OK) else None
    except (OSError, RuntimeError):  # no home folder
        return None


def _own(status: os.stat_result) -> bool:
    """Whether a file or folder is this user's and no other user may write to it, as ssh asks of its keys."""
    if sys.platform == "win32":
        return True  # the profile of a user is closed to others
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _whole(library: Path) -> bool:
    """Whether a kept library is the user's own and has the bytes that its name states."""
    try:
        status = library.lstat()
        return stat.S_ISREG(status.st_mode) and _own(status) and library.stem.endswith(_sum(library.read_bytes()))
    except OSError:
        return False


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def _stored(folder: Path, key: str, content: bytes) -> Path:
    """The library in a folder, where it appears complete or not at all."""
    target = folder / f"{key}-{_sum(content)}{SUFFIX}"
    handle, name = tempfile.mkstemp(suffix=".part", dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(name, 0o700)
        os.replace(name, target)
    except OSError:
        Path(name).unlink(missing_ok=True)
        if not _whole(target):  # Windows: another process has loaded the same file
            raise
    _remove_oldest(folder, target)
    return target


def _remove_oldest(folder: Path, keep: Path) -> None:
    """Keep the folder below :data:`CACHE_BYTES`."""
    files = []
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # another process removes too
            if path.suffix in (SUFFIX, ".part") and path != keep:
                status = path.stat()
                files.append((status.st_mtime, status.st_size, path))
    room = CACHE_BYTES - keep.stat().st_size
    for _, size, path in sorted(files, reverse=True):
        room -= size
        if room < 0:
            with contextlib.suppress(OSError):
                path.unlink()


@functools.cache
def _temporary_folder() -> Path:
    """A folder of this process, removed at its end."""
    folder = tempfile.mkdtemp(prefix="fwnkf-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
