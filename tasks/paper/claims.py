"""Claims of the paper, and what the figures here say about each; verdicts are conditions on figures of the store."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from tasks.bootstrap import Interval
from tasks.paper import published
from tasks.paper.information import largest_gain
from tasks.paper.matrix import Matrix
from tasks.paper.scores import by_seed, paired
from tasks.paper.store import Row
from tasks.paper.summary import NEGLIGIBLE, Entry, Results, short

OURS = "fwnkf"
FORMS = (
    "fwnkf_algorithm3_plain",
    "fwnkf_algorithm3",
    OURS,
    "fwnkf_plain",
    "fwnkf_noise",
    "fwnkf_noise_plain",
    "fwnkf_public_code",
    "fwnkf_large_weight",
)
"""Forms of FW-NKF. A claim is judged for the first of them that was run: the one of the paper, then others."""
LEARNED = ("bayesian_kalmannet", "recursive_kalmannet", "kalmannet", "rkn")
CLASSICAL = ("kf", "arkf")
PLAIN = "_plain"
"""Ends the names of recipes without regression of the dynamics, where another has it."""
UNLIKE = ", though it was run in the other way alone"
"""Said of a filter that stands in for itself trained as a form is."""
WITHOUT_TRANSITION = ("rkn", *CLASSICAL)
"""Filters for which there is nothing to regress, or whose regression is a part of them."""
MODERATE, LARGE = 0.01, 0.1
GIVEN, EKF = "kalmannet_equations", ("ekf_with_equations", "ekf")
CLOSE = 1.2
"""A filter is close to another if its error is at most this many times as large."""
SPEED = ", not converged"
"""Said of a ratio that may be one of the speed of learning."""
SMALLER = "References with a smaller error"
OTHER_RECORDS = "FW-NKF and the others have not been scored on the same test records yet."
NAMES = {"lorenz": "Lorenz", "lorenz_full": "Lorenz as in KalmanNet's paper", "pendulum": "pendulum", "euroc": "EuRoC"}
EQUAL = 0.9, 1.1
"""Between these, a ratio with its whole interval is no difference that would matter."""
Verdict = Literal[
    "holds",
    "does not hold",
    "holds in part",
    "no difference of a tenth",
    "differs from seed to seed",
    "undecided",
    "cannot be tested",
    "not run yet",
]


class Claim(NamedTuple):
    """What the paper says, whether it holds here, and why."""

    text: str
    verdict: Verdict
    reason: str


def claims(matrix: Matrix, results: Results, runtime: Sequence[Row]) -> list[Claim]:
    """Every claim in the order of the paper."""
    tables = [t for t in matrix.values["tables"] if t["protocol"] == "paper" and published.has(t["data"])]
    sets = list(dict.fromkeys(str(table["data"]) for table in tables))
    weights = {data: sorted({float(w) for t in tables if t["data"] == data for w in t["weights"]}) for data in sets}
    listed: list[Claim] = [_more_information()]
    for data in sets:
        listed.append(_least_error(matrix, results, data, weights[data]))
    listed += [_weight_helps(matrix, results, data) for data in sets if MODERATE in weights[data]]
    listed += [_large_weight_harms(matrix, results, data) for data in sets if {MODERATE, LARGE} <= set(weights[data])]
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


def _more_information() -> Claim:
    """Proposition 1, whose condition can hold with equality alone."""
    found = largest_gain()
    return Claim(
        "Filtered measurements can tell more about the state than the measurements themselves (Proposition 1: if their "
        "Fisher information is no smaller, no unbiased estimator from them has a larger bound).",
        "holds in part",
        "The conclusion follows from the condition, which can hold with equality alone: a filter that can be inverted "
        "keeps the information, one that cannot loses some. Over "
        f"{found.draws} random models, noises and stable filters the filtered measurements have at most "
        f"{found.inverted:.6f} times the information in any direction, and at most {found.lost:.4f} times in the "
        "direction of the largest loss if one sample in four is dropped. What a filter can improve is an estimator "
        "that takes the noise for white, which is what FW-NKF's Φ is there for.",
    )


def _least_error(matrix: Matrix, results: Results, data: str, weights: Sequence[float]) -> Claim:
    rival = published.best(data, "mse", without=OURS)
    ours = published.best(data, "mse")
    gain = 1 - ours["mse"].value / rival["mse"].value
    text = (
        f"On {NAMES.get(data, data)}, FW-NKF has the least error, MSE {short(ours['mse'].value)} against "
        f"{short(rival['mse'].value)} of the next best, {matrix.title(rival['recipe'])} ({gain:.0%} less)."
    )
    best = {name: pair for name in matrix.values["recipes"]
            if (pair := results.best(data, "paper", name, weights, "mse_arc")) is not None}  # fmt: skip
    forms = {form: best[form][1] for form in FORMS if form in best}
    alike = {form: names for form, entry in forms.items() if (names := _rivals(best, _regressed(entry)))}
    rivals = {form: min(names, key=lambda name: best[name][1].mean("mse_arc")) for form, names in alike.items()}
    judged = {form: interval for form, name in rivals.items()
              if (interval := paired(forms[form].rows, best[name][1].rows)) is not None}  # fmt: skip
    if not judged:
        return Claim(text, "not run yet", OTHER_RECORDS if rivals else "")
    twice = {form: _twice(results, data, "paper", form, alike[form]) for form in judged}
    verdicts = {form: _unchanged(_below(interval), twice[form]) for form, interval in judged.items()}
    said = dict.fromkeys((_regressed(forms[form]), rivals[form]) for form in judged)
    words = "".join(
        f"The best of the others {'after regression' if regressed else 'without regression'} of the dynamics, "
        f"{matrix.title(name)} (λ = {best[name][0]:g}), has {best[name][1].text('mse_arc')}"
        f"{'' if name in WITHOUT_TRANSITION or _regressed(best[name][1]) == regressed else UNLIKE}. "
        for regressed, name in said
    )
    words += "Each form beside that one, and with twice the budget beside the best of them with as much: " + _by_form(
        matrix,
        {
            form: f"(λ = {best[form][0]:g}) {entry.text('mse_arc')}, ratio {judged[form]}{_untrained(entry)}"
            f"{_said_twice(twice[form])}"
            for form, entry in forms.items()
            if form in judged
        },
        verdicts,
    )
    first = next(iter(judged))
    missing = [
        matrix.title(name) for name in dict.fromkeys(name for name, _ in matrix.rows(data, "paper")) if name not in best
    ]
    not_run = f" Not run yet: {'; '.join(missing)}." if missing else ""
    return Claim(text, verdicts[first], words + _references(results, data, forms[first]) + not_run)


def _twice(results: Results, data: str, protocol: str, name: str, others: Sequence[str]) -> float | None:
    """The error of a filter over the least of others', of the first seed with twice the budget; None if not run.

    It need not be the best of the others with the usual budget that has the least error with twice as much.
    """

    def error(method: str) -> float | None:
        row = results.doubled(data, protocol, method)
        if row is not None:
            return float(row["doubled"]["mse_arc"])
        references = results.entry(data, protocol, method).rows
        return next((float(row["metrics"]["mse_arc"]) for row in references if row.get("seed") == 0), None)

    ours = error(name)
    least = min((found for other in others if (found := error(other)) is not None), default=0.0)
    return ours / least if ours is not None and least > 0 else None


def _said_twice(ratio: float | None) -> str:
    return "" if ratio is None else f", of the first seed with twice the budget {short(ratio)}"


def _unchanged(verdict: Verdict, twice: float | None, limit: float = 1.0) -> Verdict:
    """The verdict on a ratio, unless a larger budget changes it."""
    changed = twice is not None and (
        (verdict == "holds" and twice > limit) or (verdict == "does not hold" and twice < limit)
    )
    return "undecided" if changed else verdict


def _regressed(entry: Entry) -> bool:
    """Whether the dynamics were regressed before the training through the filter."""
    return any(row.get("pretrain", 0) > 0 for row in entry.rows)


def _rivals(best: Mapping[str, tuple[float, Entry]], regressed: bool) -> list[str]:
    """The other filters, trained in the same way, with or without regression of the dynamics.

    A filter that was not run in that way takes part as it was run.
    """
    found: list[str] = []
    for name in (*LEARNED, *CLASSICAL):
        variants = [each for each in (name, name + PLAIN) if each in best]
        alike = [each for each in variants if name in WITHOUT_TRANSITION or _regressed(best[each][1]) == regressed]
        found += (alike or variants)[:1]
    return found


def _by_form(matrix: Matrix, words: Mapping[str, str], verdicts: Mapping[str, Verdict]) -> str:
    """What each form has; the verdict of a form that differs from the first one's is said."""
    first = next(iter(verdicts.values()))
    said = (
        f"{matrix.title(form)} {text}{'' if verdicts[form] == first else f' ({verdicts[form]})'}"
        for form, text in words.items()
    )
    return "; ".join(said) + "."


