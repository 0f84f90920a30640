"""What a worker may open: enforced by the kernel where it can (Landlock on Linux), and by Python everywhere.

Files name other files: the metadata of a ROS 2 bag, the experiment of a run, a link in a folder. The paths of a call
are therefore not enough to check; what counts is each file that is opened. Both guards are set before anything is
imported that reads a file of the user, and neither can be taken off again.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import os
import stat
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/opt", "/System", "/Library", "/etc/ld.so.cache", "/etc/localtime",
          "/etc/fonts", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/self/maps", "/proc/self/status",
          "/sys/devices/system", "/sys/fs/cgroup", "/dev/urandom", "/dev/null", "/dev/zero")  # fmt: skip
"""What libraries and compilers read; no files of a user."""
DEVICES = ("/dev/null",)
"""What is written to besides files."""


class Bounds(NamedTuple):
    """Places that may be read, and places that may be written; all without links."""

    data: tuple[str, ...]
    """Folders of the user: files and folders in them may be read, devices may not."""
    own: tuple[str, ...]
    """Folders of the worker, to read and to write."""
    installed: tuple[str, ...]
    """The system, Python and its packages: to read."""
    modules: tuple[str, ...]
    """Folders of PYTHONPATH: modules in them may be read."""

    @classmethod
    def of(cls, data: Sequence[str], own: Sequence[str]) -> Bounds:
        """The bounds of this process."""
        import fwnkf

        paths = sysconfig.get_paths()
        installed = [*SYSTEM, sys.prefix, sys.base_prefix, *(paths[name] for name in ("stdlib", "purelib", "platlib"))]
        installed += [entry for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))]
        modules = [entry for entry in sys.path if entry and os.path.isdir(entry)]
        return cls(_real(data), _real([*own, *DEVICES]), _real([*installed, *fwnkf.__path__]), _real(modules))

    def may_read(self, path: str) -> bool:
        """Whether a file or folder may be opened, or listed."""
        if _below(path, self.own) or _below(path, self.installed):
            return True
        if _below(path, self.data):
            return _plain(path)
        return _below(path, self.modules) and (os.path.isdir(path) or path.endswith(MODULES))

    def may_write(self, path: str) -> bool:
        """Whether a file or folder may be made, changed or removed."""
        return _below(path, self.own)


MODULES = tuple(importlib.machinery.all_suffixes())


def confine(bounds: Bounds) -> None:
    """Bound what this process and those that it starts can open, for the rest of their lives."""
    if sys.platform == "linux":
        _landlock(bounds)
    sys.addaudithook(_Guard(bounds))


def _real(paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(os.path.realpath(path) for path in paths if os.path.exists(path)))


def _below(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip(os.sep) + os.sep) for folder in folders)


def _plain(path: str) -> bool:
    """Whether this is a file, a folder or nothing: a pipe would make the reader wait for ever."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return True
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


# ---- Python ----------------------------------------------------------------------------------------------------------

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
READS = ("os.listdir", "os.scandir", "sqlite3.connect")
"""Events that read; their first argument is a path."""
WRITES = {"os.remove": ((0, 1),), "os.rmdir": ((0, 1),), "os.mkdir": ((0, 2),), "os.rename": ((0, 2), (1, 3)),
          "os.link": ((0, 2), (1, 3)), "os.truncate": ((0, None),), "os.chmod": ((0, 2),), "os.chown": ((0, 3),),
          "os.utime": ((0, 3),)}  # fmt: skip
"""Events that write; which of their arguments are paths, and which the open folders that these are relative to."""


class _Guard:
    """The audit hook."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            self.check(path, writes=isinstance(flags, int) and bool(flags & WRITING))
        elif event == "os.symlink":  # the server, which is not confined, would follow it
            raise PermissionError("no links are made here")
        elif event in READS:
            self.check(arguments[0], writes=False)
        elif event in WRITES:
            for path, folder in WRITES[event]:
                self.check(arguments[path], True, -1 if folder is None else arguments[folder])

    def check(self, path: Any, writes: bool, folder: int = -1) -> None:
        if path is None or isinstance(path, int):  # the present folder, which is the worker's, or what is open already
            return
        name = os.fsdecode(path)
        if name == ":memory:" or name.startswith("file:"):  # of SQLite, which opens what follows by itself
            name = _of_uri(name)
        if folder >= 0 and not os.path.isabs(name):  # Linux tells which folder it is
            name = os.path.join(os.path.realpath(f"/proc/self/fd/{folder}"), name)
        real = os.path.realpath(name)
        if not (self.bounds.may_write(real) if writes else self.bounds.may_read(real)):
            raise PermissionError(f"{name} is not below the folders of this server, or is no file")


def _of_uri(name: str) -> str:
    from urllib.parse import unquote, urlsplit

    return os.devnull if name == ":memory:" else unquote(urlsplit(name).path)


# ---- Linux -----------------------------------------------------------------------------------------------------------

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same on all architectures
NO_NEW_PRIVILEGES = 38
EXECUTE, WRITE_FILE, READ_FILE, READ_FOLDER, TRUNCATE, IOCTL = (1 << bit for bit in (0, 1, 2, 3, 14, 15))
CHANGE = READ_FILE | READ_FOLDER | WRITE_FILE | TRUNCATE | sum(1 << bit for bit in (4, 5, 7, 8, 13))
"""To read, write, remove, make and move files and folders, but not links or devices, and not to execute."""
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL
RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
"""All rights to files that a version of Landlock knows."""
TCP = 3
"""To bind and to connect; from version 4 on."""


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("rights", ctypes.c_uint64), ("folder", ctypes.c_int32))


def landlock_version() -> int:
    """The version of Landlock; 0 where the kernel has none."""
    if sys.platform != "linux":
        return 0
    return max(int(ctypes.CDLL(None).syscall(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))), 0)


def _landlock(bounds: Bounds) -> None:
    """Let the kernel refuse what is out of bounds, links that change in between and libraries in C included."""
    version = landlock_version()
    if not version:
        return
    kernel = ctypes.CDLL(None, use_errno=True)
    every = RIGHTS[min(version, 5)]
    ruleset = _Ruleset(every, TCP)
    size = 16 if version >= 4 else 8
    handle = kernel.syscall(CREATE_RULESET, ctypes.byref(ruleset), ctypes.c_size_t(size), ctypes.c_uint32(0))
    _done(handle)
    reads = READ_FILE | READ_FOLDER
    places = [(bounds.data, reads), (bounds.installed, reads | EXECUTE), (bounds.modules, reads), (bounds.own, CHANGE)]
    for paths, rights in places:
        for path in paths:
            folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
            allowed = rights & every if Path(path).is_dir() else rights & every & OF_FILES
            rule = _Beneath(allowed, folder)
            _done(kernel.syscall(ADD_RULE, handle, 1, ctypes.byref(rule), ctypes.c_uint32(0)))
            os.close(folder)
    _done(kernel.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _done(kernel.syscall(RESTRICT_SELF, handle, ctypes.c_uint32(0)))
    os.close(handle)


def _done(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"the kernel did not confine this process: {os.strerror(number)}")
