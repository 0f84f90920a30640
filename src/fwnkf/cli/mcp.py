"""``fwnkf mcp``: the commands as tools of an assistant, over the Model Context Protocol."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from ..extras import need
from .output import UsageError


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "mcp",
        help="offer commands as tools to an assistant, over the Model Context Protocol",
        description="A server on standard input and output, which an assistant starts (extra: agents). Its tools are "
        "diagnose, navigate, fit, run and inspect, and a list of files. They read and write below the named folders "
        "alone, and overwrite nothing; see docs/howto/agents.md.",
    )
    parser.add_argument(
        "--root",
        type=Path,
        action="append",
        metavar="FOLDER",
        help="a folder that tools may read and write; may be repeated (default: the present one)",
    )
    parser.add_argument(
        "--time-limit",
        type=float,
        default=600.0,
        metavar="S",
        help="stop a call after S seconds (default: %(default)g)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve until the client closes standard input."""
    if not (math.isfinite(options.time_limit) and options.time_limit > 0):
        raise UsageError(f"--time-limit {options.time_limit:g}: expected a number of seconds above zero")
    if options.modules:
        raise UsageError("--import: not with mcp; tools run in processes that read installed packages alone")
    from .agents.folders import Folders

    folders = Folders(options.root or [Path()])
    need("mcp", extra="agents")
    from .agents.server import serve

    serve(folders, options.time_limit)
    return 0
