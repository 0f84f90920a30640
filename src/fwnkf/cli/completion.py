"""``fwnkf completion``: a script that lets a shell complete commands, options and file names."""

from __future__ import annotations

import argparse
from typing import Any

from ..extras import need
from .output import add_json, print_json, print_text

SHELLS = ("bash", "zsh", "fish", "tcsh", "powershell")


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "completion",
        help="print a script with which a shell completes commands and options (extra: completion)",
        description='For bash: eval "$(fwnkf completion bash)", or write the output to a file that your shell reads.',
    )
    parser.add_argument("shell", choices=SHELLS, help="for which shell")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the script."""
    shtab = need("shtab", extra="completion")
    from .main import parser

    top = parser()
    _complete_files(top, shtab.FILE)
    script = shtab.complete(top, shell=options.shell)
    if options.json:
        print_json({"shell": options.shell, "script": script})
    else:
        print_text(script)
    return 0


def _complete_files(parser: argparse.ArgumentParser, files: Any) -> None:
    """Complete names of files wherever any text may follow: without this a shell would complete nothing there."""
    for action in parser._actions:
        for command in action.choices.values() if isinstance(action.choices, dict) else ():
            _complete_files(command, files)
        if action.choices is None and action.nargs != 0:
            action.complete = files  # type: ignore[attr-defined]  # shtab reads it
