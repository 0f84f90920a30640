"""Rules about receivers and magnetometers: positions that jump, signals that are late, fields of currents."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...logs.log import Stream
from ..attitude import least_squares, rotations
from ..evidence import Evidence
from ..finding import Finding
from ..scales import ORIENTATION
from .confidence import plain_score

POSITION, VELOCITY = (tuple(f"{name}_{axis}" for axis in "xyz") for name in ("position", "velocity"))
MAG = tuple(f"mag_{axis}" for axis in "xyz")


def findings(evidence: Evidence) -> Iterator[Finding]:
    """Where the log has the signals."""
    gnss = evidence.role("gnss")
    if gnss is not None and set(POSITION) <= set(gnss.columns) and len(gnss) > 20:
        yield from _glitch(gnss, evidence)
        yield from _late(gnss, evidence)
    yield from _interference(evidence)


def _glitch(gnss: Stream, evidence: Evidence) -> Iterator[Finding]:
    """Steps of the position that the velocity does not have."""
    position, time = gnss.stack(POSITION), gnss.time
    steps, seconds = np.diff(position, axis=0), np.diff(time)
    if set(VELOCITY) <= set(gnss.columns):
        velocity = gnss.stack(VELOCITY)
        expected = 0.5 * (velocity[1:] + velocity[:-1]) * seconds[:, None]
    else:
        expected = np.median(np.stack([np.roll(steps, k, axis=0) for k in (-2, -1, 1, 2)]), axis=0)
    size = np.linalg.norm(steps - expected, axis=1)
    known = np.isfinite(size)
    if not known.any():
        return
    limit = max(evidence.thresholds.gnss_jump, 10 * float(np.median(size[known])))
    jumps = np.flatnonzero(known & (size > limit))
    if not len(jumps):
        return
    worst = int(jumps[np.argmax(size[jumps])])
    yield Finding(
        "gnss_glitch", "warning", plain_score(),
        f"The position of {gnss.name} jumps by {size[worst]:.3g} m at {time[worst + 1]:.1f} s"
        + (f", one of {len(jumps)} jumps." if len(jumps) > 1 else "."),
        f"step of the position less that of the velocity (threshold {limit:.3g} m)",
        "Gate the innovations of this receiver, and look for multipath or a change of the number of satellites at that "
        "time.",
        POSITION, {"excess": float(size[worst] / limit), "at_s": float(time[worst + 1]), "size_m": float(size[worst]),
                   "cost": float(size[worst]), "cost_unit": "m"},
    )  # fmt: skip


def _late(gnss: Stream, evidence: Evidence) -> Iterator[Finding]:
    """The velocity of the receiver against that of the pose."""
    pose = evidence.role("pose")
    if pose is None or not set(POSITION) <= set(pose.columns) or not set(VELOCITY) <= set(gnss.columns):
        return
    middle = 0.5 * (pose.time[1:] + pose.time[:-1])
    every = max(round(0.2 / max(float(np.median(np.diff(pose.time))), 1e-3)), 1)
    position, time = pose.stack(POSITION)[::every], pose.time[::every]
    if len(time) < 20:
        return
    middle, speed = 0.5 * (time[1:] + time[:-1]), np.diff(position, axis=0) / np.diff(time)[:, None]
    velocity = gnss.stack(VELOCITY)
    best: tuple[float, float] = (np.inf, 0.0)
    left = {}
    for lag in np.round(np.arange(-0.4, 1.21, 0.05), 3):
        inside = (gnss.time - lag > middle[0]) & (gnss.time - lag < middle[-1])
        if inside.sum() < 20:
            continue
        expected = np.stack([np.interp(gnss.time[inside] - lag, middle, column) for column in speed.T], -1)
        error = float(np.nanmedian(np.linalg.norm(velocity[inside] - expected, axis=1)))
        left[float(lag)] = error
        best = min(best, (error, float(lag)))
    error, lag = best
    limit = evidence.thresholds.gnss_delay
    if lag > limit and 0.0 in left and left[0.0] > 1.3 * error:
        yield Finding(
            "delay", "warning", plain_score(), f"{gnss.name} is late by {lag:.2g} s.",
            f"delay at which its velocity fits that of the pose best (threshold {limit:g} s)",
            "Give the estimator this delay (EKF2_GPS_DELAY in PX4, GPS1_DELAY_MS in ArduPilot), or stamp its samples "
            "when they are measured.",
            (gnss.name,), {"excess": lag / limit, "delay_s": lag},
        )  # fmt: skip


def _interference(evidence: Evidence) -> Iterator[Finding]:
    """A field that grows with the supply current, beside that of the Earth and a constant one."""
    mag, power, pose = (
        evidence.whole("mag"),
        evidence.whole("power"),
        evidence.whole("pose") or evidence.whole("attitude"),
    )
    if mag is None or power is None or pose is None or not set(ORIENTATION) <= set(pose.columns):
        return
    if "current" not in power.columns or not set(MAG) <= set(mag.columns) or len(mag) < 50:
        return
    time, field = mag.time, mag.stack(MAG)
    current = np.interp(time, power.time, power.columns["current"])
    known = np.isfinite(pose.stack(ORIENTATION)).all(1)
    orientation = pose.stack(ORIENTATION)[known]
    near = np.clip(np.searchsorted(pose.time[known], time), 0, known.sum() - 1)
    rows = rotations(orientation[near])
    good = np.isfinite(field).all(1) & np.isfinite(current)
    if good.sum() < 50 or np.std(current[good]) < 0.05 * max(float(np.mean(np.abs(current[good]))), 1e-6):
        return
    design = np.concatenate((np.swapaxes(rows, 1, 2), np.broadcast_to(np.eye(3), rows.shape),
                             current[:, None, None] * np.eye(3)), axis=2)[good]  # fmt: skip
    flat, target = design.reshape(-1, 9), field[good].reshape(-1)
    weights, variance = least_squares(flat, target)
    residual = target - flat @ weights
    variance *= float(residual @ residual) / max(len(target) - 9, 1)
    per_ampere = weights[6:]
    size = float(np.linalg.norm(per_ampere)) * float(np.quantile(np.abs(current[good]), 0.75))
    # neighbouring samples are not independent: an error ten times as large as theirs
    sure = float(np.linalg.norm(per_ampere)) > 10 * float(np.sqrt(variance[6:].sum()))
    limit = evidence.thresholds.magnetic
    if size > limit and sure:
        yield Finding(
            "interference", "warning", plain_score(),
            f"The magnetic field changes with the supply current, by {size:.2g} µT.",
            f"{', '.join(f'{value:.2g}' for value in per_ampere)} µT/A in x, y, z (threshold {limit:g} µT at the usual "
            "current)",
            "Move the magnetometer away from supply wires and twist them, or compensate (CAL_MAG_COMP_TYP in PX4, "
            "COMPASS_MOTCT in ArduPilot).",
            MAG, {"excess": size / limit, "at_hover_ut": size, "cost": size, "cost_unit": "µT"},
        )  # fmt: skip
