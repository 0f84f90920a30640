"""A few injected faults of each kind; ``python -m tests.hardening.faults`` runs thousands."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal

import pytest

from fwnkf.errors import DataError

pytest.importorskip("pyarrow")
if not hasattr(os, "fork"):
    pytest.skip("the harness forks", allow_module_level=True)

from . import children, faults, faults_batch, faults_stream

COUNTS = {"stream": 3, "batch": 2, "keyed": 1}


@pytest.mark.process
@pytest.mark.parametrize("target", list(faults.TARGETS))
def test_disturbed_runs_end_in_the_bytes_of_calm_ones(target):
    kind = target.split("-")[0]
    if kind == "keyed":
        pytest.importorskip("redis")
        if shutil.which("redis-server") is None:
            pytest.skip("needs redis-server")
    outcomes = faults.run(target, COUNTS[kind], seed=0)
    assert outcomes["failed"] == 0
    assert outcomes.total() == COUNTS[kind]


def test_a_run_is_written_as_rows_of_blocks(tmp_path, monkeypatch):
    """With a target that fails: failures are counted, and repeated by their number and seed."""
    seen = []

    def odd(dice, folder):
        seen.append(dice.random())
        assert len(seen) % 2, "even"
        return "fine"

    monkeypatch.setitem(faults.TARGETS, "odd", odd)
    monkeypatch.setattr(faults, "BLOCK", 3)
    assert faults.run("odd", 4, 7, tmp_path / "rows", "it") == {"fine": 2, "failed": 2}
    rows = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    assert [(row["cases"], row["failures"]) for row in rows] == [(3, 1), (1, 1)]
    assert seen == [random.Random(f"odd 7 {number}").random() for number in range(4)]


def test_the_harness_sees_other_bytes(tmp_path, monkeypatch):
    """It must be able to fail: a stream whose snapshot loses a sample, and children that end in every way."""
    items = faults_stream.samples(random.Random(0))
    with pytest.raises(AssertionError, match="other bits"):
        faults_stream.same(faults_stream.feed(faults_stream.stream(), [*items[:-2], items[-1]]), items)
    wanted = faults_batch.calm(0)
    faults_batch.deliver(tmp_path, 0)
    shutil.copytree(wanted, tmp_path / "out")
    (tmp_path / "out" / "0" / "ab.parquet").write_bytes(b"other")
    with pytest.raises(AssertionError, match=r"other files: \['0/ab.parquet'\]"):
        faults_batch.finish(tmp_path, wanted)

    def named():
        raise DataError("named")

    def full():
        raise OSError(28, "full")

    def without_a_name():
        raise KeyError("oops")

    assert children.wait(children.start(lambda: True)) == children.DONE
    assert children.wait(children.start(lambda: False)) == children.WITH_FAULTS
    assert children.wait(children.start(named)) == children.NAMED
    assert children.wait(children.start(full)) == children.SYSTEM
    assert children.wait(children.start(lambda: os.kill(os.getpid(), signal.SIGKILL))) == -signal.SIGKILL
    with pytest.raises(AssertionError, match="without a name"):
        children.wait(children.start(without_a_name))
