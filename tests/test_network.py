"""The package opens no network connection."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import json, sys
opened, watched = [], ("socket.connect", "socket.getaddrinfo")
sys.addaudithook(lambda event, found: opened.append(repr(found)) if event in watched else None)
from fwnkf.cli import main
for words in json.loads(sys.argv[1]):
    try:
        main(words)
    except SystemExit as end:
        assert not end.code, words
print(json.dumps(opened))
"""


def test_commands_open_no_connection(tmp_path: Path) -> None:
    """From an example to its diagnosis, a filter and a run; and the hook sees a connection that is tried."""
    log = str(tmp_path / "flight.csv")
    commands = [
        ["list", "filters"],
        ["data", "example", log],
        ["diagnose", log, "-o", str(tmp_path / "page.html")],
    ]
    done = subprocess.run([sys.executable, "-c", SCRIPT, json.dumps(commands)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == []
    tried = SCRIPT.replace(
        "from fwnkf.cli import main",
        "import socket\ntry: socket.create_connection(('127.0.0.1', 9))\nexcept OSError: pass\nmain = None",
    )
    seen = subprocess.run([sys.executable, "-c", tried, "[]"], capture_output=True, text=True, check=True)
    assert json.loads(seen.stdout.splitlines()[-1])
