"""Rules about what a log cannot show, and what to set before the next flight."""

from __future__ import annotations

import re

import numpy as np

from ...logs.log import OWN
from ..evidence import Evidence
from ..finding import Finding

HORIZONTAL = re.compile(r"gps|gnss|ev_|vision|flow|beacon|aux_|vel_pos|hpos|hvel|^I[VP][NE]$|^position", re.IGNORECASE)
"""Names of innovations that hold a horizontal position or velocity."""

FASTER = {
    "ULog": "set SDLOG_PROFILE to 273 (default, high rate and raw gyro FIFO; 785 with the accelerometer's) and fly "
    "again; IMU_GYRO_RATEMAX limits the rate of the control loop",
    "DataFlash": "set INS_LOG_BAT_MASK = 1 and INS_LOG_BAT_OPT = 4 (batches of raw samples before and after the "
    "filters), or LOG_BITMASK bit 18 (fast IMU), and fly again",
    "Betaflight blackbox": "set blackbox_sample_rate = 1/1 (or 1/2) and debug_mode = GYRO_SCALED before version 4.5, "
    "and fly again",
}
ROS = "raise the rate of the IMU driver (200 Hz at least, better 1 kHz), record its raw topic, and drive again"
SPEEDS = {
    "ULog": "log esc_status: ESCs with telemetry (DShot with DSHOT_BIDIR_EN, or UAVCAN)",
    "DataFlash": "enable ESC telemetry (SERVO_BLH_AUTO, SERVO_BLH_BDMASK or CAN ESCs)",
    "Betaflight blackbox": "enable bidirectional DShot (set dshot_bidir = ON); eRPM is then in the log",
}


def to_record_speeds(format: str) -> str:
    """What to set so that the next log of this format has rotor speeds."""
    return SPEEDS.get(format, "record the speeds of the rotors (ESC telemetry)")


def findings(evidence: Evidence) -> list[Finding]:
    """What is missing for a diagnosis."""
    return [*_slow(evidence), *_no_inertial(evidence), *_no_aiding(evidence), *_no_speeds(evidence)]


def _slow(evidence: Evidence) -> list[Finding]:
    limits = evidence.thresholds
    rates = {role: evidence.reports[role].rate for role in ("imu", "gyro", "accel") if role in evidence.reports}
    if not rates or max(rates.values()) >= limits.slow_rate:
        return []
    role, rate = max(rates.items(), key=lambda item: item[1])
    rotor = evidence.role("rotor")
    turns = ""
    if rotor is not None:
        speed = float(np.nanmedian(rotor.stack()))
        turns = f" The rotors turn at {speed:.3g} Hz, above that frequency." if speed > rate / 2 else ""
    seen = any(part.role in rates and part.series.rate > 3 * limits.line_lowest for part in evidence.analysed)
    return [
        Finding(
            "not_observable",
            "info" if seen else "warning",
            0.99,
            f"Vibration above {rate / 2:.3g} Hz cannot be seen in this log: {role} is logged at {rate:.3g} Hz.{turns}",
            f"sampling rate {rate:.4g} Hz (threshold {limits.slow_rate:g} Hz)",
            f"To see it, {FASTER.get(evidence.log.format, ROS)}.",
            (role,),
            {"nyquist_hz": rate / 2, "rate_hz": rate, "excess": 1e6},
        )
    ]


def _no_inertial(evidence: Evidence) -> list[Finding]:
    if any(role in evidence.reports for role in ("imu", "gyro", "accel")):
        return []
    if any(part.stream.role == OWN for part in evidence.analysed):  # another sensor, which needs no IMU
        return []
    topics = ", ".join(list(evidence.log.topics)[:6]) or "none"
    return [
        Finding(
            "not_observable",
            "info",
            0.99,
            "The noise of the inertial sensors cannot be analysed: the log has no IMU data.",
            f"topics: {topics}",
            f"Record the IMU as well ({FASTER.get(evidence.log.format, ROS)}), or name it with --topic imu=TOPIC or "
            "--field gyro_x=TOPIC.FIELD.",
        )
    ]


def _no_aiding(evidence: Evidence) -> list[Finding]:
    pose = evidence.role("pose")
    fix = str(evidence.log.facts.get("gps_fix", ""))
    names = [row.name for row in evidence.logged]
    if pose is None or not names or any(HORIZONTAL.search(name) for name in names) or fix not in ("", "none"):
        return []
    spans = [
        float(np.nanmax(pose.columns[axis]) - np.nanmin(pose.columns[axis]))
        for axis in ("position_x", "position_y", "position_z")
        if axis in pose.columns and np.isfinite(pose.columns[axis]).any()
    ]
    if len(spans) < 2:
        return []
    span = max(spans[:2])
    return [
        Finding(
            "no_aiding",
            "failure" if span > evidence.thresholds.drift_span else "warning",
            0.95,
            f"No position or velocity was measured: the position estimate is dead reckoning and moves by {span:.0f} m "
            + ("in the air." if evidence.airborne else "during the log."),
            f"GPS fix: {fix or 'not logged'}; innovations only of {', '.join(names[:6])}; the estimated position spans "
            + " × ".join(f"{value:.3g}" for value in spans)
            + f" m (threshold {evidence.thresholds.drift_span:g} m)",
            "Do not use this position. Fly with a GPS fix, optical flow or an external pose, and check that the filter "
            "fuses it (its innovations are then in the log).",
            ("position_x", "position_y"),
            {"span_m": span},
        )
    ]


def _no_speeds(evidence: Evidence) -> list[Finding]:
    """Only where lines are, and would be easier to explain with rotor speeds."""
    wanted = SPEEDS.get(evidence.log.format)
    loud = [peak for peak in evidence.peaks if peak.ratio > 2 * evidence.thresholds.line_ratio]
    if wanted is None or evidence.role("rotor") is not None or not loud:
        return []
    return [
        Finding(
            "not_observable",
            "info",
            0.95,
            "The lines cannot be assigned to rotors: the log has no rotor speeds.",
            f"{len(loud)} lines, the strongest at {loud[0].frequency:.4g} Hz",
            f"To see it, {wanted}, and fly again.",
        )
    ]
