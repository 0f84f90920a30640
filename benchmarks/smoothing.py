"""Smoothing: the error of shipped filters with the measurements after each step, beside the error without them.

    python benchmarks/smoothing.py [--tasks lorenz-strict pendulum …] [--quick] [--rows FILE] [--markdown FILE]

The filters are those of ``models/``, the test records those of their tasks. Standard errors and intervals (paired
bootstrap) are over recordings: simulated records, flights or sequences. ``fixed lag`` uses measurements up to ``LAG``
steps after each step, ``fixed interval`` all of them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tables import write
from torch import Tensor

import fwnkf
from fwnkf.evaluation.evaluate import Estimate, inputs_for
from fwnkf.metrics.consistency import coverage, nees
from tasks.bootstrap import paired_ratio
from tasks.interface import all_tasks

ROOT = Path(__file__).parents[1]
LAG = 20
BATCH = 100
METHODS = ("filtered", f"fixed lag {LAG}", "fixed interval")


class Belief(NamedTuple):
    """Means and covariances of some records."""

    mean: Tensor
    cov: Tensor


def beliefs(model: fwnkf.Filter, chunk: int | None, inputs: dict[str, Any]) -> dict[str, tuple[Belief, float]]:
    """Every method on the same inputs, with the CPU seconds of each; long records in chunks, without a fixed lag."""
    begin = time.process_time()
    plain = model.run(**inputs)
    spent = time.process_time() - begin
    results = {METHODS[0]: (Belief(plain.mean, plain.cov), spent)}
    if chunk is not None:
        smoothed = fwnkf.smooth_in_chunks(model, **inputs, chunk=chunk)
        return {**results, METHODS[2]: (Belief(*smoothed[:2]), time.process_time() - begin - spent)}
    track = model.run(**inputs, smoothing=True)
    ran = time.process_time() - begin - spent
    for method, lag in zip(METHODS[1:], (LAG, None), strict=True):
        begin = time.process_time()
        smoothed = fwnkf.smooth(model, track, lag=lag)
        results[method] = (Belief(*smoothed[:2]), ran + time.process_time() - begin)
    return results


def simulated(name: str, quick: bool) -> Iterator[dict[str, object]]:
    """A simulated task on its test records."""
    from tasks.simulated.scoring import record_errors, score

    task, model = all_tasks()[name], fwnkf.load(ROOT / "models" / name)
    protocol = task.load(quick=quick)
    test = protocol.split.test
    parts: dict[str, list[tuple[Belief, float]]] = {method: [] for method in METHODS}
    for rows in torch.arange(len(test)).split(BATCH):
        for method, result in beliefs(model, None, inputs_for(model, test.take(rows))).items():
            parts[method].append(result)
    errors: dict[str, dict[str, float]] = {}
    for method, results in parts.items():
        mean, cov = (torch.cat(items) for items in zip(*(belief for belief, _ in results), strict=True))
        estimate = Estimate(mean, cov)
        errors[method] = record_errors(protocol, estimate)
        metrics = score(protocol, estimate).metrics
        seconds = sum(spent for _, spent in results)
        yield row(name, f"MSE, {len(test)} records, seed {protocol.seed}", method, errors) | {
            "nees": metrics["nees"],
            "coverage95": metrics["coverage95"],
            "us_per_step": 1e6 * seconds / test.y[..., 0].numel(),
        }


def row(task: str, figure: str, method: str, errors: dict[str, dict[str, float]]) -> dict[str, object]:
    """The mean error over recordings, its standard error, and its ratio to the filter's on the same recordings."""
    own, reference = errors[method], errors[METHODS[0]]
    values = list(own.values())
    line: dict[str, object] = {
        "task": task,
        "error": figure,
        "method": method,
        "mean": float(np.mean(values)),
        "standard_error": float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else None,
        "over_filtered": float(np.mean(values) / np.mean(list(reference.values()))),
        "interval95": "",
    }
    if method != METHODS[0] and len(values) > 1:
        interval = paired_ratio(own, reference)
        line["interval95"] = f"{interval.low:.3g} to {interval.high:.3g}"
    return line


