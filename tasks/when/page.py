"""``docs/concepts/when.md``, written from the rows of the map."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tasks.cards import table_row
from tasks.when import cells, nonlinear, recorded, recordings, summary
from tasks.when.cells import MISMATCHED, ORACLE, Cell
from tasks.when.drawings import cell_name
from tasks.when.problem import Disturbance
from tasks.when.search import RECORD
from tasks.when.store import Row, unmeasured
from tasks.when.summary import (
    ASSUMED,
    BEST_R,
    CLOSE,
    COST,
    FIR,
    FITTED,
    LOW_PASS,
    NO_TRUTH,
    NOTCH,
    NOTCH_TOLD,
    PHI,
    PHI_TWO,
    RAW,
    SPECTRAL,
    TITLES,
    TOLD_COST,
    TRAINED,
    Ratios,
    choice,
    median,
    rivals,
    wins,
)

KINDS = {
    "tone": "a tone: one frequency that stays",
    "band": "a band",
    "drift": "a drift",
    "pink": "pink noise",
    "sweep": "a line that sweeps",
}
NEEDS = {
    BEST_R: "how large the noise is",
    LOW_PASS: "how fast the motion is",
    NOTCH: "frequency and width of the line: `fwnkf diagnose`",
    FITTED: "measurements: `fwnkf fit`, `fwnkf diagnose --fix`",
    NOTCH_TOLD: "a sensor of the frequency, such as rotor speeds",
    ORACLE: "the disturbance itself; of a sweeping line its frequency: [`Orders`](../howto/rotors.md)",
    PHI: "recordings with truth",
    PHI_TWO: "recordings with truth",
    SPECTRAL: "recordings with truth",
    FIR: "recordings with truth",
}
PERCENT = f"{100 * (CLOSE - 1):.0f} %"
DATA = {
    "dido": "DIDO, gyroscope and accelerometer against motion capture",
    "racer": f"raw accelerometer of the racer against itself below {recordings.SLOW_HZ['racer']:g} Hz",
    "broad": f"accelerometer of BROAD's shaken trials against itself below {recordings.SLOW_HZ['broad']:g} Hz",
    "rotor": f"gyroscope of rotor logs against itself below {recordings.SLOW_HZ['rotor']:g} Hz",
}


class Place(NamedTuple):
    """One cell or recorded channel: where it is, its name and kind, what it is compared with, and its ratios."""

    where: str
    name: str
    kind: str
    rivals: Sequence[str]
    ratios: Ratios

    @property
    def complete(self) -> bool:
        """Whether all that is compared is measured."""
        return all(name in self.ratios for name in (*self.rivals, PHI, SPECTRAL))


def page(rows: Sequence[Row]) -> str:
    """All that is measured so far."""
    linear, swung, axes = summary.linear(rows), summary.pendulum(rows), summary.recordings(rows)
    right = summary.right(linear)
    mismatched = {cell: ratios for cell, ratios in linear.items() if any(_is_assumed(name) for name in ratios)}
    found = places(rows)
    parts = [
        ["# When frequency weighting helps", "", f"**{conclusion(found)}**", "", terms(found), "", *written(rows)],
        what_to_do(right) if right else [],
        what_is_needed(right) if right else [],
        wrong_noises(mismatched) if mismatched else [],
        the_map(right) if right else [],
        the_pendulum(swung) if swung else [],
        the_recordings(axes) if axes else [],
        HOW,
    ]
    return "\n".join(line for part in parts for line in part).rstrip() + "\n"


def places(rows: Sequence[Row]) -> list[Place]:
    """Where ``Φ`` could win, as far as all is measured there."""
    right, axes = summary.right(summary.linear(rows)), summary.recordings(rows)
    cells_of = {
        "linear system": {Cell(one): each for one, each in right.items()},
        "pendulum": summary.pendulum(rows),
    }
    found = [
        Place(
            f"cells of a {system}",
            f"{system}, {cell_name(cell)}",
            cell.disturbance.kind,
            rivals(cell.disturbance.kind, cell.q),
            each,
        )
        for system, mine in cells_of.items()
        for cell, each in mine.items()
    ]
    found += [
        Place("recorded channels", f"{data}, {axis}", "", rivals(), each)
        for data, by_axis in axes.items()
        for axis, each in by_axis.items()
    ]
    return [place for place in found if place.complete]


# ---- the conclusion -------------------------------------------------------------------------------------------------


def conclusion(found: Sequence[Place]) -> str:
    """Whether ``Φ`` or the spectral loss ever wins, and why."""
    if not found:
        return "Nothing is measured yet."
    phi, spectral = (
        [(each, _lead(each, name)) for each in found if wins(each.ratios, name, each.rivals)]
        for name in (PHI, SPECTRAL)
    )
    if not phi and not spectral:
        first = f"Neither Φ nor the spectral loss wins in any of {len(found)} places"
    else:
        first = f"Φ {_won(phi, len(found))}, the spectral loss {_won(spectral, len(found))}"
    return f"{first}: {reason(found)}."


def terms(found: Sequence[Place]) -> str:
    """What winning means, where it was looked for, and what is worth more."""
    counts = _listed([f"{count} {where}" for where, count in Counter(each.where for each in found).items()])
    return (
        f"To win is to have an error more than {PERCENT} below that of all else that the same truth allows; places are "
        f"{counts}. {without_truth(found)}{told(found)}"
        if found
        else ""
    )


def _lead(place: Place, name: str) -> float:
    """How many times larger the error of the next best is."""
    return min(_known(place.ratios, place.rivals)) / place.ratios[name].ratio


def _won(won: Sequence[tuple[Place, float]], count: int) -> str:
    """How often, by how much, and where."""
    if not won:
        return f"in none of {count} places"
    names = [place.name for place, _ in won]
    shown = _listed(names if len(names) < 6 else [*names[:5], f"{len(names) - 5} more"], "; ")
    return f"wins in {len(won)} of {count} places, by {_range([lead for _, lead in won])} times ({shown})"


def reason(found: Sequence[Place]) -> str:
    """Why: what other forms reach of the same error."""
    near = sum(each.ratios[FITTED].ratio <= CLOSE * each.ratios[PHI].ratio for each in found)
    return (
        "filtering the innovation adds no information and can only repair a wrong model of the noise, which noise "
        f"states fitted without truth do within {PERCENT} of Φ or better in {near} of {len(found)} places"
    )


def without_truth(found: Sequence[Place]) -> str:
    """How often training with truth is worth more than what needs none."""
    texts = []
    for name in (PHI, SPECTRAL):
        ahead = Counter(each.kind or "recorded" for each in found if wins(each.ratios, name, NO_TRUTH))
        by_kind = _listed([f"{kind} {count}" for kind, count in ahead.most_common()])
        texts.append(f"{ahead.total()} places" + (f" ({by_kind})" if ahead else ""))
    return f"Against what needs no truth Φ is ahead by that much in {texts[0]}, the spectral loss in {texts[1]}."


def told(found: Sequence[Place]) -> str:
    """What a sensor of the frequency is worth."""
    sweeps = [each.ratios for each in found if each.kind == "sweep" and NOTCH_TOLD in each.ratios]
    if not sweeps:
        return ""
    following, best = (
        median([min(_known(ratios, names)) for ratios in sweeps])
        for names in ((NOTCH_TOLD,), (*NO_TRUTH, PHI, PHI_TWO, SPECTRAL, FIR, TRAINED))
    )
    return (
        f" Where a line moves, its frequency is worth more than any training: a notch that follows it has "
        f"{following:.2f} times the oracle's error (median), the best estimator that is not told {best:.2f} times."
    )


# ---- the sections ---------------------------------------------------------------------------------------------------


def written(rows: Sequence[Row]) -> list[str]:
    """Command, cost, and what is still missing."""
    minutes: Counter[str] = Counter()
    for row in rows:
        minutes[row["part"]] += row["cpu_seconds"] / 60
    cost = _listed([f"{name} {spent:.0f}" for name, spent in minutes.items()])
    lines = [
        f"Written by `python -m tasks when` from the rows of `docs/results/when.jsonl`. CPU minutes: {cost}.",
        "",
    ]
    jobs = {"linear map": cells.jobs(), "pendulum": nonlinear.jobs(), "recordings": recordings.jobs()}
    left = {name: len(unmeasured(each, rows)) for name, each in jobs.items()}
    if any(left.values()):
        text = _listed([f"{count} rows of the {name}" for name, count in left.items() if count])
        lines += [f"Not measured yet: {text}.", ""]
    return lines


def what_to_do(right: Mapping[Disturbance, Ratios]) -> list[str]:
    """The decision: a picture and a table."""
    lines = [
        "## What to do",
        "",
        "![The cheapest estimator within 5 % of the best, by disturbance, frequency and strength]"
        "(../images/when-decision.png)",
        "",
        "A motion with a bandwidth of 1 Hz is measured 100 times a second with white noise of a tenth of its RMS and "
        "one disturbance. Read the kind of the disturbance, its frequency over the bandwidth of your motion, and its "
        "RMS over that of the motion. Cheapest: best R, low-pass, notch, noise states fitted to measurements, then "
        "what needs truth. The table has medians over the cells of each kind, and the worst in parentheses.",
        "",
    ]
    columns = (
        "disturbance",
        "take",
        "which needs",
        "RMSE over the oracle's",
        *(TITLES[name] for name in (BEST_R, PHI, SPECTRAL)),
    )
    lines += [table_row(columns), table_row(["---"] * len(columns))]
    for kind, title in KINDS.items():
        mine = [ratios for one, ratios in right.items() if one.kind == kind]
        orders = (
            {f"{title}, frequency not known": COST, f"{title}, frequency told": TOLD_COST}
            if kind == "sweep"
            else {title: COST}
        )
        for name, order in orders.items() if mine else ():
            take = recommended(mine, order)
            figures = [
                _spread([ratios[each].ratio for ratios in mine if each in ratios])
                for each in (take, BEST_R, PHI, SPECTRAL)
            ]
            lines.append(table_row((name, f"**{TITLES[take]}**", NEEDS[take], *figures)))
    return [*lines, ""]


def recommended(mine: Sequence[Ratios], order: Sequence[str]) -> str:
    """The cheapest whose median is within 5 % of the least."""
    medians = {name: summary.Figure(median([each[name].ratio for each in mine]), 0, 0, 0)
               for name in order if all(name in each for each in mine)}  # fmt: skip
    return choice(medians, order)


def what_is_needed(right: Mapping[Disturbance, Ratios]) -> list[str]:
    """Truth or not, and whether the stated error holds."""
    columns = ("estimator", "needs", "RMSE over the oracle's", "NEES, median (least to largest)")
    lines = [
        "## What each needs, and whether its error bars hold",
        "",
        "Over all cells with right `Q` and `R`. NEES is the error variance over that which the filter states, one if "
        "that can be believed. Noise states state the error that they have; the covariance of a filter of white "
        "noise, with `Φ` or without, knows nothing of the disturbance. An FIR filter states none.",
        "",
        table_row(columns),
        table_row(["---"] * len(columns)),
    ]
    for name in (ASSUMED, BEST_R, LOW_PASS, NOTCH, FITTED, PHI, SPECTRAL, FIR, ORACLE):
        mine = [ratios[name] for ratios in right.values() if name in ratios]
        nees = [each.nees for each in mine if not math.isnan(each.nees)]
        held = f"{median(nees):.2f} ({_short(min(nees))} to {_short(max(nees))})" if nees else "states none"
        lines.append(
            table_row((TITLES[name], NEEDS.get(name, "nothing"), _spread([each.ratio for each in mine]), held))
        )
    return [*lines, ""]


def wrong_noises(found: Mapping[Cell, Ratios]) -> list[str]:
    """What wrong ``Q`` and ``R`` change."""
    names = {
        "Q, R assumed; as assumed": "as assumed",
        "Q, R assumed; notch": "notch before it",
        "Q, R assumed; Φ": "Φ",
        "Q, R assumed; Φ, spectral loss": TITLES[SPECTRAL],
        "Q, R assumed; states told": "noise states told",
        "Q, R fitted; states fitted": "noise states, Q and R fitted",
    }
    kinds = [one for one in MISMATCHED if any(cell.disturbance == one for cell in found)]

    def worst(name: str) -> float:
        return max((ratios[name].ratio for ratios in found.values() if name in ratios), default=math.nan)

    columns = ("with Q and R as assumed", *(_disturbance(one) for one in kinds))
    lines = [
        "## If Q and R are wrong",
        "",
        "![RMSE over the oracle's by the factors of assumed Q and R](../images/when-wrong.png)",
        "",
        f"`Q` and `R` assumed {cells.FACTORS[0]:g} to {cells.FACTORS[-1]:g} times the true ones; only the rest is "
        "tuned. "
        "Median over the pairs, and the worst. A wrong gain is worth "
        f"{worst('Q, R assumed; states told'):.2f} times the oracle's error at worst to noise states that are told the "
        f"disturbance. `Φ`, trained with truth, makes up for it ({worst('Q, R assumed; Φ'):.2f}), and so does fitting "
        f"`Q` and `R` beside the noise states, without truth ({worst('Q, R fitted; states fitted'):.2f}).",
        "",
        table_row(columns),
        table_row(["---"] * len(columns)),
    ]
    for name, title in names.items():
        values = [
            [ratios[name].ratio for cell, ratios in found.items() if cell.disturbance == one and name in ratios]
            for one in kinds
        ]
        lines.append(table_row((title, *(_spread(each) for each in values))))
    return [*lines, ""]


def the_map(right: Mapping[Disturbance, Ratios]) -> list[str]:
    """All cells: pictures, and what ``Φ`` of two biquads adds where one is not enough."""
    both = [ratios for ratios in right.values() if PHI_TWO in ratios]
    gains = [ratios[PHI].ratio / ratios[PHI_TWO].ratio for ratios in both]
    second = f" A second one lowers the error of pink noise and sweeps by {_range(gains)} times." if gains else ""
    return [
        "## The map",
        "",
        "![RMSE over the oracle's: kinds of disturbance down, estimators across](../images/when-map.png)",
        "",
        "![By the width of a band](../images/when-width.png)",
        "",
        "One biquad has the order of one line as noise states, so that `Φ` reaches the oracle where the disturbance is "
        f"one line, band or drift.{second} The spectral loss compares magnitudes alone: it does not see the phase, and "
        "takes the estimate away from the least error.",
        "",
    ]


def the_pendulum(swung: Mapping[Cell, Ratios]) -> list[str]:
    """The nonlinear system."""
    names = (BEST_R, LOW_PASS, NOTCH, FITTED, PHI, SPECTRAL, FIR)
    seeds = len(nonlinear.SEEDS)
    columns = ("disturbance", *(TITLES[name] for name in names))
    lines = [
        "## A nonlinear system",
        "",
        "![RMSE over that told the disturbance, by estimator](../images/when-pendulum.png)",
        "",
        "A pendulum that random torques drive through swings of some 45° RMS, the direction of its tip measured. "
        "Extended Kalman filters; everything is searched or fitted on "
        f"{nonlinear.TRAINED} records of {nonlinear.TRAINED_STEPS / 100:g} s and scored on {nonlinear.TESTED} others. "
        "RMSE of the tip over that of noise states that are told the disturbance and the right `Q`, mean over seeds, "
        f"and their least and largest where there are several ({seeds} at most). Where `Q` is wrong, fitted noise "
        "states learn it too. An FIR filter, linear, cannot follow large swings.",
        "",
        table_row(columns),
        table_row(["---"] * len(columns)),
    ]
    for cell, ratios in swung.items():
        lines.append(table_row((cell_name(cell), *(_over_seeds(ratios.get(name)) for name in names))))
    return [*lines, ""]


def the_recordings(axes: Mapping[str, Mapping[str, Ratios]]) -> list[str]:
    """Recorded channels."""
    names = (RAW, LOW_PASS, NOTCH, FITTED, PHI, PHI_TWO, SPECTRAL, TRAINED, FIR)
    columns = ("recordings", "channels", *(TITLES[name] for name in names))
    lines = [
        "## Recordings",
        "",
        "![RMSE over that of the best R, by channel](../images/when-recordings.png)",
        "",
        "One channel at a time: rate or force as a slope that white noise drives, with up to "
        f"{recorded.LINES} lines as noise states where they are fitted (`fwnkf.identify.fit_channel`), without truth. "
        "`R`, cutoffs, notches and `Φ` are searched on the spectra of the recordings to learn from; other recordings, "
        "of logs the last 40 %, give the error. RMSE over that of the best R, geometric mean over channels, and their "
        "least and largest.",
        "",
    ]
    lines += [f"- {name}: {text}." for name, text in DATA.items() if any(each.startswith(name) for each in axes)]
    unmeasured_ = [text for name, text in DATA.items() if not any(each.startswith(name) for each in axes)]
    lines += [f"- Not measured: {text}." for text in unmeasured_]
    lines += ["", table_row(columns), table_row(["---"] * len(columns))]
    for data, by_axis in axes.items():
        values = ([ratios[name].ratio for ratios in by_axis.values() if name in ratios] for name in names)
        lines.append(table_row((data, len(by_axis), *(_geometric(each) for each in values))))
    return [*lines, ""]


HOW = [
    "## How it is measured",
    "",
    "- **Linear system.** No simulation: truth, disturbance and estimator are one linear system, whose error variance "
    "is the solution of a Lyapunov equation. Searches minimise that error exactly, which is what training on endless "
    "records could reach; only the fits of noise states see records, five of 30 s, without truth, repeated over seeds.",
    "- **Oracle**: the Kalman filter with the disturbance as noise states, and right `Q` and `R`; of a sweeping line "
    "it is told the frequency at every step.",
    "- **Φ**: a biquad on the innovation with five free numbers, and `R`. **Spectral loss**: the same, for the "
    f"paper's loss with `λ = {cells.WEIGHT:g}` instead, in records of {RECORD} samples.",
    "- **FIR filter**: of 4 s on the linear system, from the normal equations, so that a drift much slower than that "
    "is beyond it; of 1.5 s on the pendulum and 200 samples on recordings, by least squares.",
    f"- **Wins**: an error more than {PERCENT} lower than that of every estimator that can be had from the same truth: "
    "noise states with the best numbers, an FIR filter, and all that needs none. Noise states that are told the "
    "disturbance stand for those trained on truth, since a search over their numbers would begin there; for "
    "sweeps, wrong `Q` and recordings such a search was made.",
    "- A recorded channel whose reference is the channel itself, filtered in both directions, has no truth below that "
    "frequency: what disturbs there is part of the reference.",
    "",
    "What `Φ`, noise states and the spectral loss are: [noise in frequency bands](frequency.md). Which filter to "
    "build: [choose a filter](../howto/choose_filter.md).",
]


# ---- figures as text ------------------------------------------------------------------------------------------------


def _is_assumed(name: str) -> bool:
    return name.startswith("Q, R")


def _disturbance(one: Disturbance) -> str:
    return "white noise alone" if one.kind == "none" else f"{one.kind}, {one.hz:g} Hz"


def _known(ratios: Ratios, names: Sequence[str]) -> list[float]:
    return [ratios[name].ratio for name in names if name in ratios]


def _short(value: float) -> str:
    return f"{value:.0f}" if 100 <= value < 1e5 else f"{value:.2g}"


def _spread(values: Sequence[float]) -> str:
    return f"{median(values):.2f} ({max(values):.2f})" if values else ""


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"


def _over_seeds(figure: summary.Figure | None) -> str:
    if figure is None:
        return ""
    one = f"{figure.ratio:.2f}"
    return one if figure.low == figure.high else f"{one} ({figure.low:.2f} to {figure.high:.2f})"


def _geometric(values: Sequence[float]) -> str:
    return f"{statistics.geometric_mean(values):.2f} ({_range(values)})" if values else ""


def _listed(parts: Sequence[str], comma: str = ", ") -> str:
    return parts[0] if len(parts) == 1 else f"{comma.join(parts[:-1])} and {parts[-1]}" if parts else ""
