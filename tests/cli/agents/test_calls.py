"""Calls without the protocol: schemas, hostile arguments, and files that lead out of their folder."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import tempfile
from pathlib import Path

import pytest

anyio = pytest.importorskip("anyio")
pytest.importorskip("mcp")

from fwnkf.cli.agents import server  # noqa: E402
from fwnkf.cli.agents.folders import Folders  # noqa: E402
from fwnkf.cli.agents.tools import TOOLS  # noqa: E402
from fwnkf.cli.main import main, parser  # noqa: E402
from fwnkf.errors import DataError  # noqa: E402

from .hostile import SECRET, hostile_calls, set_traps, state  # noqa: E402

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="links and pipes of POSIX"),
    pytest.mark.process,
]
PLACES = ("open", "os.listdir", "os.scandir", "os.mkdir", "os.remove", "os.rmdir", "os.rename", "os.link", "os.symlink")
touched: list[str] | None = None


def watch(event, arguments):
    """The audit hook of this module, which cannot be removed and is idle but for one test."""
    if touched is not None and event in PLACES and isinstance(arguments[0], str | bytes | os.PathLike):
        touched.append(os.fsdecode(arguments[0]))


@pytest.fixture
def traps(tmp_path):
    return set_traps(tmp_path)


async def nowhere(passed, line):
    """Takes the progress of a call."""


def answer(calls, name, arguments):
    """The answer to a call, and its texts."""
    result = anyio.run(calls.call, name, arguments, nowhere)
    return result, "\n".join(block.text for block in result.content if block.type == "text")


def test_a_thousand_hostile_calls_touch_nothing_outside(traps, monkeypatch):
    """The server's part: every path that it opens, and every word that it would hand to a worker."""
    global touched
    sys.addaudithook(watch)
    jobs, before = [], state(traps.outside)

    async def not_run(job, roots, scratch, seconds, report):
        jobs.append((job, scratch))
        raise DataError("not run")

    async def session():
        calls = server.Calls(Folders([traps.inside]))
        return [await calls.call(name, given, nowhere) for name, given in hostile_calls(traps, 1000)]

    monkeypatch.setattr(server, "_run", not_run)
    touched = []
    try:
        results = anyio.run(session)
    finally:
        seen, touched = touched, None
    assert len(results) == 1000
    texts = [result.content[0].text for result in results]
    refused = sum(result.is_error for result in results)
    assert 10 < len(jobs) < 300
    assert refused > 850
    assert all(len(text) < 20_000 and SECRET not in text and "Traceback" not in text for text in texts)
    assert state(traps.outside) == before
    inside, scratch = str(traps.inside.resolve()), os.path.join(tempfile.gettempdir(), "fwnkf-")
    software = tuple(os.path.realpath(place) for place in (sys.prefix, sys.base_prefix, *sys.path) if place)
    assert [place for place in seen if place.startswith(inside)]
    assert [place for place in map(os.path.abspath, seen) if not place.startswith((inside, scratch, *software))] == []
    for job, folder in jobs:
        for word in job.words:
            value = word.partition("=")[2] if word.startswith("--") else word
            if value.startswith("/") and not word.startswith(("--channels", "--field", "--topic", "--time", "--thr")):
                assert Path(value).is_relative_to(traps.inside.resolve()) or Path(value).is_relative_to(folder), word


def test_what_is_offered_cannot_execute_code_or_name_other_files():
    """Every option of the commands is either offered, or is one of these."""
    left_out = {"help", "json", "modules", "fail_on", "all", "truth", "plots", "encoder", "encoder_steps", "fleet",
                "workers", "address", "quiet", "rerun", "mcap"}  # fmt: skip
    for name, tool in TOOLS.items():
        (choices,) = (action for action in parser(name)._actions if action.dest == "command")
        options = {action.dest for action in choices.choices[name]._actions}
        offered = {*tool.reads, *tool.writes, *tool.takes}
        assert offered <= options
        assert options - offered <= left_out, name
        paths = {action.dest for action in choices.choices[name]._actions if action.type is Path}
        assert paths - left_out <= {*tool.reads, *tool.writes}, name


