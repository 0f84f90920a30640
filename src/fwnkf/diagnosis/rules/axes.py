"""Rules about a gyro against the attitude: axes, signs, scale and delay before a bias that drifts or jumps."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ...logs.log import Stream
from ..attitude import WINDOW, Agreement, gyro_bias, jump
from ..evidence import Evidence
from ..finding import Finding
from ..scales import GRAVITY, GYRO, ORIENTATION, Scale, coefficients
from .confidence import plain_score


def findings(evidence: Evidence) -> Iterator[Finding]:
    """Of gyro and accelerometer against attitude and gravity."""
    yield from _gyro_findings(evidence)
    yield from (_scale(item) for item in evidence.scales)


def _gyro_findings(evidence: Evidence) -> Iterator[Finding]:
    """Axes, or else the bias: an axis that is wrong explains what is left."""
    stream, pose, found = evidence.gyro, evidence.attitude, evidence.agreement
    if stream is None or pose is None or found is None:
        return
    wrong = list(_axes(found, pose.name))
    yield from wrong
    if wrong or any(item.channels == GYRO for item in evidence.scales):
        return
    clock = evidence.reports[stream.role].clock_problems(
        repeated=1.0, rate=evidence.thresholds.rate_error, jitter=1.0, drift=evidence.thresholds.rate_error
    )
    if clock:  # the two signals run apart: what differs is the clock
        return
    late = _delay(found, evidence, pose.name)
    if late is not None:
        yield late
    if not found.seen:  # an attitude that the gyro does not explain says nothing about its bias
        return
    delay = found.delay if found.sharpness > 1.5 else 0.0
    yield from _bias(evidence, stream, stream.stack(GYRO), pose, delay)


def _axes(found: Agreement, source: str) -> Iterator[Finding]:
    """What the coefficients say: exchanged axes or mirrored ones, of which only the first is said."""
    if found.swapped:
        names = sorted({GYRO[k] for pair in found.swapped for k in pair})
        yield Finding(
            "axis_swap", "failure", plain_score(),
            f"Axes of the gyro are exchanged: {' and '.join(names)}.", coefficients(found, source),
            "Correct the mounting rotation of the sensor in the configuration of the vehicle, not in the filter.",
            tuple(names), {"excess": 10.0},
        )  # fmt: skip
    elif found.mirrored:
        names = [GYRO[row] for row in found.mirrored]
        proper = len(names) == 2  # half a turn about the third axis
        yield Finding(
            "axis_sign", "failure", plain_score(),
            f"Wrong sign against the attitude in {source}: {', '.join(names)}.",
            coefficients(found, source),
            "Correct the sign or the mounting rotation of the sensor, or the frame of "
            + f"{source}: both must use the same axes before a filter can use them together."
            + (" Two axes at once are a sensor that is mounted upside down, or forward-left-up against "
               "forward-right-down." if proper else ""),
            tuple(names), {"excess": 10.0, "coefficient": float(found.matrix[found.mirrored[0], found.mirrored[0]])},
        )  # fmt: skip


def _scale(scale: Scale) -> Finding:
    sensor = scale.channels[0].partition("_")[0]
    unit = "degrees per second instead of rad/s" if sensor == "gyro" else "g instead of m/s²"
    whole = abs(math.log(scale.factor / (180 / math.pi if sensor == "gyro" else 1 / GRAVITY))) < 0.1
    guess = f": it is in {unit}" if whole else ""
    name = "gyro" if sensor == "gyro" else "accelerometer"
    return Finding(
        "scale", "failure", plain_score(),
        f"The {name} reads {scale.factor:.3g} times what {scale.against} says{guess}.", scale.text,
        f"Correct its scale: multiply {', '.join(scale.channels)} by {1 / scale.factor:.4g}.", scale.channels,
        {"excess": 10.0, "factor": scale.factor},
    )  # fmt: skip


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
