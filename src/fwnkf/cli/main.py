"""The argument parser with all commands, and the mapping of errors to exit codes."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Callable, Sequence

from .. import __version__
from ..errors import FwnkfError
from ..registry import import_modules
from . import environment
from .output import UsageError, be_quiet, print_error, print_text

COMMANDS = {
    "list": "listing",
    "data": "data",
    "bench": "bench",
    "train": "train",
    "fit": "fit",
    "evaluate": "evaluate",
    "compare": "compare",
    "inspect": "inspect",
    "run": "run",
    "batch": "batch",
    "export": "export",
    "diagnose": "diagnose",
    "navigate": "navigate",
    "watch": "watch",
    "airframe": "airframe",
    "completion": "completion",
    "man": "man",
    "mcp": "mcp",
}
"""The module of each command, with ``add(commands)``, which registers ``run(options) -> int``; in the order of the
help."""

EPILOG = """\
exit codes:
  0    success
  1    the command failed, or a check failed
  2    usage error
  130  interrupted with Ctrl-C
"""


def parser(command: str | None = None) -> argparse.ArgumentParser:
    """The parser of one command, whose module alone is imported, or of all of them."""
    top = argparse.ArgumentParser(
        prog="fwnkf",
        description="Frequency-weighted neural Kalman filters.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"fwnkf {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in [COMMANDS[command]] if command in COMMANDS else COMMANDS.values():
        importlib.import_module(f".{module}", __package__).add(commands)
    for command_parser in commands.choices.values():
        command_parser.add_argument(
            "--import",
            dest="modules",
            action="append",
            default=[],
            metavar="MODULE",
            help="import a module of yours that registers systems, data or filters; may be repeated",
        )
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; errors of the package are printed as one message and give an exit code.

    Args:
        arguments: the words of the command line; by default those of the process.

    Returns:
        The exit code.

    >>> main(["list", "losses", "--json"])  # doctest: +ELLIPSIS
    [
    ...
    ]
    0
    """

    def command() -> int:
        words = list(sys.argv[1:] if arguments is None else arguments)
        if words == ["--version"]:  # without the parsers of all commands
            print_text(f"fwnkf {__version__}")
            return 0
        options = parser(words[0] if words else None).parse_args(words)
        options.words = words
        be_quiet(getattr(options, "quiet", False) or environment.quiet())
        import_modules(options.modules)
        code: int = options.run(options)
        return code

    return run_command("fwnkf", command)


def run_command(program: str, command: Callable[[], int]) -> int:
    """Call a command and return its exit code, that of an error after its message; see :data:`EPILOG`."""
    write_everything()
    try:
        code = command()
        sys.stdout.flush()  # flushed here, where a closed pipe can still be caught
    except UsageError as error:
        print_error(f"{program}: {error}")
        return 2
    except BrokenPipeError:  # the reader of the output has closed the pipe; discard the rest, at interpreter exit too
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (FwnkfError, OSError) as error:
        print_error(f"{program}: {error}")
        return 1
    except KeyboardInterrupt:
        print_error(f"{program}: interrupted")
        return 130
    return code


def write_everything() -> None:
    """Let standard output show characters that its encoding does not have, such as ASCII, by their number."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")
