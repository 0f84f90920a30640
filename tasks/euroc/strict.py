"""EuRoC ``strict``: new flights, an uncertain initial state, horizons of 1, 5 and 10 s.

Half a degree of tilt at the start alone causes an error of a metre after five seconds, so calibration helps little:
the filter needs a measurement of velocity. In flight the drag of the rotors gives one; on the ground velocity is zero.
Whether noise states model its coloured noise is chosen on flights left out. All noise is measured on training flights
left out of the fit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fwnkf import FWNKF, Filter, Gaussian, save
from fwnkf.data.protocols import Records
from fwnkf.data.recording import Recording
from fwnkf.systems import DragStrapdown
from tasks.euroc import calibration as imu_calibration
from tasks.euroc import fitting, scores, strapdown, texts, unsupervised
from tasks.euroc.fitting import CONSISTENT, Fit
from tasks.euroc.protocol import (
    STRICT,
    TILTED,
    by_source,
    corrected_truth,
    euroc,
    recordings,
    vertical_difference,
    with_corrected_truth,
)
from tasks.interface import SEEDS, Say, Task
from tasks.results import Results, Score, SeedScore, Target

HORIZONS = (1, 5, 10)
HEADLINE = 5
BETTER = 0.7
"""A target of 30 % below the baseline it is set against."""
REFERENCE = "strapdown_bias"
QUICK = 40
"""Windows of the quick subset."""
RPE_FRAMES = 200
"""One second."""


@dataclass(frozen=True, eq=False)
class StrictData:
    """Windows by horizon; ``corrected`` holds those of the tilted sequence with the corrected truth, if it is there."""

    sequences: dict[str, Recording]
    train: dict[int, Records]
    val: dict[int, Records]
    test: dict[int, Records]
    corrected: dict[int, Records]
    vertical: dict[str, float] | None = None
    """The angle between the official and the corrected vertical, degrees."""


Beliefs = dict[int, list[Gaussian]]
"""By horizon: beliefs on the test windows, then on those with the corrected truth."""


class EurocStrict(Task):
    """Inertial navigation of a multirotor on flights that nothing was fitted to."""

    name = "euroc-strict"
    title = "Inertial navigation of new flights with rotor drag (EuRoC, protocol `strict`)"
    protocol = "strict"
    metric = "rmse_p_5s"
    label = "position RMSE over windows of 5 s (m)"
    recording = "flight"
    columns = tuple(
        f"{name}_{horizon}s"
        for horizon in HORIZONS
        for name in ("rmse_p", "end_p", "rmse_v", "end_v", "rmse_q", "nees", "coverage")
    )

    fits_without_truth = True
    fit_note = texts.FIT_NOTE
    fit_baselines = (REFERENCE, texts.NO_DRAG)

    def load(self, *, quick: bool = False) -> StrictData:
        sequences = recordings(name for group in STRICT.values() for name in group)
        corrected = None if quick else corrected_truth(sequences[TILTED])
        vertical = None if corrected is None else vertical_difference(sequences[TILTED], corrected)
        data = StrictData(sequences, {}, {}, {}, {}, vertical)
        for horizon in HORIZONS[:1] if quick else HORIZONS:
            split = euroc("strict", horizon=float(horizon), sequences=sequences).split
            data.train[horizon], data.val[horizon] = split.train, split.val
            data.test[horizon] = split.test.take(torch.arange(QUICK)) if quick else split.test
            if corrected is not None:
                data.corrected[horizon] = with_corrected_truth(split.test, corrected)
        return data

    # ---- scores -----------------------------------------------------------------------------------------------------

    def evaluate(self, model: Filter, data: StrictData) -> Score:
        begin = time.process_time()
        return scored(data, beliefs(model, data), time.process_time() - begin)

    def baselines(self, data: StrictData, results: Results | None) -> Iterator[tuple[str, Score]]:
        fitted = fitting.sensor_calibration(data.train[1])
        functions = {
            "hold": lambda test, train: strapdown.hold(test),
            "constant_velocity": lambda test, train: strapdown.constant_velocity(test),
            "strapdown": lambda test, train: strapdown.strapdown(test),
            REFERENCE: lambda test, train: strapdown.strapdown(test, strapdown.trained_bias(train, len(test))),
            "strapdown_fitted": lambda test, train: imu_calibration.integrate(test, fitted[None])[0],
        }
        for name, function in functions.items():
            begin = time.process_time()
            means = {horizon: function(test, data.train[horizon]) for horizon, test in data.test.items()}
            yield name, scored_means(data, means, time.process_time() - begin)
        begin = time.process_time()
        tracks: Beliefs = {}
        for horizon, test in data.test.items():
            sets = [test, *([data.corrected[horizon]] if horizon in data.corrected else [])]
            tracks[horizon] = [strapdown.strapdown_ekf(one, data.train[horizon]) for one in sets]
        yield "strapdown_ekf", scored(data, tracks, time.process_time() - begin)
        if results is None or "fit" not in results.details:
            return
        fit = Fit.parse(results.details["fit"])
        factor = results.details["noise_factor"]
        yield texts.NO_DRAG, self.evaluate(fitting.without_drag(fit), data)
        if results.details["white"]:
            yield texts.NOISE_STATES, self.evaluate(fitting.noise_state_filter(fit), data)
        else:
            yield texts.PLAIN_EKF, self.evaluate(fitting.plain_ekf(fit, factor), data)

    def targets(self, baselines: Mapping[str, Score]) -> dict[str, Target]:
        """30 % below strapdown for position and velocity at 5 and 10 s; consistency at every horizon."""
        limits: dict[str, Target] = {}
        for horizon in HORIZONS:
            for name in ("rmse_p", "end_p", "rmse_v", "end_v") if horizon > 1 else ():
                limits[f"{name}_{horizon}s"] = BETTER * baselines[REFERENCE].metrics[f"{name}_{horizon}s"]
            limits |= {f"{name}_{horizon}s": band for name, band in CONSISTENT.items()}
        return limits

    def learned(self, model: Filter) -> dict[str, int]:
        system = model.system
        assert isinstance(system, DragStrapdown)
        fitted = int((system.calibration != 0).sum()) + system.drag.numel()
        # a rotation of one axis; three gyro biases, one accelerometer bias, tilt and its factor, four densities and
        # walks, two white variances, two offsets
        states = {"noise states": 4} if isinstance(model, FWNKF) else {}
        return {"constants": fitted + 2 + 3 + 1 + 2 + 4 + 2 + 2} | states

    def innovation_metrics(self, model: Filter, data: StrictData) -> dict[str, float]:
        return {f"nis_{HEADLINE}s": unsupervised.window_nis(model, data.test[HEADLINE])}

    def fit_without_truth(self, data: StrictData, results: Results, *, say: Say = print) -> Score:
        begin = time.process_time()
        model, constants = unsupervised.fit([data.sequences[name] for name in STRICT["train"]], say=say)
        spent = time.process_time() - begin
        say(f"euroc-strict without truth: {constants}")
        score = self.evaluate(model, data)
        return Score(score.metrics | self.innovation_metrics(model, data), score.by_recording, spent)

    # ---- training ---------------------------------------------------------------------------------------------------

    def train(self, folder: Path, *, seeds: Sequence[int] = SEEDS, say: Say = print) -> Results:
        data = self.load()
        begin = time.process_time()
        base = fitting.training(data.sequences, data.train[1], data.train[5])
        tilt, tilts = fitting.choose_tilt(base, data.train[5], say)
        factor, factors = fitting.choose_noise(base, data.train[5], tilt, say)
        # a structure is a choice like any other: that with the least error on flights left out
        white = fitting.left_out_error(factors, "noise_factor", factor) < fitting.left_out_error(
            tilts, "tilt_factor", tilt
        )
        shared = (time.process_time() - begin) / len(seeds)
        scored_seeds: list[SeedScore] = []
        details: dict[str, Any] = {}
        quick: dict[str, float] = {}
        learned: dict[str, int] = {}
        for seed in seeds:
            begin = time.process_time()
            fit = base.fit(seed, tilt)
            model = fitting.plain_ekf(fit, factor) if white else fitting.noise_state_filter(fit)
            seconds = shared + time.process_time() - begin
            tracks = beliefs(model, data)
            score = scored(data, tracks, seconds)
            scored_seeds.append(SeedScore(score.metrics, score.by_recording, seconds, seed))
            say(f"{self.name}, seed {seed}: {score.metrics}")
            if seed == seeds[0]:
                save(model, folder)
                learned = self.learned(model)
                quick = self.evaluate(model, self.load(quick=True)).metrics
                details = {
                    "fit": fit.plain(), "noise_factor": factor, "white": white, "tables": tables(data, tracks),
                    "vertical_difference": data.vertical,
                    "choices": {"tilt": tilts, "noise_factor": factors, "validation": validation(model, data)},
                }  # fmt: skip
        records = sum(len(test) for test in data.test.values())
        results = Results(
            self.name, self.protocol, self.metric, tuple(scored_seeds), {}, {}, learned, records, quick, details
        )
        baselines = dict(self.baselines(data, results))
        return Results(
            self.name, self.protocol, self.metric, tuple(scored_seeds), baselines, self.targets(baselines), learned,
            records, quick, details,
        )  # fmt: skip

    def about(self, results: Results) -> str:
        return texts.strict_about(results)

    def limits(self, results: Results) -> str:
        return texts.strict_limits(results)


# ---- scores ---------------------------------------------------------------------------------------------------------


def beliefs(model: Filter, data: StrictData) -> Beliefs:
    """The filter on all test windows."""
    tracks = {}
    for horizon, test in data.test.items():
        corrected = [data.corrected[horizon]] if horizon in data.corrected else []
        tracks[horizon] = scores.run(model, test, *corrected)
    return tracks


def scored(data: StrictData, tracks: Beliefs, seconds: float) -> Score:
    """Errors and consistency at every horizon; the headline and consistency also with the corrected truth."""
    score = scored_means(data, {horizon: track[0].mean for horizon, track in tracks.items()}, seconds)
    for horizon, track in tracks.items():
        test = data.test[horizon]
        values = scores.consistency_of((test, track[0]))
        score.metrics.update({f"{name}_{horizon}s": value for name, value in values.items()})
        if horizon in data.corrected:
            sets = [*without_tilted(test, track[0]), (data.corrected[horizon], track[1])]
            values = scores.consistency_of(*sets)
            if horizon == HEADLINE:
                values["rmse_p"] = scores.position_rmse(*sets)
            score.metrics.update({f"{name}_{horizon}s_corrected": value for name, value in values.items()})
    return score


def scored_means(data: StrictData, means: Mapping[int, Tensor], seconds: float) -> Score:
    """Errors of estimates without a covariance."""
    metrics: dict[str, float] = {}
    for horizon, mean in means.items():
        values = scores.errors(data.test[horizon], mean)
        metrics |= {f"{name}_{horizon}s": value for name, value in values.items()}
    apart = scores.by_recording(data.test[5], means[5], "rmse_p") if 5 in means else {}
    return Score(metrics, apart, seconds)


def without_tilted(test: Records, belief: Gaussian) -> list[tuple[Records, Gaussian]]:
    """All sequences but the tilted one."""
    rows = [row for name, some in by_source(test).items() if name != TILTED for row in some]
    return [part_of(test, belief, rows)] if rows else []


def part_of(records: Records, belief: Gaussian, rows: list[int]) -> tuple[Records, Gaussian]:
    return records.take(rows), Gaussian(belief.mean[rows], belief.cov[rows])


def validation(model: Filter, data: StrictData) -> dict[str, float]:
    """The validation flight, windows of 5 s."""
    val = data.val[5]
    (belief,) = scores.run(model, val)
    return {**scores.errors(val, belief.mean), **scores.consistency_of((val, belief))}


# ---- tables ---------------------------------------------------------------------------------------------------------

Table = dict[str, dict[str, float]]


def tables(data: StrictData, tracks: Beliefs) -> dict[str, Table]:
    """What the card shows of the first seed beside the metrics."""
    content = {
        "Windows of 5 s by flight (first seed)": by_flight(data, tracks[5][0]),
        "ATE without alignment and RPE over 1 s of the 10 s windows (first seed)": trajectories(data, tracks[10][0]),
        "Consistency by group of flights (first seed)": by_group(data, tracks),
        "NEES and coverage by coordinate, all flights, official truth (first seed)": by_axis(data, tracks, False),
    }
    if data.corrected:
        title = f"NEES and coverage by coordinate, all flights, {TILTED} with corrected truth (first seed)"
        content[title] = by_axis(data, tracks, True)
        content[f"{TILTED} against both truths (first seed)"] = both_truths(data, tracks)
    return content


def by_flight(data: StrictData, belief: Gaussian) -> Table:
    """Each test flight: errors at the end of its windows beside those of strapdown, and consistency."""
    test, rows_by_name = data.test[5], by_source(data.test[5])
    table: Table = {}
    for name, rows in rows_by_name.items():
        part, track = part_of(test, belief, rows)
        ours = scores.errors(part, track.mean)
        reference = strapdown.strapdown(part, strapdown.trained_bias(data.train[5], len(part)))
        theirs = scores.errors(part, reference)
        table[name] = {
            "end_p": ours["end_p"], f"{REFERENCE} end_p": theirs["end_p"],
            "end_v": ours["end_v"], f"{REFERENCE} end_v": theirs["end_v"], **scores.consistency_of((part, track)),
        }  # fmt: skip
    return table


def trajectories(data: StrictData, belief: Gaussian) -> Table:
    """ATE and RPE of each flight, ours and strapdown's."""
    test = data.test[10]
    reference = strapdown.strapdown(test, strapdown.trained_bias(data.train[10], len(test)))
    table: Table = {}
    for name, rows in by_source(test).items():
        part = test.take(rows)
        ours = scores.trajectory_errors(part, belief.mean[rows], RPE_FRAMES)
        theirs = scores.trajectory_errors(part, reference[rows], RPE_FRAMES)
        table[name] = {**ours, **{f"{REFERENCE} {key}": value for key, value in theirs.items()}}
    return table


