"""Folders with traps, and calls that try to get out of them."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SECRET = "canary-7f3a91"
"""Text of every file outside, which no answer may contain."""


class Traps(NamedTuple):
    """The folder of the server, and one beside it that it must not touch."""

    inside: Path
    outside: Path


def write_table(path: Path) -> None:
    """Two seconds of an IMU."""
    rows = np.column_stack((np.arange(500) / 250, np.random.default_rng(0).normal(size=(500, 6))))
    names = ",".join(["time", *(f"gyro_{axis}" for axis in "xyz"), *(f"accel_{axis}" for axis in "xyz")])
    np.savetxt(path, rows, delimiter=",", header=names, comments="", fmt="%.6f")


def set_traps(folder: Path) -> Traps:
    """A log, links that lead out, links in a circle, a pipe; outside, files with the secret."""
    inside, outside = folder / "inside", folder / "inside-not"  # the name of one begins with that of the other
    for path in (inside, outside, inside / "deep", outside / "deep", inside / "tables"):
        path.mkdir(parents=True)
    write_table(inside / "log.csv")
    for path in (outside / "secret.csv", outside / "secret", outside / "config.json", outside / "deep" / "secret.csv"):
        path.write_text(f"time,{SECRET}\n0,1\n", encoding="utf-8")
    (inside / "link.csv").symlink_to(outside / "secret.csv")
    (inside / "relative.csv").symlink_to("../inside-not/secret.csv")
    (inside / "link").symlink_to(outside)
    (inside / "deep" / "up").symlink_to("../..")
    (inside / "circle").symlink_to("circle")
    (inside / "a").symlink_to("b")
    (inside / "b").symlink_to("a")
    (inside / "good.csv").symlink_to("log.csv")
    (inside / "root").symlink_to("/")
    (inside / "tables" / "secret.csv").symlink_to(outside / "secret.csv")
    os.mkfifo(inside / "pipe.csv")
    return Traps(inside, outside)


def state(folder: Path) -> dict[str, Any]:
    """Everything that is written in a folder, to compare."""
    return {
        str(path.relative_to(folder)): (path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else None)
        for path in sorted(folder.rglob("*"))
    }


def hostile_calls(traps: Traps, count: int, seed: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names of tools and arguments; none of them is what the tool is for."""
    rng = random.Random(seed)
    outside = str(traps.outside)
    paths: list[Any] = [
        *("/etc/passwd", "/etc/shadow", "/dev/zero", "/dev/stdin", "/proc/self/environ", "/", "~", "~root", ""),
        *(".", ".."),
        *(outside, f"{outside}/secret.csv", f"{outside}/new.html", "../inside-not/secret.csv", "../inside-not/new.csv"),
        *("link.csv", "relative.csv", "link/secret.csv", "link/new.html", "link", "deep/up/inside-not/secret.csv"),
        *("deep/up/inside-not/new.html", "circle", "a", "root/etc/passwd", f"root{outside}/secret.csv"),
        *("tables/secret.csv", "tables", "deep/../../inside-not"),
        *("pipe.csv", "log.csv/x", "log.csv\0.csv", "\0", "x" * 300, "y/" * 3000, "z" * 1_000_000, "nothing.csv"),
        *("file:///etc/passwd", "http://127.0.0.1:9/x", "s3://bucket/x", "--import=os", "-o", "--json", "log.csv;id"),
        *("$(id)", "`id`", "%00", "..%2f..%2fetc%2fpasswd", "....//....//etc/passwd", "\u202egpj"),
        *("good.csv/../../inside-not/secret.csv", "log.csv", "good.csv", "deep"),
    ]  # fmt: skip
    wrong: list[Any] = [None, 1, -1, 1e308, 10**400, True, [], {}, ["a"] * 1000, {"a": {"b": []}}, [[[[[]]]]], [None]]
    names = ["files", "diagnose", "navigate", "fit", "run", "inspect"]
    arguments = [
        *("log", "filter", "output", "save", "params", "data", "folder", "html", "plots", "channels", "field", "topic"),
        *("fix", "threshold", "truth", "set", "modules", "import", "--import", "address", "workers", "which", "engine"),
        *("pictures", "smooth", "lag", "time", "begin", "command", "run", "__class__"),
    ]
    needed = {"diagnose": ["log"], "navigate": ["log"], "fit": ["data", "output"], "run": ["log", "filter", "output"],
              "inspect": ["folder"], "files": ["folder"]}  # fmt: skip
    for _ in range(count):
        name = rng.choice(names) if rng.random() < 0.97 else rng.choice(["", "exec", "x" * 100_000, "../diagnose"])
        chosen = needed.get(name, []) + rng.sample(arguments, rng.choice([0, 0, 0, 1, 2]))
        yield name, {key: rng.choice(paths if rng.random() < 0.85 else wrong) for key in chosen}
