"""The process of one call: it confines itself, then runs a command as a shell would. Started by the server alone.

``python -m fwnkf.cli.agents.worker FILE``, with one JSON object in the file: ``words`` of the command, ``shown`` as a
user would have typed them, and the folders ``data`` and ``own``.
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

MEMORY = 8 << 30
"""Bytes of memory of one call, where the system can bound it."""
PARENT_DEATH_SIGNAL = 1  # of Linux
INTERNAL = 70
"""Exit code of an error that is none of the package's."""


def main(file: str) -> int:
    """Run the command that a file describes; returns its exit code."""
    job = json.loads(Path(file).read_text(encoding="utf-8"))
    from .sandbox import Bounds, confine

    _bound()
    confine(Bounds.of(job["data"], job["own"]))
    from ..main import parser, run_command

    def command() -> int:
        words = job["words"]
        options: Any = parser(words[0]).parse_args(words)
        options.words = job["shown"]
        code: int = options.run(options)
        return code

    try:
        return run_command("fwnkf", command)
    except MemoryError:
        print(f"fwnkf: the command needs more than {MEMORY >> 30} GB of memory", file=sys.stderr)
    except RecursionError:
        print("fwnkf: the file is nested too deeply", file=sys.stderr)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{last.filename.rpartition('fwnkf')[2].lstrip('/')}:{last.lineno}"
        print(f"fwnkf: {type(error).__name__} in {place}: {error}; this is a fault of fwnkf, please report it",
              file=sys.stderr)  # fmt: skip
    return INTERNAL


def _bound() -> None:
    """Bound the memory of this process, and end it with the server, however that ends."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
