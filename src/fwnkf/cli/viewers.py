"""Options that show a result in a viewer: ``--rerun`` and ``--mcap``, the same for all commands."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from .output import UsageError, print_status

if TYPE_CHECKING:
    from ..report.viewers.scene import Scene

LIVE = Path()
"""Of ``--rerun`` without a file."""


def add_viewers(parser: argparse.ArgumentParser, what: str) -> None:
    """Add ``--rerun`` and ``--mcap``."""
    group = parser.add_argument_group("viewers", f"{what}; see docs/howto/look.md")
    group.add_argument(
        "--rerun", type=_recording, nargs="?", const=LIVE, metavar="FILE.rrd",
        help="show it in Rerun, or write a recording for it",
    )  # fmt: skip
    group.add_argument(
        "--mcap",
        type=Path,
        metavar="FILE",
        help="write an MCAP file, and layouts for Foxglove and PlotJuggler beside it",
    )


def _recording(text: str) -> Path:
    if Path(text).suffix.lower() != ".rrd":
        raise argparse.ArgumentTypeError(
            f"{text!r} does not end in .rrd; to show the result without a file, put --rerun at the end"
        )
    return Path(text)


def wants_viewer(options: argparse.Namespace) -> bool:
    """Whether anything is to be shown."""
    return options.rerun is not None or options.mcap is not None


def check_viewers(options: argparse.Namespace, *others: Path | None) -> None:
    """Raise UsageError for files that cannot be written, or are among ``others``, before anything is computed."""
    if options.mcap is not None and options.mcap.suffix.lower() != ".mcap":
        raise UsageError(f"--mcap {options.mcap}: the name ends in .mcap")
    taken = [path.resolve() for path in others if path is not None]
    for path in (options.rerun, options.mcap):
        if path is not None and path != LIVE and path.resolve() in taken:
            raise UsageError(f"{path} is the log or another output and would be overwritten; name another file")


def open_viewers(options: argparse.Namespace, title: str, start_ns: int = 0) -> Scene:
    """The viewers that were asked for."""
    from ..report.viewers.open import open_scene

    live = options.rerun == LIVE
    return open_scene(title, start_ns, rerun=None if live else options.rerun, live=live, mcap=options.mcap)


def say_where(scene: Scene) -> None:
    """Say on standard error where the result is."""
    for writer in scene.writers:
        print_status(f"fwnkf: wrote {writer.where}")
