"""Check the contents of wheel and sdist, and that they run in an empty environment.

    python benchmarks/install.py                  build both, check their contents, install the wheel: about a minute
    python benchmarks/install.py --dist FOLDER    use distributions that are built already
    python benchmarks/install.py --quick          check the contents only
    python benchmarks/install.py --all            also the sdist and every extra, each in an empty environment: minutes
    python benchmarks/install.py --all --python python3.10 --python python3.13 --markdown docs/results/install.md

``--torch`` is installed first, once for each interpreter, and the environments share it: the resolver may choose a
version with gigabytes of CUDA libraries. After a fault the run goes on: the table says where, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "fwnkf"
LARGEST = 1_000_000
"""Largest size of a file in a distribution, in bytes."""
FOLDERS = {"src", "tests", "docs", "models", "tasks", "benchmarks"}
PAGES = {
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "CITATION.cff",
    "CONTRIBUTING.md",
    "CODE_OF_CONDUCT.md",
    "SECURITY.md",
    "pyproject.toml",
    "PKG-INFO",
    ".gitignore",
}
RECORDINGS = {".csv", ".mat", ".npz", ".npy", ".pt", ".bag", ".parquet", ".zip", ".xz", ".gz"}
EXTRAS = {
    "train": ("lightning", "yaml", "rich", "tensorboard"),
    "plot": ("matplotlib",),
    "tables": ("pyarrow",),
    "frames": ("narwhals",),
    "data": ("pooch",),
    "logs": ("mcap", "rosbags"),
    "viewers": ("rerun",),
    "live": ("redis",),
    "hub": ("huggingface_hub",),
    "completion": ("shtab",),
    "onnx": ("onnx", "onnxruntime"),
    "agents": ("mcp",),
    "scale": ("ray",),
}
"""Packages of one extra alone. Those of other extras must not be installed, or the check would miss a dependency."""
INCLUDED = {"logs": {"tables"}, "viewers": {"tables"}, "scale": {"tables"}}
"""Extras that have the packages of another one too."""
BROUGHT = {"scale": {"yaml"}, "hub": {"yaml"}, "viewers": {"mcap"}, "live": {"rich"}}
"""Packages of other extras that this one, or a dependency of it, needs too: Ray and the hub's client read YAML."""

