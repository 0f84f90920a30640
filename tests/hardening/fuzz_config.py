"""Fuzz what describes filters: ``python -m tests.hardening.fuzz_config TARGET COUNT --seed S --rows FILE``.

TARGET is one of :data:`TARGETS`, or ``all``. A case is a mutation of a valid checkpoint, snapshot of a stream,
experiment file or run folder, or of an earlier case whose outcome was new: the words of its error, without names and
numbers, stand for the place in the code that refused it. A case has to be used, or refused with an error of the
package, within limits on time and memory that grow with its size. Those that are not are written to the folder of
``--failures``.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes

import fwnkf
from fwnkf.checkpoint import metadata_of
from fwnkf.errors import MESSAGE_LIMIT, FwnkfError
from fwnkf.evaluation.runs import read_run

from .. import systems
from ..conformance.cases import CASES
from ..mutated_checkpoints import mutate, mutated_bytes, mutated_json, mutated_tree
from .rows import Row, append

ROOT = Path(__file__).parents[2]
BLOCK = 1000
"""Cases of a row."""
SECONDS, SECONDS_FOR_MEGABYTE = 1.0, 20.0
"""Processor time that a case may take."""
MEGABYTES, MEGABYTES_FOR_MEGABYTE = 50.0, 200.0
"""Memory by which a case may raise the peak of the process."""
VALID = 0.7
"""Share of the cases that are mutations of a valid one ..."""
CORPUS = 300
"""... and the most earlier cases, of which the others are."""
LARGEST = 100_000
"""Bytes of a case that is mutated further."""
MODELS = ("kf", "ekf-pendulum", "lines-curved", "kalmannet", "arkf", "orders", "hypotheses")

EXPERIMENTS = (
    """
name: a
data: {name: lorenz, train: 4, val: 2, test: 2}
filter: {name: kf, options: {learn: [Q, R]}, equations: false}
""",
    """
data: &d {name: simulated, steps: 5}
system: {name: pendulum, dt: 0.02}
filter: {name: fwnkf, options: {encoder: {units: 2}, residual: {width: 4}, phi: {}}}
loss: [{kind: state, weight: 1e-1}]
trainer: {steps: 2, loggers: []}
optimizer: {learning_rate: 1e-3, rates: {residual: 0.5}}
seed: 0x10
""",
    """
data:
  name: tables
  folder: logs
  state: [a, b]
  observe: [c]
  window: 10
system:
  name: linear
  state_dim: 2
  observation_dim: 1
  learn: [Q]
filter:
  name: fwnkf
  options: {noise: {part: lines, count: 2}, encoder: {units: 2}}
