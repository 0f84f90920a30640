"""A release without the public: from a clean clone through a package index on this machine to the lines of the README.

Run by ``python benchmarks/release.py --rehearse``. Every step is timed; after one that fails, those that need it are
left out. Dependencies come from the indexes that pip is configured with, ``fwnkf`` from the local one alone: pip's own
report of where it took the file from is compared with the address of the server.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path

from benchmarks.install import Environment, FaultError, check, check_sdist, check_wheel, must

ROOT = Path(__file__).parents[1]
TOOLS = ("build", "twine", "pypiserver")
FILTER, LOG, INSTALL = "A first filter", "What is wrong with my log?", "Install"
"""Sections of the README whose lines are run."""


@dataclass(frozen=True)
class Step:
    """One step of a release: what was done, whether it went well, what there is to say, and how long it took."""

    name: str
    passed: bool
    said: str
    seconds: float


class Rehearsal:
    """Runs steps one after the other, and leaves out those that come after a failure."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    @property
    def passed(self) -> bool:
        return all(step.passed for step in self.steps)

    def step(self, name: str, act: Callable[[], str]) -> None:
        """Do one thing, which returns what there is to say about it or raises."""
        begin = time.monotonic()
        if self.passed:
            try:
                passed, said = True, act()
            except (FaultError, OSError, ValueError) as fault:
                passed, said = False, str(fault)
        else:
            passed, said = False, "left out after the failure above"
        done = Step(name, passed, said, time.monotonic() - begin)
        self.steps.append(done)
        print(f"{'ok' if done.passed else 'FAILED':6} {done.seconds:6.1f} s  {name}: {said}", flush=True)


# ---- steps -----------------------------------------------------------------------------------------------------------


def clone(target: Path) -> str:
    """The last commit, as somebody else would get it."""
    must("git", "clone", "-q", "--no-hardlinks", ROOT, target)
    changed = must("git", "-C", ROOT, "status", "--porcelain").strip()
    check(not changed, f"the working copy has changes that a clone does not have: commit or stash them\n{changed}")
    return f"{len(must('git', '-C', target, 'ls-files').splitlines()):,} files"


def build(source: Path, dist: Path) -> str:
    """Wheel and sdist, with the contents that `benchmarks/install.py` wants."""
    must(sys.executable, "-m", "build", "--outdir", dist, source)
    wheel, sdist = distributions(dist)
    check_wheel(wheel)
    check_sdist(sdist)
    return f"{wheel.name} of {wheel.stat().st_size / 1e3:.0f} kB, {sdist.name} of {sdist.stat().st_size / 1e6:.1f} MB"


def distributions(dist: Path) -> tuple[Path, Path]:
    """The wheel and the sdist of a folder."""
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    return wheel, sdist


