"""EuRoC ``strict``: new flights, a start that is off by 1 cm, 1 cm/s and half a degree, horizons of 1, 5 and 10 s.

Half a degree of tilt alone is a metre after five seconds, so no calibration can help much: the filter has to learn of
its velocity from somewhere. In flight the drag of the rotors tells, whose error drifts, and noise states say so; on the
ground it stands. All noise is measured on training flights left out of what it is the noise of.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from tasks.euroc.drag import Colour, Drag, Flight
from tasks.euroc.filter import Track
from torch import Tensor

from fwnkf import checkpoint
from fwnkf.data import protocols
from fwnkf.data.protocols import Protocol, Records
from tasks.euroc.protocol import EUROC_STRICT, euroc
from fwnkf.evaluation.rows import Row
from fwnkf.filters.base import Filter
from fwnkf.shapes import Float
from fwnkf.systems.inertial_calibrated import CALIBRATION, Sighting
from fwnkf.systems.inertial_drag import DragStrapdown, DragStrapdownConfig
from fwnkf.types import Gaussian
from tasks.euroc import calibration as euroc_calibration
from tasks.euroc import card as euroc_card
from tasks.euroc import drag as euroc_drag
from tasks.euroc import error_growth as euroc_doubt
from tasks.euroc import filter as euroc_filter
from tasks.euroc import strapdown as inertial

TASK = "euroc-strict"
HORIZONS = (1, 5, 10)
TILTS = (1.0, 1.5, 2.0)
"""Factors on the fitted tilt of a frame, of which there are but two in training: see :func:`choose`."""
STANDING = 0.03
"""m/s, white noise of the velocity zero on the ground."""
BETTER = 0.7
"""A target of 30 % below the reference it is set against."""
REFERENCE = "strapdown_bias"
HONEST = {"nees": (0.9, 1.1), "coverage": (0.93, 0.97)}
TILTED = "V1_01_easy"
"""The flight whose truth is known to be tilted, see :mod:`fwnkf.data.euroc`; error bars are also told without it."""
QUICK = 40
TEXT = (
    "EuRoC MAV, protocol `strict`: split by sequence, windows that do not overlap, start off by 1 cm, 1 cm/s and 0.5 "
    "degrees and a belief that says so; horizons of 1, 5 and 10 s. `rmse_p_5s` is the root mean squared length of the "
    "position error (m) over all steps of the 5 s windows, `end_p_5s` at their last sample; `v` is velocity (m/s), "
    "`q` attitude (rad). A target is 0.7 of `strapdown_bias`; where that has drifted away `hold` is the better "
    "reference, so the column beside says how far below the best of all references the filter is. The filter is "
    "`fwnkf` on the system `drag_strapdown` with noise states: bias and delay of the one sensor from the training "
    "flights; in flight, velocity across the rotors' axis from their drag, twenty times a second, with coloured noise "
    "and an offset for each flight; on the ground, velocity zero; and a frame whose gravity may be tilted. Drag is a "
    "regression on five training flights; a seed draws stretches of 10 s of them anew, so the spread over seeds says "
    "what is owed to the training data. All noise is fitted to training flights left out: of drag by the moments of "
    "its error, of navigation (bias of each axis, densities, walks, tilt) by the likelihood of its error after 0.5 to "
    "5 s. One number is chosen among three, a factor on the fitted tilt: of those whose error bars are honest on "
    "flights left out, the one with the least error there (`choices` in `figures.json` has all). The limits that tell "
    "flying from standing were set by eye on training and validation flights. Nothing was chosen on a test flight, "
    "though that the truth of V1_01 is tilted was known, as it is public. The model in this folder is that of the "
    "first seed."
)
LIMITS = (
    "All errors reach their targets; NEES does not, nor coverage but at 10 s. The filter is too sure of itself on "
    "V1_01 and, at 5 and 10 s, somewhat too careful on the others: see the tables. The ground truth of V1_01 is "
    "tilted against gravity by some two degrees, which is known of it; the training flights show 0.3 degrees an axis, "
    "and no spread estimated from them explains it. Only drag contradicts it, and that takes time. On the others, "
    "tilt and noise differ between the halls, little in MH and much in V2, and one number must do for all. A prior "
    "with heavier tails (two filters side by side, one with thrice the tilt, tried at an earlier stage) made flights "
    "left out a little less likely, so there is none. In the first second strapdown is nearly as good: half a degree "
    "at the start cannot be seen so soon. Attitude over 5 s is no better than strapdown's, since a tilted frame and a "
    "tilted start look alike. Drag holds for a multirotor in still air that flies; while the rotors carry a part of "
    "the weight (take-off, landing) it misleads, and in a hand with rotors off nothing is known. What limits most: "
    "the offset of drag from flight to flight, 0.1 and 0.6 m/s along the two axes, and its noise, 0.2 to 0.3 m/s over "
    "2 s. Tried before, judged on the validation flight (position over 5 s, m): a GRU that reads velocity off the "
    "sensor, 0.57, on flights left out hardly better than velocity zero; this model 0.47. A delay of 2 to 3 ms "
    "between sensor and truth, fitted, is in all of them, and the same on every choice of training flights; scale and "
    "misalignment of the sensor differ between flights and do not carry over."
)


@dataclass(frozen=True, eq=False)
class Ground:
    """What all seeds share: flights, the sensor's calibration, and how wrong navigation and drag are on a new flight.

    ``left`` holds for each training flight the calibration and the drag of the others.
    """

    flights: dict[str, Flight]
    tasks: dict[int, Protocol]
    calibration: Float[Tensor, " c"]
    sizes: dict[str, float]
    noise: Colour
    left: dict[str, tuple[Float[Tensor, " c"], Drag]]


def ground() -> Ground:
    """Load everything, calibrate on the training flights, and measure what a calibration leaves on flights left out."""
    tasks = {horizon: euroc("strict", horizon=float(horizon)) for horizon in HORIZONS}
    short, long = tasks[1].split.train, tasks[5].split.train
    flights = euroc_drag.flights(EUROC_STRICT["train"])
    rows = euroc_calibration.sources(short)
    left = {}
    for name in flights:
        others = [other for other in flights if other != name]
        some = short.take([row for other in others for row in rows[other]])
        left[name] = calibrated(some), euroc_drag.fit([flights[other] for other in others])
    calibration = calibrated(short)
    half = long.take(torch.arange(0, len(long), 2))
    error = euroc_doubt.errors(half, {name: found for name, (found, _) in left.items()})
    sizes = euroc_doubt.fit(error, euroc_doubt.sources(half, calibration))
    read = [euroc_drag.residuals(drag, flights[name]) for name, (_, drag) in left.items()]
    config = DragStrapdownConfig()
    return Ground(flights, tasks, calibration, sizes, euroc_drag.colour(read, config.block * config.dt), left)


def calibrated(train: Records) -> Float[Tensor, " c"]:
    """Biases and delay of the one sensor, from windows of a second that start at the truth.

    The gyroscope's bias from attitude alone: velocity would bend it to explain the tilt of the rooms.
    """
    start = train.y.new_zeros(CALIBRATION)
    start[:6] = inertial.constant_bias(train).mean(0)
    begun = replace(train, start=Gaussian(train.truth[:, 0], train.start.cov))
    return euroc_calibration.fit(begun, ("accelerometer_bias", "delay"), start, most=240)


# ---- training -------------------------------------------------------------------------------------------------------


def finished(base: Ground, drag: Drag, tilt: float, *, sites: int = 0) -> Filter:
    """The filter with these coefficients of drag."""
    sizes = base.sizes
    moving: dict[str, Any] = {name: sizes[name] for name in euroc_doubt.MOVING}
    config = DragStrapdownConfig(
        sites=sites,
        variances=(*base.noise.white.square().tolist(), *[STANDING**2] * 3),
        **moving,
    )
    system = euroc_drag.equipped(DragStrapdown(config).double(), drag)
    gyro = [sizes[f"gyro_{axis}"] for axis in "xyz"]
    with torch.no_grad():
        system.calibration[0] = base.calibration
        system.bias_spread.copy_(torch.tensor([*gyro, *[sizes["accelerometer"]] * 3]))
        system.tilt_spread.fill_(tilt * sizes["tilt"])
        system.offset_spread.copy_(base.noise.offset)
    return euroc_filter.assemble(system, base.noise)


def choose(base: Ground, say: Callable[[str], None]) -> tuple[float, dict[str, Any]]:
    """The factor on the tilt: the least error of position on flights left out, if the error bars are honest there.

    Every training flight is read with the calibration and the drag of the others. If none is honest, the likeliest.
    """
    task, names = base.tasks[5].split.train, list(base.left)
    tried: list[dict[str, float]] = []
    for tilt in TILTS:
        model = finished(base, base.left[names[0]][1], tilt, sites=len(names))
        track = euroc_filter.run(model, task, batch=1024, sight=_left_out(base, model, task))
        one = {"tilt": tilt, "likelihood": euroc_filter.likelihood(task, track)}
        tried.append(one | euroc_filter.lengths(task, track.mean) | euroc_filter.honesty(task, track))
        say(f"euroc strict, flights left out: {tried[-1]}")
    honest = [one for one in tried if all(low <= one[name] <= high for name, (low, high) in HONEST.items())]
    best = min(honest, key=lambda one: one["rmse_p"]) if honest else max(tried, key=lambda one: one["likelihood"])
    record = {
        "left_out": tried, "tilt": best["tilt"], "sizes": base.sizes,
        **{f"noise_{name}": part.tolist() for name, part in base.noise._asdict().items()},
    }  # fmt: skip
    return best["tilt"], record


@torch.no_grad()
def _left_out(base: Ground, model: Filter, task: Records) -> Sighting:
    """What the system makes of flights that its calibration and drag were not fitted to: each is a site of its own."""
    system = model.system
    assert isinstance(system, DragStrapdown)
    found: list[Sighting] = []
    order: list[int] = []
    for i, (name, rows) in enumerate(euroc_calibration.sources(task).items()):
        calibration, drag = base.left[name]
        system.calibration[1 + i] = calibration - system.calibration[0]
        site = torch.zeros(len(rows), system.config.sites).to(task.y)
        site[:, i] = 1.0
        found.append(euroc_drag.equipped(system, drag).sight(task.y[rows], site))
        order += rows
    back = torch.tensor(order).argsort()
    return Sighting(*(torch.cat(parts)[back] for parts in zip(*found, strict=True)))


def train(folder: Path, *, seeds: Sequence[int] = (0, 1, 2, 3, 4), say: Callable[[str], None] = print) -> None:
    """Fit with the flights drawn anew for every seed, write the first seed's filter, all figures and a card."""
    begin = time.process_time()
    base = ground()
    tilt, record = choose(base, say)
    tests = {horizon: made.split.test for horizon, made in base.tasks.items()}
    references = rungs(base.tasks)
    found: list[dict[str, float]] = []
    quick: dict[str, float] = {}
    apart: dict[str, Any] = {}
    say(f"euroc strict: references {references}")
    goals = targets(references)
    for seed in seeds:
        start = time.process_time()
        drag = euroc_drag.fit(list(base.flights.values()), torch.Generator().manual_seed(seed))
        model = finished(base, drag, tilt)
        tracks = tracked(model, tests)
        found.append({"seed": seed, **scored(tests, tracks), "cpu_seconds": time.process_time() - start})
        say(f"euroc strict, seed {seed}: {found[-1]}")
        if seed == seeds[0]:
            checkpoint.save(model, folder)
            quick = scored(_few(tests), tracked(model, _few(tests)))
            apart = {"windows of 5 s": by_flight(base.tasks[5], tracks[5]), "error bars": by_share(tests, tracks)}
            val = base.tasks[5].split.val
            seen = euroc_filter.run(model, val)
            record["validation"] = euroc_filter.lengths(val, seen.mean) | euroc_filter.honesty(val, seen)
        figures: euroc_card.Figures = {
            "task": TASK, "protocol": "strict", "records": {str(h): len(test) for h, test in tests.items()},
            "seeds": found, **euroc_card.summary(found), "references": references, "targets": goals, "quick": quick,
            "choices": record, "flights": apart, "cpu_seconds": time.process_time() - begin,
        }  # fmt: skip
        euroc_card.write(folder, figures, "FW-NKF for EuRoC, protocol `strict`", TEXT, LIMITS)


