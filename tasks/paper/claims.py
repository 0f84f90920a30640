"""Claims of the paper, and what the figures here say about each; verdicts are conditions on figures of the store."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

from tasks.bootstrap import Interval
from tasks.paper import published
from tasks.paper.matrix import Matrix
from tasks.paper.scores import paired
from tasks.paper.store import Row
from tasks.paper.summary import Entry, Results, short

OURS, AS_WRITTEN = "fwnkf", "fwnkf_algorithm3"
LEARNED = ("bayesian_kalmannet", "recursive_kalmannet", "kalmannet", "rkn")
CLASSICAL = ("kf", "arkf")
MODERATE, LARGE = 0.01, 0.1
GIVEN, EKF = "kalmannet_equations", ("ekf_with_equations", "ekf")
CLOSE = 1.2
"""A filter is close to another if its error is at most this many times as large."""
NAMES = {"lorenz": "Lorenz", "lorenz_full": "Lorenz as in KalmanNet's paper", "pendulum": "pendulum", "euroc": "EuRoC"}
Verdict = Literal["holds", "does not hold", "holds in part", "undecided", "cannot be tested", "not run yet"]


class Claim(NamedTuple):
    """What the paper says, whether it holds here, and why."""

    text: str
    verdict: Verdict
    reason: str


def claims(matrix: Matrix, results: Results, runtime: Sequence[Row]) -> list[Claim]:
    """Every claim in the order of the paper."""
    tables = [table for table in matrix.values["tables"] if table["protocol"] == "paper"]
    sets = list(dict.fromkeys(str(table["data"]) for table in tables))
    weights = {data: sorted({float(w) for t in tables if t["data"] == data for w in t["weights"]}) for data in sets}
    listed: list[Claim] = []
    for data in sets:
        listed.append(_least_error(matrix, results, data, weights[data]))
    listed += [_weight_helps(results, data) for data in sets if MODERATE in weights[data]]
    listed += [_large_weight_harms(results, data) for data in sets if {MODERATE, LARGE} <= set(weights[data])]
    listed += [_weight_helps_others(matrix, results, data) for data in sets if MODERATE in weights[data]]
    listed += [_learned_beat_classical(matrix, results, data, weights[data]) for data in sets]
    strict = [table["data"] for table in matrix.values["tables"] if GIVEN in table["recipes"]]
    listed += [_close_to_ekf(matrix, results, str(data)) for data in strict]
    listed.append(_speed(matrix, runtime))
    listed.append(
        Claim(
            "On UIP-DB, FW-NKF has the least error of acceleration, rotation and distance.",
            "cannot be tested",
            "The recordings of UIP-DB that are at hand hold neither the accelerations nor the optical poses behind "
            "these columns, and the paper does not define ρ. `data: {name: uipdb, files: official}` reads the official "
            "files.",
        )
    )
    return listed


def _least_error(matrix: Matrix, results: Results, data: str, weights: Sequence[float]) -> Claim:
    rival = published.best(data, "mse", without=OURS)
    ours = published.best(data, "mse")
    gain = 1 - ours["mse"].value / rival["mse"].value
    text = (
        f"On {NAMES.get(data, data)}, FW-NKF has the least error, MSE {short(ours['mse'].value)} against "
        f"{short(rival['mse'].value)} of the next best, {matrix.title(rival['recipe'])} ({gain:.0%} less)."
    )
    best = results.best(data, "paper", OURS, weights, "mse_arc")
    others = {name: results.best(data, "paper", name, weights, "mse_arc") for name in (*LEARNED, *CLASSICAL)}
    finished = {name: pair for name, pair in others.items() if pair is not None}
    if best is None or not finished:
        return Claim(text, "not run yet", "")
    weight, entry = best
    name, (their_weight, theirs) = min(finished.items(), key=lambda item: item[1][1].mean("mse_arc"))
    interval = paired(entry.rows, theirs.rows)
    words = (
        f"Here FW-NKF (λ = {weight:g}) has {entry.text('mse_arc')}, the best of the others, {matrix.title(name)} "
        f"(λ = {their_weight:g}), {theirs.text('mse_arc')}; ratio {interval}."
    )
    words += _as_written(results, data, weights)
    return Claim(text, _below(interval), words + _references(results, data, entry))


def _as_written(results: Results, data: str, weights: Sequence[float]) -> str:
    """The form of Algorithm 3, which reads the measurement of a step before it predicts."""
    best = results.best(data, "paper", AS_WRITTEN, weights, "mse_arc")
    if best is None:
        return ""
    weight, entry = best
    words = f" In the form of Algorithm 3 (λ = {weight:g}) it has {entry.text('mse_arc')}"
    if all(row["best_step"] == 0 for row in entry.rows):
        words += ", after regression alone: no step of training improved on it"
    return f"{words}."


def _references(results: Results, data: str, entry: Entry) -> str:
    """References that do better than the filter, which a reader should know."""
    better = [
        f"`{name}` {results.entry(data, 'paper', name).text('mse_arc')}"
        for name in results.references(data, "paper")
        if results.entry(data, "paper", name).mean("mse_arc") < entry.mean("mse_arc")
    ]
    return f" References with a smaller error: {', '.join(better)}." if better else ""


def _weight_helps(results: Results, data: str) -> Claim:
    text = f"On {NAMES.get(data, data)}, FW-NKF is better with the spectral loss (λ = {MODERATE:g}) than without."
    return _pairwise(text, results, data, MODERATE, 0.0, _below)


def _large_weight_harms(results: Results, data: str) -> Claim:
    text = f"On {NAMES.get(data, data)}, FW-NKF is worse with λ = {LARGE:g} than with λ = {MODERATE:g}."
    return _pairwise(text, results, data, LARGE, MODERATE, _above)


def _pairwise(
    text: str,
    results: Results,
    data: str,
    weight: float,
    against: float,
    verdict: Callable[[Interval | None], Verdict],
) -> Claim:
    a, b = (results.entry(data, "paper", OURS, value) for value in (weight, against))
    interval = paired(a.rows, b.rows)
    if interval is None:
        return Claim(text, "not run yet", "")
    printed = [published.figure(data, OURS, value, "mse") for value in (weight, against)]
    words = f"MSE with λ = {weight:g} over λ = {against:g}: {interval} here"
    if printed[0] is not None and printed[1] is not None:
        words += f", {short(printed[0].value / printed[1].value)} published"
    return Claim(text, verdict(interval), f"{words}.")


def _weight_helps_others(matrix: Matrix, results: Results, data: str) -> Claim:
    text = (
        f"On {NAMES.get(data, data)}, moderate spectral weighting (λ = {MODERATE:g}) benefits several of the other "
        "filters."
    )
    intervals = {}
    for name in (*LEARNED, *CLASSICAL):
        a, b = (results.entry(data, "paper", name, weight) for weight in (MODERATE, 0.0))
        interval = paired(a.rows, b.rows)
        if interval is not None:
            intervals[name] = interval
    if not intervals:
        return Claim(text, "not run yet", "")
    helped = [matrix.title(name) for name, interval in intervals.items() if interval.high < 1]
    harmed = [matrix.title(name) for name, interval in intervals.items() if interval.low > 1]
    printed = [name for name in intervals if _published_helps(data, name)]
    ratios = ", ".join(f"{matrix.title(name)} {interval}" for name, interval in intervals.items())
    open_ratios = len(intervals) - len(helped) - len(harmed)
    verdict: Verdict = "holds in part" if helped else "undecided" if open_ratios > 1 else "does not hold"
    verdict = "holds" if len(helped) > 1 else verdict
    words = (
        f"MSE with over without: {ratios}. It lowers the error of {_listed(helped)} and raises that of "
        f"{_listed(harmed)}; by the paper's own table it helps {_listed([matrix.title(name) for name in printed])}."
    )
    return Claim(text, verdict, words)


def _published_helps(data: str, name: str) -> bool:
    a, b = (published.figure(data, name, weight, "mse") for weight in (MODERATE, 0.0))
    return a is not None and b is not None and a.value < b.value


def _learned_beat_classical(matrix: Matrix, results: Results, data: str, weights: Sequence[float]) -> Claim:
    text = f"On {NAMES.get(data, data)}, learned filters improve on the classical Kalman filter."
    classical = results.best(data, "paper", "kf", weights, "mse_arc")
    learned = {name: results.best(data, "paper", name, weights, "mse_arc") for name in LEARNED}
    finished = {name: pair[1] for name, pair in learned.items() if pair is not None}
    if classical is None or not finished:
        return Claim(text, "not run yet", "")
    level = classical[1].mean("mse_arc")
    better = [matrix.title(name) for name, entry in finished.items() if entry.mean("mse_arc") < level]
    worse = [matrix.title(name) for name, entry in finished.items() if entry.mean("mse_arc") >= level]
    verdict: Verdict = "holds" if not worse else "holds in part" if better else "does not hold"
    words = f"With a linear model the filter has {classical[1].text('mse_arc')}. Better: {_listed(better)}"
    return Claim(text, verdict, f"{words}; not better: {_listed(worse)}.")


def _close_to_ekf(matrix: Matrix, results: Results, data: str) -> Claim:
    """KalmanNet's own claim, in its own setting and where the initial state is unknown and seen in part."""
    text = (
        f"On {NAMES.get(data, data)}, protocol `strict`, {matrix.title(GIVEN)} but no covariances, comes close to the "
        f"EKF that has both (at most {CLOSE:g} times its error; the claim of its own paper in its own setting)."
    )
    ours = results.entry(data, "strict", GIVEN, 0.0)
    theirs = next((entry for name in EKF if (entry := results.entry(data, "strict", name)).rows), None)
    interval = None if theirs is None else paired(ours.rows, theirs.rows)
    if interval is None or theirs is None:
        return Claim(text, "not run yet", "")
    verdict: Verdict = "holds" if interval.high < CLOSE else "does not hold" if interval.low > CLOSE else "undecided"
    words = f"{ours.text('mse_arc')} against {theirs.text('mse_arc')}, ratio {interval}."
    return Claim(text, verdict, words)