def metadata(wheel: Path) -> dict[str, list[str]]:
    """The fields of the METADATA of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        message = Parser().parsestr(archive.read(name).decode())
    return {field: message.get_all(field, []) for field in set(message)}


def torch_is_free(wheel: Path) -> str:
    """torch has a lower bound only: whoever has a build for their GPU keeps it."""
    (needed,) = (line for line in metadata(wheel)["Requires-Dist"] if re.match(r"torch\b(?!.*extra)", line))
    check(re.fullmatch(r"torch>=[\d.]+", needed.replace(" ", "")) is not None, f"the wheel pins torch: {needed}")
    return needed


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """A package index on this machine, open for uploads; yields its address."""
    folder.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["run", "-i", "127.0.0.1", "-p", str(port), "-a", ".", "-P", ".", "--disable-fallback", str(folder)]
    address = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        [sys.executable, "-m", "pypiserver", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(100):
            try:
                urllib.request.urlopen(f"{address}/simple/", timeout=5).close()
                break
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
        else:
            raise FaultError("the local package index does not answer")
        yield address
    finally:
        process.terminate()
        process.wait(10)


def upload(dist: Path, address: str) -> str:
    """Both distributions, as twine sends them to PyPI."""
    words = ["upload", "--disable-progress-bar", "--non-interactive", "--repository-url", f"{address}/"]
    must(sys.executable, "-m", "twine", *words, "-u", "nobody", "-p", "nothing", *distributions(dist))
    page = urllib.request.urlopen(f"{address}/simple/fwnkf/", timeout=30).read().decode()
    names = re.findall(r">(fwnkf-[^<]+)<", page)
    check(len(names) == 2, f"the index lists {names}")
    return ", ".join(sorted(names))


def install(here: Environment, wanted: str, address: str, *words: str) -> str:
    """``pip install fwnkf`` into an environment, from the local index; what it needs from the usual ones."""
    report = here.work / "report.json"
    here.pip("install", "--extra-index-url", f"{address}/simple/", "--report", str(report), *words, wanted)
    items = {item["metadata"]["name"]: item for item in json.loads(report.read_text())["install"]}
    source = items["fwnkf"]["download_info"]["url"]
    check(source.startswith(address), f"pip took fwnkf from {source}, not from {address}")
    check("torch" not in items, "pip has installed another torch than the one that was there")
    here.pip("check")
    return f"{Path(source).name}, {len(items) - 1} other packages, torch as it was"


def blocks(readme: Path, section: str, language: str) -> list[str]:
    """Code of a section of the README."""
    text = readme.read_text(encoding="utf-8")
    found = re.findall(rf"```{language}\n(.*?)```", text[text.index(f"## {section}\n") :].split("\n## ")[0], re.S)
    check(bool(found), f"the README has no {language} below “{section}”")
    return found


def readme_filter(here: Environment, readme: Path) -> str:
    """The Python of the README, and what it prints."""
    printed = here.runs("\n".join(blocks(readme, FILTER, "python")))
    check("fwnkf: error" in printed, f"the first filter of the README printed {printed!r}")
    return printed.strip().replace("\n", "; ")


def readme_commands(here: Environment, readme: Path) -> str:
    """The commands of the README on a log."""
    lines = [shlex.split(line, comments=True) for line in "\n".join(blocks(readme, LOG, "sh")).splitlines()]
    for program, *words in filter(None, lines):
        check(program == "fwnkf", f"the README runs {program}")
        here.command(*words)
    size = (here.work / "report.html").stat().st_size
    check(size > 50_000, f"the report has {size} bytes")
    return f"{len(lines)} commands, a report of {size / 1e3:.0f} kB"


def readme_install(here: Environment, source: Path) -> str:
    """The line of the README that installs, in the clone: the way that works before a release as well."""
    (line,) = "\n".join(blocks(source / "README.md", INSTALL, "sh")).splitlines()
    program, command, *words = shlex.split(line, comments=True)
    check((program, command) == ("pip", "install"), f"the README installs by {line!r}")
    must(sys.executable, "-m", "pip", "--python", here.python, command, "-q", "--no-compile", *words, cwd=source)
    here.pip("check")
    return " ".join([program, command, *words])


# ---- the whole -------------------------------------------------------------------------------------------------------


def rehearse(torch: str, markdown: Path | None) -> bool:
    """Go through a release, print its steps, write the page, and return whether all of them passed."""
    missing = [name for name in TOOLS if importlib.util.find_spec(name) is None]
    if missing:
        raise SystemExit(f"the rehearsal needs {', '.join(missing)}: pip install 'fwnkf[release]'")
    os.environ.pop("PYTHONPATH", None)  # environments must see what is installed in them only
    plan = Rehearsal()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        source, dist = scratch / "clone", scratch / "dist"
        readme = source / "README.md"
        plan.step("clone of the last commit", lambda: clone(source))
        plan.step("build", lambda: build(source, dist))
        plan.step("twine check --strict", lambda: twine_check(dist))
        plan.step("torch is not pinned", lambda: torch_is_free(distributions(dist)[0]))
        shared = Environment(scratch / "torch", sys.executable)
        plan.step(f"{torch}, shared by the environments", lambda: shared.pip("install", torch) or "installed")

        def empty(name: str) -> Environment:
            return Environment(scratch / name, sys.executable, shared)

        with server(scratch / "index") as address:
            core, logs, sdist, checkout = (empty(name) for name in ("core", "logs", "sdist", "checkout"))
            plan.step("twine upload to an index on this machine", lambda: upload(dist, address))
            plan.step("pip install fwnkf", lambda: install(core, "fwnkf", address))
            plan.step("README: a first filter", lambda: readme_filter(core, readme))
            plan.step("pip install 'fwnkf[logs,plot]'", lambda: install(logs, "fwnkf[logs,plot]", address))
            plan.step("README: what is wrong with my log", lambda: readme_commands(logs, readme))
            source_only = ("--no-binary", "fwnkf")
            plan.step("pip install fwnkf, from the sdist", lambda: install(sdist, "fwnkf", address, *source_only))
            plan.step("README: a first filter, from the sdist", lambda: readme_filter(sdist, readme))
            plan.step("README: install, from the clone", lambda: readme_install(checkout, source))
            plan.step("README: a first filter, from the clone", lambda: readme_filter(checkout, readme))
    if markdown is not None:
        markdown.write_text(page(plan.steps), encoding="utf-8")
        print(f"written: {markdown}")
    return plan.passed


def twine_check(dist: Path) -> str:
    """The metadata and the description, as PyPI will judge them."""
    must(sys.executable, "-m", "twine", "check", "--strict", *distributions(dist))
    return "both pass"


def page(steps: list[Step]) -> str:
    """The steps as a page."""
    rows = [
        f"| {step.name} | {'yes' if step.passed else '**no**'} | {step.said.splitlines()[0]} | {step.seconds:.1f} |"
        for step in steps
    ]
    lines = [
        "# Rehearsal of a release",
        "",
        "Written by `python benchmarks/release.py --rehearse --markdown docs/results/release.md`. A clean clone is",
        "built, uploaded to a package index on the same machine, and installed from there into environments that have",
        "torch only. Dependencies come from the usual index, `fwnkf` from the local one. The machine may have had",
        "other work.",
        "",
        "| step | passed | | seconds |",
        "|---|---|---|---|",
        *rows,
        "",
    ]
    return "\n".join(lines)
