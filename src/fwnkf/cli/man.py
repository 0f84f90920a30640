"""``fwnkf man``: the manual page, written from the parser."""

from __future__ import annotations

import argparse
import re
from typing import Any

from .output import add_json, print_json, print_text


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "man",
        help="print the manual page of fwnkf, in the format of man",
        description="To read it: fwnkf man | man -l -. To install it: fwnkf man > ~/.local/share/man/man1/fwnkf.1",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the page."""
    from .. import __version__
    from .main import parser

    page = manual(parser(), __version__)
    if options.json:
        print_json({"page": page})
    else:
        print_text(page)
    return 0


def manual(parser: argparse.ArgumentParser, version: str) -> str:
    """The page of a parser and of all its commands.

    >>> parser = argparse.ArgumentParser("tool", description="Does it.")
    >>> _ = parser.add_argument("--speed", metavar="N", help="how fast")
    >>> print(manual(parser, "1.0"))
    .TH TOOL 1 "" "tool 1.0"
    .ad l
    .SH NAME
    tool \\- Does it.
    .SH SYNOPSIS
    .B tool
    [\\-h] [\\-\\-speed N]
    .SH OPTIONS
    .TP
    .B \\-h, \\-\\-help
    show this help message and exit
    .TP
    .B \\-\\-speed N
    how fast
    """
    lines = [f'.TH {parser.prog.upper()} 1 "" "{roff(parser.prog)} {roff(version)}"', ".ad l"]
    lines += [".SH NAME", f"{roff(parser.prog)} \\- {roff(parser.description or '')}"]
    lines += [".SH SYNOPSIS", *_synopsis(parser), ".SH OPTIONS", *_options(parser)]
    commands = _commands(parser)
    lines += [".SH COMMANDS"] if commands else []
    for command, text in commands:
        lines += [f".SS {roff(command.prog)}", f"{roff(text)}.", ".PP", *_synopsis(command)]
        lines += [".PP", roff(command.description)] if command.description else []
        lines += _options(command)
    if parser.epilog:
        lines += [".SH NOTES", ".nf", *(roff(line) for line in parser.epilog.splitlines()), ".fi"]
    return "\n".join(lines)


def roff(text: str) -> str:
    """Text as it stands: no escape, no request at the beginning of a line, hyphens that can be copied, ASCII alone.

    >>> roff(".TH is a\\n  request, \\\\e an escape, --json an option")
    '\\\\&.TH is a request, \\\\ee an escape, \\\\-\\\\-json an option'
    """
    text = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    text = "".join(letter if letter.isascii() else f"\\[u{ord(letter):04X}]" for letter in text)
    text = re.sub(r",(?=\S)", r",\\:", text)  # a list of choices has no space at which a line could end
    return f"\\&{text}" if text.startswith((".", "'")) else text


def _commands(parser: argparse.ArgumentParser) -> list[tuple[argparse.ArgumentParser, str]]:
    """The commands that do something, with their line of help; those that only have commands of their own left out."""
    found = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            texts = {one.dest: one.help or "" for one in action._get_subactions()}
            for name, command in action.choices.items():
                found += _commands(command) or [(command, texts.get(name, ""))]
    return found


def _synopsis(parser: argparse.ArgumentParser) -> list[str]:
    usage = " ".join(parser.format_usage().removeprefix("usage:").split())
    return [f".B {roff(parser.prog)}", roff(usage.removeprefix(parser.prog))]


def _options(parser: argparse.ArgumentParser) -> list[str]:
    lines: list[str] = []
    formatter = parser._get_formatter()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction) or action.help == argparse.SUPPRESS:
            continue
        name = re.sub(r"\s+", " ", formatter._format_action_invocation(action))
        lines += [".TP", f".B {roff(name)}", roff(formatter._expand_help(action) if action.help else "")]
    return lines