CORE = """
import importlib.util, sys, torch, fwnkf
assert fwnkf.__file__.startswith(sys.prefix), fwnkf.__file__
system = fwnkf.LinearSystem.of(*(torch.tensor(m) for m in ([[1.0]], [[1.0]], [[0.1]], [[1.0]])))
model = fwnkf.FWNKF(system, noise=fwnkf.Lines(), encoder=fwnkf.GRU(8), residual=fwnkf.MLP(64))
track = model.run(torch.randn(2, 20, 1)).raise_for_status()
assert track.mean.shape == (2, 20, 1) and bool(track.mean.isfinite().all())
fwnkf.save(model, "model")
assert torch.equal(fwnkf.load("model").run(torch.ones(1, 5, 1)).mean, model.run(torch.ones(1, 5, 1)).mean)
"""
PRESENT = "import importlib.util, sys; print(*filter(importlib.util.find_spec, sys.argv[1:]))"
DRAW = """
import torch
from fwnkf.data.protocols import load
from fwnkf.report import plots
records = load("lorenz", "strict", train=1, val=1, test=2).split.test
plots.save_all("plots", {"error": plots.error_over_time(records, {"truth": (records.truth + 1, None)})})
"""
PARQUET = """
import pyarrow, pyarrow.parquet
from fwnkf.logs.table import read_table
pyarrow.parquet.write_table(pyarrow.table({"t": [0.0, 1.0], "a": [2.0, 3.0]}), "one.parquet")
print(read_table("one.parquet"))
"""
FRAME = """
import torch, fwnkf
class Frame:
    columns = ["y"]
one = torch.eye(1)
fwnkf.KF(F=one, H=one, Q=one, R=one).run(Frame())
"""
UNREAD = """
from pathlib import Path
from fwnkf.logs.table import read_table
Path("one.parquet").write_bytes(b"PAR1")
read_table("one.parquet")
"""
DOWNLOAD = """
from pathlib import Path
from fwnkf.data.sets.sources import download
Path("kept").write_bytes(b"here")
print(download(["http://127.0.0.1:9/kept"], "kept"))
"""
MCAP = """
from fwnkf.logs import open_log
from fwnkf.logs.ros_write import McapFile
import numpy as np
with McapFile("one.mcap") as file:
    file.write("/imu", "sensor_msgs/msg/Imu", 10_000_000 * np.arange(1, 100), np.ones((99, 37)))
assert len(open_log("one.mcap").signal("imu").time) == 99
"""
HUB = """
import fwnkf
try:
    fwnkf.from_pretrained("owner/name", cache_dir="empty", local_files_only=True)
except fwnkf.errors.DataError as error:
    assert "not in the cache" in str(error), error
"""
REFUSED = {
    "train": "from fwnkf.cli import main; assert main(['train', 'lorenz']) == 1",
    "plot": "from fwnkf.cli import main; assert main(['inspect', 'model', '--plots', 'plots']) == 1",
    "tables": UNREAD,
    "frames": FRAME,
    "data": DOWNLOAD,
    "logs": MCAP,
    "viewers": "from fwnkf.report.viewers.open import open_scene; open_scene('', live=True)",
    "live": "from fwnkf.cli import main; assert main(['watch', 'redis://127.0.0.1:9', '--filter', 'model']) == 1",
    "completion": "from fwnkf.cli import main; assert main(['completion', 'bash']) == 1",
    "hub": "import fwnkf; fwnkf.from_pretrained('owner/name', local_files_only=True)",
    "onnx": "from fwnkf.cli import main; assert main(['export', 'model', '--to', 'onnx']) == 1",
    "agents": "from fwnkf.cli import main; assert main(['mcp']) == 1",
    "scale": "from fwnkf.scale.engine import start_ray; start_ray(1)",
}
"""Code that needs an extra."""
REFUSE = """
import contextlib, io, json, sys, traceback
said = {}
for name, code in json.loads(sys.argv[1]).items():
    with contextlib.redirect_stderr(io.StringIO()) as heard, contextlib.redirect_stdout(io.StringIO()):
        try:
            exec(code, {})
        except Exception:
            traceback.print_exc()
    said[name] = (heard.getvalue().strip().splitlines() or [""])[-1]
print(json.dumps(said))
"""
"""Runs each of them, and prints the last line of its error; one process, because each would import torch again."""
AGENTS = """
import sys, anyio, mcp
server = mcp.StdioServerParameters(command=sys.executable, args=["-m", "fwnkf.cli", "mcp"])
async def session():
    async with mcp.Client(mcp.stdio_client(server)) as client:
        answer = await client.call_tool("inspect", {"folder": "model"})
        assert not answer.is_error, answer
anyio.run(session)
"""
BATCH = """
import ray.data, numpy as np, pyarrow as pa, pyarrow.parquet as pq
from fwnkf.cli import main
pq.write_table(pa.table({"device": ["a"] * 50, "time": 1.0 * np.arange(50), "y0": np.ones(50)}), "day.parquet")
assert main("batch --input day.parquet --output estimates --filter model --channels y0 --engine loop".split()) == 0
"""
TINY = (
    "data.train=8",
    "data.val=2",
    "data.test=3",
    "trainer.steps=2",
    "trainer.validate_every=2",
    "trainer.pretrain=0",
)
TRAIN = ["train", "lorenz", "--no-references", "--set", "trainer.compile=false"]
TRAIN += [word for item in TINY for word in ("--set", item)]


class FaultError(Exception):
    """A check that failed; the message says which."""


def check(holds: bool, message: str) -> None:
    if not holds:
        raise FaultError(message)


@contextmanager
def timed(what: str) -> Iterator[None]:
    begin = time.perf_counter()
    yield
    print(f"ok  {time.perf_counter() - begin:6.1f} s  {what}", flush=True)


