"""The first five minutes of a user: from an empty environment to a diagnosed log of their own in a viewer, timed.

    python benchmarks/five_minutes.py                           a log that is simulated, the page is printed
    python benchmarks/five_minutes.py --log flight.ulg          a log of yours
    python benchmarks/five_minutes.py --torch torch==2.13.0 --markdown docs/results/five_minutes.md

The wheel is built first, which is not counted: a user takes it from an index. Every counted step is a command that a
user types; ``--torch`` is one more, for machines on which the resolver would choose gigabytes of CUDA libraries.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTRAS = "viewers,logs"
MINUTES = 5


@dataclass
class Walk:
    """Commands with the seconds that each took."""

    folder: Path
    steps: list[tuple[str, float]] = field(default_factory=list)

    def take(self, shown: str, *words: str | Path) -> str:
        """Run a command; a failure ends the walk."""
        begin = time.perf_counter()
        # where the checkout is found by its path, it would be used instead of the wheel
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run([*map(str, words)], cwd=self.folder, env=environment, capture_output=True, text=True)
        seconds = time.perf_counter() - begin
        if done.returncode:
            raise SystemExit(f"{shown} failed:\n{done.stdout}{done.stderr}")
        print(f"{seconds:7.1f} s  {shown}", flush=True)
        self.steps.append((shown, seconds))
        return done.stdout

    @property
    def total(self) -> float:
        return sum(seconds for _, seconds in self.steps)


def build(folder: Path) -> Path:
    """The wheel of this checkout."""
    words = [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT)]
    subprocess.run(words, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def walk(folder: Path, wheel: Path, log: Path | None, torch: str | None) -> tuple[Walk, str, int]:
    """From nothing to a recording: the steps, the first line of the diagnosis, and the size of the recording."""
    found = Walk(folder)
    found.take("python -m venv env", sys.executable, "-m", "venv", "env")
    commands = folder / "env" / ("Scripts" if os.name == "nt" else "bin")
    if torch is not None:
        found.take(f"pip install {torch}", commands / "pip", "install", "-q", torch)
    wanted = f"fwnkf[{EXTRAS}] @ {wheel.as_uri()}"
    found.take(f"pip install 'fwnkf[{EXTRAS}]'", commands / "pip", "install", "-q", wanted)
    name = "flight.csv"
    if log is None:  # not counted: a user has a log
        subprocess.run([commands / "fwnkf", "data", "example", name], cwd=folder, check=True, capture_output=True)
        log = folder / name
    shown = f"fwnkf diagnose {log.name} --rerun flight.rrd"
    said = found.take(shown, commands / "fwnkf", "diagnose", log.resolve(), "--rerun", "flight.rrd")
    recording = folder / "flight.rrd"
    environment = {**os.environ, "CI": "true"}  # the program of Rerun is told to send nothing to its makers
    verify = [commands / "rerun", "rrd", "verify", recording]
    subprocess.run(verify, check=True, capture_output=True, env=environment)
    return found, said.splitlines()[0], recording.stat().st_size


def page(steps: Sequence[tuple[str, float]], verdict: str, size: int, torch: str | None) -> str:
    """The page of a walk."""
    total = sum(seconds for _, seconds in steps)
    within = "within" if total <= 60 * MINUTES else "not within"
    share = steps[-1][1] / total
    lines = [
        "# Five minutes",
        "",
        f"**From an empty environment to a diagnosed log in Rerun it takes {total / 60:.1f} minutes, {within} five. "
        f"{1 - share:.0%} of that are the installation, {steps[-1][1]:.0f} s the diagnosis.**",
        "",
        f"Written by `python benchmarks/five_minutes.py{f' --torch {torch}' if torch else ''} --markdown",
        "docs/results/five_minutes.md`. A wheel of this package is installed into an empty environment, its",
        "dependencies from the usual index, with pip's cache; the recording is checked by `rerun rrd verify`. The",
        "machine may have had other work.",
        "",
        "| command | seconds |",
        "|---|---|",
        *(f"| `{name}` | {seconds:.1f} |" for name, seconds in steps),
        f"| together | {total:.1f} |",
        "",
        f"It said: “{verdict}” The recording has {size / 1e6:.1f} MB.",
        "",
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores.",
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Walk, and write the page; 1 if it took longer than five minutes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=Path, help="a log to diagnose (default: a simulated flight)")
    parser.add_argument("--torch", metavar="REQUIREMENT", help="installed first, as torch==2.13.0")
    parser.add_argument("--wheel", type=Path, help="a wheel that is built already")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="where the page is written")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        wheel = options.wheel.resolve() if options.wheel else build(Path(folder))
        found, verdict, size = walk(Path(folder), wheel, options.log, options.torch)
    text = page(found.steps, verdict, size, options.torch)
    if options.markdown is None:
        print(text)
    else:
        options.markdown.write_text(text, encoding="utf-8")
    return 0 if found.total <= 60 * MINUTES else 1


if __name__ == "__main__":
    raise SystemExit(main())