# ---- scores ---------------------------------------------------------------------------------------------------------


def tracked(model: Filter, tests: Mapping[int, Records]) -> dict[int, Track]:
    """The filter's beliefs at every horizon."""
    return {horizon: euroc_filter.run(model, task, batch=1024) for horizon, task in tests.items()}


def scored(tests: Mapping[int, Records], tracks: Mapping[int, Track]) -> dict[str, float]:
    """Errors and honesty at every horizon."""
    found: dict[str, float] = {}
    for horizon, task in tests.items():
        track = tracks[horizon]
        values = {**euroc_filter.lengths(task, track.mean), **euroc_filter.honesty(task, track)}
        found |= {f"{name}_{horizon}s": value for name, value in values.items()}
    return found


def by_flight(made: Protocol, track: Track) -> dict[str, dict[str, float]]:
    """Each test flight apart: errors at the end of its windows beside strapdown's, and whether the error bars hold."""
    test, found = made.split.test, {}
    for name, rows in euroc_calibration.sources(test).items():
        piece, own = test.take(rows), Track(track.mean[rows], track.cov[rows])
        ours = euroc_filter.lengths(piece, own.mean)
        drift = inertial.strapdown(piece, inertial.trained_bias(made.split.train, len(piece)))
        theirs = euroc_filter.lengths(piece, drift)
        found[name] = {
            "end_p": ours["end_p"], f"{REFERENCE} end_p": theirs["end_p"],
            "end_v": ours["end_v"], f"{REFERENCE} end_v": theirs["end_v"], **euroc_filter.honesty(piece, own),
        }  # fmt: skip
    return found


