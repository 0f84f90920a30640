"""The viewers that a command was asked for."""

from __future__ import annotations

from pathlib import Path

from .scene import Scene, Writer


def open_scene(
    title: str, start_ns: int = 0, *, rerun: Path | None = None, live: bool = False, mcap: Path | None = None
) -> Scene:
    """A scene that is written to a recording of Rerun, to its viewer (``live``), and to an MCAP file, as asked.

    Raises:
        ConfigError: a package is missing, or no viewer can be started.
    """
    writers: list[Writer] = []
    if live or rerun is not None:
        from .rerun_writer import RerunWriter

        writers.append(RerunWriter(title, rerun))
    if mcap is not None:
        from .mcap_writer import McapWriter

        writers.append(McapWriter(title, mcap, start_ns))
    return Scene(title, writers)
