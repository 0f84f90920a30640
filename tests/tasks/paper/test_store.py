"""The store: whole after any kill, the same file in any order, and several writers."""

from __future__ import annotations

import math
import multiprocessing
from pathlib import Path

import pytest

from fwnkf.errors import DataError
from tasks.paper.store import Store


def row(key: str, **more: object) -> dict[str, object]:
    return {"key": key, "status": "done", "metrics": {"mse": math.inf, "nis": math.nan}, "errors": [0.5], **more}


def test_rows_come_back_in_the_order_of_their_keys(tmp_path):
    store = Store(tmp_path / "a" / "runs.jsonl")
    assert store.rows() == {}
    store.add([row("b/1")])
    store.add([row("a/2"), row("b/1", seed=3)])
    rows = store.rows()
    assert list(rows) == ["a/2", "b/1"]
    assert rows["b/1"]["seed"] == 3
    assert rows["a/2"]["metrics"] == {"mse": math.inf, "nis": None}
    other = Store(tmp_path / "b.jsonl")
    other.add([row("b/1", seed=3)])
    other.add([row("a/2")])
    assert other.path.read_bytes() == store.path.read_bytes()


def test_what_a_killed_writer_leaves_is_no_harm(tmp_path):
    store = Store(tmp_path / "runs.jsonl")
    store.add([row("a")])
    (tmp_path / "runs.jsonl.part").write_text('{"key": "b", "sta')
    assert list(store.rows()) == ["a"]
    store.add([row("c")])
    assert list(store.rows()) == ["a", "c"]


@pytest.mark.parametrize("line", ["{", "[]", '{"key": "a"}', '{"format": 99, "key": "a"}'])
def test_a_damaged_line_is_named(tmp_path, line):
    store = Store(tmp_path / "runs.jsonl")
    store.add([row("a")])
    with store.path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(DataError, match="line 2"):
        store.rows()


def _write(path: Path, writer: int) -> None:
    for number in range(20):
        Store(path).add([row(f"{writer}/{number}")])


def test_several_writers_lose_no_row(tmp_path):
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write, args=(tmp_path / "runs.jsonl", writer)) for writer in range(3)]
    for process in writers:
        process.start()
    for process in writers:
        process.join()
    assert len(Store(tmp_path / "runs.jsonl").rows()) == 60