def by_share(tests: Mapping[int, Records], tracks: Mapping[int, Track]) -> dict[str, dict[str, float]]:
    """Whether the error bars hold at every horizon, with and without the flight whose truth is tilted."""
    found: dict[str, dict[str, float]] = {"all flights": {}, f"all but {TILTED}": {}}
    for horizon, test in tests.items():
        apart = euroc_calibration.sources(test)
        good = [row for name, rows in apart.items() if name != TILTED for row in rows]
        for name, rows in zip(found, (list(range(len(test))), good), strict=True):
            track = tracks[horizon]
            held = euroc_filter.honesty(test.take(rows), Track(track.mean[rows], track.cov[rows]))
            found[name] |= {f"{key}_{horizon}s": value for key, value in held.items()}
    return found


def rungs(tasks: dict[int, Protocol]) -> dict[str, dict[str, float]]:
    """The references at every horizon; only the EKF says how sure it is."""
    found: dict[str, dict[str, float]] = {}
    for horizon, made in tasks.items():
        test, train = made.split.test, made.split.train
        told = inertial.strapdown_ekf(test, train)
        paths = {
            "hold": inertial.hold(test),
            "constant_velocity": inertial.constant_velocity(test),
            "strapdown": inertial.strapdown(test),
            "strapdown_bias": inertial.strapdown(test, inertial.trained_bias(train, len(test))),
            "strapdown_ekf": told.mean,
        }
        for name, path in paths.items():
            values = euroc_filter.lengths(test, path)
            if name == "strapdown_ekf":
                values |= euroc_filter.honesty(test, Track(told.mean, told.cov))
            found.setdefault(name, {}).update({f"{key}_{horizon}s": value for key, value in values.items()})
    return found


