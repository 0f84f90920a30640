"""The server as an assistant starts it, with the client of the same package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

anyio = pytest.importorskip("anyio")
mcp = pytest.importorskip("mcp")

from .hostile import SECRET, hostile_calls, set_traps, state, write_table  # noqa: E402

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="links and pipes of POSIX"),
    pytest.mark.process,
]
COMMAND = [sys.executable, "-m", "fwnkf.cli", "mcp", "--root"]


def session(folder: Path, scratch: Path, talk):
    """What a function of a client returns, of a server for a folder."""

    async def run():
        variables = {**os.environ, "TMPDIR": str(scratch)}
        parameters = mcp.StdioServerParameters(command=COMMAND[0], args=[*COMMAND[1:], str(folder)], env=variables)
        async with mcp.Client(mcp.stdio_client(parameters)) as client:
            return await talk(client)

    return anyio.run(run)


@pytest.fixture
def scratch(tmp_path):
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


def test_from_a_table_to_estimates_by_calls_only(tmp_path, scratch):
    """Each call uses what the one before it told."""
    folder = tmp_path / "data"
    folder.mkdir()
    write_table(folder / "log.csv")
    lines = []

    async def told(progress, total, message):
        lines.append((progress, message))

    async def talk(client):
        tools = {tool.name for tool in (await client.list_tools()).tools}
        listed = json.loads((await client.call_tool("files", {})).content[0].text)
        log = str(Path(listed["folder"], listed["entries"][0]["name"]))
        choice = {"channels": "gyro_x", "time": "time"}
        fit = {"data": log, "output": "filter", "system": "constant_velocity", "set": ["dims=1"], "oscillators": "0"}
        fitted = await client.call_tool("fit", {**fit, **choice}, progress_callback=told)
        made = json.loads((await client.call_tool("files", {"folder": "filter"})).content[0].text)
        inspected = await client.call_tool("inspect", {"folder": made["folder"], "pictures": True})
        estimates = await client.call_tool("run", {"log": log, "filter": made["folder"], "output": "out/track.csv"})
        return tools, fitted, made, inspected, estimates

    tools, fitted, made, inspected, estimates = session(folder, scratch, talk)
    assert tools == {"files", "diagnose", "navigate", "fit", "run", "inspect"}
    assert not fitted.is_error, fitted.content
    assert json.loads(fitted.content[0].text)["files"] == ["log.csv"]
    assert {row["name"] for row in made["entries"]} >= {"config.json", "model.safetensors", "report.json"}
    assert [seconds for seconds, _ in lines] == sorted(seconds for seconds, _ in lines)
    assert any(message for _, message in lines)
    assert json.loads(inspected.content[0].text)["system"] == "constant_velocity"
    summary = json.loads(estimates.content[0].text)
    track = folder.resolve() / "out" / "track.csv"
    assert (summary["output"], summary["samples"]) == (str(track), 500)
    assert [block.uri for block in estimates.content if block.type == "resource_link"] == [track.as_uri()]
    assert sum(line[:1].isdigit() for line in track.read_text().splitlines()) == 500
    assert list(scratch.iterdir()) == []


def test_a_call_that_the_client_gives_up_ends_its_process(tmp_path, scratch):
    folder = tmp_path / "data"
    folder.mkdir()
    write_table(folder / "log.csv")

    async def talk(client):
        with pytest.raises(mcp.MCPError, match="timed out"):
            await client.call_tool("diagnose", {"log": "log.csv"}, read_timeout_seconds=0.5)
        limit = time.monotonic() + 10
        while list(scratch.iterdir()) and time.monotonic() < limit:
            await anyio.sleep(0.05)
        return list(scratch.iterdir()), (await client.call_tool("files", {})).is_error

    assert session(folder, scratch, talk) == ([], False)
    if sys.platform == "linux":
        assert [line for line in processes() if str(scratch) in line] == []


@pytest.mark.skipif(sys.platform != "linux", reason="a process ends with its parent on Linux")
def test_a_server_that_is_killed_takes_its_calls_with_it(tmp_path, scratch):
    write_table(tmp_path / "log.csv")
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "short", "version": "0"}}
    messages = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "diagnose", "arguments": {"log": "log.csv"}}},
    ]
    with subprocess.Popen(
        [*COMMAND, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        text=True, env={**os.environ, "TMPDIR": str(scratch)},
    ) as server:  # fmt: skip
        assert server.stdin is not None
        server.stdin.write("".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages))
        server.stdin.flush()
        limit = time.monotonic() + 30
        while not any(str(scratch) in line for line in processes()) and time.monotonic() < limit:
            time.sleep(0.02)
        time.sleep(0.5)  # until it has asked for the signal
        began = [line for line in processes() if str(scratch) in line]
        server.kill()
    assert len(began) == 1
    limit = time.monotonic() + 5
    while any(str(scratch) in line for line in processes()) and time.monotonic() < limit:
        time.sleep(0.02)
    assert [line for line in processes() if str(scratch) in line] == []


def processes():
    """The command lines of all processes."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes().decode(errors="replace")
        except OSError:
            continue


def hostile_session(tmp_path, scratch, count):
    """Hostile calls in one session, and what they changed outside."""
    traps = set_traps(tmp_path)
    before = state(traps.outside)

    async def talk(client):
        found = Counter()
        for name, arguments in hostile_calls(traps, count, seed=count):
            if any(isinstance(value, int) and abs(value) > 2**63 for value in arguments.values()):
                continue  # JSON of the client has no such number
            try:
                result = await client.call_tool(name, arguments)
            except mcp.MCPError as error:
                found["error of the protocol"] += 1
                text = str(error)
            else:
                found["refused" if result.is_error else "answered"] += 1
                text = "".join(block.text for block in result.content if block.type == "text")
            assert SECRET not in text
            assert "Traceback" not in text
        return found, json.loads((await client.call_tool("files", {})).content[0].text)

    found, listed = session(traps.inside, scratch, talk)
    assert [row["name"] for row in listed["entries"]][:2] == ["deep", "log.csv"]
    assert state(traps.outside) == before
    assert list(scratch.iterdir()) == []
    return found


def test_hostile_calls_in_one_session(tmp_path, scratch):
    found = hostile_session(tmp_path, scratch, 60)
    assert sum(found.values()) >= 55
    assert found["refused"] >= 40


@pytest.mark.slow
def test_a_thousand_hostile_calls_in_one_session(tmp_path, scratch):
    found = hostile_session(tmp_path, scratch, 1000)
    print(found)
    assert sum(found.values()) >= 950


def test_lines_that_are_no_messages_do_not_end_the_server(tmp_path):
    """A client that is broken: no JSON, JSON of no message, one that is nested deeply, one of ten megabytes."""
    write_table(tmp_path / "log.csv")
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "broken", "version": "0"}}
    call = {"name": "files", "arguments": {}}
    lines = [
        "no message", "", "{}", "[]", "null", "[" * 100_000, json.dumps({"jsonrpc": "2.0", "id": "x" * 10_000_000}),
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}),
        json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": 3, "arguments": "no"}}),
        "\x00\x01\x02", json.dumps({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": call}),
    ]  # fmt: skip
    done = None
    with subprocess.Popen(
        [*COMMAND, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n".join(lines) + "\n")
        process.stdin.flush()
        for line in process.stdout:
            message = json.loads(line)
            if message.get("id") == 3:
                done = message
                break
        process.stdin.close()
        process.stdout.read()
    assert done is not None
    assert "log.csv" in done["result"]["content"][0]["text"]
    assert process.returncode == 0