def test_a_value_is_never_an_option(traps):
    calls = server.Calls(Folders([traps.inside]))
    _, text = answer(calls, "diagnose", {"log": "log.csv", "channels": "--import=antigravity"})
    assert "--import=antigravity" in text or "import=antigravity" in text
    assert "no signal" in text or "column" in text


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("diagnose", {}, "needs log"),
        ("diagnose", {"log": 3}, "wanted a value of type string, not 3"),
        ("diagnose", {"log": "log.csv", "fix": "yes"}, "wanted a value of type boolean"),
        ("diagnose", {"log": "log.csv", "fix": True}, "fix needs save"),
        ("diagnose", {"log": "log.csv", "modules": ["os"]}, "has no argument modules; it has log"),
        ("diagnose", {"log": "log.csv", "output": "r.html", "params": "r.html"}, "the same path"),
        ("run", {"log": "log.csv", "filter": "deep", "output": "o.csv", "engine": "exec"}, "wanted one of auto, loop"),
        ("run", {"log": "log.csv", "filter": "deep", "output": "o.csv", "lag": 10**30}, "too large"),
        ("navigate", {"log": "log.csv", "begin": True}, "wanted a value of type number"),
        ("fit", {"data": "my.yaml", "output": "new"}, "a file that ends in .csv, .parquet"),
        ("exec", {}, "there is no tool 'exec'; there are files, diagnose, navigate, fit, run, inspect"),
        ("files", {"folder": "log.csv"}, "is not a folder"),
    ],
)
def test_a_wrong_call_is_refused_with_a_reason_and_no_process(traps, monkeypatch, name, arguments, message):
    (traps.inside / "my.yaml").write_text("name: my")
    monkeypatch.setattr(server, "_run", None)
    result, text = answer(server.Calls(Folders([traps.inside])), name, arguments)
    assert result.is_error
    assert message in text


def test_the_answer_is_what_the_command_prints(traps, capsys):
    result, text = answer(server.Calls(Folders([traps.inside])), "diagnose", {"log": "log.csv", "output": "r/new.json"})
    assert not result.is_error
    path = traps.inside.resolve() / "r" / "new.json"
    words = ["diagnose", "--json", str(traps.inside.resolve() / "log.csv"), f"--output={path.with_name('other.json')}"]
    assert main(words) == 0
    there, here = json.loads(text), json.loads(capsys.readouterr().out)
    assert there.pop("command") == f"fwnkf diagnose --json {traps.inside.resolve() / 'log.csv'} --output={path}"
    here.pop("command")
    assert there == here
    (link,) = [block for block in result.content if block.type == "resource_link"]
    assert (link.uri, link.mime_type, link.size) == (path.as_uri(), "application/json", path.stat().st_size)
    assert json.loads(path.read_text())["command"].endswith(f"--output={path}")


def files_that_lead_out(traps):
    """Arguments that are in order, of files that name others."""
    (traps.inside / "filter").mkdir()
    for name in ("config.json", "model.safetensors"):
        (traps.inside / "filter" / name).symlink_to(traps.outside / "secret")
    bag = traps.inside / "bag"
    bag.mkdir()
    database = traps.outside / "secret.db3"
    with sqlite3.connect(database) as connection:
        connection.execute("create table topics(id, name, type, serialization_format, offered_qos_profiles)")
        connection.execute("create table messages(id, topic_id, timestamp, data)")
        connection.execute("insert into topics values (1, ?, 'std_msgs/msg/String', 'cdr', '')", (f"/{SECRET}",))
    connection.close()
    (bag / "metadata.yaml").write_text(
        "rosbag2_bagfile_information:\n  version: 4\n  storage_identifier: sqlite3\n"
        "  relative_file_paths: [../../inside-not/secret.db3]\n"
    )
    (bag / "more.db3").symlink_to(database)
    return [
        ("inspect", {"folder": "filter"}),
        ("diagnose", {"log": "bag"}),
        ("fit", {"data": "tables", "output": "new", "system": "constant_velocity", "channels": "a", "time": "time"}),
    ]


def test_files_that_name_others_lead_nowhere(traps):
    wanted = files_that_lead_out(traps)
    before, calls, results = state(traps.outside), server.Calls(Folders([traps.inside])), {}

    async def one(name, arguments):
        results[name] = await calls.call(name, arguments, nowhere)

    async def session():
        async with anyio.create_task_group() as group:
            for name, arguments in wanted:
                group.start_soon(one, name, arguments)

    anyio.run(session)
    for name, _ in wanted:
        text = results[name].content[0].text
        assert results[name].is_error, (name, text)
        assert SECRET not in text
        assert "not below the folders of this server" in text, text
    assert state(traps.outside) == before
    assert not (traps.inside / "new").exists()


def test_a_call_that_takes_too_long_is_stopped(traps):
    result, text = answer(server.Calls(Folders([traps.inside]), seconds=0.2), "diagnose", {"log": "log.csv"})
    assert result.is_error
    assert "stopped after 0.2 s" in text


def test_too_many_calls_at_once_are_refused(traps, monkeypatch):
    async def waits(job, roots, scratch, seconds, report):
        await anyio.sleep(0.05)
        raise DataError("not run")

    async def session():
        calls, texts = server.Calls(Folders([traps.inside])), []

        async def one():
            result = await calls.call("diagnose", {"log": "log.csv"}, nowhere)
            texts.append(result.content[0].text)

        async with anyio.create_task_group() as group:
            for _ in range(server.WAITING + 3):
                group.start_soon(one)
        return texts

    monkeypatch.setattr(server, "_run", waits)
    texts = anyio.run(session)
    assert sum("calls are running or waiting" in text for text in texts) == 3
