"""What filtering a fleet's logs costs, and what survives: every figure of docs/design/scale.md.

    python benchmarks/scale.py parts                         reading, filtering and writing against the filter alone
    python benchmarks/scale.py throughput [--sessions N]     1,000,000 sessions of 100 steps through fwnkf batch
    python benchmarks/scale.py workers                       one worker of Ray against two
    python benchmarks/scale.py kills                         workers and driver killed with -9
    python benchmarks/scale.py chunks [--devices N]          10,000 devices in 7 daily chunks, and whole
    python benchmarks/scale.py corrupt [--sessions N]        1 % of sessions damaged
    python benchmarks/scale.py stream [--messages N --kills N]   the keyed consumer killed at random moments
    python benchmarks/scale.py device                        one core: devices at 200 Hz, bytes of state
    python benchmarks/scale.py simulate                      1,000 workers, from the task times of `parts`
    python benchmarks/scale.py page                          writes docs/design/scale.md from what was measured

Each command adds its figures to docs/results/scale.json. Ray runs in a network namespace of its own
(``unshare -rn``). ``--quick`` takes small numbers. Limits and figures stand side by side on the page.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from scale_page import write_page
from scale_simulation import simulate

import fwnkf
from fwnkf.filters.base import Filter
from fwnkf.scale.part import PARTS, PartRunner
from fwnkf.scale.settings import Settings, put_filter
from fwnkf.scale.states import StateBytes, filter_digest
from fwnkf.scale.store import Store

ROOT = Path(__file__).parents[1]
STORED = ROOT / "docs" / "results" / "scale.json"
STEP, STEPS, CHANNELS = 0.005, 100, ("a", "b")
PER_FILE = 10_000
BATCH = 1024
RAY = ("--engine", "ray")


def algorithm3(Q: torch.Tensor, encoder: fwnkf.GRU) -> Filter:
    """An FW-NKF with a learned transition and Φ, 3 states and 2 channels."""
    system = fwnkf.systems.LearnedSystem.of(H=torch.eye(2, 3), Q=Q, R=torch.eye(2))
    return fwnkf.FWNKF(system, encoder=encoder, transition=fwnkf.LocallyLinear(1), phi=fwnkf.Phi())


def small() -> Filter:
    """An FW-NKF with a GRU of 64 units, 3 states and 2 channels, with weights that are not zero."""
    torch.manual_seed(0)
    model = algorithm3(0.01 * torch.eye(3), fwnkf.GRU(64))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape))
    return model.eval()


def columns(devices: range, steps: int, start: float = 0.0, seed: int = 0) -> dict[str, Any]:
    """Noisy walks of devices as columns of a table."""
    generator = np.random.default_rng([seed, devices.start])
    count = len(devices)
    walk = 0.1 * generator.standard_normal((count, steps, 2), np.float32).cumsum(1)
    values = (walk + generator.standard_normal((count, steps, 2), np.float32)).reshape(-1, 2)
    names = pa.DictionaryArray.from_arrays(
        np.repeat(np.arange(count, dtype=np.int32), steps), [f"device-{k:07}" for k in devices]
    )
    time_column = np.tile(start + STEP * np.arange(steps), count)
    return {"device": names, "time": time_column, "a": values[:, 0], "b": values[:, 1]}


def write_fleet(folder: Path, sessions: int, steps: int = STEPS, per_file: int = PER_FILE) -> None:
    for first in range(0, sessions, per_file):
        devices = range(first, min(first + per_file, sessions))
        path = folder / f"day=0/part-{first // per_file:05}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns(devices, steps)), path)


def command(source: Path, output: Path, model: Path, *more: str) -> list[str]:
    words = [sys.executable, "-m", "fwnkf.cli", "batch", "--input", str(source), "--output", str(output), "--json"]
    words += ["--filter", str(model), "--channels", ",".join(CHANNELS), "--step", str(STEP)]
    return [*words, "--batch-size", str(BATCH), *more]


def start(words: list[str]) -> subprocess.Popen[str]:
    """A command in a network namespace of its own."""
    line = " ".join(shlex.quote(word) for word in words)
    inside = ["unshare", "-rn", "sh", "-c", f"ip link set lo up; exec {line}"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    return subprocess.Popen(inside, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


def family(process: subprocess.Popen[str]) -> dict[int, str]:
    """A process and all below it, with their command lines."""
    listing = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    table = [line.split(None, 2) for line in listing.splitlines()[1:]]
    found = {process.pid}
    while more := {int(pid) for pid, parent, _ in table if int(parent) in found} - found:
        found |= more
    return {int(pid): words for pid, _, words in table if int(pid) in found}


def memory(pids: list[int]) -> float:
    """Gigabytes of processes, what they share counted once."""
    total = 0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
        except (OSError, StopIteration):
            continue
    return total / 1e6


def run(words: list[str]) -> tuple[dict[str, Any], float, float]:
    """Run a command: its JSON, its seconds, and the most memory that it and all its processes had together."""
    began, most = time.perf_counter(), 0.0
    process = start(words)
    done = threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(2.0):
            most = max(most, memory(list(family(process))))

    thread = threading.Thread(target=watch)
    thread.start()
    output, _ = process.communicate()
    done.set()
    thread.join()
    if process.returncode not in (0, 1) or not output:
        raise SystemExit(f"{shlex.join(words)} ended with {process.returncode}")
    return json.loads(output), time.perf_counter() - began, most


def plain_loop(model: Filter, y: torch.Tensor) -> float:
    """Processor seconds of the batched step over tensors in memory."""
    began = time.process_time()
    with torch.no_grad():
        prepared = model.prepare()
        for first in range(0, len(y), BATCH):
            model.run(y[first : first + BATCH], prepared=prepared)
    return time.process_time() - began


def parts_over_plain(folder: Path, files: int, rounds: int) -> dict[str, Any]:
    """Whole parts (read, filter, write) and the plain loop over the same samples in turns, in one process."""
    torch.set_num_threads(1)
    output = Store(str(folder / "turns"))
    put_filter(folder / "filter", output)
    settings = Settings(
        str(folder / "in"), str(folder / "turns"), filter_digest(folder / "filter"), CHANNELS, step=STEP,
        batch_size=BATCH,
    )  # fmt: skip
    runner = PartRunner(settings)
    names = [name for name, _ in Store(settings.input).files()][:files]
    ratios, tasks, rows = [], [], 0
    work: dict[str, float] = {}
    for k in range(rounds):
        name = names[k % len(names)]
        table = pq.read_table(folder / "in" / name)
        y = torch.from_numpy(np.stack([table.column(c).to_numpy() for c in CHANNELS], 1)).reshape(-1, STEPS, 2)
        plain = plain_loop(runner.model, y)
        began = time.process_time()
        record = runner(name, 0, ())
        ratios.append(plain / (time.process_time() - began))
        tasks.append(sum(record["seconds"].values()))
        work = {kind: work.get(kind, 0.0) + spent for kind, spent in record["seconds"].items()}
        rows += record["rows"]
    return {
        "ratio": float(np.median(ratios)), "ratios": ratios, "task_seconds": tasks, "task_rows": rows / rounds,
        "work_seconds": work,
    }  # fmt: skip


def prepare(options: argparse.Namespace) -> tuple[Path, int]:
    """The folder with filter and samples, which is kept if it was named, and the number of sessions."""
    folder = Path(options.folder or tempfile.mkdtemp(prefix="fleet-"))
    sessions = options.sessions or (2_000 if options.quick else 1_000_000)
    fwnkf.save(small(), folder / "filter")
    if not (folder / "in").exists():
        write_fleet(folder / "in", sessions, per_file=options.per_file or min(PER_FILE, max(1, sessions // 8)))
    return folder, sessions


def parts(options: argparse.Namespace) -> dict[str, Any]:
    """Whole parts against the plain loop."""
    folder, _ = prepare(options)
    turns = parts_over_plain(folder, 16, options.turns or (3 if options.quick else 7))
    print("part over plain loop:", turns["ratio"], flush=True)
    return turns | {"load": os.getloadavg()[0]}


def throughput(options: argparse.Namespace) -> dict[str, Any]:
    """All sessions in one command with two workers."""
    folder, sessions = prepare(options)
    output = folder / "two"
    shutil.rmtree(output, ignore_errors=True)
    told, seconds, most = run(command(folder / "in", output, folder / "filter", *RAY, "--workers", "2"))
    print(f"two workers: {told['rows']:,} rows in {seconds:.0f} s, {most:.2f} GB", flush=True)
    return {
        "sessions": sessions, "rows": told["rows"], "seconds": seconds, "memory_gb": most, "load": os.getloadavg()[0],
        "bytes_in": _size(folder / "in"), "bytes_out": _size(output),
    }  # fmt: skip


def workers(options: argparse.Namespace) -> dict[str, Any]:
    """The first files with one worker and with two, in turn, by the clock."""
    folder, _ = prepare(options)
    few = folder / "few"
    shutil.rmtree(few, ignore_errors=True)
    few.mkdir()
    for path in sorted((folder / "in" / "day=0").glob("*.parquet"))[: options.few]:
        (few / path.name).symlink_to(path)
    speeds: dict[int, list[float]] = {1: [], 2: []}
    for turn in range(options.rounds):
        for count in (1, 2):
            output = folder / f"few-{count}-{turn}"
            shutil.rmtree(output, ignore_errors=True)
            part, spent, _ = run(command(few, output, folder / "filter", *RAY, "--workers", str(count)))
            speeds[count].append(part["rows"] / spent)
            print(f"{count} worker(s): {speeds[count][-1]:,.0f} rows a second, start of Ray included", flush=True)
    ratio = float(np.median(speeds[2]) / np.median(speeds[1]))
    return {"two_over_one": ratio, "rows_per_second": speeds, "load": os.getloadavg()[0]}


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def digests(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def kills(options: argparse.Namespace) -> dict[str, Any]:
    """Three workers and then the driver killed while parts are being filtered."""
    folder = Path(options.folder or tempfile.mkdtemp(prefix="fleet-"))
    sessions = options.sessions or (2_000 if options.quick else 40_000)
    fwnkf.save(small(), folder / "filter")
    write_fleet(folder / "kills", sessions, per_file=sessions // 40)
    run(command(folder / "kills", folder / "calm", folder / "filter", "--engine", "loop"))
    words = command(folder / "kills", folder / "stormy", folder / "filter", "--engine", "ray", "--workers", "2")
    process, killed = start(words), 0
    while killed < 3:
        if process.poll() is not None:
            raise SystemExit("the run ended before three workers were killed")
        workers = [pid for pid, line in family(process).items() if "MapWorker" in line]
        done = len(list((folder / "stormy" / PARTS).rglob("*.json")))
        if workers and done > 4 * killed:
            os.kill(workers[0], signal.SIGKILL)
            killed += 1
            print(f"worker {workers[0]} killed after {done} parts", flush=True)
        time.sleep(0.1)
    time.sleep(1.0)
    driver = next(pid for pid, line in family(process).items() if "fwnkf.cli" in line and "unshare" not in line)
    os.kill(driver, signal.SIGKILL)
    process.communicate()
    before = len(list((folder / "stormy" / PARTS).rglob("*.json")))
    told, _, _ = run([*words, "--resume"])
    same = digests(folder / "stormy") == digests(folder / "calm")
    print(f"driver killed after {before} parts, {told['parts']} after --resume; same files: {same}")
    return {"workers_killed": killed, "parts_before": before, "parts_after": told["parts"], "same_files": same}


def chunks(options: argparse.Namespace) -> dict[str, Any]:
    """Devices whose logs are cut into seven chunks, against the same logs uncut."""
    folder = Path(options.folder or tempfile.mkdtemp(prefix="fleet-"))
    devices = options.devices or (200 if options.quick else 10_000)
    fwnkf.save(small(), folder / "filter")
    per_file, length = max(1, devices // 4), 20
    for number, first in enumerate(range(0, devices, per_file)):
        part = columns(range(first, min(first + per_file, devices)), 7 * length)
        day = np.tile(np.arange(7 * length) // length, len(part["time"]) // (7 * length))
        for path, where in [
            (folder / "whole" / f"{number}.parquet", day >= 0),
            *((folder / "days" / f"day={d}" / f"{number}.parquet", day == d) for d in range(7)),
        ]:
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table({name: values.filter(pa.array(where)) if name == "device" else values[where]
                                     for name, values in part.items()}), path)  # fmt: skip
    for name in ("whole", "days"):
        run(command(folder / name, folder / f"{name}-out", folder / "filter", "--engine", "loop"))
    equal = 0
    for number in range(len(list((folder / "whole").glob("*.parquet")))):
        uncut = pq.read_table(folder / "whole-out" / f"{number}.parquet")
        days = [pq.read_table(folder / "days-out" / f"day={d}" / f"{number}.parquet") for d in range(7)]
        plain = [item.set_column(0, "device", item.column(0).cast(pa.string())) for item in (uncut, *days)]
        joined = pa.concat_tables(plain[1:]).sort_by([("device", "ascending"), ("time", "ascending")])
        names = np.array(joined.column("device").to_pylist())
        same = [np.array_equal(joined.column(c).to_numpy().view(np.uint8), plain[0].column(c).to_numpy().view(np.uint8))
                for c in joined.column_names[1:]]  # fmt: skip
        equal += len(np.unique(names)) if all(same) else 0
    shutil.copytree(folder / "days" / "day=0", folder / "again" / "day=9")
    shutil.copytree(folder / "days-out", folder / "again-out")
    for number in range(7):
        shutil.copytree(folder / "days" / f"day={number}", folder / "again" / f"day={number}")
    told, _, _ = run(command(folder / "again", folder / "again-out", folder / "filter", "--engine", "loop"))
    refused = sum("order of time" in item["reason"] for item in told["set_aside"])
    print(f"{equal:,} of {devices:,} devices have the bits of the uncut log; {refused:,} late chunks refused")
    return {"devices": devices, "equal": equal, "late_chunks": devices, "refused": refused}


def corrupt(options: argparse.Namespace) -> dict[str, Any]:
    """One per cent of sessions damaged: values, times, columns, files."""
    folder = Path(options.folder or tempfile.mkdtemp(prefix="fleet-"))
    sessions = options.sessions or (500 if options.quick else 20_000)
    fwnkf.save(small(), folder / "filter")
    kinds = ("not finite", "time goes backwards", "no column", "cannot be read")
    part = columns(range(sessions), STEPS)
    names = np.array(part["device"].dictionary.to_pylist())
    generator = np.random.default_rng(1)
    damaged = np.sort(generator.choice(sessions, max(len(kinds), sessions // 100), replace=False))
    table = {name: np.array(values) for name, values in part.items() if name != "device"}
    table["device"] = np.repeat(names, STEPS)
    keep, expected = np.ones(sessions * STEPS, bool), {}
    for k, place in enumerate(damaged):
        kind, mine = kinds[k % len(kinds)], slice(place * STEPS, (place + 1) * STEPS)
        expected[names[place]] = kind
        if kind == "not finite":
            table["a"][mine] = np.nan
            table["b"][mine.start + 9 : mine.stop] = np.nan
        elif kind == "time goes backwards":
            table["time"][mine.start + 50] -= 1.0
        else:
            keep[mine] = False
            single = {name: values[mine] for name, values in table.items() if name != "device"}
            if kind == "no column":
                single["c"] = single.pop("b")
            path = folder / "bad" / f"device={names[place]}" / "log.parquet"
            path.parent.mkdir(parents=True)
            pq.write_table(pa.table(single), path)
            if kind == "cannot be read":
                path.write_bytes(path.read_bytes()[:-100])
    good = np.repeat(~np.isin(np.arange(sessions), damaged), STEPS)
    for name, where in (("good", good), ("bad", keep)):
        (folder / name).mkdir(exist_ok=True)
        pq.write_table(pa.table({key: values[where] for key, values in table.items()}), folder / name / "all.parquet")
    run(command(folder / "good", folder / "good-out", folder / "filter", "--engine", "loop"))
    told, _, _ = run(command(folder / "bad", folder / "bad-out", folder / "filter", "--engine", "loop"))
    found = {item["device"]: item["reason"] for item in told["set_aside"]}
    named = sum(kind in found.get(name, "") for name, kind in expected.items())
    wrongly = len(set(found) - set(expected))
    one, two = (pq.read_table(folder / f"{name}-out" / "all.parquet") for name in ("good", "bad"))
    same = all(one.column(c).combine_chunks().equals(two.column(c).combine_chunks()) for c in one.column_names[1:])
    print(f"{named} of {len(expected)} damaged sessions named, {wrongly} others; all others the same bits: {same}")
    return {"sessions": sessions, "damaged": len(expected), "named": named, "wrongly": wrongly, "others_same": same}


def device(options: argparse.Namespace) -> dict[str, Any]:
    """Processor time of a step and bytes of a state on one core, for filters of three sizes."""
    torch.set_num_threads(1)
    one = torch.eye(1)
    filters = {
        "kf, 1 state": fwnkf.KF(F=one, H=one, Q=one, R=one),
        "small: fwnkf, GRU 64, 3 states": small(),
        "paper: fwnkf, GRU 2 x 256, 3 states": algorithm3(torch.eye(3), fwnkf.GRU(256, layers=2)),
    }
    rows = {}
    for name, model in filters.items():
        y = torch.randn(BATCH, 30, model.observation_dim)
        plain_loop(model, y)
        seconds = min(plain_loop(model, y) for _ in range(3)) / (BATCH * 30)
        rows[name] = {
            "us_per_step": 1e6 * seconds, "devices_per_core": 1 / (200 * seconds), "state_bytes": StateBytes(model).size
        }  # fmt: skip
        print(name, rows[name], flush=True)
    return rows


def stream(options: argparse.Namespace) -> dict[str, Any]:
    """The keyed consumer on Redis, killed at random moments."""
    sys.path.insert(0, str(ROOT))
    from docs.howto.keyed_stream import kill_test

    messages = options.messages or (2_000 if options.quick else 100_000)
    count = options.kills or (3 if options.quick else 50)
    return kill_test(devices=min(1000, messages // 20), messages=messages, kills=count)


def simulation(options: argparse.Namespace) -> dict[str, Any]:
    measured = stored().get("parts")
    if measured is None:
        raise SystemExit("run `parts` first: its task times are those of the simulation")
    return simulate(measured["task_seconds"], measured["task_rows"])


COMMANDS = {
    "parts": parts, "throughput": throughput, "workers": workers, "kills": kills, "chunks": chunks, "corrupt": corrupt,
    "device": device, "stream": stream, "simulate": simulation,
}  # fmt: skip


def stored() -> dict[str, Any]:
    return json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}


def _command_line() -> str:
    """The command without the folder of this machine."""
    words = sys.argv[1:]
    if "--folder" in words:
        place = words.index("--folder")
        words = words[:place] + words[place + 2 :]
    return shlex.join(["python", "benchmarks/scale.py", *words])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=(*COMMANDS, "page"))
    parser.add_argument("--quick", action="store_true", help="small numbers, nothing is stored")
    parser.add_argument("--sessions", type=int)
    parser.add_argument("--devices", type=int)
    parser.add_argument("--messages", type=int)
    parser.add_argument("--kills", type=int)
    parser.add_argument("--few", type=int, default=16, help="files of the comparison of one worker with two")
    parser.add_argument("--per-file", type=int, help="sessions in a file; the last batch of a file is filled up")
    parser.add_argument("--turns", type=int, help="rounds in which parts and the plain loop alternate")
    parser.add_argument("--rounds", type=int, default=1, help="rounds in which one worker and two alternate")
    parser.add_argument("--folder", help="where data and results are kept")
    options = parser.parse_args()
    if options.what == "page":
        write_page(stored(), ROOT / "docs" / "design" / "scale.md")
        return 0
    result = COMMANDS[options.what](options)
    print(json.dumps({key: value for key, value in result.items() if key != "task_seconds"}, indent=1))
    if not options.quick:
        values = {**stored(), options.what: {**result, "command": _command_line()}}
        STORED.write_text(json.dumps(values, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
