"""The commands of the guides one after another, as a new user types them: from a log to a fixed filter to C.

    python benchmarks/walk.py --log flight.ulg -o docs/results/walk.md

walks with a flight log, and with a CSV of one sensor of its own that it writes: a slow motion with a tone at 40 Hz. The
page has every command, its seconds, its exit code and the end of what it printed.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

TAIL = 12
"""Lines of output on the page, at most."""
TEXT = """# A walk from a log to C

What a new user types, in the order of the README, [diagnose](../howto/diagnose.md) and
[deploy](../howto/deploy.md), with a flight log of PX4 and with a CSV of an own sensor (`t, px`: a slow motion, a tone
at 40 Hz and white noise, 60 s at 200 Hz). The last command of a walk compiles the exported C. Seconds are by the
clock, on a machine of two cores that did other work as well.
"""


class Step(NamedTuple):
    """A command that was run."""

    command: str
    seconds: float
    code: int
    output: str


def commands(log: str, name: str) -> list[str]:
    """The walk with one log."""
    return [
        f"fwnkf diagnose {log} -o {name}.html",
        f"fwnkf diagnose {log} --fix --save models/{name}",
        f"fwnkf run {log} --filter models/{name} -o {name}_estimates.csv",
        f"fwnkf export models/{name} --to c --log {log} --out {name}_c",
        f"cc -std=c99 -O2 -Wall -c {name}_c/*.c",
    ]


def own_csv(path: Path) -> None:
    """One sensor under its own name, with a tone ten times above its noise."""
    rng = np.random.default_rng(0)
    seconds = np.arange(12_000) / 200
    values = 2 * np.sin(0.6 * seconds) + 0.5 * np.sin(2 * np.pi * 40 * seconds) + 0.05 * rng.normal(size=len(seconds))
    np.savetxt(path, np.column_stack((seconds, values)), "%.6f", ",", header="t,px", comments="")


def walked(lines: list[str], folder: Path) -> list[Step]:
    """Run commands in a folder; a walk ends at the first that fails."""
    steps: list[Step] = []
    for line in lines:
        began = time.perf_counter()
        done = subprocess.run(line, shell=True, cwd=folder, capture_output=True, text=True)
        steps.append(Step(line, time.perf_counter() - began, done.returncode, done.stdout + done.stderr))
        if done.returncode:
            break
    return steps


def page(walks: dict[str, list[Step]]) -> str:
    """The steps as Markdown."""
    parts = [TEXT]
    for title, steps in walks.items():
        total = sum(step.seconds for step in steps)
        failed = sum(step.code != 0 for step in steps)
        parts.append(f"## {title}\n\n{len(steps)} commands, {total:.0f} s, {failed} failed.\n")
        for step in steps:
            ending = "" if step.code == 0 else f", exit code {step.code}"
            shown = step.output.rstrip().splitlines()
            cut = ["…"] if len(shown) > TAIL else []
            text = "\n".join([f"$ {step.command}", *cut, *shown[-TAIL:]])
            parts.append(f"{step.seconds:.1f} s{ending}:\n\n```text\n{text}\n```\n")
    parts.append("Command: `python benchmarks/walk.py --log px4_quadrotor_local.ulg -o docs/results/walk.md`.\n")
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=Path, required=True, help="a flight log")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        flight = f"flight{options.log.suffix}"
        shutil.copy(options.log, folder / flight)
        own_csv(folder / "sensor.csv")
        walks = {
            f"A flight log: {options.log.name}": walked(commands(flight, "flight"), folder),
            "A CSV of an own sensor": walked(commands("sensor.csv", "sensor"), folder),
        }
    text = page(walks).replace(str(folder), "")
    print(text)
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    if any(step.code for steps in walks.values() for step in steps):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