def quietly(*words: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, check=False)


def must(*words: str | Path, cwd: Path | None = None) -> str:
    done = quietly(*words, cwd=cwd)
    check(done.returncode == 0, f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


# ---- contents -------------------------------------------------------------------------------------------------------


def own_files(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"
    }


def check_wheel(path: Path) -> None:
    """The wheel has the complete package and its licence, no tasks, no experiments of tasks, and nothing else."""
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
    tasks = [name for name in names if "tasks" in PurePosixPath(name).parts]
    check(not tasks, f"wheel has the tasks, which are not part of the package: {tasks}")
    package = {name.removeprefix("fwnkf/") for name in names if name.startswith("fwnkf/")}
    of_tasks = {f"experiments/{file.name}" for file in (ROOT / "tasks").glob("*/experiments/*")} & package
    check(not of_tasks, f"wheel has experiments of the tasks: {sorted(of_tasks)}")
    wanted = own_files(SOURCE)
    check(package == wanted, f"wheel and src/fwnkf differ: {sorted(package ^ wanted)}")
    check("py.typed" in package and "experiments/lorenz.yaml" in package, "wheel without py.typed or experiments")
    others = [name for name in names if not name.startswith("fwnkf/")]
    outside = [name for name in others if ".dist-info/" not in name]
    check(not outside, f"wheel has files outside the package: {outside}")
    for needed in ("licenses/LICENSE", "entry_points.txt", "METADATA"):
        check(any(name.endswith(f".dist-info/{needed}") for name in others), f"wheel without {needed}")


def check_sdist(path: Path) -> None:
    """The sdist has everything needed to develop the project, with the trained filters, and no recordings."""
    with tarfile.open(path) as archive:
        members = [member for member in archive.getmembers() if member.isfile()]
    sizes = {PurePosixPath(*PurePosixPath(member.name).parts[1:]): member.size for member in members}
    tops = {name.parts[0] for name in sizes}
    check(tops == FOLDERS | PAGES, f"unexpected or missing at the top of the sdist: {sorted(tops ^ (FOLDERS | PAGES))}")
    large = [str(name) for name, size in sizes.items() if size > LARGEST or name.suffix in RECORDINGS]
    check(not large, f"sdist with recordings or files above {LARGEST} bytes: {large}")
    models = {name.parts[1] for name in sizes if name.parts[0] == "models"}
    here = {folder.name for folder in (ROOT / "models").iterdir() if folder.is_dir()}
    check(models == here, f"trained filters in the sdist and here differ: {sorted(models ^ here)}")


# ---- installation ---------------------------------------------------------------------------------------------------


class Environment:
    """A virtual environment, empty but for what it shares; pip runs outside of it, so that it does not contain pip."""

    def __init__(self, folder: Path, python: str, shared: Environment | None = None):
        self.folder, self.work = folder, folder / "work"
        must(python, "-m", "venv", "--without-pip", folder)
        self.work.mkdir()
        self.python, self.fwnkf = folder / "bin" / "python", folder / "bin" / "fwnkf"
        (self.packages,) = folder.glob("lib/python*/site-packages")
        if shared is not None:
            (self.packages / "shared.pth").write_text(f"{shared.packages}\n", encoding="utf-8")

    def pip(self, command: str, *words: str) -> None:
        extra = ["-q", "--no-compile"] if command == "install" else []
        must(sys.executable, "-m", "pip", "--python", self.python, command, *extra, *words)

    def runs(self, code: str) -> str:
        return must(self.python, "-c", code, cwd=self.work)

    def command(self, *words: str) -> str:
        return must(self.fwnkf, *words, cwd=self.work)

    def lacks(self, extras: Sequence[str], but: set[str]) -> None:
        """None of their packages is here, and what needs them fails with a message that says what to install."""
        packages = [name for extra in extras for name in EXTRAS[extra] if name not in but]
        present = must(self.python, "-c", PRESENT, *packages).strip()
        check(not present, f"the environment has packages of other extras: {present}")
        codes = {extra: REFUSED[extra] for extra in extras}
        said = json.loads(must(self.python, "-c", REFUSE, json.dumps(codes), cwd=self.work))
        for extra, text in said.items():
            check(f"fwnkf[{extra}]" in text, f"{REFUSED[extra]}: wanted an error with 'fwnkf[{extra}]', got {text!r}")


def try_core(here: Environment) -> None:
    here.runs(CORE)
    check("COMMAND" in here.command("--help"), "fwnkf --help lists no commands")
    here.command("list", "experiments")
    here.command("inspect", "model")


def try_train(here: Environment) -> None:
    output = here.command(*TRAIN)
    check("best filter" in output and "fwnkf[plot]" in output, f"training without the extra plot printed\n{output}")


def try_plot(here: Environment) -> None:
    here.runs(DRAW)
    check((here.work / "plots" / "error.png").stat().st_size > 5000, "an empty picture")


def try_tables(here: Environment) -> None:
    here.runs(PARQUET)


def try_frames(here: Environment) -> None:
    """pandas, polars and xarray are the user's own: with narwhals alone a frame is read, and refused for what it is."""
    said = here.runs(f"try:\n    exec({FRAME!r}, {{}})\nexcept ValueError as error:\n    print(error)")
    check("no DataFrame that can be read" in said, f"a frame was not read by narwhals: {said}")


def try_data(here: Environment) -> None:
    here.runs(DOWNLOAD)
    here.runs("import scipy.io, scipy.linalg")


def try_logs(here: Environment) -> None:
    here.runs(MCAP)
    here.command("data", "example", "flight.csv", "--seconds", "5")
    check("rotor 6" in here.command("diagnose", "flight.csv"), "the fault of the example was not found")


def try_viewers(here: Environment) -> None:
    here.command("data", "example", "flight.csv", "--seconds", "5")
    here.command("diagnose", "flight.csv", "--rerun", "seen.rrd", "--mcap", "seen.mcap")
    made = [name for name in ("seen.rrd", "seen.mcap", "seen.foxglove.json") if (here.work / name).stat().st_size]
    check(len(made) == 3, f"only {made} were written")


def try_live(here: Environment) -> None:
    (here.work / "live.csv").write_text("t,y\n0,1\n1,1\n", encoding="utf-8")
    here.command("watch", "live.csv", "--filter", "model", "--channels", "y", "--idle", "0.5")
    here.runs("import redis, rich.live")


def try_hub(here: Environment) -> None:
    here.runs(HUB)


def try_completion(here: Environment) -> None:
    check("complete -" in here.command("completion", "bash"), "the script for bash completes nothing")


def try_onnx(here: Environment) -> None:
    here.command("export", "model", "--to", "onnx")


def try_agents(here: Environment) -> None:
    here.runs(AGENTS)


def try_scale(here: Environment) -> None:
    here.runs(BATCH)


def try_all(here: Environment) -> None:
    check("plots: " in here.command(*TRAIN), "a run of fwnkf[all] drew no plots")
    try_plot(here)
    try_tables(here)


TRIED: dict[str, Callable[[Environment], None]] = {
    "train": try_train,
    "plot": try_plot,
    "tables": try_tables,
    "frames": try_frames,
    "data": try_data,
    "logs": try_logs,
    "viewers": try_viewers,
    "live": try_live,
    "hub": try_hub,
    "completion": try_completion,
    "onnx": try_onnx,
    "agents": try_agents,
    "scale": try_scale,
}


def install(what: Path, extra: str, torch: Environment, python: str) -> None:
    """Install a distribution with one extra (or none), use it, and check the errors for the other extras."""
    wanted = f"[{extra}]" if extra else ""
    empty = f"{what.name}{wanted} in an empty environment of {must(python, '--version').strip()}"
    with timed(empty), tempfile.TemporaryDirectory(dir=torch.work) as folder:
        here = Environment(Path(folder) / "env", python, torch)
        here.pip("install", f"fwnkf{wanted} @ {what.as_uri()}")
        here.pip("check")
        try_core(here)
        if extra == "all":
            try_all(here)
            return
        if extra:
            TRIED[extra](here)
        others = [name for name in EXTRAS if name != extra and name not in INCLUDED.get(extra, ())]
        here.lacks(others, BROUGHT.get(extra, set()))


@dataclass(frozen=True)
class Row:
    """What came of one distribution with one extra (or none) under one interpreter."""

    python: str
    kind: str
    extra: str
    passed: bool


def install_all(what: Sequence[tuple[Path, str]], torch: str, scratch: Path, python: str) -> Iterator[Row]:
    """Install each distribution with its extra under one interpreter; torch is installed once for all of them."""
    version = must(python, "--version").strip()
    folder = scratch / version.replace(" ", "-")
    shared = Environment(folder, python)
    with timed(f"{torch} for {version}"):
        shared.pip("install", torch)
    for distribution, extra in what:
        try:
            install(distribution, extra, shared, python)
            passed = True
        except FaultError as fault:
            print(f"FAULT: {distribution.name}[{extra}] under {version}: {fault}", file=sys.stderr, flush=True)
            passed = False
        yield Row(version, "wheel" if distribution.suffix == ".whl" else "sdist", extra, passed)
    shutil.rmtree(folder)


def page(rows: Sequence[Row]) -> str:
    """The page of what was installed and used, a row for each distribution and extra."""
    pythons = sorted({row.python for row in rows}, key=lambda name: [int(part) for part in re.findall(r"\d+", name)])
    passed = {(row.python, row.kind, row.extra): "yes" if row.passed else "no" for row in rows}
    lines = [
        "# Installation",
        "",
        "Written by `python benchmarks/install.py --all --python … --markdown docs/results/install.md`: each into an",
        "empty environment that has torch only, then used; the other extras are absent, and what needs them says so.",
        "",
        f"| | {' | '.join(pythons)} |",
        "|---" * (1 + len(pythons)) + "|",
    ]
    for kind, extra in dict.fromkeys((row.kind, row.extra) for row in rows):
        shown = (passed.get((python, kind, extra), "not tried") for python in pythons)
        lines.append(f"| {kind}{f' `[{extra}]`' if extra else ''} | {' | '.join(shown)} |")
    return "\n".join([*lines, ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dist", type=Path, help="a folder with one wheel and one sdist; built if not given")
    parser.add_argument("--quick", action="store_true", help="check the contents, install nothing")
    parser.add_argument("--all", action="store_true", help="also install the sdist and every extra")
    parser.add_argument("--torch", default="torch==2.13.0", help="the requirement for torch (default: torch==2.13.0)")
    parser.add_argument("--python", action="append", metavar="PROGRAM", help="an interpreter; again for another one")
    parser.add_argument("--core", action="append", default=[], metavar="PROGRAM", help="one for the core alone")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write a table of what was installed and used")
    options = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        try:
            dist = options.dist
            if dist is None:
                dist = scratch / "dist"
                with timed("build"):
                    must(sys.executable, "-m", "build", "--outdir", dist, ROOT)
            (wheel,), (sdist,) = dist.resolve().glob("*.whl"), dist.resolve().glob("*.tar.gz")
            sizes = f"{wheel.stat().st_size / 1e3:.0f} kB wheel, {sdist.stat().st_size / 1e3:.0f} kB sdist"
            with timed(f"contents: {sizes}"):
                check_wheel(wheel)
                check_sdist(sdist)
            if options.quick:
                return 0
            core = [(wheel, "")]
            extras = [*((wheel, extra) for extra in (*EXTRAS, "all")), (sdist, "")] if options.all else []
            pythons = {python: [*core, *extras] for python in options.python or [sys.executable]}
            pythons |= dict.fromkeys(options.core, core)
            for python, what in pythons.items():
                for row in install_all(what, options.torch, scratch, python):
                    rows.append(row)
                    if options.markdown is not None:
                        options.markdown.write_text(page(rows), encoding="utf-8")
        except FaultError as fault:
            print(f"FAULT: {fault}", file=sys.stderr)
            return 1
    return 0 if all(row.passed for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