def targets(references: dict[str, dict[str, float]]) -> dict[str, Any]:
    """30 % below strapdown for position and velocity at 5 and 10 s; honest error bars at every horizon."""
    goals: dict[str, Any] = {}
    for horizon in HORIZONS:
        for name in ("rmse_p", "end_p", "rmse_v", "end_v") if horizon > 1 else ():
            goals[f"{name}_{horizon}s"] = BETTER * references[REFERENCE][f"{name}_{horizon}s"]
        goals |= {f"{name}_{horizon}s": list(limits) for name, limits in HONEST.items()}
    return goals


def _few(tests: Mapping[int, Records]) -> dict[int, Records]:
    return {1: tests[1].take(torch.arange(QUICK))}


def measure(folder: Path, *, quick: bool = False) -> Iterator[Row]:
    """The shipped filter, the mean of all seeds, and the references."""
    begin = time.process_time()
    model, figures = checkpoint.load(folder), euroc_card.read(folder)
    tasks = {h: euroc("strict", horizon=float(h)) for h in (HORIZONS[:1] if quick else HORIZONS)}
    tests = {horizon: made.split.test for horizon, made in tasks.items()}
    goals, records = figures["targets"], figures["records"]
    some = _few(tests) if quick else tests
    found = scored(some, tracked(model, some))
    spent = time.process_time() - begin
    yield from euroc_card.rows(
        TASK, "strict", "fwnkf, as shipped", found, goals, QUICK if quick else records, cpu_seconds=spent
    )
    if quick:
        return
    mean, std = figures["mean"], figures["std"]
    ours = {name: value for name, value in mean.items() if name != "cpu_seconds"}
    yield from euroc_card.rows(
        TASK, "strict", "fwnkf", ours, goals, records, spread=std, seeds=len(figures["seeds"]),
        cpu_seconds=mean["cpu_seconds"],
    )  # fmt: skip
    for method, values in rungs(tasks).items():
        yield from euroc_card.rows(TASK, "strict", method, values, goals, records)
