"""``fwnkf data``: recordings, what there is, where it comes from, is it whole."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from .output import add_json, say


def add(commands: Any) -> None:
    """The command and its actions."""
    data = commands.add_parser("data", help="recordings: what there is, where it comes from, is it whole")
    actions = data.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("list", help="the known sets and how much of each is here")
    for action, text in (
        ("info", "description, licence, citation and source of a set"),
        ("fetch", "download a set, resuming where an earlier download stopped"),
        ("verify", "compare the files here with their checksums"),
    ):
        one = actions.add_parser(action, help=text)
        one.add_argument("name", help="euroc, broad, dido or uipdb")
        if action != "info":
            one.add_argument("--folder", type=Path, help="instead of $FWNKF_DATA/NAME")
    for one in actions.choices.values():
        add_json(one)
        one.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """One action on the catalogue; ``verify`` fails where a file differs or is missing."""
    from ..data import catalogue

    if options.action == "list":
        rows = []
        for name in catalogue.list_sets():
            known, place = catalogue.info(name), catalogue.folder_of(name)
            count = len(known.find(place)) if place.is_dir() else 0
            rows.append({"name": name, "title": known.title, "sequences_here": count, "licence": known.licence})
        lines = [f"{row['name']:8} {row['sequences_here']:3} here  {row['title']} ({row['licence']})" for row in rows]
        say(options, rows, "\n".join([*lines, f"folder: {catalogue.data_folder()}"]))
        return 0
    known = catalogue.info(options.name)
    if options.action == "info":
        facts = {
            part: getattr(known, part)
            for part in ("name", "title", "description", "licence", "citation", "homepage", "manual")
        }
        say(options, facts, "\n".join(f"{part}: {text}" for part, text in facts.items()))
        return 0
    if options.action == "fetch":
        try:
            paths = catalogue.fetch(options.name, options.folder, progress=None if options.json else _show_progress)
        except KeyboardInterrupt:
            print("\na download goes on from here when it is started again", file=sys.stderr)
            raise
        say(options, [str(path) for path in paths], f"\n{len(paths)} file(s) in {paths[0].parent if paths else '.'}")
        return 0
    reports = catalogue.verify(options.name, options.folder)
    lines = [f"{report.status:10} {report.path}" for report in reports]
    say(options, [report._asdict() for report in reports], "\n".join(lines))
    return int(any(report.status in ("differs", "missing") for report in reports))


def _show_progress(path: str, have: int, total: int | None) -> None:
    share = f"{100 * have / total:5.1f} %" if total else f"{have / 1e6:8.1f} MB"
    print(f"\r{share} {path}", end="", file=sys.stderr, flush=True)
