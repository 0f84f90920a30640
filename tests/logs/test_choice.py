"""The one grammar for columns: ``[NAME=]PLACE[*FACTOR]``, in tables and in logs with topics."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fwnkf.errors import ConfigError, DataError
from fwnkf.logs import choose, open_log
from fwnkf.logs.choice import Choice, Pick, find_columns, split_items
from fwnkf.logs.tables import read_signals


def write(path: Path, header: str, rows: np.ndarray) -> Path:
    np.savetxt(path, rows, delimiter=",", header=header, comments="", fmt="%.17g")
    return path


@pytest.mark.parametrize(
    ("text", "pick"),
    [
        ("gps_x=gps_x", ("gps_x", "gps_x", 1.0)),
        ("gyro_x=wx*0.0174533", ("gyro_x", "wx", 0.0174533)),
        ("a = /imu.rates.x / 4", ("a", "/imu.rates.x", 0.25)),
        ("a=b/c*1e-3", ("a", "b/c", 1e-3)),
        ("a=values[3]*-2", ("a", "values[3]", -2.0)),
    ],
)
def test_items_are_read(text, pick):
    assert Pick.parse(text) == pick
    assert Pick.parse(str(Pick.parse(text))) == pick


@pytest.mark.parametrize("text", ["gps_x", "=x", "a=", "a=b*1.2.3", "a=b/0"])
def test_items_that_cannot_be_read_say_how(text):
    with pytest.raises(ConfigError, match=r"give it as NAME=COLUMN|is not a factor"):
        Pick.parse(text)


def test_columns_without_a_role_are_a_signal_under_their_own_names(tmp_path):
    path = write(tmp_path / "scale.csv", "t,load [N],gx,gy,gz,speed", np.arange(60.0).reshape(10, 6))
    log = open_log(path)
    assert [(source.name, source.role) for source in log.sources()] == [("gyro", "gyro"), ("scale", "column")]
    stream = log.signal("scale")
    assert list(stream.columns) == ["load", "speed"]
    assert stream.units["load"] == "N"


def test_a_column_needs_no_topic_and_any_name_will_do(tmp_path):
    path = write(tmp_path / "f7.csv", "t,gps_x,wx [deg/s]", np.arange(30.0).reshape(10, 3))
    log = choose(open_log(path), fields=["gps_x=gps_x", "gyro_x=wx*0.5", "twice=f7.gps_x*2"])
    assert log.signal("imu").columns["gyro_x"].tolist() == (0.5 * np.arange(2.0, 30, 3)).tolist()
    own = log.signal("f7").columns
    assert np.array_equal(own["twice"], 2 * own["gps_x"])
    with pytest.raises(ConfigError, match=r"has no column 'gpsx'; did you mean 'gps_x'\?"):
        choose(open_log(path), fields=["gps_x=gpsx"])


def test_names_are_found_as_signals_first_and_as_columns_otherwise(tmp_path):
    header = "t,gyro_x [deg/s],gyro_y [deg/s],gyro_z [deg/s],load"
    path = write(tmp_path / "run.csv", header, np.arange(50.0).reshape(10, 5))
    log = open_log(path)
    (gyro, names), (own, others) = find_columns(log, ["gyro_x", "load"])
    assert (gyro.role, names, own.role, others) == ("gyro", ("gyro_x",), "column", ("load",))
    assert gyro.columns["gyro_x"][1] == pytest.approx(np.pi / 180)
    with pytest.raises(DataError, match=r"no signal and no column is called nothing.*--field nothing=COLUMN"):
        find_columns(log, ["nothing"])


def test_tables_for_a_fit_give_the_numbers_of_the_log(tmp_path):
    """What `fwnkf fit` reads must be what `fwnkf run` reads."""
    header = "t,gyro_x [deg/s],gyro_y [deg/s],gyro_z [deg/s],alt_cm"
    path = write(tmp_path / "run.csv", header, np.random.default_rng(0).normal(size=(20, 5)))
    names, picks = ["gyro_x", "height"], {"height": Pick.parse("height=alt_cm*0.01")}
    table = read_signals(path, ["t", *names], picks)
    log = choose(open_log(path), fields=["height=alt_cm*0.01"], channels=names)
    for source, columns in find_columns(log, names):
        for name in columns:
            assert np.array_equal(table.column(name), log.signal(source.name).columns[name])
    assert table.unit("gyro_x") == "rad/s"


@pytest.mark.parametrize(
    ("header", "scale"),
    [("t", 1.0), ("time", 1.0), ("time_ms", 1e3), ("timestamp [us]", 1e6), ("stamp", 1e3), ("t", 1e6),
     ("utc_time", 1.0), ("Time (ns)", 1e9), ("my_timestamp", 1.0)],
)  # fmt: skip
def test_time_is_found(tmp_path, header, scale):
    """By name; its unit from the header, or from the values where the header has none."""
    time = np.arange(40) * 0.02
    path = write(tmp_path / "run.csv", f"load,{header}", np.column_stack((np.arange(40), time * scale)))
    stream = open_log(path).signal("run")
    assert np.allclose(stream.time, time, rtol=0, atol=1e-9)
    assert list(stream.columns) == ["load"]


def test_time_can_be_named(tmp_path):
    path = write(tmp_path / "run.csv", "ticks,load", np.column_stack((np.arange(40) * 50, np.arange(40))))
    with pytest.raises(DataError, match=r"no column is the time \(ticks, load\).*--time COLUMN"):
        open_log(path)
    assert np.allclose(open_log(path, time="ticks*1e-4").signal("run").time, np.arange(40) * 0.005)
    assert np.allclose(open_log(path, time="ticks").signal("run").time, np.arange(40) * 0.05)  # taken as ms
    with pytest.raises(DataError, match="no column named 'tocks'"):
        open_log(path, time="tocks")


def test_columns_of_text_are_left_out_of_a_log(tmp_path):
    path = tmp_path / "run.csv"
    path.write_text("t,mode,load\n0.0,,1\n0.1,idle,2\n0.2,run,3\n")
    log = open_log(path)
    assert log.signal("run").columns["load"].tolist() == [1.0, 2.0, 3.0]
    assert any("columns of text are left out: mode" in note for note in log.notes)


def test_a_choice_is_saved_and_what_is_given_comes_first(tmp_path):
    choice = Choice.parse("height=alt*0.01,vz", "u", None, ["speed=v/3.6"], [], "stamp")
    assert choice.channels == ("height", "vz")
    choice.save(tmp_path)
    saved = Choice.load(tmp_path)
    assert saved == choice
    merged = Choice.parse("height=other").completed(saved)
    assert (merged.channels, merged.controls, merged.time) == (("height",), ("u",), "stamp")
    assert merged.fields == ("height=other", "speed=v/3.6")
    assert split_items(None) == ((), ())
    assert Choice.load(tmp_path / "none") is None


@pytest.mark.parametrize("content", ["[]", "{", '{"channels": [1]}', '{"other": []}', '{"time": null}'])
def test_a_damaged_choice_is_named(tmp_path, content):
    (tmp_path / "columns.json").write_text(content)
    with pytest.raises(ConfigError, match=r"columns.json is damaged"):
        Choice.load(tmp_path)


def test_fields_of_messages_are_channels_and_may_be_the_time(tmp_path):
    mcap = pytest.importorskip("mcap.writer")
    with (tmp_path / "scale.mcap").open("wb") as file:
        writer = mcap.Writer(file)
        writer.start()
        numbers = {"force": {"type": "number"}, "ticks": {"type": "integer"}}
        schema = writer.register_schema("Scale", "jsonschema", json.dumps({"properties": numbers}).encode())
        channel = writer.register_channel("/scale", "json", schema)
        for step in range(50):
            data = json.dumps({"force": 0.5 * step, "ticks": 10_000 * step}).encode()
            writer.add_message(channel, 10**15 + 20_000_000 * step, data, 10**15 + 20_000_000 * step)
        writer.finish()
    log = open_log(tmp_path / "scale.mcap")
    assert [(source.name, source.role) for source in log.sources()] == [("/scale", "column")]
    assert np.allclose(np.diff(log.signal("/scale").time), 0.02)
    timed = open_log(tmp_path / "scale.mcap", time="ticks*1e-6")
    assert np.allclose(np.diff(timed.signal("/scale").time), 0.01)
    chosen = choose(timed, fields=["load=force*2"])
    assert np.array_equal(chosen.signal("/scale").columns["load"], np.arange(50.0))
    (block,) = chosen.blocks({"/scale": ["force"]})
    assert list(block["/scale"].columns) == ["force"]
    assert np.allclose(np.diff(block["/scale"].time), 0.01)
