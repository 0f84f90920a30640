"""A manifest is a file from outside: names lie inside the output, and whatever else it holds is a named error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fwnkf.cli import main
from fwnkf.errors import DataError
from fwnkf.scale.batch import batch, results
from fwnkf.scale.manifest import FORMAT, MANIFEST, PARTS
from fwnkf.scale.store import Store

from .fleets import CHANNELS, digest, rows, save_filter, walks, write

OUTSIDE = (
    "../victim/keep.parquet",
    "/victim/keep.parquet",
    "_state/../../victim/keep.parquet",
    "",
    ".",
    "_state//a",
    7,
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_filter(tmp_path_factory.mktemp("filter"))


@pytest.fixture
def fleet(tmp_path, model):
    """An output with one day, an input with two, and a file outside both."""
    columns = walks(2, 40)
    early = columns["time"] < 1000.2
    write(tmp_path / "in" / "day=0" / "a.parquet", rows(columns, early))
    write(tmp_path / "victim" / "keep.parquet", rows(columns, early))
    run(tmp_path, model)
    write(tmp_path / "in" / "day=1" / "a.parquet", rows(columns, ~early))
    return tmp_path


def run(folder: Path, model: Path, **options):
    return batch(str(folder / "in"), str(folder / "out"), model, channels=CHANNELS, batch_size=16, **options)


def change(folder: Path, function) -> None:
    path = folder / "out" / MANIFEST
    value = json.loads(path.read_text())
    changed = function(value)
    path.write_text(json.dumps(value if changed is None else changed))


@pytest.mark.parametrize("field", ["state", "fleet", "output", "input"])
@pytest.mark.parametrize("name", OUTSIDE)
def test_names_outside_the_folder_are_refused_and_nothing_is_touched(fleet, model, field, name):
    if field == "input" and name == "":
        pytest.skip("the name of an input that is a single file")
    change(fleet, lambda value: value["parts"].append({**value["parts"][0], "input": "gone.parquet", field: name}))
    before = digest(fleet)
    with pytest.raises(DataError, match=f"part 1 .*{field} is"):
        run(fleet, model)
    with pytest.raises(DataError, match=f"part 1 .*{field} is"):
        list(results(str(fleet / "out")))
    assert digest(fleet) == before


@pytest.mark.parametrize("name", ["_manifest.json", "_state/day=0/a.parquet", "_lock/a", "_filter/config.json"])
def test_estimates_are_not_where_other_files_belong(fleet, model, name):
    change(fleet, lambda value: value["parts"][0].update(output=name))
    with pytest.raises(DataError, match="no place of such a file"):
        run(fleet, model)


@pytest.mark.parametrize(
    "text",
    [
        "[]", "null", "3", '"text"', "{", "", "[" * 100_000, "9" * 5000, "\udcff",
        '{"format": 1}', '{"format": true, "settings": {}, "parts": []}', '{"format": 1, "settings": [], "parts": []}',
        '{"format": 1, "settings": {}, "parts": {}}', '{"format": 3, "settings": {}, "parts": []}',
    ],
)  # fmt: skip
def test_other_values_are_a_named_error(fleet, model, text, capsys):
    (fleet / "out" / MANIFEST).write_bytes(text.encode("utf-8", "surrogatepass"))
    before = digest(fleet / "out")
    words = ["batch", "--input", str(fleet / "in"), "--output", str(fleet / "out"), "--filter", str(model)]
    assert main([*words, "--channels", ",".join(CHANNELS)]) == 1
    assert MANIFEST in capsys.readouterr().err
    assert digest(fleet / "out") == before


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("size", -1), ("size", "1"), ("rows", 1.5), ("steps", True), ("sessions", 2**70), ("faults", None),
        ("faults", [1]), ("faults", [{"device": 1, "reason": ""}]), ("sha256", "zz"), ("state_sha256", 1), ("more", 1),
        ("input", None), ("state", None),
    ],
)  # fmt: skip
def test_a_part_of_another_form_is_a_named_error(fleet, model, field, value):
    change(fleet, lambda manifest: manifest["parts"][0].update({field: value}))
    with pytest.raises(DataError, match=f"part 0 is not as fwnkf batch writes it.*{field}"):
        run(fleet, model)


@pytest.mark.parametrize("size", [0, -1, 10**12, "16", None, True])
def test_a_batch_size_is_a_possible_one(fleet, model, size):
    change(fleet, lambda value: value["settings"].update(batch_size=size))
    with pytest.raises(DataError, match="batch_size"):
        batch(str(fleet / "in"), str(fleet / "out"), model, channels=CHANNELS)


def test_a_part_is_there_once_and_missing_fields_are_named(fleet, model):
    change(fleet, lambda value: value["parts"].append(value["parts"][0]))
    with pytest.raises(DataError, match="there twice"):
        run(fleet, model)
    change(fleet, lambda value: {**value, "parts": [{"input": "a"}]})
    with pytest.raises(DataError, match=r"missing.*'rows'"):
        run(fleet, model)


@pytest.mark.parametrize("damage", ["outside", "list", "torn", "state"])
def test_records_of_an_unfinished_run_are_checked_too(fleet, model, damage):
    """A record that cannot be used, or whose files are not those it names: its part is filtered again."""

    def stop(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(fleet, model, progress=stop)
    path = fleet / "out" / PARTS / "day=1" / "a.json"
    text = path.read_text()
    if damage == "state":
        (fleet / "out" / "_state" / "day=1" / "a.parquet").write_bytes(b"torn")
    else:
        outside = json.dumps({**json.loads(text), "state": "../victim/keep.parquet"})
        path.write_text({"outside": outside, "list": "[]", "torn": text[:50]}[damage])
    result = run(fleet, model, resume=True)
    assert any("damaged" in note for note in result.notes)
    assert (fleet / "victim" / "keep.parquet").exists()
    batch(str(fleet / "in"), str(fleet / "once"), model, channels=CHANNELS, batch_size=16)
    assert digest(fleet / "out") == digest(fleet / "once")


def test_a_manifest_of_the_first_format_is_read(fleet, model, tmp_path):
    def older(value):
        parts = [
            {k: v for k, v in part.items() if k not in ("state_sha256", "fleet_sha256")} for part in value["parts"]
        ]
        return {**value, "format": 1, "parts": parts}

    change(fleet, older)
    assert run(fleet, model).faults == []
    batch(str(fleet / "in"), str(tmp_path / "once"), model, channels=CHANNELS, batch_size=16)
    for day in (0, 1):
        name = f"day={day}/a.parquet"
        assert (fleet / "out" / name).read_bytes() == (tmp_path / "once" / name).read_bytes()
    assert json.loads((fleet / "out" / MANIFEST).read_text())["format"] == FORMAT


def test_a_store_has_no_names_outside_its_folder(tmp_path):
    (tmp_path / "keep").write_text("kept")
    store = Store(str(tmp_path / "store"))
    for function in (
        store.delete,
        store.read,
        store.exists,
        store.delete_folder,
        store.files,
        lambda k: store.write(k, b""),
    ):
        for name in ("../keep", "a/../../keep", "/etc/passwd", "a//b", "./a", "a\0"):
            with pytest.raises(DataError, match="inside this folder"):
                function(name)
    assert (tmp_path / "keep").read_text() == "kept"