def _speed(matrix: Matrix, runtime: Sequence[Row]) -> Claim:
    order = sorted(published.rows("runtime"), key=lambda row: float(row["ms"].value))
    text = "A step costs least to most in: " + ", ".join(matrix.title(row["recipe"]) for row in order) + "."
    measured = {row["recipe"]: float(row["ms"]) for row in runtime}
    if not measured:
        return Claim(text, "not run yet", "")
    here = sorted(measured, key=measured.__getitem__)
    same = here == [row["recipe"] for row in order if row["recipe"] in measured]
    words = "Here: " + ", ".join(f"{matrix.title(name)} ({short(measured[name])} ms)" for name in here) + "."
    return Claim(
        text, "holds" if same else "does not hold", words + " The published times are of a GPU, these of a CPU."
    )


def _below(interval: Interval | None) -> Verdict:
    """Whether a ratio is below one with its whole interval."""
    if interval is None:
        return "not run yet"
    return "holds" if interval.high < 1 else "does not hold" if interval.low > 1 else "undecided"


def _above(interval: Interval | None) -> Verdict:
    if interval is None:
        return "not run yet"
    return "holds" if interval.low > 1 else "does not hold" if interval.high < 1 else "undecided"


def _listed(names: Sequence[str]) -> str:
    """
    >>> _listed([]), _listed(["a"]), _listed(["a", "b", "c"])
    ('none', 'a', 'a, b and c')
    """
    if len(names) < 2:
        return names[0] if names else "none"
    return f"{', '.join(names[:-1])} and {names[-1]}"


def inconsistencies() -> Iterator[str]:
    """Published rows whose R² does not fit their MSE: in one table, MSE / (1 - R²) is the variance of the states."""
    for table in ("pendulum", "lorenz", "euroc"):
        rows = [row for row in published.rows(table) if row["r2"].value < 0.995]  # 1 - R² has two digits
        variances = [row["mse"].value / (1 - row["r2"].value) for row in rows]
        typical = statistics.median(variances)
        for row, variance in zip(rows, variances, strict=True):
            if not 0.5 < variance / typical < 2:
                yield (
                    f"{NAMES[table]}, {row['recipe']}, λ = {row['weight']:g}: MSE {row['mse'].value:g} would be R² "
                    f"{1 - row['mse'].value / typical:.3f} in this table, printed is {row['r2'].value:g}"
                )
