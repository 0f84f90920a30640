"""What a confined process can open: in a process of its own, because a guard cannot be taken off again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from fwnkf.cli.agents.sandbox import landlock_version

from .hostile import SECRET, set_traps, state

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="links and pipes of POSIX")

PROGRAM = """
import ctypes, json, os, shutil, sqlite3, subprocess, sys
from pathlib import Path
from fwnkf.cli.agents import sandbox
inside, outside, own, guards = sys.argv[1:]
bounds = sandbox.Bounds.of([inside], [own])
if guards == "python":
    sys.addaudithook(sandbox._Guard(bounds))
elif guards == "kernel":
    sandbox._landlock(bounds)
else:
    sandbox.confine(bounds)
libc = ctypes.CDLL(None)
def in_c(path):
    handle = libc.open(os.fsencode(path), 0)
    if handle < 0:
        raise PermissionError(path)
    os.close(handle)
def in_a_child(path):
    subprocess.run(["cat", path], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
def database(path):
    sqlite3.connect(f"file:{path}?mode=ro", uri=True).execute("select 1 from sqlite_master")
tries = {
    "read": lambda: open(f"{outside}/secret").read(),
    "read through a link": lambda: open(f"{inside}/link.csv").read(),
    "read through a folder": lambda: open(f"{inside}/link/secret").read(),
    "read by number": lambda: os.open(f"{outside}/secret", os.O_RDONLY),
    "list": lambda: os.listdir(outside),
    "walk": lambda: list(os.scandir(f"{inside}/link")),
    "database": lambda: database(f"{outside}/secret"),
    "environment": lambda: open("/proc/self/environ").read(),
    "users": lambda: open("/etc/passwd").read(),
    "write": lambda: open(f"{outside}/new", "w"),
    "append": lambda: open(f"{outside}/secret", "a"),
    "write inside": lambda: open(f"{inside}/new", "w"),
    "change inside": lambda: open(f"{inside}/log.csv", "r+"),
    "remove inside": lambda: os.remove(f"{inside}/log.csv"),
    "remove": lambda: os.remove(f"{outside}/secret"),
    "rename": lambda: os.rename(f"{inside}/log.csv", f"{own}/log.csv"),
    "make": lambda: os.mkdir(f"{outside}/new"),
    "remove tree": lambda: shutil.rmtree(f"{inside}/deep"),
    "link": lambda: os.symlink(f"{outside}/secret", f"{own}/link"),
    "in C": lambda: in_c(f"{outside}/secret"),
    "in a child": lambda: in_a_child(f"{outside}/secret"),
}
if guards != "kernel":
    tries["wait for a pipe"] = lambda: open(f"{inside}/pipe.csv").read()
done = []
for name, attempt in tries.items():
    try:
        attempt()
    except (OSError, sqlite3.Error, subprocess.CalledProcessError):
        continue
    done.append(name)
Path(own, "made").write_text(Path(inside, "log.csv").read_text()[:4])
import decimal, xml.dom.minidom  # modules are found
print(json.dumps(done))
"""
BY_THE_KERNEL = {"in C", "in a child"}


@pytest.mark.process
@pytest.mark.parametrize("guards", ["both", "kernel", "python"])
def test_nothing_outside_is_opened(tmp_path, guards):
    if guards == "kernel" and not landlock_version():
        pytest.skip("the kernel has no Landlock")
    traps, own = set_traps(tmp_path), tmp_path / "own"
    own.mkdir()
    before = state(traps.outside), state(traps.inside)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(traps.inside), str(traps.outside), str(own), guards],
        cwd=own, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout
    assert set(json.loads(done.stdout)) == (set() if landlock_version() and guards != "python" else BY_THE_KERNEL)
    assert (state(traps.outside), state(traps.inside)) == before
    assert (own / "made").read_text() == "time"


RACE = """
import os, sys
from fwnkf.cli.agents.sandbox import Bounds, confine
confine(Bounds.of([sys.argv[1]], ["."]))
print("ready", flush=True)
seen = set()
for _ in range(4_000):
    try:
        with open(sys.argv[1] + "/swapped.csv") as file:
            seen.add(file.readline())
    except OSError:
        continue
print(sorted(seen))
"""


@pytest.mark.process
@pytest.mark.skipif(not landlock_version(), reason="the kernel has no Landlock")
def test_a_link_that_changes_all_the_time_never_leads_out(tmp_path):
    traps = set_traps(tmp_path)
    links = [traps.inside / "good.csv", traps.inside / "link.csv"]
    swapped = traps.inside / "swapped.csv"
    with tempfile.TemporaryDirectory() as own:
        reader = subprocess.Popen(
            [sys.executable, "-c", RACE, str(traps.inside)], cwd=own, stdout=subprocess.PIPE, text=True
        )
        assert reader.stdout is not None
        reader.stdout.readline()
        while reader.poll() is None:
            for link in links:
                new = traps.inside / "new"
                new.symlink_to(Path(link).readlink())
                new.replace(swapped)
        printed = reader.stdout.read()
    assert reader.returncode == 0
    assert "gyro_x" in printed  # the reader did get the log
    assert SECRET not in printed
