"""The server: tools over the Model Context Protocol, each call in a process of its own that can be stopped."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from anyio.abc import Process
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from ... import __version__
from ...errors import ConfigError, DataError, FwnkfError, listed, shown
from ...native.compilers import cache_home
from ...plain import printable_lines
from ..output import to_json
from .folders import Folders, opened
from .tools import TOOLS, Job

SECONDS = 600.0
"""A call is stopped after this time, unless the user says otherwise."""
AT_ONCE = 2
"""Calls that run at the same time."""
WAITING = 32
"""Calls that run or wait; a further one is refused."""
LARGEST_ANSWER = 1 << 20
"""Bytes of the JSON of an answer."""
LARGEST_PICTURE = 300_000
"""Bytes of a picture."""
MOST_PICTURES = 6
MOST_LINKS = 50
"""Files that an answer links to; the others are in the same folder."""
MESSAGE = 4000
"""Characters of the messages of a command."""
EVERY = 2.0
"""Seconds between reports of progress."""

FILES = "files"
FILES_SCHEMA = {
    "type": "object",
    "properties": {"folder": {"type": "string", "description": "by default the first folder of the server"}},
    "required": [],
    "additionalProperties": False,
}
MEDIA = {".html": "text/html", ".json": "application/json", ".csv": "text/csv", ".txt": "text/plain"}

Report = Callable[[float, str], Awaitable[None]]
"""Takes the seconds since a call began, and the last line that its command printed."""


@dataclass
class Calls:
    """What answers the calls of a client: a function from a name and arguments to content, without the protocol."""

    folders: Folders
    seconds: float = SECONDS
    open: int = 0
    limiter: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(AT_ONCE))

    async def call(self, name: str, arguments: dict[str, Any], report: Report) -> types.CallToolResult:
        """The answer to a call; errors of the package are answers too, and never a traceback."""
        try:
            return types.CallToolResult(content=await self._content(name, arguments, report))
        except (FwnkfError, OSError) as error:
            text = types.TextContent(type="text", text=printable_lines(str(error))[:MESSAGE])
            return types.CallToolResult(content=[text], is_error=True)

    async def _content(self, name: str, arguments: dict[str, Any], report: Report) -> list[types.ContentBlock]:
        if name == FILES:
            folder = arguments.get("folder", ".")
            if not isinstance(folder, str) or set(arguments) - {"folder"}:
                raise ConfigError("files takes one argument, folder, a text")
            return [types.TextContent(type="text", text=to_json(self.folders.listed(folder)))]
        if name not in TOOLS:
            raise ConfigError(f"there is no tool {shown(name)}; there are {listed([FILES, *TOOLS])}")
        if self.open >= WAITING:
            raise ConfigError(f"{WAITING} calls are running or waiting; call again when one has ended")
        self.open += 1
        try:
            with tempfile.TemporaryDirectory(prefix="fwnkf-", ignore_cleanup_errors=True) as scratch:
                here = Path(os.path.realpath(scratch))
                job = TOOLS[name].job(arguments, self.folders, here)
                async with self.limiter:
                    return await self._work(job, here, report)
        finally:
            self.open -= 1

    async def _work(self, job: Job, scratch: Path, report: Report) -> list[types.ContentBlock]:
        """Run a command, put its results where they belong, and say what it said."""
        done = await _run(job, self.folders.roots, scratch, self.seconds, report)
        # A command that warns prints its result and ends with 1; one that fails prints none.
        if done.code not in (0, 1) or not done.out.strip():
            raise DataError(_failure(done))
        answer = done.out
        written: list[Path] = []
        for made, path in job.results.items():
            if made.exists():
                written += await anyio.to_thread.run_sync(self.folders.place, made, path)  # may be gigabytes
            answer = answer.replace(_within_json(made), _within_json(path))
        if job.pictures is not None:  # they are part of this answer, not files of the user
            answer = answer.replace(_within_json(job.pictures), job.pictures.name)
        content: list[types.ContentBlock] = [types.TextContent(type="text", text=answer)]
        if done.code:
            content.append(types.TextContent(type="text", text=_failure(done)))
        content += _pictures(job.pictures)
        content += [_link(path) for path in written[:MOST_LINKS]]
        return content


def _within_json(path: Path) -> str:
    return json.dumps(str(path))[1:-1]


def _failure(done: Done) -> str:
    """What a command says of its failure, without the usage that argparse prints before."""
    said = done.err.rpartition(": error: ")[2].strip()
    if said:
        return said[-MESSAGE:]
    return f"the command was ended by the system (exit code {done.code}); it may have run out of memory"


def _pictures(folder: Path | None) -> list[types.ContentBlock]:
    files = sorted(folder.glob("*.png")) if folder is not None and folder.is_dir() else []
    content: list[types.ContentBlock] = []
    for path in files[:MOST_PICTURES]:
        with opened(path) as file:
            picture = file.read(LARGEST_PICTURE + 1)
        if len(picture) <= LARGEST_PICTURE:
            data = base64.b64encode(picture).decode()
            content.append(types.ImageContent(type="image", data=data, mime_type="image/png"))
    return content


def _link(path: Path) -> types.ResourceLink:
    return types.ResourceLink(
        type="resource_link",
        uri=path.as_uri(),
        name=path.name,
        size=path.lstat().st_size,
        mime_type=MEDIA.get(path.suffix, "application/octet-stream"),
    )


# ---- the process -----------------------------------------------------------------------------------------------------


@dataclass
class Done:
    """What a process left."""

    code: int
    out: str
    err: str


async def _run(job: Job, roots: Sequence[Path], scratch: Path, seconds: float, report: Report) -> Done:
    """Run a command in a worker. It is killed when its time is over, and when the client cancels the call."""
    own = scratch / "own"
    own.mkdir()
    kept = _kept(own)
    order, out, err = (scratch / name for name in ("order.json", "out", "err"))
    places = {"data": list(map(str, roots)), "own": [str(scratch), str(kept)]}
    order.write_text(json.dumps({"words": job.words, "shown": job.shown, **places}), encoding="utf-8")
    with out.open("wb") as printed, err.open("wb") as told:
        process = await anyio.open_process(
            [sys.executable, "-m", "fwnkf.cli.agents.worker", str(order)],
            cwd=own,
            env=_environment(own, kept),
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=told,
            start_new_session=True,
        )
    began = anyio.current_time()
    try:
        while process.returncode is None:
            passed = anyio.current_time() - began
            if passed > seconds:
                raise DataError(f"the command was stopped after {seconds:g} s; the user can allow more (--time-limit)")
            with anyio.move_on_after(min(EVERY, seconds - passed + 0.01)):
                await process.wait()
            await report(anyio.current_time() - began, _end(err).rpartition("\n")[2])
    finally:
        _kill(process)
        with anyio.CancelScope(shield=True):
            await process.aclose()
    if out.stat().st_size > LARGEST_ANSWER:
        raise DataError(f"the answer has more than {LARGEST_ANSWER:,} bytes")
    assert process.returncode is not None
    return Done(process.returncode, out.read_text("utf-8", "replace"), _end(err))


def _kept(own: Path) -> Path:
    """The folder of compiled filters, which outlives the call; where there can be none, a temporary one."""
    folder = cache_home()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "matplotlib").mkdir(exist_ok=True)
    except OSError:
        return own
    return folder


def _end(file: Path) -> str:
    """The end of what a command printed on standard error."""
    with file.open("rb") as text:
        text.seek(max(text.seek(0, os.SEEK_END) - MESSAGE, 0))
        return printable_lines(text.read().decode("utf-8", "replace").replace("\r", "\n").strip())


def _kill(process: Process) -> None:
    """End a worker and the compilers that it started."""
    try:
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    except ProcessLookupError:
        pass


def _environment(own: Path, kept: Path) -> dict[str, str]:
    """The variables of a worker: its temporary files are its own, and no data set of the user is found by a name."""
    values = {name: value for name, value in os.environ.items() if name != "FWNKF_DATA"}
    if modules := values.get("PYTHONPATH"):  # the worker starts in another folder
        values["PYTHONPATH"] = os.pathsep.join(os.path.abspath(entry) for entry in modules.split(os.pathsep) if entry)
    values |= {name: str(own) for name in ("TMPDIR", "TEMP", "TMP")}
    return values | {"FWNKF_CACHE": str(kept), "MPLCONFIGDIR": str(kept / "matplotlib"), "PYTHONDONTWRITEBYTECODE": "1",
                     "PYTHONIOENCODING": "utf-8"}  # fmt: skip


# ---- the protocol ----------------------------------------------------------------------------------------------------


def server(folders: Folders, seconds: float = SECONDS) -> Server[Any]:
    """The server of these folders."""
    calls = Calls(folders, seconds)

    async def list_tools(context: Any, request: Any) -> types.ListToolsResult:
        files = types.Tool(
            name=FILES,
            description="Lists a folder: logs, tables, saved filters.",
            input_schema=FILES_SCHEMA,
            annotations=types.ToolAnnotations(read_only_hint=True),
        )
        tools = [
            types.Tool(
                name=name,
                description=tool.description,
                input_schema=tool.schema,
                annotations=types.ToolAnnotations(destructive_hint=False, open_world_hint=False),
            )
            for name, tool in TOOLS.items()
        ]
        return types.ListToolsResult(tools=[files, *tools])

    async def call_tool(context: Any, request: types.CallToolRequestParams) -> types.CallToolResult:
        async def report(passed: float, line: str) -> None:
            await context.session.report_progress(passed, None, line or None)

        return await calls.call(request.name, request.arguments or {}, report)

    roots = ", ".join(map(str, folders.roots))
    return Server(
        "fwnkf",
        version=__version__,
        instructions=f"State estimation and diagnosis of logs. Files are read and written below {roots} alone; the "
        "tool `files` lists them. Answers are the JSON of the commands of the same name. Nothing is overwritten.",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def serve(folders: Folders, seconds: float = SECONDS) -> None:
    """Serve one client on standard input and output until it closes them."""

    async def session() -> None:
        here = server(folders, seconds)
        async with stdio_server() as (incoming, outgoing):
            await here.run(incoming, outgoing, here.create_initialization_options())

    anyio.run(session)