def by_group(data: StrictData, tracks: Beliefs) -> Table:
    """NEES and coverage with and without the tilted flight, and with its corrected truth."""
    table: Table = {}
    for horizon, track in tracks.items():
        test = data.test[horizon]
        others = without_tilted(test, track[0])
        tilted = part_of(test, track[0], by_source(test)[TILTED])
        groups = {"all flights": [(test, track[0])], f"all but {TILTED}": others, f"{TILTED}": [tilted]}
        if horizon in data.corrected:
            corrected = (data.corrected[horizon], track[1])
            groups[f"{TILTED}, corrected truth"] = [corrected]
            groups[f"all flights, {TILTED} with corrected truth"] = [*others, corrected]
        for name, sets in groups.items():
            values = scores.consistency_of(*sets)
            table.setdefault(name, {}).update({f"{key}_{horizon}s": value for key, value in values.items()})
    return table


def by_axis(data: StrictData, tracks: Beliefs, corrected: bool) -> Table:
    """NEES and coverage of each coordinate at every horizon."""
    table: Table = {}
    for horizon, track in tracks.items():
        test = data.test[horizon]
        sets = [(test, track[0])]
        if corrected:
            sets = [*without_tilted(test, track[0]), (data.corrected[horizon], track[1])]
        for name, values in scores.consistency_by_axis(*sets).items():
            table.setdefault(name, {}).update({f"{key}_{horizon}s": value for key, value in values.items()})
    return table


def both_truths(data: StrictData, tracks: Beliefs) -> Table:
    """Errors on the tilted flight against the official and the corrected truth, ours and strapdown's."""
    table: Table = {}
    for horizon, track in tracks.items():
        test, corrected = data.test[horizon], data.corrected[horizon]
        official, official_track = part_of(test, track[0], by_source(test)[TILTED])
        bias = strapdown.trained_bias(data.train[horizon], len(official))
        for name, records, mean in (
            ("ours, official", official, official_track.mean),
            ("ours, corrected", corrected, track[1].mean),
            (f"{REFERENCE}, official", official, strapdown.strapdown(official, bias)),
            (f"{REFERENCE}, corrected", corrected, strapdown.strapdown(corrected, bias[: len(corrected)])),
        ):
            values = scores.errors(records, mean)
            row = {f"{key}_{horizon}s": values[key] for key in ("rmse_p", "rmse_v", "rmse_q")}
            table.setdefault(name, {}).update(row)
    return table
