"""Commands as a user's shell runs them, each in a process of its own that does not import torch again."""

from __future__ import annotations

import glob
import multiprocessing
import os
import runpy
import shlex
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import NamedTuple

# Processes are forked from a server that has imported what takes seconds, and nothing of the tests.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["fwnkf.training", "lightning.pytorch", "matplotlib.pyplot", "scipy.signal", __name__])
NOWHERE = Path(os.devnull)


class Done(NamedTuple):
    """What a command left: its exit code, and what it printed."""

    code: int | None
    out: str
    err: str


def shell(line: str, folder: Path, seconds: float = 300) -> Done:
    """Run a line of a page in a folder: ``fwnkf …``, ``python file …`` or ``python -c …``, with its comment."""
    words = shlex.split(line, comments=True)
    words = [each for word in words for each in (sorted(glob.glob(word, root_dir=folder)) or [word])]
    with tempfile.TemporaryDirectory() as scratch:
        out, err = Path(scratch, "out"), Path(scratch, "err")
        process = start(words, folder, out, err)
        process.join(seconds)
        if process.is_alive():
            process.kill()
            process.join()
        return Done(process.exitcode, *(path.read_text("utf-8") if path.exists() else "" for path in (out, err)))


def start(words: Sequence[str], folder: Path, out: Path = NOWHERE, err: Path = NOWHERE) -> ForkServerProcess:
    """Start a command, whose words were split by a shell."""
    process = SERVER.Process(target=_run, args=(words, folder, out, err))
    process.start()
    return process


def succeed(line: str, folder: Path) -> str:
    """What a command prints; it must not fail."""
    done = shell(line, folder)
    assert done.code == 0, f"{line}\n{done.out}\n{done.err}"
    return done.out


def _run(words: Sequence[str], folder: Path, out: Path, err: Path) -> None:
    for number, path in ((1, out), (2, err)):  # of the process, so that what it starts writes there too
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.chdir(folder)
    program, *arguments = words
    if program == "fwnkf":
        from fwnkf.cli import main

        sys.argv = words
        sys.exit(main(arguments))
    assert program == "python", program
    sys.path.insert(0, str(folder))
    sys.argv = arguments
    if arguments[0] == "-c":
        exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        runpy.run_path(arguments[0], run_name="__main__")