def _mostly_stopped(entry: Entry) -> bool:
    """Whether the largest number of steps ended most trainings: a weight that only learns faster would then win."""
    ended = [not row["converged"] for row in entry.rows if row.get("converged") is not None]
    return 2 * sum(ended) > len(ended)


def _untrained(entry: Entry) -> str:
    regressed = all(row.get("best_step") == 0 for row in entry.rows)
    return ", after regression alone: no step of training improved on it" if regressed else ""


def _references(results: Results, data: str, entry: Entry) -> str:
    """References that do better than the filter, which a reader should know."""
    better = [
        f"`{name}` {results.entry(data, 'paper', name).text('mse_arc')}"
        for name in results.references(data, "paper")
        if (interval := paired(results.entry(data, "paper", name).rows, entry.rows)) is not None and interval.value < 1
    ]
    return f" {SMALLER}: {', '.join(better)}." if better else ""


def _weight_helps(matrix: Matrix, results: Results, data: str) -> Claim:
    text = f"On {NAMES.get(data, data)}, FW-NKF is better with the spectral loss (λ = {MODERATE:g}) than without."
    return _pairwise(text, matrix, results, data, MODERATE, 0.0, _below)


def _large_weight_harms(matrix: Matrix, results: Results, data: str) -> Claim:
    text = f"On {NAMES.get(data, data)}, FW-NKF is worse with λ = {LARGE:g} than with λ = {MODERATE:g}."
    return _pairwise(text, matrix, results, data, LARGE, MODERATE, _above)


