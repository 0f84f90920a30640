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


def files(store: Store) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in store.folder.iterdir()}


def test_rows_come_back_in_the_order_of_their_keys(tmp_path):
    store = Store(tmp_path / "a")
    assert store.rows() == {}
    store.add([row("b/1")])
    store.add([row("a/2"), row("b/1", seed=3)])
    rows = store.rows()
    assert list(rows) == ["a/2", "b/1"]
    assert rows["b/1"]["seed"] == 3
    assert rows["a/2"]["metrics"] == {"mse": math.inf, "nis": None}
    other = Store(tmp_path / "b")
    other.add([row("b/1", seed=3)])
    other.add([row("a/2")])
    assert files(other) == files(store)


def test_each_table_has_a_file(tmp_path):
    store = Store(tmp_path)
    store.add([row("lorenz/strict/kf/0/1"), row("lorenz/paper/kf/0/1"), row("runtime/kf"), row("lorenz/paper/kf/0/0")])
    before = files(store)
    assert {name: content.count(b"\n") for name, content in before.items()} == {
        "lorenz-paper.jsonl": 2, "lorenz-strict.jsonl": 1, "runtime.jsonl": 1,
    }  # fmt: skip
    store.add([row("lorenz/strict/kf/0/1", seed=1)])
    assert {name for name, content in files(store).items() if content != before[name]} == {"lorenz-strict.jsonl"}
    assert list(store.rows()) == ["lorenz/paper/kf/0/0", "lorenz/paper/kf/0/1", "lorenz/strict/kf/0/1", "runtime/kf"]


def test_what_a_killed_writer_leaves_is_no_harm(tmp_path):
    store = Store(tmp_path)
    store.add([row("a/1")])
    (tmp_path / "a.jsonl.part").write_text('{"key": "b", "sta')
    assert list(store.rows()) == ["a/1"]
    store.add([row("a/3")])
    assert list(store.rows()) == ["a/1", "a/3"]


@pytest.mark.parametrize("line", ["{", "[]", '{"key": "a"}', '{"format": 99, "key": "a"}'])
def test_a_damaged_line_is_named(tmp_path, line):
    store = Store(tmp_path)
    store.add([row("a/1")])
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(DataError, match=r"a\.jsonl, line 2"):
        store.rows()


def _write(folder: Path, writer: int) -> None:
    for number in range(20):
        Store(folder).add([row(f"a/b/{writer}/{number}")])


def test_several_writers_lose_no_row(tmp_path):
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write, args=(tmp_path, writer)) for writer in range(3)]
    for process in writers:
        process.start()
    for process in writers:
        process.join()
    assert len(Store(tmp_path).rows()) == 60
