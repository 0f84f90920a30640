"""A device whose state is missing or damaged is named and waits; it never starts anew, and others go on."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from fwnkf.cli import main
from fwnkf.errors import DataError
from fwnkf.scale.batch import batch
from fwnkf.scale.manifest import MANIFEST, STATES

from .fleets import CHANNELS, digest, rows, save_filter, walks, write


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_filter(tmp_path_factory.mktemp("filter"))


def run(folder, model, output="out", **options):
    return batch(str(folder / "in"), str(folder / output), model, channels=CHANNELS, batch_size=16, **options)


@pytest.fixture
def days(tmp_path):
    """Writes a day of two files with two devices each."""
    columns = walks(4, 60)
    day = ((columns["time"] - 1000.0) / 0.15).astype(int)

    def put(number: int) -> None:
        for k, name in enumerate(("ab", "cd")):
            mine = np.isin(columns["device"], [f"device-{2 * k + j:05}" for j in (0, 1)])
            write(tmp_path / "in" / f"{number}" / f"{name}.parquet", rows(columns, mine & (day == number)))

    return put


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0x40
    path.write_bytes(data)


@pytest.mark.parametrize("damage", ["folder", "file", "bit", "torn"])
def test_a_device_without_its_state_waits_and_goes_on_when_it_is_back(tmp_path, model, days, damage):
    days(0)
    run(tmp_path, model)
    run(tmp_path, model, "calm")
    states = tmp_path / "out" / STATES
    shutil.copytree(states, tmp_path / "copy")
    lost = states / "0" / "ab.parquet"
    if damage == "folder":
        shutil.rmtree(states)
    elif damage == "file":
        lost.unlink()
    elif damage == "bit":
        flip(lost)
    else:
        lost.write_bytes(lost.read_bytes()[:100])
    for number in (1, 2):  # the day after has to wait too
        days(number)
        result = run(tmp_path, model)
        run(tmp_path, model, "calm")
        waiting = {"1/ab.parquet", "1/cd.parquet"} if damage == "folder" else {"1/ab.parquet"}
        named = [fault for fault in result.faults if fault["input"] in waiting]
        wanted = {f"device-{k:05}" for k in range(2 * len(waiting))}
        assert {fault["device"] for fault in named} == wanted
        assert all(("is missing" in k["reason"]) or ("is damaged" in k["reason"]) for k in named)
        assert all("0/ab.parquet" in k["reason"] or "0/cd.parquet" in k["reason"] for k in named)
        assert all("Bring that file back" in k["reason"] for k in named)
        assert not (tmp_path / "out" / str(number) / "ab.parquet").exists()
        if damage != "folder":
            name = f"{number}/cd.parquet"
            assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "calm" / name).read_bytes()
    (states / "0").mkdir(parents=True, exist_ok=True)
    for name in ("ab.parquet", "cd.parquet") if damage == "folder" else ("ab.parquet",):
        shutil.copy(tmp_path / "copy" / "0" / name, states / "0" / name)
    assert run(tmp_path, model).faults == []
    assert digest(tmp_path / "out") == digest(tmp_path / "calm")


def test_the_command_names_device_and_file_and_ends_with_1(tmp_path, model, days, capsys):
    days(0)
    run(tmp_path, model)
    (tmp_path / "out" / STATES / "0" / "cd.parquet").unlink()
    (note,) = run(tmp_path, model).notes  # said before it matters
    assert "2 device(s) cannot go on" in note
    assert "device-00002" in note
    days(1)
    words = ["batch", "--input", str(tmp_path / "in"), "--output", str(tmp_path / "out"), "--filter", str(model)]
    assert main([*words, "--channels", ",".join(CHANNELS)]) == 1
    text = capsys.readouterr().out
    assert "1/cd.parquet device-00002" in text
    assert "_state/0/cd.parquet is missing" in text


def test_a_lost_manifest_is_not_an_empty_output(tmp_path, model, days):
    """Also when only the newest day is still in the input."""
    days(0)
    run(tmp_path, model)
    (tmp_path / "out" / MANIFEST).unlink()
    shutil.rmtree(tmp_path / "in" / "0")
    days(1)
    before = digest(tmp_path / "out")
    for resume in (False, True):
        with pytest.raises(DataError, match=r"_manifest\.json is missing, although a run into it has finished"):
            run(tmp_path, model, resume=resume)
    assert digest(tmp_path / "out") == before


def test_without_the_statistics_nothing_is_filtered(tmp_path, model, days):
    """Which devices a lost file was of can then not be known."""
    days(0)
    run(tmp_path, model)
    shutil.rmtree(tmp_path / "out" / STATES)
    flip(tmp_path / "out" / "_fleet" / "0" / "ab.parquet")
    days(1)
    before = digest(tmp_path / "out")
    with pytest.raises(DataError, match=r"_state/0/ab\.parquet is missing.*_fleet/0/ab\.parquet is damaged"):
        run(tmp_path, model)
    assert digest(tmp_path / "out") == before


def test_states_that_a_first_version_deleted_are_not_lost(tmp_path, model, days):
    """Its manifests name the states of all parts, also those that were deleted because all devices have later ones."""
    for number in (0, 1):
        days(number)
        run(tmp_path, model)
        run(tmp_path, model, "calm")
    path = tmp_path / "out" / MANIFEST
    value = json.loads(path.read_text())
    for part in value["parts"]:
        part["state"] = f"_state/{part['input']}"
        part.pop("state_sha256", None)
        part.pop("fleet_sha256")
    path.write_text(json.dumps({**value, "format": 1}))
    days(2)
    assert run(tmp_path, model).faults == run(tmp_path, model, "calm").faults == []
    for name in ("2/ab.parquet", "2/cd.parquet", "_state/2/ab.parquet"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "calm" / name).read_bytes()
    (tmp_path / "out" / STATES / "2" / "ab.parquet").unlink()
    days(3)
    assert {fault["device"] for fault in run(tmp_path, model).faults} == {"device-00000", "device-00001"}


def test_a_device_that_was_set_aside_goes_on_from_the_state_before(tmp_path, model, days):
    """Within one run and from run to run: its day is refused, the next one goes on from the day before."""
    days(0), days(2)
    columns = walks(4, 60)
    day = ((columns["time"] - 1000.0) / 0.15).astype(int)
    bad = rows(columns, (day == 1) & np.isin(columns["device"], ["device-00000", "device-00001"]))
    first = bad["device"] == "device-00000"
    bad["time"][np.flatnonzero(first)[3]] -= 0.05
    write(tmp_path / "in" / "1" / "ab.parquet", bad)
    result = run(tmp_path, model)
    assert [fault["device"] for fault in result.faults] == ["device-00000"]
    shutil.copytree(tmp_path / "in", tmp_path / "whole")
    write(tmp_path / "whole" / "1" / "ab.parquet", rows(bad, ~first))  # the same without the refused samples
    batch(str(tmp_path / "whole"), str(tmp_path / "other"), model, channels=CHANNELS, batch_size=16)
    for output in ("out", "other"):
        assert (tmp_path / output / "2" / "ab.parquet").exists()
    assert (tmp_path / "out" / "2" / "ab.parquet").read_bytes() == (
        tmp_path / "other" / "2" / "ab.parquet"
    ).read_bytes()