def _pairwise(
    text: str,
    matrix: Matrix,
    results: Results,
    data: str,
    weight: float,
    against: float,
    verdict: Callable[[Interval | None], Verdict],
) -> Claim:
    said: dict[str, str] = {}
    verdicts: dict[str, Verdict] = {}
    for form in FORMS:
        found = _effect(results, data, form, weight, against, verdict)
        if found is not None:
            verdicts[form], said[form] = found
    if not verdicts:
        return Claim(text, "not run yet", "")
    words = f"MSE with λ = {weight:g} over λ = {against:g}: {_by_form(matrix, said, verdicts)}"
    printed = [published.figure(data, OURS, value, "mse") for value in (weight, against)]
    if printed[0] is not None and printed[1] is not None:
        words += f" Published: {short(printed[0].value / printed[1].value)}."
    return Claim(text, next(iter(verdicts.values())), words)


def _effect(
    results: Results,
    data: str,
    name: str,
    weight: float,
    against: float,
    verdict: Callable[[Interval | None], Verdict],
) -> tuple[Verdict, str] | None:
    """The verdict on the ratio of two weights' errors, and the ratio with what keeps it open; None if not run.

    A filter that has not converged may show which weight learns faster. The ratio of the first seed must then be on the
    same side with twice the budget. Where only one of the weights went on, twice the budget must change its error by
    less than the weight does. A weight that helps with one seed and harms with another does neither.
    """
    entries = [results.entry(data, "paper", name, value) for value in (weight, against)]
    interval = paired(*(entry.rows for entry in entries))
    if interval is None:
        return None
    if any(map(_mostly_stopped, entries)):
        return "undecided", f"{interval}{SPEED}"
    seeds = by_seed(*(entry.rows for entry in entries))
    if not _equal(interval) and min(seeds) < 1 - NEGLIGIBLE and max(seeds) > 1 + NEGLIGIBLE:
        return "differs from seed to seed", f"{interval}, single seeds {', '.join(map(short, sorted(seeds)))}"
    rows = [results.doubled(data, "paper", name, value) for value in (weight, against)]
    if rows[0] is not None and rows[1] is not None:
        twice = rows[0]["doubled"]["mse_arc"] / rows[1]["doubled"]["mse_arc"]
        said = f"{interval}{_said_twice(twice)}"
        if _equal(interval):
            return "no difference of a tenth" if EQUAL[0] <= twice <= EQUAL[1] else "undecided", said
        same = (interval.value - 1) * (twice - 1) > 0
        return verdict(interval) if same else "undecided", said
    row = results.doubled(data, "paper", name)
    change = 0.0 if row is None else abs(row["doubled"]["mse_arc"] / row["metrics"]["mse_arc"] - 1)
    if _equal(interval) and change < EQUAL[1] - 1:
        return "no difference of a tenth", str(interval)
    if abs(interval.value - 1) < change:
        return "undecided", f"{interval}, less than twice the budget changes ({change:.0%})"
    return verdict(interval), str(interval)


def _weight_helps_others(matrix: Matrix, results: Results, data: str) -> Claim:
    text = (
        f"On {NAMES.get(data, data)}, moderate spectral weighting (λ = {MODERATE:g}) benefits several of the other "
        "filters."
    )
    effects = {
        name: found
        for name in (*LEARNED, *CLASSICAL)
        if (found := _effect(results, data, name, MODERATE, 0.0, _below)) is not None
    }
    if not effects:
        return Claim(text, "not run yet", "")
    helped, harmed, mixed, open_ones = (
        [matrix.title(name) for name, (found, _) in effects.items() if found == wanted]
        for wanted in ("holds", "does not hold", "differs from seed to seed", "undecided")
    )
    printed = [name for name in effects if _published_helps(data, name)]
    ratios = "; ".join(f"{matrix.title(name)} {said}" for name, (_, said) in effects.items())
    verdict: Verdict = "holds in part" if helped else "undecided" if len(open_ones) > 1 else "does not hold"
    verdict = "holds" if len(helped) > 1 else verdict
    words = (
        f"MSE with over without: {ratios}. It lowers the error of {_listed(helped)}, raises that of {_listed(harmed)}, "
        f"and differs from seed to seed for {_listed(mixed)}; by the paper's own table it helps "
        f"{_listed([matrix.title(name) for name in printed])}."
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
    twice = next((r for name in EKF if (r := _twice(results, data, "strict", GIVEN, [name])) is not None), None)
    verdict = _unchanged(verdict, twice, CLOSE)
    words = f"{ours.text('mse_arc')} against {theirs.text('mse_arc')}, ratio {interval}{_said_twice(twice)}."
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


def _equal(interval: Interval) -> bool:
    """Whether a ratio is near one with its whole interval."""
    return EQUAL[0] < interval.low and interval.high < EQUAL[1]


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
