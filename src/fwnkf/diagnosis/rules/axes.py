"""Rules about a gyro against the attitude: axes, signs, scale and delay before a bias that drifts or jumps."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ...logs.log import Stream
from ..attitude import WINDOW, Agreement, agreement, attitude_rates, gyro_bias, jump, means
from ..evidence import Evidence
from ..finding import Finding
from .confidence import plain_score

GYRO, ACCEL = (tuple(f"{name}_{axis}" for axis in "xyz") for name in ("gyro", "accel"))
ORIENTATION = tuple(f"orientation_{part}" for part in "wxyz")
GRAVITY = 9.80665
CALM_SECONDS, CALM_RATE = 0.5, 0.35
"""Seconds of a window, and rad/s below which a vehicle hardly turns in it."""
CALM_SPREAD = 0.15
"""Spread of the acceleration in such windows, over its median, up to which it is gravity."""


def findings(evidence: Evidence) -> Iterator[Finding]:
    """Of gyro and accelerometer against attitude and gravity."""
    yield from _gyro_findings(evidence)
    yield from _accel_scale(evidence)  # after the gyro, which says when the vehicle hardly turns


def _gyro_findings(evidence: Evidence) -> Iterator[Finding]:
    stream, pose = _gyro(evidence), _attitude(evidence)
    if stream is None or pose is None:
        return
    time, gyro = stream.time, stream.stack(GYRO)
    rates = attitude_rates(pose.time, pose.stack(ORIENTATION))
    found = None if rates is None else agreement(time, gyro, rates)
    wrong = [] if found is None else list(_axes(found, evidence, pose.name))
    yield from wrong
    if any(item.severity != "info" for item in wrong):
        return
    clock = evidence.reports[stream.role].clock_problems(
        repeated=1.0, rate=evidence.thresholds.rate_error, jitter=1.0, drift=evidence.thresholds.rate_error
    )
    if clock:  # the two signals run apart: what differs is the clock
        return
    late = None if found is None else _delay(found, evidence, pose.name)
    if late is not None:
        yield late
    if found is None or not found.seen:  # an attitude that the gyro does not explain says nothing about its bias
        return
    delay = found.delay if found.sharpness > 1.5 else 0.0
    yield from _bias(evidence, stream, gyro, pose, delay)


def _gyro(evidence: Evidence) -> Stream | None:
    for role in ("imu", "gyro"):
        stream = evidence.role(role)
        if stream is not None and set(GYRO) <= set(stream.columns) and len(stream) >= 100:
            return stream
    return None


def _attitude(evidence: Evidence) -> Stream | None:
    for role in ("pose", "attitude"):
        stream = evidence.role(role)
        if stream is not None and set(ORIENTATION) <= set(stream.columns) and len(stream) >= 20:
            return stream
    return None


def _axes(found: Agreement, evidence: Evidence, source: str) -> Iterator[Finding]:
    """What the coefficients say: exchanged axes, mirrored ones, and a factor, of which only the first is said."""
    limits = evidence.thresholds
    matrix, seen = found.matrix, found.seen
    sure = np.abs(matrix) > 5 * found.error
    strongest = {row: int(np.argmax(np.abs(matrix[row]) * sure[row])) for row in seen if sure[row].any()}
    swapped = [(row, column) for row, column in strongest.items()
               if row != column and abs(matrix[row, column]) > 3 * abs(matrix[row, row])
               and abs(matrix[row, column]) > 0.3]  # fmt: skip
    text = f"rate of the attitude in {source} regressed on the gyro: " + "; ".join(
        f"{axis} = {matrix[k, 0]:.2f} x {matrix[k, 1]:+.2f} y {matrix[k, 2]:+.2f} z"
        for k, axis in enumerate("xyz") if k in seen
    )  # fmt: skip
    if swapped:
        names = sorted({GYRO[k] for pair in swapped for k in pair})
        yield Finding(
            "axis_swap", "failure", plain_score(),
            f"Axes of the gyro are exchanged: {' and '.join(names)}.", text,
            "Correct the mounting rotation of the sensor in the configuration of the vehicle, not in the filter.",
            tuple(names), {"excess": 10.0},
        )  # fmt: skip
        return
    mirrored = [row for row in seen if sure[row, row] and matrix[row, row] < -0.3]
    if mirrored:
        names = [GYRO[row] for row in mirrored]
        proper = len(mirrored) == 2  # half a turn about the third axis
        yield Finding(
            "axis_sign", "failure", plain_score(),
            f"Wrong sign against the attitude in {source}: {', '.join(names)}.",
            text,
            "Correct the sign or the mounting rotation of the sensor, or the frame of "
            + f"{source}: both must use the same axes before a filter can use them together."
            + (" Two axes at once are a sensor that is mounted upside down, or forward-left-up against "
               "forward-right-down." if proper else ""),
            tuple(names), {"excess": 10.0, "coefficient": float(matrix[mirrored[0], mirrored[0]])},
        )  # fmt: skip
        return
    factors = np.array([matrix[row, row] for row in seen if sure[row, row]])
    if len(factors) >= 1 and (factors > 0).all():
        factor = 1 / float(np.median(factors))
        alike = float(np.ptp(np.log(factors))) < 0.2
        if alike and abs(math.log(factor)) > math.log(1 + limits.scale_error):
            yield _scale(GYRO, factor, text, f"the attitude in {source}", evidence)


def _scale(channels: tuple[str, ...], factor: float, text: str, against: str, evidence: Evidence) -> Finding:
    evidence.factors.update(dict.fromkeys(channels, factor))
    sensor = channels[0].partition("_")[0]
    unit = "degrees per second instead of rad/s" if sensor == "gyro" else "g instead of m/s²"
    whole = abs(math.log(factor / (180 / math.pi if sensor == "gyro" else 1 / GRAVITY))) < 0.1
    guess = f": it is in {unit}" if whole else ""
    return Finding(
        "scale", "failure", plain_score(),
        f"The {'gyro' if sensor == 'gyro' else 'accelerometer'} reads {factor:.3g} times what {against} says{guess}.",
        text, f"Correct its scale: multiply {', '.join(channels)} by {1 / factor:.4g}.", channels,
        {"excess": 10.0, "factor": factor},
    )  # fmt: skip


def _accel_scale(evidence: Evidence) -> Iterator[Finding]:
    """The accelerometer against gravity, while the vehicle hardly turns."""
    stream = evidence.whole("imu") or evidence.whole("accel")
    if stream is None or not set(ACCEL) <= set(stream.columns) or len(stream) < 100:
        return
    turning = evidence.whole("imu") or evidence.whole("gyro")
    edges = np.arange(stream.time[0], stream.time[-1], CALM_SECONDS)
    if len(edges) < 12:
        return
    mean = np.linalg.norm(means(stream.time, stream.stack(ACCEL), edges[:-1], edges[1:]), axis=1)
    if turning is not None and set(GYRO) <= set(turning.columns):
        rate = np.linalg.norm(means(turning.time, turning.stack(GYRO), edges[:-1], edges[1:]), axis=1)
        rate /= evidence.factors.get("gyro_x", 1.0)
        mean = mean[rate < CALM_RATE]
    mean = mean[np.isfinite(mean)]
    if len(mean) < 8:
        return
    low, level, high = np.quantile(mean, (0.25, 0.5, 0.75)).tolist()
    factor = level / GRAVITY
    if high - low > CALM_SPREAD * level:  # flown too hard to tell
        return
    if abs(math.log(max(factor, 1e-6))) > math.log(1 + evidence.thresholds.scale_error):
        text = f"median size while it hardly turns {level:.4g} m/s², gravity is {GRAVITY:.4g} m/s²"
        yield _scale(ACCEL, factor, text, "gravity", evidence)


def _delay(found: Agreement, evidence: Evidence, source: str) -> Finding | None:
    limit = evidence.thresholds.delay
    if abs(found.delay) < limit or found.sharpness < 1.5 or not found.seen:
        return None
    who = source if found.delay > 0 else "the gyro"
    return Finding(
        "delay", "warning", plain_score(), f"{who} is late by {abs(found.delay):.2g} s.",
        f"delay at which the gyro explains the attitude best (threshold {limit:g} s); the difference is "
        f"{found.sharpness:.2g} times as large without it",
        "Stamp samples when they are measured, or give the estimator this delay.", (source,),
        {"excess": abs(found.delay) / limit, "delay_s": found.delay},
    )  # fmt: skip


def _bias(evidence: Evidence, stream: Stream, gyro: np.ndarray, pose: Stream, delay: float) -> Iterator[Finding]:
    """A bias that changes, as far as the attitude tells."""
    limits = evidence.thresholds
    bias = gyro_bias(stream.time, gyro, pose.time, pose.stack(ORIENTATION), delay=delay)
    if bias is None:
        return
    change = bias.change
    # noise of the windows, from neighbouring ones; the median over axes, because a bias that wanders adds to its own
    scatter = float(np.median(np.median(np.abs(np.diff(bias.bias, axis=0)), axis=0)))
    wandering = (change > limits.drift_gyro) & (change > limits.drift_scatter * scatter)
    wandering &= bias.lasting > 0.7 * limits.drift_gyro
    if not wandering.any():
        return
    axis = int(np.argmax(np.where(wandering, change, 0)))
    slow = evidence.reports[stream.role].rate < limits.slow_rate  # vibration folds to any frequency, zero included
    fine = gyro_bias(stream.time, gyro, pose.time, pose.stack(ORIENTATION), seconds=1.0, delay=delay) or bias
    place, size, better = jump(fine.bias[:, axis])
    steps = better > 1.0 and abs(size) > 0.7 * change[axis]
    moment = float(fine.time[place])
    names = tuple(GYRO[number] for number in np.flatnonzero(wandering))
    text = (
        f"gyro against attitude in windows of {WINDOW:g} s: change {', '.join(f'{value:.2g}' for value in change)} "
        f"rad/s in x, y, z (threshold {limits.drift_gyro:g})"
        + ("; at this sampling rate aliased vibration can have the same effect" if slow else "")
    )
    figures: dict[str, float | str] = {
        "change": float(change[axis]), "excess": float(change[axis] / limits.drift_gyro),
        "cost": float(change[axis]), "cost_unit": "rad/s",
    }  # fmt: skip
    if steps:
        yield Finding(
            "bias_step", "info" if slow else "warning", plain_score(slow),
            f"The bias of {GYRO[axis]} jumps by {size:.3g} rad/s at {moment:.1f} s.", text,
            "Look for an impact, a supply that drops, or a sensor that restarts at that time; start the estimator "
            "anew there.",
            (GYRO[axis],), {**figures, "at_s": moment, "step": size},
        )  # fmt: skip
        return
    yield Finding(
        "drift", "info" if slow else "warning", plain_score(slow),
        f"The bias of {GYRO[axis]} changes by {change[axis]:.3g} rad/s during the flight.", text,
        "Let the sensor warm up, calibrate it over temperature, and give the estimator a bias state with a random walk "
        f"of about {change[axis] / max(float(np.sqrt(np.ptp(bias.time))), 1e-9):.2g} rad/s/√s.",
        names, figures,
    )  # fmt: skip