def dido(name: str, quick: bool) -> Iterator[dict[str, object]]:
    """Denoising of an IMU: the mean over three axes of the root mean squared error of each flight."""
    data = all_tasks()[name].load(quick=quick)
    model = fwnkf.load(ROOT / "models" / name).with_parts(correction=None)  # which has no smoother
    axes = data.truth.shape[-1]
    results = beliefs(model, 400, {"y": data.y})
    for part, unit, places in (("gyro", "rad/s", slice(0, 3)), ("force", "m/s²", slice(3, axes))):
        errors: dict[str, dict[str, float]] = {}
        for method, (belief, spent) in results.items():
            error, cov = belief.mean[..., places] - data.truth[..., places], belief.cov[..., places, places]
            rmse = error.square().mean(1).sqrt().mean(-1).tolist()
            errors[method] = dict(zip(data.names, rmse, strict=True))
            yield row(name, f"RMSE {part}, {unit}, {len(rmse)} flights", method, errors) | {
                "nees": float(nees(error, cov).mean()),
                "coverage95": float(coverage(error, cov).overall),
                "us_per_step": 1e6 * spent / data.y[..., 0].numel(),
            }


def euroc(name: str, quick: bool) -> Iterator[dict[str, object]]:
    """Dead reckoning over windows: errors over all steps of each sequence."""
    from tasks.euroc import scores

    data = all_tasks()[name].load(quick=quick)
    model = fwnkf.load(ROOT / "models" / name)
    for horizon in (1, 5):
        if horizon not in data.test:
            continue
        test = data.test[horizon]
        results: dict[str, tuple[fwnkf.Gaussian, float]] = {}
        for method, smoothing in ((METHODS[0], False), (METHODS[2], True)):
            begin = time.process_time()
            (belief,) = scores.run(Smoothing(model) if smoothing else model, test)
            results[method] = belief, time.process_time() - begin
        for metric, unit in (("rmse_p", "m"), ("rmse_v", "m/s"), ("rmse_q", "rad")):
            errors: dict[str, dict[str, float]] = {}
            for method, (belief, spent) in results.items():
                errors[method] = scores.by_recording(test, belief.mean, metric)
                figure = f"{metric}, {unit}, {len(test)} windows of {horizon} s, {len(errors[method])} sequences"
                consistency = scores.consistency_of((test, belief))
                yield row(name, figure, method, errors) | {
                    "nees": consistency["nees"],
                    "coverage95": consistency["coverage"],
                    "us_per_step": 1e6 * spent / test.y[..., 0].numel(),
                }


class Smoothing:
    """A filter whose ``run`` returns smoothed means and covariances."""

    def __init__(self, model: fwnkf.Filter) -> None:
        self.model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def run(self, y: Tensor, **inputs: Any) -> fwnkf.Trajectory:
        smoothed = fwnkf.smooth_in_chunks(self.model, y, **inputs, chunk=100)
        return self.model.run(y, **inputs)._replace(mean=smoothed.mean, cov=smoothed.cov)


TASKS: dict[str, Callable[[str, bool], Iterator[dict[str, object]]]] = {
    "lorenz-strict": simulated,
    "pendulum": simulated,
    "dido": dido,
    "euroc-strict": euroc,
}


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--quick", action="store_true", help="few records")
    parser.add_argument("--rows", type=Path, help="JSON file of finished tasks, which are not measured again")
    parser.add_argument("--markdown", type=Path, help="write the table as a page of the documentation")
    options = parser.parse_args()
    torch.set_num_threads(1)
    finished: dict[str, list[dict[str, object]]] = {}
    if options.rows is not None and options.rows.exists():
        finished = json.loads(options.rows.read_text(encoding="utf-8"))
    for name in options.tasks:
        if name in finished:
            continue
        lines = []
        for line in TASKS[name](name, options.quick):
            lines.append(line)
            values = (f"{key} {value:.4g}" if isinstance(value, float) else str(value) for key, value in line.items())
            print("  ".join(values), flush=True)
        finished[name] = lines
        if options.rows is not None:
            options.rows.write_text(json.dumps(finished, indent=1), encoding="utf-8")
    rows = [line for name in options.tasks for line in finished[name]]
    if options.markdown:
        note = (
            "Shipped filters on the test records of their tasks. `mean` and `standard_error` are over recordings: "
            "simulated records, flights or sequences. `over_filtered` is the mean divided by that of the filter, with "
            "a 95 % interval by a paired bootstrap over recordings. `nees` and `coverage95` belong to the covariance "
            "of each method, one and 0.95 if it is right; covariance factors are those of the filter, measured on "
            f"filtered estimates. A fixed lag uses the measurements up to {LAG} steps later. `us_per_step` are CPU "
            "microseconds for each step of a record, running the filter included."
        )
        write(options.markdown, "Smoothing", note, rows)


if __name__ == "__main__":
    main()
