"""Parts of ``engine.py`` that need processes of their own, long references, or another version of the package."""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import engine_cases as cases
import engine_rivals as rivals
import numpy as np
import torch

import fwnkf
from fwnkf.errors import FwnkfError

BENCHMARKS = Path(__file__).resolve().parent
Done = set[tuple[str, str, int]]
Row = dict[str, Any]


# ---- cost and memory by the length of a record ----------------------------------------------------------------------

LENGTHS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
CHUNK = 100_000
"""Steps that are run at a time; their outputs are dropped, as those of a run that writes them to a file."""
LONGEST = {
    "native": LENGTHS[-1],
    "scan": LENGTHS[-1],
    "loop": 10_000,
    "dynamax": 1_000_000,
    "statsmodels": 1_000_000,
    "C by hand": LENGTHS[-1],
}


def long_record(candidate: str, steps: int) -> Row:
    """Seconds, and bytes of memory that were taken beside the record itself; in a process of its own."""
    case = cases.turn(min(steps, CHUNK))
    y = np.tile(case.y, (max(1, steps // CHUNK), 1))
    whole = case._replace(y=y)

    @torch.no_grad()
    def in_chunks(y: Any) -> None:
        state, prior = None, case.inputs["prior"]
        for part in torch.from_numpy(y)[None].split(CHUNK, 1):
            given = {"prior": prior} if state is None else {"state": state}
            state = case.filter.run(part, **given, engine=candidate).state

    others: dict[str, Callable[[cases.Case], Callable[[], object]]] = {
        "dynamax": rivals.dynamax_filter,
        "statsmodels": rivals.statsmodels_filter,
        "C by hand": rivals.c_by_hand,
    }
    if candidate in others:
        rivals.one_thread()
        run = others[candidate](whole)
    else:
        in_chunks(case.y[:1000])  # compiles

        def run() -> None:
            in_chunks(y)

    before = _resident()
    Path("/proc/self/clear_refs").write_text("5")  # the largest size so far is that of now
    if candidate == "dynamax":
        run()  # compiles
    begin = time.process_time()
    run()
    seconds = time.process_time() - begin
    return {"seconds": seconds, "bytes": max(0, _largest() - before)}


def _resident() -> int:
    """Bytes of this process in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _largest() -> int:
    """The most bytes of this process in memory since they were reset."""
    status = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


def of_lengths(options: argparse.Namespace, done: Done) -> Iterator[Row]:
    for steps in LENGTHS:
        for candidate, longest in LONGEST.items():
            if steps <= longest and ("lengths", candidate, steps) not in done:
                found = _child("long_record", candidate, steps)
                yield {"part": "lengths", "case": candidate, "steps": steps, **found}


# ---- agreement with the loop ----------------------------------------------------------------------------------------

AGREEMENT_STEPS, PIECE = 1_000_000, 10_000


def of_agreement(options: argparse.Namespace, done: Done) -> Iterator[Row]:
    """Every engine beside the loop over a million irregular steps with missing values; the loop in pieces, kept."""
    from engine import difference

    case = cases.tracker(AGREEMENT_STEPS)
    name = "n = 12, m = 3, a fifth missing, irregular"
    steps = min(options.reference_steps, AGREEMENT_STEPS)
    if ("agreement", name, steps) in done:
        return
    inputs = case.inputs
    prior = inputs.pop("prior")
    options.store.mkdir(parents=True, exist_ok=True)
    far: dict[str, list[float]] = {"native": [], "scan": []}
    states: dict[str, Any] = dict.fromkeys(far)
    state = None
    with torch.no_grad():
        for begin in range(0, steps, PIECE):
            part = {key: value[:, begin : begin + PIECE] for key, value in inputs.items()}
            file = options.store / f"loop-{begin}.npz"
            if not file.exists():
                start = {"prior": prior} if state is None else {"state": state}
                track = case.filter.run(**part, **start, engine="loop")
                likelihood = track.log_likelihood.sum().numpy()
                outputs = {"mean": track.mean[0], "cov": track.cov[0], "innovation": track.innovation[0]}
                with file.with_suffix(".part").open("wb") as opened:
                    np.savez(opened, **{key: value.numpy() for key, value in outputs.items()}, likelihood=likelihood)
                file.with_suffix(".part").rename(file)
                print(f"loop: {begin + PIECE:,} steps", flush=True)
            kept = np.load(file)
            reference = rivals.Result(kept["mean"], kept["cov"], kept["likelihood"], kept["innovation"])
            # the state of a Kalman filter is its belief
            state = fwnkf.Gaussian(*(torch.from_numpy(item[-1:]) for item in reference[:2]))
            for engine in list(far):
                start = {"prior": prior} if states[engine] is None else {"state": states[engine]}
                try:
                    track = case.filter.run(**part, **start, engine=engine)
                except FwnkfError as error:
                    print(f"{engine}: {error}", flush=True)
                    del far[engine]
                    continue
                states[engine] = track.state
                outputs = track.mean[0], track.cov[0], track.log_likelihood.sum(), track.innovation[0]
                far[engine].append(difference(rivals.Result(*outputs), reference))
    found = {engine: float(f"{max(values):.2g}") for engine, values in far.items()}
    yield {"part": "agreement", "case": name, "steps": steps, "difference": found}


# ---- single precision -----------------------------------------------------------------------------------------------

PRECISION_STEPS = 5000


def of_precision(options: argparse.Namespace, done: Done) -> Iterator[Row]:
    """Every engine in float32 beside the loop in float64, in both forms of the covariance."""
    from engine import RETURNED, difference, ours

    made = {"n = 4, m = 2, regular": cases.turn, "n = 12, m = 3, a fifth missing, irregular": cases.tracker}
    for name, make in made.items():
        if ("precision", name, PRECISION_STEPS) in done:
            continue
        case = make(PRECISION_STEPS)
        reference = ours(case, "loop")()
        far, taken = {}, {}
        for form in ("auto", "square_root"):
            for dtype in (torch.float64, torch.float32):
                model = cases.rebuilt(case.filter, form, dtype)
                given = {
                    key: fwnkf.Gaussian(*(item.to(dtype) for item in value)) if key == "prior"
                    else value if key == "mask" else value.to(dtype)
                    for key, value in case.inputs.items()
                }  # fmt: skip
                for engine in ("loop", "scan", "native"):
                    label = f"{engine}, {'dense' if form == 'auto' else 'factors'}, {str(dtype)[6:]}"
                    with torch.no_grad():
                        try:
                            model.run(**given, engine=engine, outputs=RETURNED)  # compiles
                            begin = time.process_time()
                            track = model.run(**given, engine=engine, outputs=RETURNED)
                        except FwnkfError:
                            continue  # an engine without this form
                    taken[label] = [time.process_time() - begin]
                    outputs = (track.mean[0], track.cov[0], track.log_likelihood[0], track.innovation[0])
                    found = rivals.Result(*(item.double() for item in outputs))
                    far[label] = float(f"{difference(found, reference):.2g}")
        yield {"part": "precision", "case": name, "steps": PRECISION_STEPS, "difference": far, "taken": taken}


# ---- commands -------------------------------------------------------------------------------------------------------

COMMANDS: dict[str, tuple[str, ...]] = {
    "fwnkf fit, drift": ("benchmarks/fit.py", "--cases", "drift", "--seeds", "1", "--rows", "{folder}/fit.json"),
    "fwnkf diagnose --fix, example flight": (
        "-m", "fwnkf.cli", "diagnose", "{folder}/flight.csv", "--fix",
        "--save", "{folder}/fixed", "-o", "{folder}/page.json",
    ),
    "tasks fit, EuRoC": ("-m", "tasks", "fit", "euroc-strict"),
}  # fmt: skip


def of_commands(options: argparse.Namespace, done: Done) -> Iterator[Row]:
    """CPU seconds of whole commands, in turns with a checkout of the release before."""
    if options.before is None:
        print("commands: give --before PATH, a checkout of the release that they are compared with", flush=True)
        return
    trees = {"now": BENCHMARKS.parent, "0.2.0": options.before.resolve()}
    for name, command in COMMANDS.items():
        if ("commands", name, 0) in done:
            continue
        taken: dict[str, list[float]] = {tree: [] for tree in trees}
        for _ in range(1 if "tasks" in name else 3):
            for tree, root in trees.items():
                with tempfile.TemporaryDirectory() as folder:
                    _python(root, "-m", "fwnkf.cli", "data", "example", f"{folder}/flight.csv")
                    seconds = _python(root, *(word.format(folder=folder) for word in command))
                    if (fits := Path(folder) / "fit.json").exists():  # simulating and comparing with truth is no fit
                        seconds = json.loads(fits.read_text())[0]["CPU s"]
                    taken[tree].append(seconds)
        yield {"part": "commands", "case": name, "steps": 0, "taken": taken}


def _python(root: Path, *words: str, **variables: str) -> float:
    """Run Python in a checkout; CPU seconds, those of its children included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    path = os.pathsep.join(map(str, (root / "src", root)))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **variables}
    ended = subprocess.run([sys.executable, *words], cwd=root, env=environment, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if ended.returncode not in (0, 1):  # 1 is the answer of a diagnosis that found something
        raise RuntimeError(f"{' '.join(words)} in {root}: {ended.stderr[-2000:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def of_profile(options: argparse.Namespace, done: Done) -> Iterator[Row]:
    """Where the time of those commands goes: shares by package, those of built-in functions with who calls them."""
    for name, command in COMMANDS.items():
        if ("profile", name, 0) in done:
            continue
        with tempfile.TemporaryDirectory() as folder:
            root, statistics = BENCHMARKS.parent, f"{folder}/profile"
            _python(root, "-m", "fwnkf.cli", "data", "example", f"{folder}/flight.csv")
            _python(root, "-m", "cProfile", "-o", statistics, *(word.format(folder=folder) for word in command))
            yield {"part": "profile", "case": name, "steps": 0, "shares": shares(statistics)}


IMPORTS = "importing"


def shares(path: str) -> dict[str, float]:
    """Shares of the time of a profile, by package."""
    import pstats

    spent: dict[str, float] = {}
    profile: Any = pstats.Stats(path)
    for (file, _, _), (_, _, own, _, callers) in profile.stats.items():
        if file == "~" and callers:  # a built-in function: with who calls it
            for (caller, _, _), (_, _, part, _) in callers.items():
                spent[package(caller)] = spent.get(package(caller), 0.0) + part
        else:
            spent[package(file)] = spent.get(package(file), 0.0) + own
    total = sum(spent.values())
    return {name: round(value / total, 3) for name, value in sorted(spent.items(), key=lambda item: -item[1])[:8]}


def package(file: str) -> str:
    """What a file belongs to: a folder of this package, or another package.

    >>> package("/somewhere/src/fwnkf/native/kalman.py"), package("/lib/site-packages/torch/_ops.py")
    ('fwnkf.native', 'torch')
    """
    parts = Path(file).parts
    if "fwnkf" in parts:
        return ".".join(parts[len(parts) - 1 - parts[::-1].index("fwnkf") :][:2]).removesuffix(".py")
    if "site-packages" in parts:
        return parts[parts.index("site-packages") + 1].removesuffix(".py")
    return IMPORTS if "importlib" in file else "Python and others"


# ---- fwnkf run ------------------------------------------------------------------------------------------------------

RUN_SECONDS, RUN_RATE = 600, 1000
CHANNELS = tuple(f"{sensor}_{axis}" for sensor in ("gyro", "accel") for axis in "xyz")


def lines_of_six_channels(folder: Path) -> None:
    """A filter for six channels with three lines each, saved, and a log for it."""
    eye = torch.eye(6)
    system = fwnkf.LinearSystem.of(F=eye, H=eye, Q=1e-4 * eye, R=1e-2 * eye, dt=1 / RUN_RATE, channels=CHANNELS)
    lines = fwnkf.Lines(hz=[80.0, 160.0, 240.0], bandwidth_hz=2.0, std=0.1)
    fwnkf.save(fwnkf.FWNKF(system, noise=lines), folder / "filter")
    steps = RUN_SECONDS * RUN_RATE
    random, t = np.random.default_rng(0), np.arange(steps) / RUN_RATE
    values = 0.1 * random.standard_normal((steps, 6)) + 0.1 * np.sin(2 * np.pi * 80 * t)[:, None]
    table = np.column_stack([t, values])
    np.savetxt(folder / "log.csv", table, "%.6f", ",", header=",".join(("t", *CHANNELS)), comments="")


def of_run(options: argparse.Namespace, done: Done) -> Iterator[Row]:
    name = f"fwnkf run, six channels with three lines each, {RUN_SECONDS} s at {RUN_RATE} Hz"
    if ("run", name, RUN_SECONDS * RUN_RATE) in done:
        return
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        lines_of_six_channels(folder)
        command = ("-m", "fwnkf.cli", "run", f"{folder}/log.csv", "--filter", f"{folder}/filter", "-o")
        taken = [_python(BENCHMARKS.parent, *command, f"{folder}/estimates-{k}.parquet") for k in range(3)]
    yield {
        "part": "run",
        "case": name,
        "steps": RUN_SECONDS * RUN_RATE,
        "taken": {"now": taken, "length of the log": [float(RUN_SECONDS)]},
    }


# ---- first and second run -------------------------------------------------------------------------------------------

FIRST_STEPS = 60 * 500
FIRST: dict[str, Callable[[], Any]] = {
    "KF, n = 4": lambda: cases.turn(FIRST_STEPS),
    "KF, n = 12": lambda: cases.tracker(FIRST_STEPS),
    "EKF, attitude": lambda: cases.attitude(FIRST_STEPS),
    "EKF, strapdown": lambda: cases.strapdown(FIRST_STEPS, own_rates=True),
    "FW-NKF with lines, level and GRU 64": lambda: cases.learned_noise(FIRST_STEPS),
}


def first_run(name: str, engine: str) -> Row:
    """CPU seconds of the first run of a process, compilers that it calls included."""
    case = FIRST[name]()
    begin = _spent()
    with torch.no_grad():
        track = case.filter.run(**case.inputs, engine=engine)
    return {"seconds": _spent() - begin, "engine": track.engine}


def _spent() -> float:
    """CPU seconds of this process and of those that it started and waited for."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def of_first(options: argparse.Namespace, done: Done) -> Iterator[Row]:
    """A new filter with an empty cache, the same again in a new process, and the loop."""
    for name in FIRST:
        if ("first", name, FIRST_STEPS) in done:
            continue
        taken: dict[str, list[float]] = {"first": [], "second": [], "loop": []}
        for k in range(3):
            with tempfile.TemporaryDirectory() as cache:
                for run, engine in (("first", "auto"), ("second", "auto"), ("loop", "loop")):
                    if run != "loop" or k == 0:  # a minute or more, and nothing in it varies
                        found = _child("first_run", name, engine, FWNKF_CACHE=cache)
                        taken[run].append(found["seconds"])
        yield {"part": "first", "case": name, "steps": FIRST_STEPS, "taken": taken}


PARTS: dict[str, Callable[[argparse.Namespace, Done], Iterator[Row]]] = {
    "lengths": of_lengths,
    "agreement": of_agreement,
    "precision": of_precision,
    "commands": of_commands,
    "profile": of_profile,
    "run": of_run,
    "first": of_first,
}


def _child(function: str, *arguments: str | int, **variables: str) -> Row:
    """A function of this file in a new process."""
    words = [sys.executable, __file__, function, *map(str, arguments)]
    ended = subprocess.run(words, env={**os.environ, **variables}, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"{' '.join(words)}: {ended.stderr[-2000:]}")
    found: Row = json.loads(ended.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    given = [int(word) if word.isdigit() else word for word in sys.argv[2:]]
    print(json.dumps({"long_record": long_record, "first_run": first_run}[sys.argv[1]](*given)))
