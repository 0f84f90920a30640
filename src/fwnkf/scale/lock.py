"""One run at a time into an output.

A run writes a lock under a name of its own and lists the locks after that. Of two runs that do so at the same moment,
at least the one that lists later sees the other and withdraws, so that no more than one goes on. All this needs is a
store whose listings show what was written: a disk, or an object store with consistent listings (S3, Google, Azure,
MinIO). pyarrow's file systems have no conditional writes, on which a lock under one name would have to stand.

The owner rewrites its lock every few seconds. A lock whose process is known to have ended is broken at once; that of
another machine after it did not change for a minute, watched by this process, so that no clock is compared with
another. An owner that was only paused finds its lock gone before it replaces the manifest, and stops.
"""

from __future__ import annotations

import json
import os
import random
import socket
import threading
import time
import uuid
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Any

from ..errors import InUseError
from .manifest import LOCKS
from .store import Store

BEAT = 10.0
"""Seconds between two renewals of a lock."""
LEASE = 60.0
"""Seconds without a renewal after which the lock of another machine is broken."""
TRIES = 3
PAUSE = 1.0
"""Runs that see each other withdraw and try again after a random time up to this."""


class Lock:
    """The right to write into an output, as long as the ``with`` block lasts.

    >>> import tempfile
    >>> store = Store(tempfile.mkdtemp())
    >>> with Lock(store) as lock:
    ...     lock.check()
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.name = f"{LOCKS}/{uuid.uuid4().hex}.json"
        self.notes: list[str] = []
        """What was broken."""
        self._since = time.time()
        self._end = threading.Event()
        self._beats = threading.Thread(target=self._renew, daemon=True)

    def __enter__(self) -> Lock:
        self._break_abandoned()
        others = {}
        for attempt in range(TRIES):
            if attempt:
                time.sleep(random.uniform(0.1, 1.0) * PAUSE)
            others = self._others()
            if others:
                continue
            with suppress(FileNotFoundError):  # another run is just clearing up
                self._write(0)
            others = self._others()
            if not others and self.store.exists(self.name):
                self._beats.start()
                return self
            self.store.delete(self.name)
        raise self._refused(next(iter(others.values()), b""))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._beats.join()
        with suppress(OSError):  # it then looks like that of a run that died
            self.store.delete(self.name)

    def check(self) -> None:
        """Raise InUseError if another run has taken the output over."""
        if not self.store.exists(self.name):
            raise InUseError(
                f"{self.store.uri}: this run did not renew its lock for more than {LEASE:.0f} s (was it paused?), and "
                "another run has taken the output over; nothing more was written. Run again with --resume"
            )

    def _write(self, beat: int) -> None:
        about = {
            "host": socket.gethostname(), "pid": os.getpid(), "started": _started(os.getpid()), "machine": _machine(),
            "since": datetime.fromtimestamp(self._since, timezone.utc).isoformat(timespec="seconds"), "beat": beat,
        }  # fmt: skip
        self.store.write(self.name, self.store.json_bytes(about))

    def _renew(self) -> None:
        beat = 0
        while not self._end.wait(BEAT):
            beat += 1
            with suppress(OSError):  # a lock that cannot be renewed is for others to judge
                if not self.store.exists(self.name):
                    return
                self._write(beat)

    def _others(self) -> dict[str, bytes]:
        """The locks of other runs, by name, without those whose process has ended; these are deleted."""
        found = {}
        for name, _ in self.store.files(LOCKS):
            if name == self.name:
                continue
            try:
                data = self.store.read(name)
            except OSError:
                continue  # it was released meanwhile
            if _has_ended(_about(data)):
                self._break(name, data, "which has ended")
            else:
                found[name] = data
        return found

    def _break_abandoned(self) -> None:
        """Watch the locks of other machines, and break those that do not change."""
        before = {name: data for name, data in self._others().items() if not _is_near(_about(data))}
        until = time.monotonic() + LEASE
        while before:
            time.sleep(min(1.0, LEASE / 20))
            now = self._others()
            for name, data in before.items():
                if name in now and now[name] != data:
                    raise self._refused(now[name])
            before = {name: data for name, data in before.items() if name in now}
            if time.monotonic() >= until:
                for name, data in before.items():
                    self._break(name, data, f"which has not renewed it for {LEASE:.0f} s")
                return

    def _break(self, name: str, data: bytes, reason: str) -> None:
        self.store.delete(name)
        self.notes.append(f"the lock of {_owner(_about(data))}, {reason}, was broken")

    def _refused(self, data: bytes) -> InUseError:
        owner = _owner(_about(data)) if data else "another run that started at the same moment"
        return InUseError(f"{self.store.uri} is in use by {owner}; wait for its end, or stop it, and run again")


def _about(data: bytes) -> dict[str, Any]:
    """What a lock says; nothing if it cannot be read."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _owner(about: dict[str, Any]) -> str:
    host, pid, since = (ascii(about.get(name, "?"))[:80].strip("'") for name in ("host", "pid", "since"))
    age = ""
    with suppress(ValueError):
        age = f", {max(0.0, time.time() - datetime.fromisoformat(since).timestamp()):.0f} s ago by the clocks"
    return f"process {pid} on {host} (since {since}{age})"


def _is_near(about: dict[str, Any]) -> bool:
    """Whether its process can be looked up from here."""
    return bool(_machine()) and about.get("machine") == _machine()


def _has_ended(about: dict[str, Any]) -> bool:
    return _is_near(about) and type(about.get("pid")) is int and _started(about["pid"]) != about.get("started")


def _machine() -> str:
    """This run of this machine, with the name space of its process numbers; empty where it has no name."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """When a process started, in ticks of the machine, because numbers are used again; empty if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