""",
)
TAGS = (
    *(b"*d", b"&a ", b"<<: *d", b"!!set ", b"!!binary ", b"!!timestamp ", b"2026-99-99", b"1:2:3", b"0o9", b"? "),
    *(b"!!python/name:os.system ", b"0x" + b"f" * 2000, b"\xef\xbb\xbf", b"---\n", b"%YAML 9.9\n", b"!<x> "),
)
RECORD = {
    "format": 1, "status": "done", "experiment": {"name": "a", "seed": 0, "data": {"name": "lorenz"}}, "seed": 0,
    "steps": 10, "best_step": 5, "cpu_seconds": 1.5, "parameters": 12, "data_digest": "abc", "test_digest": "abc",
    "monitor": "val_mse", "started": "2026-01-01", "command": "fwnkf train", "versions": {"torch": "2"},
    "filter": "kf", "name": "a", "commit": "none",
}  # fmt: skip
ROWS = [{"method": "a", "mse": 0.5, "nees": None, "records": 3, "seeds": [0, 1]}, {"method": "b", "mse": "inf"}]

Case = dict[str, bytes]
"""The files of a case by name."""


class Target:
    """A parser: valid cases, mutations of them, and the use of a case."""

    def sources(self) -> list[Case]:
        raise NotImplementedError

    def mutated(self, case: Case, other: Case, rng: random.Random, folder: Path) -> Case:
        raise NotImplementedError

    def use(self, case: Case, folder: Path) -> None:
        """Use a case with an empty folder for its files; anything but an error of the package is a failure."""
        raise NotImplementedError


def put_files(case: Case, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, data in case.items():
        (folder / name).write_bytes(data)


def get_files(folder: Path) -> Case:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


class Checkpoint(Target):
    """A saved filter, which is then run for a few steps."""

    def sources(self) -> list[Case]:
        with tempfile.TemporaryDirectory() as scratch:
            models = [CASES[name].build(torch.float64) for name in MODELS]
            models.append(fwnkf.FWNKF(systems.pendulum(torch.float32), encoder=fwnkf.GRU(4, layers=2), phi=fwnkf.Phi()))
            built = [get_files(fwnkf.save(model, Path(scratch) / str(k))) for k, model in enumerate(models)]
        shipped = [get_files(ROOT / "models" / name) for name in ("lorenz", "broad", "racer")]
        return built + [{name: case[name] for name in ("config.json", "model.safetensors")} for case in shipped]

    def mutated(self, case: Case, other: Case, rng: random.Random, folder: Path) -> Case:
        try:
            json.loads(case["config.json"])
            put_files(case, folder / "case")
            put_files(other, folder / "other")
            mutate(folder / "case", rng, folder / "other")
            return get_files(folder / "case")
        except Exception:  # an earlier case is not valid enough for that
            name = rng.choice(sorted(case))
            return {**case, name: mutated_bytes(case[name], rng)}

    def use(self, case: Case, folder: Path) -> None:
        put_files(case, folder)
        model = fwnkf.load(folder)
        channels, controls, block = model.input_sizes
        y = torch.zeros(1, 2 * block, channels, dtype=model.dtype)
        u = torch.zeros(1, 2 * block, controls, dtype=model.dtype) if controls else None
        if model.system is None or model.system.prior() is not None or model.initial_steps:
            model.run(y, u)


class Snapshot(Target):
    """A snapshot of a stream, which then takes a sample. Format 1, because whoever crafts one can make a checksum."""

    def __init__(self) -> None:
        eye = torch.eye(1)
        self.models = {
            "two": fwnkf.EKF(systems.pendulum(torch.float32)),
            "kf": fwnkf.KF(F=eye, H=eye, Q=eye, R=eye),
        }

    def sources(self) -> list[Case]:
        cases: list[Case] = []
        for name, options in (("two", {"history": 0.3, "gate": 0.99}), ("kf", {"step": 0.1, "streams": 3})):
            model: Any = self.models[name]
            prior = (torch.zeros(model.layout.size), torch.eye(model.layout.tangent_size))
            stream = fwnkf.Stream(model, prior=prior, **options)
            for k in range(6):
                shape = (*([3] if name == "kf" else []), model.observation_dim)
                stream.step(torch.full(shape, 0.1 * k).numpy(), t=0.1 * k)
                if k in (0, 5):
                    cases.append({name: stream.snapshot()})
        return cases

    def mutated(self, case: Case, other: Case, rng: random.Random, folder: Path) -> Case:
        ((name, data),) = case.items()
        try:
            tensors, metadata = tensors_from_bytes(data), metadata_of(data)
            facts = metadata["facts"].encode()
        except Exception:  # no safetensors any more
            return {name: mutated_bytes(data, rng)}
        kind = rng.randrange(5)
        if kind == 0:
            return {name: mutated_bytes(data, rng)}
        if kind == 1:
            facts = mutated_bytes(facts, rng)
        elif kind == 2 and tensors:
            key = rng.choice(sorted(tensors))
            value = tensors[key]
            choices = (
                value.double(), value.flatten()[:0], value.unsqueeze(0), value * 0, torch.full((2, 3), torch.nan),
                torch.cat([value, value]) if value.ndim else value, tensors[rng.choice(sorted(tensors))],
            )  # fmt: skip
            tensors[key] = rng.choice(choices).clone().contiguous()
            if rng.random() < 0.3:
                tensors[f"{key}x"] = tensors.pop(key)
        else:
            facts = mutated_json(facts, rng)
        # a stream that is to be compiled takes a minute for it, which is no fault
        facts = re.sub(rb'"compiled": (true|1)', b'"compiled": false', facts)
        made = {"fwnkf_stream": "1", "filter": metadata.get("filter", ""), "facts": facts.decode("utf-8", "replace")}
        return {name: tensors_to_bytes(tensors, made)}

    def use(self, case: Case, folder: Path) -> None:
        ((name, data),) = case.items()
        model: Any = self.models[name]
        stream = fwnkf.Stream.restore(model, data)
        shape = (*([] if stream.streams is None else [stream.streams]), model.observation_dim)
        stream.step(torch.zeros(shape).numpy(), t=0.6 if stream._timed is not False else None)


class ExperimentFile(Target):
    """An experiment file: everything that is checked before data are loaded."""

    def sources(self) -> list[Case]:
        return [{"own.yaml": text.encode()} for text in EXPERIMENTS]

    def mutated(self, case: Case, other: Case, rng: random.Random, folder: Path) -> Case:
        import yaml

        text = case["own.yaml"]
        if rng.random() < 0.5:
            try:
                tree = yaml.safe_load(text)
                made = yaml.safe_dump(mutated_tree(tree, rng), default_flow_style=rng.choice((None, True)))
                return {"own.yaml": made.encode("utf-8", "replace")}
            except Exception:  # a mutation may be no YAML; that is what is tried
                pass
        if rng.random() < 0.3:
            place = rng.randrange(len(text) + 1)
            return {"own.yaml": text[:place] + rng.choice(TAGS) + text[place:]}
        return {"own.yaml": mutated_bytes(text, rng)}

    def use(self, case: Case, folder: Path) -> None:
        from fwnkf.training.experiments import read_experiment

        put_files(case, folder)
        read_experiment(folder / "own.yaml")


class RunFolder(Target):
    """The record and the rows of a run."""

    def sources(self) -> list[Case]:
        return [{"run.json": json.dumps(RECORD).encode(), "rows.json": json.dumps(ROWS).encode()}]

    def mutated(self, case: Case, other: Case, rng: random.Random, folder: Path) -> Case:
        name = rng.choice(sorted(case))
        return {**case, name: (mutated_json if rng.random() < 0.7 else mutated_bytes)(case[name], rng)}

    def use(self, case: Case, folder: Path) -> None:
        put_files(case, folder)
        read_run(folder)


TARGETS: dict[str, Callable[[], Target]] = {
    "checkpoint": Checkpoint,
    "snapshot": Snapshot,
    "experiment": ExperimentFile,
    "run": RunFolder,
}


def place_of(error: BaseException) -> str:
    """The words of an error without names, numbers and values."""
    return re.sub(
        r"'[^']*'|\"[^\"]*\"|\[.*|[^a-zA-Z ]+|\b[a-zA-Z_]*[./_][\w./]*", "", f"{type(error).__name__} {error}"
    )[:120]


def fuzz(target: str, count: int, seed: int, failures: Path | None = None, command: str = "") -> tuple[Row, list[str]]:
    """Try ``count`` cases; returns the row and a report of each failure."""
    rng, parser = random.Random(f"{target} {seed}"), TARGETS[target]()
    outcomes: Counter[str] = Counter()
    reports: list[str] = []
    seen: set[str] = set()
    begin, longest, largest = time.process_time(), 0.0, 0.0
    with tempfile.TemporaryDirectory() as scratch, torch.no_grad():
        folder = Path(scratch)
        sources = parser.sources()
        for case in sources:  # valid ones are used, and first calls are not counted
            parser.use(case, folder / "used")
        corpus = list(sources)
        for number in range(count):
            begun = rng.choice(sources if rng.random() < VALID else corpus)
            case = parser.mutated(begun, rng.choice(sources), rng, folder / "mutated")
            size = sum(map(len, case.values())) / 1e6
            before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
            fault, place = "", "used"
            try:
                parser.use(case, folder / "used")
            except FwnkfError as error:
                place = place_of(error)
                fault = "a message that is too long" if len(str(error)) > MESSAGE_LIMIT else ""
            except Exception as error:  # what a user would see as a traceback
                place = place_of(error)
                fault = "".join(traceback.format_exception(error)[-6:])
            seconds = time.process_time() - start
            growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
            longest, largest = max(longest, seconds), max(largest, growth)
            if not fault and seconds > SECONDS + SECONDS_FOR_MEGABYTE * size:
                fault = f"{seconds:.2f} s for {size:.3f} MB"
            if not fault and growth > MEGABYTES + MEGABYTES_FOR_MEGABYTE * size:
                fault = f"{growth:.0f} MB of memory for {size:.3f} MB"
            outcomes["failed" if fault else "used" if place == "used" else "named error"] += 1
            if fault:
                reports.append(f"{target}, seed {seed}, case {number}: {fault}")
                if failures is not None:
                    put_files(case, failures / f"{target}-{seed}-{number}")
            if place not in seen and size * 1e6 < LARGEST:
                seen.add(place)
                corpus.append(case)
                del corpus[len(sources) : max(len(corpus) - CORPUS, len(sources))]
    spent = time.process_time() - begin
    row = Row("fuzz", target, command, seed, count, len(reports), spent, longest, largest, dict(outcomes))
    return row, reports


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hardening.fuzz_config")
    parser.add_argument("target", choices=(*TARGETS, "all"))
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--failures", type=Path)
    options = parser.parse_args(words)
    failed = 0
    for target in TARGETS if options.target == "all" else (options.target,):
        for block in range(-(-options.count // BLOCK)):
            seed, count = options.seed + block, min(BLOCK, options.count - block * BLOCK)
            command = f"python -m tests.hardening.fuzz_config {target} {count} --seed {seed}"
            row, reports = fuzz(target, count, seed, options.failures, command)
            failed += row.failures
            if options.rows is not None:
                append(options.rows, row)
            print(f"{target} {seed}: {row.outcomes}, {row.seconds:.0f} s, longest {row.longest_s:.2f} s", flush=True)
            print("\n".join(reports[:5]), end="\n" if reports else "", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
