"""One run at a time into an output: others are refused by name, dead owners are replaced, paused ones stop."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from fwnkf.errors import InUseError
from fwnkf.scale import lock as module
from fwnkf.scale.batch import batch
from fwnkf.scale.lock import Lock
from fwnkf.scale.manifest import LOCKS, MANIFEST
from fwnkf.scale.store import Store

from .fleets import CHANNELS, digest, rows, save_filter, walks, write


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_filter(tmp_path_factory.mktemp("filter"))


@pytest.fixture
def store(tmp_path):
    return Store(str(tmp_path / "out"))


@pytest.fixture
def quick(monkeypatch):
    for name, value in (("BEAT", 0.05), ("LEASE", 0.5), ("PAUSE", 0.05)):
        monkeypatch.setattr(module, name, value)


def run(folder: Path, model: Path, output: str = "out", **options):
    return batch(str(folder / "in"), str(folder / output), model, channels=CHANNELS, batch_size=16, **options)


def locks(store: Store) -> list[str]:
    return [name for name, _ in store.files(LOCKS)]


def test_a_second_owner_is_refused_by_name(store, quick):
    with Lock(store), pytest.raises(InUseError, match=f"in use by process {os.getpid()} on .*since 20"), Lock(store):
        pass
    with Lock(store) as lock:
        assert lock.notes == []
        assert len(locks(store)) == 1
    assert locks(store) == []


def test_of_many_at_the_same_moment_at_most_one_holds(store, quick):
    """Processes that all want the lock: two never hold it together, and in the end each had it or was refused."""
    context = multiprocessing.get_context("fork")
    log = context.SimpleQueue()

    def want():
        try:
            with Lock(store):
                log.put(("in", time.monotonic()))
                time.sleep(0.05)
                log.put(("out", time.monotonic()))
        except InUseError:
            log.put(("refused", time.monotonic()))

    processes = [context.Process(target=want) for _ in range(6)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    events = []
    while not log.empty():
        events.append(log.get())
    kinds = [kind for kind, _ in sorted(events, key=lambda event: event[1])]
    holding = 0
    for kind in kinds:
        holding += {"in": 1, "out": -1, "refused": 0}[kind]
        assert holding <= 1
    assert kinds.count("in") + kinds.count("refused") == 6
    assert locks(store) == []


@pytest.fixture
def hold(store):
    """A process that takes the lock and keeps it; returns its number when it has it."""
    children = []
    yield lambda: children.append(_hold(store)) or children[-1]
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _hold(store: Store) -> int:
    read, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        with Lock(store):
            os.write(write_end, b"x")
            time.sleep(60)
        os._exit(0)
    os.read(read, 1)
    os.close(read), os.close(write_end)
    return child


def test_the_lock_of_a_dead_process_is_broken_at_once(store, hold):
    child = hold()
    with pytest.raises(InUseError, match=f"process {child}"), Lock(store):
        pass
    os.kill(child, signal.SIGKILL)  # and nobody has waited for it yet
    time.sleep(0.2)
    began = time.monotonic()
    with Lock(store) as lock:
        assert time.monotonic() - began < 5
        assert any(f"process {child}" in note and "has ended" in note for note in lock.notes)
        assert len(locks(store)) == 1


def test_a_number_that_another_process_has_now_is_not_the_owner(store):
    about = {"host": "here", "pid": os.getpid(), "started": "1", "machine": module._machine()}
    store.write(f"{LOCKS}/old.json", store.json_bytes(about))
    with Lock(store) as lock:
        assert len(lock.notes) == 1


@pytest.mark.parametrize("data", [b'{"host": "elsewhere", "pid": 1, "machine": "other"}', b"[]", b"{", b"\xff", b""])
def test_a_lock_of_another_machine_is_broken_when_it_does_not_change(store, quick, data):
    store.write(f"{LOCKS}/foreign.json", data)
    began = time.monotonic()
    with Lock(store) as lock:
        assert time.monotonic() - began >= module.LEASE
        assert any("not renewed" in note for note in lock.notes)
    assert locks(store) == []


def test_a_lock_of_another_machine_that_is_renewed_is_kept(store, hold, quick, monkeypatch):
    child = hold()
    monkeypatch.setattr(module, "_machine", lambda: "another")
    with pytest.raises(InUseError, match=f"process {child}"), Lock(store):
        pass
    os.kill(child, signal.SIGSTOP)  # now it is paused, which looks dead from another machine
    time.sleep(0.2)
    with Lock(store) as lock:
        assert len(lock.notes) == 1
        os.kill(child, signal.SIGCONT)
        time.sleep(10 * module.BEAT)
        lock.check()  # and does not come back


def test_the_clock_does_not_matter(store, hold, quick, monkeypatch):
    """A clock a year ahead breaks no lock that is renewed."""
    hold()
    now = time.time()
    monkeypatch.setattr(module.time, "time", lambda: now + 3e7)
    monkeypatch.setattr(module, "_machine", lambda: "another")
    with pytest.raises(InUseError), Lock(store):
        pass


def days(folder: Path, *numbers: int) -> None:
    columns = walks(3, 60)
    day = ((columns["time"] - 1000.0) / 0.15).astype(int)
    for number in numbers:
        write(folder / "in" / f"{number}.parquet", rows(columns, day == number))


def test_two_overlapping_runs_leave_what_runs_one_after_the_other_leave(tmp_path, model, quick):
    days(tmp_path, 0)
    run(tmp_path, model)
    days(tmp_path, 1)

    def meanwhile(_):
        days(tmp_path, 2)
        for resume in (False, True):
            with pytest.raises(InUseError, match="in use by process"):
                run(tmp_path, model, resume=resume)

    run(tmp_path, model, progress=meanwhile)
    run(tmp_path, model)
    days(tmp_path, 3)
    assert run(tmp_path, model).faults == []
    run(tmp_path, model, "calm")
    assert digest(tmp_path / "out") == digest(tmp_path / "calm")


def test_a_run_whose_lock_was_broken_replaces_nothing(tmp_path, model, quick):
    days(tmp_path, 0)
    run(tmp_path, model)
    before = (tmp_path / "out" / MANIFEST).read_bytes()
    days(tmp_path, 1)

    def broken(_):
        for name in locks(store := Store(str(tmp_path / "out"))):
            store.delete(name)

    with pytest.raises(InUseError, match="another run has taken the output over"):
        run(tmp_path, model, progress=broken)
    assert (tmp_path / "out" / MANIFEST).read_bytes() == before
    run(tmp_path, model, resume=True)
    run(tmp_path, model, "calm")
    assert digest(tmp_path / "out") == digest(tmp_path / "calm")


def test_a_manifest_that_changed_meanwhile_is_not_replaced(tmp_path, model):
    """Also where a lock could not help: a copy brought back, or a store whose listings lag."""
    days(tmp_path, 0)
    run(tmp_path, model)
    days(tmp_path, 1)
    path = tmp_path / "out" / MANIFEST
    other = json.dumps(json.loads(path.read_text()))

    with pytest.raises(InUseError, match="another run has written"):
        run(tmp_path, model, progress=lambda _: path.write_text(other))
    assert path.read_text() == other
    run(tmp_path, model, resume=True)
    run(tmp_path, model, "calm")
    assert digest(tmp_path / "out") == digest(tmp_path / "calm")
