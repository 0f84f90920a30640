"""The engine over time: filters of this library beside C, C++ and other packages, in one process and one thread.

    python benchmarks/engine.py --rows docs/results/engine.jsonl [--parts filter smoother …] [--rounds 7]
    python benchmarks/engine.py --rows docs/results/engine.jsonl --parts commands --before PATH
    python benchmarks/engine.py --rows docs/results/engine.jsonl --parts page --markdown docs/results/engine.md
    python benchmarks/engine.py --quick

The first needs ``pip install fwnkf[kalman_rivals]``, gcc, g++ and Eigen. Candidates take turns; results are compared
before times are measured. One row for each measurement is appended to a file of JSON lines as soon as it is there; rows
that are there already are kept, so that a run can be continued (``--again`` measures the parts named anew).
``--before`` is a checkout of the release that commands are compared with. ``--quick`` needs no rival: it compares the
engines with the loop on short records, in seconds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import engine_cases as cases
import engine_rivals as rivals
import numpy as np
import torch
from engine_rivals import Result, Run
from tables import store, stored

import fwnkf
from fwnkf.errors import FwnkfError
from fwnkf.evaluation.timing import interleaved

LENGTHS = (20_000, 200_000)
RECORDS, RECORD_STEPS = 1000, 1000
"""Of the batch."""
ENGINES = ("native", "scan")
RETURNED = ("mean", "cov", "innovation", "innovation_cov")
"""The outputs that runs return; the log-likelihood follows from the last two."""
AGREES = 1e-6
"""The largest difference in standard deviations, and of a log-likelihood relative to its size, with which results count
as the same."""


class Measurement(NamedTuple):
    """Candidates that compute the same; the first is the one that others are compared with."""

    part: str
    case: str
    steps: int
    candidates: Callable[[], Mapping[str, Callable[[], Any]]]
    once: tuple[str, ...] = ()
    """Candidates that are too slow for more than one call."""

    @property
    def key(self) -> tuple[str, str, int]:
        return self.part, self.case, self.steps


# ---- ours -----------------------------------------------------------------------------------------------------------


CASES: dict[str, Callable[[int], Any]] = {
    "n = 4, m = 2, regular": cases.turn,
    "n = 12, m = 3, a fifth missing, irregular": cases.tracker,
    "attitude, System.of": cases.attitude,
    "strapdown, sensors at 5 and 50 of 200 Hz": partial(cases.strapdown, own_rates=True),
    "FW-NKF with lines, level and GRU 64": cases.learned_noise,
}


def ours(case: cases.Case | cases.Inertial | cases.Learned, engine: str) -> Run:
    """All of means, covariances, innovations and the log-likelihood."""
    inputs = case.inputs

    @torch.no_grad()
    def run() -> Result:
        track = case.filter.run(**inputs, engine=engine, outputs=RETURNED)
        return Result(track.mean[0], track.cov[0], track.log_likelihood[0], track.innovation[0])

    return run


def our_smoother(case: cases.Case, engine: str) -> Run:
    inputs = case.inputs

    @torch.no_grad()
    def run() -> Result:
        track = case.filter.run(**inputs, smoothing=True, engine=engine)
        smoothed = fwnkf.smooth(case.filter, track)
        return Result(smoothed.mean[0], smoothed.cov[0], track.log_likelihood[0])

    return run


def our_gradient(case: cases.Case, engine: str) -> tuple[Callable[[], tuple[Any, Any]], list[torch.Tensor]]:
    """The log-likelihood and its gradient, and the ten parameters."""
    if case.tracker is not None:
        filter = case.tracker.learned()
        parameters = [filter.system.get_parameter(f"raw_{name}") for name in cases.LEARNED]
    else:
        given = {name: torch.from_numpy(getattr(case, name)) for name in "FHQ"}
        filter = fwnkf.KF(**given, R=torch.from_numpy(np.diag(case.R)), learn=("Q",), dt=1 / cases.RATE)
        parameters = [filter.system.Q.log_std, filter.system.Q.slopes]
    inputs = case.inputs

    def run() -> tuple[Any, Any]:
        value = filter.log_likelihood(**inputs, engine=engine).sum()
        return value.detach(), torch.autograd.grad(value, parameters)

    return run, parameters


# ---- measurements ---------------------------------------------------------------------------------------------------


def of_filters(steps: int) -> Iterator[Measurement]:
    slow = {"cuthbert": rivals.cuthbert_filter, "filterpy": rivals.filterpy_filter}

    def regular(rate: float) -> Mapping[str, Run]:
        case = cases.turn(steps, rate)
        return {
            "auto": ours(case, "auto"),
            **{engine: ours(case, engine) for engine in ENGINES},
            "dynamax": rivals.dynamax_filter(case),
            "statsmodels": rivals.statsmodels_filter(case),
            "C by hand": rivals.c_by_hand(case),
            **({name: make(case) for name, make in slow.items()} if steps == LENGTHS[0] else {}),
        }

    def irregular(**options: bool) -> Mapping[str, Run]:
        case = cases.tracker(steps, **options)
        return {
            "auto": ours(case, "auto"),
            **{engine: ours(case, engine) for engine in ENGINES},
            "C by hand": rivals.c_by_hand(case),
            "dynamax": rivals.dynamax_filter(case),
        }

    once = ("filterpy",)
    yield Measurement("filter", "n = 4, m = 2, regular", steps, partial(regular, 0.3), once)
    yield Measurement("filter", "n = 4, m = 2, regular, axes independent", steps, partial(regular, 0.0), once)
    case = "n = 12, m = 3, a fifth missing, irregular"
    yield Measurement("filter", case, steps, irregular)
    yield Measurement("filter", f"{case}, no two steps alike", steps, partial(irregular, every_step_differs=True))
    yield Measurement("filter", f"{case}, axes independent", steps, partial(irregular, mount=False))


def of_smoothers(steps: int) -> Iterator[Measurement]:
    def candidates(make: Callable[[int], cases.Case]) -> Mapping[str, Run]:
        case = make(steps)
        return {
            "auto": our_smoother(case, "auto"),
            **{engine: our_smoother(case, engine) for engine in ENGINES},
            "dynamax": rivals.dynamax_filter(case, smooth=True),
        }

    yield Measurement("smoother", "n = 4, m = 2, regular", steps, partial(candidates, cases.turn))
    case = "n = 12, m = 3, a fifth missing, irregular"
    yield Measurement("smoother", case, steps, partial(candidates, cases.tracker))


def of_gradients(steps: int) -> Iterator[Measurement]:
    def candidates(make: Callable[[int], cases.Case]) -> Mapping[str, Callable[[], Any]]:
        case = make(steps)
        run, parameters = our_gradient(case, "auto")
        raw = [parameter.detach().numpy() for parameter in parameters]
        return {
            "auto": run,
            **{engine: our_gradient(case, engine)[0] for engine in ENGINES},
            "dynamax": rivals.dynamax_gradient(case, raw),
        }

    yield Measurement("gradient", "n = 4, m = 2, regular", steps, partial(candidates, cases.turn))
    case = "n = 12, m = 3, a fifth missing, irregular"
    yield Measurement("gradient", case, steps, partial(candidates, cases.tracker))


def of_extended(steps: int) -> Iterator[Measurement]:
    def candidates(name: str, make: Callable[[int], cases.Inertial]) -> Mapping[str, Run]:
        case = make(steps)
        return {"auto": ours(case, "auto"), "Eigen by hand": rivals.eigen_by_hand(name, case)}

    own_rates = partial(cases.strapdown, own_rates=True)
    for case, name, make in (
        ("attitude, System.of", "attitude", cases.attitude),
        ("strapdown, all sensors in every step", "strapdown", cases.strapdown),
        ("strapdown, sensors at 5 and 50 of 200 Hz", "strapdown", own_rates),
    ):
        yield Measurement("extended", case, steps, partial(candidates, name, make))


def of_learned(steps: int) -> Iterator[Measurement]:
    def candidates() -> Mapping[str, Run]:
        case = cases.learned_noise(steps)

        def run() -> Result:
            return ours(case, "auto")()._replace(log_likelihood=None)

        return {"auto": run, "its step, called from C": rivals.step_in_c(case.filter, case.y)}

    yield Measurement("learned", "FW-NKF with lines, level and GRU 64", steps, candidates)


def of_batches() -> Iterator[Measurement]:
    def candidates() -> Mapping[str, Run]:
        case = cases.turn(RECORDS * RECORD_STEPS)
        y = case.y.reshape(RECORDS, RECORD_STEPS, -1)
        given = case.inputs | {"y": torch.from_numpy(y)}

        @torch.no_grad()
        def run(engine: str) -> Result:
            track = case.filter.run(**given, engine=engine, outputs=RETURNED)
            return Result(track.mean, track.cov, track.log_likelihood, track.innovation)

        return {
            **{engine: partial(run, engine) for engine in ("auto", *ENGINES, "loop")},
            "simdkalman": rivals.simdkalman_batch(case, y),
            "dynamax": rivals.dynamax_batch(case, y),
        }

    name = f"{RECORDS:,} records, n = 4, m = 2"
    yield Measurement("batch", name, RECORDS * RECORD_STEPS, candidates)


def of_loops(steps: int) -> Iterator[Measurement]:
    """What the loop costs, on records that are short enough for it."""

    def candidates(make: Callable[[int], cases.Case | cases.Inertial | cases.Learned]) -> Mapping[str, Run]:
        case = make(steps)
        return {engine: ours(case, engine) for engine in ("loop", *ENGINES)}

    for name, make in CASES.items():
        yield Measurement("loop", name, steps, partial(candidates, make), ("loop",))


def of_sizes(steps: int) -> Iterator[Measurement]:
    def candidates(n: int) -> Mapping[str, Run]:
        case = cases.chain(n, steps)
        return {
            **{engine: ours(case, engine) for engine in ENGINES},
            "C by hand": rivals.c_by_hand(case),
            "dynamax": rivals.dynamax_filter(case),
            "statsmodels": rivals.statsmodels_filter(case),
        }

    for n in (2, 4, 8, 16, 32, 64):
        yield Measurement("sizes", f"n = {n}", steps, partial(candidates, n))


PARTS: dict[str, Callable[[], Iterator[Measurement]]] = {
    "filter": lambda: (item for steps in LENGTHS for item in of_filters(steps)),
    "smoother": lambda: (item for steps in LENGTHS for item in of_smoothers(steps)),
    "gradient": lambda: (item for steps in LENGTHS for item in of_gradients(steps)),
    "extended": lambda: (item for steps in LENGTHS for item in of_extended(steps)),
    "learned": lambda: (item for steps in LENGTHS for item in of_learned(steps)),
    "batch": of_batches,
    "loop": lambda: of_loops(4000),
    "sizes": lambda: of_sizes(5000),
}
"""Measured in this process, all candidates in turn. :data:`engine_processes.PARTS` need processes of their own."""


# ---- comparing and timing -------------------------------------------------------------------------------------------


def difference(found: Any, reference: Any) -> float:
    """The largest difference: of means and covariances in standard deviations, of all else relative to its size."""
    if not isinstance(found, Result):  # a value and its gradient
        value, gradient = (np.concatenate([np.ravel(item) for item in found[k]]) if k else found[k] for k in (0, 1))
        other, other_gradient = reference[0], np.concatenate([np.ravel(item) for item in reference[1]])
        slope = np.abs(gradient - other_gradient).max() / np.abs(other_gradient).max()
        return float(max(slope, abs(float(value) - float(other)) / abs(float(other))))
    mean, cov, likelihood, innovation = (None if item is None else np.asarray(item) for item in found)
    other = Result(*(None if item is None else np.asarray(item) for item in reference))
    std = np.sqrt(np.diagonal(other.cov, axis1=-2, axis2=-1))
    far = [np.abs(cov - other.cov) / (std[..., None] * std[..., None, :])]
    # the mean of a quaternion has more numbers than its covariance
    far.append(np.abs(mean - other.mean) / (std if std.shape == mean.shape else std.min(-1, keepdims=True)))
    if likelihood is not None and other.log_likelihood is not None:
        far.append(np.abs(likelihood - other.log_likelihood) / np.abs(other.log_likelihood))
    if innovation is not None and other.innovation is not None:
        far.append(np.abs(innovation - other.innovation) / np.abs(other.innovation).max())
    return max(float(item.max()) if np.isfinite(item).all() else float("inf") for item in far)


def measured(item: Measurement, rounds: int) -> dict[str, Any]:
    """Compare, then time in turns; a candidate that fails or disagrees is named and not timed."""
    candidates = dict(item.candidates())
    reference, far, exact, taken, failed = None, {}, {}, {}, {}
    for name, call in list(candidates.items()):
        begin = time.process_time()
        try:
            found = call()
        except (FwnkfError, TypeError, RuntimeError, MemoryError) as error:
            failed[name] = f"{type(error).__name__}: {error}"[:300]
            del candidates[name]
            continue
        if reference is None:
            reference = found
        else:
            far[name] = difference(found, reference)
            exactly = far[name]
            if isinstance(call, rivals.Approximate):
                exactly = exact[name] = difference(call.exact(), reference)
            if not exactly <= AGREES:
                failed[name] = f"differs by {exactly:.2g}"
                del candidates[name]
        if name in item.once:
            taken[name] = [time.process_time() - begin]
            candidates.pop(name, None)
        del found
    taken |= interleaved(candidates, rounds, clock=time.process_time)
    return {
        "part": item.part,
        "case": item.case,
        "steps": item.steps,
        "taken": {name: [float(f"{value:.4g}") for value in values] for name, values in taken.items()},
        "difference": {name: float(f"{value:.2g}") for name, value in far.items()},
        "exact": {name: float(f"{value:.2g}") for name, value in exact.items()},
        "failed": failed,
    }


def quick() -> int:
    """Every engine on short records beside the loop; the number of those that disagree."""
    wrong = 0
    for name, make in list(CASES.items())[:3]:  # the others take their compiler as long as all of these together
        case = make(100)
        reference = ours(case, "loop")()
        for engine in ("native", "scan") if isinstance(case, cases.Case) else ("native",):
            try:
                far = difference(ours(case, engine)(), reference)
            except FwnkfError as error:
                far = float("nan")
                print(error)
            wrong += not far <= AGREES
            print(f"{name}: {engine} differs from the loop by {far:.2g}", flush=True)
    return wrong


def main() -> int:
    import engine_page
    import engine_processes

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = (*PARTS, *engine_processes.PARTS)
    parser.add_argument("--parts", nargs="+", choices=(*every, "page"), default=list(every))
    parser.add_argument("--rows", type=Path, help="file of JSON lines, continued if it is there")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--longest", type=int, default=10**9, help="leave out records of more steps")
    parser.add_argument("--again", action="store_true", help="measure parts that are there already")
    parser.add_argument("--before", type=Path, help="a checkout of the release that commands are compared with")
    parser.add_argument("--store", type=Path, default=Path("results/engine"), help="folder of long reference runs")
    parser.add_argument("--reference-steps", type=int, default=1_000_000, help="steps of the part agreement")
    parser.add_argument("--markdown", type=Path, help="write the page, and its drawings into ../images")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.quick:
        return quick()
    if options.rows is None:
        parser.error("--rows FILE is needed")
    if any(name in PARTS for name in options.parts):
        rivals.one_thread()
    rows = stored(options.rows)
    done = set() if options.again else {(row["part"], row["case"], row["steps"]) for row in rows}
    for name in options.parts:
        if name in PARTS:
            for item in PARTS[name]():
                if item.key not in done and item.steps <= options.longest:
                    store(options.rows, measured(item, options.rounds))
        elif name in engine_processes.PARTS:
            for row in engine_processes.PARTS[name](options, done):
                store(options.rows, row)
    if options.markdown:
        engine_page.write_page(stored(options.rows), options.markdown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
