"""`fwnkf watch` on standard input, growing files and a Redis stream."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import fwnkf
from fwnkf.cli import main
from fwnkf.data.live import Columns, LineReader, Row
from fwnkf.errors import DataError
from fwnkf.logs import read_table

from .test_run import CHANNELS, save_imu_filter, write_log

pytestmark = pytest.mark.unchecked("processes of their own, which know nothing of the runtime shape checks")

COMMAND = [sys.executable, "-m", "fwnkf.cli", "watch"]
TIME = 0.01 * np.arange(80)
VALUES = np.random.default_rng(0).normal(size=(80, 6))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Of a saved filter."""
    place = tmp_path_factory.mktemp("watched") / "filter"
    save_imu_filter(place)
    return place


def lines() -> list[str]:
    """The samples as a table."""
    rows = np.column_stack((TIME, VALUES)).tolist()
    return [",".join(["t [s]", *CHANNELS]), *(",".join(map(repr, row)) for row in rows)]


def check_estimates(path: Path, folder: Path) -> None:
    """They are those of a stream that is given the same samples."""
    stream = fwnkf.Stream(fwnkf.load(folder))
    expected = np.stack([stream.step(row, t=float(at)).mean for at, row in zip(TIME, VALUES, strict=True)])
    table = read_table(path)
    assert np.array_equal(np.stack([table.column(name) for name in CHANNELS], 1), expected)
    assert np.allclose(table.column("time"), TIME)


def test_lines_of_standard_input(folder, tmp_path):
    out = tmp_path / "out.csv"
    words = [*COMMAND, "-", "--filter", str(folder), "-o", str(out), "--json", "--every", "0.01"]
    text = "\n".join([*lines(), "1,2", "no,number,at,all,in,this,line"]) + "\n"
    done = subprocess.run(words, input=text, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    check_estimates(out, folder)
    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["samples"], last["unused"], last["health"]) == (80, 2, "ok")
    assert set(last["mean"]) == set(CHANNELS)
    assert "line 82 is not used: it has 2 values, and the header 7 names" in done.stderr
    assert f"wrote {out}" in done.stderr


def test_a_growing_table_until_ctrl_c(folder, tmp_path):
    """Appended in pieces that end inside a line; Ctrl-C finishes the files and is no error."""
    pytest.importorskip("rerun")
    log, out, shown = tmp_path / "log.csv", tmp_path / "out.csv", tmp_path / "shown.rrd"
    text = "\n".join(lines()) + "\n"
    log.write_text(text[:333])
    words = [
        *COMMAND,
        str(log),
        "--filter",
        str(folder),
        "-o",
        str(out),
        "--rerun",
        str(shown),
        "--json",
        "--every",
        "0.1",
    ]
    # a process that was started in the background ignores Ctrl-C, and so would its children
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    signal.signal(signal.SIGINT, before)
    assert process.stdout is not None
    try:
        for part in (text[333:2001], text[2001:]):
            time.sleep(0.5)
            with log.open("a") as file:
                file.write(part)
        for line in process.stdout:
            if json.loads(line)["samples"] == 80:
                break
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, error
    check_estimates(out, folder)
    assert f"wrote {shown}" in error
    from ..report.viewers.test_files import scalars

    assert [row[0] for row in scalars(shown, "/state/gyro/gyro_x")] == read_table(out).column("gyro_x").tolist()


def test_a_growing_log(folder, tmp_path, capsys):
    """A log of another format is opened again when it has grown; here it is complete, and the command ends idle."""
    write_log(tmp_path / "imu.mcap")
    words = ["watch", str(tmp_path / "imu.mcap"), "--filter", str(folder), "--idle", "0.5", "--json"]
    assert main([*words, "--mcap", str(tmp_path / "shown.mcap")]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["samples"] == 300
    assert (tmp_path / "shown.foxglove.json").is_file()


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="needs redis-server")
def test_a_redis_stream(folder, tmp_path):
    redis = pytest.importorskip("redis")
    sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "howto"))
    try:
        import keyed_stream
    finally:
        sys.path.pop(0)
    (tmp_path / "redis").mkdir()
    server, url = keyed_stream.start_server(tmp_path / "redis")
    try:
        client = redis.Redis.from_url(url)
        for at, row in zip(TIME.tolist(), VALUES.tolist(), strict=True):
            client.xadd("imu", {"time": repr(at), **dict(zip(CHANNELS, map(repr, row), strict=True))})
        client.xadd("imu", {"time": "9", "gyro_x": "fast"})
        out = tmp_path / "out.csv"
        words = [*COMMAND, url, "--stream", "imu", "--filter", str(folder), "-o", str(out), "--idle", "1"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    finally:
        server.terminate()
        server.wait()
    assert done.returncode == 0, done.stderr
    check_estimates(out, folder)
    assert "1 rows not used" in done.stderr


def test_a_server_that_is_not_there_is_named_without_its_password(folder, capsys):
    pytest.importorskip("redis")
    assert main(["watch", "redis://:secret@127.0.0.1:1/0", "--filter", str(folder)]) == 1
    error = capsys.readouterr().err
    assert "127.0.0.1:1" in error
    assert "secret" not in error


def test_nothing_to_use_is_a_failure(folder, tmp_path, capsys):
    (tmp_path / "log.csv").write_text("t,pressure\n0,1\n1,2\n")
    assert main(["watch", str(tmp_path / "log.csv"), "--filter", str(folder), "--idle", "0.3"]) == 1
    assert "none of the channels: gyro_x" in capsys.readouterr().err
    assert main(["watch", "http://example.org", "--filter", str(folder)]) == 2


def test_columns_have_factors_and_the_time_its_unit():
    columns = Columns(("height",), (), ("height=alt_cm*0.01",))
    sample = columns.sample(Row({"time_ms": 1500.0, "alt_cm": 250.0}), {})
    assert (sample.time, sample.y.tolist(), sample.u) == (1.5, [2.5], None)
    named = Columns(("x",), (), (), "ticks*1e-4")
    assert named.sample(Row({"ticks": 20_000.0, "x": 1.0}), {}).time == 2.0
    assert Columns(("x",), ()).sample(Row({"x": 1.0}, 7.0), {}).time == 7.0
    with pytest.raises(DataError, match="--time COLUMN"):
        Columns(("x",), ()).sample(Row({"x": 1.0}), {})


@pytest.mark.parametrize("line", ["{", "[1]", '{"t": [1]}', "1,2", "\x00", '{"t": ' * 5000])
def test_lines_that_are_no_rows_are_refused(line):
    reader = LineReader()
    found = reader(line)
    assert isinstance(found, DataError) or found is None
    if found is None:  # taken for a header, below which numbers do not fit
        assert isinstance(reader("1,2,3"), DataError)
