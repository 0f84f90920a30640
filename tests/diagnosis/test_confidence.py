"""What a log cannot tell apart is named together, with what to record; scores are those of the table."""

from __future__ import annotations

import numpy as np
import pytest

from fwnkf.data.labelled import labelled_flight
from fwnkf.diagnosis.evidence import gather
from fwnkf.diagnosis.rules import judge
from fwnkf.diagnosis.rules.confidence import LINE, RESONANCE, line_score
from fwnkf.diagnosis.thresholds import THRESHOLDS
from fwnkf.logs.log import Stream
from fwnkf.logs.memory import MemoryLog


def fixed_line(rng, commands):
    """30 s of a gyro with a tone at 60 Hz, and motor commands or none."""
    time = np.arange(7500) / 250
    values = 0.01 * rng.normal(size=(len(time), 3)) + 0.1 * np.sin(2 * np.pi * 60 * time)[:, None]
    gyro = {f"gyro_{axis}": column for axis, column in zip("xyz", values.T, strict=True)}
    streams = [Stream("gyro", time, gyro, role="gyro")]
    if commands is not None:
        motor = {f"motor_{k}": commands * (1 + 0.001 * k) + 0.001 * rng.normal(size=len(time)) for k in range(1, 5)}
        streams.append(Stream("motor", time, motor, role="motor"))
    findings = judge(gather(MemoryLog(streams), THRESHOLDS))
    return next(item for item in findings if item.cause in ("vibration", "rotor_vibration"))


@pytest.mark.parametrize("commands", [None, np.full(7500, 0.5)])
def test_a_fixed_line_may_be_a_rotor_where_no_speed_changes(rng, commands):
    finding = fixed_line(rng, commands)
    assert finding.cause == "vibration"
    assert finding.figures["alternative"] == "rotor_vibration"
    assert "rotor at a constant speed" in finding.action
    assert "speeds of the rotors" in finding.action


def test_a_fixed_line_is_no_rotor_where_commands_change(rng):
    finding = fixed_line(rng, 0.5 + 0.15 * np.sin(np.arange(7500) / 250))
    assert finding.cause == "vibration"
    assert "alternative" not in finding.figures


def test_rotor_speeds_leave_no_alternative():
    flown = labelled_flight(5, ("unbalance",), {"rate": 250.0, "speeds": 100.0})
    finding = next(item for item in judge(gather(flown.log, THRESHOLDS)) if item.cause == "rotor_vibration")
    assert "alternative" not in finding.figures


def test_lines_that_stand_out_are_surer_and_resonances_less_sure():
    ratios = (2.0, 20.0, 50.0, 500.0)
    lines = [line_score("vibration", {"ratio": ratio, "excess": 5.0}) for ratio in ratios]
    bands = [line_score("resonance", {"ratio": ratio, "excess": 5.0}) for ratio in ratios]
    assert lines == sorted(lines)
    assert bands == sorted(bands, reverse=True)
    assert set(lines) == {score for _, score in LINE}
    assert set(bands) == {score for _, score in RESONANCE}
